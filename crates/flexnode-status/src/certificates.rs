//! The seam through which the node's certificates are read. Parsing them is the client's matter, which stands above.

use crate::observe::Known;
use flexnode_model::snapshot::Certificate;
use std::fmt::Debug;

/// Reads the node's certificates.
pub trait Certificates: Send + Sync + Debug {
    /// Those that the node uses now. Empty: this host never joined. One that is named and not there, or cannot be read, is
    /// in the list with its reason.
    fn view(&self) -> Known<Vec<Certificate>>;
}

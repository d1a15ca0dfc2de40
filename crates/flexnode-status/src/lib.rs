//! What the node is now: versions, services, readiness.
//!
//! Data goes one way: the seams of flexnode-host and [`node::OwnNode`] are asked, each with a deadline of its own, and
//! what they say becomes a document. Deciding on it is pure, and the only thing this crate writes is its own status
//! file.

pub mod arc;
pub mod bootstrap;
pub mod certificates;
pub mod collector;
pub mod file;
pub mod judge;
pub mod lines;
pub mod node;
pub mod observe;
mod place;
pub mod recorded;
pub mod render;
pub mod report;
pub mod slots;
#[cfg(test)]
mod testing;

pub use bootstrap::{BootstrapReason, bootstrap_reason};
pub use collector::{Collector, CollectorConfig};
pub use file::{
    StatusFileError, get_status_file_path, load_snapshot_from_file, load_status, load_status_from_file,
    mark_kubelet_unhealthy_best_effort, mark_kubelet_unhealthy_best_effort_at_path, publish_snapshot, publish_status,
    remove_status_file_best_effort, remove_status_file_best_effort_at_path, update_status_file, write_status_to_file,
};
pub use flexnode_model::snapshot::{Snapshot, Verdict};
pub use flexnode_model::status::{ArcStatus, LastUpdatedBy, LastUpdatedReason, NodeStatus};
pub use node::{NodeView, OwnNode};
pub use observe::{Observation, Seams};
pub use recorded::{Configured, Recorded};
pub use report::report;
pub use slots::{FsSlots, Slots};

//! Changes that survive a power cut, built from the primitives of [`Fs`].
//!
//! Order is everything here: content is synced before the name is given, the directory is synced before the change is
//! called done. Temporary names start with [`TEMP_PREFIX`] and lie beside their target; [`sweep`] removes what a crash
//! left.

use crate::{Fs, FsError};
use std::path::Path;

/// How our temporary names begin; nothing else in our directories may.
pub const TEMP_PREFIX: &str = ".flexnode-tmp-";

/// Whether a change was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Something was written.
    Made,
    /// All was as wanted already; nothing was touched.
    None,
}

impl Change {
    /// `true` for [`Change::Made`].
    pub fn made(self) -> bool {
        self == Change::Made
    }
    /// [`Change::Made`] when either is.
    #[must_use]
    pub fn or(self, other: Change) -> Change {
        if self.made() || other.made() { Change::Made } else { Change::None }
    }
}

/// Makes `path` a regular file with these bytes and this mode, atomically and durably. Same bytes and mode: nothing is
/// written. A link or directory at `path` is refused. Owner and SELinux label of a file that is replaced are kept.
pub fn write(fs: &dyn Fs, path: &Path, bytes: &[u8], mode: u32) -> Result<Change, FsError> {
    let _ = (fs, path, bytes, mode);
    unreachable!("written by the owner of this crate")
}

//! Whether a slot is whole: its manifest names every other file with digest, size and mode, and is written last.

use flexnode_host::FsError;
use flexnode_model::DocumentError;
use std::path::PathBuf;

/// A slot that is not what its manifest says.
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    /// It has no manifest: its preparation did not end.
    #[error("version {slot} is incomplete, its preparation did not end; `aks-flex-node slots repair` completes it")]
    Incomplete {
        /// The slot.
        slot: String,
    },
    /// A file is missing or is not the one that was installed.
    #[error("version {slot} is damaged: {} {problem}; `aks-flex-node slots repair` mends it", path.display())]
    Damaged {
        /// The slot.
        slot: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The manifest cannot be read.
    #[error("the manifest {} cannot be read; `aks-flex-node slots repair` makes it again", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: DocumentError,
    },
    /// A file operation.
    #[error(transparent)]
    Fs(#[from] FsError),
}

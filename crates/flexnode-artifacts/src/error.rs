//! What can go wrong with an artifact, in words that tell what to do.

use flexnode_host::FsError;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A failure of this crate. Display says this layer only; the cause is in `source`.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// A file could not be read or written.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The file system is full, or the quota is.
    #[error("the file system of {} is full{}; free space there, nothing was installed", path.display(), of(*needed))]
    DiskFull {
        /// The file that was being written.
        path: PathBuf,
        /// Bytes that all files of the installation need at least; `None`: not known.
        needed: Option<u64>,
        /// The cause.
        #[source]
        source: FsError,
    },
    /// Seen before anything was written: it will not fit.
    #[error(
        "{} needs at least {} MiB, but only {} MiB are free on its file system", dir.display(), needed >> 20, free >> 20
    )]
    NoSpace {
        /// The directory that is written to.
        dir: PathBuf,
        /// Bytes that are needed at least.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// Somebody else than root could change what root would run (invariant 15 of the design).
    #[error("{} is not to be trusted: {reason}. Mend it with: {mend}", path.display())]
    Untrusted {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// The command that mends it.
        mend: String,
    },
    /// `manifest.json` is missing or cannot be used.
    #[error("{} cannot be used: {reason}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// The cause, where there is one.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The source does not hold what is wanted. Every problem that was found is named.
    #[error("the artifacts in {} do not fit:\n  {}", dir.display(), problems.join("\n  "))]
    Unfit {
        /// The bundle.
        dir: PathBuf,
        /// One sentence each.
        problems: Vec<String>,
    },
    /// The bytes are not those that were promised. Nothing got its final name.
    #[error("{} has SHA-256 {found}, but {expected} is promised; copy this file into the bundle again", path.display())]
    WrongDigest {
        /// The file in the bundle.
        path: PathBuf,
        /// Hexadecimal, as promised.
        expected: String,
        /// Hexadecimal, as computed.
        found: String,
    },
    /// An archive that is damaged, or that holds what no release archive holds.
    #[error("{} was refused: {reason}", path.display())]
    Archive {
        /// The archive.
        path: PathBuf,
        /// What is wrong, with the member's name where one is at fault.
        reason: String,
        /// The cause, where there is one.
        #[source]
        source: Option<std::io::Error>,
    },
    /// What a person gave to be packed cannot be used.
    #[error("{} cannot be packed: {reason}", path.display())]
    Input {
        /// The file or directory that was given.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The caller asked to stop.
    #[error("the installation of artifacts was stopped; what was unpacked has been removed")]
    Stopped,
}

fn of(needed: Option<u64>) -> String {
    needed.map(|bytes| format!(", and at least {} MiB are needed in all", bytes >> 20)).unwrap_or_default()
}

impl ArtifactError {
    /// A failed write to `path`: told apart from others when the disk is full.
    pub(crate) fn write(error: FsError, path: &Path) -> Self {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                Self::DiskFull { path: path.to_path_buf(), needed: None, source: error }
            }
            _ => Self::Fs(error),
        }
    }

    /// With what is needed in all, where the disk is full.
    pub(crate) fn needing(self, bytes: u64) -> Self {
        match self {
            Self::DiskFull { path, source, .. } => Self::DiskFull { path, needed: Some(bytes), source },
            Self::Fs(error) => match Self::write(error, Path::new("")) {
                // A directory or a sync: the operation names its path.
                Self::DiskFull { source, .. } => {
                    Self::DiskFull { path: source.path.clone(), needed: Some(bytes), source }
                }
                other => other,
            },
            other => other,
        }
    }

    pub(crate) fn archive(path: &Path, reason: impl Into<String>) -> Self {
        Self::Archive { path: path.to_path_buf(), reason: reason.into(), source: None }
    }

    pub(crate) fn input(path: &Path, reason: impl Into<String>) -> Self {
        Self::Input { path: path.to_path_buf(), reason: reason.into() }
    }
}

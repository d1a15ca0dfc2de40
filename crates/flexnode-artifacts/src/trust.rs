//! Who could change what root is about to install.
//!
//! Programs run as root from what is read here, so the bundle, everything in it that is used and every directory on the
//! way must belong to root and be writable by nobody else; links inside a bundle are refused. A directory with the
//! sticky bit may lie on the way (`/tmp`): entries of root cannot be replaced in it by others.

use crate::error::ArtifactError;
use flexnode_host::{FileKind, Fs, Stat};
use std::path::{Path, PathBuf};

/// Whose files are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trust {
    owner: u32,
}

const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

impl Trust {
    /// Root's, as on every real host.
    pub fn root() -> Self {
        Self::owner(0)
    }

    /// Root's and those of `uid`: for tests, and for tools that a user runs on files of their own.
    pub fn owner(uid: u32) -> Self {
        Self { owner: uid }
    }

    /// Where `dir` really is, after it and every directory above it were found trustworthy.
    pub(crate) fn directory(self, fs: &dyn Fs, dir: &Path) -> Result<PathBuf, ArtifactError> {
        let dir = fs.canonicalize(dir)?;
        for above in dir.ancestors().skip(1) {
            let stat = self.owned(fs, above, FileKind::Dir)?;
            if stat.mode & WRITABLE_BY_OTHERS != 0 && stat.mode & STICKY == 0 {
                return Err(untrusted(
                    above,
                    "users other than its owner may write to it",
                    format!("chmod go-w {}", above.display()),
                ));
            }
        }
        self.closed(fs, &dir, FileKind::Dir, &dir)?;
        Ok(dir)
    }

    /// What the regular file `relative` in the bundle `dir` is, after it and the directories between were found
    /// trustworthy; `None` when it or one of them is not there.
    pub(crate) fn file(self, fs: &dyn Fs, dir: &Path, relative: &str) -> Result<Option<Stat>, ArtifactError> {
        let mut path = dir.to_path_buf();
        let mut parts = relative.split('/').peekable();
        while let Some(part) = parts.next() {
            path.push(part);
            let kind = if parts.peek().is_some() { FileKind::Dir } else { FileKind::File };
            if fs.lstat(&path)?.is_none() {
                return Ok(None);
            }
            let stat = self.closed(fs, &path, kind, dir)?;
            if kind == FileKind::File {
                return Ok(Some(stat));
            }
        }
        Ok(None)
    }

    /// Owned, of the kind, and writable by its owner only.
    fn closed(self, fs: &dyn Fs, path: &Path, kind: FileKind, bundle: &Path) -> Result<Stat, ArtifactError> {
        let stat = self.owned(fs, path, kind)?;
        if stat.mode & WRITABLE_BY_OTHERS != 0 {
            let mend = format!("chmod -R go-w {}", bundle.display());
            return Err(untrusted(path, "users other than its owner may write to it", mend));
        }
        Ok(stat)
    }

    fn owned(self, fs: &dyn Fs, path: &Path, kind: FileKind) -> Result<Stat, ArtifactError> {
        let Some(stat) = fs.lstat(path)? else {
            return Err(untrusted(path, "it vanished while it was looked at", "run the command again".into()));
        };
        if stat.kind != kind {
            let wanted = if kind == FileKind::Dir { "directory" } else { "regular file" };
            let mend = format!("put the {wanted} itself there, not a {}", name(stat.kind));
            return Err(untrusted(path, format!("it is no {wanted}"), mend));
        }
        if stat.uid != 0 && stat.uid != self.owner {
            let mend = format!("chown -R root:root {}", path.display());
            return Err(untrusted(path, format!("it belongs to user {}", stat.uid), mend));
        }
        Ok(stat)
    }
}

fn name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Dir => "directory",
        FileKind::Link => "link",
        FileKind::Other => "device, socket or pipe",
    }
}

fn untrusted(path: &Path, reason: impl Into<String>, mend: String) -> ArtifactError {
    ArtifactError::Untrusted { path: path.to_path_buf(), reason: reason.into(), mend }
}

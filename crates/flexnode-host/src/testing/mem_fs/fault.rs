//! Which operations fail.

use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// A primitive of [`crate::Fs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Op {
    Lstat,
    Stat,
    Open,
    ReadLink,
    Canonicalize,
    ReadDir,
    GetXattr,
    Writable,
    FreeBytes,
    Create,
    Mkdir,
    Symlink,
    Rename,
    Unlink,
    Rmdir,
    Chmod,
    Chown,
    SetXattr,
    Write,
    SyncFile,
    SyncDir,
}

impl Op {
    /// Whether it changes something, syncs not counted.
    pub fn changes(self) -> bool {
        matches!(
            self,
            Op::Create
                | Op::Mkdir
                | Op::Symlink
                | Op::Rename
                | Op::Unlink
                | Op::Rmdir
                | Op::Chmod
                | Op::Chown
                | Op::SetXattr
                | Op::Write
        )
    }

    /// Whether it is a sync.
    pub fn syncs(self) -> bool {
        matches!(self, Op::SyncFile | Op::SyncDir)
    }

    pub(in crate::testing) fn verb(self) -> &'static str {
        match self {
            Op::Lstat | Op::Stat => "stat",
            Op::Open => "open",
            Op::ReadLink => "read link",
            Op::Canonicalize => "resolve",
            Op::ReadDir => "list",
            Op::GetXattr => "read attribute of",
            Op::Writable => "check access to",
            Op::FreeBytes => "ask for free space of",
            Op::Create => "create",
            Op::Mkdir => "make directory",
            Op::Symlink => "make link",
            Op::Rename => "rename to",
            Op::Unlink | Op::Rmdir => "remove",
            Op::Chmod => "set mode of",
            Op::Chown => "set owner of",
            Op::SetXattr => "set attribute of",
            Op::Write => "write",
            Op::SyncFile | Op::SyncDir => "sync",
        }
    }
}

/// Lets matching operations of a [`super::MemFs`] fail. Without restrictions every operation matches.
#[derive(Clone, Debug)]
pub struct Fault {
    /// None: every operation.
    ops: Vec<Op>,
    path: Option<PathBuf>,
    below: bool,
    pass: usize,
    times: usize,
    error: Errno,
}

impl Fault {
    /// A fault with this error.
    pub fn new(error: Errno) -> Self {
        Self { ops: Vec::new(), path: None, below: false, pass: 0, times: usize::MAX, error }
    }
    /// A disk without space: whatever takes some fails, what gives some back does not.
    pub fn full_disk() -> Self {
        let takes = [Op::Create, Op::Write, Op::Mkdir, Op::Symlink];
        takes.into_iter().fold(Self::new(Errno::NOSPC), Self::on)
    }
    /// Only this operation, and others that are named so.
    #[must_use]
    pub fn on(mut self, op: Op) -> Self {
        self.ops.push(op);
        self
    }
    /// Only this path (for a rename: the new one).
    #[must_use]
    pub fn at(mut self, path: impl AsRef<Path>) -> Self {
        self.path = Some(path.as_ref().to_path_buf());
        self
    }
    /// Only this path and those below it.
    #[must_use]
    pub fn below(mut self, path: impl AsRef<Path>) -> Self {
        self.below = true;
        self.at(path)
    }
    /// Lets this many matching operations pass first.
    #[must_use]
    pub fn after(mut self, pass: usize) -> Self {
        self.pass = pass;
        self
    }
    /// Fails this many times, then no more.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    /// The error if this operation is to fail now.
    pub(super) fn strikes(&mut self, op: Op, path: &Path) -> Option<Errno> {
        let right_path = self.path.as_ref().is_none_or(|p| if self.below { path.starts_with(p) } else { path == p });
        if !(self.ops.is_empty() || self.ops.contains(&op)) || !right_path || self.times == 0 {
            return None;
        }
        if self.pass > 0 {
            self.pass -= 1;
            return None;
        }
        self.times -= 1;
        Some(self.error)
    }
}

//! The file system as the agent sees it.
//!
//! The trait names the primitives that matter for durability one by one (create, sync, rename, sync of a directory), so
//! that an implementation can keep, drop or reorder what was not synced, as POSIX allows. What callers normally use is
//! built on top: [`crate::durable`].

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A device, socket or pipe.
    Other,
}

impl std::fmt::Display for FileKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FileKind::File => "regular file",
            FileKind::Dir => "directory",
            FileKind::Link => "symbolic link",
            FileKind::Other => "device, socket or pipe",
        })
    }
}

/// What `lstat` or `stat` says of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, set-id and sticky included (`0o7777`).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Device number of the file system.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Modification time, nanoseconds since the epoch.
    pub mtime_ns: i128,
    /// Whether a file system (or a part of one, as a bind mount) is mounted exactly here. `dev` alone does not tell: a
    /// bind mount has the device of the place that it came from.
    pub mount_root: bool,
}

/// A directory's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, without the directory.
    pub name: std::ffi::OsString,
    /// What it is; links are not followed.
    pub kind: FileKind,
}

/// A failed file operation: what was tried, on which path.
#[derive(Debug, thiserror::Error)]
#[error("cannot {op} {}", path.display())]
pub struct FsError {
    /// The operation in a verb: `read`, `rename to`, `sync`.
    pub op: &'static str,
    /// The host path, as the caller named it.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub source: io::Error,
}

impl FsError {
    /// An error of operation `op` on `path`.
    pub fn new(op: &'static str, path: &Path, source: io::Error) -> Self {
        Self { op, path: path.to_path_buf(), source }
    }
    /// The kind of the cause.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

/// A file that is being written. Dropping it without [`FileWriter::sync`] promises nothing about its content.
pub trait FileWriter: Write + Send {
    /// `fsync`: returns when content and inode are on the device.
    fn sync(&mut self) -> io::Result<()>;
}

/// File operations on host paths. All paths are absolute.
///
/// The final component is never followed when it is a link, but by [`Fs::stat`], [`Fs::read`], [`Fs::open`],
/// [`Fs::canonicalize`], [`Fs::sync_dir`], [`Fs::writable`] and [`Fs::free_bytes`]; links on the way are resolved below
/// the root of this file system and cannot lead out of it.
pub trait Fs: Send + Sync + Debug {
    /// What `path` itself is; `None` when nothing is there.
    fn lstat(&self, path: &Path) -> Result<Option<Stat>, FsError>;
    /// What `path` leads to, links followed; `None` when nothing is there or a link dangles.
    fn stat(&self, path: &Path) -> Result<Option<Stat>, FsError>;
    /// Opens a file for reading, following a final link.
    fn open(&self, path: &Path) -> Result<Box<dyn Read + Send>, FsError>;
    /// The target of a link, as written.
    fn read_link(&self, path: &Path) -> Result<PathBuf, FsError>;
    /// The absolute path, in this file system, that `path` leads to with every link resolved. Fails when it dangles.
    fn canonicalize(&self, path: &Path) -> Result<PathBuf, FsError>;
    /// The entries of a directory, sorted by name, without `.` and `..`.
    fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>, FsError>;

    /// Creates a new file (it must not exist) with exactly `mode`, whatever the umask.
    fn create(&self, path: &Path, mode: u32) -> Result<Box<dyn FileWriter>, FsError>;
    /// Creates a directory (it must not exist) with exactly `mode`, whatever the umask.
    fn mkdir(&self, path: &Path, mode: u32) -> Result<(), FsError>;
    /// Creates a symbolic link `path` with the text `target`.
    fn symlink(&self, target: &Path, path: &Path) -> Result<(), FsError>;
    /// Renames, replacing what is at `to`.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError>;
    /// Removes a file or link.
    fn unlink(&self, path: &Path) -> Result<(), FsError>;
    /// Removes an empty directory.
    fn rmdir(&self, path: &Path) -> Result<(), FsError>;
    /// Sets the permission bits of a file or directory, not of what a link leads to.
    fn chmod(&self, path: &Path, mode: u32) -> Result<(), FsError>;
    /// Sets owner and group.
    fn chown(&self, path: &Path, uid: u32, gid: u32) -> Result<(), FsError>;
    /// `fsync` of a regular file that is already there.
    fn sync_file(&self, path: &Path) -> Result<(), FsError>;
    /// `fsync` of a directory: its entries are on the device. A final link is followed.
    fn sync_dir(&self, path: &Path) -> Result<(), FsError>;
    /// An extended attribute of the path itself; `None` when it has none or the file system knows none.
    fn get_xattr(&self, path: &Path, name: &str) -> Result<Option<Vec<u8>>, FsError>;
    /// Sets an extended attribute of the path itself.
    fn set_xattr(&self, path: &Path, name: &str, value: &[u8]) -> Result<(), FsError>;
    /// Whether this process may write there: permission bits and a read-only mount both count. The path must exist.
    fn writable(&self, path: &Path) -> Result<bool, FsError>;
    /// Bytes free for this process on the file system that holds `path`.
    fn free_bytes(&self, path: &Path) -> Result<u64, FsError>;

    /// Reads a whole file, at most `limit` bytes; `None` when it is not there. Fails with `FileTooLarge` beyond.
    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, FsError> {
        let file = match self.open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes).map_err(|e| FsError::new("read", path, e))?;
        if bytes.len() as u64 > limit {
            return Err(FsError::new("read", path, io::ErrorKind::FileTooLarge.into()));
        }
        Ok(Some(bytes))
    }
}

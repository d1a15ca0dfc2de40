//! Changes that survive a power cut, built from the primitives of [`Fs`].
//!
//! Order is everything here. A name is given only to what is on the device already: content, mode, owner and label are
//! set and synced under a temporary name, then renamed, then the directory is synced, and only then the change is called
//! done. Whoever reads the final name therefore sees the old file or the new one, whole, whenever the power goes.
//!
//! A function that finds nothing to do syncs nevertheless: an earlier run may have been killed between its rename and
//! its sync, and "all is as wanted" is said of the device, not of the page cache.
//!
//! Temporary names start with [`TEMP_PREFIX`] and lie beside their target; [`sweep`] removes what a crash left.

mod sync;
mod tree;

#[cfg(any(test, feature = "testing"))]
pub use sync::{site, sites};
pub use tree::{remove_contents, remove_tree, sweep};

use crate::{FileKind, FileWriter, Fs, FsError, Stat};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How our temporary names begin; nothing else in our directories may.
pub const TEMP_PREFIX: &str = ".flexnode-tmp-";

/// The attribute that holds a file's SELinux label (selinux(8)).
pub const SELINUX_LABEL: &str = "security.selinux";

/// Mode of parent directories that are made on the way.
const PARENT_MODE: u32 = 0o755;

/// Bytes that are copied and hashed at a time.
const CHUNK: usize = 128 * 1024;

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

/// Why a durable change was refused. It is the cause inside an [`FsError`]; [`Refusal::of`] finds it there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Only a regular file may be replaced by a file.
    #[error("a {0} is in the place of a regular file; remove it if it is not needed")]
    NotAFile(FileKind),
    /// Only a link may be replaced by a link.
    #[error("a {0} is in the place of a symbolic link; remove it if it is not needed")]
    NotALink(FileKind),
    /// A directory was wanted.
    #[error("a {0} is in the place of a directory; remove it if it is not needed")]
    NotADir(FileKind),
    /// A directory was not expected.
    #[error("it is a directory")]
    IsADir,
    /// The bytes are not those that were promised. Nothing has the final name.
    #[error("its SHA-256 is {found}, not {expected} as promised")]
    WrongDigest {
        /// Hexadecimal digits, as promised.
        expected: String,
        /// Hexadecimal digits, as computed.
        found: String,
    },
    /// Another file system, or a bind mount, begins there.
    #[error("something is mounted there; unmount it first")]
    Mounted,
    /// A path without a parent or a name.
    #[error("the path is not absolute or has no last component")]
    BadPath,
}

impl Refusal {
    /// The refusal behind `error`, if it is one.
    pub fn of(error: &FsError) -> Option<&Refusal> {
        error.source.get_ref()?.downcast_ref()
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Refusal::NotAFile(_) | Refusal::NotALink(_) => ErrorKind::AlreadyExists,
            Refusal::NotADir(_) => ErrorKind::NotADirectory,
            Refusal::IsADir => ErrorKind::IsADirectory,
            Refusal::WrongDigest { .. } => ErrorKind::InvalidData,
            Refusal::Mounted => ErrorKind::CrossesDevices,
            Refusal::BadPath => ErrorKind::InvalidInput,
        }
    }
}

fn refused(op: &'static str, path: &Path, refusal: Refusal) -> FsError {
    FsError::new(op, path, io::Error::new(refusal.kind(), refusal))
}

/// Makes `path` a regular file with these bytes and this mode, atomically and durably. Same bytes and mode: nothing is
/// written. A link or directory at `path` is refused ([`Refusal::NotAFile`]). Owner and SELinux label of a file that is
/// replaced are kept. The directory must exist.
pub fn write(fs: &dyn Fs, path: &Path, bytes: &[u8], mode: u32) -> Result<Change, FsError> {
    let dir = parent(path, "write")?;
    if let Some(old) = replaceable(fs, path)?
        && old.mode == mode
        && old.size == bytes.len() as u64
        && fs.read(path, old.size)?.is_some_and(|now| now == bytes)
    {
        sync::file("write, the file is as wanted", fs, path)?;
        sync::dir("write, its name is as wanted", fs, dir)?;
        return Ok(Change::None);
    }
    replace_file(fs, path, mode, |file, temp| file.write_all(bytes).map_err(|e| FsError::new("write", temp, e)))?;
    Ok(Change::Made)
}

/// Copies `reader` to the regular file `path` with this mode, atomically and durably, and gives back the SHA-256 of what
/// was copied in lower-case hexadecimal digits.
///
/// The bytes are hashed on their way to a temporary name. When `expected` (hexadecimal, any case) is given and differs,
/// the temporary file is removed, `path` stays as it was, and the error is [`Refusal::WrongDigest`]. Otherwise as
/// [`write()`], but without the comparison before.
pub fn copy_hashed(
    fs: &dyn Fs,
    reader: &mut dyn Read,
    path: &Path,
    mode: u32,
    expected: Option<&str>,
) -> Result<String, FsError> {
    parent(path, "write")?;
    replaceable(fs, path)?;
    replace_file(fs, path, mode, |file, temp| {
        let found = pump(reader, file, path, temp)?;
        match expected {
            Some(expected) if !expected.trim().eq_ignore_ascii_case(&found) => {
                Err(refused("accept", path, Refusal::WrongDigest { expected: expected.trim().to_owned(), found }))
            }
            _ => Ok(found),
        }
    })
}

/// Makes `path` a symbolic link with the text `target`, atomically and durably: a link that is there is replaced in one
/// step, anything else is refused ([`Refusal::NotALink`]). The directory must exist.
pub fn replace_link(fs: &dyn Fs, target: &Path, path: &Path) -> Result<Change, FsError> {
    let dir = parent(path, "link")?;
    let change = replace_link_unsynced(fs, target, path)?;
    match change {
        Change::None => sync::dir("link, as wanted", fs, dir)?,
        Change::Made => sync::dir("link, its name", fs, dir)?,
    }
    Ok(change)
}

/// As [`replace_link`], for one of many in a directory: whoever calls it syncs the directory once, after the last.
pub fn replace_link_unsynced(fs: &dyn Fs, target: &Path, path: &Path) -> Result<Change, FsError> {
    let dir = parent(path, "link")?;
    match fs.lstat(path)? {
        Some(stat) if stat.kind != FileKind::Link => {
            return Err(refused("link", path, Refusal::NotALink(stat.kind)));
        }
        Some(_) if fs.read_link(path)? == target => return Ok(Change::None),
        _ => {}
    }
    let (temp, ()) = make_temp(fs, dir, |temp| fs.symlink(target, temp))?;
    fs.rename(&temp.path, path)?;
    temp.keep();
    Ok(Change::Made)
}

/// Removes a file or link durably. Absent is fine; a directory is refused ([`Refusal::IsADir`]).
pub fn remove_file(fs: &dyn Fs, path: &Path) -> Result<Change, FsError> {
    let dir = parent(path, "remove")?;
    let change = match fs.lstat(path)? {
        Some(stat) if stat.kind == FileKind::Dir => return Err(refused("remove", path, Refusal::IsADir)),
        Some(_) => tree::absent_is_fine(fs.unlink(path))?,
        None => Change::None,
    };
    if_there(sync::dir("remove, the name", fs, dir))?;
    Ok(change)
}

/// Makes `path` a directory, durably. Missing parents get mode 0755, `path` itself `mode`, whatever the umask. A
/// directory that exists keeps its mode; a link to a directory counts as one. Anything else is refused
/// ([`Refusal::NotADir`]).
pub fn ensure_dir(fs: &dyn Fs, path: &Path, mode: u32) -> Result<Change, FsError> {
    let mut missing = Vec::new();
    let mut at = path;
    loop {
        match fs.stat(at)? {
            Some(stat) if stat.kind == FileKind::Dir => break,
            Some(stat) => return Err(refused("make directory", at, Refusal::NotADir(stat.kind))),
            None => {
                if let Some(dangling) = fs.lstat(at)? {
                    return Err(refused("make directory", at, Refusal::NotADir(dangling.kind)));
                }
                missing.push(at);
                at = parent(at, "make directory")?;
            }
        }
    }
    // Each directory is on the device before anything is made in it. So when an earlier run was killed here, only the
    // last directory that exists can be one whose name is not there yet.
    if let Some(above) = at.parent() {
        sync::dir("make directory, the one above", fs, above)?;
    }
    for dir in missing.iter().rev() {
        make_dir(fs, dir, if *dir == path { mode } else { PARENT_MODE })?;
    }
    Ok(if missing.is_empty() { Change::None } else { Change::Made })
}

/// Makes one directory. It gets its name with its mode on the device: a directory that exists keeps its mode, so a wrong
/// one that a crash left would stay for ever.
fn make_dir(fs: &dyn Fs, path: &Path, mode: u32) -> Result<(), FsError> {
    let above = parent(path, "make directory")?;
    let (mut temp, ()) = make_temp(fs, above, |temp| fs.mkdir(temp, mode))?;
    temp.remove = |fs, path| fs.rmdir(path);
    sync::dir("make directory, its mode", fs, &temp.path)?;
    fs.rename(&temp.path, path)?;
    temp.keep();
    sync::dir("make directory, its name", fs, above)
}

/// Nothing to sync where the directory is not there.
fn if_there(synced: Result<(), FsError>) -> Result<(), FsError> {
    match synced {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        other => other,
    }
}

/// Renames on one file system, replacing a file at `to`, and syncs both directories: the new name first, so that the
/// thing has a name at every moment.
pub fn rename(fs: &dyn Fs, from: &Path, to: &Path) -> Result<(), FsError> {
    let (old, new) = (parent(from, "rename")?, parent(to, "rename to")?);
    fs.rename(from, to)?;
    sync::dir("rename, the new name", fs, new)?;
    if old == new { Ok(()) } else { sync::dir("rename, the old name", fs, old) }
}

/// Brings to the device what another program did to the name `path`: it made, replaced or removed it, perhaps with its
/// directory, and did not sync.
pub fn sync_name(fs: &dyn Fs, path: &Path) -> Result<(), FsError> {
    let dir = parent(path, "sync the name")?;
    if_there(sync::dir("another program's name", fs, dir))?;
    match dir.parent() {
        Some(above) => if_there(sync::dir("another program's directory", fs, above)),
        None => Ok(()),
    }
}

/// The lower-case hexadecimal SHA-256 of `bytes`.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Copies all of `reader` to `file`; the hexadecimal SHA-256 of it.
fn pump(reader: &mut dyn Read, file: &mut dyn FileWriter, path: &Path, temp: &Path) -> Result<String, FsError> {
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        match reader.read(&mut chunk) {
            Ok(0) => return Ok(hex(&hash.finalize())),
            Ok(n) => {
                hash.update(&chunk[..n]);
                file.write_all(&chunk[..n]).map_err(|e| FsError::new("write", temp, e))?;
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(FsError::new("read the source of", path, e)),
        }
    }
}

/// The directory of `path`, which must be absolute and have a last component.
fn parent<'a>(path: &'a Path, op: &'static str) -> Result<&'a Path, FsError> {
    match (path.is_absolute(), path.file_name(), path.parent()) {
        (true, Some(_), Some(dir)) => Ok(dir),
        _ => Err(refused(op, path, Refusal::BadPath)),
    }
}

/// What is at `path`, if that is nothing or a file that may be replaced.
fn replaceable(fs: &dyn Fs, path: &Path) -> Result<Option<Stat>, FsError> {
    match fs.lstat(path)? {
        Some(stat) if stat.kind != FileKind::File => Err(refused("write", path, Refusal::NotAFile(stat.kind))),
        other => Ok(other),
    }
}

/// A temporary name that is removed again unless it was renamed.
struct Temp<'a> {
    fs: &'a dyn Fs,
    path: PathBuf,
    remove: fn(&dyn Fs, &Path) -> Result<(), FsError>,
    armed: bool,
}

impl Temp<'_> {
    fn keep(mut self) {
        self.armed = false;
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if self.armed {
            // The error that led here matters more; `sweep` takes what stays.
            let _ = (self.remove)(self.fs, &self.path);
        }
    }
}

/// A name in `dir` that this process has not given yet.
fn temp_name(dir: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    dir.join(format!("{TEMP_PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Calls `make` with temporary names until one is free: a crash may have left some of an earlier process with our PID.
fn make_temp<'a, T>(
    fs: &'a dyn Fs,
    dir: &Path,
    make: impl Fn(&Path) -> Result<T, FsError>,
) -> Result<(Temp<'a>, T), FsError> {
    let mut tries = 0;
    loop {
        let path = temp_name(dir);
        match make(&path) {
            Ok(value) => return Ok((Temp { fs, path, remove: |fs, path| fs.unlink(path), armed: true }, value)),
            Err(e) if e.kind() == ErrorKind::AlreadyExists && tries < 1000 => tries += 1,
            Err(e) => return Err(e),
        }
    }
}

/// Fills a temporary file beside `path`, gives it mode, owner and label, syncs it, renames it and syncs the directory.
fn replace_file<T>(
    fs: &dyn Fs,
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&mut dyn FileWriter, &Path) -> Result<T, FsError>,
) -> Result<T, FsError> {
    let dir = parent(path, "write")?;
    let old = replaceable(fs, path)?;
    let label = if old.is_some() { fs.get_xattr(path, SELINUX_LABEL)? } else { None };
    let (temp, mut writer) = make_temp(fs, dir, |temp| fs.create(temp, mode))?;
    if let Some(old) = old {
        keep_owner(fs, &temp.path, old, mode)?;
    }
    keep_label(fs, &temp.path, label.as_deref())?;
    let filled = fill(writer.as_mut(), &temp.path)?;
    // After all that changes the inode, so that one sync covers content, mode, owner and label.
    sync::written("replace, the content", writer.as_mut(), &temp.path)?;
    drop(writer);
    fs.rename(&temp.path, path)?;
    temp.keep();
    // A policy may label by the name that a file gets.
    if keep_label(fs, path, label.as_deref())? {
        sync::file("replace, the label", fs, path)?;
    }
    sync::dir("replace, the name", fs, dir)?;
    Ok(filled)
}

fn keep_owner(fs: &dyn Fs, temp: &Path, old: Stat, mode: u32) -> Result<(), FsError> {
    let new = fs.lstat(temp)?;
    if new.is_some_and(|new| (new.uid, new.gid) != (old.uid, old.gid)) {
        fs.chown(temp, old.uid, old.gid)?;
        // chown(2) clears the set-id bits.
        fs.chmod(temp, mode)?;
    }
    Ok(())
}

/// Gives `path` this label if it has another one; whether it did.
fn keep_label(fs: &dyn Fs, path: &Path, label: Option<&[u8]>) -> Result<bool, FsError> {
    let Some(label) = label else { return Ok(false) };
    if fs.get_xattr(path, SELINUX_LABEL)?.as_deref() == Some(label) {
        return Ok(false);
    }
    fs.set_xattr(path, SELINUX_LABEL, label)?;
    Ok(true)
}

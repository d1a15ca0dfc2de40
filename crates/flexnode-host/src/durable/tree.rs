//! Removal of trees, without ever leaving them.

use super::{Change, Refusal, TEMP_PREFIX, if_there, parent, refused, sync, temp_name};
use crate::{FileKind, Fs, FsError, Stat};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Beyond this many bytes a directory's path is shortened before its content is removed: the kernel takes 4095 in all
/// (path_resolution(7)), a name has up to 255, and whoever could write in the tree may have nested it deeper.
const LONG_PATH: usize = 2048;

/// Removes `path` and all below it, durably. Absent is fine.
///
/// Links are removed, never followed. Where another file system or a bind mount begins, `path` itself included, it stops
/// with [`Refusal::Mounted`] and that path; what was removed before stays removed.
pub fn remove_tree(fs: &dyn Fs, path: &Path) -> Result<Change, FsError> {
    let dir = parent(path, "remove")?;
    let change = match fs.lstat(path)? {
        None => Change::None,
        Some(stat) => {
            let above = fs.stat(dir)?.map_or(stat.dev, |above| above.dev);
            remove_entry(fs, path, stat, above)?
        }
    };
    if_there(sync::dir("remove tree, its name", fs, dir))?;
    Ok(change)
}

/// Removes all below the directory `path`, durably, and leaves it. It may itself be a mount point; below it the rules of
/// [`remove_tree`] hold. Absent is fine; a link or file in its place is refused ([`Refusal::NotADir`]).
pub fn remove_contents(fs: &dyn Fs, path: &Path) -> Result<Change, FsError> {
    match fs.lstat(path)? {
        None => Ok(Change::None),
        Some(stat) if stat.kind != FileKind::Dir => Err(refused("empty", path, Refusal::NotADir(stat.kind))),
        Some(stat) => {
            let change = clear(fs, path, stat.dev)?;
            sync::dir("remove content, the names", fs, path)?;
            Ok(change)
        }
    }
}

/// Removes what an interrupted change left under our temporary names in `dir` (not below it), durably, and says which
/// paths these were. Absent is fine. The caller makes sure that nobody is changing this directory now.
pub fn sweep(fs: &dyn Fs, dir: &Path) -> Result<Vec<PathBuf>, FsError> {
    let dir = match fs.canonicalize(dir) {
        Ok(dir) => dir,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut removed = Vec::new();
    for entry in fs.read_dir(&dir)? {
        if !is_temp(&entry.name) {
            continue;
        }
        let path = dir.join(&entry.name);
        if let Some(stat) = fs.lstat(&path)? {
            let above = fs.stat(&dir)?.map_or(stat.dev, |above| above.dev);
            remove_entry(fs, &path, stat, above)?;
            removed.push(path);
        }
    }
    if !removed.is_empty() {
        sync::dir("sweep, the names", fs, &dir)?;
    }
    Ok(removed)
}

fn is_temp(name: &OsStr) -> bool {
    name.as_bytes().starts_with(TEMP_PREFIX.as_bytes())
}

/// [`Change::None`] when what was to be removed is gone already.
pub(super) fn absent_is_fine(result: Result<(), FsError>) -> Result<Change, FsError> {
    match result {
        Ok(()) => Ok(Change::Made),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Change::None),
        Err(e) => Err(e),
    }
}

/// Removes one entry of a directory on device `dev`, and all below it.
fn remove_entry(fs: &dyn Fs, path: &Path, stat: Stat, dev: u64) -> Result<Change, FsError> {
    not_mounted(path, stat, dev)?;
    if stat.kind == FileKind::Dir {
        let below = clear(fs, path, dev)?;
        Ok(absent_is_fine(fs.rmdir(path))?.or(below))
    } else {
        absent_is_fine(fs.unlink(path))
    }
}

fn not_mounted(path: &Path, stat: Stat, dev: u64) -> Result<(), FsError> {
    if stat.mount_root || stat.dev != dev { Err(refused("remove", path, Refusal::Mounted)) } else { Ok(()) }
}

/// Empties the directory `root` on device `dev`. A stack of its own, since the depth is not ours to choose.
fn clear(fs: &dyn Fs, root: &Path, dev: u64) -> Result<Change, FsError> {
    let mut change = Change::None;
    let mut todo = vec![(root.to_path_buf(), false)];
    while let Some((dir, emptied)) = todo.pop() {
        if emptied {
            if dir != root {
                change = change.or(absent_is_fine(fs.rmdir(&dir))?);
            }
            continue;
        }
        let entries = match fs.read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        todo.push((dir.clone(), true));
        for entry in entries {
            let path = dir.join(&entry.name);
            let Some(stat) = fs.lstat(&path)? else { continue };
            not_mounted(&path, stat, dev)?;
            if stat.kind == FileKind::Dir {
                todo.push((near(fs, root, path)?, false));
            } else {
                change = change.or(absent_is_fine(fs.unlink(&path))?);
            }
        }
    }
    Ok(change)
}

/// `path`, or where it was moved to, directly below `root`, when its name is too long to go on below it.
fn near(fs: &dyn Fs, root: &Path, path: PathBuf) -> Result<PathBuf, FsError> {
    if path.as_os_str().len() - root.as_os_str().len() <= LONG_PATH {
        return Ok(path);
    }
    let near = temp_name(root);
    fs.rename(&path, &near)?;
    Ok(near)
}

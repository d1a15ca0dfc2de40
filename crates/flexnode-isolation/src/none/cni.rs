//! CNI plugins in the host's plugin directory, as links through `current`.

use super::consts::HOST_CNI_BIN_DIR;
use super::layout::{Layout, LayoutError, sweep_up};
use super::links::is_ours;
use super::root::prefixed;
use flexnode_host::durable::{self, Change};
use flexnode_host::{FileKind, Fs, FsError};
use flexnode_model::SlotName;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What linking did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linked {
    /// Links that were made or turned.
    pub made: Vec<PathBuf>,
    /// Links of ours whose plugin the version does not have; they were removed.
    pub removed: Vec<PathBuf>,
    /// Names that belong to someone else and were left alone.
    pub foreign: Vec<PathBuf>,
}

/// Links every plugin of `version` into the host plugin directory; see
/// [`Backend::link_cni_plugins`](super::Backend::link_cni_plugins).
pub(crate) fn link(fs: &dyn Fs, layout: &Layout, host_root: &Path, version: &str) -> Result<Linked, LayoutError> {
    SlotName::new(version)?;
    let plugins = plugins(fs, &layout.version_dir(version).join("cni"))?;
    let dir = host_dir(host_root);
    let mut linked = Linked::default();
    if !plugins.is_empty() {
        sweep_up(fs, &dir)?;
        durable::ensure_dir(fs, &dir, 0o755)?;
    }
    for name in &plugins {
        let path = dir.join(name);
        if !is_free_or_ours(fs, layout, &path)? {
            linked.foreign.push(path);
            continue;
        }
        match durable::replace_link_unsynced(fs, &layout.cni_bin_dir().join(name), &path) {
            Ok(Change::Made) => linked.made.push(path),
            Ok(Change::None) => {}
            // Someone took the name between the look and the link.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => linked.foreign.push(path),
            Err(e) => return Err(e.into()),
        }
    }
    for path in ours(fs, layout, &dir)? {
        if !plugins.iter().any(|name| path.file_name() == Some(name)) {
            remove(fs, &path)?;
            linked.removed.push(path);
        }
    }
    // Once for all, also when nothing changed: an earlier run may have been killed right before it.
    if !plugins.is_empty() || !linked.removed.is_empty() {
        fs.sync_dir(&dir)?;
    }
    Ok(linked)
}

/// Removes the links that [`link`] made and nothing else, then the host plugin directory when that leaves it empty.
pub(crate) fn unlink(fs: &dyn Fs, layout: &Layout, host_root: &Path) -> Result<Change, LayoutError> {
    let dir = host_dir(host_root);
    let ours = ours(fs, layout, &dir)?;
    for path in &ours {
        remove(fs, path)?;
    }
    if ours.is_empty() {
        return Ok(Change::None);
    }
    fs.sync_dir(&dir)?;
    if fs.lstat(&dir)?.is_some_and(|stat| stat.kind == FileKind::Dir) && fs.read_dir(&dir)?.is_empty() {
        match fs.rmdir(&dir) {
            Ok(()) => {
                if let Some(above) = dir.parent() {
                    fs.sync_dir(above)?;
                }
            }
            // Someone installed a plugin just now.
            Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(Change::Made)
}

/// Without a sync of the directory, which comes once for all. Absent is fine.
fn remove(fs: &dyn Fs, path: &Path) -> Result<(), FsError> {
    match fs.unlink(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn host_dir(host_root: &Path) -> PathBuf {
    prefixed(host_root, Path::new(HOST_CNI_BIN_DIR))
}

fn plugins(fs: &dyn Fs, dir: &Path) -> Result<Vec<std::ffi::OsString>, LayoutError> {
    if fs.lstat(dir)?.is_none() {
        return Ok(Vec::new());
    }
    let files = fs.read_dir(dir)?.into_iter().filter(|entry| matches!(entry.kind, FileKind::File | FileKind::Link));
    Ok(files.map(|entry| entry.name).collect())
}

fn is_free_or_ours(fs: &dyn Fs, layout: &Layout, path: &Path) -> Result<bool, LayoutError> {
    match fs.lstat(path)? {
        None => Ok(true),
        Some(stat) if stat.kind == FileKind::Link => Ok(is_ours(layout, &fs.read_link(path)?)),
        Some(_) => Ok(false),
    }
}

fn ours(fs: &dyn Fs, layout: &Layout, dir: &Path) -> Result<Vec<PathBuf>, LayoutError> {
    if fs.stat(dir)?.is_none_or(|stat| stat.kind != FileKind::Dir) {
        return Ok(Vec::new());
    }
    let mut ours = Vec::new();
    for entry in fs.read_dir(dir)? {
        let path = dir.join(&entry.name);
        if entry.kind == FileKind::Link && is_ours(layout, &fs.read_link(&path)?) {
            ours.push(path);
        }
    }
    Ok(ours)
}

#[cfg(test)]
mod tests;

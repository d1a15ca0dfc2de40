//! Doing what was planned, one thing at a time. An error stops nothing but its own thing.

use super::plan::{Plan, Removal};
use crate::host_setup::swap;
use flexnode_host::durable::{self, Change, TEMP_PREFIX};
use flexnode_host::{FileKind, FilterPart, Fs, FsError, Host, HostError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// For one unmount, plain and lazy together.
const UNMOUNT: Duration = Duration::from_secs(10);

/// Why one thing could not be done.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// A file.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// Something else.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Several paths of one tree.
    #[error("{}", .0.join("; "))]
    Several(Vec<String>),
}

/// Does one thing; `None`: it was done already.
pub async fn apply(host: &Host, removal: &Removal) -> Result<Change, ApplyError> {
    match removal {
        Removal::Unmount(path) => made(host.mounts.unmount(path, UNMOUNT).await),
        Removal::Namespace(name) => made(host.network.remove_namespace(name).await),
        Removal::Link(name) => made(host.network.remove_link(name).await),
        Removal::IpSet(name) => made(host.network.remove_ip_set(name).await),
        Removal::Rule(..) | Removal::Chain(..) | Removal::Table(_) | Removal::NftTable(_) => {
            match apply_all(host, &[removal]).await.pop() {
                Some(answer) => answer,
                None => Ok(Change::None),
            }
        }
        Removal::Tree { path, spare } => blocking(host, path, spare, true).await,
        Removal::Contents { path, spare } => blocking(host, path, spare, false).await,
        Removal::IfEmpty(path) => Ok(remove_empty(host.fs.as_ref(), path)?),
        Removal::PlainProgram(path) => Ok(plain_program(host.fs.as_ref(), path)?),
        Removal::Restore(path, content) => {
            let mode = host.fs.lstat(path)?.map_or(0o644, |stat| stat.mode);
            Ok(durable::write(host.fs.as_ref(), path, content, mode)?)
        }
        Removal::Sysctl(key, value) => made(host.kernel.set_sysctl(key, value)),
        Removal::SwapOn(path, priority) => made(host.kernel.swap_on(Path::new(path), *priority).await),
        Removal::Unmask(unit) => Ok(durable::remove_file(host.fs.as_ref(), &Path::new(swap::SYSTEM_UNITS).join(unit))?),
        Removal::Enable(unit) => made(host.systemd.enable(unit).await),
    }
}

/// Does several things about the packet filter at once; an answer for each.
pub async fn apply_all(host: &Host, removals: &[&Removal]) -> Vec<Result<Change, ApplyError>> {
    let parts: Vec<FilterPart> = removals.iter().filter_map(|removal| Plan::filter(removal)).collect();
    host.network.remove_filters(&parts).await.into_iter().map(made).collect()
}

/// What is gone already is what was wanted.
fn made(result: Result<(), HostError>) -> Result<Change, ApplyError> {
    match result {
        Ok(()) => Ok(Change::Made),
        Err(HostError::Absent { .. }) => Ok(Change::None),
        Err(e) => Err(e.into()),
    }
}

/// Gigabytes of images take their time; the runtime's thread is not held up.
async fn blocking(host: &Host, path: &Path, spare: &[PathBuf], itself: bool) -> Result<Change, ApplyError> {
    let (fs, path, spare): (Arc<dyn Fs>, _, _) = (host.fs.clone(), path.to_path_buf(), spare.to_vec());
    let task = tokio::task::spawn_blocking(move || remove_around(fs.as_ref(), &path, &spare, itself));
    match task.await {
        Ok((change, errors)) if errors.is_empty() => Ok(change),
        Ok((_, errors)) => Err(ApplyError::Several(errors.iter().map(|e| chain(e)).collect())),
        Err(e) => Err(ApplyError::Several(vec![e.to_string()])),
    }
}

/// Removes `path` (or only what is in it) but for the paths of `spare` and the directories that lead to them.
fn remove_around(fs: &dyn Fs, path: &Path, spare: &[PathBuf], itself: bool) -> (Change, Vec<FsError>) {
    let mut errors = Vec::new();
    let mut change = Change::None;
    let mut tell = |result: Result<Change, FsError>| match result {
        Ok(made) => change = change.or(made),
        Err(e) => errors.push(e),
    };
    if itself && spare.iter().any(|kept| kept == path) {
        return (change, errors);
    }
    if !spare.iter().any(|kept| kept.starts_with(path) && kept != path) {
        tell(if itself { durable::remove_tree(fs, path) } else { durable::remove_contents(fs, path) });
        return (change, errors);
    }
    // A way to something that stays: as deep as that is.
    match fs.read_dir(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => tell(Err(e)),
        Ok(entries) => {
            for entry in entries {
                let (below, failed) = remove_around(fs, &path.join(entry.name), spare, true);
                change = change.or(below);
                errors.extend(failed);
            }
        }
    }
    (change, errors)
}

fn remove_empty(fs: &dyn Fs, path: &Path) -> Result<Change, FsError> {
    match fs.rmdir(path) {
        Ok(()) => {
            if let Some(above) = path.parent() {
                fs.sync_dir(above)?;
            }
            Ok(Change::Made)
        }
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::DirectoryNotEmpty) => {
            Ok(Change::None)
        }
        Err(e) => Err(e),
    }
}

/// Replaces the link by a copy of the program that it leads to. One that leads nowhere is removed.
fn plain_program(fs: &dyn Fs, path: &Path) -> Result<Change, FsError> {
    if fs.lstat(path)?.is_none_or(|stat| stat.kind != FileKind::Link) {
        return Ok(Change::None);
    }
    if fs.stat(path)?.is_none_or(|stat| stat.kind != FileKind::File) {
        return durable::remove_file(fs, path);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let staged = path.with_file_name(format!("{TEMP_PREFIX}{name}"));
    let mut reader = fs.open(path)?;
    durable::copy_hashed(fs, &mut reader, &staged, 0o755, None)?;
    durable::rename(fs, &staged, path)?;
    Ok(Change::Made)
}

/// An error with its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

//! The status file: where it is, how it is written so that every reader sees a whole document, and how it is changed so
//! that no writer takes back what another wrote.
//!
//! The paths are those of the process's own file system: the file is written by and for programs on this host.

use crate::place::{self, Places};
use crate::{LastUpdatedBy, LastUpdatedReason, NodeStatus};
use flexnode_host::durable::{self, Change};
use flexnode_host::{FileKind, Fs as _, FsError, RealFs};
use flexnode_model::{DocumentError, Snapshot};
use jiff::Timestamp;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::{Map, Value};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A status file has one or two kilobytes.
const MAX_FILE: u64 = 1024 * 1024;
/// Mode of the file: it names programs and errors of the host, which is nobody else's business.
const MODE: u32 = 0o600;
/// A writer holds the lock for the time of one small write.
const LOCK_DEADLINE: Duration = Duration::from_secs(5);

/// What kept the status file from being read or written.
#[derive(Debug, thiserror::Error)]
pub enum StatusFileError {
    /// No path was given.
    #[error("no path was given for the status file")]
    EmptyPath,
    /// There is none.
    #[error("there is no status file at {}", path.display())]
    Absent {
        /// Where it should be.
        path: PathBuf,
    },
    /// It is not a status snapshot.
    #[error("{} is not a node status; remove it, the agent writes a new one", path.display())]
    Decode {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: DocumentError,
    },
    /// Somebody else could have written it, so nothing is decided by it.
    #[error("{} is not trusted: {problem}; {mend}", path.display())]
    Untrusted {
        /// The file or directory.
        path: PathBuf,
        /// Owner or mode, in words.
        problem: String,
        /// What mends it.
        mend: String,
    },
    /// Another writer held the lock for too long.
    #[error("the status file's lock {} was not free within {} s", path.display(), LOCK_DEADLINE.as_secs())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// A file operation.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// The status file's path for this process (`GetStatusFilePath`): /run/aks-flex-node/status.json for root. Any other user
/// has one in a directory of their own with mode 0700: below `XDG_RUNTIME_DIR` where that is theirs, else
/// /tmp/aks-flex-node-UID. Nothing is created by asking.
pub fn get_status_file_path() -> PathBuf {
    Places::of_process().status_file()
}

/// Writes a snapshot (`WriteStatusToFile`): two spaces of indent, mode 0600, atomically and durably, in a directory that is
/// made when it is missing. Keys of the file that belong to no known field stay. Other writers are waited for.
pub fn write_status_to_file(path: &Path, status: &NodeStatus) -> Result<(), StatusFileError> {
    update_status_file(path, |_| status.clone()).map(drop)
}

/// Changes the snapshot under the writers' lock: `change` gets what is in the file, `None` when there is nothing that can
/// be used, and gives what is to be there. What another writer does meanwhile comes before or after, never in between.
pub fn update_status_file(
    path: &Path,
    change: impl FnOnce(Option<&NodeStatus>) -> NodeStatus,
) -> Result<Change, StatusFileError> {
    update(path, |now| StatusFile {
        status: change(now.map(|file| &file.status)),
        others: now.map(|file| file.others.clone()).unwrap_or_default(),
    })
}

fn update(path: &Path, change: impl FnOnce(Option<&StatusFile>) -> StatusFile) -> Result<Change, StatusFileError> {
    let dir = parent(path)?;
    place::ensure_dir(dir)?;
    let _lock = lock(path)?;
    let fs = RealFs::host();
    let now = match read(path) {
        Ok(now) => Some(now),
        // A file that is damaged or not ours is replaced, not mended.
        Err(StatusFileError::Absent { .. } | StatusFileError::Decode { .. } | StatusFileError::Untrusted { .. }) => {
            None
        }
        Err(e) => return Err(e),
    };
    let file = change(now.as_ref());
    // What a writer left that was killed: nobody else writes here now.
    durable::sweep(&fs, dir)?;
    Ok(durable::write(&fs, path, &file.encode(), MODE)?)
}

/// Loads the snapshot of the default path (`LoadStatus`).
pub fn load_status() -> Result<NodeStatus, StatusFileError> {
    let path = get_status_file_path();
    if let Ok(dir) = parent(&path) {
        place::check_dir(dir)?;
    }
    load_status_from_file(&path)
}

/// Loads a snapshot (`LoadStatusFromFile`). A file that belongs to another user than this one or root, or that others may
/// write, is refused.
pub fn load_status_from_file(path: &Path) -> Result<NodeStatus, StatusFileError> {
    parent(path)?;
    read(path).map(|file| file.status)
}

/// Says in the default snapshot that kubelet is unhealthy (`MarkKubeletUnhealthyBestEffort`); see
/// [`mark_kubelet_unhealthy_best_effort_at_path`].
pub fn mark_kubelet_unhealthy_best_effort() {
    mark_kubelet_unhealthy_best_effort_at_path(&get_status_file_path(), None);
}

/// Says in the snapshot at `path` that kubelet is unhealthy: it does not run, its readiness and version are not known, and
/// who says so is the drift remediation, because of another Kubernetes version. All else stays; without a snapshot that can
/// be read one with only this is made. `now` is the present time when it is `None`. An empty path does nothing; an error
/// is logged.
pub fn mark_kubelet_unhealthy_best_effort_at_path(path: &Path, now: Option<Timestamp>) {
    if path.as_os_str().is_empty() {
        return;
    }
    let now = now.unwrap_or_else(Timestamp::now);
    let marked = update_status_file(path, |status| unhealthy(status.cloned().unwrap_or_default(), now));
    if let Err(e) = marked {
        tracing::debug!(path = %path.display(), error = %Chain(&e), "kubelet could not be marked unhealthy");
    }
}

fn unhealthy(status: NodeStatus, now: Timestamp) -> NodeStatus {
    NodeStatus {
        kubelet_running: false,
        kubelet_ready: "Unknown".into(),
        kubelet_version: "unknown".into(),
        last_updated: Some(now),
        last_updated_by: LastUpdatedBy::DriftDetectionAndRemediation,
        last_updated_reason: LastUpdatedReason::KubernetesVersionDrift,
        ..status
    }
}

/// Writes a collected snapshot, unless kubelet was marked unhealthy while it was collected: then the mark stays and the rest
/// is taken over. `began` is when the collection began.
pub fn publish_status(path: &Path, collected: &NodeStatus, began: Timestamp) -> Result<(), StatusFileError> {
    update_status_file(path, |now| merge(now, collected, began)).map(drop)
}

/// As [`publish_status`], with the richer snapshot under its key ([`Snapshot::KEY`]) in the same file.
pub fn publish_snapshot(
    path: &Path,
    collected: &NodeStatus,
    snapshot: &Snapshot,
    began: Timestamp,
) -> Result<(), StatusFileError> {
    // A snapshot is plain data: it can always be written.
    let value = serde_json::to_value(snapshot).unwrap_or_default();
    update(path, |now| {
        let mut others = now.map(|file| file.others.clone()).unwrap_or_default();
        others.insert(Snapshot::KEY.to_owned(), value);
        StatusFile { status: merge(now.map(|file| &file.status), collected, began), others }
    })
    .map(drop)
}

/// Whether the directory of the status file is there. A writer that goes on for long does not make it again: whoever removed
/// it (a reset) means it.
pub fn has_place(path: &Path) -> bool {
    parent(path).is_ok_and(|dir| matches!(RealFs::host().lstat(dir), Ok(Some(_))))
}

/// The richer snapshot of the file at `path`; `None` when the program that wrote the file keeps none.
pub fn load_snapshot_from_file(path: &Path) -> Result<Option<Snapshot>, StatusFileError> {
    parent(path)?;
    let Some(value) = read(path)?.others.remove(Snapshot::KEY) else { return Ok(None) };
    let snapshot = Snapshot::from_value(value);
    snapshot.map(Some).map_err(|source| StatusFileError::Decode { path: path.to_path_buf(), source })
}

fn merge(now: Option<&NodeStatus>, collected: &NodeStatus, began: Timestamp) -> NodeStatus {
    let marked = |s: &&NodeStatus| s.last_updated_by == LastUpdatedBy::DriftDetectionAndRemediation;
    // A mark from the future (a clock that was set back) would otherwise stay for as long.
    let meanwhile = |s: &&NodeStatus| s.last_updated.is_some_and(|t| t > began && Some(t) <= collected.last_updated);
    match now.filter(marked).filter(meanwhile) {
        Some(mark) => unhealthy(collected.clone(), mark.last_updated.unwrap_or(began)),
        None => collected.clone(),
    }
}

/// Removes the default snapshot (`RemoveStatusFileBestEffort`).
pub fn remove_status_file_best_effort() {
    remove_status_file_best_effort_at_path(&get_status_file_path());
}

/// Removes the snapshot at `path`, so that the next check begins anew. Absent is fine; an error is logged; a directory or
/// an empty path is left alone.
pub fn remove_status_file_best_effort_at_path(path: &Path) {
    if path.as_os_str().is_empty() {
        return;
    }
    // Under the lock: a writer that has read the file must not bring it back.
    let removed = lock(path).and_then(|_lock| Ok(durable::remove_file(&RealFs::host(), path)?));
    match removed {
        Ok(Change::Made) => tracing::debug!(path = %path.display(), "the status file was removed"),
        Ok(Change::None) => {}
        Err(StatusFileError::Fs(e)) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => tracing::debug!(path = %path.display(), error = %Chain(&e), "the status file was not removed"),
    }
}

/// The file: the contract's fields first, in their order, then what newer programs keep beside them.
#[derive(Debug, Serialize)]
struct StatusFile {
    #[serde(flatten)]
    status: NodeStatus,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl StatusFile {
    fn encode(&self) -> Vec<u8> {
        if self.others.is_empty() {
            return self.status.encode();
        }
        // A status and a map of JSON values can always be written.
        serde_json::to_vec_pretty(self).unwrap_or_else(|_| self.status.encode())
    }
}

fn read(path: &Path) -> Result<StatusFile, StatusFileError> {
    let fs = RealFs::host();
    let absent = || StatusFileError::Absent { path: path.to_path_buf() };
    let stat = fs.lstat(path)?.ok_or_else(absent)?;
    if stat.kind != FileKind::File {
        return Err(place::untrusted(path, format!("it is a {}", stat.kind), format!("rm {}", path.display())));
    }
    place::check_owner(path, &stat)?;
    let bytes = fs.read(path, MAX_FILE)?.ok_or_else(absent)?;
    let status =
        NodeStatus::decode(&bytes).map_err(|source| StatusFileError::Decode { path: path.to_path_buf(), source })?;
    Ok(StatusFile { status, others: others(&bytes) })
}

/// The top-level keys that are not fields of a snapshot.
fn others(bytes: &[u8]) -> Map<String, Value> {
    let Ok(Value::Object(mut keys)) = serde_json::from_slice(bytes) else { return Map::new() };
    keys.retain(|key, _| !FIELDS.contains(&key.as_str()));
    keys
}

/// The keys of status.txt.
const FIELDS: [&str; 11] = [
    "kubeletVersion",
    "runcVersion",
    "containerdVersion",
    "kubeletRunning",
    "kubeletReady",
    "containerdRunning",
    "arcStatus",
    "lastUpdated",
    "lastUpdatedBy",
    "lastUpdatedReason",
    "agentVersion",
];

fn parent(path: &Path) -> Result<&Path, StatusFileError> {
    if path.as_os_str().is_empty() {
        return Err(StatusFileError::EmptyPath);
    }
    match path.parent() {
        Some(dir) if path.is_absolute() => Ok(dir),
        _ => Err(FsError::new("use", path, io::ErrorKind::InvalidInput.into()).into()),
    }
}

/// Takes the lock of all who write the file at `path`. It is free again when the descriptor is closed, also by a kill. The
/// lock file stays: removing it would let two writers hold two locks.
fn lock(path: &Path) -> Result<OwnedFd, StatusFileError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let lock = parent(path)?.join(format!(".{name}.lock"));
    let failed = |op, e: Errno| StatusFileError::Fs(FsError::new(op, &lock, e.into()));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(&lock, flags, Mode::from_raw_mode(MODE)).map_err(|e| failed("open", e))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => wait_for_lock(file, lock),
        Err(e) => Err(failed("lock", e)),
    }
}

/// Waits in a thread, because flock(2) has no deadline. When the time is over the thread stays until the lock is free, and
/// then gives it back at once.
fn wait_for_lock(file: OwnedFd, lock: PathBuf) -> Result<OwnedFd, StatusFileError> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let locked = loop {
            match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        // When nobody waits any more, the descriptor is dropped here, and the lock with it.
        let _ = sender.send(locked.map(|()| file));
    });
    match receiver.recv_timeout(LOCK_DEADLINE) {
        Ok(Ok(file)) => Ok(file),
        Ok(Err(e)) => Err(FsError::new("lock", &lock, e.into()).into()),
        Err(_) => Err(StatusFileError::Locked { path: lock }),
    }
}

/// An error with its causes.
struct Chain<'a>(&'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            write!(f, ": {cause}")?;
            next = cause.source();
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;

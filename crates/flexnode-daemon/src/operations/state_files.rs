//! Files that programs of one version write and those of another cannot always read.
//!
//! kubelet refuses to start on a CPU or memory manager's file of another policy, and containerd's metadata may be of a newer
//! format than an older containerd reads. Both are copied while everything is stopped, before a new version starts. A way
//! back puts kubelet's files back first; containerd's only when the old one does not come up on what it finds, because
//! that forgets what was pulled or made since.
//!
//! The copies count when their document is there: it is written last. It is removed first when the upgrade is confirmed.

use super::kept;
use flexnode_host::durable::{self, Change};
use flexnode_host::{FileKind, Fs, FsError};
use flexnode_model::{DocumentError, MachineGoal, State, document};
use flexnode_stack::places;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// kubelet's small state files, below its directory.
pub const KUBELET_FILES: [&str; 7] = [
    CPU,
    MEMORY,
    "dra_manager_state",
    "allocated_pods_state",
    "actuated_pods_state",
    "pod_status_manager_state",
    "device-plugins/kubelet_internal_checkpoint",
];
/// containerd's databases, below its directory.
pub const CONTAINERD_FILES: [&str; 2] =
    ["io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db"];

const CPU: &str = "cpu_manager_state";
const MEMORY: &str = "memory_manager_state";
/// The directory of the copies, below the agent's own.
pub const DIR: &str = "artifacts/kept";
const DOCUMENT: &str = "kept.json";
const LIMIT: u64 = 1 << 20;
/// What the records of the operation take beside the copies.
const SPARE: u64 = 1 << 20;
const VERSION: u32 = 1;

/// Why files could not be kept or put back.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// A file operation.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// They would not fit.
    #[error("{} needs {} MiB for them, but only {} MiB are free on its file system", dir.display(), needed >> 20, free >> 20)]
    NoRoom {
        /// The directory that is written to.
        dir: PathBuf,
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The document makes no sense.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The document.
        path: PathBuf,
        /// Why.
        #[source]
        source: DocumentError,
    },
}

/// What was kept, and for which upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// Format of this document: 1.
    pub version: u32,
    /// The slot whose files they are.
    pub from: String,
    /// The slot that was gone to.
    pub to: String,
    /// kubelet's files that were there, with their modes.
    pub kubelet: Vec<(String, u32)>,
    /// containerd's files that were there, with their modes.
    pub containerd: Vec<(String, u32)>,
    /// kubelet's files are back already; from then on they are kubelet's again.
    pub restored: bool,
    /// What was applied before.
    pub state: Option<State>,
}

/// Which files of the old version kubelet would refuse with the new configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stale {
    /// The CPU manager's.
    pub cpu: bool,
    /// The memory manager's.
    pub memory: bool,
}

/// Compares policies and what is reserved.
pub fn stale(old: &MachineGoal, new: &MachineGoal) -> Stale {
    let setting = |goal: &MachineGoal, path: &[&str]| {
        let mut found = goal.kubelet.config.get(path[0]);
        for key in &path[1..] {
            found = found.and_then(|value| value.get(key));
        }
        // What is not set is kubelet's default.
        match found {
            Some(Value::String(text)) if text.eq_ignore_ascii_case("none") => Value::Null,
            Some(value) => value.clone(),
            None => Value::Null,
        }
    };
    let differs = |paths: &[&[&str]]| paths.iter().any(|path| setting(old, path) != setting(new, path));
    let cpu: [&[&str]; 5] = [
        &["cpuManagerPolicy"],
        &["cpuManagerPolicyOptions"],
        &["reservedSystemCPUs"],
        &["kubeReserved", "cpu"],
        &["systemReserved", "cpu"],
    ];
    let reserved = |goal: &MachineGoal| {
        [&goal.kubelet.kube_reserved, &goal.kubelet.system_reserved].map(|reserved| reserved.get("cpu").cloned())
    };
    Stale {
        cpu: differs(&cpu) || reserved(old) != reserved(new),
        memory: differs(&[&["memoryManagerPolicy"], &["reservedMemory"]]),
    }
}

/// Removes the files that kubelet would refuse.
pub fn remove_stale(fs: &dyn Fs, stale: Stale) -> Result<Change, FsError> {
    let mut change = Change::None;
    for (name, gone) in [(CPU, stale.cpu), (MEMORY, stale.memory)] {
        if gone && dir_exists(fs, Path::new(places::KUBELET_DIR))? {
            change = change.or(durable::remove_file(fs, &Path::new(places::KUBELET_DIR).join(name))?);
        }
    }
    Ok(change)
}

fn dir_exists(fs: &dyn Fs, path: &Path) -> Result<bool, FsError> {
    Ok(fs.stat(path)?.is_some_and(|stat| stat.kind == FileKind::Dir))
}

/// The document, if an upgrade is not confirmed yet.
pub fn load(fs: &dyn Fs) -> Result<Option<Kept>, KeepError> {
    let path = kept(DIR).join(DOCUMENT);
    let Some(bytes) = fs.read(&path, LIMIT)? else { return Ok(None) };
    let read = document::decode(&bytes, "record of kept files", VERSION);
    read.map(Some).map_err(|source| KeepError::Unreadable { path, source })
}

fn save(fs: &dyn Fs, document: &Kept) -> Result<Change, FsError> {
    durable::write(fs, &kept(DIR).join(DOCUMENT), &document::encode(document), 0o600)
}

/// Fails when there is no room for the copies: that is to be known while the old version runs.
pub fn check_room(fs: &dyn Fs) -> Result<(), KeepError> {
    let mut needed = 0;
    let all = [(places::KUBELET_DIR, &KUBELET_FILES[..]), (places::CONTAINERD_ROOT, &CONTAINERD_FILES)];
    for (below, names) in all {
        for name in names {
            needed += fs.lstat(&Path::new(below).join(name))?.map_or(0, |stat| stat.size);
        }
    }
    // The nearest directory that is there.
    let dir = kept(DIR);
    for dir in dir.ancestors() {
        if dir_exists(fs, dir)? {
            let (dir, free) = (dir.to_path_buf(), fs.free_bytes(dir)?);
            return if free < needed + SPARE {
                Err(KeepError::NoRoom { dir, needed: needed + SPARE, free })
            } else {
                Ok(())
            };
        }
    }
    Ok(())
}

/// Copies all files. Everything is stopped.
pub fn keep(fs: &dyn Fs, from: &str, to: &str, state: Option<State>) -> Result<Kept, KeepError> {
    forget(fs)?;
    durable::ensure_dir(fs, &kept(DIR), 0o700)?;
    let kubelet = copy_all(fs, places::KUBELET_DIR, &KUBELET_FILES, "kubelet")?;
    let containerd = copy_all(fs, places::CONTAINERD_ROOT, &CONTAINERD_FILES, "containerd")?;
    let (from, to) = (from.to_owned(), to.to_owned());
    let document = Kept { version: VERSION, from, to, kubelet, containerd, restored: false, state };
    save(fs, &document)?;
    Ok(document)
}

fn copy_all(fs: &dyn Fs, below: &str, names: &[&str], into: &str) -> Result<Vec<(String, u32)>, FsError> {
    let mut copied = Vec::new();
    for name in names {
        let source = Path::new(below).join(name);
        if let Some(stat) = fs.lstat(&source)?
            && stat.kind == FileKind::File
        {
            copy(fs, &source, &kept(DIR).join(into).join(name), 0o600)?;
            copied.push(((*name).to_owned(), stat.mode));
        }
    }
    Ok(copied)
}

fn copy(fs: &dyn Fs, from: &Path, to: &Path, mode: u32) -> Result<(), FsError> {
    if let Some(dir) = to.parent() {
        durable::ensure_dir(fs, dir, 0o700)?;
    }
    let mut source = fs.open(from)?;
    durable::copy_hashed(fs, &mut source, to, mode, None).map(|_| ())
}

/// Copies unless the target is the same already: the node is down meanwhile, and a copy is written out to the disk.
fn restore(fs: &dyn Fs, kept: &Path, target: &Path, mode: u32) -> Result<(), FsError> {
    let there = fs.lstat(target)?.filter(|stat| stat.kind == FileKind::File && stat.mode == mode && stat.size <= LIMIT);
    let kept_size = fs.lstat(kept)?.map(|stat| stat.size);
    if there.is_some_and(|stat| Some(stat.size) == kept_size) && fs.read(kept, LIMIT)? == fs.read(target, LIMIT)? {
        return Ok(());
    }
    copy(fs, kept, target, mode)
}

/// Puts kubelet's files back as they were before the upgrade to `document.to`, once.
pub fn restore_kubelet(fs: &dyn Fs, mut document: Kept) -> Result<Change, KeepError> {
    if document.restored {
        return Ok(Change::None);
    }
    put_back(fs, places::KUBELET_DIR, &KUBELET_FILES, &document.kubelet, "kubelet")?;
    document.restored = true;
    Ok(save(fs, &document)?)
}

/// Puts containerd's databases back as they were. It is stopped.
pub fn restore_containerd(fs: &dyn Fs, document: &Kept) -> Result<(), KeepError> {
    Ok(put_back(fs, places::CONTAINERD_ROOT, &CONTAINERD_FILES, &document.containerd, "containerd")?)
}

fn put_back(fs: &dyn Fs, below: &str, names: &[&str], there: &[(String, u32)], from: &str) -> Result<(), FsError> {
    for name in names {
        let target = Path::new(below).join(name);
        match there.iter().find(|(known, _)| known == name) {
            Some((_, mode)) => restore(fs, &kept(DIR).join(from).join(name), &target, *mode)?,
            None if target.parent().map_or(Ok(false), |dir| dir_exists(fs, dir))? => {
                // The other version began it: this one never had it.
                durable::remove_file(fs, &target)?;
            }
            None => {}
        }
    }
    Ok(())
}

/// The upgrade is confirmed or undone: the copies go, their document first.
pub fn forget(fs: &dyn Fs) -> Result<Change, FsError> {
    let dir = kept(DIR);
    if !dir_exists(fs, &dir)? {
        return Ok(Change::None);
    }
    durable::remove_file(fs, &dir.join(DOCUMENT))?;
    durable::remove_tree(fs, &dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::tests::goal;
    use flexnode_host::testing::MemFs;
    use serde_json::json;

    const CPU_FILE: &str = "/var/lib/kubelet/cpu_manager_state";

    /// C116: kubelet refuses the file of another CPU policy.
    #[test]
    fn only_what_kubelet_would_refuse_is_stale() {
        let with = |config: Value| {
            let mut goal = goal("1.36.2");
            for (key, value) in config.as_object().unwrap() {
                goal.kubelet.config.insert(key.clone(), value.clone());
            }
            goal
        };
        let cases = [
            (json!({}), json!({"maxPods": 7}), (false, false)),
            (json!({}), json!({"cpuManagerPolicy": "none", "memoryManagerPolicy": "None"}), (false, false)),
            (json!({}), json!({"cpuManagerPolicy": "static"}), (true, false)),
            (json!({"cpuManagerPolicy": "static"}), json!({"cpuManagerPolicy": "static"}), (false, false)),
            (json!({"reservedSystemCPUs": "0"}), json!({"reservedSystemCPUs": "0,1"}), (true, false)),
            (json!({"kubeReserved": {"cpu": "1"}}), json!({"kubeReserved": {"cpu": "2"}}), (true, false)),
            (json!({"kubeReserved": {"memory": "1Gi"}}), json!({"kubeReserved": {"memory": "2Gi"}}), (false, false)),
            (json!({}), json!({"memoryManagerPolicy": "Static"}), (false, true)),
        ];
        for (old, new, (cpu, memory)) in cases {
            assert_eq!(stale(&with(old.clone()), &with(new.clone())), Stale { cpu, memory }, "{old} -> {new}");
        }
    }

    #[test]
    fn what_was_kept_comes_back_once_and_what_is_new_goes() {
        let fs = MemFs::new();
        fs.put(CPU_FILE, "none", 0o600).put("/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db", "1.7", 0o644);
        let kept = keep(&fs, "a", "b", None).unwrap();
        assert_eq!(load(&fs).unwrap(), Some(kept.clone()));
        assert_eq!(remove_stale(&fs, Stale { cpu: true, memory: true }).unwrap(), Change::Made);
        fs.put(CPU_FILE, "static", 0o600).put("/var/lib/kubelet/memory_manager_state", "new", 0o600);
        fs.put("/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db", "2.1", 0o644);
        restore_kubelet(&fs, kept).unwrap();
        assert_eq!(fs.read(Path::new(CPU_FILE), LIMIT).unwrap().unwrap(), b"none");
        assert!(fs.lstat(Path::new("/var/lib/kubelet/memory_manager_state")).unwrap().is_none());
        // From then on they are kubelet's: a second time leaves them alone.
        fs.put(CPU_FILE, "none, later", 0o600);
        let kept = load(&fs).unwrap().unwrap();
        assert_eq!(restore_kubelet(&fs, kept.clone()).unwrap(), Change::None);
        assert_eq!(fs.read(Path::new(CPU_FILE), LIMIT).unwrap().unwrap(), b"none, later");
        restore_containerd(&fs, &kept).unwrap();
        let database = Path::new("/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db");
        assert_eq!(fs.read(database, LIMIT).unwrap().unwrap(), b"1.7");
        assert_eq!(fs.lstat(database).unwrap().unwrap().mode, 0o644);
        assert_eq!(forget(&fs).unwrap(), Change::Made);
        assert_eq!((load(&fs).unwrap(), forget(&fs).unwrap()), (None, Change::None));
    }

    #[test]
    fn a_crash_while_copying_leaves_the_files_and_no_document() {
        for after in 0.. {
            let fs = MemFs::new();
            fs.put(CPU_FILE, "none", 0o600);
            fs.crash_after(after);
            let done = keep(&fs, "a", "b", None).is_ok();
            let left = fs.after_power_cut(flexnode_host::testing::Cut::Lazy);
            assert_eq!(left.read(Path::new(CPU_FILE), LIMIT).unwrap().unwrap(), b"none");
            if let Some(kept) = load(&left).unwrap() {
                restore_kubelet(&left, kept).unwrap();
                assert_eq!(left.read(Path::new(CPU_FILE), LIMIT).unwrap().unwrap(), b"none");
            }
            if done {
                return;
            }
        }
    }
}

//! Files under temporary names of ours that a kill or a power cut left where operations write.
//!
//! They harm nothing, and nothing trips over them, but a host is not to collect them: the agent's service removes them when
//! it starts. What is below a version's directory goes with the version.

use crate::lock::Locks;
use crate::operations::state_files::{self, CONTAINERD_FILES, KUBELET_FILES};
use crate::operations::{evidence, kept};
use flexnode_host::durable::{self, TEMP_PREFIX};
use flexnode_host::{Fs, FsError};
use flexnode_isolation::none::{UNIT_CONTAINERD, UNIT_KUBELET, UNIT_LOCAL_DNS, drop_in_dir};
use flexnode_ops::journal;
use flexnode_stack::places;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const UNITS: &str = "/etc/systemd/system";

/// Directories that operations write into, but for those of the agent's own records.
const WRITTEN: [&str; 18] = [
    "/etc",
    "/etc/aks-flex-node",
    "/etc/kubernetes",
    "/etc/kubernetes/pki",
    "/etc/modules-load.d",
    "/etc/sysctl.d",
    UNITS,
    "/etc/unbounded",
    "/etc/unbounded/containerd",
    "/etc/unbounded/kubelet",
    "/opt",
    "/opt/cni",
    "/opt/cni/bin",
    "/opt/unbounded",
    "/opt/unbounded/agent",
    "/opt/unbounded/agent/bin",
    "/opt/unbounded/node",
    "/var/lib",
];

/// Every directory that may have them.
fn directories() -> BTreeSet<PathBuf> {
    let mut dirs: BTreeSet<PathBuf> = WRITTEN.iter().map(PathBuf::from).collect();
    dirs.extend(["", "artifacts", evidence::DIR, state_files::DIR].map(kept));
    dirs.extend([Path::new(journal::DIR).to_path_buf(), Path::new(journal::DIR).join("history")]);
    dirs.extend([UNIT_CONTAINERD, UNIT_KUBELET, UNIT_LOCAL_DNS].map(|unit| drop_in_dir(Path::new(UNITS), unit)));
    let kubelet = KUBELET_FILES.iter().map(|name| Path::new(places::KUBELET_DIR).join(name));
    let containerd = CONTAINERD_FILES.iter().map(|name| Path::new(places::CONTAINERD_ROOT).join(name));
    dirs.extend(kubelet.chain(containerd).filter_map(|file| file.parent().map(Path::to_path_buf)));
    dirs
}

/// Removes them, durably; gives how many there were. Whoever calls holds the lock.
///
/// # Errors
/// Of the first directory that cannot be read or whose files cannot be removed, with its path.
pub fn sweep(fs: &dyn Fs) -> Result<usize, FsError> {
    let mut swept = 0;
    for dir in directories() {
        swept += durable::sweep(fs, &dir)?.len();
    }
    Ok(swept)
}

/// Whether there is any. A directory that cannot be read has none.
fn has_any(fs: &dyn Fs) -> bool {
    let is_ours = |dir: &PathBuf| {
        let entries = fs.read_dir(dir).unwrap_or_default();
        entries.iter().any(|entry| entry.name.to_string_lossy().starts_with(TEMP_PREFIX))
    };
    directories().iter().any(is_ours)
}

/// Removes what is there, unless somebody holds the lock, whose files they may be. The lock is not taken to look: another
/// command would be told that something runs.
pub(crate) fn tidy(fs: &dyn Fs, locks: &dyn Locks) {
    if !has_any(fs) {
        return;
    }
    let Ok(_lock) = locks.acquire("daemon") else { return };
    match sweep(fs) {
        Ok(count) => tracing::info!(count, "temporary files that an interruption had left were removed"),
        Err(error) => {
            tracing::warn!(error = flexnode_ops::report::line(&error), "left-over temporary files cannot be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_host::testing::MemFs;

    #[test]
    fn what_is_ours_goes_wherever_operations_write_and_nothing_else() {
        let fs = MemFs::new();
        let all = directories();
        for dir in &all {
            fs.put(dir.join(".flexnode-tmp-1-1"), "half", 0o600).put(dir.join("flexnode-tmp-of-another"), "x", 0o600);
        }
        for place in ["/etc/aks-flex-node", "/var/lib/aks-flex-node/journal/history", "/var/lib/kubelet/device-plugins"]
        {
            assert!(all.contains(Path::new(place)), "{place}");
        }
        fs.put("/opt/unbounded/node/1.36.3-aa/.flexnode-tmp-2", "of a version", 0o600);
        assert!(has_any(&fs));
        assert_eq!(sweep(&fs).unwrap(), all.len());
        assert!(!has_any(&fs));
        assert!(all.iter().all(|dir| fs.exists(dir.join("flexnode-tmp-of-another"))));
        assert!(fs.exists("/opt/unbounded/node/1.36.3-aa/.flexnode-tmp-2"));
        assert_eq!(sweep(&fs).unwrap(), 0);
    }
}

//! The parts that are files: file systems, the network plugin's configuration, the reboot flag, kubelet's state.

use super::Known;
use super::ask::words;
use flexnode_host::{FileKind, Fs, Space};
use flexnode_model::snapshot::{Cni, Disk, PendingReboot, Reading, Space as Left};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What a node fills: images and containers, pods and volumes, versions, the agent's own state, logs.
const FILLED: [&str; 6] =
    ["/var/lib/kubelet", "/var/lib/containerd", "/opt/unbounded", "/var/lib/aks-flex-node", "/var/log", "/run"];
const CNI_CONFIGURATION: &str = "/etc/cni/net.d";
const CNI_PROGRAMS: &str = "/opt/cni/bin";
/// Debian and its relatives say here that a reboot is needed (update-notifier, unattended-upgrades).
const REBOOT_FLAG: &str = "/run/reboot-required";
const SMALL: u64 = 1 << 20;
/// Bytes of a page, as /proc/PID/statm counts them, on the machines that this runs on.
const PAGE: u64 = 4096;

/// The small files below /var/lib/kubelet in which kubelet keeps what it has to know after a restart. It does not start when
/// one of them makes no sense.
pub const KUBELET_STATE_FILES: [&str; 7] = [
    "cpu_manager_state",
    "memory_manager_state",
    "dra_manager_state",
    "allocated_pods_state",
    "actuated_pods_state",
    "pod_status_manager_state",
    "device-plugins/kubelet_internal_checkpoint",
];

/// The file systems of what a node fills, each once. A file system that does not answer is unknown after `deadline`; the
/// thread that asks it ends with the answer.
pub(super) async fn disks(space: &Arc<dyn Space>, deadline: Duration) -> Vec<Disk> {
    let asked = space.clone();
    let look = tokio::task::spawn_blocking(move || {
        let mut seen = BTreeSet::new();
        let mut disks = Vec::new();
        for path in FILLED {
            let space = match words(asked.left(Path::new(path))) {
                Ok(None) => continue,
                Ok(Some(left)) if !seen.insert(left.device) => continue,
                Ok(Some(left)) => Reading::Known(Left {
                    total_bytes: left.total_bytes,
                    free_bytes: left.free_bytes,
                    total_inodes: left.total_inodes,
                    free_inodes: left.free_inodes,
                }),
                Err(reason) => Reading::Unknown(reason),
            };
            disks.push(Disk { path: path.into(), space });
        }
        disks
    });
    if let Ok(Ok(disks)) = tokio::time::timeout(deadline, look).await {
        return disks;
    }
    let reason = format!("a file system did not answer within {} s", deadline.as_secs());
    vec![Disk { path: "/".into(), space: Reading::Unknown(reason) }]
}

/// The network plugin's configuration that counts (the first by name, as containerd takes it) and its programs.
pub(super) fn cni(fs: &dyn Fs) -> Known<Cni> {
    let dir = Path::new(CNI_CONFIGURATION);
    let entries = match fs.read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Cni::default()),
        Err(e) => return Err(format!("{e}: {}", e.source)),
    };
    let is_configuration = |name: &str| {
        Path::new(name).extension().is_some_and(|kind| kind == "conf" || kind == "conflist" || kind == "json")
    };
    let Some(name) = entries.iter().filter_map(|e| e.name.to_str()).find(|name| is_configuration(name)) else {
        return Ok(Cni::default());
    };
    let path = dir.join(name);
    let bytes = fs.read(&path, SMALL).map_err(|e| format!("{e}: {}", e.source))?.unwrap_or_default();
    let document: Value = serde_json::from_slice(&bytes)
        .map_err(|_| format!("{} is no JSON: the network plugin cannot be configured", path.display()))?;
    let plugins = document.get("plugins").and_then(Value::as_array).cloned().unwrap_or_else(|| vec![document.clone()]);
    let programs: BTreeSet<&str> = plugins.iter().filter_map(|plugin| plugin.get("type")?.as_str()).collect();
    let is_missing = |name: &&&str| !matches!(fs.stat(&Path::new(CNI_PROGRAMS).join(name)), Ok(Some(_)));
    Ok(Cni {
        configuration: Some(path.display().to_string()),
        missing_programs: programs.iter().filter(is_missing).map(ToString::to_string).collect(),
    })
}

/// Whether the distribution asks for a reboot.
pub(super) fn reboot(fs: &dyn Fs) -> Known<PendingReboot> {
    let flag = Path::new(REBOOT_FLAG);
    let needed = fs.lstat(flag).map_err(|e| format!("{e}: {}", e.source))?.is_some();
    if !needed {
        return Ok(PendingReboot::default());
    }
    let bytes = fs.read(Path::new("/run/reboot-required.pkgs"), SMALL).ok().flatten().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let packages: BTreeSet<String> = text.lines().take(64).map(crate::lines::clean).filter(|p| !p.is_empty()).collect();
    Ok(PendingReboot { needed, packages: packages.into_iter().collect() })
}

/// Memory of a process in RAM, in bytes (proc_pid_statm(5)).
pub(super) fn resident(fs: &dyn Fs, pid: u32) -> Option<u64> {
    let bytes = fs.read(Path::new(&format!("/proc/{pid}/statm")), 4096).ok()??;
    let pages: u64 = String::from_utf8_lossy(&bytes).split_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(PAGE)
}

/// State files of kubelet that it cannot read: not JSON, or without the checksum that every one of them carries. A file
/// whose checksum is wrong looks whole from here.
pub fn damaged_kubelet_state(fs: &dyn Fs) -> Vec<PathBuf> {
    let base = Path::new("/var/lib/kubelet");
    let damaged = |path: &PathBuf| match fs.lstat(path) {
        Ok(Some(stat)) if stat.kind == FileKind::File => match fs.read(path, 64 * SMALL) {
            Ok(Some(bytes)) => !is_checkpoint(&bytes),
            _ => false,
        },
        _ => false,
    };
    KUBELET_STATE_FILES.iter().map(|name| base.join(name)).filter(damaged).collect()
}

fn is_checkpoint(bytes: &[u8]) -> bool {
    let keys: Result<serde_json::Map<String, Value>, _> = serde_json::from_slice(bytes);
    keys.is_ok_and(|keys| keys.keys().any(|key| key.eq_ignore_ascii_case("checksum")))
}

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;

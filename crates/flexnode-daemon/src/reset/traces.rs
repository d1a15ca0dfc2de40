//! Whether anything on a host says that it is or was a node of this agent.

use crate::service::{FIRST_BOOT_UNIT_NAME, SERVICE_UNIT_NAME};
use flexnode_host::durable::TEMP_PREFIX;
use flexnode_host::{FileKind, Fs, FsError, Host, HostError};
use flexnode_isolation::none::{
    DEFAULT_BASE, HOST_CNI_BIN_DIR, SYSTEMD_DIR, UNIT_CONTAINERD, UNIT_KUBELET, UNIT_KUBELET_LAUNCH_CHECK,
    UNIT_LOCAL_DNS,
};
use std::path::Path;

/// Where journal, artifact store and record are.
const STATE: &str = "/var/lib/aks-flex-node";

/// Whether there is no trace of a node at all: no journal, record or version, no unit of ours on disk or in systemd, no
/// link into the versions, no process from there. The agent's own program is no trace, and what [`super::plan`] finds is
/// asked for by itself.
pub(super) async fn none(host: &Host) -> Result<bool, HostError> {
    let fs = host.fs.as_ref();
    for path in [STATE, DEFAULT_BASE] {
        if fs.lstat(Path::new(path))?.is_some() {
            return Ok(false);
        }
    }
    if has_unit_files(fs)? || leads_into_base(fs)? {
        return Ok(false);
    }
    let of_base = |process: &flexnode_host::Process| process.exe.starts_with(DEFAULT_BASE);
    if host.processes.list()?.iter().any(of_base) {
        return Ok(false);
    }
    Ok(host.systemd.list(&UNITS).await?.is_empty())
}

/// The units of the node and of the agent.
const UNITS: [&str; 6] =
    [UNIT_CONTAINERD, UNIT_KUBELET, UNIT_KUBELET_LAUNCH_CHECK, UNIT_LOCAL_DNS, SERVICE_UNIT_NAME, FIRST_BOOT_UNIT_NAME];

/// Unit files, drop-in directories, and what a crash left of them.
fn has_unit_files(fs: &dyn Fs) -> Result<bool, FsError> {
    let of_ours = |name: &str| {
        let unit = name.strip_suffix(".d").unwrap_or(name);
        name.starts_with(TEMP_PREFIX) || UNITS.contains(&unit)
    };
    has_entry(fs, Path::new(SYSTEMD_DIR), |_, name, _| Ok(of_ours(name)))
}

fn leads_into_base(fs: &dyn Fs) -> Result<bool, FsError> {
    has_entry(fs, Path::new(HOST_CNI_BIN_DIR), |fs, name, kind| {
        let path = Path::new(HOST_CNI_BIN_DIR).join(name);
        Ok(kind == FileKind::Link && fs.read_link(&path)?.starts_with(DEFAULT_BASE))
    })
}

fn has_entry(
    fs: &dyn Fs,
    dir: &Path,
    is: impl Fn(&dyn Fs, &str, FileKind) -> Result<bool, FsError>,
) -> Result<bool, FsError> {
    let entries = match fs.read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(false);
        }
        Err(e) => return Err(e),
    };
    for entry in entries {
        if let Some(name) = entry.name.to_str()
            && is(fs, name, entry.kind)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_host::testing::FakeHost;

    #[tokio::test]
    async fn a_host_with_programs_of_others_has_no_trace_of_a_node_and_each_trace_counts() {
        let fake = FakeHost::new();
        fake.fs
            .put("/opt/cni/bin/bridge", "theirs", 0o755)
            .put_link("/usr/lib/cni/host-local", "/opt/cni/bin/host-local");
        fake.fs.put("/etc/systemd/system/kubelet.service", "[Service]\nExecStart=/bin/true\n", 0o644);
        fake.fs.put("/opt/unbounded/agent/bin/aks-flex-node", "x", 0o755);
        let before = fake.fs.tree_with_stamps();
        assert!(none(&fake.host()).await.unwrap());
        assert_eq!(fake.fs.tree_with_stamps(), before);
        for path in [
            "/var/lib/aks-flex-node/journal/record.json",
            "/opt/unbounded/node/x",
            "/etc/systemd/system/unbounded-kubelet.service",
            "/etc/systemd/system/unbounded-containerd.service.d/10-path.conf",
            "/etc/systemd/system/.flexnode-tmp-1-1",
        ] {
            let fake = FakeHost::new();
            fake.fs.put(path, "x", 0o644);
            assert!(!none(&fake.host()).await.unwrap(), "{path}");
        }
        fake.fs.put_link("/opt/unbounded/node/current/cni/loopback", "/opt/cni/bin/loopback");
        assert!(!none(&fake.host()).await.unwrap());
    }
}

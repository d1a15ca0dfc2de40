//! What the host itself must provide.

use super::finding::Finding;
use crate::config_file;
use flexnode_host::{FileKind, Fs, Host, MountPoint};
use std::path::{Path, PathBuf};

/// Below this `start` refuses: the programs, one image and a container's layers do not fit.
pub const DISK_NEEDED: u64 = 2 << 30;
/// Below this it warns: kubelet begins to evict pods when the disk is nearly full.
pub const DISK_WISHED: u64 = 8 << 30;

const ROOT: &str = "is-privileged-user";
const SYSTEMD: &str = "systemd";
const CGROUPS: &str = "cgroups";
const WRITABLE: &str = "host-os-configuration";
const DISK: &str = "disk-space";
const EXEC: &str = "executable-paths";
const FIREWALL: &str = "firewall";
const SWAP: &str = "swap-active";
const CONFIG: &str = "config-file";

/// Effective user 0, told from /proc/self/status (proc_pid_status(5): real, effective, saved, file system).
pub fn privileged(fs: &dyn Fs) -> Finding {
    let status = fs.read(Path::new("/proc/self/status"), 1 << 16).ok().flatten().unwrap_or_default();
    match effective_user(&String::from_utf8_lossy(&status)) {
        Some(0) => Finding::ok(ROOT, "runs as root"),
        Some(uid) => Finding::error(ROOT, format!("runs as user {uid}, which may not change the host"))
            .hint("run it as root, for example with sudo"),
        None => Finding::error(ROOT, "cannot tell which user this is: /proc/self/status cannot be read")
            .hint("mount /proc and run it as root"),
    }
}

fn effective_user(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().nth(1)?.parse().ok()
}

/// systemd is PID 1 (sd_booted(3)).
pub fn systemd(fs: &dyn Fs) -> Finding {
    match fs.lstat(Path::new("/run/systemd/system")) {
        Ok(Some(stat)) if stat.kind == FileKind::Dir => Finding::ok(SYSTEMD, "systemd is the init system"),
        _ => Finding::error(SYSTEMD, "systemd is not the init system: /run/systemd/system does not exist")
            .hint("the node stack runs as systemd units; boot the host with systemd"),
    }
}

/// A cgroup file system is mounted.
pub fn cgroups(host: &Host) -> Finding {
    use flexnode_host::CgroupVersion;
    match host.cgroups.version() {
        Some(CgroupVersion::V2) => Finding::ok(CGROUPS, "cgroup v2"),
        Some(CgroupVersion::V1) => Finding::warning(
            CGROUPS,
            "the host uses cgroup v1, which Kubernetes 1.35 and later supports only when told to; kubelet is told",
        )
        .hint("boot with systemd.unified_cgroup_hierarchy=1 when you can"),
        None => Finding::error(CGROUPS, "no cgroup file system is mounted").hint("mount cgroup2 on /sys/fs/cgroup"),
    }
}

/// Each path, or its nearest existing parent, can be written.
pub fn writable(fs: &dyn Fs, paths: &[PathBuf]) -> Vec<Finding> {
    let mut found = Vec::new();
    for path in paths {
        let there = nearest(fs, path);
        let reason = match fs.writable(&there) {
            Ok(true) => continue,
            Ok(false) => format!("{} cannot be written", there.display()),
            Err(e) => format!("{e}: {}", e.source),
        };
        found.push(
            Finding::error(WRITABLE, reason)
                .target(path.display().to_string())
                .hint(format!("{} must be on a file system that is mounted read-write", path.display())),
        );
    }
    if found.is_empty() {
        found.push(Finding::ok(WRITABLE, "the paths that are written are writable"));
    }
    found
}

/// The path itself or its nearest parent that exists.
pub fn nearest(fs: &dyn Fs, path: &Path) -> PathBuf {
    let mut at = path;
    loop {
        if matches!(fs.stat(at), Ok(Some(_))) {
            return at.to_path_buf();
        }
        match at.parent() {
            Some(parent) => at = parent,
            None => return PathBuf::from("/"),
        }
    }
}

/// Space on the file system of each path.
pub fn disk_space(fs: &dyn Fs, paths: &[PathBuf]) -> Vec<Finding> {
    paths.iter().map(|path| one_disk(fs, path)).collect()
}

fn one_disk(fs: &dyn Fs, path: &Path) -> Finding {
    let target = path.display().to_string();
    let free = match fs.free_bytes(&nearest(fs, path)) {
        Ok(free) => free,
        Err(e) => {
            return Finding::warning(DISK, format!("cannot tell the free space of {target}: {}", e.source))
                .target(target);
        }
    };
    let text = format!("{} MiB free for {target}", free >> 20);
    let finding = match free {
        f if f < DISK_NEEDED => Finding::error(DISK, format!("{text}, {} MiB are needed", DISK_NEEDED >> 20))
            .hint(format!("free space on the file system of {target}, or mount a larger one there")),
        f if f < DISK_WISHED => Finding::warning(DISK, format!("{text}; {} MiB are advised", DISK_WISHED >> 20)),
        _ => Finding::ok(DISK, text),
    };
    finding.target(target)
}

/// Programs can be run from each path: no `noexec` mount covers it.
pub fn executable(mounts: &[MountPoint], paths: &[PathBuf]) -> Vec<Finding> {
    let mut found: Vec<Finding> = paths
        .iter()
        .filter_map(|path| covering(mounts, path).filter(|mount| mount.no_exec).map(|mount| (path, mount)))
        .map(|(path, mount)| {
            Finding::error(
                EXEC,
                format!("programs cannot run from {}: {} is mounted noexec", path.display(), mount.path.display()),
            )
            .target(path.display().to_string())
            .hint(format!("mount -o remount,exec {}, and take noexec out of /etc/fstab", mount.path.display()))
        })
        .collect();
    if found.is_empty() {
        found.push(Finding::ok(EXEC, "programs can run from where they are installed"));
    }
    found
}

/// The mount that a path lies on: the longest one that is a prefix, of equal ones the last.
pub fn covering<'a>(mounts: &'a [MountPoint], path: &Path) -> Option<&'a MountPoint> {
    mounts.iter().filter(|m| path.starts_with(&m.path)).max_by_key(|m| m.path.components().count())
}

/// firewalld, seen through its unit: `firewall-cmd` fails in its own ways when the service is stopped.
pub async fn firewall(host: &Host) -> Finding {
    match host.systemd.unit("firewalld.service").await {
        Ok(unit) if unit.is_active() => Finding::warning(
            FIREWALL,
            "firewalld is active and may drop traffic to kubelet and between pods",
        )
        .target("firewalld.service")
        .hint("firewall-cmd --permanent --add-port=10250/tcp, and put the pod network's links into a trusted zone"),
        _ => Finding::ok(FIREWALL, "no firewalld is active"),
    }
}

/// Active swap, which `start` turns off.
pub fn swap(host: &Host, keep: bool) -> Finding {
    match host.kernel.swaps() {
        Ok(areas) if areas.is_empty() => Finding::ok(SWAP, "no swap is active"),
        Ok(_) if keep => Finding::ok(SWAP, "swap is active, and kubelet is told to live with it"),
        Ok(areas) => {
            let names: Vec<String> = areas.iter().map(|a| a.path.display().to_string()).collect();
            Finding::warning(
                SWAP,
                format!("swap is active on {}; start turns it off, also for later boots", names.join(", ")),
            )
        }
        Err(e) => Finding::warning(SWAP, format!("cannot tell whether swap is active: {e}")),
    }
}

/// The configuration belongs to root and nobody else can read or write it.
pub fn config(fs: &dyn Fs, path: &Path) -> Finding {
    match config_file::check(fs, path) {
        Ok(()) => Finding::ok(CONFIG, format!("{} can be read by root only", path.display())),
        Err(e) => {
            let finding = Finding::error(CONFIG, e.to_string()).target(path.display().to_string());
            match e.hint() {
                Some(hint) => finding.hint(hint),
                None => finding,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(path: &str, no_exec: bool) -> MountPoint {
        MountPoint {
            id: 1,
            path: path.into(),
            kind: "ext4".into(),
            source: "/dev/sda1".into(),
            root: "/".into(),
            read_only: false,
            no_exec,
        }
    }

    #[test]
    fn the_effective_user_is_the_second_number() {
        assert_eq!(effective_user("Name:\tx\nUid:\t1000\t0\t0\t0\nGid:\t1\t1\t1\t1\n"), Some(0));
        assert_eq!(effective_user("Uid:\t0\t1000\t0\t0\n"), Some(1000));
        assert_eq!(effective_user("Uid:\t0\n"), None);
        assert_eq!(effective_user(""), None);
    }

    #[test]
    fn the_longest_and_last_mount_covers() {
        let mounts = [mount("/", false), mount("/opt", true), mount("/optional", true), mount("/opt", false)];
        assert_eq!(covering(&mounts, Path::new("/opt/unbounded")), Some(&mounts[3]));
        assert_eq!(covering(&mounts, Path::new("/usr/bin")), Some(&mounts[0]));
        assert_eq!(covering(&[], Path::new("/usr")), None);
    }

    #[test]
    fn a_noexec_mount_is_named() {
        let mounts = [mount("/", false), mount("/opt", true)];
        let paths = [PathBuf::from("/opt/unbounded/agent/bin"), PathBuf::from("/usr")];
        let found = executable(&mounts, &paths);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("/opt is mounted noexec"), "{}", found[0]);
        assert_eq!(executable(&mounts[..1], &paths)[0].severity, super::super::Severity::Ok);
    }
}

//! What needs PID 1, root and a kernel to itself: run in a host of the lab.
//!
//! Build with `cargo test -p flexnode-host --features testing --test system --no-run`, copy the program into a host and
//! run it there with `--ignored --test-threads=1`.

#![allow(clippy::unwrap_used, reason = "test code: a failed unwrap is a failed test")]

use flexnode_host::testing::systemd_suite::{self, Scripts};
use flexnode_host::{CgroupVersion, Command, Host, HostError, durable};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(30);
const UNIT_DIR: &str = "/etc/systemd/system";

async fn run(host: &Host, program: &str, args: &[&str]) -> String {
    let command = Command::new(program, args.iter().copied());
    host.commands.run(&command).await.unwrap().ok(&command).unwrap().text()
}

/// A directory of its own below /run, gone at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = Path::new("/run").join(format!("flexnode-test-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-lRq").arg(&self.0).status();
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
#[ignore = "needs a systemd host"]
async fn the_suite_of_every_systemd() {
    systemd_suite::run(&Host::real(), Scripts { fails: &|_| {}, hangs: &|_| {} }).await;
}

async fn oneshot(host: &Host, unit: &str, script: &str) {
    let text = format!("[Service]\nType=oneshot\nExecStart=/bin/sh -c '{script}'\n");
    durable::write(host.fs.as_ref(), &Path::new(UNIT_DIR).join(unit), text.as_bytes(), 0o644).unwrap();
    host.systemd.reload().await.unwrap();
}

async fn remove_unit(host: &Host, unit: &str) {
    let _ = host.systemd.stop(unit, WAIT).await;
    durable::remove_file(host.fs.as_ref(), &Path::new(UNIT_DIR).join(unit)).unwrap();
    host.systemd.reload().await.unwrap();
}

#[tokio::test]
#[ignore = "needs a systemd host"]
async fn the_last_lines_of_a_unit() {
    let (host, unit) = (Host::real(), "flexnode-test-lines.service");
    oneshot(&host, unit, "for n in 1 2 3 4 5; do echo line $n; done").await;
    host.systemd.start(unit, WAIT).await.unwrap();
    let end = Instant::now() + WAIT;
    let lines = loop {
        // The journal takes them in a moment later.
        let lines = host.systemd.last_lines(unit, 3).await.unwrap();
        assert!(lines.len() <= 3, "{lines:?}");
        if lines.iter().any(|line| line == "line 5") || Instant::now() > end {
            break lines;
        }
    };
    assert!(lines.contains(&"line 5".to_owned()), "{lines:?}");
    assert_eq!(host.systemd.last_lines("flexnode-test-none.service", 3).await.unwrap(), Vec::<String>::new());
    remove_unit(&host, unit).await;
}

#[tokio::test]
#[ignore = "needs a systemd host"]
async fn a_broken_connection_is_made_again_and_a_lost_bus_is_gone_around() {
    let (host, unit) = (Host::real(), "flexnode-test-bus.service");
    oneshot(&host, unit, "sleep 3").await;
    // The bus goes while a job is waited for, and stays away.
    let start = host.systemd.start(unit, WAIT);
    let stop_bus = async {
        run(&host, "systemctl", &["stop", "dbus.socket", "dbus.service"]).await;
    };
    let (started, ()) = tokio::join!(start, stop_bus);
    started.unwrap();
    assert_eq!(host.systemd.unit(unit).await.unwrap().result, "success");
    host.systemd.reload().await.unwrap();
    host.systemd.restart(unit, WAIT).await.unwrap();
    run(&host, "systemctl", &["start", "dbus.socket"]).await;
    assert!(Host::real().systemd.unit("dbus.socket").await.unwrap().is_active());
    remove_unit(&host, unit).await;
}

#[tokio::test]
#[ignore = "needs a systemd host"]
async fn a_unit_that_fails_at_once_and_comes_back_is_not_started() {
    let (host, unit) = (Host::real(), "flexnode-test-flap.service");
    let text = "[Service]\nType=notify\nRestart=always\nRestartSec=1\nExecStart=/bin/false\n";
    durable::write(host.fs.as_ref(), &Path::new(UNIT_DIR).join(unit), text.as_bytes(), 0o644).unwrap();
    host.systemd.reload().await.unwrap();
    let error = host.systemd.start(unit, WAIT).await.unwrap_err();
    assert!(matches!(error, HostError::Failed { .. }), "{error:?}");
    remove_unit(&host, unit).await;
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_bind_mount_is_never_crossed_and_is_unmounted() {
    let (host, place) = (Host::real(), Place::new("bind"));
    let fs = host.fs.as_ref();
    let (outside, tree) = (place.0.join("outside"), place.0.join("tree"));
    let volume = tree.join("a/volume");
    for dir in [&outside, &volume] {
        durable::ensure_dir(fs, dir, 0o755).unwrap();
    }
    durable::write(fs, &outside.join("data"), b"kept", 0o644).unwrap();
    run(&host, "mount", &["--bind", outside.to_str().unwrap(), volume.to_str().unwrap()]).await;
    assert_eq!(fs.lstat(&volume).unwrap().unwrap().dev, fs.lstat(&tree).unwrap().unwrap().dev, "one device");
    for path in [&tree, &volume] {
        let error = durable::remove_tree(fs, path).unwrap_err();
        assert_eq!(durable::Refusal::of(&error), Some(&durable::Refusal::Mounted));
        assert_eq!(error.path, volume);
    }
    // A link to the mount point is not the mount point.
    let link = place.0.join("link");
    durable::replace_link(fs, &volume, &link).unwrap();
    let error = host.mounts.unmount(&link, WAIT).await.unwrap_err();
    assert!(matches!(error, HostError::Absent { .. }), "{error}");
    host.mounts.unmount(&volume, WAIT).await.unwrap();
    assert!(!host.mounts.list().unwrap().iter().any(|mount| mount.path == volume));
    durable::remove_tree(fs, &tree).unwrap();
    assert_eq!(fs.read(&outside.join("data"), 9).unwrap().unwrap(), b"kept");
}

#[tokio::test]
#[ignore = "needs root"]
async fn mounts_go_the_topmost_first_and_a_busy_one_lazily() {
    let (host, place) = (Host::real(), Place::new("busy"));
    let at = place.0.join("m");
    durable::ensure_dir(host.fs.as_ref(), &at, 0o755).unwrap();
    for size in ["1m", "2m"] {
        run(&host, "mount", &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", at.to_str().unwrap()]).await;
    }
    let count = || host.mounts.list().unwrap().iter().filter(|mount| mount.path == at).count();
    assert_eq!(count(), 2);
    std::fs::write(at.join("upper"), "").unwrap();
    host.mounts.unmount(&at, WAIT).await.unwrap();
    assert_eq!((count(), at.join("upper").exists()), (1, false));
    let open = std::fs::File::create(at.join("busy")).unwrap();
    host.mounts.unmount(&at, WAIT).await.unwrap();
    assert_eq!(count(), 0);
    drop(open);
}

#[tokio::test]
#[ignore = "needs root and writable control groups"]
async fn a_control_group_is_ended_and_removed() {
    let (host, unit) = (Host::real(), "flexnode-test-group.service");
    // A service whose processes stay when it is stopped, as a runtime's containers do.
    let script = "for n in 1 2 3 4 5; do setsid sleep 600 & done; exec sleep 600";
    let text = format!("[Service]\nType=exec\nKillMode=process\nDelegate=yes\nExecStart=/bin/sh -c '{script}'\n");
    durable::write(host.fs.as_ref(), &Path::new(UNIT_DIR).join(unit), text.as_bytes(), 0o644).unwrap();
    host.systemd.reload().await.unwrap();
    host.systemd.start(unit, WAIT).await.unwrap();
    let group = host.systemd.unit(unit).await.unwrap().control_group;
    while host.cgroups.pids(&group).unwrap().len() < 6 {
        tokio::task::yield_now().await;
    }
    assert!(host.cgroups.version().is_some());
    assert!(host.cgroups.top().unwrap().contains(&"system.slice".to_owned()));
    assert!(host.cgroups.below("system.slice").unwrap().contains(&group.trim_start_matches('/').to_owned()));
    host.systemd.stop(unit, WAIT).await.unwrap();
    let left = host.cgroups.pids(&group).unwrap();
    assert_eq!(left.len(), 5);
    assert!(host.cgroups.remove(&group).is_err(), "processes are in it");
    host.cgroups.kill(&group, WAIT).await.unwrap();
    assert!(left.iter().all(|pid| host.processes.get(*pid).unwrap().is_none()));
    host.cgroups.remove(&group).unwrap();
    host.cgroups.remove(&group).unwrap();
    assert_eq!(host.cgroups.below(&group).unwrap(), Vec::<String>::new());
    let own = host.processes.get(std::process::id()).unwrap().unwrap();
    if let Some((_, path)) = own.cgroups.iter().find(|(_, path)| path != "/") {
        assert!(host.cgroups.kill(path, WAIT).await.is_err(), "the own group is refused");
    }
    remove_unit(&host, unit).await;
}

/// C079: a kill that was killed itself leaves its group frozen, and nothing that is put into it runs.
#[tokio::test]
#[ignore = "needs root and writable control groups"]
async fn a_group_that_was_left_frozen_runs_again() {
    let (host, group) = (Host::real(), "flexnode-test-frozen");
    let (root, file, frozen) = match host.cgroups.version().unwrap() {
        CgroupVersion::V1 => ("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN"),
        CgroupVersion::V2 => ("/sys/fs/cgroup", "cgroup.freeze", "1"),
    };
    let dir = Path::new(root).join(group);
    let inner = dir.join("inner");
    std::fs::create_dir_all(&inner).unwrap();
    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    std::fs::write(inner.join("cgroup.procs"), child.id().to_string()).unwrap();
    for at in [&dir, &inner] {
        std::fs::write(at.join(file), frozen).unwrap();
    }
    assert!(host.cgroups.thaw(group).unwrap());
    for at in [&dir, &inner] {
        let state = std::fs::read_to_string(at.join(file)).unwrap();
        assert!(["THAWED", "0"].contains(&state.trim()), "{state}");
    }
    assert!(!host.cgroups.thaw(group).unwrap(), "a second time there is nothing to do");
    assert!(!host.cgroups.thaw("flexnode-test-none").unwrap());
    host.cgroups.kill(group, WAIT).await.unwrap();
    child.wait().unwrap();
    host.cgroups.remove(group).unwrap();
}

#[tokio::test]
#[ignore = "needs root and iproute2"]
async fn links_and_namespaces_come_and_go() {
    let host = Host::real();
    run(&host, "ip", &["netns", "add", "flexnode-test"]).await;
    run(&host, "ip", &["link", "add", "fxtest0", "type", "veth", "peer", "name", "fxtest1"]).await;
    run(&host, "ip", &["address", "add", "192.0.2.77/32", "dev", "fxtest0"]).await;
    let links = host.network.links().await.unwrap();
    let link = links.iter().find(|link| link.name == "fxtest0").unwrap();
    assert_eq!(link.kind, "veth");
    assert!(link.addresses.contains(&"192.0.2.77".parse().unwrap()), "{link:?}");
    assert!(host.network.namespaces().unwrap().contains(&"flexnode-test".to_owned()));
    for _ in 0..2 {
        host.network.remove_link("fxtest1").await.unwrap();
        host.network.remove_link("fxtest0").await.unwrap();
        host.network.remove_namespace("flexnode-test").await.unwrap();
    }
    assert!(!host.network.links().await.unwrap().iter().any(|link| link.name.starts_with("fxtest")));
    assert!(!host.network.namespaces().unwrap().contains(&"flexnode-test".to_owned()));
    assert!(!host.mounts.list().unwrap().iter().any(|mount| mount.path.ends_with("netns/flexnode-test")));
}

#[tokio::test]
#[ignore = "needs root, iptables and nft"]
async fn rules_and_chains_come_and_go_and_others_stay() {
    let host = Host::real();
    let setup = "*nat\n:FLEXTEST - [0:0]\n-A FLEXTEST -m comment --comment \"it's \\\"quoted\\\" -j X\" -j RETURN\n\
        -A POSTROUTING -j FLEXTEST\n-A POSTROUTING -s 192.0.2.1/32 -j ACCEPT\nCOMMIT\n";
    let mut restore = Command::new("iptables-restore", ["--noflush"]).input(setup);
    host.commands.run(&restore).await.unwrap().ok(&restore).unwrap();
    restore = Command::new("nft", ["-f", "-"]);
    restore.stdin = b"table inet flextest {\n chain c {\n counter comment \"pod one\"\n }\n}\n".to_vec();
    host.commands.run(&restore).await.unwrap().ok(&restore).unwrap();

    let of = |rules: Vec<(String, String)>, table: &str| -> Vec<String> {
        rules.into_iter().filter(|(t, _)| t == table).map(|(_, rule)| rule).collect()
    };
    let nat = of(host.network.rules().await.unwrap(), "ip/nat");
    let quoted = nat.iter().find(|rule| rule.starts_with("-A FLEXTEST")).unwrap().clone();
    assert!(nat.contains(&":FLEXTEST -".to_owned()), "{nat:?}");
    assert!(host.network.remove_chain("ip/nat", "FLEXTEST").await.is_err(), "something refers to it");
    let inet = of(host.network.rules().await.unwrap(), "nft/inet/flextest");
    assert_eq!(inet.len(), 2, "{inet:?}");
    for _ in 0..2 {
        host.network.remove_rule("ip/nat", &quoted).await.unwrap();
        host.network.remove_rule("ip/nat", "-A POSTROUTING -j FLEXTEST").await.unwrap();
        host.network.remove_chain("ip/nat", "FLEXTEST").await.unwrap();
        host.network.remove_rule("nft/inet/flextest", &inet[1]).await.unwrap();
        host.network.remove_chain("nft/inet/flextest", "c").await.unwrap();
    }
    let rules = host.network.rules().await.unwrap();
    assert!(!rules.iter().any(|(table, rule)| rule.contains("FLEXTEST") || table.contains("flextest")), "{rules:?}");
    let stays = "-A POSTROUTING -s 192.0.2.1/32 -j ACCEPT";
    assert!(rules.contains(&("ip/nat".to_owned(), stays.to_owned())));
    host.network.remove_rule("ip/nat", stays).await.unwrap();
    run(&host, "nft", &["delete", "table", "inet", "flextest"]).await;
}

#[tokio::test]
#[ignore = "needs root and a writable /proc/sys"]
async fn a_sysctl_is_set_and_read_back() {
    let host = Host::real();
    let before = host.kernel.sysctl("net.ipv4.ip_forward").unwrap().unwrap();
    for value in ["1", "0", before.as_str()] {
        host.kernel.set_sysctl("net.ipv4.ip_forward", value).unwrap();
        assert_eq!(host.kernel.sysctl("net.ipv4.ip_forward").unwrap().as_deref(), Some(value));
    }
    let error = host.kernel.set_sysctl("net.ipv4.ip_forward", "nonsense").unwrap_err();
    assert!(matches!(error, HostError::Failed { .. }), "{error}");
}

use super::*;
use flexnode_host::testing::{Script, Tree, Verb};
use flexnode_host::{CgroupVersion, Processes};

/// What is left of the node on a host, links in user directories and empty state directories of kubelet apart.
fn left(before: &Tree, node: &Node) -> Vec<String> {
    before
        .difference(&node.fake.fs.tree())
        .into_iter()
        .filter(|line| {
            !line.contains("/etc/systemd/system/multi-user.target.wants ")
                && !line.starts_with("+ /var/lib/kubelet dir")
        })
        .collect()
}

#[tokio::test]
async fn destroy_leaves_nothing_of_a_running_node() {
    let node = Node::new().reaping();
    let before = node.fake.fs.tree();
    let mut node = node;
    node.backend.units.gpu_setup = vec![vec!["/usr/bin/nvidia-ctk".into()]];
    let node = node.running("v1").await;
    node.backend.link_cni_plugins("v1").unwrap();
    node.backend.prepare_version(&spec("v2")).await.unwrap();
    node.backend.destroy().await.unwrap();
    assert_eq!(left(&before, &node), ["+ /opt/cni directory 0755 0:0"]);
    for unit in [UNIT_CONTAINERD, UNIT_KUBELET] {
        assert_eq!((node.state(unit).load.as_str(), node.active(unit)), ("not-found", false), "{unit}");
    }
    assert!(!node.backend.status().await.unwrap().running);
}

#[tokio::test]
async fn destroy_of_a_node_that_was_never_prepared_succeeds_and_calls_nothing() {
    let node = Node::new().reaping();
    let before = node.fake.fs.tree_with_stamps();
    node.backend.destroy().await.unwrap();
    assert_eq!(node.calls(), Vec::<String>::new());
    assert_eq!(before.difference(&node.fake.fs.tree_with_stamps()), Vec::<String>::new());
}

#[tokio::test]
async fn destroying_again_does_nothing() {
    let node = Node::new().reaping().running("v1").await;
    node.backend.destroy().await.unwrap();
    node.fake.systemd.clear_calls();
    let before = node.fake.fs.tree_with_stamps();
    node.backend.destroy().await.unwrap();
    assert_eq!(node.calls(), Vec::<String>::new());
    assert_eq!(before.difference(&node.fake.fs.tree_with_stamps()), Vec::<String>::new());
}

#[tokio::test]
async fn units_that_were_never_installed_are_skipped() {
    let node = Node::new().reaping();
    // Half installed: one unit was written, nothing was ever started.
    node.fake.fs.put(format!("{UNITS}/unbounded-containerd.service"), "[Service]\nExecStart=/bin/true\n", 0o644);
    node.fake.fs.put_dir("/opt/unbounded/node/v1/bin", 0o755);
    node.fake.systemd.script_always(Verb::Stop, UNIT_KUBELET, Script::Refuse("no such unit".into()));
    node.fake.systemd.script_always(Verb::Disable, UNIT_KUBELET, Script::Refuse("no such unit".into()));
    node.backend.destroy().await.unwrap();
    assert!(!node.calls().iter().any(|call| call.contains("kubelet")), "{:?}", node.calls());
    assert!(!node.fake.fs.exists(format!("{UNITS}/unbounded-containerd.service")));
    assert!(!node.fake.fs.exists("/opt/unbounded"));
}

#[tokio::test]
async fn destroy_of_a_crashed_node_completes() {
    let node = Node::new().reaping().running("v1").await;
    node.fake.systemd.set_active(UNIT_KUBELET, "failed", "failed");
    node.fake.fs.take("/opt/unbounded/node/v1/bin/containerd").take("/opt/unbounded/node/current");
    node.backend.destroy().await.unwrap();
    assert!(!node.fake.fs.exists("/opt/unbounded/node"));
    assert_eq!(node.state(UNIT_KUBELET).active, "inactive");
}

#[tokio::test]
async fn what_is_not_the_agents_stays() {
    let node = Node::new().reaping().running("v1").await;
    node.backend.link_cni_plugins("v1").unwrap();
    let kept = [
        (format!("{UNITS}/unbounded-kubelet.service.d/90-mine.conf"), "[Service]\n"),
        (format!("{UNITS}/containerd.service"), "[Service]\n"),
        (format!("{UNITS}/unbounded-localdns-network.service"), "[Service]\n"),
        ("/opt/cni/bin/cilium-cni".to_owned(), "theirs"),
        ("/etc/containerd/config.toml".to_owned(), "version = 3"),
        ("/opt/unbounded/agent/bin/aks-flex-node".to_owned(), "agent"),
    ];
    for (path, text) in &kept {
        node.fake.fs.put(path, text, 0o644);
    }
    // The link of ours was replaced by a file of somebody else.
    node.fake.fs.take(CONTAINERD_CONFIG_PATH).put(CONTAINERD_CONFIG_PATH, "theirs", 0o644);
    node.backend.destroy().await.unwrap();
    for (path, text) in &kept {
        assert_eq!(&node.text(path), text);
    }
    assert_eq!(node.text(CONTAINERD_CONFIG_PATH), "theirs");
    assert!(!node.fake.fs.exists(DEFAULT_KUBELET_CONFIG_PATH));
}

/// C077: shims outlive a containerd that was killed.
#[tokio::test]
async fn shims_that_outlive_the_units_are_killed() {
    let node = Node::new().reaping().running("v1").await;
    let shim =
        node.fake.processes.spawn("/opt/unbounded/node/v1/bin/containerd-shim-runc-v2", &["shim"], "system.slice/x");
    node.backend.destroy().await.unwrap();
    assert!(!node.fake.processes.runs(shim.pid));
    assert!(node.fake.processes.signals().contains(&(shim.pid, 9)));
}

#[tokio::test]
async fn a_shim_whose_file_was_replaced_is_known_by_its_old_path() {
    let node = Node::new().reaping().running("v1").await;
    let shim =
        node.fake.processes.spawn("/opt/unbounded/node/v1/bin/containerd-shim-runc-v2", &["shim"], "system.slice/x");
    node.fake
        .processes
        .update(shim.pid, |p| p.exe = "/opt/unbounded/node/v0/bin/containerd-shim-runc-v2 (deleted)".into());
    node.backend.destroy().await.unwrap();
    assert!(!node.fake.processes.runs(shim.pid));
}

#[tokio::test]
async fn a_process_that_only_looks_like_a_shim_of_ours_is_left_alone() {
    let node = Node::new().reaping().running("v1").await;
    let shim = "/opt/unbounded/node/v1/bin/containerd-shim-runc-v2";
    // In a container, with the same path in its own mounts.
    let contained = node.fake.processes.spawn(shim, &["shim"], "machine.slice/x");
    node.fake.processes.update(contained.pid, |p| p.mount_ns += 1);
    // In the host's mounts, but another file than the one that is there.
    let other = node.fake.processes.spawn(shim, &["shim"], "system.slice/y");
    node.fake.processes.update(other.pid, |p| p.exe_id = Some((99, 99)));
    // Docker's.
    node.fake.fs.put("/usr/bin/containerd-shim-runc-v2", "", 0o755);
    let docker =
        node.fake.processes.spawn("/usr/bin/containerd-shim-runc-v2", &["shim"], "system.slice/docker.service");
    node.backend.destroy().await.unwrap();
    for (process, what) in [(contained, "contained"), (other, "other"), (docker, "docker")] {
        assert!(node.fake.processes.runs(process.pid), "{what}");
    }
}

/// C073: a control group that was left keeps its name from being used.
#[tokio::test]
async fn the_pods_control_groups_are_killed_and_removed_on_both_versions() {
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        let node = Node::new().reaping().running("v1").await;
        node.fake.cgroups.set_version(Some(version));
        let group = if version == CgroupVersion::V1 { "kubepods" } else { "kubepods.slice" };
        let deep = format!("{group}/burstable/pod1/c1");
        node.fake.cgroups.add(&deep).add("kubepods-other").add("machine.slice/kubepods");
        let pod = node.fake.processes.spawn("/usr/bin/pod", &["pod"], &deep);
        let foreign = node.fake.processes.spawn("/usr/bin/x", &["x"], "kubepods-other");
        let nested = node.fake.processes.spawn("/usr/bin/x", &["x"], "machine.slice/kubepods");
        node.backend.destroy().await.unwrap();
        assert!(!node.fake.processes.runs(pod.pid), "{version:?}");
        assert!(node.fake.processes.runs(foreign.pid) && node.fake.processes.runs(nested.pid));
        assert!(
            !node.fake.cgroups.all().iter().any(|path| path.trim_start_matches('/').starts_with(&format!("{group}/")))
        );
        assert!(!node.fake.cgroups.all().iter().any(|path| path.trim_start_matches('/') == group), "{version:?}");
    }
}

#[tokio::test]
async fn unset_seams_reap_nothing() {
    let node = Node::new().running("v1").await;
    let shim =
        node.fake.processes.spawn("/opt/unbounded/node/v1/bin/containerd-shim-runc-v2", &["shim"], "system.slice/x");
    node.fake.cgroups.add("kubepods.slice/pod1");
    let pod = node.fake.processes.spawn("/usr/bin/pod", &["pod"], "kubepods.slice/pod1");
    node.backend.destroy().await.unwrap();
    assert!(node.fake.processes.runs(shim.pid) && node.fake.processes.runs(pod.pid));
    assert_eq!(node.fake.processes.signals(), []);
}

#[tokio::test]
async fn a_kill_of_ones_own_signals_nothing() {
    let mut node = Node::new().reaping().running("v1").await;
    let shim =
        node.fake.processes.spawn("/opt/unbounded/node/v1/bin/containerd-shim-runc-v2", &["shim"], "system.slice/x");
    let diary = Diary::default();
    let seen = diary.clone();
    node.backend.kill = Kill::new(move |process| {
        seen.note(process.pid.to_string());
        Ok(())
    });
    node.backend.destroy().await.unwrap();
    assert_eq!(diary.lines(), [shim.pid.to_string()]);
    assert_eq!(node.fake.processes.signals(), []);
}

#[tokio::test]
async fn a_process_that_cannot_be_ended_is_named_and_the_versions_stay() {
    let node = Node::new().reaping().running("v1").await;
    let shim =
        node.fake.processes.spawn("/opt/unbounded/node/v1/bin/containerd-shim-runc-v2", &["shim"], "system.slice/x");
    node.fake.processes.ignore(shim.pid, 9);
    let error = whole(&node.backend.destroy().await.unwrap_err());
    assert!(error.contains(&shim.pid.to_string()), "{error}");
    assert!(node.fake.fs.exists("/opt/unbounded/node/v1"));
    node.fake.processes.end(shim.pid);
    node.backend.destroy().await.unwrap();
    assert!(!node.fake.fs.exists("/opt/unbounded/node"));
}

#[tokio::test]
async fn destroy_attempts_to_stop_every_unit() {
    let node = Node::new().reaping().running("v1").await;
    node.fake.systemd.script(Verb::Stop, UNIT_KUBELET, Script::Refuse("no".into()));
    let error = whole(&node.backend.destroy().await.unwrap_err());
    assert!(error.contains("unbounded-kubelet.service"), "{error}");
    assert!(!node.active(UNIT_CONTAINERD));
    node.backend.destroy().await.unwrap();
    assert!(!node.fake.fs.exists("/opt/unbounded/node"));
}

#[tokio::test]
async fn destroy_never_leaves_the_base_through_a_link_or_a_mount() {
    let node = Node::new().reaping().running("v1").await;
    node.fake.fs.put("/srv/data", "theirs", 0o644).put_link("/srv", "/opt/unbounded/node/v1/out");
    node.fake.mounts.mount("/opt/unbounded/node/v1/mnt", "ext4", "/dev/sdb1");
    node.fake.fs.put("/opt/unbounded/node/v1/mnt/data", "theirs", 0o644);
    assert!(whole(&node.backend.destroy().await.unwrap_err()).contains("mounted"));
    assert_eq!(node.text("/opt/unbounded/node/v1/mnt/data"), "theirs");
    assert_eq!(node.text("/srv/data"), "theirs");
}

#[tokio::test]
async fn destroy_survives_a_kill_at_every_change() {
    for changes in 0.. {
        let node = Node::new().reaping();
        let before = node.fake.fs.tree();
        let node = node.running("v1").await;
        node.backend.link_cni_plugins("v1").unwrap();
        node.fake.fs.crash_after(changes);
        let _ = node.backend.destroy().await;
        let crashed = node.fake.fs.crashed();
        node.fake.fs.revive();
        node.backend.destroy().await.unwrap_or_else(|e| panic!("after {changes}: {}", whole(&e)));
        let rest: Vec<String> =
            left(&before, &node).into_iter().filter(|line| !line.starts_with("+ /opt/cni")).collect();
        assert_eq!(rest, Vec::<String>::new(), "after {changes}");
        assert_eq!(node.state(UNIT_KUBELET).load, "not-found");
        if !crashed {
            return;
        }
    }
}

#[tokio::test]
async fn a_new_default_backend_reaps() {
    let fake = FakeHost::new();
    let backend = Backend::new_default(fake.host(), tracing::Span::none());
    assert!(backend.proc.is_some() && backend.cgroup_root.is_some());
    assert_eq!((backend.layout.base_dir(), backend.unit_dir()), (Path::new(DEFAULT_BASE), Path::new(SYSTEMD_DIR)));
    assert_eq!(backend.proc.unwrap().own_mount_ns(), fake.processes.own_mount_ns());
    let plain = Backend::new(fake.host());
    assert!(plain.proc.is_none() && plain.cgroup_root.is_none());
}

use super::*;
use flexnode_host::Fs;
use flexnode_host::testing::{Script, Verb};

/// With LocalDNS, whose network unit somebody else wrote.
fn with_local_dns() -> Node {
    let mut node = Node::new();
    node.backend.units.local_dns = true;
    let unit = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/net\n";
    node.fake.fs.put(format!("{UNITS}/unbounded-localdns-network.service"), unit, 0o644).put("/bin/net", "", 0o755);
    node
}

fn starts(node: &Node) -> Vec<String> {
    node.calls().into_iter().filter(|call| call.starts_with("start") || call.starts_with("restart")).collect()
}

async fn prepared(node: Node) -> Node {
    node.backend.prepare(&spec("v1")).await.unwrap();
    node.backend.activate("v1").await.unwrap();
    node.fake.systemd.clear_calls();
    node
}

#[tokio::test]
async fn start_starts_in_order_and_enables_for_boot() {
    let node = prepared(with_local_dns()).await;
    node.backend.start().await.unwrap();
    assert_eq!(
        starts(&node),
        ["start unbounded-localdns.service", "start unbounded-containerd.service", "start unbounded-kubelet.service"]
    );
    for unit in [UNIT_LOCAL_DNS, UNIT_CONTAINERD, UNIT_KUBELET] {
        assert_eq!(node.state(unit).enabled, "enabled", "{unit}");
    }
    node.assert_runs("v1");
}

#[tokio::test]
async fn each_gate_runs_before_the_next_unit_starts() {
    let mut node = prepared(with_local_dns()).await;
    let diary = Diary::default();
    for unit in [UNIT_LOCAL_DNS, UNIT_CONTAINERD, UNIT_KUBELET] {
        let systemd = node.fake.systemd.clone();
        let running = move || {
            let active = |unit: &&str| systemd.state(unit).is_active();
            format!(" {}", [UNIT_LOCAL_DNS, UNIT_CONTAINERD, UNIT_KUBELET].iter().filter(|unit| active(unit)).count())
        };
        node.backend.after_start.insert(unit.to_owned(), diary.hook(unit, running));
    }
    node.backend.start().await.unwrap();
    assert_eq!(
        diary.lines(),
        ["unbounded-localdns.service 1", "unbounded-containerd.service 2", "unbounded-kubelet.service 3"]
    );
}

#[tokio::test]
async fn a_gate_that_fails_stops_the_start() {
    let mut node = prepared(Node::new()).await;
    node.backend.after_start.insert(UNIT_CONTAINERD.to_owned(), failing("containerd does not answer"));
    let error = node.backend.start().await.unwrap_err();
    assert!(whole(&error).contains("containerd does not answer"));
    assert!(node.active(UNIT_CONTAINERD) && !node.active(UNIT_KUBELET));
}

#[tokio::test]
async fn before_start_runs_before_any_unit_is_touched_and_its_failure_stops_the_start() {
    let mut node = prepared(Node::new()).await;
    node.backend.before_start = failing("no NVIDIA driver");
    assert!(whole(&node.backend.start().await.unwrap_err()).contains("no NVIDIA driver"));
    assert_eq!(node.calls(), Vec::<String>::new());
    assert!(whole(&node.backend.restart().await.unwrap_err()).contains("no NVIDIA driver"));
    assert_eq!(node.calls(), Vec::<String>::new());
}

/// C068: containerd is restarted although nothing changed.
#[tokio::test]
async fn a_second_start_changes_and_restarts_nothing() {
    let node = with_local_dns().running("v1").await;
    let before = node.fake.fs.tree_with_stamps();
    node.backend.start().await.unwrap();
    assert_eq!(node.calls(), Vec::<String>::new());
    assert_eq!(before.difference(&node.fake.fs.tree_with_stamps()), Vec::<String>::new());
}

#[tokio::test]
async fn a_unit_that_does_not_start_stops_the_start_and_the_error_says_where_to_look() {
    let node = prepared(Node::new()).await;
    node.fake.systemd.script(Verb::Start, UNIT_CONTAINERD, Script::exit(1));
    let error = node.backend.start().await.unwrap_err();
    let Error::Failed(failure) = &error else { panic!("{error}") };
    assert_eq!(failure.step, "start-containerd");
    assert_eq!(failure.error.hint.as_deref(), Some("journalctl -u unbounded-containerd.service -n 50"));
    assert!(!node.active(UNIT_KUBELET));
}

#[tokio::test]
async fn a_unit_that_dies_right_after_its_start_is_no_success() {
    let node = prepared(Node::new()).await;
    node.fake.systemd.script(Verb::Start, UNIT_KUBELET, Script::DieAfterStart(1));
    let error = whole(&node.backend.start().await.unwrap_err());
    assert!(error.contains("exit-code, status 1"), "{error}");
}

/// C153: a unit starts with the values from before a drop-in was written.
#[tokio::test]
async fn nothing_is_started_while_systemd_has_not_read_what_is_on_disk() {
    let node = prepared(Node::new()).await;
    node.state(UNIT_KUBELET);
    node.fake.fs.put(format!("{UNITS}/unbounded-kubelet.service.d/90-mine.conf"), "[Service]\nNice=1\n", 0o644);
    assert!(node.state(UNIT_KUBELET).need_reload);
    node.backend.start().await.unwrap();
    let calls = node.calls();
    let at = |call: &str| calls.iter().position(|c| c == call).unwrap();
    assert!(at("reload") < at("start unbounded-kubelet.service"), "{calls:?}");
}

#[tokio::test]
async fn the_effective_command_line_is_compared_after_the_start() {
    let node = prepared(Node::new()).await;
    // A drop-in of a person replaces the command.
    let drop_in = "[Service]\nExecStart=\nExecStart=/opt/unbounded/node/current/bin/kubelet --other\n";
    node.fake.fs.put(format!("{UNITS}/unbounded-kubelet.service.d/90-mine.conf"), drop_in, 0o644);
    let error = whole(&node.backend.start().await.unwrap_err());
    assert!(error.contains("--other") && error.contains("$KUBELET_NODE_CONFIG_ARGS"), "{error}");
}

/// C061: what runs already is left alone, though it runs something else than is meant.
#[tokio::test]
async fn a_unit_that_runs_another_version_is_restarted() {
    let node = Node::new().running("v1").await;
    node.backend.prepare_version(&spec("v2")).await.unwrap();
    node.backend.activate("v2").await.unwrap();
    node.fake.systemd.clear_calls();
    node.backend.start().await.unwrap();
    assert_eq!(starts(&node), ["restart unbounded-containerd.service", "restart unbounded-kubelet.service"]);
    node.assert_runs("v2");
}

#[tokio::test]
async fn a_masked_unit_is_named_with_the_command_that_mends_it() {
    let node = prepared(Node::new()).await;
    node.fake.fs.take(format!("{UNITS}/unbounded-kubelet.service"));
    node.fake.fs.put_link("/dev/null", format!("{UNITS}/unbounded-kubelet.service"));
    node.fake.systemd.reboot();
    let Err(Error::Failed(failure)) = node.backend.start().await else { panic!("it started") };
    assert_eq!(failure.error.hint.as_deref(), Some("systemctl unmask unbounded-kubelet.service"));
}

#[tokio::test]
async fn a_start_without_an_active_version_is_refused() {
    let node = Node::new();
    node.backend.prepare(&spec("v1")).await.unwrap();
    let error = whole(&node.backend.start().await.unwrap_err());
    assert!(error.contains("/opt/unbounded/node/current"), "{error}");
}

#[tokio::test]
async fn links_are_checked_before_each_start() {
    let node = prepared(Node::new()).await;
    node.fake.fs.take(CONTAINERD_CONFIG_PATH);
    node.backend.start().await.unwrap();
    assert!(node.fake.fs.exists(CONTAINERD_CONFIG_PATH), "a missing link of ours is made again");
    node.backend.stop().await.unwrap();
    node.fake.fs.take(CONTAINERD_CONFIG_PATH).put(CONTAINERD_CONFIG_PATH, "theirs", 0o644);
    node.fake.systemd.clear_calls();
    assert!(whole(&node.backend.start().await.unwrap_err()).contains(CONTAINERD_CONFIG_PATH));
    assert_eq!(node.calls(), Vec::<String>::new());
    assert_eq!(node.text(CONTAINERD_CONFIG_PATH), "theirs");
}

#[tokio::test]
async fn stop_stops_in_reverse_order() {
    let node = with_local_dns().running("v1").await;
    node.backend.stop().await.unwrap();
    assert_eq!(
        node.calls(),
        ["stop unbounded-kubelet.service", "stop unbounded-containerd.service", "stop unbounded-localdns.service"]
    );
    assert!(!node.backend.status().await.unwrap().running);
}

#[tokio::test]
async fn stop_attempts_every_unit_and_joins_the_errors() {
    let node = with_local_dns().running("v1").await;
    node.fake.systemd.script(Verb::Stop, UNIT_KUBELET, Script::Refuse("no".into()));
    node.fake.systemd.script(Verb::Stop, UNIT_CONTAINERD, Script::Hang);
    let error = whole(&node.backend.stop().await.unwrap_err());
    assert!(error.contains("unbounded-kubelet.service") && error.contains("unbounded-containerd.service"), "{error}");
    assert!(!node.active(UNIT_LOCAL_DNS));
}

/// C065: stopping a unit that is gone is an error.
#[tokio::test]
async fn a_second_stop_does_nothing_and_a_unit_that_does_not_exist_counts_as_stopped() {
    let node = Node::new().running("v1").await;
    node.backend.stop().await.unwrap();
    node.fake.systemd.clear_calls();
    node.backend.stop().await.unwrap();
    Node::new().backend.stop().await.unwrap();
    assert_eq!(node.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn restart_restarts_in_start_order_with_its_own_gates_and_never_reboots() {
    let mut node = Node::new().running("v1").await;
    let diary = Diary::default();
    node.backend.after_start.insert(UNIT_CONTAINERD.to_owned(), failing("the gate of start"));
    node.backend.after_restart.insert(UNIT_CONTAINERD.to_owned(), diary.hook("gate", String::new));
    node.backend.before_start = diary.hook("before", String::new);
    let pid = node.state(UNIT_KUBELET).main_pid;
    node.backend.restart().await.unwrap();
    assert_eq!(node.calls(), ["restart unbounded-containerd.service", "restart unbounded-kubelet.service"]);
    assert_eq!(diary.lines(), ["before", "gate"]);
    assert_ne!(node.state(UNIT_KUBELET).main_pid, pid);
    node.assert_runs("v1");
}

#[tokio::test]
async fn restart_leaves_pods_alone() {
    let node = Node::new().reaping().running("v1").await;
    let shim =
        node.fake.processes.spawn("/opt/unbounded/node/v1/bin/containerd-shim-runc-v2", &["shim"], "system.slice/x");
    let pod = node.fake.processes.spawn("/usr/bin/pod", &["pod"], "kubepods.slice/pod1");
    node.backend.restart().await.unwrap();
    assert!(node.fake.processes.runs(shim.pid) && node.fake.processes.runs(pod.pid));
}

#[tokio::test]
async fn disable_steps_keep_the_stack_from_starting_at_boot() {
    let node = Node::new().running("v1").await;
    node.backend.stop().await.unwrap();
    for step in node.backend.disable_steps() {
        step.run(flexnode_ops::StepContext::silent()).await.unwrap();
    }
    node.fake.systemd.reboot();
    assert!(!node.active(UNIT_KUBELET) && !node.active(UNIT_CONTAINERD));
    node.backend.start().await.unwrap();
    node.fake.systemd.reboot();
    assert!(node.active(UNIT_KUBELET) && node.active(UNIT_CONTAINERD));
}

/// C067: only units that the node has are judged.
#[tokio::test]
async fn status_is_running_when_every_unit_is_active() {
    let node = Node::new();
    let status = node.backend.status().await.unwrap();
    assert_eq!((status.running, status.slot), (false, None));
    let node = with_local_dns().running("v1").await;
    let status = node.backend.status().await.unwrap();
    assert_eq!((status.running, status.slot.as_deref()), (true, Some("v1")));
    let units: Vec<&str> = status.units.iter().map(|unit| unit.unit.as_str()).collect();
    assert_eq!(units, [UNIT_LOCAL_DNS, UNIT_CONTAINERD, UNIT_KUBELET]);
    for unit in [UNIT_LOCAL_DNS, UNIT_CONTAINERD, UNIT_KUBELET] {
        node.fake.systemd.set_active(unit, "failed", "failed");
        assert!(!node.backend.status().await.unwrap().running, "{unit} failed");
        node.fake.systemd.set_active(unit, "active", "running");
    }
}

/// C080: a start that goes on is cancelled by another one.
#[tokio::test]
async fn a_unit_that_is_starting_is_waited_for_and_not_begun_anew() {
    let node = Node::new().running("v1").await;
    for unit in [UNIT_CONTAINERD, UNIT_KUBELET] {
        node.fake.systemd.set_active(unit, "activating", "start");
        node.backend.start().await.unwrap();
        assert_eq!(starts(&node), [format!("start {unit}")], "its job is joined");
        node.assert_runs("v1");
        node.fake.systemd.clear_calls();
    }
}

/// C079: what is started lands in a group that an end of pods left dead.
#[tokio::test]
async fn pods_that_a_killed_end_left_frozen_run_again_before_kubelet_starts() {
    let node = Node::new().reaping().running("v1").await;
    let frozen = ["kubepods/besteffort/pod1", "kubepods.slice/kubepods-pod2.slice"];
    for group in frozen {
        node.fake.cgroups.add_frozen(group);
    }
    node.fake.cgroups.add_frozen("user.slice");
    // While kubelet runs they are its own.
    node.backend.start().await.unwrap();
    assert_eq!(node.fake.cgroups.frozen().len(), 3);
    node.backend.stop().await.unwrap();
    let (cgroups, seen) = (node.fake.cgroups.clone(), Diary::default());
    let diary = seen.clone();
    node.fake.systemd.hook(Verb::Start, UNIT_KUBELET, move || diary.note(cgroups.frozen().join(" ")));
    node.backend.start().await.unwrap();
    assert_eq!(seen.lines(), ["user.slice"], "kubelet finds its groups alive, and others' groups are others'");
}

/// What is on disk may be another version's, because a way back could not write the units of its own.
#[tokio::test]
async fn nothing_starts_by_the_units_of_another_version() {
    for way in ["start", "restart", "rollback", "units"] {
        let mut node = Node::new();
        node.backend.rollback_units = RollbackUnits::Recorded;
        let mut node = node.running("v1").await;
        // The other version has LocalDNS; its units stayed.
        node.backend.units.local_dns = true;
        node.backend.prepare_version(&spec("v2")).await.unwrap();
        let mut other = node.backend.clone();
        other.rollback_units = RollbackUnits::Keep;
        other.ensure_units().await.unwrap();
        assert!(node.fake.fs.exists(format!("{UNITS}/{UNIT_LOCAL_DNS}")));
        if way == "start" {
            node.backend.stop().await.unwrap();
        }
        let (fs, seen) = (node.fake.fs.clone(), Diary::default());
        for verb in [Verb::Start, Verb::Restart] {
            let (fs, diary) = (fs.clone(), seen.clone());
            node.fake.systemd.hook(verb, UNIT_CONTAINERD, move || {
                diary.note(format!("{}", fs.exists(format!("{UNITS}/{UNIT_LOCAL_DNS}"))));
            });
        }
        match way {
            "start" => node.backend.start().await.unwrap(),
            "restart" => node.backend.restart().await.unwrap(),
            "rollback" => node.backend.rollback("v1").await.unwrap(),
            _ => {
                node.backend.ensure_units().await.unwrap();
                // Stopping LocalDNS has stopped what was bound to it.
                node.backend.start().await.unwrap();
            }
        }
        assert!(!node.fake.fs.exists(format!("{UNITS}/{UNIT_LOCAL_DNS}")), "{way}");
        assert!(seen.lines().iter().all(|line| line == "false"), "{way}: {:?}", seen.lines());
        assert!(!node.active(UNIT_LOCAL_DNS), "{way}");
        node.assert_runs("v1");
        node.fake.systemd.clear_calls();
        node.backend.ensure_units().await.unwrap();
        assert_eq!(node.calls(), Vec::<String>::new(), "{way}: a second time there is nothing to do");
    }
}

#[tokio::test]
async fn the_host_comes_up_again_after_a_reboot() {
    let node = with_local_dns().running("v1").await;
    node.fake.systemd.reboot();
    assert!(node.backend.status().await.unwrap().running);
    node.assert_runs("v1");
    assert!(node.fake.fs.lstat(Path::new("/opt/unbounded/node/current")).unwrap().is_some());
}

#[tokio::test]
async fn the_launch_check_runs_before_every_kubelet_start() {
    let mut node = Node::new();
    node.backend.units.launch_check_command = Some("/bin/check".into());
    node.fake.fs.put("/bin/check", "", 0o755);
    let mut node = prepared(node).await;
    node.fake.fs.take("/bin/check");
    let error = whole(&node.backend.start().await.unwrap_err());
    assert!(error.contains("unbounded-kubelet-launch-check.service"), "{error}");
    assert!(!node.active(UNIT_KUBELET));
    node.fake.fs.put("/bin/check", "", 0o755);
    node.backend.start().await.unwrap();
    assert!(node.active(UNIT_KUBELET));
    node.backend.units.launch_check_command = None;
    node.backend.prepare(&spec("v1")).await.unwrap();
    assert!(!node.fake.fs.exists(format!("{UNITS}/unbounded-kubelet-launch-check.service")));
}

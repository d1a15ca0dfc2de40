use super::*;
use crate::backend::RolledBack;
use flexnode_host::testing::{Script, Verb};

/// v1 runs, v2 is prepared.
async fn ready() -> Node {
    let node = Node::new().reaping().running("v1").await;
    node.backend.prepare_version(&spec("v2")).await.unwrap();
    node
}

fn ready_hook() -> Hook {
    Hook::default()
}

fn rolled_back(result: Result<(), Error>) -> RolledBack {
    match result {
        Err(Error::RolledBack(error)) => *error,
        other => panic!("it was not rolled back: {other:?}"),
    }
}

#[tokio::test]
async fn upgrade_switches_to_the_prepared_version() {
    let node = ready().await;
    node.backend.upgrade("v2", ready_hook()).await.unwrap();
    node.assert_runs("v2");
}

/// C056: a version that was prepared and never gone to blocks a newer one, or is taken for one that failed.
#[tokio::test]
async fn a_version_that_was_only_prepared_is_no_hindrance_for_another() {
    let node = ready().await;
    node.backend.prepare_version(&spec("v3")).await.unwrap();
    node.backend.upgrade("v3", ready_hook()).await.unwrap();
    node.assert_runs("v3");
    node.backend.upgrade("v2", ready_hook()).await.unwrap();
    node.assert_runs("v2");
}

#[tokio::test]
async fn upgrade_goes_in_the_order_of_the_contract() {
    let mut node = ready().await;
    let diary = Diary::default();
    let shim =
        node.fake.processes.spawn("/opt/unbounded/node/v1/bin/containerd-shim-runc-v2", &["shim"], "system.slice/x");
    let (systemd, processes, backend) = (node.fake.systemd.clone(), node.fake.processes.clone(), node.backend.clone());
    let look = move || {
        let units = systemd.state(UNIT_CONTAINERD).is_active() || systemd.state(UNIT_KUBELET).is_active();
        format!(" running={units} pods={} current={}", processes.runs(shim.pid), backend.current().unwrap().unwrap())
    };
    node.backend.before_upgrade_start = diary.hook("before-upgrade-start", look.clone());
    node.backend.before_start = diary.hook("before-start", look.clone());
    node.backend.before_rollback_start = diary.hook("before-rollback-start", look.clone());
    node.backend.upgrade("v2", diary.hook("wait-ready", look)).await.unwrap();
    assert_eq!(
        diary.lines(),
        [
            "before-upgrade-start running=false pods=false current=v2",
            "before-start running=false pods=false current=v2",
            "wait-ready running=true pods=false current=v2",
        ]
    );
}

#[tokio::test]
async fn sandboxes_are_ended_between_the_stops_of_kubelet_and_containerd() {
    let mut node = ready().await;
    let (diary, systemd) = (Diary::default(), node.fake.systemd.clone());
    node.backend.end_sandboxes = diary.hook("end", move || {
        format!(
            " kubelet={} containerd={}",
            systemd.state(UNIT_KUBELET).is_active(),
            systemd.state(UNIT_CONTAINERD).is_active()
        )
    });
    node.backend.upgrade("v2", ready_hook()).await.unwrap();
    assert_eq!(diary.lines(), ["end kubelet=false containerd=true"]);
}

/// C058: processes of the old version live on and are in the way of the new one.
#[tokio::test]
async fn a_runtime_that_cannot_end_its_sandboxes_does_not_stop_the_upgrade() {
    let mut node = ready().await;
    node.backend.end_sandboxes = failing("the runtime hangs");
    let pod = node.fake.processes.spawn("/usr/bin/pod", &["pod"], "kubepods.slice/pod1");
    node.fake.cgroups.add("kubepods.slice/pod1");
    node.backend.upgrade("v2", ready_hook()).await.unwrap();
    assert!(!node.fake.processes.runs(pod.pid), "what remains is ended as destroy does it");
    node.assert_runs("v2");
}

/// C064: a reload takes devices from running containers; there is none that is not needed.
#[tokio::test]
async fn upgrade_with_the_same_set_of_units_reloads_nothing() {
    let node = ready().await;
    node.backend.upgrade("v2", ready_hook()).await.unwrap();
    assert!(!node.calls().iter().any(|call| call == "reload"), "{:?}", node.calls());
}

#[tokio::test]
async fn upgrading_again_to_what_runs_changes_nothing() {
    let node = ready().await;
    node.backend.upgrade("v2", ready_hook()).await.unwrap();
    let before = node.fake.fs.tree_with_stamps();
    node.fake.systemd.clear_calls();
    node.backend.upgrade("v2", ready_hook()).await.unwrap();
    assert_eq!(node.calls(), Vec::<String>::new());
    assert_eq!(before.difference(&node.fake.fs.tree_with_stamps()), Vec::<String>::new());
}

#[tokio::test]
async fn units_are_written_only_after_the_old_stack_has_stopped() {
    let mut node = ready().await;
    node.backend.units.gpu_setup = vec![vec!["/usr/bin/nvidia-ctk".into(), "cdi".into()]];
    let (diary, fs, systemd) = (Diary::default(), node.fake.fs.clone(), node.fake.systemd.clone());
    let seen = diary.clone();
    node.fake.systemd.hook(Verb::Stop, UNIT_CONTAINERD, move || {
        let drop_in = fs.exists("/etc/systemd/system/unbounded-containerd.service.d/10-gpu-setup.conf");
        seen.note(format!("written={drop_in} kubelet={}", systemd.state(UNIT_KUBELET).is_active()));
    });
    node.backend.upgrade("v2", ready_hook()).await.unwrap();
    assert_eq!(diary.lines(), ["written=false kubelet=false"]);
    assert!(node.fake.fs.exists("/etc/systemd/system/unbounded-containerd.service.d/10-gpu-setup.conf"));
    assert_eq!(node.calls().iter().filter(|call| *call == "reload").count(), 1);
}

#[tokio::test]
async fn every_failure_after_the_flip_returns_to_the_previous_version() {
    for failing_at in ["write-units", "before-upgrade-start", "before-start", "start", "gate", "die", "wait-ready"] {
        let mut node = ready().await;
        let mut wait = ready_hook();
        match failing_at {
            "write-units" => {
                node.backend.rollback_units = RollbackUnits::Spec(node.backend.units.clone());
                node.backend.units.gpu_setup = vec![vec!["not-absolute".into()]];
            }
            "before-upgrade-start" => node.backend.before_upgrade_start = failing("hook"),
            "before-start" => node.backend.before_start = failing_once("hook"),
            "start" => drop_ref(node.fake.systemd.script(Verb::Start, UNIT_CONTAINERD, Script::exit(1))),
            "gate" => drop(node.backend.after_start.insert(UNIT_CONTAINERD.into(), failing_once("gate"))),
            "die" => drop_ref(node.fake.systemd.script(Verb::Start, UNIT_KUBELET, Script::DieAfterStart(1))),
            _ => wait = failing("not ready"),
        }
        let error = rolled_back(node.backend.upgrade("v2", wait).await);
        let errors: Vec<String> = error.rollback.iter().map(|e| whole(e)).collect();
        assert_eq!(errors, Vec::<String>::new(), "{failing_at}");
        node.assert_runs("v1");
    }
}

fn drop_ref<T>(_: &T) {}

/// Fails the first time only: what was wrong is wrong with the new version.
fn failing_once(text: &'static str) -> Hook {
    let calls = Arc::new(Mutex::new(0));
    Hook::new(Duration::from_secs(60), move |_| {
        let first = {
            let mut calls = calls.lock().unwrap();
            *calls += 1;
            *calls == 1
        };
        async move { if first { Err(StepError::new(text)) } else { Ok(Outcome::Unchanged) } }
    })
}

/// C059: a wait without a limit.
#[tokio::test]
async fn a_hook_that_hangs_rolls_back_at_its_deadline() {
    let node = ready().await;
    let hang = Hook::new(Duration::from_millis(20), |_| std::future::pending());
    let error = rolled_back(node.backend.upgrade("v2", hang).await);
    assert!(whole(&error.failure).contains("did not end within 0.02 s"), "{}", whole(&error.failure));
    node.assert_runs("v1");
}

#[tokio::test]
async fn a_stop_that_fails_starts_the_previous_version_again_without_a_flip() {
    let mut node = ready().await;
    let (diary, backend) = (Diary::default(), node.backend.clone());
    let pod = node.fake.processes.spawn("/usr/bin/pod", &["pod"], "kubepods.slice/pod1");
    node.fake.cgroups.add("kubepods.slice/pod1");
    node.backend.before_rollback_start =
        diary.hook("hook", move || format!(" {}", backend.current().unwrap().unwrap()));
    node.fake.systemd.script(Verb::Stop, UNIT_CONTAINERD, Script::Refuse("no".into()));
    let error = rolled_back(node.backend.upgrade("v2", ready_hook()).await);
    assert_eq!(error.failure.step, "stop");
    assert!(error.rollback.is_empty());
    assert_eq!(diary.lines(), ["hook v1"]);
    node.assert_runs("v1");
    assert!(node.fake.processes.runs(pod.pid), "pods of a version that was never left live on");
}

#[tokio::test]
async fn an_activation_that_fails_starts_the_previous_version_again_without_a_flip() {
    let mut node = ready().await;
    let fs = node.fake.fs.clone();
    // The new version loses a program after it was checked.
    node.fake.systemd.hook(Verb::Stop, UNIT_KUBELET, move || {
        fs.take("/opt/unbounded/node/v2/bin/kubelet");
    });
    let diary = Diary::default();
    node.backend.before_rollback_start = diary.hook("hook", String::new);
    let error = rolled_back(node.backend.upgrade("v2", ready_hook()).await);
    assert_eq!(error.failure.step, "flip");
    assert_eq!(diary.lines(), ["hook"]);
    node.assert_runs("v1");
}

#[tokio::test]
async fn before_rollback_start_runs_after_the_link_has_flipped_back_and_its_failure_does_not_stop_the_rollback() {
    let mut node = ready().await;
    let (diary, backend) = (Diary::default(), node.backend.clone());
    let seen = diary.clone();
    node.backend.before_rollback_start = Hook::new(Duration::from_secs(5), move |_| {
        seen.note(backend.current().unwrap().unwrap());
        async { Err(StepError::new("the network cannot be set up")) }
    });
    let error = rolled_back(node.backend.upgrade("v2", failing("not ready")).await);
    assert_eq!(diary.lines(), ["v1"]);
    assert_eq!(error.rollback.len(), 1);
    let text = error.to_string();
    assert!(text.find("not ready") < text.find("the network cannot be set up"), "{text}");
    node.assert_runs("v1");
}

#[tokio::test]
async fn rollback_attempts_every_step_and_joins_the_errors_in_order() {
    let mut node = ready().await;
    node.backend.rollback_units = RollbackUnits::Recorded;
    node.backend.before_rollback_start = failing("hook");
    node.fake.systemd.script_always(Verb::Stop, UNIT_CONTAINERD, Script::Refuse("it will not".into()));
    node.backend.activate("v2").await.unwrap();
    let Err(Error::RolledBack(error)) = node.backend.rollback("v1").await else { panic!("no error") };
    let steps: Vec<&str> = error.rollback.iter().map(|failure| failure.step.as_str()).collect();
    assert_eq!((error.failure.step.as_str(), steps), ("stop", vec!["stop", "before-rollback-start"]));
    node.assert_runs("v1");
}

#[tokio::test]
async fn rollback_returns_to_what_the_previous_version_recorded() {
    let mut node = Node::new().reaping();
    node.backend.units.gpu_setup = vec![vec!["/usr/bin/nvidia-ctk".into()]];
    node.fake.fs.put("/usr/bin/nvidia-ctk", "", 0o755);
    let mut node = node.running("v1").await;
    let units = |node: &Node| flexnode_host::testing::Tree::read(&*node.fake.fs, Path::new(UNITS), false).unwrap();
    let before = units(&node);
    node.backend.units.gpu_setup.clear();
    node.backend.units.launch_check_command = Some("/bin/check".into());
    node.fake.fs.put("/bin/check", "", 0o755);
    node.backend.rollback_units = RollbackUnits::Recorded;
    node.backend.prepare_version(&spec("v2")).await.unwrap();
    rolled_back(node.backend.upgrade("v2", failing("not ready")).await);
    assert_eq!(before.difference(&units(&node)), Vec::<String>::new());
    assert!(!node.state(UNIT_CONTAINERD).need_reload);
    node.assert_runs("v1");
}

#[tokio::test]
async fn unset_rollback_units_leave_the_unit_files_as_they_are() {
    let mut node = ready().await;
    node.backend.units.gpu_setup = vec![vec!["/usr/bin/nvidia-ctk".into()]];
    rolled_back(node.backend.upgrade("v2", failing("not ready")).await);
    assert!(node.fake.fs.exists("/etc/systemd/system/unbounded-containerd.service.d/10-gpu-setup.conf"));
    node.assert_runs("v1");
    let mut node = ready().await;
    node.backend.rollback_units = RollbackUnits::Spec(node.backend.units.clone());
    node.backend.units.gpu_setup = vec![vec!["/usr/bin/nvidia-ctk".into()]];
    rolled_back(node.backend.upgrade("v2", failing("not ready")).await);
    assert!(!node.fake.fs.exists("/etc/systemd/system/unbounded-containerd.service.d/10-gpu-setup.conf"));
}

/// C154: the old programs come back and the new configuration stays.
#[tokio::test]
async fn configuration_and_plugins_come_back_with_the_programs() {
    let node = ready().await;
    node.backend.link_cni_plugins("v1").unwrap();
    node.fake.fs.take("/opt/cni/bin/bridge");
    rolled_back(node.backend.upgrade("v2", failing("not ready")).await);
    for path in [CONTAINERD_CONFIG_PATH, DEFAULT_KUBELET_CONFIG_PATH, "/opt/cni/bin/bridge"] {
        assert_eq!(node.text(path), "v1", "{path}");
    }
}

/// C151: the link is turned to a version whose programs are gone.
#[tokio::test]
async fn a_rollback_target_that_is_not_complete_is_found_before_the_stop() {
    let node = ready().await;
    node.fake.fs.take("/opt/unbounded/node/v1/bin/containerd-shim-runc-v2");
    node.fake.systemd.clear_calls();
    let Err(Error::Failed(failure)) = node.backend.upgrade("v2", ready_hook()).await else { panic!("it went on") };
    let hint = failure.error.hint.unwrap();
    assert!(hint.contains("slots repair") && hint.contains("--without-rollback"), "{hint}");
    assert_eq!(node.calls(), Vec::<String>::new());
    assert_eq!(node.current().as_deref(), Some("v1"));
    let without = UpgradeRequest {
        from: "v1".into(),
        to: "v2".into(),
        goal: String::new(),
        wait_ready: Hook::default(),
        rollback: false,
    };
    node.backend.execute(&node.backend.upgrade_operation(&without), false).await.unwrap();
    node.assert_runs("v2");
}

#[tokio::test]
async fn a_new_version_that_is_not_complete_is_refused_before_the_stop() {
    let node = ready().await;
    node.fake.fs.put("/opt/unbounded/node/v2/bin/kubelet", "xx", 0o755);
    node.fake.systemd.clear_calls();
    assert!(whole(&node.backend.upgrade("v2", ready_hook()).await.unwrap_err()).contains("slots repair"));
    assert!(node.backend.upgrade("v3", ready_hook()).await.is_err());
    assert_eq!(node.calls(), Vec::<String>::new());
    node.assert_runs("v1");
}

#[tokio::test]
async fn a_previous_version_that_breaks_meanwhile_keeps_the_best_that_runs() {
    let node = ready().await;
    let fs = node.fake.fs.clone();
    let wait = Hook::new(Duration::from_secs(5), move |_| {
        fs.take("/opt/unbounded/node/v1/bin/containerd");
        async { Err(StepError::new("not ready")) }
    });
    let error = rolled_back(node.backend.upgrade("v2", wait).await);
    assert!(error.to_string().contains("slots repair"), "{error}");
    node.assert_runs("v2");
}

#[tokio::test]
async fn rollback_refuses_an_incomplete_version_before_it_stops_anything() {
    let node = ready().await;
    node.backend.upgrade("v2", ready_hook()).await.unwrap();
    node.fake.fs.take("/opt/unbounded/node/v1/etc/manifest.json");
    node.fake.systemd.clear_calls();
    assert!(whole(&node.backend.rollback("v1").await.unwrap_err()).contains("slots repair"));
    assert_eq!(node.calls(), Vec::<String>::new());
    node.assert_runs("v2");
}

#[tokio::test]
async fn rollback_returns_and_a_second_one_does_nothing() {
    let node = ready().await;
    node.backend.upgrade("v2", ready_hook()).await.unwrap();
    node.backend.rollback("v1").await.unwrap();
    node.assert_runs("v1");
    let before = node.fake.fs.tree_with_stamps();
    node.fake.systemd.clear_calls();
    node.backend.rollback("v1").await.unwrap();
    assert_eq!(node.calls(), Vec::<String>::new());
    assert_eq!(before.difference(&node.fake.fs.tree_with_stamps()), Vec::<String>::new());
}

#[tokio::test]
async fn upgrade_needs_an_active_version() {
    let node = Node::new();
    node.backend.prepare_version(&spec("v1")).await.unwrap();
    let error = node.backend.upgrade("v1", ready_hook()).await.unwrap_err();
    assert!(matches!(error, Error::Layout(LayoutError::NoneActive { .. })));
}

#[tokio::test]
async fn an_upgrade_that_is_killed_at_any_change_is_finished_by_the_way_back() {
    // Different unit sets: the hardest case.
    let setup = || async {
        let mut node = Node::new().reaping();
        node.backend.rollback_units = RollbackUnits::Recorded;
        let mut node = node.running("v1").await;
        node.backend.units.gpu_setup = vec![vec!["/usr/bin/nvidia-ctk".into()]];
        node.backend.prepare_version(&spec("v2")).await.unwrap();
        node
    };
    for changes in 0.. {
        let node = setup().await;
        node.fake.fs.crash_after(changes);
        let _ = node.backend.upgrade("v2", ready_hook()).await;
        let crashed = node.fake.fs.crashed();
        node.fake.fs.revive();
        // A host that was killed comes up with one version or the other by itself, never with neither.
        let now = node.current().unwrap();
        assert!(now == "v1" || now == "v2");
        for step in node.backend.rollback_steps("v1") {
            step.run(flexnode_ops::StepContext::silent())
                .await
                .unwrap_or_else(|e| panic!("after {changes}: {}", whole(&e)));
        }
        node.assert_runs("v1");
        assert!(!node.fake.fs.exists("/etc/systemd/system/unbounded-containerd.service.d/10-gpu-setup.conf"));
        if !crashed {
            return;
        }
    }
}

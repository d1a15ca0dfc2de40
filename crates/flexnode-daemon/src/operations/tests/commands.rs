//! Rollback, stop, start, restart, slots.

use super::*;

#[tokio::test]
async fn a_person_goes_back_and_the_goal_that_was_left_is_remembered() {
    let world = world().await;
    assert!(world.upgrade().await.is_done());
    let report = rollback::run(&world.context, None, Arc::new(Silent), Cancel::new()).await.unwrap();
    assert_eq!((report.from.as_str(), report.to.as_str()), (world.new.as_str(), world.old.as_str()));
    world.assert_runs(&world.old).await;
    let (state, extension) = world.context.state().unwrap();
    assert_eq!(state.failure_of(&goal("1.36.3").fingerprint()).unwrap().reason, BY_PERSON);
    assert_eq!(extension.previous_slot, Some(world.new.clone()));
    // The same again changes nothing but the journal.
    let tree = || {
        let copy = world.fake.fs.fork();
        copy.take("/var/lib/aks-flex-node/journal").put_dir("/var/lib/aks-flex-node/journal", 0o755);
        copy
    };
    let before = tree();
    world.fake.systemd.clear_calls();
    let again = rollback::run(&world.context, Some(&world.old), Arc::new(Silent), Cancel::new()).await.unwrap();
    assert!(!again.changed);
    assert_eq!(world.fake.systemd.calls(), Vec::<String>::new());
    let differences = before.tree_with_stamps().difference(&tree().tree_with_stamps());
    let of_journal = |line: &&String| {
        line.contains("/var/lib/aks-flex-node directory") || line.contains("/var/lib/aks-flex-node/journal directory")
    };
    assert!(differences.iter().all(|line| of_journal(&line)), "{differences:?}");
}

/// C091: a stop takes data away.
#[tokio::test]
async fn a_stop_is_recorded_and_a_start_takes_it_back() {
    let world = world().await;
    let run = |which| lifecycle::run(&world.context, which, Arc::new(Silent), Cancel::new());
    let before = world.fake.fs.tree();
    assert!(run(Lifecycle::Stop).await.unwrap());
    let changed = before.difference(&world.fake.fs.tree());
    let kept = ["/etc/aks-flex-node/", "/var/lib/aks-flex-node", "/etc/systemd/system/multi-user.target.wants"];
    assert!(
        changed.iter().all(|line| kept.iter().any(|path| line.contains(path))),
        "a stop deletes nothing: {changed:?}"
    );
    assert!(world.extension().stopped_by_person);
    for unit in [UNIT_CONTAINERD, UNIT_KUBELET] {
        let state = world.fake.systemd.state(unit);
        assert!(!state.is_active() && state.enabled != "enabled", "{unit}: {state:?}");
    }
    world.fake.systemd.clear_calls();
    assert!(!run(Lifecycle::Stop).await.unwrap(), "a second stop changes nothing");
    assert_eq!(world.fake.systemd.calls(), Vec::<String>::new());
    assert!(run(Lifecycle::Start).await.unwrap());
    assert!(!world.extension().stopped_by_person);
    world.assert_runs(&world.old).await;
    world.fake.systemd.clear_calls();
    assert!(!run(Lifecycle::Start).await.unwrap(), "a second start changes nothing");
    assert_eq!(world.fake.systemd.calls(), Vec::<String>::new());
    let before = world.fake.systemd.state(UNIT_KUBELET).main_pid;
    assert!(run(Lifecycle::Restart).await.unwrap());
    assert_ne!(world.fake.systemd.state(UNIT_KUBELET).main_pid, before);
}

#[tokio::test]
async fn slots_are_told_and_what_may_go_goes() {
    let world = world().await;
    let slots = slots::list(&world.context).unwrap();
    let told: Vec<_> = slots.iter().map(|s| (s.name.as_str(), s.active, s.in_use, s.complete)).collect();
    assert_eq!(told, [(world.old.as_str(), true, true, true), (world.new.as_str(), false, false, true)]);
    assert_eq!(slots::prune(&world.context).unwrap(), Vec::<String>::new(), "one more is kept");
    world.fake.fs.put_dir("/opt/unbounded/node/1.35.0-00000000/bin", 0o755);
    assert_eq!(slots::prune(&world.context).unwrap(), ["1.35.0-00000000"]);
}

#[tokio::test]
async fn a_rollback_whose_version_does_not_become_ready_ends_and_is_not_tried_again() {
    let world = world().await;
    assert!(world.upgrade().await.is_done());
    let of_old = format!("/opt/unbounded/node/{}/bin/kubelet", world.old);
    world.fake.commands.answer(&of_old, &["--version"], "Kubernetes v1.35.0");
    let error = rollback::run(&world.context, None, Arc::new(Silent), Cancel::new()).await.unwrap_err();
    assert_eq!(error.kind(), OperationKind::Failed, "{error}");
    assert!(error.to_string().contains("wait-ready"), "{error}");
    world.assert_runs(&world.old).await;
    assert!(Engine::new(world.context.host(), "command", Cancel::new()).unwrap().journal().open().unwrap().is_none());
    for unit in [UNIT_CONTAINERD, UNIT_KUBELET] {
        assert_eq!(world.fake.systemd.state(unit).enabled, "enabled");
    }
}

#[tokio::test]
async fn what_is_planned_is_what_is_run() {
    let world = world().await;
    let names = |operation: &Operation| operation.steps.iter().map(|step| step.name).collect::<Vec<_>>();
    let planned = rollback::plan(&world.context, Some(&world.new)).unwrap();
    assert_eq!((planned.from.as_str(), planned.to.as_str()), (world.old.as_str(), world.new.as_str()));
    for (operation, must) in [
        (planned.operation, &["stop", "flip", "start-kubelet", "save-state", "wait-ready"][..]),
        (lifecycle::plan(&world.context, Lifecycle::Stop).unwrap(), &["save-state", "stop", "disable"]),
        (lifecycle::plan(&world.context, Lifecycle::Start).unwrap(), &["enable-units", "start-kubelet", "save-state"]),
        (lifecycle::plan(&world.context, Lifecycle::Restart).unwrap(), &["restart-containerd", "restart-kubelet"]),
    ] {
        operation.check().unwrap();
        let names = names(&operation);
        let places: Vec<_> = must.iter().map(|name| names.iter().position(|n| n == name)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{must:?} in {names:?}");
    }
    world.fake.fs.take(crate::state::STATE_PATH);
    let error = lifecycle::plan(&world.context, Lifecycle::Stop).unwrap_err();
    assert!(matches!(error, OperationError::NotANode), "{error}");
}

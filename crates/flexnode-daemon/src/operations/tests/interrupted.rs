//! What a kill or a reboot leaves, and what the agent's service makes of it.

use super::*;
use flexnode_model::journal::{Answer, JournalRecord, Phase};

/// Runs it until `step` begins, and drops it there: what a kill is.
async fn killed_at(world: &World, whole: &Operation, step: &str) -> JournalRecord {
    let mut left = whole.clone();
    let at = left.steps.iter().position(|s| s.name == step).unwrap();
    let reached = Arc::new(tokio::sync::Notify::new());
    let tells = reached.clone();
    left.steps[at] = flexnode_ops::Step::new(whole.steps[at].name, "hang", SHORT, move |_| {
        tells.notify_one();
        std::future::pending()
    });
    let engine = Engine::new(world.context.host(), "command", Cancel::new()).unwrap();
    tokio::select! {
        ended = engine.run(&left, Arc::new(Silent)) => panic!("{step}: it ended: {ended:?}"),
        () = reached.notified() => {}
    }
    let record = engine.journal().interrupted().unwrap().unwrap();
    assert_eq!(record.step, step);
    record
}

fn nothing_is_open(world: &World) {
    let engine = Engine::new(world.context.host(), "command", Cancel::new()).unwrap();
    assert_eq!(engine.journal().open().unwrap(), None);
}

/// Steps that only prepare stand before it, as in a whole upgrade.
fn with_preparation(whole: Operation) -> Operation {
    let idle = |name| flexnode_ops::Step::new(name, name, SHORT, |_| async { Ok(Outcome::Unchanged) });
    whole.prepend(vec![idle("install"), idle("import-images"), idle("look-at-node")])
}

#[tokio::test]
async fn an_interrupted_upgrade_is_given_up_undone_or_finished_by_where_it_stood() {
    for (step, sentence) in [
        ("import-images", "given up"),
        ("look-at-node", "given up"),
        ("stop", "was undone"),
        ("flip", "was undone"),
        ("write-units", "was undone"),
        ("before-upgrade-start", "was undone"),
        ("check-node", "was finished"),
        ("start-kubelet", "was finished"),
        ("wait-ready", "was finished"),
        ("save-state", "was finished"),
    ] {
        let world = world().await;
        killed_at(&world, &with_preparation(world.upgrading()), step).await;
        let said = world.recover().await.unwrap();
        assert!(said.contains(sentence), "{step}: {said}");
        world.assert_runs(if sentence == "was finished" { &world.new } else { &world.old }).await;
        nothing_is_open(&world);
        assert_eq!(world.failure(), None, "{step}: a kill is no failure of the goal");
        assert_eq!(world.recover().await, None);
    }
}

#[tokio::test]
async fn a_flip_that_was_not_confirmed_is_watched_and_rolled_back_when_it_is_not_well() {
    let world = world().await;
    killed_at(&world, &world.upgrading(), "wait-ready").await;
    world.cri.clear_images();
    let said = world.recover().await.unwrap();
    assert!(said.contains("undone because step wait-ready failed"), "{said}");
    world.assert_runs(&world.old).await;
    nothing_is_open(&world);
    assert!(world.failure().unwrap().contains("pause:1"), "{:?}", world.failure());
}

#[tokio::test]
async fn a_version_that_takes_the_machine_down_twice_is_not_tried_a_third_time() {
    let world = world().await;
    let record = killed_at(&world, &world.upgrading(), "wait-ready").await;
    let (operation, mode) = recover::operation(&world.context, &record).unwrap();
    assert!(mode.forward);
    let at = operation.steps.iter().position(|step| step.name == "wait-ready").unwrap();
    let mut hangs = operation.clone();
    let reached = Arc::new(tokio::sync::Notify::new());
    let tells = reached.clone();
    hangs.steps[at] = flexnode_ops::Step::new("wait-ready", "hang", SHORT, move |_| {
        tells.notify_one();
        std::future::pending()
    });
    let engine = Engine::new(world.context.host(), "daemon", Cancel::new()).unwrap();
    tokio::select! {
        ended = engine.recover(&record, &hangs, Arc::new(Silent), mode) => panic!("it ended: {ended:?}"),
        () = reached.notified() => {}
    }
    assert_eq!(engine.journal().interrupted().unwrap().unwrap().attempt, 2);
    let said = world.recover().await.unwrap();
    assert!(said.contains("was undone"), "{said}");
    world.assert_runs(&world.old).await;
}

/// A world whose new version is not what was meant, which is seen when it has started.
async fn with_a_wrong_version() -> World {
    let mut world = world().await;
    *world.api.ready.lock().unwrap() = Some("1.36.2".into());
    world.context.probation = Duration::from_secs(2);
    let program = format!("/opt/unbounded/node/{}/bin/kubelet", world.new);
    world.fake.commands.answer(&program, &["--version"], "Kubernetes v1.35.0");
    world
}

/// A failed goal is remembered in the write that records the old one, and the journal's record is open until then: whenever
/// the agent is killed on the way back, the next start knows it. (C152: the reason is not lost with the process.)
#[tokio::test]
async fn no_kill_on_the_way_back_loses_that_the_goal_failed() {
    let calm = with_a_wrong_version().await;
    let (fs, began) = (calm.fake.fs.clone(), Arc::new(Mutex::new(0)));
    // A crash is counted in changes and syncs.
    let count = move || fs.changes() + fs.syncs();
    let (before, seen, now) = (count(), began.clone(), count.clone());
    let watch = move |event: &flexnode_ops::Event| {
        if matches!(event, flexnode_ops::Event::RollbackStarted { .. }) {
            *seen.lock().unwrap() = now() - before;
        }
    };
    let run =
        execute(&calm.context, &calm.upgrading(), Arc::new(watch), Cancel::new(), Box::new(Free)).await.unwrap().0;
    assert_eq!(rolled_back(run), "wait-ready");
    let (began, all) = (*began.lock().unwrap(), count() - before);
    let mut on_the_way = 0;
    // Before the way back every tenth, on it each one.
    for after in (0..began).step_by(10).chain(began..=all) {
        let world = with_a_wrong_version().await;
        world.fake.fs.crash_after(after);
        let engine = Engine::new(world.context.host(), "command", Cancel::new()).unwrap();
        let _ = engine.run(&world.upgrading(), Arc::new(Silent)).await;
        world.fake.fs.revive();
        let last = engine.journal().last().unwrap();
        let failed = last.is_some_and(|record| record.phase != Phase::Running && !record.interrupted);
        world.recover().await;
        nothing_is_open(&world);
        let current = world.current();
        world.assert_runs(&current).await;
        if failed {
            assert_eq!(current, world.old, "after {after} changes");
            let reason = world.failure().unwrap_or_else(|| panic!("after {after} changes it was forgotten"));
            assert!(reason.contains("kubelet is of version 1.35.0"), "{reason}");
            on_the_way += 1;
        }
    }
    assert!(on_the_way > 20, "{on_the_way} points of {all}, the way back from {began} on");
}

#[tokio::test]
async fn who_went_without_a_way_back_is_brought_forward() {
    let without = |world: &World| {
        let mut operation = with_preparation(world.upgrading());
        operation.recovery = flexnode_ops::Recovery::Forward { since: "stop" };
        operation
    };
    for (step, sentence) in
        [("install", "given up"), ("stop", "was finished"), ("flip", "was finished"), ("wait-ready", "was finished")]
    {
        let world = world().await;
        let record = killed_at(&world, &without(&world), step).await;
        assert_eq!(record.answer, Some(Answer::Forward));
        let said = world.recover().await.unwrap();
        assert!(said.contains(sentence), "{step}: {said}");
        world.assert_runs(if step == "install" { &world.old } else { &world.new }).await;
        nothing_is_open(&world);
    }
    // A record of a program that did not write it is undone, as that program would have.
    let world = world().await;
    let mut record = killed_at(&world, &world.upgrading(), "flip").await;
    record.answer = None;
    let (operation, _) = recover::operation(&world.context, &record).unwrap();
    assert!(!operation.way_back().is_empty());
}

#[tokio::test]
async fn an_upgrade_without_a_way_back_that_failed_makes_way_for_what_the_person_does_next() {
    let world = world().await;
    let mut operation = world.upgrading();
    operation.recovery = flexnode_ops::Recovery::Forward { since: "stop" };
    world.fake.systemd.script(Verb::Start, UNIT_KUBELET, Script::exit(1));
    let run = execute(&world.context, &operation, Arc::new(Silent), Cancel::new(), Box::new(Free)).await.unwrap().0;
    assert!(matches!(run.outcome, RunOutcome::Failed { .. }), "{run:?}");
    assert_eq!(world.current(), world.new, "nothing was taken back");
    assert_eq!(world.recover().await, None, "it ended by itself: a person decides");
    let back = rollback::run(&world.context, Some(&world.old), Arc::new(Silent), Cancel::new()).await.unwrap();
    assert_eq!(back.to, world.old);
    world.assert_runs(&world.old).await;
    nothing_is_open(&world);
}

#[tokio::test]
async fn a_rollback_that_was_interrupted_is_finished_and_remembered() {
    for step in ["stop", "flip", "start-kubelet", "save-state", "wait-ready"] {
        let world = world().await;
        assert!(world.upgrade().await.is_done());
        let planned = rollback::plan(&world.context, None).unwrap();
        killed_at(&world, &planned.operation, step).await;
        let said = world.recover().await.unwrap();
        assert!(said.contains("was finished") && said.contains(&world.old), "{step}: {said}");
        world.assert_runs(&world.old).await;
        assert_eq!(world.failure().as_deref(), Some(BY_PERSON), "{step}");
        nothing_is_open(&world);
    }
}

#[tokio::test]
async fn a_stop_that_was_interrupted_is_finished_and_stays() {
    for step in ["stop", "disable"] {
        let world = world().await;
        let operation = lifecycle::operation(&world.context, Lifecycle::Stop);
        killed_at(&world, &operation, step).await;
        assert!(world.recover().await.unwrap().contains("was finished"));
        assert!(world.extension().stopped_by_person);
        for unit in [UNIT_CONTAINERD, UNIT_KUBELET] {
            let state = world.fake.systemd.state(unit);
            assert!(!state.is_active() && state.enabled != "enabled", "{unit}: {state:?}");
        }
    }
}

const RECORD: &str = "/var/lib/aks-flex-node/journal/record.json";

#[tokio::test]
async fn without_a_readable_record_the_node_that_is_there_is_started_and_nothing_else() {
    let world = world().await;
    world.fake.fs.put(RECORD, "{", 0o600);
    let host = world.context.host();
    for unit in [UNIT_KUBELET, UNIT_CONTAINERD] {
        host.systemd.stop(unit, SHORT).await.unwrap();
    }
    let before = world.fake.fs.tree_with_stamps();
    let said = recover::start_current(&world.context).await.unwrap();
    assert!(said.ends_with(&format!("{} runs", world.old)), "{said}");
    world.assert_runs(&world.old).await;
    assert_eq!(before.difference(&world.fake.fs.tree_with_stamps()), Vec::<String>::new());
    assert_eq!(world.text(RECORD), "{");

    // One that is damaged is left alone, and so is one that a person stopped.
    host.systemd.stop(UNIT_KUBELET, SHORT).await.unwrap();
    let program = format!("/opt/unbounded/node/{}/bin/kubelet", world.old);
    let whole = world.text(&program);
    world.fake.fs.put(&program, "half", 0o755);
    let said = recover::start_current(&world.context).await.unwrap();
    assert!(said.contains("is not started") && said.contains("bin/kubelet"), "{said}");
    assert!(!world.fake.systemd.state(UNIT_KUBELET).is_active());
    world.fake.fs.put(&program, whole, 0o755);
    change_state(&host.fs, |state| state.flexnode.as_mut().unwrap().stopped_by_person = true).unwrap();
    let said = recover::start_current(&world.context).await.unwrap();
    assert!(said.contains("a person stopped the node"), "{said}");
    assert!(!world.fake.systemd.state(UNIT_KUBELET).is_active());
    // Without a readable state the units tell: a stop takes them from the boot.
    world.fake.fs.put(crate::state::STATE_PATH, "{}", 0o600);
    host.systemd.disable(UNIT_KUBELET).await.unwrap();
    assert!(recover::start_current(&world.context).await.unwrap().contains("a person stopped the node"));
}

#[tokio::test]
async fn an_interrupted_operation_refuses_others_and_says_who_finishes_it() {
    let world = world().await;
    killed_at(&world, &world.upgrading(), "flip").await;
    let error = rollback::run(&world.context, Some(&world.new), Arc::new(Silent), Cancel::new()).await.unwrap_err();
    assert!(matches!(&error, OperationError::Engine(flexnode_ops::EngineError::Open(_))), "{error}");
    assert!(error.hint().unwrap().contains("the agent's service finishes it"), "{:?}", error.hint());
}

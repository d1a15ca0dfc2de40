use super::*;
use flexnode_ops::{Cancel, Engine, Operation, Step};

fn names(steps: &[Step]) -> Vec<&'static str> {
    steps.iter().map(|step| step.name).collect()
}

fn request(from: &str, to: &str) -> UpgradeRequest {
    UpgradeRequest {
        from: from.into(),
        to: to.into(),
        goal: "1a2b3c4d".into(),
        wait_ready: Hook::new(Duration::from_secs(1), |_| async { Ok(Outcome::Unchanged) }),
        rollback: true,
    }
}

#[test]
fn the_plan_of_each_operation() {
    let backend = Node::new().backend;
    assert_eq!(
        names(&backend.prepare_steps(&spec("v1"))),
        ["check-version", "create-version", "install", "seal-version", "link-config", "write-units"]
    );
    assert_eq!(names(&backend.start_steps()), ["check-node", "enable-units", "start-containerd", "start-kubelet"]);
    assert_eq!(names(&backend.stop_steps()), ["stop"]);
    assert_eq!(
        names(&backend.restart_steps()),
        ["check-node", "write-units", "enable-units", "restart-containerd", "restart-kubelet"]
    );
    assert_eq!(
        names(&backend.destroy_steps()),
        ["stop-and-disable", "remove-units", "reap", "remove-links", "remove-versions"]
    );
    let upgrade = backend.upgrade_operation(&request("v1", "v2"));
    assert_eq!(
        names(&upgrade.steps),
        [
            "check-versions",
            "stop",
            "end-pods",
            "flip",
            "write-units",
            "link-cni",
            "check-node",
            "enable-units",
            "start-containerd",
            "start-kubelet",
            "wait-ready",
        ]
    );
    assert_eq!(
        names(upgrade.way_back()),
        [
            "stop",
            "end-pods",
            "flip",
            "write-units",
            "link-cni",
            "check-node",
            "enable-units",
            "start-localdns",
            "start-containerd",
            "start-kubelet",
        ]
    );
    assert_eq!(
        (upgrade.from.as_deref(), upgrade.to.as_deref(), upgrade.goal.as_str()),
        (Some("v1"), Some("v2"), "1a2b3c4d")
    );
}

#[test]
fn every_operation_is_well_formed_and_says_when_the_node_is_down() {
    let mut node = Node::new();
    node.backend.units.local_dns = true;
    node.backend.before_start = failing("x");
    node.backend.before_upgrade_start = failing("x");
    node.backend.before_rollback_start = failing("x");
    let backend = &node.backend;
    for operation in [
        Backend::operation("prepare", backend.prepare_steps(&spec("v1"))),
        Backend::operation("start", backend.start_steps()),
        Backend::operation("stop", backend.stop_steps()),
        Backend::operation("restart", backend.restart_steps()),
        Backend::operation("destroy", backend.destroy_steps()),
        backend.upgrade_operation(&request("v1", "v2")),
        backend.upgrade_operation(&request("v2", "v2")),
        backend.rollback_operation("v1"),
    ] {
        operation.check().unwrap();
        assert!(operation.steps.iter().all(|step| step.deadline > Duration::ZERO));
    }
    let upgrade = backend.upgrade_operation(&request("v1", "v2"));
    assert_eq!(upgrade.committed_from(), Some(1));
    assert!(upgrade.steps[0].read_only);
}

/// An engine whose fail points are of this test.
fn engine(node: &Node, fail_point: &str) -> Engine {
    let engine = Engine::new(&node.fake.host(), "test", Cancel::new()).unwrap();
    if fail_point.is_empty() { engine } else { engine.with_fail_points(fail_point).unwrap() }
}

fn points(operation: &Operation) -> Vec<String> {
    let forth = operation.steps.iter().map(|step| format!("{}/{}", operation.kind, step.name));
    forth.collect()
}

#[tokio::test]
async fn an_error_before_or_after_any_step_of_an_upgrade_ends_on_the_old_version_or_changes_nothing() {
    let plan = Node::new().backend.upgrade_operation(&request("v1", "v2"));
    for point in points(&plan) {
        for side in ["before", "after"] {
            let mut node = Node::new().reaping().running("v1").await;
            node.backend.rollback_units = RollbackUnits::Recorded;
            node.backend.prepare_version(&spec("v2")).await.unwrap();
            let fail = format!("{point}={side}=error");
            let fail = fail.replacen('=', "/", 1);
            node.backend.engine = Some(engine(&node, &fail));
            let result = node.backend.upgrade("v2", request("v1", "v2").wait_ready).await;
            assert!(result.is_err(), "{fail}");
            node.assert_runs("v1");
            let journal = node.backend.engine.as_ref().unwrap().journal();
            assert!(journal.open().unwrap().is_none(), "{fail}: the record is closed");
        }
    }
}

#[tokio::test]
async fn the_methods_run_through_the_engine_and_its_journal() {
    let mut node = Node::new().reaping();
    node.backend.engine = Some(engine(&node, ""));
    // Each operation at a time of its own.
    let tick = || node.fake.clock.advance(Duration::from_secs(1));
    node.backend.prepare(&spec("v1")).await.unwrap();
    tick();
    node.backend.activate("v1").await.unwrap();
    tick();
    node.backend.start().await.unwrap();
    tick();
    node.backend.stop().await.unwrap();
    tick();
    let journal = node.backend.engine.as_ref().unwrap().journal().clone();
    let kinds: Vec<String> = journal.history().unwrap().into_iter().map(|record| record.operation).collect();
    assert_eq!(kinds, ["prepare", "activate", "start-node", "stop"]);
    node.backend.destroy().await.unwrap();
    assert_eq!(journal.last().unwrap().unwrap().operation, "destroy");
}

#[tokio::test]
async fn with_and_without_a_journal_an_operation_does_the_same() {
    let run = |with: bool| async move {
        let mut node = Node::new().reaping();
        if with {
            node.backend.engine = Some(engine(&node, ""));
        }
        let node = node.running("v1").await;
        node.backend.prepare_version(&spec("v2")).await.unwrap();
        node.backend.upgrade("v2", Hook::default()).await.unwrap();
        let rolled = node.backend.upgrade("v1", failing("not ready")).await;
        assert!(matches!(rolled, Err(Error::RolledBack(_))));
        node.assert_runs("v2");
        node.calls()
    };
    assert_eq!(run(true).await, run(false).await);
}

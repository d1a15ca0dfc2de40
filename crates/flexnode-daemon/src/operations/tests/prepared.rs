//! Upgrades and repairs with the real preparation: configuration, bundle, installer.

use super::super::slots::repair;
use super::super::upgrade::{self, Decision, Target, UpgradeOptions};
use super::{Witness, ready};
use crate::operations::{NodeContext, OperationError, OperationKind, applied, rollback};
use crate::start::StartError;
use crate::start::tests::{BUNDLE, CONFIG, World, config, pack_bundle, world};
use crate::testing;
use flexnode_host::cri::Image;
use flexnode_host::cri::fake::FakeCri;
use flexnode_host::testing::{Script, Verb};
use flexnode_isolation::none::UNIT_KUBELET;
use flexnode_ops::{Cancel, Silent, StepContext};
use serde_json::json;
use std::sync::Arc;

/// A node that was started, with containerd's programs that answer.
pub(super) async fn node() -> (World, NodeContext) {
    let mut world = world().await;
    world.start().await.unwrap();
    let cri = FakeCri::default();
    cri.add_image(Image { tags: vec!["pause.example/pause:1".into()], ..Image::default() });
    world.context.cri = Arc::new(cri);
    let node = Arc::new(Witness::default());
    let context = NodeContext { start: world.context.clone(), node, probation: ready::SILENCE };
    (world, context)
}

pub(super) fn options(target: Target) -> UpgradeOptions {
    UpgradeOptions { target, yes: false, retry: false, rollback: true }
}

pub(super) async fn run(
    context: &NodeContext,
    options: &UpgradeOptions,
) -> Result<upgrade::UpgradeReport, OperationError> {
    upgrade::run(context, options, Arc::new(Silent), Cancel::new()).await
}

fn version(text: &str) -> UpgradeOptions {
    options(Target::Version(text.into()))
}

#[tokio::test]
async fn another_version_keeps_everything_else_and_the_lines_to_edit_are_told() {
    let (world, context) = node().await;
    assert_eq!(applied::edits_of_node(&context).await, Some(Vec::new()));
    pack_bundle(&world.fake, "1.36.4").await;
    let report = run(&context, &version("v1.36.4")).await.unwrap();
    assert!(report.to.starts_with("1.36.4-"), "{report:?}");
    let lines: Vec<String> = report.edits.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["components.kubernetes: 1.36.3 -> 1.36.4"]);
    assert!(report.down.is_some());
    // Status is told the same, and `start` says so instead of going back.
    assert_eq!(applied::edits_of_node(&context).await, Some(report.edits));
    let error = world.start().await.unwrap_err();
    assert!(error.hint().unwrap().contains("edit these lines"), "{:?}", error.hint());
    let StartError::Differs { differences } = &error else { panic!("{error}") };
    let lines: Vec<String> = differences.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["components.kubernetes: 1.36.4 -> 1.36.3"]);
    // With the line edited all is as it should be.
    let edited = config(&json!({"a.example/x": "1"}), 110).replace("1.36.3", "1.36.4");
    world.fake.fs.put(CONFIG, edited, 0o600);
    assert_eq!(applied::edits_of_node(&context).await, Some(Vec::new()));
    assert!(!world.start().await.unwrap().changed);
}

#[tokio::test]
async fn a_source_that_is_named_after_the_version_is_that_of_the_version_gone_to() {
    let (world, context) = node().await;
    let template = config(&json!({"a.example/x": "1"}), 110).replace(BUNDLE, "/srv/{{.KubernetesVersionNoV}}");
    world.fake.fs.put(CONFIG, template, 0o600);
    testing::pack_bundle(&world.fake, "/srv/1.36.4", "1.36.4").await;
    let report = run(&context, &version("1.36.4")).await.unwrap();
    assert!(report.to.starts_with("1.36.4-"), "{report:?}");
    let error = run(&context, &version("1.36.5")).await.unwrap_err();
    assert!(error.to_string().contains("/srv/1.36.5"), "{error}");
}

#[tokio::test]
async fn a_version_whose_programs_are_others_is_known_before_anything_is_stopped() {
    for (program, said) in [("kubelet", "Kubernetes v1.36.3\n"), ("containerd", "containerd x v1.7.24 y\n")] {
        let (world, context) = node().await;
        pack_bundle(&world.fake, "1.36.4").await;
        let slot = upgrade::plan(&context, &version("1.36.4")).await.unwrap().prepared.slot.to_string();
        let path = format!("/opt/unbounded/node/{slot}/bin/{program}");
        world.fake.commands.answer(&path, &["--version"], said);
        world.fake.systemd.clear_calls();
        let error = run(&context, &version("1.36.4")).await.unwrap_err();
        assert_eq!(error.kind(), OperationKind::Failed, "{error}");
        assert!(error.hint().unwrap().contains(&format!("with the right {program}")), "{:?}", error.hint());
        let calls = world.fake.systemd.calls();
        assert!(!calls.iter().any(|call| call.starts_with("stop")), "{calls:?}");
        assert!(context.state().unwrap().0.failure_of(&slot[slot.len() - 8..]).is_none(), "it was never tried");
    }
}

#[tokio::test]
async fn an_older_version_has_to_be_confirmed() {
    let (world, context) = node().await;
    pack_bundle(&world.fake, "1.35.9").await;
    let error = run(&context, &version("1.35.9")).await.unwrap_err();
    assert_eq!(error.kind(), OperationKind::Unconfirmed, "{error}");
    assert!(error.to_string().contains("from Kubernetes 1.36.3 to 1.35.9"), "{error}");
    let report = run(&context, &UpgradeOptions { yes: true, ..version("1.35.9") }).await.unwrap();
    assert!(report.to.starts_with("1.35.9-"));
}

#[tokio::test]
async fn a_version_that_is_none_or_that_the_source_has_not_changes_nothing() {
    let (world, context) = node().await;
    let before = world.tree(true);
    for (text, kind) in
        [("1.36", OperationKind::Usage), ("../x", OperationKind::Usage), ("1.36.9", OperationKind::Failed)]
    {
        let error = run(&context, &version(text)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{text}: {error}");
    }
    assert_eq!(before.difference(&world.tree(true)), Vec::<String>::new());
}

#[tokio::test]
async fn another_file_is_gone_to_and_the_configuration_stays() {
    const OTHER: &str = "/root/other.json";
    let (world, context) = node().await;
    let before = world.fake.fs.text(CONFIG);
    world.fake.fs.put(OTHER, config(&json!({}), 50), 0o600);
    let report = run(&context, &options(Target::Config(OTHER.into()))).await.unwrap();
    let lines: Vec<String> = report.edits.iter().map(ToString::to_string).collect();
    let goal = context.goal_of(&report.to).unwrap();
    // What is reserved follows from the number of pods: nobody wrote it, and nobody has to.
    assert_ne!(context.goal_of(&report.from).unwrap().kubelet.kube_reserved, goal.kubelet.kube_reserved);
    assert_eq!(lines, ["node.maxPods: 110 -> 50"]);
    assert_eq!(world.fake.fs.text(CONFIG), before);
    assert_eq!(goal.kubelet.max_pods, 50);
}

/// C053: a goal that can never be reached is tried for ever.
#[tokio::test]
async fn a_goal_that_failed_or_that_a_person_left_is_not_gone_to_again_by_itself() {
    let (world, context) = node().await;
    world.fake.fs.put(CONFIG, config(&json!({}), 50), 0o600);
    world.fake.systemd.script(Verb::Start, UNIT_KUBELET, Script::exit(1));
    let to_config = options(Target::Config(CONFIG.into()));
    let error = run(&context, &to_config).await.unwrap_err();
    assert_eq!(error.kind(), OperationKind::RolledBack, "{error}");
    assert!(error.hint().unwrap().contains("/var/lib/aks-flex-node/artifacts/evidence/1.36.3-"), "{:?}", error.hint());
    let refused = run(&context, &to_config).await.unwrap_err();
    assert!(matches!(&refused, OperationError::Refused { hint, .. } if hint.contains("--retry")), "{refused}");
    // Another goal is another matter.
    world.fake.fs.put(CONFIG, config(&json!({}), 51), 0o600);
    let planned = upgrade::plan(&context, &to_config).await.unwrap();
    assert_eq!(planned.decision, Decision::Go);
    world.fake.fs.put(CONFIG, config(&json!({}), 50), 0o600);
    run(&context, &UpgradeOptions { retry: true, ..to_config.clone() }).await.unwrap();
    // A person goes back: now it has to be confirmed.
    rollback::run(&context, None, Arc::new(Silent), Cancel::new()).await.unwrap();
    let error = run(&context, &to_config).await.unwrap_err();
    assert_eq!(error.kind(), OperationKind::Unconfirmed, "{error}");
    run(&context, &UpgradeOptions { yes: true, ..to_config }).await.unwrap();
}

/// C055: after two good versions a failure returns to the second, not to the first.
#[tokio::test]
async fn a_failure_returns_to_the_version_that_was_good_last() {
    let (world, context) = node().await;
    let first = context.backend().current().unwrap().unwrap();
    let to_config = options(Target::Config(CONFIG.into()));
    world.fake.fs.put(CONFIG, config(&json!({}), 50), 0o600);
    let second = run(&context, &to_config).await.unwrap().to;
    world.fake.fs.put(CONFIG, config(&json!({}), 60), 0o600);
    world.fake.systemd.script(Verb::Start, UNIT_KUBELET, Script::exit(1));
    let error = run(&context, &to_config).await.unwrap_err();
    assert_eq!(error.kind(), OperationKind::RolledBack, "{error}");
    assert_eq!(context.backend().current().unwrap(), Some(second.clone()));
    let (_, recorded) = context.state().unwrap();
    assert_eq!((recorded.active_slot, recorded.previous_slot), (Some(second), Some(first)));
}

/// C029: a program of an installed version is damaged, and stays so because the version is there.
#[tokio::test]
async fn a_damaged_version_refuses_the_upgrade_and_is_mended_from_the_source_while_it_runs() {
    let (world, context) = node().await;
    let slot = context.backend().current().unwrap().unwrap();
    let program = format!("/opt/unbounded/node/{slot}/bin/kubelet");
    let whole = world.fake.fs.text(&program);
    world.fake.fs.put(&program, &whole[..10], 0o755);
    // C151: the version that a failure would go back to is damaged: nothing is stopped.
    world.fake.fs.put(CONFIG, config(&json!({}), 50), 0o600);
    world.fake.systemd.clear_calls();
    let error = run(&context, &options(Target::Config(CONFIG.into()))).await.unwrap_err();
    let hint = error.hint().unwrap_or_default();
    assert!(hint.contains("slots repair") && hint.contains("--without-rollback"), "{error}: {hint}");
    assert!(
        !world.fake.systemd.calls().iter().any(|call| call.starts_with("stop")),
        "{:?}",
        world.fake.systemd.calls()
    );
    // The configuration leads to another version by now; the slot tells what it was made of.
    let before = world.fake.systemd.state(UNIT_KUBELET).main_pid;
    let done = repair(&context, &slot, StepContext::silent()).await.unwrap();
    assert_eq!((done.files, done.restart), (vec!["bin/kubelet".to_owned()], false));
    assert_eq!(world.fake.fs.text(&program), whole);
    assert_eq!(world.fake.systemd.state(UNIT_KUBELET).main_pid, before, "what runs goes on running");
    let again = repair(&context, &slot, StepContext::silent()).await.unwrap();
    assert_eq!(again.files, Vec::<String>::new());
    assert!(!world.fake.fs.exists("/opt/unbounded/node/.flexnode-tmp-repair"));
    run(&context, &options(Target::Config(CONFIG.into()))).await.unwrap();
    // Without the way back a damaged old version is no hindrance.
    let now = context.backend().current().unwrap().unwrap();
    world.fake.fs.put(format!("/opt/unbounded/node/{now}/bin/crictl"), "half", 0o755);
    world.fake.fs.put(CONFIG, config(&json!({}), 60), 0o600);
    let to_config = options(Target::Config(CONFIG.into()));
    run(&context, &to_config).await.unwrap_err();
    run(&context, &UpgradeOptions { rollback: false, ..to_config }).await.unwrap();
}

#[tokio::test]
async fn a_version_that_never_became_whole_is_completed_or_refused_by_what_the_source_has() {
    let (world, context) = node().await;
    let slot = context.backend().current().unwrap().unwrap();
    let dir = format!("/opt/unbounded/node/{slot}");
    world.fake.fs.take(format!("{dir}/etc/manifest.json")).take(format!("{dir}/bin/runc"));
    world.fake.fs.take(format!("{dir}/etc/goal.json"));
    let done = repair(&context, &slot, StepContext::silent()).await.unwrap();
    assert_eq!(done.files, ["bin/runc", "etc/goal.json", "etc/manifest.json"]);
    assert!(!world.start().await.unwrap().changed, "it is what the configuration says");

    let refused = |error: OperationError| match error {
        OperationError::Refused { text, .. } => text,
        other => panic!("{other}"),
    };
    let error = repair(&context, "1.0.0-00000000", StepContext::silent()).await.unwrap_err();
    assert!(refused(error).contains("is not installed"));
    world.fake.fs.put(format!("{dir}/bin/runc"), "half", 0o755);
    pack_bundle(&world.fake, "1.36.4").await;
    let error = repair(&context, &slot, StepContext::silent()).await.unwrap_err();
    assert_eq!(error.kind(), OperationKind::Failed, "{error}");
    world.fake.fs.take(BUNDLE);
    let error = repair(&context, &slot, StepContext::silent()).await.unwrap_err();
    assert!(error.hint().unwrap().contains("bundle"), "{error}");
}

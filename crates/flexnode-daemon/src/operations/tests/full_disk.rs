//! A disk that fills up at any write of an upgrade, and has space again later.

use super::super::{NodeContext, recover};
use super::prepared::{node, options, run};
use crate::operations::upgrade::{Target, UpgradeOptions};
use crate::start::tests::{CONFIG, World, config};
use crate::testing::Free;
use flexnode_host::Fs as _;
use flexnode_host::testing::{Fault, Op};
use flexnode_isolation::none::{Level, manifest};
use flexnode_ops::{Cancel, Engine, Silent, report};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// A node and the way to another goal.
async fn arranged() -> (World, NodeContext, UpgradeOptions) {
    let (world, context) = node().await;
    world.fake.fs.put(CONFIG, config(&json!({}), 50), 0o600);
    world.fake.fs.clear_log();
    world.fake.systemd.clear_calls();
    (world, context, options(Target::Config(CONFIG.into())))
}

/// Whatever the link selects is whole and runs.
async fn runs_whole(world: &World, context: &NodeContext) -> String {
    let current = context.backend().current().unwrap().unwrap();
    manifest::verify(world.fake.fs.as_ref(), &context.layout(), &current, Level::Content).unwrap();
    let status = context.backend().status().await.unwrap();
    assert!(status.running, "{status:?}");
    current
}

/// What the agent's service does when there is something to take up.
async fn taken_up(context: &NodeContext) {
    let engine = Engine::new(context.host(), "daemon", Cancel::new()).unwrap();
    let Some(record) = engine.journal().interrupted().unwrap() else { return };
    let (operation, mode) = recover::operation(context, &record).unwrap();
    let (observer, lock) = (Arc::new(Silent), Box::new(Free));
    recover::run(context, &record, (&operation, mode), observer, Cancel::new(), lock).await.unwrap();
}

fn left_over(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs = vec![std::path::PathBuf::from("/")];
    while let Some(dir) = dirs.pop() {
        for entry in world.fake.fs.read_dir(&dir).unwrap() {
            let path = dir.join(&entry.name);
            if entry.name.to_string_lossy().starts_with(".flexnode-tmp-") {
                found.push(path.display().to_string());
            } else if entry.kind == flexnode_host::FileKind::Dir {
                dirs.push(path);
            }
        }
    }
    found
}

/// Every write (a third of them, all with `FLEXNODE_TEST_ALL=1`) of the version's preparation, of the journal, of the state and of what is kept: the node stays on the old
/// version or returns to it, what is half goes, the error names path and reason, and with space it succeeds.
#[tokio::test]
async fn a_disk_that_is_full_at_any_write_harms_nothing_and_the_next_run_succeeds() {
    let (calm, context, to_config) = arranged().await;
    run(&context, &to_config).await.unwrap();
    let takes = |op: &Op| matches!(op, Op::Create | Op::Write | Op::Mkdir | Op::Symlink);
    let writes: Vec<_> = calm.fake.fs.log().into_iter().filter(|(op, _)| takes(op)).map(|(_, path)| path).collect();
    let (mut refused, mut back) = (0, 0);
    let all = std::env::var("FLEXNODE_TEST_ALL").is_ok_and(|value| value == "1");
    for (place, every) in [("/opt", 3), ("/var", 3), ("/etc", 1), ("/", 11)] {
        let every = if all { 1 } else { every };
        let count = writes.iter().filter(|path| path.starts_with(place)).count();
        assert!(count > 0, "{place}");
        for after in (0..count).step_by(every) {
            let case = format!("{place} is full after {after} of {count} writes");
            let (world, context, to_config) = arranged().await;
            let old = context.backend().current().unwrap().unwrap();
            world.fake.fs.fault(Fault::full_disk().below(place).after(after));
            let ended = run(&context, &to_config).await;
            let runs = runs_whole(&world, &context).await;
            if let Err(error) = &ended {
                let text = report::line(error);
                assert!(text.contains("No space left") || text.contains("is full"), "{case}: {text}");
                assert!(text.contains(place), "{case}: {text}");
                let stopped = world.fake.systemd.calls().iter().any(|call| call.starts_with("stop"));
                if stopped {
                    back += 1;
                } else {
                    refused += 1;
                    assert_eq!(runs, old, "{case}");
                    for slot in context.layout().versions(world.fake.fs.as_ref()).unwrap() {
                        let whole = manifest::verify(world.fake.fs.as_ref(), &context.layout(), &slot, Level::Content);
                        assert!(whole.is_ok(), "{case}: half a version stays: {slot}");
                    }
                }
                // Where the link could be turned back it was.
                assert!(runs == old || place == "/opt" || place == "/", "{case}: {runs} runs");
            }
            world.fake.fs.revive();
            taken_up(&context).await;
            runs_whole(&world, &context).await;
            run(&context, &UpgradeOptions { retry: true, ..to_config }).await.unwrap_or_else(|e| {
                panic!("{case}: the next run: {}", report::line(&e));
            });
            let runs = runs_whole(&world, &context).await;
            assert_eq!(context.state().unwrap().1.active_slot.as_ref(), Some(&runs), "{case}");
            assert_eq!(context.goal_of(&runs).unwrap().kubelet.max_pods, 50, "{case}");
            let engine = Engine::new(context.host(), "command", Cancel::new()).unwrap();
            assert_eq!(engine.journal().open().unwrap(), None, "{case}");
            assert_eq!(left_over(&world), Vec::<String>::new(), "{case}");
        }
    }
    assert!(refused > 20 && back > 2, "{refused} were refused before the stop, {back} came back");
}

/// Everything that is certain is known before anything is stopped.
#[tokio::test]
async fn too_little_space_for_the_state_files_is_known_before_the_stop() {
    const DATABASE: &str = "/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db";
    let (world, context, to_config) = arranged().await;
    world.fake.fs.put(DATABASE, vec![0; 3 << 20], 0o644).set_free_bytes(3 << 20);
    let error = run(&context, &to_config).await.unwrap_err();
    let text = report::line(&error);
    assert!(text.contains("/var/lib/aks-flex-node needs 4 MiB for them, but only 3 MiB are free"), "{text}");
    assert!(!world.fake.systemd.calls().iter().any(|call| call.starts_with("stop")));
    world.fake.fs.set_free_bytes(1 << 30);
    run(&context, &to_config).await.unwrap();
    assert!(!world.fake.fs.exists(Path::new("/var/lib/aks-flex-node/artifacts/kept")));
}

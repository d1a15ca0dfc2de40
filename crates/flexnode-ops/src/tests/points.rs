//! Fail points: every place of every operation, every action, then the next start.

use super::support::*;
use crate::failpoint::Crashed;
use crate::{Cancel, Engine, EngineError, Operation, Resolution, RunOutcome, Silent, plan, resolve};
use flexnode_host::testing::MemFs;
use flexnode_model::journal::Ending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Runs until the end or a crash; a crash drops everything that was in memory.
fn run(fs: &MemFs, operation: &Operation, points: &str) -> Option<Result<RunOutcome, EngineError>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let engine = engine(fs, &Cancel::new()).with_fail_points(points).unwrap();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(engine.run(operation, Arc::new(Silent)))));
    std::panic::set_hook(hook);
    match ended {
        Ok(result) => Some(result.map(|report| report.outcome)),
        Err(cause) if cause.is::<Crashed>() => None,
        Err(cause) => std::panic::resume_unwind(cause),
    }
}

/// What the next start of the agent does.
async fn next_start(fs: &MemFs, make: fn(&MemFs) -> Operation) -> Engine {
    let engine = engine(fs, &Cancel::new());
    if let Some(record) = engine.journal().interrupted().unwrap() {
        let operation = make(fs);
        assert_eq!(record.operation, operation.kind);
        engine.recover(&record, &operation, Arc::new(Silent), crate::Mode::default()).await.unwrap();
    }
    engine
}

/// Every place of an operation and its way back, in the form of the variable.
fn places(operation: &Operation) -> Vec<(String, bool)> {
    let mut all = Vec::new();
    for line in plan(operation) {
        let way = if line.rollback { format!("{}.rollback", operation.kind) } else { operation.kind.to_owned() };
        for side in ["before", "after"] {
            all.push((format!("{way}/{}/{side}", line.step), line.rollback));
        }
    }
    all
}

#[test]
fn every_point_of_an_upgrade_ends_on_the_old_version_or_the_new_one() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    for (place, rollback) in places(&upgrade(&node())) {
        for action in ["crash", "error", "hang"] {
            let fs = node();
            // The way back is only reached when something fails.
            let lead = if rollback { "upgrade/confirm/after=error;" } else { "" };
            let point = format!("{lead}{place}={action}");
            let ended = run(&fs, &upgrade(&fs), &point);
            assert_eq!(ended.is_none(), action == "crash", "{point}: {ended:?}");
            let engine = runtime.block_on(next_start(&fs, upgrade));
            let (running, current) = state(&fs);
            if action == "crash" || !rollback {
                assert_eq!(running.as_deref(), Some(current.as_str()), "{point}");
                assert!(["old", "new"].contains(&current.as_str()), "{point}");
            } else {
                // One step of the way back failed; the ones behind it were attempted all the same.
                assert!(
                    matches!(&ended, Some(Ok(RunOutcome::RolledBack { rollback_errors, .. })) if rollback_errors.len() == 1),
                    "{point}"
                );
            }
            assert_eq!(engine.journal().open().unwrap(), None, "{point}");
        }
    }
}

#[test]
fn every_point_of_a_restart_is_finished_by_the_next_start_or_by_running_it_again() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    for (place, _) in places(&restart(&node())) {
        for action in ["crash", "error", "hang"] {
            let fs = node();
            let point = format!("{place}={action}");
            let ended = run(&fs, &restart(&fs), &point);
            let engine = runtime.block_on(next_start(&fs, restart));
            if action != "crash" {
                assert!(matches!(ended, Some(Ok(RunOutcome::Failed { .. }))), "{point}: {ended:?}");
                assert!(matches!(run(&fs, &restart(&fs), ""), Some(Ok(RunOutcome::Done { .. }))), "{point}");
            }
            assert_eq!(state(&fs), (Some("old".into()), "old".into()), "{point}");
            let last = engine.journal().last().unwrap().unwrap();
            assert_eq!((last.outcome, last.attempt), (Some(Ending::Done), 2), "{point}");
        }
    }
}

#[test]
fn a_crash_leaves_the_record_of_its_step_and_the_table_says_what_follows() {
    for line in plan(&upgrade(&node())).into_iter().filter(|line| !line.rollback && !line.read_only) {
        for side in ["before", "after"] {
            let fs = node();
            assert!(run(&fs, &upgrade(&fs), &format!("upgrade/{}/{side}=crash", line.step)).is_none());
            let record = engine(&fs, &Cancel::new()).journal().interrupted().unwrap().unwrap();
            assert_eq!((record.step.as_str(), record.attempt), (line.step.as_str(), 1));
            assert_eq!(resolve(&record, &upgrade(&fs)), line.after_crash);
        }
    }
}

#[test]
fn an_upgrade_that_was_interrupted_before_the_stop_is_only_closed() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let fs = node();
    assert!(run(&fs, &upgrade(&fs), "upgrade/prepare/after=crash").is_none());
    let engine = engine(&fs, &Cancel::new());
    let record = engine.journal().interrupted().unwrap().unwrap();
    assert_eq!(resolve(&record, &upgrade(&fs)), Resolution::Close);
    let seen = Seen::default();
    let report =
        runtime.block_on(engine.recover(&record, &upgrade(&fs), seen.observer(), crate::Mode::default())).unwrap();
    assert!(matches!(&report.outcome, RunOutcome::Discarded { step } if step == "prepare"));
    assert_eq!(seen.all(), ["end Cancelled at prepare"]);
    assert_eq!(engine.journal().last().unwrap().unwrap().outcome, Some(Ending::Failed));
}

#[test]
fn an_interrupted_upgrade_is_not_run_over() {
    let fs = node();
    assert!(run(&fs, &upgrade(&fs), "upgrade/flip/after=crash").is_none());
    let before = fs.tree_with_stamps();
    for operation in [upgrade(&fs), restart(&fs)] {
        let Some(Err(error)) = run(&fs, &operation, "") else { panic!("it ran") };
        assert_eq!(error.to_string(), "an earlier upgrade to new was interrupted at step flip");
    }
    assert_eq!(fs.tree_with_stamps(), before);
}

#[tokio::test]
async fn a_record_is_recovered_by_an_operation_that_fits_it_only() {
    let fs = node();
    assert!(
        std::thread::spawn({
            let fs = fs.clone();
            move || run(&fs, &upgrade(&fs), "upgrade/flip/after=crash").is_none()
        })
        .join()
        .unwrap()
    );
    let engine = engine(&fs, &Cancel::new());
    let record = engine.journal().interrupted().unwrap().unwrap();
    let mut other = upgrade(&fs);
    other.from = Some("older".into());
    for operation in [other, restart(&fs)] {
        let error = engine.recover(&record, &operation, Arc::new(Silent), crate::Mode::default()).await.unwrap_err();
        assert!(matches!(error, EngineError::Mismatch { .. }), "{error:?}");
    }
    engine.recover(&record, &upgrade(&fs), Arc::new(Silent), crate::Mode::default()).await.unwrap();
    let error = engine.recover(&record, &upgrade(&fs), Arc::new(Silent), crate::Mode::default()).await.unwrap_err();
    assert!(matches!(error, EngineError::Taken(_)), "{error:?}");
}

#[test]
fn a_point_on_a_step_that_is_not_there_is_refused() {
    let fs = node();
    let before = fs.tree_with_stamps();
    for point in ["upgrade/flop/before=crash", "upgrade.rollback/flip/before=crash"] {
        assert!(matches!(run(&fs, &upgrade(&fs), point), Some(Err(EngineError::UnknownFailPoint(_)))), "{point}");
    }
    assert_eq!(fs.tree_with_stamps(), before);
    assert!(matches!(run(&fs, &upgrade(&fs), "reset/flop/before=crash"), Some(Ok(RunOutcome::Done { .. }))));
}

//! Runs that end by themselves.

use super::support::*;
use crate::{Asked, Cancel, EngineError, JournalError, Mode, Outcome, Recovery, RunOutcome, Silent, Step, StepContext};
use flexnode_host::Fs;
use flexnode_host::testing::{Cut, MemFs};
use flexnode_model::journal::{Ending, JournalRecord, Phase};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The record on the device, as after a power cut now.
fn on_device(fs: &MemFs) -> Option<JournalRecord> {
    let cut = fs.after_power_cut(Cut::Lazy);
    let bytes = cut.read(Path::new(RECORD), 1 << 20).unwrap()?;
    Some(JournalRecord::decode(&bytes).unwrap())
}

/// A step that writes down what the device knows when it runs.
fn spy(name: &'static str, fs: &MemFs, seen: &Seen) -> Step {
    let (fs, seen) = (fs.clone(), seen.clone());
    step(name, move || {
        let (fs, seen) = (fs.clone(), seen.clone());
        async move {
            seen.push(match on_device(&fs) {
                None => "nothing".to_owned(),
                Some(record) => format!("{:?} {}", record.phase, record.step),
            });
            Ok(Outcome::Unchanged)
        }
    })
}

#[tokio::test]
async fn each_step_runs_under_its_durable_record() {
    let (fs, seen) = (node(), Seen::default());
    let operation = resuming(
        "start",
        vec![
            spy("look", &fs, &seen).read_only(),
            spy("first", &fs, &seen),
            spy("look-again", &fs, &seen).read_only(),
            spy("last", &fs, &seen),
        ],
    );
    let report = engine(&fs, &Cancel::new()).run(&operation, Arc::new(Silent)).await.unwrap();
    assert!(matches!(report.outcome, RunOutcome::Done { changed: false }));
    assert_eq!(seen.all(), ["nothing", "Running first", "Running look-again", "Running last"]);
    let record = on_device(&fs).unwrap();
    assert_eq!((record.phase, record.outcome), (Phase::Closed, Some(Ending::Done)));
    assert_eq!(report.id, Some(record.id));
}

#[tokio::test]
async fn a_failure_of_an_optional_step_is_told_and_ends_nothing() {
    let fs = node();
    let mut operation = upgrade(&fs);
    operation.steps.push(failing("tidy").optional());
    let seen = Seen::default();
    let report = engine(&fs, &Cancel::new()).run(&operation, seen.observer()).await.unwrap();
    assert!(matches!(report.outcome, RunOutcome::Done { changed: true }), "{report:?}");
    assert_eq!(state(&fs), (Some("new".into()), "new".into()));
    assert_eq!(on_device(&fs).unwrap().outcome, Some(Ending::Done));
    assert!(seen.all().iter().any(|line| line.contains("tidy")), "{:?}", seen.all());
}

#[tokio::test]
async fn a_run_that_only_looks_leaves_no_trace() {
    let fs = node();
    let before = fs.tree_with_stamps();
    let operation = resuming("start", vec![idle("look").read_only(), failing("refuse").read_only(), idle("change")]);
    let report = engine(&fs, &Cancel::new()).run(&operation, Arc::new(Silent)).await.unwrap();
    assert!(matches!(&report.outcome, RunOutcome::Failed { step, .. } if step == "refuse"));
    assert_eq!(report.id, None);
    assert_eq!(fs.tree_with_stamps(), before);
}

#[tokio::test]
async fn progress_is_told_in_order() {
    let (fs, seen) = (node(), Seen::default());
    engine(&fs, &Cancel::new()).run(&upgrade(&fs), seen.observer()).await.unwrap();
    assert_eq!(
        seen.all(),
        [
            "upgrade #1",
            "> check",
            "check Unchanged",
            "> prepare",
            "prepare Changed",
            "committed at stop",
            "> stop",
            "stop Changed",
            "> flip",
            "flip Changed",
            "> start",
            "start Changed",
            "> confirm",
            "confirm Unchanged",
            "end Changed",
        ]
    );
    assert_eq!(state(&fs), (Some("new".into()), "new".into()));
}

#[tokio::test]
async fn a_failed_operation_keeps_its_record_and_goes_on_when_run_again() {
    let fs = node();
    let engine = engine(&fs, &Cancel::new());
    let report = engine.run(&resuming("start", vec![idle("a"), failing("b")]), Arc::new(Silent)).await.unwrap();
    assert!(matches!(&report.outcome, RunOutcome::Failed { step, error } if step == "b" && error.hint.is_some()));
    let open = engine.journal().open().unwrap().unwrap();
    assert_eq!((open.failed_step.as_deref(), open.error.as_deref()), (Some("b"), Some("b is broken")));
    // It ended by itself: nobody takes it up but a person.
    assert_eq!(engine.journal().interrupted().unwrap(), None);

    let seen = Seen::default();
    let again = engine.run(&resuming("start", vec![idle("a"), idle("b")]), seen.observer()).await.unwrap();
    assert!(again.is_done());
    assert_eq!(again.id, Some(open.id));
    assert_eq!(seen.all()[0], "start #2");
    let last = engine.journal().last().unwrap().unwrap();
    assert_eq!((last.outcome, last.error, last.failed_step), (Some(Ending::Done), None, None));
}

#[tokio::test]
async fn a_resumed_operation_with_another_goal_is_another_operation() {
    let fs = node();
    let engine = engine(&fs, &Cancel::new());
    let mut operation = resuming("start", vec![failing("a")]);
    let first = engine.run(&operation, Arc::new(Silent)).await.unwrap();
    operation = resuming("start", vec![idle("a")]);
    operation.goal = "2b2b2b2b".into();
    let second = engine.run(&operation, Arc::new(Silent)).await.unwrap();
    assert!(second.is_done());
    assert_ne!(first.id, second.id);
    let history = engine.journal().history().unwrap();
    let outcomes: Vec<_> = history.iter().map(|record| record.outcome.unwrap()).collect();
    assert_eq!(outcomes, [Ending::Superseded, Ending::Done]);
}

#[tokio::test]
async fn a_failure_before_the_way_back_begins_closes_the_record() {
    let fs = node();
    let mut operation = upgrade(&fs);
    operation.steps[1] = failing("prepare");
    let engine = engine(&fs, &Cancel::new());
    let report = engine.run(&operation, Arc::new(Silent)).await.unwrap();
    assert!(matches!(&report.outcome, RunOutcome::Failed { step, .. } if step == "prepare"));
    let last = engine.journal().last().unwrap().unwrap();
    assert_eq!((last.outcome, last.failed_step.as_deref()), (Some(Ending::Failed), Some("prepare")));
    assert_eq!(state(&fs), (Some("old".into()), "old".into()));
}

#[tokio::test]
async fn a_failure_since_the_stop_goes_the_way_back() {
    for (index, name) in [(2, "stop"), (3, "flip"), (4, "start"), (5, "confirm")] {
        let (fs, seen) = (node(), Seen::default());
        let mut operation = upgrade(&fs);
        operation.steps[index] = failing(name);
        let engine = engine(&fs, &Cancel::new());
        let report = engine.run(&operation, seen.observer()).await.unwrap();
        let RunOutcome::RolledBack { step, error, rollback_errors } = &report.outcome else { panic!("{report:?}") };
        assert_eq!((step.as_str(), error.message.as_str()), (name, format!("{name} is broken").as_str()));
        assert!(rollback_errors.is_empty());
        assert_eq!(state(&fs), (Some("old".into()), "old".into()), "{name}");
        let last = engine.journal().last().unwrap().unwrap();
        assert_eq!((last.outcome, last.failed_step.as_deref()), (Some(Ending::RolledBack), Some(name)));
        assert_eq!(last.error.as_deref(), Some(format!("{name} is broken").as_str()));
        assert_eq!(seen.all().last().unwrap(), &format!("end RolledBack at {name}"));
    }
}

#[tokio::test]
async fn the_way_back_attempts_every_step_and_tells_the_order() {
    let (fs, seen) = (node(), Seen::default());
    let mut operation = upgrade(&fs);
    operation.steps[4] = failing("start");
    let Recovery::RollBack { steps, .. } = &mut operation.recovery else { unreachable!() };
    steps[0] = failing("stop-new");
    steps[2] = failing("start-old");
    let engine = engine(&fs, &Cancel::new());
    let report = engine.run(&operation, seen.observer()).await.unwrap();
    let RunOutcome::RolledBack { rollback_errors, .. } = &report.outcome else { panic!("{report:?}") };
    let steps: Vec<&str> = rollback_errors.iter().map(|failure| failure.step.as_str()).collect();
    assert_eq!(steps, ["stop-new", "start-old"]);
    assert!(seen.all().contains(&"flip-back Changed".to_owned()));
    let last = engine.journal().last().unwrap().unwrap();
    assert_eq!(last.outcome, Some(Ending::RollbackFailed));
    assert_eq!(
        last.error.unwrap(),
        "start is broken; then, on the way back, step stop-new failed: stop-new is broken; \
         after it, step start-old failed: start-old is broken"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_step_that_hangs() {
    let fs = node();
    let hanging = Step::new("wait", "wait", Duration::from_secs(7), |cx| async move {
        cx.note("waiting for nothing");
        std::future::pending().await
    });
    let report = engine(&fs, &Cancel::new()).run(&resuming("start", vec![hanging]), Arc::new(Silent)).await.unwrap();
    let RunOutcome::Failed { error, .. } = &report.outcome else { panic!("{report:?}") };
    assert_eq!(error.message, "it did not end within 7 s; the last it said: waiting for nothing");
}

/// A step during which the end is asked for.
fn asking(name: &'static str, cancel: &Cancel, expected: Asked) -> Step {
    let cancel = cancel.clone();
    step(name, move || {
        assert_eq!(cancel.request(), expected);
        async { Ok(Outcome::Unchanged) }
    })
}

#[tokio::test]
async fn a_request_before_the_node_is_touched_ends_the_operation() {
    let (fs, cancel) = (node(), Cancel::new());
    let mut operation = upgrade(&fs);
    operation.steps[1] = asking("prepare", &cancel, Asked::WillStop);
    let engine = engine(&fs, &cancel);
    let report = engine.run(&operation, Arc::new(Silent)).await.unwrap();
    assert!(matches!(&report.outcome, RunOutcome::Cancelled { before_step } if before_step == "stop"));
    assert_eq!(state(&fs), (Some("old".into()), "old".into()));
    assert_eq!(engine.journal().last().unwrap().unwrap().outcome, Some(Ending::Cancelled));
}

#[tokio::test]
async fn a_cancelled_operation_that_resumes_keeps_its_record() {
    let (fs, cancel) = (node(), Cancel::new());
    let operation = resuming("start", vec![asking("a", &cancel, Asked::WillStop), idle("b")]);
    let engine = engine(&fs, &cancel);
    engine.run(&operation, Arc::new(Silent)).await.unwrap();
    let open = engine.journal().open().unwrap().unwrap();
    assert_eq!((open.failed_step.as_deref(), open.is_interrupted()), (Some("b"), false));
}

#[tokio::test]
async fn a_request_while_the_node_is_down_is_not_heard_until_the_end() {
    let (fs, cancel) = (node(), Cancel::new());
    let mut operation = upgrade(&fs);
    operation.steps[3] = asking("hear", &cancel, Asked::GoesOn);
    operation.steps[4] = failing("start");
    let Recovery::RollBack { steps, .. } = &mut operation.recovery else { unreachable!() };
    steps.insert(0, asking("hear-again", &cancel, Asked::GoesOn));
    let report = engine(&fs, &cancel).run(&operation, Arc::new(Silent)).await.unwrap();
    assert!(matches!(&report.outcome, RunOutcome::RolledBack { rollback_errors, .. } if rollback_errors.is_empty()));
    assert_eq!(state(&fs), (Some("old".into()), "old".into()));
    // What the command does next ends.
    assert!(cancel.is_requested());
}

#[tokio::test]
async fn an_interruptible_step_ends_at_once() {
    let (fs, cancel) = (node(), Cancel::new());
    let asked = cancel.clone();
    let waiting = step("wait", move || {
        asked.request();
        std::future::pending()
    });
    let operation = resuming("start", vec![waiting.interruptible(), idle("b")]);
    let report = engine(&fs, &cancel).run(&operation, Arc::new(Silent)).await.unwrap();
    assert!(matches!(&report.outcome, RunOutcome::Cancelled { before_step } if before_step == "wait"));
}

#[tokio::test]
async fn an_open_operation_refuses_another_one() {
    let fs = node();
    let engine = engine(&fs, &Cancel::new());
    engine.run(&resuming("start", vec![failing("a")]), Arc::new(Silent)).await.unwrap();
    let before = fs.tree_with_stamps();
    let error = engine.run(&restart(&fs), Arc::new(Silent)).await.unwrap_err();
    assert_eq!(error.to_string(), "an earlier start has not ended: it failed at step a");
    assert_eq!(fs.tree_with_stamps(), before);
    // A reset takes its place.
    let mode = Mode { supersede: true, ..Mode::default() };
    let report = engine.run_with(&resuming("reset", vec![idle("a")]), Arc::new(Silent), mode).await.unwrap();
    assert!(report.is_done());
    let kinds: Vec<_> = engine.journal().history().unwrap().into_iter().map(|r| (r.operation, r.outcome)).collect();
    assert_eq!(kinds, [("start".to_owned(), Some(Ending::Superseded)), ("reset".to_owned(), Some(Ending::Done))]);
}

#[tokio::test]
async fn a_record_that_cannot_be_read_changes_nothing_but_for_a_reset() {
    for damaged in ["", "{", "{\"version\":1}", "{\"version\":9}", "\0\0\0\0"] {
        let fs = node();
        fs.put(RECORD, damaged, 0o600);
        let before = fs.tree_with_stamps();
        let engine = engine(&fs, &Cancel::new());
        let error = engine.run(&upgrade(&fs), Arc::new(Silent)).await.unwrap_err();
        assert!(matches!(error, EngineError::Journal(JournalError::Unreadable { .. })), "{damaged:?}: {error:?}");
        assert_eq!(fs.tree_with_stamps(), before, "{damaged:?}");

        let mode = Mode { supersede: true, forget: true, ..Mode::default() };
        let report = engine.run_with(&resuming("reset", vec![idle("a")]), Arc::new(Silent), mode).await.unwrap();
        assert!(report.is_done(), "{report:?}");
        assert!(!fs.exists("/var/lib/aks-flex-node"), "{damaged:?}");
    }
}

#[tokio::test]
async fn the_history_is_bounded_and_its_damage_harms_nothing() {
    let fs = node();
    let engine = engine(&fs, &Cancel::new());
    for _ in 0..crate::journal::HISTORY + 5 {
        assert!(engine.run(&restart(&fs), Arc::new(Silent)).await.unwrap().is_done());
    }
    let history = engine.journal().history().unwrap();
    assert_eq!(history.len(), crate::journal::HISTORY + 1);
    assert!(history.is_sorted_by_key(|record| record.started));
    assert_eq!(history.last().unwrap(), &engine.journal().last().unwrap().unwrap());

    fs.put(format!("/var/lib/aks-flex-node/journal/history/{}.json", history[0].id), "{", 0o600);
    assert_eq!(engine.journal().history().unwrap().len(), crate::journal::HISTORY);
    assert!(engine.run(&restart(&fs), Arc::new(Silent)).await.unwrap().is_done());
}

#[tokio::test]
async fn the_journal_of_a_reset_goes_whole_and_what_is_not_its_own_stays() {
    let fs = node();
    fs.put("/var/lib/aks-flex-node/store/a", "x", 0o600);
    let engine = engine(&fs, &Cancel::new());
    engine.run(&restart(&fs), Arc::new(Silent)).await.unwrap();
    engine.run(&restart(&fs), Arc::new(Silent)).await.unwrap();
    let mode = Mode { supersede: true, forget: true, ..Mode::default() };
    let report = engine.run_with(&resuming("reset", vec![idle("a")]), Arc::new(Silent), mode).await.unwrap();
    assert!(report.is_done(), "{report:?}");
    assert!(!fs.exists("/var/lib/aks-flex-node/journal"));
    assert!(fs.exists("/var/lib/aks-flex-node/store/a"));
}

#[tokio::test]
async fn a_full_disk_while_the_node_is_down_goes_back() {
    let fs = node();
    let mut operation = upgrade(&fs);
    // Every journal write from the flip's on fails; the steps themselves need no space.
    let (seen, full) = (Seen::default(), fs.clone());
    let fill_up = step("fill", move || {
        full.set_read_only("/var/lib/aks-flex-node", true);
        async { Ok(Outcome::Unchanged) }
    });
    operation.steps.insert(3, fill_up);
    let report = engine(&fs, &Cancel::new()).run(&operation, seen.observer()).await.unwrap();
    let RunOutcome::RolledBack { step, rollback_errors, .. } = &report.outcome else { panic!("{report:?}") };
    assert_eq!(step, "flip");
    let told: Vec<&str> = rollback_errors.iter().map(|failure| failure.step.as_str()).collect();
    assert_eq!(told, ["stop-new", "close-record"], "the begin of the way back and its end: {rollback_errors:?}");
    assert_eq!(state(&fs), (Some("old".into()), "old".into()));
}

#[tokio::test(start_paused = true)]
async fn the_way_back_is_written_at_its_begin_and_where_it_takes_long() {
    let (fs, seen) = (node(), Seen::default());
    let (late, told) = (fs.clone(), seen.clone());
    let slow = step("slow", move || {
        let (fs, seen) = (late.clone(), told.clone());
        async move {
            tokio::time::sleep(Duration::from_mins(1)).await;
            spy("seen", &fs, &seen).run(StepContext::new(|_| {})).await
        }
    });
    let mut operation = upgrade(&fs);
    operation.steps.push(failing("fails"));
    let steps = vec![spy("first", &fs, &seen), spy("quick", &fs, &seen), slow, spy("last", &fs, &seen)];
    operation.recovery = Recovery::RollBack { since: "stop", steps };
    engine(&fs, &Cancel::new()).run(&operation, Arc::new(Silent)).await.unwrap();
    assert_eq!(seen.all(), ["RollingBack first", "RollingBack first", "RollingBack slow", "RollingBack slow"]);
}

//! A kill or a power cut at every single change of the file system, then the next start.

use super::support::*;
use crate::{Cancel, Mode, Operation, Silent};
use flexnode_host::testing::{Cut, MemFs};
use std::sync::Arc;

/// What is left when it happens.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// The process was killed: all that it did is there.
    Kill,
    /// The power failed.
    Power(Cut),
}

const ALL: [Left; 3] = [Left::Kill, Left::Power(Cut::Lazy), Left::Power(Cut::Eager)];

async fn run(fs: &MemFs, operation: &Operation, mode: Mode) {
    // What it reports is lost with the process.
    let _ = engine(fs, &Cancel::new()).run_with(operation, Arc::new(Silent), mode).await;
}

/// Runs it with a crash after `n` changes; `None` when it needs fewer.
async fn crashed(make: fn(&MemFs) -> Operation, mode: Mode, n: usize, left: Left) -> Option<MemFs> {
    let fs = node();
    fs.crash_after(n);
    run(&fs, &make(&fs), mode).await;
    if !fs.crashed() {
        return None;
    }
    fs.revive();
    Some(match left {
        Left::Kill => fs,
        Left::Power(cut) => fs.after_power_cut(cut),
    })
}

/// Recovers what is interrupted; returns whether something was.
async fn next_start(fs: &MemFs, make: fn(&MemFs) -> Operation) -> bool {
    let engine = engine(fs, &Cancel::new());
    let Some(record) = engine.journal().interrupted().unwrap() else { return false };
    engine.recover(&record, &make(fs), Arc::new(Silent), Mode::default()).await.unwrap();
    true
}

#[tokio::test]
async fn an_upgrade_that_crashes_anywhere_ends_on_one_version() {
    let (mut points, mut news, mut olds) = (0, 0, 0);
    for left in ALL {
        for n in 0.. {
            let Some(fs) = crashed(upgrade, Mode::default(), n, left).await else { break };
            points += 1;
            next_start(&fs, upgrade).await;
            let engine = engine(&fs, &Cancel::new());
            assert_eq!(engine.journal().open().unwrap(), None, "{left:?} after {n}");
            let (running, current) = state(&fs);
            assert_eq!(running.as_deref(), Some(current.as_str()), "{left:?} after {n}");
            match current.as_str() {
                "old" => olds += 1,
                "new" => news += 1,
                other => panic!("{left:?} after {n}: {other}"),
            }
            // Recovery is over: nothing is left to do, and the next upgrade works.
            assert!(!next_start(&fs, upgrade).await);
            assert!(engine.run(&upgrade(&fs), Arc::new(Silent)).await.unwrap().is_done(), "{left:?} after {n}");
        }
    }
    assert!(points > 100 && olds > 0 && news > 0, "{points} points, {olds} old, {news} new");
}

#[tokio::test]
async fn a_way_back_that_crashes_anywhere_is_gone_again() {
    fn bad(fs: &MemFs) -> Operation {
        let mut operation = upgrade(fs);
        operation.steps[5] = failing("confirm");
        operation
    }
    for left in ALL {
        for n in 0.. {
            let Some(fs) = crashed(bad, Mode::default(), n, left).await else { break };
            next_start(&fs, bad).await;
            assert_eq!(state(&fs), (Some("old".into()), "old".into()), "{left:?} after {n}");
            assert_eq!(engine(&fs, &Cancel::new()).journal().open().unwrap(), None, "{left:?} after {n}");
        }
    }
}

#[tokio::test]
async fn a_restart_that_crashes_anywhere_is_run_again() {
    for left in ALL {
        for n in 0.. {
            let Some(fs) = crashed(restart, Mode::default(), n, left).await else { break };
            next_start(&fs, restart).await;
            assert_eq!(state(&fs), (Some("old".into()), "old".into()), "{left:?} after {n}");
        }
    }
}

#[tokio::test]
async fn a_reset_that_crashes_anywhere_can_be_run_again_until_nothing_is_left() {
    fn reset(fs: &MemFs) -> Operation {
        resuming("reset", restart(fs).steps)
    }
    let mode = Mode { supersede: true, forget: true, ..Mode::default() };
    for left in ALL {
        for n in 0.. {
            let Some(fs) = crashed(reset, mode, n, left).await else { break };
            let report = engine(&fs, &Cancel::new()).run_with(&reset(&fs), Arc::new(Silent), mode).await.unwrap();
            assert!(report.is_done(), "{left:?} after {n}: {report:?}");
            assert!(!fs.exists("/var/lib/aks-flex-node"), "{left:?} after {n}: {:#?}", fs.tree());
        }
    }
}

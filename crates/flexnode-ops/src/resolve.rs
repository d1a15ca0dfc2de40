//! What the next start does with an operation that did not end: one pure table.
//!
//! | the record says | the operation resumes | it goes forward since a step | it rolls back since a step |
//! |---|---|---|---|
//! | its way back was running | roll back | roll back | roll back |
//! | a step before `since` | - | close: nothing was taken down | close: nothing was taken down |
//! | `since` or a later step | - | run again | roll back |
//! | a step that this program does not know | run again | run again | roll back: it may have been a later one |
//! | any step | run again | - | - |
//!
//! "Run again" means from the first step: every step is idempotent, and after a reboot an earlier one may have to be done
//! again (kernel settings, mounts).

use crate::{Operation, Recovery};
use flexnode_model::journal::{JournalRecord, Phase};
use serde::Serialize;

/// What is done with a record that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Resolution {
    /// The operation is run again.
    Resume,
    /// The way back is gone.
    RollBack,
    /// There is nothing to do: the record is closed.
    Close,
}

/// What is to be done with `record`, when `operation` is of its kind.
pub fn resolve(record: &JournalRecord, operation: &Operation) -> Resolution {
    match record.phase {
        Phase::Closed => Resolution::Close,
        Phase::RollingBack => Resolution::RollBack,
        Phase::Running => match operation.steps.iter().position(|step| step.name == record.step) {
            Some(index) => after_crash(operation, index),
            None => match operation.recovery {
                Recovery::Resume | Recovery::Forward { .. } => Resolution::Resume,
                Recovery::RollBack { .. } => Resolution::RollBack,
            },
        },
    }
}

/// What a crash in the step at `index` leads to.
pub(crate) fn after_crash(operation: &Operation, index: usize) -> Resolution {
    let touched = index >= operation.since_index();
    match &operation.recovery {
        Recovery::Resume => Resolution::Resume,
        _ if !touched => Resolution::Close,
        Recovery::Forward { .. } => Resolution::Resume,
        Recovery::RollBack { .. } => Resolution::RollBack,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, Step};
    use flexnode_model::journal::{Ending, Subject, Writer};
    use std::time::Duration;

    const STEPS: [&str; 4] = ["check", "prepare", "stop", "start"];

    fn step(name: &'static str) -> Step {
        Step::new(name, name, Duration::from_secs(1), |_| async { Ok(Outcome::Unchanged) })
    }

    fn operation(recovery: Recovery) -> Operation {
        let steps = STEPS.into_iter().map(step).collect();
        Operation { kind: "upgrade", goal: String::new(), from: None, to: None, steps, recovery }
    }

    fn record(at: &str, phase: Phase) -> JournalRecord {
        let by = Writer { boot_id: "b".into(), pid: 1, owner: "command".into() };
        let now = jiff::Timestamp::UNIX_EPOCH;
        let subject = Subject { operation: "upgrade".into(), ..Subject::default() };
        let mut record = JournalRecord::open("1", subject, &by, now);
        record.enter(at, now);
        record.phase = phase;
        if phase == Phase::Closed {
            record.outcome = Some(Ending::Done);
        }
        record
    }

    /// Every step, an unknown one and none, in every phase, for every kind of recovery and every `since`.
    #[test]
    fn the_table_is_whole() {
        let places: Vec<&str> = STEPS.into_iter().chain(["gone-step", ""]).collect();
        let rolls = STEPS.map(|since| Recovery::RollBack { since, steps: vec![step("start-old")] });
        let goes = STEPS.map(|since| Recovery::Forward { since });
        for recovery in [Recovery::Resume].into_iter().chain(rolls).chain(goes) {
            let operation = operation(recovery);
            let since = operation.recovery.since();
            for at in &places {
                assert_eq!(resolve(&record(at, Phase::Closed), &operation), Resolution::Close);
                assert_eq!(resolve(&record(at, Phase::RollingBack), &operation), Resolution::RollBack);
                let before = |since| {
                    let index = |name: &str| STEPS.iter().position(|step| *step == name);
                    index(at).is_some_and(|at| at < index(since).unwrap())
                };
                let expected = match operation.recovery {
                    Recovery::Resume => Resolution::Resume,
                    _ if since.is_some_and(before) => Resolution::Close,
                    Recovery::Forward { .. } => Resolution::Resume,
                    Recovery::RollBack { .. } => Resolution::RollBack,
                };
                assert_eq!(resolve(&record(at, Phase::Running), &operation), expected, "{since:?} at {at:?}");
            }
        }
    }
}

//! What is recorded at the end of an upgrade, forth and back.
//!
//! That a goal failed is recorded in the same write as that the old one is applied again, while the journal's record, which
//! tells the reason, is still open: no kill can lose it.

use super::steps::{Change, kept_for};
use crate::operations::{NodeContext, SHORT, change_state, state_files};
use crate::state::StateStore;
use flexnode_model::JournalRecord;
use flexnode_model::journal::Phase;
use flexnode_model::state::FailedGoal;
use flexnode_ops::{Journal, Outcome, Step, StepError};

/// The longest reason that is recorded.
const REASON: usize = 600;

/// Records that the new goal is applied; what was kept of the old one goes.
pub(super) fn new(context: &NodeContext, change: &Change) -> Step {
    let (fs, change) = (context.host().fs.clone(), change.clone());
    Step::new("save-state", "record what is applied", SHORT, move |_| {
        let (fs, change) = (fs.clone(), change.clone());
        async move {
            let Some(goal) = change.new else { return Ok(Outcome::Unchanged) };
            let before = StateStore::new(fs.clone()).load();
            let before = before.map_err(|e| StepError::caused("the state cannot be read", e))?.unwrap_or_default();
            let next = before.applied(&goal).map_err(|e| StepError::caused("the state cannot be recorded", e))?;
            let saved = change_state(&fs, |state| *state = next)?;
            state_files::forget(fs.as_ref())
                .map_err(|e| StepError::caused("what was kept of the old version could not be removed", e))?;
            Ok(saved)
        }
    })
}

/// Records that the old goal is applied, where a failure came after the new one was recorded, and that the new one failed.
pub(super) fn old(context: &NodeContext, change: &Change) -> Step {
    let (context, change) = (context.clone(), change.clone());
    Step::new("save-state", "record what is applied and what failed", SHORT, move |_| {
        let (context, change) = (context.clone(), change.clone());
        async move {
            let kept = kept_for(&context, &change).ok().flatten().and_then(|kept| kept.state);
            let old = context.goal_of(&change.from).ok();
            let record = Journal::new(context.host().fs.clone()).open().ok().flatten();
            let failed = record.and_then(|record| failure(&record)).filter(|failed| failed.goal == change.goal);
            change_state(&context.host().fs, |state| {
                let active = state.flexnode.as_ref().and_then(|extension| extension.active_slot.clone());
                if active.as_ref() != Some(&change.from) {
                    let by_goal = || old.and_then(|goal| state.applied(&goal).ok());
                    if let Some(before) = kept.or_else(by_goal) {
                        *state = before;
                    }
                }
                if let Some(failed) = failed {
                    state.remember_failure(failed);
                }
                // It runs again, whoever stopped it before.
                state.flexnode.get_or_insert_default().stopped_by_person = false;
            })
        }
    })
}

/// That the goal of a record failed, when its way back runs because a step failed. A kill is no failure of the goal.
fn failure(record: &JournalRecord) -> Option<FailedGoal> {
    if record.phase != Phase::RollingBack || record.interrupted {
        return None;
    }
    let step = record.failed_step.as_deref().unwrap_or("of which nothing is known");
    let why = record.error.as_deref().unwrap_or("it is not known why");
    let reason = format!("step {step} failed: {why}").chars().take(REASON).collect();
    Some(FailedGoal { goal: record.goal.clone(), reason, when: record.started })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_model::journal::{Subject, Writer};

    #[test]
    fn only_a_step_that_failed_is_a_failure_of_the_goal() {
        let (by, now) = (Writer { boot_id: "b".into(), pid: 1, owner: "command".into() }, jiff::Timestamp::UNIX_EPOCH);
        let subject = Subject { operation: "upgrade".into(), goal: "1a2b3c4d".into(), ..Subject::default() };
        let mut record = JournalRecord::open("1", subject, &by, now);
        record.enter("start-kubelet", now);
        assert_eq!(failure(&record), None, "it runs");
        let mut killed = record.clone();
        killed.roll_back_interrupted("it was killed", now);
        assert_eq!(failure(&killed), None);
        record.roll_back("x".repeat(10_000), now);
        let failed = failure(&record).unwrap();
        assert_eq!((failed.goal.as_str(), failed.reason.len()), ("1a2b3c4d", REASON));
        assert!(failed.reason.starts_with("step start-kubelet failed: xxx"));
    }
}

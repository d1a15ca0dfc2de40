//! What `start` does, decided from what was recorded.

use flexnode_model::journal::JournalRecord;
use flexnode_model::{Difference, MachineGoal};

/// What is known before anything is done.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The goal that the machine was given last, when it has a recorded state.
    pub applied: Option<&'a MachineGoal>,
    /// The operation that has not ended, if there is one.
    pub open: Option<&'a JournalRecord>,
}

/// What is done.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The steps are run: for the first time, again after a failure, or to look that all is as it was.
    Run,
    /// The machine has another goal: nothing is changed.
    Differs(Vec<Difference>),
    /// Another operation has not ended and comes first.
    Unfinished {
        /// Its kind: `reset`, `upgrade`.
        operation: String,
        /// Where it stands.
        step: String,
        /// It was interrupted; otherwise it failed.
        interrupted: bool,
    },
}

/// The name of this operation in journal, plan and fail points.
pub const KIND: &str = "start";

/// Decides. A `start` that did not end may be taken up with another goal, because nothing was applied yet; a machine that
/// has a goal is changed by an upgrade only.
pub fn decide(observed: Observed<'_>, goal: &MachineGoal) -> Decision {
    if let Some(open) = observed.open
        && open.operation != KIND
    {
        let (operation, step, interrupted) = (open.operation.clone(), open.step.clone(), open.is_interrupted());
        return Decision::Unfinished { operation, step, interrupted };
    }
    match observed.applied {
        None => Decision::Run,
        Some(applied) => match applied.differences(goal) {
            same if same.is_empty() => Decision::Run,
            differences => Decision::Differs(differences),
        },
    }
}

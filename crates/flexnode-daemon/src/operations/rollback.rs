//! Going back to an installed version because a person asks for it.

use super::error::outcome;
use super::ready::{self, Before, Wanted};
use super::upgrade::{BY_PERSON, look_at_node};
use super::{NodeContext, OperationError, SHORT, change_state, execute, lock, state_files};
use crate::lock::Held;
use flexnode_isolation::none::run::kind;
use flexnode_isolation::none::{Hook, UNIT_KUBELET};
use flexnode_model::MachineGoal;
use flexnode_model::state::FailedGoal;
use flexnode_ops::{Cancel, Observer, Operation, Outcome, Recovery, RunOutcome, Step, StepError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const WAIT: &str = "wait-ready";

/// What a rollback would do.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The version that runs.
    pub from: String,
    /// The version that is gone to.
    pub to: String,
    /// The Kubernetes versions of both, from and to.
    pub kubernetes: (String, String),
    /// The steps.
    pub operation: Operation,
}

/// How a rollback ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollbackReport {
    /// The version before.
    pub from: String,
    /// The version that runs.
    pub to: String,
    /// Whether anything on the host was changed.
    pub changed: bool,
    /// How long the node was down; `None`: it was not.
    pub down: Option<Duration>,
}

/// Which version is gone to: the one asked for, otherwise the previous one.
pub fn target(asked: Option<&str>, previous: Option<&str>, installed: &[String]) -> Result<String, OperationError> {
    let refused = |text: String| OperationError::Refused { text, hint: "aks-flex-node slots list".into() };
    let Some(to) = asked.or(previous) else {
        return Err(refused("there is no version to go back to: none ran before this one".into()));
    };
    if installed.iter().any(|slot| slot == to) {
        return Ok(to.to_owned());
    }
    Err(refused(format!("version {to} is not installed")))
}

/// Reads everything. Changes nothing.
pub fn plan(context: &NodeContext, to: Option<&str>) -> Result<Planned, OperationError> {
    let (_, extension) = context.state()?;
    let layout = context.layout();
    let fs = context.host().fs.as_ref();
    let layout_failed = |e| OperationError::Backend(flexnode_isolation::Error::Layout(e));
    let from = layout.current(fs).map_err(layout_failed)?.ok_or(OperationError::NotANode)?;
    let installed = layout.versions(fs).map_err(layout_failed)?;
    let to = target(to, extension.previous_slot.as_deref(), &installed)?;
    let (left, gone_to) = (context.goal_of(&from)?, context.goal_of(&to)?);
    let kubernetes = (left.kubernetes_version.clone(), gone_to.kubernetes_version.clone());
    let operation = operation(context, &from, &to);
    Ok(Planned { from, to, kubernetes, operation })
}

/// The steps. `from` is what was left, also when the link has turned already.
pub fn operation(context: &NodeContext, from: &str, to: &str) -> Operation {
    let mut backend = context.backend();
    let (left, gone_to) = (context.goal_of(from).ok(), context.goal_of(to).ok());
    let on = context.clone();
    let (old, new) = (left, gone_to.clone());
    backend.before_rollback_start = Hook::new(SHORT, move |_| {
        let (on, old, new) = (on.clone(), old.clone(), new.clone());
        async move { remove_stale(&on, old.as_ref(), new.as_ref()).await }
    });
    let mut whole = backend.rollback_operation(to);
    whole.from = Some(from.to_owned());
    let before = Arc::new(Mutex::new(Before::Unknown));
    let save = save(context, from, to);
    if from != to
        && let Some(goal) = &gone_to
    {
        whole.steps.insert(1, look_at_node(context, &goal.node_name, &before));
        whole.steps.push(save.clone());
        whole.steps.push(wait(context, to, goal, &before));
    } else {
        whole.steps.push(save.clone());
    }
    if let Recovery::RollBack { steps, .. } = &mut whole.recovery {
        steps.push(save);
    }
    whole
}

/// kubelet refuses to start on the files of another policy. While it runs they are its own.
async fn remove_stale(
    context: &NodeContext,
    old: Option<&MachineGoal>,
    new: Option<&MachineGoal>,
) -> Result<Outcome, StepError> {
    let (Some(old), Some(new)) = (old, new) else { return Ok(Outcome::Unchanged) };
    let runs = context.host().systemd.unit(UNIT_KUBELET).await;
    if runs.map_err(|e| StepError::caused("kubelet's unit could not be looked at", e))?.main_pid != 0 {
        return Ok(Outcome::Unchanged);
    }
    let change = state_files::remove_stale(context.host().fs.as_ref(), state_files::stale(old, new))
        .map_err(|e| StepError::caused("kubelet's state files could not be removed", e))?;
    Ok(if change.made() {
        Outcome::Changed("kubelet's state files of the other policy".into())
    } else {
        Outcome::Unchanged
    })
}

/// Records what is applied, and in the same write that a person went back from the goal that was left.
fn save(context: &NodeContext, from: &str, to: &str) -> Step {
    let (context, from, to) = (context.clone(), from.to_owned(), to.to_owned());
    Step::new("save-state", "record what is applied", SHORT, move |_| {
        let (context, from, to) = (context.clone(), from.clone(), to.clone());
        async move {
            let failed = |e| StepError::caused(format!("the goal of {to} cannot be read"), e);
            let goal = context.goal_of(&to).map_err(failed)?;
            // A version without a goal was not made by this agent: there is nothing to remember.
            let left = if from == to { None } else { context.goal_of(&from).ok() };
            let left = left.map(|goal| FailedGoal {
                goal: goal.fingerprint(),
                reason: BY_PERSON.to_owned(),
                when: context.host().clock.now(),
            });
            let mut bad = None;
            let saved = change_state(&context.host().fs, |state| {
                match state.applied(&goal) {
                    Ok(next) => *state = next,
                    Err(e) => bad = Some(e),
                }
                if let Some(left) = left {
                    state.remember_failure(left);
                }
            })?;
            match bad {
                None => Ok(saved),
                Some(e) => Err(StepError::caused("the state cannot be recorded", e)),
            }
        }
    })
}

fn wait(context: &NodeContext, to: &str, goal: &MachineGoal, before: &Arc<Mutex<Before>>) -> Step {
    let (context, to, goal, before) = (context.clone(), to.to_owned(), goal.clone(), before.clone());
    Step::new(WAIT, "wait until the previous version is ready", ready::DEADLINE, move |cx| {
        let wanted = Wanted::of(&to, &goal, &before);
        let context = context.clone();
        async move { ready::wait(&context, &wanted, &cx).await.map(|()| Outcome::Unchanged) }
    })
}

/// Goes back. The goal that is left is remembered as one that a person went back from.
pub async fn run(
    context: &NodeContext,
    to: Option<&str>,
    observer: Arc<dyn Observer>,
    cancel: Cancel,
) -> Result<RollbackReport, OperationError> {
    let lock: Box<dyn Held> = lock(context, kind::ROLLBACK)?;
    let planned = plan(context, to)?;
    let Planned { from, to, operation, .. } = planned;
    let (report, down) = execute(context, &operation, observer, cancel, lock).await?;
    let changed = match report.outcome {
        // Every step was attempted once more, and then all went well.
        RunOutcome::RolledBack { step, rollback_errors, .. } if rollback_errors.is_empty() && step != WAIT => true,
        // It runs and is not ready; its units stay as they are.
        RunOutcome::RolledBack { step, error, rollback_errors } if rollback_errors.is_empty() => {
            return Err(OperationError::Step { step, source: error });
        }
        _ => outcome(report, (&to, &from), down)?,
    };
    Ok(RollbackReport { from, to, changed, down })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_asked_for_goes_before_the_previous_one_and_has_to_be_there() {
        let installed = ["a".to_owned(), "b".to_owned()];
        assert_eq!(target(Some("a"), Some("b"), &installed).unwrap(), "a");
        assert_eq!(target(None, Some("b"), &installed).unwrap(), "b");
        assert!(target(None, None, &installed).unwrap_err().to_string().contains("none ran before"));
        assert!(target(Some("c"), Some("b"), &installed).unwrap_err().to_string().contains("not installed"));
        assert!(target(None, Some("gone"), &installed).is_err());
    }
}

//! What the agent's service does with an operation on a running node that a crash interrupted.

use super::lifecycle::{self, Lifecycle};
use super::{NodeContext, OperationError, rollback, upgrade};
use crate::lock::Held;
use flexnode_isolation::none::run::kind;
use flexnode_isolation::none::{Level, UNIT_KUBELET, manifest};
use flexnode_ops::{Cancel, Engine, JournalRecord, Mode, Observer, Operation, RunOutcome, report};
use std::sync::Arc;

/// The operation of a record and how it is taken up; `None` when it is none of those of a running node.
pub fn operation(context: &NodeContext, record: &JournalRecord) -> Option<(Operation, Mode)> {
    if let Some(which) = Lifecycle::of_kind(&record.operation) {
        return Some((lifecycle::operation(context, which), Mode::default()));
    }
    let (from, to) = (record.from.as_deref()?, record.to.as_deref()?);
    match record.operation.as_str() {
        kind::UPGRADE => Some(upgrade::recovery(context, record, (from, to))),
        kind::ROLLBACK => Some((rollback::operation(context, from, to), Mode::default())),
        _ => None,
    }
}

/// Finishes or undoes it, and says so in one sentence.
pub async fn run(
    context: &NodeContext,
    record: &JournalRecord,
    (operation, mode): (&Operation, Mode),
    observer: Arc<dyn Observer>,
    cancel: Cancel,
    lock: Box<dyn Held>,
) -> Result<String, OperationError> {
    let engine = Engine::new(context.host(), context.start.owner, cancel)?;
    let done = engine.recover(record, operation, observer, mode).await?;
    drop(lock);
    told(record, mode.forward, done.outcome)
}

/// How it ended, in one sentence. `watched`: it was gone on with, so that a failure is one of the version that came up.
fn told(record: &JournalRecord, watched: bool, outcome: RunOutcome) -> Result<String, OperationError> {
    let (what, at) = (&record.operation, if record.step.is_empty() { "its first step" } else { &record.step });
    let upgrade = what == kind::UPGRADE;
    match outcome {
        RunOutcome::Done { .. } => {
            let runs = record.to.as_deref().map(|to| format!(": {to} runs")).unwrap_or_default();
            Ok(format!("the {what} that was interrupted at {at} was finished{runs}"))
        }
        RunOutcome::Discarded { step } => {
            Ok(format!("the {what} that was interrupted at step {step} had changed nothing that runs and was given up"))
        }
        RunOutcome::RolledBack { step, error, rollback_errors } => {
            let runs = if upgrade { &record.from } else { &record.to };
            let runs = runs.as_deref().unwrap_or("the version before");
            let why =
                if watched { format!(" because step {step} failed ({})", report::line(&error)) } else { String::new() };
            if rollback_errors.is_empty() {
                let end = if upgrade { "undone" } else { "finished" };
                return Ok(format!("the {what} that was interrupted at {at} was {end}{why}: {runs} runs"));
            }
            // The record is closed: it is not tried again by itself.
            let texts: Vec<String> = rollback_errors.iter().map(|failure| report::line(failure)).collect();
            let back = texts.join("; then ");
            Ok(format!(
                "the {what} that was interrupted at {at} went back to {runs}{why} as far as possible, but: {back}"
            ))
        }
        RunOutcome::Failed { step, error } => Err(OperationError::Step { step, source: error }),
        RunOutcome::Cancelled { before_step } => Err(OperationError::Cancelled(before_step)),
    }
}

/// What is done when the record of the last operation cannot be read: nothing is changed, but a node that a person did not
/// stop is started when its version is complete. Says in a sentence what was done.
pub async fn start_current(context: &NodeContext) -> Result<String, OperationError> {
    let unreadable = "the record of the last operation cannot be read, so nothing is finished or undone";
    let backend = context.backend();
    let current = backend.current().map_err(flexnode_isolation::Error::from)?;
    let Some(current) = current else { return Ok(format!("{unreadable}; no version is active")) };
    let stopped = if let Ok((_, extension)) = context.state() {
        extension.stopped_by_person
    } else {
        // A stop also takes the units from the boot.
        let unit = context.host().systemd.unit(UNIT_KUBELET).await.map_err(flexnode_isolation::Error::from)?;
        unit.enabled != "enabled"
    };
    if stopped {
        return Ok(format!("{unreadable}; a person stopped the node, and it stays so"));
    }
    let (fs, layout, slot) = (context.host().fs.clone(), context.layout(), current.clone());
    let look = move || manifest::verify(fs.as_ref(), &layout, &slot, Level::Shape).map(|_| ());
    let complete = tokio::task::spawn_blocking(look).await.map_err(|e| OperationError::State(Box::new(e)))?;
    if let Err(why) = complete {
        return Ok(format!("{unreadable}; {current} is not started: {why}"));
    }
    backend.start().await?;
    Ok(format!("{unreadable}; {current} runs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_model::journal::{Subject, Writer};
    use flexnode_ops::{StepError, StepFailure};

    #[test]
    fn one_sentence_says_what_became_of_it() {
        let (by, now) = (Writer { boot_id: "b".into(), pid: 1, owner: "command".into() }, jiff::Timestamp::UNIX_EPOCH);
        let record = |operation: &str, step: &str| {
            let (from, to) = (Some("old".into()), Some("new".into()));
            let subject = Subject { operation: operation.into(), from, to, ..Subject::default() };
            let mut record = JournalRecord::open("1", subject, &by, now);
            record.enter(step, now);
            record
        };
        let back = |step: &str, failures: &[&str]| RunOutcome::RolledBack {
            step: step.into(),
            error: StepError::new("kubelet ended"),
            rollback_errors: failures
                .iter()
                .map(|step| StepFailure { step: (*step).into(), error: StepError::new("no") })
                .collect(),
        };
        let say = |operation, step, outcome| told(&record(operation, step), step == "save-state", outcome).unwrap();
        for (said, expected) in [
            (
                say("upgrade", "flip", back("flip", &[])),
                "the upgrade that was interrupted at flip was undone: old runs",
            ),
            (
                say("upgrade", "wait-ready", RunOutcome::Done { changed: true }),
                "the upgrade that was interrupted at wait-ready was finished: new runs",
            ),
            (
                say("upgrade", "save-state", back("wait-ready", &[])),
                "the upgrade that was interrupted at save-state was undone because step wait-ready failed \
                 (kubelet ended): old runs",
            ),
            (
                say("rollback", "flip", back("flip", &[])),
                "the rollback that was interrupted at flip was finished: new runs",
            ),
            (
                say("upgrade", "flip", back("flip", &["stop", "start-kubelet"])),
                "the upgrade that was interrupted at flip went back to old as far as possible, but: step stop failed: \
                 no; then step start-kubelet failed: no",
            ),
            (
                say("upgrade", "install", RunOutcome::Discarded { step: "install".into() }),
                "the upgrade that was interrupted at step install had changed nothing that runs and was given up",
            ),
        ] {
            assert_eq!(said, expected);
        }
    }
}

//! What the agent's service does with an operation on a running node that a crash interrupted.

use super::lifecycle::{self, Lifecycle};
use super::{NodeContext, OperationError, rollback, upgrade};
use crate::lock::Held;
use flexnode_isolation::none::run::kind;
use flexnode_model::journal::Phase;
use flexnode_ops::{Cancel, Engine, JournalRecord, Mode, Observer, Operation, RunOutcome, report};
use std::sync::Arc;

/// The operation of a record; `None` when it is none of those of a running node.
pub fn operation(context: &NodeContext, record: &JournalRecord) -> Option<Operation> {
    if let Some(which) = Lifecycle::of_kind(&record.operation) {
        return Some(lifecycle::operation(context, which));
    }
    let (from, to) = (record.from.as_deref()?, record.to.as_deref()?);
    match record.operation.as_str() {
        kind::UPGRADE => Some(upgrade::recovery(context, from, to, &record.goal)),
        kind::ROLLBACK => Some(rollback::operation(context, from, to)),
        _ => None,
    }
}

/// Finishes or undoes it, and says so in one sentence.
pub async fn run(
    context: &NodeContext,
    record: &JournalRecord,
    operation: &Operation,
    observer: Arc<dyn Observer>,
    cancel: Cancel,
    lock: Box<dyn Held>,
) -> Result<String, OperationError> {
    let engine = Engine::new(context.host(), context.start.owner, cancel)?;
    let done = engine.recover(record, operation, observer, Mode::default()).await?;
    drop(lock);
    let failed = record.phase == Phase::RollingBack && operation.kind == kind::UPGRADE;
    if failed && let Some(reason) = &record.error {
        let step = record.failed_step.as_deref().unwrap_or("of which nothing is known");
        upgrade::remember(context, &record.goal, &format!("step {step} failed: {reason}"))
            .map_err(|source| OperationError::Step { step: "remember-failure".into(), source })?;
    }
    let what = &record.operation;
    match done.outcome {
        RunOutcome::Done { .. } => Ok(format!("the interrupted {what} was finished")),
        RunOutcome::Discarded { step } => {
            Ok(format!("the {what} that was interrupted at step {step} had changed nothing that runs and was given up"))
        }
        RunOutcome::RolledBack { rollback_errors, .. } if rollback_errors.is_empty() => {
            let runs = if what == kind::UPGRADE { &record.from } else { &record.to };
            let runs = runs.as_deref().unwrap_or("the version before");
            Ok(format!("the {what} that was interrupted at step {} was undone: {runs} runs", record.step))
        }
        // The record is closed: it is not tried again by itself.
        RunOutcome::RolledBack { rollback_errors, .. } => {
            let texts: Vec<String> = rollback_errors.iter().map(|failure| report::line(failure)).collect();
            Ok(format!("the interrupted {what} was undone as far as possible, but: {}", texts.join("; then ")))
        }
        RunOutcome::Failed { step, error } => Err(OperationError::Step { step, source: error }),
        RunOutcome::Cancelled { before_step } => Err(OperationError::Cancelled(before_step)),
    }
}

//! Operations of this backend: how a step is made, and how a list of them is run.

use super::node::Backend;
use crate::backend::{Error, RolledBack};
use flexnode_ops::{Operation, Outcome, Recovery, RunOutcome, Step, StepContext, StepError, StepFailure};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Kinds of the operations that the backend runs by itself; journal and fail points use them.
pub mod kind {
    /// [`Backend::prepare`](super::Backend::prepare).
    pub const PREPARE: &str = "prepare";
    /// [`Backend::prepare_version`](super::Backend::prepare_version).
    pub const PREPARE_VERSION: &str = "prepare-version";
    /// [`Backend::activate`](super::Backend::activate).
    pub const ACTIVATE: &str = "activate";
    /// [`Backend::start`](super::Backend::start).
    pub const START: &str = "start-node";
    /// [`Backend::stop`](super::Backend::stop).
    pub const STOP: &str = "stop";
    /// [`Backend::restart`](super::Backend::restart).
    pub const RESTART: &str = "restart";
    /// [`Backend::upgrade`](super::Backend::upgrade).
    pub const UPGRADE: &str = "upgrade";
    /// [`Backend::rollback`](super::Backend::rollback).
    pub const ROLLBACK: &str = "rollback";
    /// [`Backend::destroy`](super::Backend::destroy).
    pub const DESTROY: &str = "destroy";

    /// Operations that harm nothing when they failed and another one takes their place: a person may stop a node that did
    /// not start.
    pub const MAY_BE_LEFT: [&str; 6] = [PREPARE, PREPARE_VERSION, ACTIVATE, START, STOP, RESTART];
}

impl Backend {
    /// A step that owns what it needs. `title` begins in lower case, so that "could not" goes before it.
    pub(crate) fn step<F, Fut>(&self, name: &'static str, title: impl Into<String>, deadline: Duration, run: F) -> Step
    where
        F: Fn(Arc<Backend>, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, Error>> + Send + 'static,
    {
        let (backend, title) = (Arc::new(self.clone()), title.into());
        let failed = format!("could not {title}");
        Step::new(name, title, deadline, move |cx| {
            let (work, failed) = (run(backend.clone(), cx), failed.clone());
            async move {
                work.await.map_err(|error| match error {
                    Error::Step(error) => error,
                    other => StepError::caused(failed, other),
                })
            }
        })
    }

    /// An operation that is run again after a failure or a crash.
    pub(crate) fn operation(kind: &'static str, steps: Vec<Step>) -> Operation {
        Operation { kind, goal: String::new(), from: None, to: None, steps, recovery: Recovery::Resume }
    }

    /// Runs an operation through the engine, or without a journal when there is none. Says whether anything was changed.
    pub(crate) async fn execute(&self, operation: &Operation, supersede: bool) -> Result<bool, Error> {
        let Some(engine) = &self.engine else { return without_journal(operation).await };
        let left = engine.journal().open().ok().flatten();
        let supersede = supersede || left.is_some_and(|record| kind::MAY_BE_LEFT.contains(&record.operation.as_str()));
        let mode = flexnode_ops::Mode { supersede, ..flexnode_ops::Mode::default() };
        let report = engine.run_with(operation, self.observer.clone(), mode).await?;
        let changed = report.changed();
        match report.outcome {
            RunOutcome::Done { .. } => Ok(changed),
            RunOutcome::Failed { step, error } => Err(Error::Failed(StepFailure { step, error })),
            RunOutcome::RolledBack { step, error, rollback_errors } => {
                Err(RolledBack { failure: StepFailure { step, error }, rollback: rollback_errors }.into())
            }
            RunOutcome::Cancelled { before_step: step } | RunOutcome::Discarded { step } => {
                Err(Error::Cancelled { step })
            }
        }
    }
}

async fn without_journal(operation: &Operation) -> Result<bool, Error> {
    operation.check().map_err(Error::Request)?;
    let since = match &operation.recovery {
        Recovery::Resume | Recovery::Forward { .. } => None,
        Recovery::RollBack { since, .. } => operation.steps.iter().position(|step| step.name == *since),
    };
    let mut changed = false;
    for (index, step) in operation.steps.iter().enumerate() {
        match bounded(step).await {
            Ok(outcome) => changed |= outcome != Outcome::Unchanged,
            Err(failure) if since.is_some_and(|since| index >= since) => {
                let mut rollback = Vec::new();
                for step in operation.way_back() {
                    rollback.extend(bounded(step).await.err());
                }
                return Err(RolledBack { failure, rollback }.into());
            }
            Err(failure) => return Err(Error::Failed(failure)),
        }
    }
    Ok(changed)
}

async fn bounded(step: &Step) -> Result<Outcome, StepFailure> {
    let failed = |error| StepFailure { step: step.name.to_owned(), error };
    match tokio::time::timeout(step.deadline, step.run(StepContext::silent())).await {
        Ok(result) => result.map_err(failed),
        Err(_) => Err(failed(StepError::new(format!("it did not end within {} s", step.deadline.as_secs_f64())))),
    }
}

/// [`Outcome::Changed`] with what was changed, or unchanged when nothing was.
pub(crate) fn changed_if(changed: bool, what: impl Into<String>) -> Outcome {
    if changed { Outcome::Changed(what.into()) } else { Outcome::Unchanged }
}

/// The work of one of the blocking kind (hashing a version), off the thread that drives everything else.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(gone) => Err(Error::Request(format!("the work was ended: {gone}"))),
    }
}

//! Steps and operations as data.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// What a step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It changed something; the text says what, for the progress line. May be empty.
    Changed(String),
    /// All was as wanted already.
    Unchanged,
}

/// A step that failed: what happened, where to look, what to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StepError {
    /// What happened, on which path or unit. No secrets.
    pub message: String,
    /// Where to look or what to do next, if that is known: a command, a file.
    pub hint: Option<String>,
    /// The cause.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl StepError {
    /// An error without a cause.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, source: None }
    }
    /// An error with its cause.
    pub fn caused(message: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { message: message.into(), hint: None, source: Some(source.into()) }
    }
    /// Adds what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// What a running step gets.
#[derive(Clone)]
pub struct StepContext {
    note: Arc<dyn Fn(&str) + Send + Sync>,
}

impl StepContext {
    /// A context whose notes go to `note`.
    pub fn new(note: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { note: Arc::new(note) }
    }
    /// A context that drops its notes.
    pub fn silent() -> Self {
        Self::new(|_| {})
    }
    /// Says in a few words what the step is waiting for or doing now. Bounded, without secrets.
    pub fn note(&self, text: &str) {
        (self.note)(text);
    }
}

impl fmt::Debug for StepContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StepContext")
    }
}

type Run = dyn Fn(StepContext) -> Pin<Box<dyn Future<Output = Result<Outcome, StepError>> + Send>> + Send + Sync;

/// One named, idempotent step of an operation.
#[derive(Clone)]
pub struct Step {
    /// Its name: unique in the operation, stable, kebab-case. Journal, plan and fail points use it.
    pub name: &'static str,
    /// What it does, for a person, as a short phrase in the imperative.
    pub title: String,
    /// It must return within this.
    pub deadline: Duration,
    /// From here on the node may be down: signals no longer end the command.
    pub takes_down: bool,
    run: Arc<Run>,
}

impl Step {
    /// A step that does not take the node down.
    pub fn new<F, Fut>(name: &'static str, title: impl Into<String>, deadline: Duration, run: F) -> Self
    where
        F: Fn(StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, StepError>> + Send + 'static,
    {
        Self { name, title: title.into(), deadline, takes_down: false, run: Arc::new(move |cx| Box::pin(run(cx))) }
    }
    /// Marks that the node is down from this step on.
    #[must_use]
    pub fn takes_down(mut self) -> Self {
        self.takes_down = true;
        self
    }
    /// Runs it, without deadline, journal or fail points: the engine adds these.
    pub fn run(&self, cx: StepContext) -> Pin<Box<dyn Future<Output = Result<Outcome, StepError>> + Send>> {
        (self.run)(cx)
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("name", &self.name).field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// What happens when a step fails, or a crash interrupted the operation.
#[derive(Clone, Debug)]
pub enum Recovery {
    /// The operation ends as failed and keeps its record; running it again goes on (start, reset, destroy, stop ...).
    Resume,
    /// From `since` on a failure, an expired deadline or a crash is answered by `steps`: every one is attempted, errors are
    /// joined, and the record is closed as rolled back. Before `since` the operation just ends as failed.
    RollBack {
        /// Name of the first step whose failure rolls back.
        since: &'static str,
        /// The way back.
        steps: Vec<Step>,
    },
}

/// A whole operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// `start`, `upgrade`, `reset`, ... Stable: journal and fail points use it.
    pub kind: &'static str,
    /// Fingerprint of the goal it works for, empty when it has none.
    pub goal: String,
    /// Slot that is left, if any.
    pub from: Option<String>,
    /// Slot that is gone to, if any.
    pub to: Option<String>,
    /// In order.
    pub steps: Vec<Step>,
    /// What a failure or crash leads to.
    pub recovery: Recovery,
}

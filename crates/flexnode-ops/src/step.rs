//! Steps and operations as data.

use flexnode_model::journal::Answer;
use std::fmt;
use std::future::Future;
use std::io::ErrorKind;
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

/// What to do when there is no space.
const FULL: &str = "free space on that file system (df -h), then run it again";

fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}

impl StepError {
    /// An error without a cause.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, source: None }
    }
    /// An error with its cause.
    ///
    /// Where a full file system is at the bottom of it, that is what to do something about.
    pub fn caused(message: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let source = source.into();
        let hint = is_full(source.as_ref()).then(|| FULL.to_owned());
        Self { message: message.into(), hint, source: Some(source) }
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
#[expect(clippy::struct_excessive_bools, reason = "a step can be any of these at once")]
pub struct Step {
    /// Its name: unique in the operation, stable, kebab-case. Journal, plan and fail points use it.
    pub name: &'static str,
    /// What it does, for a person, as a short phrase in the imperative.
    pub title: String,
    /// It must return within this.
    pub deadline: Duration,
    /// From here on the node may be down: signals no longer end the command.
    pub takes_down: bool,
    /// It only looks. The read-only steps at the head of an operation run before its record is opened, so that a refusal
    /// leaves no trace.
    pub read_only: bool,
    /// A request to cancel may end it at any of its await points.
    pub interruptible: bool,
    /// Nothing depends on it: its failure is told and the operation goes on.
    pub optional: bool,
    run: Arc<Run>,
}

impl Step {
    /// A step that does not take the node down.
    pub fn new<F, Fut>(name: &'static str, title: impl Into<String>, deadline: Duration, run: F) -> Self
    where
        F: Fn(StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, StepError>> + Send + 'static,
    {
        Self {
            name,
            title: title.into(),
            deadline,
            takes_down: false,
            read_only: false,
            interruptible: false,
            optional: false,
            run: Arc::new(move |cx| Box::pin(run(cx))),
        }
    }
    /// Marks that it changes nothing.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }
    /// Marks that a request to cancel need not wait for its end: it waits or fetches, and a half of it harms nothing.
    #[must_use]
    pub fn interruptible(mut self) -> Self {
        self.interruptible = true;
        self
    }
    /// Marks that nothing depends on it.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
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
    /// From `since` on a crash is answered by running the operation again, and a failure keeps the record, as with
    /// [`Recovery::Resume`]. Before `since` nothing was touched: it ends and its record is closed.
    Forward {
        /// Name of the first step from which on there is no way but forward.
        since: &'static str,
    },
    /// From `since` on a failure, an expired deadline or a crash is answered by `steps`: every one is attempted, errors are
    /// joined, and the record is closed as rolled back. Before `since` the operation just ends as failed.
    RollBack {
        /// Name of the first step whose failure rolls back.
        since: &'static str,
        /// The way back.
        steps: Vec<Step>,
    },
}

impl Recovery {
    /// Name of the first step from which on the operation does not just end.
    pub fn since(&self) -> Option<&'static str> {
        match self {
            Self::Resume => None,
            Self::Forward { since } | Self::RollBack { since, .. } => Some(since),
        }
    }
    /// As the journal says it.
    pub fn answer(&self) -> Answer {
        match self {
            Self::Resume => Answer::Resume,
            Self::Forward { .. } => Answer::Forward,
            Self::RollBack { .. } => Answer::RollBack,
        }
    }
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

impl Operation {
    /// Puts steps before those of this operation: a larger operation that embeds it.
    #[must_use]
    pub fn prepend(mut self, steps: Vec<Step>) -> Self {
        self.steps.splice(0..0, steps);
        self
    }
    /// Puts steps behind those of this operation.
    #[must_use]
    pub fn append(mut self, steps: Vec<Step>) -> Self {
        self.steps.extend(steps);
        self
    }
    /// The steps of the way back; empty when the operation resumes.
    pub fn way_back(&self) -> &[Step] {
        match &self.recovery {
            Recovery::Resume | Recovery::Forward { .. } => &[],
            Recovery::RollBack { steps, .. } => steps,
        }
    }
    /// Index of the first step from which on nothing but the end of the operation ends it: the first that takes the node
    /// down, or the first from which on it does not just end, whichever comes first.
    pub fn committed_from(&self) -> Option<usize> {
        let since = self.recovery.since();
        self.steps.iter().position(|step| step.takes_down || Some(step.name) == since)
    }
    /// Index of the first step from which on the operation does not just end; 0 for one that resumes.
    pub fn since_index(&self) -> usize {
        self.recovery.since().and_then(|since| self.steps.iter().position(|step| step.name == since)).unwrap_or(0)
    }
    /// Checks that names are kebab-case and unique among the steps and among the way back, that there is a step, and that
    /// `since` names one.
    ///
    /// # Errors
    /// A sentence on the first thing that is wrong: a mistake of this program, never of a user.
    pub fn check(&self) -> Result<(), String> {
        if self.steps.is_empty() {
            return Err(format!("operation {} has no steps", self.kind));
        }
        for names in [std::slice::from_ref(&self.kind).to_vec(), names(&self.steps), names(self.way_back())] {
            for (i, name) in names.iter().enumerate() {
                if !is_kebab(name) {
                    return Err(format!("operation {}: {name:?} is not a kebab-case name", self.kind));
                }
                if names[..i].contains(name) {
                    return Err(format!("operation {}: two steps are named {name}", self.kind));
                }
            }
        }
        if let Some(since) = self.recovery.since()
            && !self.steps.iter().any(|step| step.name == since)
        {
            return Err(format!(
                "operation {}: it is answered for since {since}, which is none of its steps",
                self.kind
            ));
        }
        match &self.recovery {
            Recovery::RollBack { steps, .. } if steps.is_empty() => {
                Err(format!("operation {}: its way back has no steps", self.kind))
            }
            _ => Ok(()),
        }
    }
}

fn names(steps: &[Step]) -> Vec<&'static str> {
    steps.iter().map(|step| step.name).collect()
}

fn is_kebab(name: &str) -> bool {
    !name.is_empty()
        && name
            .split('-')
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_system_says_what_to_do_however_deep_it_is() {
        let io = || std::io::Error::from(ErrorKind::StorageFull);
        let inner = || StepError::caused("cannot write /a", io());
        assert_eq!(StepError::caused("it failed", inner()).hint.as_deref(), Some(FULL));
        assert_eq!(StepError::caused("it failed", std::io::Error::other("x")).hint, None);
        assert_eq!(StepError::caused("it failed", inner()).hint("other").hint.as_deref(), Some("other"));
    }

    fn step(name: &'static str) -> Step {
        Step::new(name, name, Duration::from_secs(1), |_| async { Ok(Outcome::Unchanged) })
    }

    fn operation(steps: Vec<Step>, recovery: Recovery) -> Operation {
        Operation { kind: "upgrade", goal: String::new(), from: None, to: None, steps, recovery }
    }

    #[test]
    fn malformed_operations_are_named() {
        let rolls = |since, steps| Recovery::RollBack { since, steps };
        let cases = [
            (operation(vec![], Recovery::Resume), "no steps"),
            (operation(vec![step("a"), step("a")], Recovery::Resume), "two steps are named a"),
            (operation(vec![step("Stop it")], Recovery::Resume), "kebab-case"),
            (operation(vec![step("stop-")], Recovery::Resume), "kebab-case"),
            (operation(vec![step("a")], rolls("b", vec![step("a")])), "none of its steps"),
            (operation(vec![step("a")], Recovery::Forward { since: "b" }), "none of its steps"),
            (operation(vec![step("a")], rolls("a", vec![])), "way back has no steps"),
            (operation(vec![step("a")], rolls("a", vec![step("b"), step("b")])), "two steps are named b"),
        ];
        for (operation, text) in cases {
            let error = operation.check().unwrap_err();
            assert!(error.contains(text), "{error}");
        }
        // The same name forth and back is two different points.
        operation(vec![step("flip-2")], rolls("flip-2", vec![step("flip-2")])).check().unwrap();
    }

    #[test]
    fn embedding_keeps_the_order() {
        let whole = operation(vec![step("stop").takes_down()], Recovery::Resume)
            .prepend(vec![step("check"), step("fetch")])
            .append(vec![step("confirm")]);
        assert_eq!(names(&whole.steps), ["check", "fetch", "stop", "confirm"]);
        assert_eq!(whole.committed_from(), Some(2));
    }

    #[test]
    fn what_rolls_back_is_committed_before_the_node_is_down() {
        let steps = vec![step("check"), step("write"), step("stop").takes_down()];
        let whole = operation(steps, Recovery::RollBack { since: "write", steps: vec![step("write")] });
        assert_eq!(whole.committed_from(), Some(1));
    }
}

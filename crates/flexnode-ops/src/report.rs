//! How an operation ended.

use crate::observer::Ending;
use crate::{Outcome, StepError};
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// The failure of one named step.
#[derive(Debug)]
pub struct StepFailure {
    /// Name of the step.
    pub step: String,
    /// What went wrong.
    pub error: StepError,
}

impl fmt::Display for StepFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} failed", self.step)
    }
}

impl Error for StepFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// How an operation ended.
#[derive(Debug)]
pub enum RunOutcome {
    /// Every step is done.
    Done {
        /// Whether any step changed something.
        changed: bool,
    },
    /// A step failed and nothing was taken back. Running the operation again goes on.
    Failed {
        /// The step.
        step: String,
        /// Why.
        error: StepError,
    },
    /// A step failed, or a crash interrupted it, and the way back was gone.
    RolledBack {
        /// The step.
        step: String,
        /// Why.
        error: StepError,
        /// What failed on the way back, in this order. Empty: what was there before runs again.
        rollback_errors: Vec<StepFailure>,
    },
    /// It ended because this was asked for. What the steps before did stays.
    Cancelled {
        /// The step that did not run to its end.
        before_step: String,
    },
    /// A record of an interrupted operation was closed: it had not touched the node yet.
    Discarded {
        /// The step that was interrupted.
        step: String,
    },
}

/// What one step did.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// Name of the step.
    pub step: String,
    /// What it did.
    pub outcome: Outcome,
    /// How long it took.
    pub time: Duration,
}

/// What a run of the engine did.
#[derive(Debug)]
pub struct Report {
    /// Identity of the operation in the journal; `None` when its record was never opened.
    pub id: Option<String>,
    /// How it ended.
    pub outcome: RunOutcome,
    /// The steps that ended well, in order, without those of a way back.
    pub steps: Vec<StepReport>,
    /// How long it took in all.
    pub time: Duration,
}

impl Report {
    /// Every step is done.
    pub fn is_done(&self) -> bool {
        matches!(self.outcome, RunOutcome::Done { .. })
    }

    /// Something on the host was changed, as far as the steps say.
    pub fn changed(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.outcome, Outcome::Changed(_)))
            || matches!(self.outcome, RunOutcome::RolledBack { .. })
    }

    pub(crate) fn ending(&self) -> (Ending, Option<String>) {
        match &self.outcome {
            RunOutcome::Done { changed: true } => (Ending::Changed, None),
            RunOutcome::Done { changed: false } => (Ending::Unchanged, None),
            RunOutcome::Failed { step, .. } => (Ending::Failed, Some(step.clone())),
            RunOutcome::RolledBack { step, .. } => (Ending::RolledBack, Some(step.clone())),
            RunOutcome::Cancelled { before_step: step } | RunOutcome::Discarded { step } => {
                (Ending::Cancelled, Some(step.clone()))
            }
        }
    }
}

/// Bytes of an error that are kept in a record or shown as one line.
const LINE: usize = 4096;

/// An error and its causes, the outermost first. Each is what that layer says; nothing is said twice in a row.
pub fn layers(error: &dyn Error) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(layer) = next {
        let text = layer.to_string();
        if texts.last() != Some(&text) {
            texts.push(text);
        }
        next = layer.source();
    }
    texts
}

/// An error and its causes in one bounded line.
pub fn line(error: &dyn Error) -> String {
    bounded(layers(error).join(": "))
}

/// The failures of a way back in one bounded line that says in which order they happened.
pub fn joined(reason: &str, failures: &[StepFailure]) -> String {
    let mut text = reason.to_owned();
    for (i, failure) in failures.iter().enumerate() {
        text.push_str(if i == 0 { "; then, on the way back, " } else { "; after it, " });
        text.push_str(&line(failure));
    }
    bounded(text)
}

fn bounded(mut text: String) -> String {
    if text.len() > LINE {
        let mut end = LINE;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(" ...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_failures_is_said() {
        let failure = |step: &str, text: &str| StepFailure { step: step.into(), error: StepError::new(text) };
        let text = joined(
            "step start failed: kubelet died",
            &[failure("flip-back", "no link"), failure("start-old", "no unit")],
        );
        assert_eq!(
            text,
            "step start failed: kubelet died; then, on the way back, step flip-back failed: no link; \
             after it, step start-old failed: no unit"
        );
    }

    #[test]
    fn a_line_is_bounded_at_a_character() {
        let error = StepError::new("ä".repeat(5000));
        let line = line(&error);
        assert!(line.len() <= LINE + 4);
        assert!(line.ends_with("ä ..."));
    }

    #[test]
    fn transparent_layers_are_said_once() {
        let error = StepError::caused("cannot write", StepError::caused("cannot write", StepError::new("disk full")));
        assert_eq!(layers(&error), ["cannot write", "disk full"]);
    }
}

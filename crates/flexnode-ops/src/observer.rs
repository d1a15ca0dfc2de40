//! Progress, as events that can be shown to a person or written as JSON.

use serde::Serialize;

/// How a step ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Finish {
    /// It changed something.
    Changed,
    /// All was as wanted already.
    Unchanged,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Ending {
    /// Every step is done and at least one changed something.
    Changed,
    /// Every step is done and nothing had to be changed.
    Unchanged,
    /// A step failed; running it again continues.
    Failed,
    /// A step failed and the way back was gone.
    RolledBack,
    /// It was cancelled before the node was touched.
    Cancelled,
}

/// One thing that happened. Seconds are of the monotonic clock. Never a secret.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Event {
    /// An operation begins.
    OperationStarted {
        /// Its kind: `start`, `upgrade`, ...
        operation: String,
        /// Which attempt of it this is, from 1.
        attempt: u32,
        /// Slot that is left.
        #[serde(skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// Slot that is gone to.
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// Number of its steps.
        steps: usize,
    },
    /// A step begins.
    StepStarted {
        /// Its name.
        step: String,
        /// What it does, for a person.
        title: String,
        /// Its place, from 1.
        index: usize,
        /// Number of steps on this way.
        of: usize,
        /// It must end within this.
        deadline_seconds: f64,
        /// Whether it belongs to the way back.
        rollback: bool,
    },
    /// The running step says what it waits for or does now.
    StepNote {
        /// Its name.
        step: String,
        /// A few words.
        text: String,
    },
    /// The running step ended well.
    StepFinished {
        /// Its name.
        step: String,
        /// Whether it changed something.
        outcome: Finish,
        /// What it changed; may be empty.
        text: String,
        /// How long it took.
        seconds: f64,
    },
    /// The running step failed.
    StepFailed {
        /// Its name.
        step: String,
        /// The error and its causes, the outermost first, each on its own.
        errors: Vec<String>,
        /// What to do next, if that is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
        /// How long it took.
        seconds: f64,
    },
    /// From the step that follows on, a request to cancel is not heard.
    Committed {
        /// That step.
        step: String,
    },
    /// A failure is answered by the way back.
    RollbackStarted {
        /// The step that failed or was interrupted.
        step: String,
        /// Why, in one line.
        reason: String,
        /// Number of steps of the way back.
        steps: usize,
    },
    /// The operation ended.
    OperationFinished {
        /// Its kind.
        operation: String,
        /// How.
        outcome: Ending,
        /// The step at which it failed or before which it was cancelled.
        #[serde(skip_serializing_if = "Option::is_none")]
        step: Option<String>,
        /// Failures on the way back, each in one line with the name of its step.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        rollback_errors: Vec<String>,
        /// How long it took in all.
        seconds: f64,
    },
}

/// Sees what happens. Called on the engine's task: it must not wait.
pub trait Observer: Send + Sync {
    /// One event.
    fn event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync> Observer for F {
    fn event(&self, event: &Event) {
        self(event);
    }
}

/// Drops every event.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Observer for Silent {
    fn event(&self, _: &Event) {}
}

/// Writes events to the log: for the daemon, whose log is the unit's journal.
#[derive(Clone, Copy, Debug)]
pub struct Traced;

impl Observer for Traced {
    fn event(&self, event: &Event) {
        match event {
            Event::OperationStarted { operation, attempt, from, to, .. } => {
                tracing::info!(operation, attempt, from, to, "operation begins");
            }
            Event::StepStarted { step, .. } => tracing::debug!(step, "step begins"),
            Event::StepNote { step, text } => tracing::info!(step, note = text, "step goes on"),
            Event::StepFinished { step, outcome, text, seconds } => {
                tracing::info!(step, ?outcome, text, seconds, "step is done");
            }
            Event::StepFailed { step, errors, hint, seconds } => {
                tracing::error!(step, error = errors.join(": "), hint, seconds, "step failed");
            }
            Event::Committed { step } => tracing::debug!(step, "operation goes on to its end from here"),
            Event::RollbackStarted { step, reason, .. } => tracing::warn!(step, reason, "operation goes back"),
            Event::OperationFinished { operation, outcome, step, rollback_errors, seconds } => {
                let errors = rollback_errors.join("; ");
                tracing::info!(operation, ?outcome, step, errors, seconds, "operation is over");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_flat_objects_with_their_name() {
        let event = Event::StepFinished {
            step: "flip".into(),
            outcome: Finish::Changed,
            text: "current -> 1.36.3-1a2b3c4d".into(),
            seconds: 0.5,
        };
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"event":"stepFinished","step":"flip","outcome":"changed","text":"current -> 1.36.3-1a2b3c4d","seconds":0.5}"#
        );
    }
}

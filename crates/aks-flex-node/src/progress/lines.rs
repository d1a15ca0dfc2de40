//! One line per step, for a pipe or a log, and for what is above the last line of a terminal.

use flexnode_ops::Event;
use flexnode_ops::observer::{Ending, Finish};
use std::fmt::Write as _;
use std::time::Duration;

/// A note that stands this long is worth a line of its own: somebody may have to act on it.
const NOTE_AFTER: Duration = Duration::from_secs(5);

/// The step that runs.
#[derive(Clone, Debug)]
pub(super) struct Current {
    pub(super) step: String,
    pub(super) title: String,
    pub(super) index: usize,
    pub(super) of: usize,
    pub(super) since: Duration,
    pub(super) note: Option<Note>,
}

#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) text: String,
    since: Duration,
    shown: bool,
}

/// Makes the lines. Times are of the monotonic clock.
#[derive(Debug, Default)]
pub struct Lines {
    pub(super) current: Option<Current>,
    operation: String,
}

impl Lines {
    /// The lines of one event.
    pub fn on(&mut self, event: &Event, now: Duration) -> Vec<String> {
        match event {
            Event::OperationStarted { operation, attempt, from, to, steps } => {
                self.operation.clone_from(operation);
                vec![started(operation, *attempt, from.as_deref(), to.as_deref(), *steps)]
            }
            Event::StepStarted { step, title, index, of, .. } => {
                let (step, title) = (step.clone(), title.clone());
                self.current = Some(Current { step, title, index: *index, of: *of, since: now, note: None });
                Vec::new()
            }
            Event::StepNote { step, text } => {
                if let Some(current) = self.current.as_mut().filter(|current| current.step == *step)
                    && current.note.as_ref().is_none_or(|note| note.text != *text)
                {
                    current.note = Some(Note { text: text.clone(), since: now, shown: false });
                }
                Vec::new()
            }
            Event::StepFinished { outcome, text, seconds, .. } => {
                let word = match outcome {
                    Finish::Changed => "changed",
                    Finish::Unchanged => "ok",
                };
                self.finish(word, *seconds, text)
            }
            Event::StepFailed { errors, seconds, .. } => {
                self.finish("FAILED", *seconds, errors.first().map_or("", String::as_str))
            }
            Event::Committed { .. } => Vec::new(),
            Event::RollbackStarted { step, reason, .. } => {
                vec![format!("{}: going back, because of step {step}: {}", self.operation, one_line(reason))]
            }
            Event::OperationFinished { outcome, step, rollback_errors, seconds, .. } => {
                self.current = None;
                finished(&self.operation, *outcome, step.as_deref(), rollback_errors, *seconds)
            }
        }
    }

    /// The lines that the passing of time makes.
    pub fn tick(&mut self, now: Duration) -> Vec<String> {
        let Some(current) = &mut self.current else { return Vec::new() };
        let Some(note) =
            current.note.as_mut().filter(|note| !note.shown && now.saturating_sub(note.since) >= NOTE_AFTER)
        else {
            return Vec::new();
        };
        note.shown = true;
        let text = one_line(&note.text);
        let time = seconds(now.saturating_sub(current.since).as_secs_f64());
        vec![format!("{}  {:<28} {:<8} {time}  {text}", place(current), current.step, "...")]
    }

    fn finish(&mut self, word: &str, time: f64, text: &str) -> Vec<String> {
        let Some(current) = self.current.take() else { return Vec::new() };
        let line = format!("{}  {:<28} {word:<8} {}  {}", place(&current), current.step, seconds(time), one_line(text));
        vec![line.trim_end().to_owned()]
    }
}

/// `3/24`, as wide as the last one.
pub(super) fn place(current: &Current) -> String {
    let of = current.of.to_string();
    format!("{:>width$}/{of}", current.index, width = of.len())
}

/// Seconds, right-aligned.
pub(super) fn seconds(time: f64) -> String {
    format!("{time:>6.1} s")
}

/// A text of several lines as one, bounded.
pub(super) fn one_line(text: &str) -> String {
    const LIMIT: usize = 300;
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > LIMIT {
        line = line.chars().take(LIMIT).chain(" ...".chars()).collect();
    }
    line
}

fn started(operation: &str, attempt: u32, from: Option<&str>, to: Option<&str>, steps: usize) -> String {
    let mut line = format!("{operation}: {steps} steps");
    if let Some(from) = from {
        let _ = write!(line, ", from {from}");
    }
    if let Some(to) = to {
        let _ = write!(line, ", to {to}");
    }
    if attempt > 1 {
        let _ = write!(line, ", attempt {attempt}: it goes on where it was interrupted");
    }
    line
}

fn finished(
    operation: &str,
    outcome: Ending,
    step: Option<&str>,
    rollback_errors: &[String],
    time: f64,
) -> Vec<String> {
    let step = step.unwrap_or("?");
    let text = match outcome {
        Ending::Changed => format!("done in {time:.1} s"),
        Ending::Unchanged => format!("nothing had to be changed ({time:.1} s)"),
        Ending::Failed => format!("failed at step {step} after {time:.1} s"),
        Ending::RolledBack if rollback_errors.is_empty() => {
            format!("step {step} failed; what was there before is back ({time:.1} s)")
        }
        Ending::RolledBack => format!("step {step} failed, and the way back had errors ({time:.1} s)"),
        Ending::Cancelled => format!("cancelled at step {step} after {time:.1} s"),
    };
    let mut lines = vec![format!("{operation}: {text}")];
    lines.extend(rollback_errors.iter().map(|error| format!("  {}", one_line(error))));
    lines
}

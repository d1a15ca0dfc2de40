//! Progress of an operation on a terminal, on a pipe, or as JSON.
//!
//! What is shown is made by pure functions ([`lines`], [`live`], [`json`]); this module writes it, and notices a reader
//! that went away: before the node is touched that ends the operation like a signal does.

pub mod json;
pub mod lines;
pub mod live;

use crate::cli::Output;
use crate::terminal::Stream;
use flexnode_host::Clock;
use flexnode_ops::{Cancel, Event, Observer};
use lines::Lines;
use live::Live;
use serde::Serialize;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often the shown time moves on a terminal.
const LIVE_TICK: Duration = Duration::from_millis(100);
/// How often a pipe is looked after: a note that stands for long is worth a line.
const LINES_TICK: Duration = Duration::from_secs(1);

#[derive(Debug)]
enum Style {
    /// One line per step, as it ends.
    Lines(Lines),
    /// The running step in the last line of a terminal.
    Live(Live),
    /// One object per event.
    Json,
}

struct State {
    style: Style,
    stream: Stream,
}

/// Shows what an operation does. Cheap to clone; all clones show on the same place.
#[derive(Clone)]
pub struct Progress {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
    cancel: Cancel,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

impl Progress {
    /// Progress in the form that was asked for: JSON on standard output, text on standard error.
    pub fn new(output: Output, out: &Stream, err: &Stream, clock: Arc<dyn Clock>, cancel: Cancel) -> Self {
        let (style, stream) = match output {
            Output::Json => (Style::Json, out.clone()),
            Output::Text if err.is_terminal => (Style::Live(Live::default()), err.clone()),
            Output::Text => (Style::Lines(Lines::default()), err.clone()),
        };
        Self { state: Arc::new(Mutex::new(State { style, stream })), clock, cancel }
    }

    /// Says something to the person beside the steps. Programs are not told.
    pub fn say(&self, text: &str) {
        self.with(|style, _| match style {
            Style::Lines(_) => format!("{text}\n"),
            Style::Live(live) => live.say(text),
            Style::Json => String::new(),
        });
    }

    /// Tells programs how a command ended, as an event of its own.
    pub fn result(&self, event: &impl Serialize) {
        let time = self.clock.now();
        self.with(|style, _| match style {
            Style::Json => format!("{}\n", json::render(event, time)),
            _ => String::new(),
        });
    }

    /// Moves the shown time until it is dropped.
    pub fn ticking(&self) -> impl Future<Output = ()> + Send + 'static {
        let progress = self.clone();
        let period = progress.with_style(|style| match style {
            Style::Lines(_) => Some(LINES_TICK),
            Style::Live(_) => Some(LIVE_TICK),
            Style::Json => None,
        });
        async move {
            let Some(period) = period else { return std::future::pending().await };
            loop {
                progress.clock.sleep(period).await;
                progress.with(|style, now| match style {
                    Style::Lines(lines) => text(&lines.tick(now)),
                    Style::Live(live) => live.tick(now, width()),
                    Style::Json => String::new(),
                });
            }
        }
    }

    /// Clears the line of the running step, so that other text can follow.
    pub fn end(&self) {
        self.with(|style, _| if let Style::Live(live) = style { live.end() } else { String::new() });
    }

    fn with_style<T>(&self, f: impl FnOnce(&Style) -> T) -> T {
        f(&self.state.lock().unwrap_or_else(PoisonError::into_inner).style)
    }

    fn with(&self, make: impl FnOnce(&mut Style, Duration) -> String) {
        let now = self.clock.monotonic();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let text = make(&mut state.style, now);
        if text.is_empty() || state.stream.is_closed() {
            return;
        }
        state.stream.write(&text);
        if state.stream.is_closed() {
            self.cancel.request();
        }
    }
}

impl Observer for Progress {
    fn event(&self, event: &Event) {
        let time = self.clock.now();
        self.with(|style, now| match style {
            Style::Lines(lines) => text(&lines.on(event, now)),
            Style::Live(live) => live.on(event, now, width()),
            Style::Json => format!("{}\n", json::line(event, time)),
        });
    }
}

fn text(lines: &[String]) -> String {
    lines.iter().fold(String::new(), |text, line| text + line + "\n")
}

/// Columns of the terminal behind standard error; 80 when it does not say.
fn width() -> usize {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => 80,
    }
}

#[cfg(test)]
mod tests;

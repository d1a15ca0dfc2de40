//! The running step with its time in the last line of a terminal, finished steps above it.

use super::lines::{Lines, one_line, place, seconds};
use flexnode_ops::Event;
use std::time::Duration;

/// Goes to the line's begin and clears it (ECMA-48).
const CLEAR: &str = "\r\x1b[K";

/// Makes what is written to the terminal. Times are of the monotonic clock, widths are columns.
#[derive(Debug, Default)]
pub struct Live {
    lines: Lines,
    /// Whether the running step stands in the last line.
    drawn: bool,
    /// What stands there, so that other text can be put above it.
    last: String,
}

impl Live {
    /// What one event writes.
    pub fn on(&mut self, event: &Event, now: Duration, width: usize) -> String {
        let lines = self.lines.on(event, now);
        self.above(&lines) + &self.draw(now, width)
    }

    /// What the passing of time writes.
    pub fn tick(&mut self, now: Duration, width: usize) -> String {
        self.draw(now, width)
    }

    /// Puts a text above the running step.
    pub fn say(&mut self, text: &str) -> String {
        let drawn = self.drawn;
        let above = self.above(&[text.to_owned()]);
        self.drawn = drawn;
        if drawn { above + &self.last } else { above }
    }

    /// Clears the running step.
    pub fn end(&mut self) -> String {
        if std::mem::take(&mut self.drawn) { CLEAR.to_owned() } else { String::new() }
    }

    fn above(&mut self, lines: &[String]) -> String {
        if lines.is_empty() {
            return String::new();
        }
        let clear = if std::mem::take(&mut self.drawn) { CLEAR } else { "" };
        lines.iter().fold(clear.to_owned(), |text, line| text + line + "\n")
    }

    fn draw(&mut self, now: Duration, width: usize) -> String {
        let Some(current) = &self.lines.current else {
            return self.end();
        };
        let time = seconds(now.saturating_sub(current.since).as_secs_f64());
        let text = current.note.as_ref().map_or(&current.title, |note| &note.text);
        let line = format!("{}  {:<28} {:<8} {time}  {}", place(current), current.step, "...", one_line(text));
        // The last column stays free: some terminals go to the next line when it is filled.
        let line: String = line.chars().take(width.saturating_sub(1)).collect();
        let text = format!("{CLEAR}{line}");
        self.drawn = true;
        self.last.clone_from(&text);
        text
    }
}

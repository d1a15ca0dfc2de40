//! Events as JSON lines, version 1.
//!
//! Every line is one object with `version` (1), `time` (RFC 3339, UTC) and `event`, and the keys of that event as
//! [`flexnode_ops::Event`] documents them. The last line of a command is `commandFinished` with `exitCode`, and with
//! `errors` (outermost first) and `hints` when it did not end well. Within version 1 keys and events are only added.

use flexnode_ops::Event;
use jiff::Timestamp;
use serde::Serialize;

/// The version of the lines.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Line<'a, T> {
    version: u32,
    time: Timestamp,
    #[serde(flatten)]
    event: &'a T,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Finished<'a> {
    event: &'static str,
    exit_code: u8,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    errors: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    hints: &'a [String],
}

/// One event as a line, without the newline.
pub fn line(event: &Event, time: Timestamp) -> String {
    render(event, time)
}

/// The last line of a command.
pub fn finished(exit_code: u8, errors: &[String], hints: &[String], time: Timestamp) -> String {
    render(&Finished { event: "commandFinished", exit_code, errors, hints }, time)
}

/// Any event as a line, without the newline.
pub fn render<T: Serialize>(event: &T, time: Timestamp) -> String {
    // Plain data with text keys: it cannot fail, and a line that says nothing is better than a panic.
    serde_json::to_string(&Line { version: VERSION, time, event }).unwrap_or_default()
}

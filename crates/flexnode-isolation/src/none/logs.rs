//! The journal of the stack's units.

use super::consts::{UNIT_CONTAINERD, UNIT_KUBELET};
use super::dropins::ALL_UNITS;
use super::hooks::command;
use super::node::Backend;
use crate::backend::{Error, LogRequest, LogSink};
use std::time::Duration;

/// One call of journalctl.
const CALL: Duration = Duration::from_secs(30);
/// Between two looks for new lines.
const EVERY: Duration = Duration::from_secs(1);
/// Begins the line in which journalctl says where it stopped.
const CURSOR: &str = "-- cursor: ";

impl Backend {
    /// Gives the journal lines of an agent-owned unit to `sink`, the oldest first; with no unit those of containerd and
    /// kubelet. With `follow` it goes on until the caller drops the future.
    ///
    /// Each look for new lines is a command of bounded time and output that begins where the last one ended, so nothing is
    /// lost, nothing is repeated and no child outlives the caller.
    pub async fn logs(&self, request: &LogRequest, sink: &mut LogSink<'_>) -> Result<(), Error> {
        let units: Vec<&str> = match request.unit.as_deref() {
            None => vec![UNIT_CONTAINERD, UNIT_KUBELET],
            Some(unit) if ALL_UNITS.contains(&unit) => vec![unit],
            Some(unit) => {
                let known = ALL_UNITS.join(", ");
                return Err(Error::Request(format!("{unit} is no unit of the node stack; it has {known}")));
            }
        };
        let mut from = format!("--lines={}", request.lines);
        loop {
            let cursor = self.read_journal(&units, &from, sink).await?;
            if !request.follow {
                return Ok(());
            }
            if let Some(cursor) = cursor {
                from = format!("--after-cursor={cursor}");
            }
            self.system.clock.sleep(EVERY).await;
        }
    }

    /// One look at the journal; where it ended, if it says so.
    async fn read_journal(&self, units: &[&str], from: &str, sink: &mut LogSink<'_>) -> Result<Option<String>, Error> {
        let mut argv: Vec<String> =
            ["journalctl", "--no-pager", "--quiet", "--output=short-iso", "--show-cursor", from]
                .map(String::from)
                .into();
        argv.extend(units.iter().map(|unit| format!("--unit={unit}")));
        let Some(command) = command(&argv, Vec::new(), CALL) else { return Ok(None) };
        let output = self.run.run(&*self.system.commands, command).await?;
        if output.code != Some(0) {
            let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Error::Exec { program: "journalctl".into(), status: format!("{:?}", output.code), stderr });
        }
        let mut cursor = None;
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            match line.strip_prefix(CURSOR) {
                Some(at) => cursor = Some(at.to_owned()),
                None => sink(line),
            }
        }
        Ok(cursor)
    }
}

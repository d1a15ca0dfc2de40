//! What a test makes of the fake's answers.

use std::fmt;
use std::sync::Arc;

/// A call of [`crate::Systemd`] that can be scripted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Verb {
    Start,
    Stop,
    Restart,
    Enable,
    Disable,
    /// `unit` is empty.
    Reload,
    ResetFailed,
    /// The query of a unit's state.
    Unit,
    /// The last lines of its journal.
    LastLines,
}

/// What a scripted call does instead.
#[derive(Clone, Debug)]
pub enum Script {
    /// Systemd refuses the call with this text; nothing changes.
    Refuse(String),
    /// The job runs and fails: the unit is `failed` with this result (`exit-code`, `timeout`, ...) and exit status.
    Fail {
        /// The unit's `Result`.
        result: String,
        /// Exit code or signal of the main process.
        exit_status: i32,
    },
    /// The job never ends: the deadline passes. The unit is `activating` or `deactivating`.
    Hang,
    /// The start succeeds; then the main process ends with this status, and the unit is `failed`.
    DieAfterStart(i32),
}

impl Script {
    /// The program exits with this code.
    pub fn exit(code: i32) -> Self {
        Script::Fail { result: "exit-code".to_owned(), exit_status: code }
    }
}

/// A script in its place.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) verb: Verb,
    pub(super) unit: String,
    pub(super) script: Script,
    /// How often it still counts; `None` for always.
    pub(super) left: Option<usize>,
}

/// Something a test does when a call has succeeded.
#[derive(Clone)]
pub(super) struct Hook {
    pub(super) verb: Verb,
    pub(super) unit: String,
    pub(super) run: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hook({:?} {})", self.verb, self.unit)
    }
}

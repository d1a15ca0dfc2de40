//! What every backend can do, and the words that it is asked in.

use async_trait::async_trait;
use flexnode_host::{FsError, HostError, Output, UnitState};
use flexnode_ops::{StepError, StepFailure, report};
use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How the node stack is separated from the host; the value of the configuration key `node.isolation`.
pub use flexnode_model::Isolation as Mode;

/// A reference to a slot by its name.
pub trait SlotRef: Send + Sync {
    /// The slot's name.
    fn slot(&self) -> &str;
}

impl SlotRef for str {
    fn slot(&self) -> &str {
        self
    }
}

impl SlotRef for String {
    fn slot(&self) -> &str {
        self
    }
}

impl SlotRef for flexnode_model::SlotName {
    fn slot(&self) -> &str {
        self.as_str()
    }
}

impl<T: SlotRef + ?Sized> SlotRef for &T {
    fn slot(&self) -> &str {
        (**self).slot()
    }
}

/// Where the installers put what belongs to one slot. They never join host paths themselves.
pub trait NodeRoot: SlotRef + fmt::Debug {
    /// The host path of a path as the node stack sees it (`/usr/local/bin/kubelet`).
    fn path(&self, in_node: &Path) -> PathBuf;
    /// The host path of a configuration file that belongs to this slot, by its relative name (`kubelet/config.yaml`).
    /// It is right also while another slot runs.
    fn config(&self, name: &str) -> PathBuf;
}

/// Host resources that the node stack needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Device nodes, such as `/dev/fuse`. Each must exist.
    pub devices: Vec<PathBuf>,
    /// Host paths that the stack uses. Each must exist.
    pub host_paths: Vec<PathBuf>,
    /// NVIDIA devices are used.
    pub nvidia: bool,
}

/// What [`Backend::prepare`] installs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSpec {
    /// The slot's name.
    pub slot: String,
    /// Fingerprint of the goal that the slot is made from; kept in its manifest.
    pub goal: String,
    /// Host resources that must be there.
    pub grants: Grants,
}

impl SlotRef for NodeSpec {
    fn slot(&self) -> &str {
        &self.slot
    }
}

/// What a mode needs from a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Paths below which the agent has to write.
    pub writable_paths: Vec<PathBuf>,
    /// Programs that must be on the PATH.
    pub commands: Vec<String>,
    /// A cgroup file system must be mounted.
    pub cgroups: bool,
}

/// One unit of the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitStatus {
    /// Its name.
    pub unit: String,
    /// What systemd knows of it.
    pub state: UnitState,
}

/// What the stack is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Every unit of the stack is active.
    pub running: bool,
    /// The active slot, if there is one.
    pub slot: Option<String>,
    /// The units, in start order.
    pub units: Vec<UnitStatus>,
}

/// A program to run in the node stack's environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecRequest {
    /// Program and arguments. Never a secret.
    pub argv: Vec<String>,
    /// Standard input.
    pub stdin: Vec<u8>,
    /// After this it is killed.
    pub deadline: Duration,
}

impl ExecRequest {
    /// Runs `argv` for at most a minute without input.
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self { argv: argv.into_iter().map(Into::into).collect(), stdin: Vec::new(), deadline: Duration::from_mins(1) }
    }
}

/// Which journal lines are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRequest {
    /// One of the agent's units; `None` for containerd and kubelet together.
    pub unit: Option<String>,
    /// Lines from the end that come first.
    pub lines: usize,
    /// Whether to go on with new lines until the caller drops the future.
    pub follow: bool,
}

/// Is given one line after the other, without its line end.
pub type LogSink<'a> = dyn FnMut(&str) + Send + 'a;

/// Several failures of an operation that goes on after a failure; each is told in the order in which it happened.
#[derive(Debug)]
pub struct JoinedErrors(pub Vec<StepError>);

impl fmt::Display for JoinedErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "; then " })?;
            f.write_str(&report::line(error))?;
        }
        Ok(())
    }
}

impl StdError for JoinedErrors {}

/// An operation that failed and went back.
#[derive(Debug)]
pub struct RolledBack {
    /// The step that failed first.
    pub failure: StepFailure,
    /// What failed on the way back, in this order. Empty: the previous version was started again.
    pub rollback: Vec<StepFailure>,
}

impl fmt::Display for RolledBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&report::joined(&report::line(&self.failure), &self.rollback))
    }
}

impl StdError for RolledBack {}

impl From<RolledBack> for Error {
    fn from(error: RolledBack) -> Self {
        Error::RolledBack(Box::new(error))
    }
}

/// Why a backend could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Version directories, links, completeness.
    #[error(transparent)]
    Layout(#[from] crate::none::LayoutError),
    /// A slot's content against its manifest.
    #[error(transparent)]
    Slot(#[from] crate::none::SlotError),
    /// A unit could not be rendered or written.
    #[error(transparent)]
    Unit(#[from] crate::none::UnitError),
    /// The host does not provide what is needed, or runs what is not ours.
    #[error(transparent)]
    Preflight(#[from] crate::none::PreflightError),
    /// A file operation.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// An effect on the host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// What a hook answered.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A step of an operation failed; running it again goes on.
    #[error(transparent)]
    Failed(StepFailure),
    /// A step failed and the way back was gone.
    #[error(transparent)]
    RolledBack(#[from] Box<RolledBack>),
    /// The operation ended because this was asked for.
    #[error("it was cancelled before step {step}")]
    Cancelled {
        /// The step that did not run to its end.
        step: String,
    },
    /// The engine refused or failed to run an operation.
    #[error(transparent)]
    Engine(#[from] flexnode_ops::EngineError),
    /// Several steps of an operation that attempts every one.
    #[error(transparent)]
    Joined(#[from] JoinedErrors),
    /// A program ended with a failure.
    #[error("{program} ended with {status}: {stderr}")]
    Exec {
        /// The program.
        program: String,
        /// `exit status 1`, `a signal`.
        status: String,
        /// The end of what it wrote to standard error, bounded.
        stderr: String,
    },
    /// The request makes no sense.
    #[error("{0}")]
    Request(String),
}

/// One way to run the node stack.
#[async_trait]
pub trait Backend: Send + Sync + fmt::Debug {
    /// Which one.
    fn mode(&self) -> Mode;

    /// What it needs from a host. Constant.
    fn requirements(&self) -> Requirements;

    /// Refuses a host that lacks what is needed or already runs a kubelet or containerd that is not the agent's. Changes
    /// nothing.
    fn preflight(&self) -> Result<(), Error>;

    /// Installs a slot and writes what runs it, for a node that is not running. Does not activate it.
    async fn prepare(&self, spec: &NodeSpec) -> Result<Box<dyn NodeRoot>, Error>;

    /// Makes `slot` the active one and returns the slot that it replaced.
    async fn activate(&self, slot: &dyn SlotRef) -> Result<Option<String>, Error>;

    /// Starts the stack in order, with a gate after each unit. Stops at the first failure.
    async fn start(&self, slot: &dyn SlotRef) -> Result<(), Error>;

    /// Stops the stack in reverse order. Every unit is attempted.
    async fn stop(&self, slot: &dyn SlotRef) -> Result<(), Error>;

    /// Restarts the stack in start order. Pods are left alone, the host is never rebooted.
    async fn restart(&self, slot: &dyn SlotRef) -> Result<(), Error>;

    /// What the stack is now.
    async fn status(&self, slot: &dyn SlotRef) -> Result<Status, Error>;

    /// Runs a program in the stack's environment; a non-zero exit is an error.
    async fn exec(&self, slot: &dyn SlotRef, request: &ExecRequest) -> Result<Output, Error>;

    /// Gives journal lines of the stack's units to `sink`.
    async fn logs(&self, slot: &dyn SlotRef, request: &LogRequest, sink: &mut LogSink<'_>) -> Result<(), Error>;

    /// Removes everything that the backend made. Succeeds on a node that was never or half prepared, and again.
    async fn destroy(&self, slot: &dyn SlotRef) -> Result<(), Error>;
}

//! Runs operations: journal, deadlines, fail points, progress, cancellation, the way back.

use crate::failpoint::{FailPointError, FailPoints};
use crate::journal::{Journal, JournalError};
use crate::resolve::{Resolution, resolve};
use crate::run::Run;
use crate::{Cancel, Observer, Operation, Recovery, Report};
use flexnode_host::{Clock, Host, HostError};
use flexnode_model::journal::{Ending, JournalRecord, Phase, Subject, Writer};
use std::sync::Arc;

/// An operation that was not begun. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The boot's identity cannot be read.
    #[error("the identity of this boot cannot be read")]
    BootId(#[source] HostError),
    /// Another operation has not ended.
    #[error("{}", open_text(.0))]
    Open(Box<JournalRecord>),
    /// The record is not the one that was to be recovered: another process took it.
    #[error("the interrupted {0} was taken up by another process")]
    Taken(String),
    /// The operation given does not fit the record: a mistake of this program.
    #[error("the record is of {record}, the operation given is {operation}")]
    Mismatch {
        /// What the record says.
        record: String,
        /// What was given.
        operation: String,
    },
    /// The operation is malformed: a mistake of this program.
    #[error("{0}")]
    Malformed(String),
    /// The fail points of the environment are malformed.
    #[error(transparent)]
    FailPoint(#[from] FailPointError),
    /// A fail point names no step of the operation.
    #[error("fail point {0}: the operation has no such step")]
    UnknownFailPoint(String),
}

fn open_text(record: &JournalRecord) -> String {
    let step = if record.step.is_empty() { "its first step" } else { &record.step };
    let subject = match &record.to {
        Some(to) => format!("{} to {to}", record.operation),
        None => record.operation.clone(),
    };
    match record.failed_step {
        Some(_) if !record.is_interrupted() => format!("an earlier {subject} has not ended: it failed at step {step}"),
        _ => format!("an earlier {subject} was interrupted at step {step}"),
    }
}

/// How a run meets what was before it, and what it leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// It takes the place of whatever has not ended, also of a record that cannot be read: reset and destroy, which end
    /// well from every state.
    pub supersede: bool,
    /// When it is done, the journal goes whole: the end of a reset.
    pub forget: bool,
    /// An interrupted operation that has a way back goes on instead of going it; a failure of what follows still goes back.
    /// For a caller that knows how far it came.
    pub forward: bool,
}

/// Runs operations on one host. The caller holds the host's lock while it runs one.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) journal: Journal,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) by: Writer,
    pub(crate) fail_points: FailPoints,
    pub(crate) cancel: Cancel,
}

impl Engine {
    /// An engine on this host's journal. `owner` is what this process is, for a person: `command`, `daemon`.
    pub fn new(host: &Host, owner: &str, cancel: Cancel) -> Result<Self, EngineError> {
        let boot_id = host.kernel.boot_id().map_err(EngineError::BootId)?;
        Ok(Self {
            journal: Journal::new(host.fs.clone()),
            clock: host.clock.clone(),
            by: Writer { boot_id, pid: std::process::id(), owner: owner.to_owned() },
            fail_points: FailPoints::from_env()?,
            cancel,
        })
    }

    /// An engine of given parts. The product uses [`Engine::new`].
    pub fn of_parts(journal: Journal, clock: Arc<dyn Clock>, by: Writer, cancel: Cancel) -> Result<Self, EngineError> {
        Ok(Self { journal, clock, by, fail_points: FailPoints::from_env()?, cancel })
    }

    /// With the fail points of `value` (the form of [`crate::failpoint::VARIABLE`]) instead of the environment's.
    #[cfg(any(test, feature = "failpoints"))]
    pub fn with_fail_points(mut self, value: &str) -> Result<Self, EngineError> {
        self.fail_points = FailPoints::new(value)?;
        Ok(self)
    }

    /// The journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The flag that ends operations early.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Runs the steps of `operation` in order.
    ///
    /// The record is durable before the first step that may change something and at each boundary behind it. An earlier
    /// run of the same operation that may be resumed is taken up: all steps run again, the attempt is counted. One that
    /// has to be rolled back, or another operation that has not ended, is refused with [`EngineError::Open`].
    ///
    /// A cancelled operation keeps its record like a failed one when it resumes, and closes it otherwise.
    pub async fn run(&self, operation: &Operation, observer: Arc<dyn Observer>) -> Result<Report, EngineError> {
        self.run_with(operation, observer, Mode::default()).await
    }

    /// As [`Engine::run`], in another mode.
    pub async fn run_with(
        &self,
        operation: &Operation,
        observer: Arc<dyn Observer>,
        mode: Mode,
    ) -> Result<Report, EngineError> {
        self.check(operation)?;
        let last = match self.journal.last() {
            Err(JournalError::Unreadable { .. }) if mode.supersede => None,
            other => other?,
        };
        let (record, displaced) = self.begin(operation, last, mode)?;
        Ok(Run::new(self, operation, observer, record, displaced, mode.forget).forward().await)
    }

    /// Does what [`resolve`] says with `record`, which is the journal's open one. `operation` is made by the caller from
    /// what the record says: its kind, and for a way back also what was left and gone to.
    pub async fn recover(
        &self,
        record: &JournalRecord,
        operation: &Operation,
        observer: Arc<dyn Observer>,
        mode: Mode,
    ) -> Result<Report, EngineError> {
        self.check(operation)?;
        let same = |kind: &str, from: &Option<String>, to: &Option<String>| {
            kind == record.operation
                && (matches!(operation.recovery, Recovery::Resume) || (*from == record.from && *to == record.to))
        };
        if !same(operation.kind, &operation.from, &operation.to) {
            let text = |kind: &str, from: &Option<String>, to: &Option<String>| {
                format!(
                    "{kind} from {} to {}",
                    from.as_deref().unwrap_or("nothing"),
                    to.as_deref().unwrap_or("nothing")
                )
            };
            return Err(EngineError::Mismatch {
                record: text(&record.operation, &record.from, &record.to),
                operation: text(operation.kind, &operation.from, &operation.to),
            });
        }
        let Some(mut record) = self.journal.open()?.filter(|open| open.id == record.id) else {
            return Err(EngineError::Taken(record.operation.clone()));
        };
        let resolution = resolve(&record, operation);
        let back_already = record.phase == Phase::RollingBack;
        record.take_up(&self.by, self.clock.now());
        let run = Run::new(self, operation, observer, record, None, mode.forget);
        match resolution {
            Resolution::Resume => Ok(run.forward().await),
            Resolution::RollBack if mode.forward && !back_already => Ok(run.forward().await),
            Resolution::RollBack => Ok(run.interrupted_back().await),
            Resolution::Close => Ok(run.discard()?),
        }
    }

    /// The record to run under, and the closed one that it takes the place of.
    fn begin(
        &self,
        operation: &Operation,
        last: Option<JournalRecord>,
        mode: Mode,
    ) -> Result<(JournalRecord, Option<JournalRecord>), EngineError> {
        let now = self.clock.now();
        let previous = last.as_ref().map(|record| record.id.clone());
        let displaced = match last {
            None => None,
            Some(closed) if !closed.is_open() => Some(closed),
            Some(mut open) => {
                let of_kind = open.operation == operation.kind;
                let same_goal = open.goal == operation.goal && open.from == operation.from && open.to == operation.to;
                match resolve(&open, operation) {
                    Resolution::Resume if of_kind && same_goal => {
                        open.take_up(&self.by, now);
                        return Ok((open, None));
                    }
                    Resolution::Resume | Resolution::Close if of_kind => open.close(Ending::Superseded, None, now),
                    _ if mode.supersede => open.close(Ending::Superseded, None, now),
                    _ => return Err(EngineError::Open(Box::new(open))),
                }
                Some(open)
            }
        };
        let subject = Subject {
            operation: operation.kind.to_owned(),
            goal: operation.goal.clone(),
            from: operation.from.clone(),
            to: operation.to.clone(),
            answer: Some(operation.recovery.answer()),
        };
        let mut id = format!("{}-{}", now.strftime("%Y%m%dT%H%M%S%3fZ"), self.by.pid);
        if previous.is_some_and(|previous| previous == id || previous.starts_with(&format!("{id}-"))) {
            id = format!("{id}-{}", now.subsec_nanosecond());
        }
        Ok((JournalRecord::open(id, subject, &self.by, now), displaced))
    }

    fn check(&self, operation: &Operation) -> Result<(), EngineError> {
        operation.check().map_err(EngineError::Malformed)?;
        for (way, steps) in [
            (operation.kind.to_owned(), &operation.steps[..]),
            (format!("{}.rollback", operation.kind), operation.way_back()),
        ] {
            let names: Vec<&'static str> = steps.iter().map(|step| step.name).collect();
            if let Some(point) = self.fail_points.unknown(&way, &names) {
                return Err(EngineError::UnknownFailPoint(point.to_string()));
            }
        }
        Ok(())
    }
}

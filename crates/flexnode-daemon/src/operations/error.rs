//! Why an operation on a running node did not end well.

use super::evidence;
use crate::lock::LockFailure;
use crate::start::error::UNFINISHED;
use crate::start::{Kind, StartError};
use flexnode_isolation::Error;
use flexnode_ops::{EngineError, Report, RunOutcome, StepError, StepFailure};
use std::path::PathBuf;
use std::time::Duration;

/// What a caller's exit code is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// It failed (exit 1).
    Failed,
    /// What was asked for or the configuration is wrong (exit 2).
    Usage,
    /// Somebody has to say yes (exit 5).
    Unconfirmed,
    /// Another operation runs (exit 6).
    Busy,
    /// It failed, and the old version runs (exit 7).
    RolledBack,
}

/// Why an operation did not end well. Display says this layer only.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// Nothing was ever started here.
    #[error("this host is not a node of this agent: no state is recorded")]
    NotANode,
    /// What was recorded cannot be read.
    #[error("what was recorded of this machine cannot be read")]
    State(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A version has no record of its goal.
    #[error("the goal of this version is not in {}", .0.display())]
    NoGoal(PathBuf),
    /// Configuration or source.
    #[error(transparent)]
    Start(#[from] StartError),
    /// What was asked for makes no sense here.
    #[error("{text}")]
    Refused {
        /// Why, in a sentence.
        text: String,
        /// What to do.
        hint: String,
    },
    /// A person has to confirm it.
    #[error("{0}")]
    Unconfirmed(String),
    /// Another process holds the lock.
    #[error("another operation runs on this host")]
    Busy(#[source] LockFailure),
    /// The backend.
    #[error(transparent)]
    Backend(#[from] Error),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A step failed and nothing was taken back.
    #[error("step {step} failed")]
    Step {
        /// Its name.
        step: String,
        /// Why.
        #[source]
        source: StepError,
    },
    /// A step failed and the old version runs again.
    #[error("step {step} failed, and the node went back to {to}, which runs{}", was_down(*.down))]
    RolledBack {
        /// The step that failed.
        step: String,
        /// The version that runs.
        to: String,
        /// How long the node was down.
        down: Option<Duration>,
        /// Where the evidence of the failure is.
        evidence: PathBuf,
        /// Why.
        #[source]
        source: Box<StepError>,
    },
    /// A step failed and the way back did too.
    #[error("step {step} failed, and on the way back to {to}: {}", failures(.back))]
    RollbackFailed {
        /// The step that failed.
        step: String,
        /// The version that was gone back to.
        to: String,
        /// Where the evidence of the failure is.
        evidence: PathBuf,
        /// Why.
        #[source]
        source: Box<StepError>,
        /// What failed on the way back.
        back: Vec<StepFailure>,
    },
    /// It was ended from outside.
    #[error("it was ended before step {0}; nothing was taken down")]
    Cancelled(String),
}

/// For a person, behind what ended.
fn was_down(down: Option<Duration>) -> String {
    down.map(|down| format!("; it was down for {:.1} s", down.as_secs_f64())).unwrap_or_default()
}

fn failures(back: &[StepFailure]) -> String {
    back.iter().map(|failure| flexnode_ops::report::line(failure)).collect::<Vec<_>>().join("; then ")
}

impl OperationError {
    /// What it means for the exit code.
    pub fn kind(&self) -> OperationKind {
        match self {
            Self::Start(e) => match e.kind() {
                Kind::Usage => OperationKind::Usage,
                Kind::Busy => OperationKind::Busy,
                Kind::Failed | Kind::NotReady => OperationKind::Failed,
            },
            Self::Refused { .. } => OperationKind::Usage,
            Self::Unconfirmed(_) => OperationKind::Unconfirmed,
            Self::Busy(_) => OperationKind::Busy,
            Self::RolledBack { .. } => OperationKind::RolledBack,
            _ => OperationKind::Failed,
        }
    }

    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotANode => Some("aks-flex-node start".into()),
            Self::Start(e) => e.hint(),
            Self::Refused { hint, .. } => Some(hint.clone()),
            Self::Unconfirmed(_) => Some("the same command with --yes".into()),
            Self::Busy(_) => Some("wait until it is over".into()),
            Self::Step { source, .. } => source.hint.clone(),
            Self::RolledBack { source, evidence, .. } => {
                let kept = format!("what was seen of it is in {}", evidence.display());
                Some(source.hint.as_ref().map_or(kept.clone(), |hint| format!("{kept}; {hint}")))
            }
            Self::RollbackFailed { evidence, .. } => Some(format!(
                "aks-flex-node status; journalctl -u unbounded-kubelet -u unbounded-containerd; cat {}",
                evidence.display()
            )),
            Self::Engine(EngineError::Open(record)) if record.is_interrupted() => Some(UNFINISHED.into()),
            Self::Engine(EngineError::Open(record)) => Some(format!("aks-flex-node {} finishes it", record.operation)),
            _ => None,
        }
    }
}

/// Whether the report is that of a good end; says whether anything changed. `from` is what a failure goes back to, `to` what
/// was gone to.
pub(super) fn outcome(
    report: Report,
    (from, to): (&str, &str),
    down: Option<Duration>,
) -> Result<bool, OperationError> {
    let (evidence, to) = (evidence::path(to), from.to_owned());
    match report.outcome {
        RunOutcome::Done { changed } => Ok(changed),
        RunOutcome::Failed { step, error } => Err(OperationError::Step { step, source: error }),
        RunOutcome::RolledBack { step, error, rollback_errors } if rollback_errors.is_empty() => {
            Err(OperationError::RolledBack { step, to, down, evidence, source: Box::new(error) })
        }
        RunOutcome::RolledBack { step, error, rollback_errors } => {
            Err(OperationError::RollbackFailed { step, to, evidence, source: Box::new(error), back: rollback_errors })
        }
        RunOutcome::Cancelled { before_step } | RunOutcome::Discarded { step: before_step } => {
            Err(OperationError::Cancelled(before_step))
        }
    }
}

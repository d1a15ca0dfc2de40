//! Why `start` did not end well.

use crate::config_file::ConfigFileError;
use crate::preflight::Finding;
use flexnode_artifacts::ArtifactError;
use flexnode_host::HostError;
use flexnode_model::config::ConfigErrors;
use flexnode_model::{Difference, SlotNameError};
use flexnode_ops::{EngineError, StepError};
use std::path::PathBuf;
use std::time::Duration;

/// What a caller's exit code is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It failed; running it again goes on (exit 1).
    Failed,
    /// The configuration is wrong (exit 2).
    Usage,
    /// Another operation runs (exit 6).
    Busy,
    /// Joined, but not Ready in time (exit 8).
    NotReady,
}

/// Who finishes an operation that was interrupted.
pub(crate) const UNFINISHED: &str =
    "the agent's service finishes it within seconds; should it not run: systemctl start aks-flex-node-agent";

/// Why `start` did not end well. Display says this layer only; what to do is in [`StartError::hint`].
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration file cannot be read or is not safe.
    #[error(transparent)]
    ConfigFile(#[from] ConfigFileError),
    /// The configuration is wrong.
    #[error("the configuration {} cannot be used", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// Every problem.
        #[source]
        source: ConfigErrors,
    },
    /// This program does not run nspawn machines.
    #[error("node.isolation is nspawn, which this version of the agent does not support")]
    Isolation,
    /// Kubernetes version and fingerprint make no name of a directory.
    #[error("no version directory can be named for this configuration")]
    Slot(#[source] SlotNameError),
    /// Something of the host could not be looked at.
    #[error("the host could not be looked at")]
    Host(#[source] HostError),
    /// The artifact source does not give what is needed.
    #[error("the artifact source cannot be used")]
    Source(#[source] ArtifactError),
    /// The artifact source is not there.
    #[error("the artifact source {} is not there", path.display())]
    NoSource {
        /// Where it should be.
        path: PathBuf,
    },
    /// A Kubernetes version that was asked for is none.
    #[error("that is no version of Kubernetes: {0}")]
    Version(String),
    /// What was recorded of the machine cannot be read.
    #[error("what was recorded of this machine cannot be read")]
    State(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The active version has no record of its goal.
    #[error("the goal that was applied last is not in {}", path.display())]
    NoGoal {
        /// Where it should be.
        path: PathBuf,
    },
    /// Another process holds the lock.
    #[error("another operation runs on this host")]
    Busy(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Another operation did not end.
    #[error("an earlier {operation} {} at step {step} and has to be finished first", if *.interrupted { "was interrupted" } else { "failed" })]
    Unfinished {
        /// Its kind.
        operation: String,
        /// Where it stands.
        step: String,
        /// Its process was killed or the machine went down; otherwise it failed and waits for a person.
        interrupted: bool,
    },
    /// The machine has another goal.
    #[error("this machine is a node already, with another goal; nothing was changed")]
    Differs {
        /// What is different, from the machine to the configuration.
        differences: Vec<Difference>,
    },
    /// A check before the first change.
    #[error("{} of the checks before the first change failed; nothing was changed", .0.len())]
    Preflight(Vec<Finding>),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A step failed.
    #[error("step {step} failed")]
    Step {
        /// Its name.
        step: String,
        /// Why.
        #[source]
        source: StepError,
    },
    /// It was ended from outside.
    #[error("it was ended before step {before_step}; running it again continues")]
    Cancelled {
        /// The step that did not run.
        before_step: String,
    },
    /// Joined, but not Ready in time. Nothing was undone.
    #[error("the host has joined as {node}, but it is not Ready after {} s: {why}", after.as_secs())]
    NotReady {
        /// Name of the Node.
        node: String,
        /// How long it was waited for.
        after: Duration,
        /// The last that was seen.
        why: String,
    },
}

impl StartError {
    /// What it means for the exit code.
    pub fn kind(&self) -> Kind {
        match self {
            Self::ConfigFile(_) | Self::Config { .. } | Self::Isolation | Self::Slot(_) | Self::Version(_) => {
                Kind::Usage
            }
            Self::Busy(_) => Kind::Busy,
            Self::NotReady { .. } => Kind::NotReady,
            _ => Kind::Failed,
        }
    }

    /// What to do about it, where that is known: a command, a file to look into.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::ConfigFile(e) => e.hint(),
            Self::Isolation => Some("set node.isolation to none, or leave it out".into()),
            Self::State(_) | Self::NoGoal { .. } => {
                Some("aks-flex-node reset removes the node also without it; then start again".into())
            }
            Self::NoSource { .. } => {
                Some("put the bundle there again, or correct bootstrap.offlineArtifacts.source".into())
            }
            Self::Unfinished { operation, interrupted: false, .. } => {
                Some(format!("aks-flex-node {operation} finishes it"))
            }
            Self::Unfinished { .. } => Some(UNFINISHED.into()),
            Self::Differs { differences } => {
                let keep = if differences.iter().all(Difference::is_editable) {
                    "; to keep what runs, edit these lines of the configuration"
                } else {
                    ""
                };
                let upgrade =
                    "aks-flex-node upgrade changes the node to this configuration, and goes back if that fails";
                Some(format!("{upgrade}{keep}"))
            }
            Self::Step { source, .. } => source.hint.clone(),
            Self::NotReady { node, .. } => Some(format!(
                "kubectl describe node {node}; journalctl -u unbounded-kubelet -u unbounded-containerd; aks-flex-node status"
            )),
            _ => None,
        }
    }
}

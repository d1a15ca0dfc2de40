//! Upgrade: from the goal that is applied to another one, and back by itself when the new one does not come up.
//!
//! Everything that can be done while the old version runs is done before the stop. The rest is the backend's upgrade.

pub mod decide;
mod saved;
mod steps;

pub use decide::{Decision, decide};
#[cfg(test)]
pub(in crate::operations) use steps::of_installed;
pub(super) use steps::{look_at_node, recovery};

use super::error::outcome;
use super::{NodeContext, OperationError, applied, execute, lock};
use crate::lock::Held;
use crate::start::{Prepared, StartError, prepare, prepare_goal};
use flexnode_isolation::none::run::kind;
use flexnode_model::config::values::version;
use flexnode_model::{Difference, MachineGoal};
use flexnode_ops::{Cancel, Observer, Operation};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The reason that is recorded when a person goes back from a goal that had come up.
pub const BY_PERSON: &str = "a person went back from it";

/// What is gone to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// What a configuration file says.
    Config(PathBuf),
    /// The applied goal with another Kubernetes version, without `v`. The source is the configuration's.
    Version(String),
}

/// How a person wants it.
#[derive(Clone, Debug)]
pub struct UpgradeOptions {
    /// What is gone to.
    pub target: Target,
    /// What has to be confirmed is.
    pub yes: bool,
    /// A goal that failed is tried again.
    pub retry: bool,
    /// A failure goes back.
    pub rollback: bool,
}

/// What an upgrade would do.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The version that runs.
    pub from: String,
    /// The goal and all that belongs to it.
    pub prepared: Arc<Prepared>,
    /// Whether it may be run.
    pub decision: Decision,
    /// The steps.
    pub operation: Operation,
}

/// How an upgrade ended well.
#[derive(Clone, Debug)]
pub struct UpgradeReport {
    /// The version before.
    pub from: String,
    /// The version that runs.
    pub to: String,
    /// Whether anything on the host was changed.
    pub changed: bool,
    /// What may not be as meant.
    pub warnings: Vec<String>,
    /// The configuration file does not say what runs now: the lines to edit.
    pub edits: Vec<Difference>,
    /// How long the node was down, from the first stop until kubelet was well; `None`: it was not.
    pub down: Option<Duration>,
}

/// Reads everything and decides. Changes nothing.
pub async fn plan(context: &NodeContext, options: &UpgradeOptions) -> Result<Planned, OperationError> {
    let (state, _) = context.state()?;
    let from = context.backend().current().map_err(flexnode_isolation::Error::from)?;
    let from = from.ok_or(OperationError::NotANode)?;
    let applied = context.goal_of(&from)?;
    let (host, old, target) = (context.host().clone(), applied.clone(), options.target.clone());
    let config = context.start.config.clone();
    let prepared = tokio::task::spawn_blocking(move || match target {
        Target::Config(path) => prepare(&host, &path, Some(&old)),
        Target::Version(version) => {
            let wanted = version::version(&version).map_err(|fault| StartError::Version(fault.to_string()))?;
            prepare_goal(&host, &config, MachineGoal { kubernetes_version: wanted, ..old })
        }
    })
    .await
    .map_err(|e| OperationError::State(Box::new(e)))??;
    let decision = decide(&applied, &prepared.goal, &state, options.retry);
    let prepared = Arc::new(prepared);
    let operation = steps::operation(context, &prepared, &from, &applied, options.rollback);
    Ok(Planned { from, prepared, decision, operation })
}

/// Upgrades.
pub async fn run(
    context: &NodeContext,
    options: &UpgradeOptions,
    observer: Arc<dyn Observer>,
    cancel: Cancel,
) -> Result<UpgradeReport, OperationError> {
    let lock: Box<dyn Held> = lock(context, kind::UPGRADE)?;
    let planned = plan(context, options).await?;
    match planned.decision {
        Decision::Go => {}
        Decision::Confirm(_) if options.yes => {}
        Decision::Confirm(question) => return Err(OperationError::Unconfirmed(question)),
        Decision::Refuse(text, hint) => return Err(OperationError::Refused { text, hint }),
    }
    let (report, down) = execute(context, &planned.operation, observer, cancel, lock).await?;
    let (from, to) = (planned.from, planned.prepared.slot.to_string());
    let changed = outcome(report, (&from, &to), down)?;
    let edits = applied::edits(context.host(), &context.start.config, &planned.prepared.goal).await.unwrap_or_default();
    Ok(UpgradeReport { from, to, changed, warnings: planned.prepared.warnings.clone(), edits, down })
}

//! What happens to a node after its start: upgrade, rollback, restart, stop, start again.
//!
//! There is one upgrade, the backend's list of steps. What the agent adds is plugged into it: ending the pods through the
//! runtime, the state files of kubelet and containerd, readiness, and what is recorded.

pub mod applied;
mod downtime;
pub mod error;
pub mod evidence;
pub mod lifecycle;
pub mod ready;
pub mod recover;
pub mod rollback;
pub mod slots;
pub mod state_files;
pub mod upgrade;

#[cfg(test)]
mod tests;

pub use error::{OperationError, OperationKind};

use crate::lock::Held;
use crate::start::{StartContext, gates};
use crate::state::{StateStore, StateStoreError};
use async_trait::async_trait;
use downtime::Downtime;
use flexnode_host::cri::{SandboxEnd, end_all_sandboxes};
use flexnode_host::{Fs, Host};
use flexnode_isolation::none::run::kind;
use flexnode_isolation::none::{Backend, Hook, Layout, RollbackUnits};
use flexnode_kube::{ApiProblem, Names, NodeClient};
use flexnode_model::state::Extension;
use flexnode_model::{MachineGoal, State};
use flexnode_ops::{Cancel, Engine, Mode, Observer, Operation, Outcome, Report, RunOutcome, StepError, failpoint};
use flexnode_stack::places;
use flexnode_status::node::NodeView;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long pods may take to end through the runtime; what remains is ended by force.
pub const END_PODS: Duration = Duration::from_secs(10);
/// How long the processes of a new version are watched.
pub const PROBATION: Duration = Duration::from_secs(30);
/// Seconds instead of [`PROBATION`], in builds with fail points only.
pub const PROBATION_SETTING: &str = "FLEXNODE_PROBATION";
/// Looking, and small changes to files.
const SHORT: Duration = Duration::from_mins(1);
const GOAL_LIMIT: u64 = 4 << 20;

/// Reads the own Node with kubelet's credentials.
#[async_trait]
pub trait SeeNode: Send + Sync + Debug {
    /// The Node of this name; `None` when there is none.
    async fn see(&self, node: &str, deadline: Duration) -> Result<Option<NodeView>, ApiProblem>;
}

/// The real API server.
#[derive(Clone, Debug)]
pub struct RealNode {
    /// Where kubelet's credentials are.
    pub fs: Arc<dyn Fs>,
    /// Host names to addresses.
    pub names: Names,
}

#[async_trait]
impl SeeNode for RealNode {
    async fn see(&self, node: &str, deadline: Duration) -> Result<Option<NodeView>, ApiProblem> {
        let names = self.names.clone();
        NodeClient::from_kubelet_credentials(self.fs.clone(), places::KUBECONFIG, node, names).get(deadline).await
    }
}

/// What the operations work with.
#[derive(Clone, Debug)]
pub struct NodeContext {
    /// What `start` works with too.
    pub start: StartContext,
    /// Reads the own Node.
    pub node: Arc<dyn SeeNode>,
    /// How long the processes of a new version are watched: [`PROBATION`].
    pub probation: Duration,
}

impl NodeContext {
    /// On this machine.
    pub fn new(start: StartContext) -> Self {
        let node = Arc::new(RealNode { fs: start.host.fs.clone(), names: start.names.clone() });
        Self { start, node, probation: failpoint::seconds(PROBATION_SETTING).unwrap_or(PROBATION) }
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.start.host
    }

    /// The arrangement of versions.
    pub fn layout(&self) -> Layout {
        Layout::default()
    }

    /// The backend with the gates of this host, the end of pods, and the units that each version recorded.
    pub fn backend(&self) -> Backend {
        let mut backend = Backend::new_default(self.host().clone(), tracing::Span::none());
        backend.layout = self.layout();
        backend.rollback_units = RollbackUnits::Recorded;
        backend.after_start = gates::hooks(self.host(), &self.start.cri, &self.start.probe);
        backend.after_restart = backend.after_start.clone();
        let cri = self.start.cri.clone();
        backend.end_sandboxes = Hook::new(END_PODS, move |cx| {
            let cri = cri.clone();
            async move {
                let ended = end_all_sandboxes(cri.as_ref(), SandboxEnd::Stop, END_PODS).await;
                let report = ended.map_err(|e| StepError::caused("the runtime does not tell its pods", e))?;
                if let Some(left) = report.remaining.first() {
                    let (n, pod) = (report.remaining.len(), left.sandbox.pod());
                    return Err(StepError::new(format!("{n} of them remain, {pod} first: {}", left.reason)));
                }
                cx.note(&format!("{} pods ended", report.ended.len()));
                Ok(Outcome::Unchanged)
            }
        });
        backend
    }

    /// The recorded state and its own part. A host without one is no node of ours.
    pub fn state(&self) -> Result<(State, Extension), OperationError> {
        let loaded = StateStore::new(self.host().fs.clone()).load();
        let state = loaded.map_err(|e| OperationError::State(Box::new(e)))?.ok_or(OperationError::NotANode)?;
        let extension = state.flexnode.clone().ok_or(OperationError::NotANode)?;
        Ok((state, extension))
    }

    /// The goal that a slot was made for.
    pub fn goal_of(&self, slot: &str) -> Result<MachineGoal, OperationError> {
        goal_of(self.host().fs.as_ref(), &self.layout(), slot)
    }
}

fn goal_of(fs: &dyn Fs, layout: &Layout, slot: &str) -> Result<MachineGoal, OperationError> {
    let path = layout.version_dir(slot).join("etc").join(places::config::GOAL);
    let bytes = fs.read(&path, GOAL_LIMIT).map_err(|e| OperationError::State(Box::new(e)))?;
    let bytes = bytes.ok_or_else(|| OperationError::NoGoal(path))?;
    MachineGoal::decode(&bytes).map_err(|e| OperationError::State(Box::new(e)))
}

/// Changes the recorded state, where there is one. The same state again writes nothing.
fn change_state(fs: &Arc<dyn Fs>, change: impl FnOnce(&mut State)) -> Result<Outcome, StepError> {
    let store = StateStore::new(fs.clone());
    let failed = |e: StateStoreError| StepError::caused("the state cannot be recorded", e);
    let Some(mut state) = store.load().map_err(failed)? else { return Ok(Outcome::Unchanged) };
    change(&mut state);
    let change = store.save(&state).map_err(failed)?;
    Ok(if change.made() { Outcome::Changed(String::new()) } else { Outcome::Unchanged })
}

/// Where the agent keeps what belongs to operations.
pub(crate) fn kept(name: &str) -> std::path::PathBuf {
    Path::new("/var/lib/aks-flex-node").join(name)
}

/// Runs an operation through the engine, under the lock; also says how long the node was down. What a person left behind
/// and what harms nothing makes way, and so does an upgrade without a way back that failed: whatever is done next is what
/// the person chose instead.
async fn execute(
    context: &NodeContext,
    operation: &Operation,
    observer: Arc<dyn Observer>,
    cancel: Cancel,
    lock: Box<dyn Held>,
) -> Result<(Report, Option<Duration>), OperationError> {
    let engine = Engine::new(context.host(), context.start.owner, cancel)?;
    let left = engine.journal().open().ok().flatten();
    let supersede = left.is_some_and(|record| {
        kind::MAY_BE_LEFT.contains(&record.operation.as_str())
            || (record.operation == kind::UPGRADE && !record.is_interrupted())
    });
    let watch = Arc::new(Downtime::new(observer, context.host().clock.clone()));
    let report = engine.run_with(operation, watch.clone(), Mode { supersede, ..Mode::default() }).await?;
    if let (RunOutcome::Failed { .. } | RunOutcome::Cancelled { .. }, Some(to)) = (&report.outcome, &operation.to) {
        // It ended between two steps: none of them could.
        context.backend().discard_incomplete(to);
    }
    drop(lock);
    Ok((report, watch.down()))
}

/// Takes the lock for an operation.
fn lock(context: &NodeContext, operation: &str) -> Result<Box<dyn Held>, OperationError> {
    context.start.locks.acquire(operation).map_err(OperationError::Busy)
}

//! Becoming a node: from a configuration file to a Node that is Ready.
//!
//! [`run`] reads the configuration, decides over what was recorded ([`decide`]), runs the steps ([`steps`]) through the
//! engine while it holds the host's lock, and last, without the lock, waits for the Node. Running it again on a node that
//! is as it should be changes nothing.

pub mod cluster;
pub mod decide;
pub mod error;
mod files;
pub mod gates;
mod goal;
mod images;
mod install;
mod join;
pub mod labels;
pub mod programs;
pub mod registered;
pub mod steps;

pub use cluster::{Cluster, Connect, RealCluster};
pub use error::{Kind, StartError};
pub use goal::{Prepared, Source, host_facts, prepare, prepare_goal, written_differences};
pub use steps::Parts;

use crate::lock::{Held, HostLocks, Locks};
use crate::preflight;
use crate::record::HostRecorder;
use crate::state::StateStore;
use decide::{Decision, Observed};
use flexnode_host::Host;
use flexnode_host::cri::{CONTAINERD_SOCKET, Cri, CriSocket};
use flexnode_host::probe::{LoopbackProbe, Probe};
use flexnode_isolation::none::{Layout, UNIT_KUBELET};
use flexnode_kube::node::{dns_warning, label_changes};
use flexnode_kube::{Names, ReadyOutcome, WaitReady};
use flexnode_model::MachineGoal;
use flexnode_ops::observer::Finish;
use flexnode_ops::{Cancel, Engine, Event, Journal, Observer, Operation, RunOutcome};
use flexnode_stack::places;
use flexnode_status::node::NodeView;
use registered::read_registered;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What is waited for at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until kubelet runs and has joined; the Node is not looked at.
    Joined,
    /// Until the Node is Ready, or only its network plugin is missing.
    Ready,
    /// Until the Node is Ready, whatever is missing: a person asked for it.
    ReadyForSure,
}

/// What `start` works with.
#[derive(Clone, Debug)]
pub struct StartContext {
    /// The host.
    pub host: Host,
    /// The host's lock.
    pub locks: Arc<dyn Locks>,
    /// The container runtime.
    pub cri: Arc<dyn Cri>,
    /// Questions to programs on this machine.
    pub probe: Arc<dyn Probe>,
    /// Host names to addresses.
    pub names: Names,
    /// The cluster, for a goal.
    pub connect: Arc<dyn Connect>,
    /// The configuration file.
    pub config: PathBuf,
    /// This running program.
    pub program: PathBuf,
    /// `command` or `daemon`, for the journal.
    pub owner: &'static str,
    /// What is waited for at the end.
    pub wait: Wait,
    /// How long it is waited for.
    pub timeout: Duration,
}

impl StartContext {
    /// On a real host: its lock, containerd's socket, this machine's names, a cluster over the network.
    pub fn real(host: Host, config: impl Into<PathBuf>, program: impl Into<PathBuf>) -> Self {
        Self {
            host,
            locks: Arc::new(HostLocks::default()),
            cri: Arc::new(CriSocket::new(CONTAINERD_SOCKET)),
            probe: Arc::new(LoopbackProbe),
            names: Names::system(),
            connect: Arc::new(RealCluster),
            config: config.into(),
            program: program.into(),
            owner: "command",
            wait: Wait::Ready,
            timeout: Duration::from_mins(5),
        }
    }
}

impl StartContext {
    /// What the steps for `prepared` work with.
    pub fn parts(&self, prepared: &Arc<Prepared>, layout: Layout) -> Parts {
        let host = &self.host;
        Parts {
            host: host.clone(),
            cri: self.cri.clone(),
            probe: self.probe.clone(),
            cluster: self.connect.connect(host, &self.names, prepared),
            prepared: prepared.clone(),
            config: self.config.clone(),
            program: self.program.clone(),
            recorder: Arc::new(HostRecorder::new(host, &self.config, &prepared.goal.node_name)),
            layout,
        }
    }
}

/// How `start` ended well.
#[derive(Clone, Debug)]
pub struct StartReport {
    /// Name of the Node.
    pub node: String,
    /// The active slot.
    pub slot: String,
    /// Whether anything on the host was changed.
    pub changed: bool,
    /// The Node as it was seen last; `None` when it was not waited for and could not be seen.
    pub view: Option<NodeView>,
    /// Only the network plugin is missing, which the cluster brings.
    pub network_missing: bool,
    /// Labels that were patched on the Node.
    pub labels: Vec<String>,
    /// Commands that a person has to run for the Node's taints.
    pub taint_commands: Vec<String>,
    /// What may not be as meant.
    pub warnings: Vec<String>,
}

const CLUSTER_DEADLINE: Duration = Duration::from_secs(10);
/// How long a network plugin that a DaemonSet brings is waited for before `start` ends well without it.
const NETWORK_PATIENCE: Duration = Duration::from_secs(30);
/// The wait's name in progress: it is no step of the operation, which is over then.
const WAIT_STEP: &str = "wait-ready";
const GOAL_LIMIT: u64 = 4 << 20;

/// Makes this host a node, or sees that it is one.
pub async fn run(
    context: &StartContext,
    observer: Arc<dyn Observer>,
    cancel: Cancel,
) -> Result<StartReport, StartError> {
    let lock = prelude(context)?;
    run_locked(context, observer, cancel, lock).await
}

/// As [`run`], for a caller that holds the lock already: the daemon that takes an interrupted start up.
pub async fn run_locked(
    context: &StartContext,
    observer: Arc<dyn Observer>,
    cancel: Cancel,
    lock: Box<dyn Held>,
) -> Result<StartReport, StartError> {
    let host = &context.host;
    let planned = plan(context).await?;
    let before = read_registered(host.fs.as_ref());
    let engine = Engine::new(host, context.owner, cancel)?;
    let after = observer.clone();
    let report = engine.run(&planned.operation, observer).await?;
    drop(lock);
    let changed = report.changed();
    match report.outcome {
        RunOutcome::Done { .. } => {}
        RunOutcome::Failed { step, error } | RunOutcome::RolledBack { step, error, .. } => {
            return Err(StartError::Step { step, source: error });
        }
        RunOutcome::Cancelled { before_step } | RunOutcome::Discarded { step: before_step } => {
            return Err(StartError::Cancelled { before_step });
        }
    }
    let prepared = planned.prepared;
    let mut done = StartReport {
        node: prepared.goal.node_name.clone(),
        slot: prepared.slot.to_string(),
        changed,
        view: None,
        network_missing: false,
        labels: Vec::new(),
        taint_commands: Vec::new(),
        warnings: prepared.warnings.clone(),
    };
    let cluster = context.connect.connect(host, &context.names, &prepared);
    see_node(context, cluster.as_ref(), &after, &mut done).await?;
    bring_labels(&prepared, cluster.as_ref(), &before, &mut done).await;
    Ok(done)
}

/// What `start` would run, after everything that can be decided without a change was decided.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The goal and all that belongs to it.
    pub prepared: Arc<Prepared>,
    /// The steps.
    pub operation: Operation,
}

/// Reads configuration, source and records, and decides. Changes nothing.
pub async fn plan(context: &StartContext) -> Result<Planned, StartError> {
    let host = &context.host;
    let layout = Layout::default();
    let applied = applied_goal(host, &layout)?;
    let (on, path, over) = (host.clone(), context.config.clone(), applied.clone());
    let prepare = move || match (prepare(&on, &path, over.as_ref()), &over) {
        // A source that has what runs, and not what the file says, is no answer to why they differ.
        (Err(error @ StartError::Source(_)), Some(applied)) => {
            let differences = written_differences(&on, &path, applied)?;
            Err(if differences.is_empty() { error } else { StartError::Differs { differences } })
        }
        (prepared, _) => prepared,
    };
    let prepared = tokio::task::spawn_blocking(prepare).await.map_err(|e| StartError::State(Box::new(e)))??;
    let open = Journal::new(host.fs.clone()).open().map_err(|e| StartError::State(Box::new(e)))?;
    match decide::decide(Observed { applied: applied.as_ref(), open: open.as_ref() }, &prepared.goal) {
        Decision::Run => {}
        Decision::Differs(all) => {
            let told = |applied| prepared.config.differences(&prepared.facts, applied, &prepared.goal);
            return Err(StartError::Differs { differences: applied.as_ref().map_or(all, told) });
        }
        Decision::Unfinished { operation, step, interrupted } => {
            return Err(StartError::Unfinished { operation, step, interrupted });
        }
    }
    let runs = host.systemd.unit(UNIT_KUBELET).await.map_err(StartError::Host)?.main_pid != 0;
    let prepared = Arc::new(prepared);
    let parts = context.parts(&prepared, layout);
    Ok(Planned { operation: steps::operation(&parts, runs), prepared })
}

/// Root, a configuration that can be used, and the lock: in this order, so that a mistake leaves no trace.
fn prelude(context: &StartContext) -> Result<Box<dyn Held>, StartError> {
    let fs = context.host.fs.as_ref();
    let root = preflight::privileged(fs);
    if root.severity == preflight::Severity::Error {
        return Err(StartError::Preflight(vec![root]));
    }
    goal::read_config(&context.host, &context.config)?;
    context.locks.acquire(decide::KIND).map_err(StartError::Busy)
}

/// The goal that was applied last, by the recorded state. Corrupt state is an error: nothing is guessed.
fn applied_goal(host: &Host, layout: &Layout) -> Result<Option<MachineGoal>, StartError> {
    let state = StateStore::new(host.fs.clone()).load().map_err(|e| StartError::State(Box::new(e)))?;
    let Some(slot) = state.and_then(|s| s.flexnode).and_then(|f| f.active_slot) else { return Ok(None) };
    let path = layout.version_dir(&slot).join("etc").join(places::config::GOAL);
    let bytes = host.fs.read(&path, GOAL_LIMIT).map_err(|e| StartError::State(Box::new(e)))?;
    let bytes = bytes.ok_or_else(|| StartError::NoGoal { path: path.clone() })?;
    MachineGoal::decode(&bytes).map(Some).map_err(|e| StartError::State(Box::new(e)))
}

/// Waits for the Node as the person asked.
async fn see_node(
    context: &StartContext,
    cluster: &dyn Cluster,
    observer: &Arc<dyn Observer>,
    done: &mut StartReport,
) -> Result<(), StartError> {
    if context.wait == Wait::Joined {
        // kubelet may not have registered yet; nothing depends on it.
        done.view = cluster.node(CLUSTER_DEADLINE).await.ok().flatten();
        return Ok(());
    }
    let wait = WaitReady {
        deadline: context.timeout,
        before: None,
        boot_id: context.host.kernel.boot_id().unwrap_or_default(),
        network_patience: (context.wait == Wait::Ready).then_some(NETWORK_PATIENCE.min(context.timeout / 2)),
    };
    let began = context.host.clock.monotonic();
    observer.event(&Event::StepStarted {
        step: WAIT_STEP.into(),
        title: "wait until the Node is Ready".into(),
        index: 1,
        of: 1,
        deadline_seconds: context.timeout.as_secs_f64(),
        rollback: false,
    });
    let tell = |text: &str| observer.event(&Event::StepNote { step: WAIT_STEP.into(), text: text.into() });
    let outcome = cluster.wait_ready(&wait, &tell).await;
    let seconds = context.host.clock.monotonic().saturating_sub(began).as_secs_f64();
    let (view, missing, text) = match outcome {
        ReadyOutcome::Ready(view) => (view, false, "Ready"),
        ReadyOutcome::NetworkMissing(view) => (view, true, "only the network plugin is missing"),
        ReadyOutcome::TimedOut { why, .. } => {
            let error = StartError::NotReady { node: done.node.clone(), after: context.timeout, why };
            let (errors, hint) = (vec![error.to_string()], error.hint());
            observer.event(&Event::StepFailed { step: WAIT_STEP.into(), errors, hint, seconds });
            return Err(error);
        }
    };
    let (step, text) = (WAIT_STEP.into(), text.into());
    observer.event(&Event::StepFinished { step, outcome: Finish::Unchanged, text, seconds });
    done.view = Some(*view);
    done.network_missing = missing;
    Ok(())
}

/// Brings the labels of the Node to what is wanted, and says what a person has to do for its taints and DNS.
async fn bring_labels(prepared: &Prepared, cluster: &dyn Cluster, before: &labels::Registered, done: &mut StartReport) {
    let Some(view) = &done.view else { return };
    let changes = label_changes(&view.labels, &prepared.join.labels, &before.labels);
    if !changes.is_empty() {
        match cluster.patch_labels(&changes, CLUSTER_DEADLINE).await {
            Ok(()) => done.labels = changes.keys().cloned().collect(),
            Err(why) => done.warnings.push(format!("the labels of the Node could not be changed: {why}")),
        }
    }
    done.taint_commands = labels::taint_commands(view, &prepared.join.taints, &before.taints);
    // A cluster that does not let kubelet read the service is not wrong for that.
    let served = cluster.dns(CLUSTER_DEADLINE).await.ok().flatten();
    done.warnings.extend(dns_warning(served.as_deref(), &prepared.goal.dns_service_ips));
}

#[cfg(test)]
pub(crate) mod tests;

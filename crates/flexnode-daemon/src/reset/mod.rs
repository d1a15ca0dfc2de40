//! Taking the node away, without a trace of it.
//!
//! A reset looks at the host, decides by a pure function ([`plan::plan`]) what goes, what is put back and what stays, and
//! does it in steps. A thing that cannot be done stops nothing but itself; at the end the host is looked at again, and what
//! is left by then is told and makes the reset fail. So it works from every state, without configuration, state or record,
//! and again after any failure.

mod apply;
pub mod cluster;
pub mod evidence;
pub mod facts;
mod network;
pub mod places;
pub mod plan;
mod run;
mod settings;
mod steps;
mod traces;

pub use facts::{Facts, Options};
pub use plan::{Kept, Plan, Removal};
pub use run::{Done, ResetError, run, run_locked};
pub use steps::{KIND, operation};

use flexnode_host::Host;
use flexnode_host::cri::Cri;
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Something that could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Left {
    /// What is left, or was tried.
    pub what: String,
    /// Why.
    pub why: String,
}

/// What a reset leaves, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResetReport {
    /// What should be gone and is not.
    pub left: Vec<Left>,
    /// What stays on purpose.
    pub kept: Vec<Kept>,
    /// What did not work and did not matter in the end.
    pub notes: Vec<String>,
    /// Name of the Node, as far as it was recorded. kubelet's credentials may not delete it.
    pub node_name: Option<String>,
    /// The Node was deleted from the cluster, or was not there, as a kubeconfig of the person's told.
    pub node_deleted: bool,
}

impl ResetReport {
    /// The command that a person runs to take the Node from the cluster; `None` when it is gone.
    pub fn delete_node_command(&self) -> Option<String> {
        let left = self.node_name.as_ref().filter(|_| !self.node_deleted);
        left.map(|name| format!("kubectl delete node {name}"))
    }
}

/// What a reset works with. Clones share one report.
#[derive(Clone, Debug)]
pub struct ResetContext {
    /// The host.
    pub host: Host,
    /// The container runtime.
    pub cri: Arc<dyn Cri>,
    /// What a person chose.
    pub options: Options,
    /// This process is the agent's service: it does not stop itself.
    pub is_daemon: bool,
    /// The cluster, where a person gave a credential that may delete the Node.
    pub nodes: Option<Arc<dyn cluster::Nodes>>,
    shared: Arc<Mutex<Shared>>,
}

/// What the steps tell each other.
#[derive(Debug, Default)]
struct Shared {
    report: ResetReport,
    /// Errors of steps that count even when nothing is found left.
    failed: Vec<Left>,
    /// Why single removals did not work, by what they were.
    reasons: Vec<Left>,
    /// Network objects were to be removed, so they are looked for at the end.
    network: bool,
}

impl ResetContext {
    /// A context for a command.
    pub fn new(host: Host, cri: Arc<dyn Cri>, options: Options) -> Self {
        Self { host, cri, options, is_daemon: false, nodes: None, shared: Arc::default() }
    }

    /// The same for the agent's service itself.
    #[must_use]
    pub fn for_daemon(mut self) -> Self {
        self.is_daemon = true;
        self
    }

    /// The same with the right to delete the Node.
    #[must_use]
    pub fn deleting(mut self, nodes: Arc<dyn cluster::Nodes>) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// What is left and why, as far as the steps have run.
    pub fn report(&self) -> ResetReport {
        self.shared().report.clone()
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;

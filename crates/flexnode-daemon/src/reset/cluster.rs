//! Taking the Node from the cluster, with a credential that a person gave for it.
//!
//! kubelet's own credentials may not delete its Node, and a reset takes them away first. So it is done only where a person
//! names a kubeconfig. The Node of that name has to be this machine's: a kubeconfig of another cluster must not cost
//! another machine its Node.

use crate::config_file::{self, ConfigFileError};
use async_trait::async_trait;
use flexnode_host::Fs;
use flexnode_kube::api::ApiProblem;
use flexnode_kube::{Names, NodeClient, NodeMachine};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What identifies this machine (machine-id(5)); kubelet tells it to the cluster.
const MACHINE_ID: &str = "/etc/machine-id";
/// How long one answer of the API server may take.
const ANSWER: Duration = Duration::from_secs(10);

/// The cluster's Nodes, with the right to delete them.
#[async_trait]
pub trait Nodes: Send + Sync + Debug {
    /// Which machine the Node of this name is; `None` when there is no such Node.
    async fn machine(&self, node: &str, deadline: Duration) -> Result<Option<NodeMachine>, ApiProblem>;
    /// Deletes it if it is still the object with this UID; one that is gone is a success.
    async fn delete(&self, node: &str, uid: &str, deadline: Duration) -> Result<(), ApiProblem>;
}

/// Why the Node was not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// The API server refused or did not answer.
    #[error("the API server was asked to delete it")]
    Api(#[from] ApiProblem),
    /// It stands for another machine.
    #[error(
        "the cluster of the kubeconfig has a Node of that name that is another machine, with the machine ID {theirs}"
    )]
    OtherMachine {
        /// What its kubelet told.
        theirs: String,
    },
}

/// Deletes the Node of this machine. `Ok(false)`: there was none.
pub(super) async fn delete(nodes: &dyn Nodes, fs: &dyn Fs, node: &str) -> Result<bool, DeleteError> {
    let Some(machine) = nodes.machine(node, ANSWER).await? else { return Ok(false) };
    let own = fs.read(Path::new(MACHINE_ID), 4096).ok().flatten().unwrap_or_default();
    let own = String::from_utf8_lossy(&own).trim().to_owned();
    let known = !own.is_empty() && !machine.machine_id.is_empty();
    if known && own != machine.machine_id.trim() {
        return Err(DeleteError::OtherMachine { theirs: machine.machine_id });
    }
    nodes.delete(node, &machine.uid, ANSWER).await?;
    Ok(true)
}

/// The cluster that a kubeconfig names.
#[derive(Clone, Debug)]
pub struct ByKubeconfig {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    names: Names,
}

impl ByKubeconfig {
    /// Refuses a file that is not root's alone: whoever can write it chooses whom root talks to, whoever can read it has the
    /// cluster.
    pub fn open(fs: Arc<dyn Fs>, path: &Path) -> Result<Self, ConfigFileError> {
        config_file::check(fs.as_ref(), path)?;
        Ok(Self { fs, path: path.to_path_buf(), names: Names::system() })
    }

    fn client(&self, node: &str) -> NodeClient {
        NodeClient::from_kubelet_credentials(self.fs.clone(), &self.path, node, self.names.clone())
    }
}

#[async_trait]
impl Nodes for ByKubeconfig {
    async fn machine(&self, node: &str, deadline: Duration) -> Result<Option<NodeMachine>, ApiProblem> {
        self.client(node).machine(deadline).await
    }
    async fn delete(&self, node: &str, uid: &str, deadline: Duration) -> Result<(), ApiProblem> {
        self.client(node).delete(uid, deadline).await
    }
}

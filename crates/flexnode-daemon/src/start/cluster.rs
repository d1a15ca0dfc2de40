//! What `start` asks the cluster: with kubelet's own credentials, and with the bootstrap token where kubelet has none yet.

use super::goal::Prepared;
use async_trait::async_trait;
use flexnode_host::{Clock, Host};
use flexnode_kube::api::{self, ApiProblem, Credentials};
use flexnode_kube::csr::{LIST_COMMAND, RequestState, node_request};
use flexnode_kube::{
    ApiServerFacts, ApiServerProbe, JoinProblem, Names, NodeClient, ReadyOutcome, WaitReady, preflight,
};
use flexnode_stack::places;
use flexnode_status::node::NodeView;
use kube::Client;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The cluster as this node sees it.
#[async_trait]
pub trait Cluster: Send + Sync + fmt::Debug {
    /// Asks the API server everything that joining needs; changes nothing there.
    async fn preflight(&self, probe: &ApiServerProbe, deadline: Duration) -> Result<ApiServerFacts, JoinProblem>;
    /// The own Node; `None` when there is none.
    async fn node(&self, deadline: Duration) -> Result<Option<NodeView>, ApiProblem>;
    /// Waits until the own Node is Ready; `tell` gets a line each time that what is waited for changes.
    async fn wait_ready(&self, wait: &WaitReady, tell: &(dyn for<'t> Fn(&'t str) + Send + Sync)) -> ReadyOutcome;
    /// Sets and removes labels of the own Node.
    async fn patch_labels(
        &self,
        changes: &BTreeMap<String, Option<String>>,
        deadline: Duration,
    ) -> Result<(), ApiProblem>;
    /// The addresses of the Service kube-system/kube-dns; `None` when there is none.
    async fn dns(&self, deadline: Duration) -> Result<Option<Vec<IpAddr>>, ApiProblem>;
    /// What kubelet's certificate signing request waits for, with the command that ends the wait; `None` when nothing has
    /// to be done.
    async fn request_advice(&self, deadline: Duration) -> Option<String>;
}

/// Makes the view of the cluster that belongs to a goal.
pub trait Connect: Send + Sync + fmt::Debug {
    /// Sends nothing.
    fn connect(&self, host: &Host, names: &Names, prepared: &Prepared) -> Arc<dyn Cluster>;
}

/// The real cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealCluster;

impl Connect for RealCluster {
    fn connect(&self, host: &Host, names: &Names, prepared: &Prepared) -> Arc<dyn Cluster> {
        let goal = &prepared.goal;
        let node =
            NodeClient::from_kubelet_credentials(host.fs.clone(), places::KUBECONFIG, &goal.node_name, names.clone());
        let bootstrap = prepared
            .join
            .token
            .clone()
            .and_then(|token| api::client(&goal.api_server, &goal.ca_pem, &Credentials::Token(token), names).ok());
        Arc::new(Connected { node, bootstrap, names: names.clone(), clock: host.clock.clone() })
    }
}

struct Connected {
    node: NodeClient,
    bootstrap: Option<Client>,
    names: Names,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connected").field("node", &self.node).finish_non_exhaustive()
    }
}

#[async_trait]
impl Cluster for Connected {
    async fn preflight(&self, probe: &ApiServerProbe, deadline: Duration) -> Result<ApiServerFacts, JoinProblem> {
        preflight(probe, &self.names, deadline).await
    }

    async fn node(&self, deadline: Duration) -> Result<Option<NodeView>, ApiProblem> {
        self.node.get(deadline).await
    }

    async fn wait_ready(&self, wait: &WaitReady, tell: &(dyn for<'t> Fn(&'t str) + Send + Sync)) -> ReadyOutcome {
        self.node.wait_ready(wait, self.bootstrap.as_ref(), &mut |text: &str| tell(text)).await
    }

    async fn patch_labels(
        &self,
        changes: &BTreeMap<String, Option<String>>,
        deadline: Duration,
    ) -> Result<(), ApiProblem> {
        self.node.patch_labels(changes, deadline).await
    }

    async fn dns(&self, deadline: Duration) -> Result<Option<Vec<IpAddr>>, ApiProblem> {
        self.node.cluster_dns(deadline).await
    }

    async fn request_advice(&self, deadline: Duration) -> Option<String> {
        let client = self.bootstrap.as_ref()?;
        match node_request(client, self.node.node(), self.clock.now(), deadline).await {
            Ok(RequestState::Pending { name, .. }) => Some(format!(
                "the certificate signing request {name} waits for approval: kubectl certificate approve {name}"
            )),
            Ok(state) => state.advice(),
            Err(ApiProblem::Forbidden(_)) => {
                Some(format!("its certificate signing request may have to be approved: {LIST_COMMAND}"))
            }
            Err(_) => None,
        }
    }
}

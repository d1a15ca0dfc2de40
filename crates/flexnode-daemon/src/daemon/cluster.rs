//! The daemon's way to its own Node.

use async_trait::async_trait;
use flexnode_host::Fs;
use flexnode_kube::watch::Told;
use flexnode_kube::{ApiProblem, Names, NodeClient, OwnCondition};
use flexnode_model::snapshot::{ClockSkew, NodeView};
use flexnode_stack::places;
use flexnode_status::node::{NodeUnknown, OwnNode};
use flexnode_status::observe::Skew;
use jiff::Timestamp;
use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// What is asked of the API server, and told to it.
#[async_trait]
pub trait Cluster: Send + Sync + Debug {
    /// Watches the Node; see [`NodeClient::watch`].
    async fn watch(&self, credentials: &Notify, tell: &(dyn Fn(Told) + Send + Sync)) -> Infallible;
    /// Writes conditions.
    async fn set_conditions(&self, of: &[OwnCondition], now: Timestamp, limit: Duration) -> Result<(), ApiProblem>;
    /// Makes an event.
    async fn event(&self, of: &OwnCondition, now: Timestamp, limit: Duration) -> Result<(), ApiProblem>;
    /// The difference of the clocks.
    fn skew(&self, now: Timestamp) -> Result<ClockSkew, String>;
    /// Requests so far.
    fn requests(&self) -> u64;
}

#[async_trait]
impl Cluster for NodeClient {
    async fn watch(&self, credentials: &Notify, tell: &(dyn Fn(Told) + Send + Sync)) -> Infallible {
        NodeClient::watch(self, credentials, tell).await
    }
    async fn set_conditions(&self, of: &[OwnCondition], now: Timestamp, limit: Duration) -> Result<(), ApiProblem> {
        NodeClient::set_conditions(self, of, now, limit).await
    }
    async fn event(&self, of: &OwnCondition, now: Timestamp, limit: Duration) -> Result<(), ApiProblem> {
        NodeClient::event(self, of.status == Some(false), &of.reason, &of.message, now, limit).await
    }
    fn skew(&self, now: Timestamp) -> Result<ClockSkew, String> {
        self.meter().skew(now)
    }
    fn requests(&self) -> u64 {
        self.meter().requests()
    }
}

/// Makes the way to a Node of a name.
pub trait Clusters: Send + Sync + Debug {
    /// With kubelet's credentials, which need not be there yet.
    fn of(&self, node: &str) -> Arc<dyn Cluster>;
}

/// The real API server.
#[derive(Clone, Debug)]
pub struct KubeletClusters {
    /// Where kubelet's credentials are.
    pub fs: Arc<dyn Fs>,
}

impl Clusters for KubeletClusters {
    fn of(&self, node: &str) -> Arc<dyn Cluster> {
        let names = Names::system();
        Arc::new(NodeClient::from_kubelet_credentials(self.fs.clone(), places::KUBECONFIG, node, names))
    }
}

/// This host's Node: how it is reached, and what the watch told last.
#[derive(Clone, Debug)]
pub struct Member {
    /// The Node's name.
    pub name: String,
    /// The way to it.
    pub cluster: Arc<dyn Cluster>,
    /// What was told.
    pub followed: Arc<Followed>,
}

/// What a watch told last. A problem takes the place of what was seen before: an old view does not look fresh.
#[derive(Debug, Default)]
pub struct Followed {
    last: Mutex<Option<Told>>,
    heard: Notify,
}

impl Followed {
    pub(super) fn set(&self, told: Told) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
        self.heard.notify_one();
    }

    fn last(&self) -> Option<Told> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl OwnNode for Followed {
    /// What was told last, at once; only before the first word it is waited for that.
    async fn view(&self, deadline: Duration) -> Result<Option<NodeView>, NodeUnknown> {
        if self.last().is_none() {
            let _ = tokio::time::timeout(deadline, self.heard.notified()).await;
        }
        match self.last() {
            Some(told) => told.map_err(|e| NodeUnknown { reason: e.to_string() }),
            None => Err(NodeUnknown { reason: "the API server was not heard yet".into() }),
        }
    }
}

/// The clock as a [`Cluster`] knows it.
#[derive(Debug)]
pub struct ClusterClock(pub Arc<dyn Cluster>);

impl Skew for ClusterClock {
    fn skew(&self, now: Timestamp) -> Result<ClockSkew, String> {
        self.0.skew(now)
    }
}

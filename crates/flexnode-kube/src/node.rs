//! The own Node object, seen and changed with kubelet's credentials.

use crate::api::{ApiProblem, bounded, metered_client};
use crate::conditions::{AGENT_READY, UP_TO_DATE};
use crate::kubelet::KubeconfigFile;
use crate::meter::Meter;
use crate::names::Names;
use async_trait::async_trait;
use flexnode_host::Fs;
use flexnode_status::node::{NodeUnknown, NodeView, OwnNode, ReadyCondition};
use k8s_openapi::api::core::v1::{Node, Service, Taint};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::client::Client;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The field manager of our changes.
pub(crate) const MANAGER: &str = "aks-flex-node";
/// Attempts when somebody else changed the object in between.
pub(crate) const ATTEMPTS: usize = 3;

/// A client for one Node.
pub struct NodeClient {
    node: String,
    names: Names,
    source: Source,
    meter: Arc<Meter>,
    made: Mutex<Option<Made>>,
}

#[derive(Clone, Debug)]
enum Source {
    /// Read again at each use.
    File(KubeconfigFile),
    /// Given once.
    Fixed,
}

#[derive(Clone)]
struct Made {
    fingerprint: Vec<u8>,
    client: Client,
}

impl std::fmt::Debug for NodeClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeClient").field("node", &self.node).field("source", &self.source).finish_non_exhaustive()
    }
}

impl NodeClient {
    /// With the kubeconfig at `kubeconfig` (normally [`crate::kubelet::KUBECONFIG`]) and the files that it names. They are
    /// read again at each call, so that a rotated certificate counts at once; they need not exist yet.
    pub fn from_kubelet_credentials(fs: Arc<dyn Fs>, kubeconfig: impl Into<PathBuf>, node: &str, names: Names) -> Self {
        let source = Source::File(KubeconfigFile { fs, path: kubeconfig.into() });
        Self { node: node.to_owned(), names, source, meter: Arc::default(), made: Mutex::new(None) }
    }

    /// With a client that is there already.
    pub fn with_client(client: Client, node: &str) -> Self {
        let made = Mutex::new(Some(Made { fingerprint: Vec::new(), client }));
        let (node, names, meter) = (node.to_owned(), Names::system(), Arc::default());
        Self { node, names, source: Source::Fixed, meter, made }
    }

    /// What is learnt from the answers: the server's clock, the number of requests.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// The Node's name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The client for the credentials as they are now.
    pub fn client(&self) -> Result<Client, ApiProblem> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match (&self.source, made.as_ref()) {
            (Source::File(file), _) => file,
            (Source::Fixed, Some(made)) => return Ok(made.client.clone()),
            (Source::Fixed, None) => return Err(ApiProblem::Credentials("none were given".into())),
        };
        let loaded = file.load()?;
        if let Some(made) = made.as_ref().filter(|m| m.fingerprint == loaded.fingerprint) {
            return Ok(made.client.clone());
        }
        let client = metered_client(&loaded.url, &loaded.ca_pem, &loaded.credentials, &self.names, &self.meter)?;
        *made = Some(Made { fingerprint: loaded.fingerprint, client: client.clone() });
        Ok(client)
    }

    pub(crate) fn api(&self) -> Result<Api<Node>, ApiProblem> {
        Ok(Api::all(self.client()?))
    }

    /// The Node; `None` when the cluster has none of that name.
    pub async fn get(&self, deadline: Duration) -> Result<Option<NodeView>, ApiProblem> {
        let node = bounded("the Node", deadline, self.api()?.get_opt(&self.node)).await?;
        Ok(node.map(|node| view(&node)))
    }

    /// Sets (`Some`) and removes (`None`) labels of the Node. Nothing is sent when there is nothing to change.
    ///
    /// Kubelet's credentials may change only labels that are not restricted: the cluster's refusal is
    /// [`ApiProblem::Forbidden`] and nothing was changed.
    pub async fn patch_labels(
        &self,
        labels: &BTreeMap<String, Option<String>>,
        deadline: Duration,
    ) -> Result<(), ApiProblem> {
        if labels.is_empty() {
            return Ok(());
        }
        let end = tokio::time::Instant::now() + deadline;
        let patch = Patch::Merge(serde_json::json!({ "metadata": { "labels": labels } }));
        let parameters = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        let mut attempt = 1;
        loop {
            let left = end.saturating_duration_since(tokio::time::Instant::now());
            let api = self.api()?;
            match bounded("a change of the Node's labels", left, api.patch(&self.node, &parameters, &patch)).await {
                Err(ApiProblem::Conflict(_)) if attempt < ATTEMPTS => attempt += 1,
                result => return result.map(drop),
            }
        }
    }

    /// The addresses of the cluster's DNS service (`kube-system/kube-dns`); `None` when there is no such service.
    pub async fn cluster_dns(&self, deadline: Duration) -> Result<Option<Vec<IpAddr>>, ApiProblem> {
        let services: Api<Service> = Api::namespaced(self.client()?, "kube-system");
        let service = bounded("the service kube-system/kube-dns", deadline, services.get_opt("kube-dns")).await?;
        let Some(spec) = service.and_then(|s| s.spec) else { return Ok(None) };
        let addresses = spec.cluster_ips.or_else(|| spec.cluster_ip.map(|ip| vec![ip])).unwrap_or_default();
        // A headless service says `None` here.
        Ok(Some(addresses.iter().filter_map(|ip| ip.parse().ok()).collect()))
    }

    /// Which object and which machine the Node stands for; `None` when the cluster has none of that name.
    pub async fn machine(&self, deadline: Duration) -> Result<Option<NodeMachine>, ApiProblem> {
        let node = bounded("the Node", deadline, self.api()?.get_opt(&self.node)).await?;
        Ok(node.map(|node| {
            let info = node.status.and_then(|status| status.node_info).unwrap_or_default();
            NodeMachine { uid: node.metadata.uid.unwrap_or_default(), machine_id: info.machine_id }
        }))
    }

    /// Deletes the Node, but only the very object with this UID. One that is gone is a success. Kubelet's own credentials
    /// are not allowed to.
    pub async fn delete(&self, uid: &str, deadline: Duration) -> Result<(), ApiProblem> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            ..DeleteParams::default()
        };
        match bounded("the removal of the Node", deadline, self.api()?.delete(&self.node, &parameters)).await {
            Ok(_) | Err(ApiProblem::NotFound(_)) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// What a Node stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMachine {
    /// UID of the object.
    pub uid: String,
    /// What kubelet read in /etc/machine-id (machine-id(5)); empty when it did not tell.
    pub machine_id: String,
}

#[async_trait]
impl OwnNode for NodeClient {
    async fn view(&self, deadline: Duration) -> Result<Option<NodeView>, NodeUnknown> {
        self.get(deadline).await.map_err(|e| NodeUnknown { reason: e.to_string() })
    }
}

/// What differs between the labels that a Node has and those that it should have: `wanted` are set; those of `before`
/// (what we set the last time) that are no longer wanted are removed. Labels of others stay.
pub fn label_changes(
    have: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
    before: &BTreeMap<String, String>,
) -> BTreeMap<String, Option<String>> {
    let set = wanted.iter().filter(|(key, value)| have.get(*key) != Some(value));
    let mut changes: BTreeMap<_, _> = set.map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
    for key in before.keys().filter(|key| !wanted.contains_key(*key) && have.contains_key(*key)) {
        changes.insert(key.clone(), None);
    }
    changes
}

/// What to say when pods would ask another DNS server than the cluster has; `None` when all is well. `found` as
/// [`NodeClient::cluster_dns`] gave it, `configured` is `networking.dnsServiceIP`.
pub fn dns_warning(found: Option<&[IpAddr]>, configured: &[IpAddr]) -> Option<String> {
    let list = |ips: &[IpAddr]| ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    // No service of that name: the cluster names it otherwise, and nothing can be compared.
    let found = found.filter(|f| !f.is_empty())?;
    if configured.iter().any(|ip| found.contains(ip)) {
        return None;
    }
    Some(format!(
        "the cluster's DNS service kube-system/kube-dns has the address {}, and networking.dnsServiceIP is {}: names will \
         not resolve in pods on this node",
        list(found),
        if configured.is_empty() { "not set".to_owned() } else { list(configured) }
    ))
}

/// The parts of a Node that matter here.
pub fn view(node: &Node) -> NodeView {
    let spec = node.spec.clone().unwrap_or_default();
    let status = node.status.clone().unwrap_or_default();
    let info = status.node_info.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let own = conditions.iter().filter(|c| [AGENT_READY, UP_TO_DATE].contains(&c.type_.as_str()));
    let own_conditions =
        own.map(|c| (c.type_.clone(), (c.status.clone(), c.reason.clone().unwrap_or_default()))).collect();
    let ready = conditions.into_iter().find(|c| c.type_ == "Ready");
    NodeView {
        name: node.metadata.name.clone().unwrap_or_default(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ready: ready.map(|c| ReadyCondition {
            status: match c.status.as_str() {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            },
            reason: c.reason.unwrap_or_default(),
            message: c.message.unwrap_or_default(),
            heartbeat: c.last_heartbeat_time.map(|t| t.0),
            since: c.last_transition_time.map(|t| t.0),
        }),
        kubelet_version: info.kubelet_version,
        boot_id: info.boot_id,
        runtime_version: info.container_runtime_version,
        addresses: status.addresses.unwrap_or_default().into_iter().map(|a| (a.type_, a.address)).collect(),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        taints: spec.taints.unwrap_or_default().iter().map(taint).collect(),
        unschedulable: spec.unschedulable.unwrap_or(false),
        own_conditions,
    }
}

fn taint(taint: &Taint) -> String {
    match &taint.value {
        Some(value) if !value.is_empty() => format!("{}={value}:{}", taint.key, taint.effect),
        _ => format!("{}:{}", taint.key, taint.effect),
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
pub(crate) mod tests;

//! The configuration file as written. Every key is optional here; what is required is checked when values are.
//!
//! The JSON schema of these types drives the check of shapes (`shape`) and the generated documentation: a key,
//! its type and its range are said once.

use crate::{Isolation, Secret};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Configuration of the agent, `/etc/aks-flex-node/config.json`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// Credentials. What names Azure resources is optional: without it the machine's goal is this file.
    pub azure: Azure,
    /// The agent itself.
    pub agent: Agent,
    /// Versions of what runs on the node.
    pub components: Components,
    /// Where artifacts come from.
    pub bootstrap: Bootstrap,
    /// The cluster's network.
    pub networking: Networking,
    /// The node as the cluster sees it.
    pub node: Node,
}

/// `azure`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Azure {
    /// Joining with a bootstrap token.
    pub bootstrap_token: BootstrapToken,
}

/// `azure.bootstrapToken`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct BootstrapToken {
    /// The token, `abcdef.0123456789abcdef`. Needed until kubelet has its own certificate.
    #[schemars(with = "Option<String>")]
    pub token: Option<Secret>,
}

/// `agent`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Agent {
    /// Name of the Node. Default: the host name in lower case.
    pub node_name: Option<String>,
    /// `debug`, `info` (default), `warning` or `error`.
    pub log_level: Option<String>,
    /// A loopback address with its port, `127.0.0.1:9464`, on which the daemon serves its metrics too. Default: only on its
    /// Unix socket.
    pub metrics_listen: Option<String>,
}

/// `components`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Components {
    /// Kubernetes version, `1.36.3` or `v1.36.3`. Required.
    pub kubernetes: Option<String>,
    /// containerd version. Default: the one in the artifact source.
    pub containerd: Option<String>,
    /// runc version. Default: the one in the artifact source.
    pub runc: Option<String>,
    /// The sandbox (pause) image.
    pub sandbox_image: Option<String>,
}

/// `bootstrap`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Bootstrap {
    /// A directory that holds everything.
    pub offline_artifacts: OfflineArtifacts,
    /// Artifacts (paths in the source) that may be installed although no digest of them is known.
    pub allow_unverified: Vec<String>,
}

/// `bootstrap.offlineArtifacts`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct OfflineArtifacts {
    /// Absolute path or `file://` URL of a bundle directory. `{{.KubernetesVersion}}` and `{{.KubernetesVersionNoV}}`
    /// are replaced. Required.
    pub source: Option<String>,
}

/// `networking`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Networking {
    /// Address of the cluster's DNS service; one of each family, separated by a comma, in a dual-stack cluster.
    /// Default: 10.0.0.10.
    #[serde(rename = "dnsServiceIP")]
    pub dns_service_ip: Option<String>,
    /// Version of the CNI plugins. Default: the one in the artifact source.
    pub cni_version: Option<String>,
}

/// `node`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Node {
    /// How the node's programs are separated from the host. Default: what the machine has, otherwise `none`.
    pub isolation: Option<Isolation>,
    /// Pods at most. Default (also for 0): 110.
    #[schemars(range(min = 0, max = 1000))]
    pub max_pods: Option<u32>,
    /// Labels of the Node.
    pub labels: BTreeMap<String, String>,
    /// Taints that the Node registers with, `key=value:Effect` or `key:Effect`.
    pub taints: Vec<String>,
    /// kubelet.
    pub kubelet: Kubelet,
    /// containerd.
    pub containerd: Containerd,
}

/// `node.kubelet`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Kubelet {
    /// The API server: host, `host:port` or `https://host:port`. Default port: 443. Required.
    #[serde(rename = "clusterFQDN")]
    pub cluster_fqdn: Option<String>,
    /// The cluster's certificate authority: PEM in base64. Required.
    pub ca_cert_data: Option<String>,
    /// Address of the node; one of each family, separated by a comma and the primary one first, for dual stack.
    #[serde(rename = "nodeIP")]
    pub node_ip: Option<String>,
    /// Log verbosity. Default: 2.
    #[schemars(range(min = 0, max = 10))]
    pub verbosity: Option<u8>,
    /// Percent of disk use at which unused images are removed. Default: 85.
    #[serde(rename = "imageGCHighThreshold")]
    #[schemars(range(min = 0, max = 100))]
    pub image_gc_high_threshold: Option<u8>,
    /// Percent of disk use down to which they are removed. Default: 80.
    #[serde(rename = "imageGCLowThreshold")]
    #[schemars(range(min = 0, max = 100))]
    pub image_gc_low_threshold: Option<u8>,
    /// Kept for the system, by resource: `cpu`, `memory`, `ephemeral-storage`, `pid`. Default: nothing.
    pub system_reserved: BTreeMap<String, String>,
    /// Kept for kubelet and containerd. Default: `cpu` by the number of processors, `memory` by the number of pods.
    pub kube_reserved: BTreeMap<String, String>,
    /// Keys of a KubeletConfiguration, merged over the generated one.
    pub config: Map<String, Value>,
}

/// `node.containerd`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Containerd {
    /// Settings of containerd's configuration file, merged into the generated one.
    pub config: Map<String, Value>,
}

/// The JSON schema of the configuration.
pub fn config_schema() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<Config>().to_value()
}

//! What a machine is meant to be, after defaults: the typed form of the configuration.

use crate::Secret;
use crate::document::{self, DocumentError};
use crate::slot::{SlotName, SlotNameError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// How the node stack is separated from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Directly on the host as agent-owned units.
    None,
    /// In a systemd-nspawn machine.
    Nspawn,
}

/// The cgroup layout that the slot's configuration is rendered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupLayout {
    /// Controllers on hierarchies of their own.
    V1,
    /// The unified hierarchy.
    V2,
}

/// What kubelet is told. All in the configuration file where kubelet allows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeletGoal {
    /// Pods at most (`node.maxPods`, default 110).
    pub max_pods: u32,
    /// `node.kubelet.systemReserved`: resource name to quantity.
    pub system_reserved: BTreeMap<String, String>,
    /// `node.kubelet.kubeReserved`; absent in the configuration: computed from processors, memory and max_pods.
    pub kube_reserved: BTreeMap<String, String>,
    /// Percent of the disk at which images are collected.
    pub image_gc_high_threshold: u8,
    /// Percent of the disk down to which images are collected.
    pub image_gc_low_threshold: u8,
    /// Log verbosity.
    pub verbosity: u8,
    /// `node.kubelet.config`, merged over what we render. Keys that the agent owns were refused before.
    pub config: Map<String, Value>,
}

/// What containerd is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerdGoal {
    /// The sandbox (pause) image.
    pub sandbox_image: String,
    /// `node.containerd.config`, merged into the rendered file.
    pub config: Map<String, Value>,
}

/// All that ends up in a slot. Its canonical JSON is what the fingerprint is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineGoal {
    /// Format of this document: 1.
    pub version: u32,
    /// How the stack runs.
    pub isolation: Isolation,
    /// Node name, a DNS-1123 subdomain.
    pub node_name: String,
    /// `--node-ip`: none, one, or one of each family with the primary family first.
    pub node_ips: Vec<IpAddr>,
    /// API server URL, normalised: `https://host:port`.
    pub api_server: String,
    /// The cluster's CA, PEM.
    pub ca_pem: String,
    /// Addresses of the cluster DNS service.
    pub dns_service_ips: Vec<IpAddr>,
    /// Kubernetes version without `v`.
    pub kubernetes_version: String,
    /// containerd version without `v`, when the configuration or the source names it.
    pub containerd_version: Option<String>,
    /// runc version without `v`.
    pub runc_version: Option<String>,
    /// CNI plugins version without `v`.
    pub cni_version: Option<String>,
    /// What kubelet is told.
    pub kubelet: KubeletGoal,
    /// What containerd is told.
    pub containerd: ContainerdGoal,
    /// The cgroup layout of the host.
    pub cgroups: CgroupLayout,
    /// Digest of every artifact that is installed: path in the source to 64 hex digits of SHA-256.
    pub artifacts: BTreeMap<String, String>,
}

impl MachineGoal {
    /// Format that is written.
    pub const VERSION: u32 = 1;
    const KIND: &'static str = "machine goal";

    /// The first 8 hex digits of the SHA-256 over the canonical JSON: the goal's short name.
    pub fn fingerprint(&self) -> String {
        let mut digest = crate::canonical::digest(self);
        digest.truncate(8);
        digest
    }

    /// Takes over versions that this goal leaves open and `other` names.
    pub fn take_unset_versions(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.containerd_version, &other.containerd_version),
            (&mut self.runc_version, &other.runc_version),
            (&mut self.cni_version, &other.cni_version),
        ] {
            if mine.is_none() {
                mine.clone_from(theirs);
            }
        }
    }

    /// The slot that this goal is installed into: `1.36.3-1a2b3c4d`.
    ///
    /// Fails when the Kubernetes version has characters that no directory name of ours may have; a goal that came from
    /// [`crate::Config::goal`] never does.
    pub fn slot(&self) -> Result<SlotName, SlotNameError> {
        SlotName::new(format!("{}-{}", self.kubernetes_version, self.fingerprint()))
    }

    /// Reads `goal.json`.
    pub fn decode(bytes: &[u8]) -> Result<Self, DocumentError> {
        document::decode(bytes, Self::KIND, Self::VERSION)
    }

    /// The bytes of `goal.json`. It belongs to root alone (0600): settings for containerd may hold credentials.
    pub fn encode(&self) -> Vec<u8> {
        document::encode(self)
    }
}

/// What joining needs beyond the slot: not part of the fingerprint.
#[derive(Clone, Debug)]
pub struct Join {
    /// Bootstrap token (`id.secret`); only needed where kubelet has no valid client certificate.
    pub token: Option<Secret>,
    /// Labels that the node registers with.
    pub labels: BTreeMap<String, String>,
    /// Taints (`key=value:Effect`) that the node registers with.
    pub taints: Vec<String>,
    /// Where the artifacts come from: an absolute directory.
    pub source: std::path::PathBuf,
    /// Artifact paths that may be installed without a digest (`bootstrap.allowUnverified`).
    pub allow_unverified: Vec<String>,
}

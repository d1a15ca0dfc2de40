//! The node's own Node object, as far as it matters here, and the seam through which it is read.
//!
//! Who reads it (kubelet's credentials, a watch) is not this crate's matter: the client stands above and implements
//! [`OwnNode`].

use async_trait::async_trait;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

/// How kubelet begins the message of a Ready condition that is false because the network plugin is not there.
const NETWORK_NOT_READY: &str = "container runtime network not ready:";

/// The Ready condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadyCondition {
    /// `true`, `false`; `None` is the API's `Unknown` (kubelet stopped reporting).
    pub status: Option<bool>,
    /// One word: `KubeletReady`, `KubeletNotReady`, `NodeStatusUnknown`.
    pub reason: String,
    /// Kubelet's sentence.
    pub message: String,
    /// When kubelet last said so.
    pub heartbeat: Option<Timestamp>,
    /// When the status changed last.
    pub since: Option<Timestamp>,
}

/// A Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Name of the object.
    pub name: String,
    /// Its UID: another one means that it was deleted and made again.
    pub uid: String,
    /// The Ready condition; `None` when it has none yet.
    pub ready: Option<ReadyCondition>,
    /// Version that kubelet reported, as it writes it: `v1.36.3`.
    pub kubelet_version: String,
    /// Runtime that kubelet reported: `containerd://2.1.9`.
    pub runtime_version: String,
    /// Addresses with their kind: `InternalIP`, `Hostname`.
    pub addresses: Vec<(String, String)>,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// Taints as `key=value:Effect`, or `key:Effect` without a value.
    pub taints: Vec<String>,
    /// `spec.unschedulable`: cordoned.
    pub unschedulable: bool,
}

impl NodeView {
    /// Whether the cluster counts the node as ready.
    pub fn is_ready(&self) -> bool {
        self.ready.as_ref().is_some_and(|r| r.status == Some(true))
    }

    /// Whether nothing but the network plugin is missing: the cluster brings it as a DaemonSet, or somebody puts it in
    /// place.
    ///
    /// kubelet joins several complaints in brackets; then the network is not the only one.
    pub fn waits_only_for_network(&self) -> bool {
        self.ready.as_ref().is_some_and(|r| r.status == Some(false) && r.message.starts_with(NETWORK_NOT_READY))
    }

    /// When kubelet last reported Ready or not.
    pub fn heartbeat(&self) -> Option<Timestamp> {
        self.ready.as_ref().and_then(|r| r.heartbeat)
    }

    /// Why it is not ready, in one line; `None` when it is.
    pub fn why_not_ready(&self) -> Option<String> {
        let Some(ready) = &self.ready else {
            return Some("kubelet has not reported yet".into());
        };
        if ready.status == Some(true) {
            return None;
        }
        let unknown = if ready.status.is_none() { "unknown: " } else { "" };
        Some(match ready.message.as_str() {
            "" => format!("{unknown}{}", ready.reason),
            message => format!("{unknown}{}: {message}", ready.reason),
        })
    }
}

/// Why the Node object could not be read. It says nothing about the node itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NodeUnknown {
    /// In words: what was asked, what went wrong, what to do.
    pub reason: String,
}

/// Reads the own Node object.
#[async_trait]
pub trait OwnNode: Send + Sync + Debug {
    /// The Node named in the configuration, `None` when the cluster has none of that name. Ends within `deadline`.
    async fn view(&self, deadline: Duration) -> Result<Option<NodeView>, NodeUnknown>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(status: Option<bool>, message: &str) -> NodeView {
        let ready = ReadyCondition {
            status,
            reason: "KubeletNotReady".into(),
            message: message.into(),
            ..ReadyCondition::default()
        };
        NodeView { ready: Some(ready), ..NodeView::default() }
    }

    const NETWORK: &str = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
                           message:Network plugin returns error: cni plugin not initialized";

    #[test]
    fn only_the_network_plugin_is_told_from_more() {
        assert!(view(Some(false), NETWORK).waits_only_for_network());
        assert!(!view(Some(true), NETWORK).waits_only_for_network());
        assert!(!view(None, NETWORK).waits_only_for_network());
        let more = format!("[{NETWORK}, container runtime status check may not have completed yet]");
        assert!(!view(Some(false), &more).waits_only_for_network());
        assert!(!view(Some(false), "PLEG is not healthy").waits_only_for_network());
        assert!(!NodeView::default().waits_only_for_network());
    }

    #[test]
    fn why_it_is_not_ready_is_one_line() {
        assert_eq!(view(Some(true), "").why_not_ready(), None);
        assert_eq!(view(Some(false), "PLEG").why_not_ready().unwrap(), "KubeletNotReady: PLEG");
        assert_eq!(view(None, "").why_not_ready().unwrap(), "unknown: KubeletNotReady");
        assert_eq!(NodeView::default().why_not_ready().unwrap(), "kubelet has not reported yet");
    }
}

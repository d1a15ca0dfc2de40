//! The node's own Node object, as far as it matters here, and the seam through which it is read.
//!
//! Who reads it (kubelet's credentials, a watch) is not this crate's matter: the client stands above and implements
//! [`OwnNode`].

use async_trait::async_trait;
use std::fmt::Debug;
use std::time::Duration;

pub use flexnode_model::snapshot::{NodeView, ReadyCondition};

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

/// The Node node-1 with kubelet 1.36.3, as tests have it.
#[cfg(any(test, feature = "testing"))]
pub fn example(status: Option<bool>, reason: &str, message: &str) -> NodeView {
    let ready = ReadyCondition { status, reason: reason.into(), message: message.into(), ..ReadyCondition::default() };
    NodeView {
        name: "node-1".into(),
        uid: "1".into(),
        ready: Some(ready),
        kubelet_version: "v1.36.3".into(),
        ..NodeView::default()
    }
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

//! What the agent says of itself on its Node: two conditions, and events when they change.
//!
//! Written with kubelet's credentials, which may change the status of their own Node and make events about it (Node
//! authorizer, NodeRestriction). Other programs' words never go there: the messages are fixed sentences.

use crate::api::{ApiProblem, bounded};
use crate::node::{ATTEMPTS, MANAGER, NodeClient};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// Whether the agent runs and finds the node as it should be.
pub const AGENT_READY: &str = "FlexNodeAgentReady";
/// Whether the node runs what its configuration says.
pub const UP_TO_DATE: &str = "FlexNodeUpToDate";

/// A condition of the agent's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCondition {
    /// [`AGENT_READY`] or [`UP_TO_DATE`].
    pub kind: &'static str,
    /// `None`: unknown.
    pub status: Option<bool>,
    /// One word.
    pub reason: String,
    /// A fixed sentence.
    pub message: String,
    /// Since when the status is this.
    pub since: Timestamp,
}

impl OwnCondition {
    /// The status as the API has it.
    pub fn status_word(&self) -> &'static str {
        match self.status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        }
    }
}

impl NodeClient {
    /// Writes conditions; those of others stay. A change of somebody else's in between is no obstacle: the patch merges by
    /// type, and a conflict is tried again.
    pub async fn set_conditions(
        &self,
        conditions: &[OwnCondition],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<(), ApiProblem> {
        if conditions.is_empty() {
            return Ok(());
        }
        let time = |time: Timestamp| format!("{time:.0}");
        let list: Vec<_> = conditions
            .iter()
            .map(|c| {
                json!({
                    "type": c.kind, "status": c.status_word(), "reason": c.reason, "message": c.message,
                    "lastHeartbeatTime": time(now), "lastTransitionTime": time(c.since),
                })
            })
            .collect();
        let patch = Patch::Strategic(json!({"status": {"conditions": list}}));
        let parameters = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        let end = Instant::now() + deadline;
        let mut attempt = 1;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let api = self.api()?;
            let patched = api.patch_status(self.node(), &parameters, &patch);
            match bounded("a change of the Node's conditions", left, patched).await {
                Err(ApiProblem::Conflict(_)) if attempt < ATTEMPTS => attempt += 1,
                result => return result.map(drop),
            }
        }
    }

    /// Makes an event about the Node.
    pub async fn event(
        &self,
        is_warning: bool,
        reason: &str,
        message: &str,
        now: Timestamp,
        deadline: Duration,
    ) -> Result<(), ApiProblem> {
        let node = self.node();
        // kubelet's own events about its Node carry the name as UID; tools find them by it.
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"generateName": format!("{node}."), "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
            "type": if is_warning { "Warning" } else { "Normal" },
            "reason": reason, "message": message, "count": 1,
            "source": {"component": MANAGER, "host": node},
            "reportingComponent": MANAGER, "reportingInstance": node,
            "firstTimestamp": format!("{now:.0}"), "lastTimestamp": format!("{now:.0}"),
        });
        let event: Event = serde_json::from_value(event).map_err(|e| ApiProblem::Unreadable(e.to_string()))?;
        let events: Api<Event> = Api::namespaced(self.client()?, "default");
        bounded("an event", deadline, events.create(&PostParams::default(), &event)).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tests::object;
    use crate::testing::mock;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LIMIT: Duration = Duration::from_secs(5);

    fn condition() -> OwnCondition {
        OwnCondition {
            kind: AGENT_READY,
            status: Some(false),
            reason: "KubeletUnhealthy".into(),
            message: "kubelet does not say that it is healthy".into(),
            since: "2026-11-30T12:00:00.123Z".parse().unwrap(),
        }
    }

    /// C127.
    #[tokio::test]
    async fn a_conflict_loses_no_condition() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let client = mock(move |line| {
            assert_eq!(line, "PATCH /api/v1/nodes/node-1/status?&fieldManager=aks-flex-node");
            match counted.fetch_add(1, Ordering::Relaxed) {
                0 => (409, json!({"kind": "Status", "status": "Failure", "message": "conflict", "code": 409})),
                _ => (200, object("True", "", "2026-11-30T12:00:00Z")),
            }
        });
        let node = NodeClient::with_client(client, "node-1");
        node.set_conditions(&[], condition().since, LIMIT).await.unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        node.set_conditions(&[condition()], condition().since, LIMIT).await.unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_conflict_that_stays_and_a_refusal_are_told() {
        let conflict = mock(|_| (409, json!({"kind": "Status", "status": "Failure", "message": "c", "code": 409})));
        let node = NodeClient::with_client(conflict, "node-1");
        let result = node.set_conditions(&[condition()], condition().since, LIMIT).await;
        assert!(matches!(result, Err(ApiProblem::Conflict(_))));
        let forbidden = mock(|_| (403, json!({"kind": "Status", "status": "Failure", "message": "no", "code": 403})));
        let node = NodeClient::with_client(forbidden, "node-1");
        let result = node.event(true, "KubeletUnhealthy", "text", condition().since, LIMIT).await;
        assert!(matches!(result, Err(ApiProblem::Forbidden(_))));
    }

    #[tokio::test]
    async fn an_event_is_about_the_node() {
        let client = mock(|line| {
            assert_eq!(line, "POST /api/v1/namespaces/default/events?");
            let event = json!({
                "apiVersion": "v1", "kind": "Event", "metadata": {"name": "x", "namespace": "default"},
                "involvedObject": {},
            });
            (201, event)
        });
        let node = NodeClient::with_client(client, "node-1");
        node.event(false, "Healthy", "text", condition().since, LIMIT).await.unwrap();
    }
}

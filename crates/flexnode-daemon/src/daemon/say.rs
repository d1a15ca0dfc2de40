//! What the cluster is told of the node: two conditions, and an event when one changes. Pure, but for sending.
//!
//! Nothing is sent when nothing changed, and a change that does not last a few seconds is not told.

use flexnode_kube::OwnCondition;
use flexnode_kube::conditions::{AGENT_READY, UP_TO_DATE};
use flexnode_model::Snapshot;
use flexnode_model::snapshot::{NodeView, Reason, Verdict};
use std::time::Duration;

/// A state has to last for so long before it is told.
pub const LASTS: Duration = Duration::from_secs(3);
/// Between two tellings.
pub const APART: Duration = Duration::from_secs(10);

/// What the conditions should be.
pub fn wanted(snapshot: &Snapshot) -> [OwnCondition; 2] {
    let since = snapshot.since.unwrap_or(snapshot.at);
    let condition = |kind, status, reason: &str, message: &str| OwnCondition {
        kind,
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
        since,
    };
    let agent = match (snapshot.verdict, snapshot.reason) {
        (Verdict::Healthy, _) => {
            condition(AGENT_READY, Some(true), "NodeHealthy", "the agent runs and the node is as it should be")
        }
        (_, reason) => {
            let reason = reason.unwrap_or(Reason::Other);
            condition(AGENT_READY, Some(false), reason.as_str(), reason.sentence())
        }
    };
    let goal = &snapshot.goal;
    let up_to_date = match (goal.is_up_to_date(), goal.configured_failure()) {
        (Some(true), _) => {
            condition(UP_TO_DATE, Some(true), "AsConfigured", "the node runs what its configuration says")
        }
        (Some(false), Some(_)) => {
            let message = "what the configuration asks for failed and is not tried again by itself";
            condition(UP_TO_DATE, Some(false), "GoalFailed", message)
        }
        (Some(false), None) => {
            let message = "the configuration asks for something else than what runs";
            condition(UP_TO_DATE, Some(false), "ConfigurationDiffers", message)
        }
        (None, _) => {
            condition(UP_TO_DATE, None, "NotKnown", "whether the node runs what its configuration says is not known")
        }
    };
    [agent, up_to_date]
}

/// What is said when the agent ends.
pub fn farewell(snapshot: &Snapshot) -> OwnCondition {
    OwnCondition {
        kind: AGENT_READY,
        status: None,
        reason: "AgentStopped".into(),
        message: "the agent's service was stopped, so nobody looks after the node".into(),
        since: snapshot.at,
    }
}

/// The conditions that the Node does not have yet.
pub fn missing(wanted: &[OwnCondition], node: &NodeView) -> Vec<OwnCondition> {
    let is_there = |condition: &&OwnCondition| {
        let now = node.own_conditions.get(condition.kind);
        !now.is_some_and(|(status, reason)| status == condition.status_word() && *reason == condition.reason)
    };
    wanted.iter().filter(is_there).cloned().collect()
}

/// Whether a change is told as an event: the first time that a condition is set is no transition, unless it is bad.
pub fn is_event(condition: &OwnCondition, node: &NodeView) -> bool {
    node.own_conditions.contains_key(condition.kind) || condition.status == Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_model::snapshot::{Deviation, GoalReport, Reading};

    /// A snapshot of a healthy node.
    pub(crate) fn snapshot() -> Snapshot {
        Snapshot::decode(include_bytes!("../../../flexnode-model/tests/samples/snapshot-1.json")).unwrap()
    }

    fn told(conditions: &[OwnCondition]) -> Vec<(&str, &str, &str)> {
        conditions.iter().map(|c| (c.kind, c.status_word(), c.reason.as_str())).collect()
    }

    #[test]
    fn conditions_follow_the_verdict_and_the_goal() {
        let mut snapshot = snapshot();
        (snapshot.verdict, snapshot.reason) = (Verdict::Healthy, None);
        let known = |goal: &str| Some(Reading::Known(goal.to_owned()));
        snapshot.goal = GoalReport { applied: Some("a".into()), configured: known("a"), ..GoalReport::default() };
        let conditions = wanted(&snapshot);
        assert_eq!(
            told(&conditions),
            [("FlexNodeAgentReady", "True", "NodeHealthy"), ("FlexNodeUpToDate", "True", "AsConfigured")]
        );
        let mut node = NodeView::default();
        assert_eq!(missing(&conditions, &node).len(), 2);
        for c in &conditions {
            node.own_conditions.insert(c.kind.into(), (c.status_word().into(), c.reason.clone()));
        }
        assert_eq!(missing(&conditions, &node), [], "nothing changed: nothing is written");

        snapshot.verdict = Verdict::Degraded;
        snapshot.reason = Some(Reason::KubeletUnhealthy);
        // Other programs' words, with a secret among them, reach the cluster in no way.
        snapshot.deviations = vec![Deviation::new(Reason::KubeletUnhealthy, "kubelet says: SECRET")];
        snapshot.goal.differences = vec![flexnode_model::Difference {
            path: "components.kubernetes".into(),
            from: "1".into(),
            to: "SECRET".into(),
        }];
        let conditions = missing(&wanted(&snapshot), &node);
        assert_eq!(
            told(&conditions),
            [
                ("FlexNodeAgentReady", "False", "KubeletUnhealthy"),
                ("FlexNodeUpToDate", "False", "ConfigurationDiffers")
            ]
        );
        assert!(!format!("{conditions:?}").contains("SECRET"));
        assert!(conditions.iter().all(|condition| is_event(condition, &node)));
        snapshot.goal.configured = Some(Reading::Unknown("SECRET".into()));
        assert_eq!(told(&wanted(&snapshot))[1], ("FlexNodeUpToDate", "Unknown", "NotKnown"));
    }

    #[test]
    fn the_first_good_word_is_no_event() {
        let good = OwnCondition { status: Some(true), ..farewell(&snapshot()) };
        assert!(!is_event(&good, &NodeView::default()));
        assert!(is_event(&OwnCondition { status: Some(false), ..good }, &NodeView::default()));
    }
}

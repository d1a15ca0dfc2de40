//! What the cluster is told.

use super::{Keeper, SAY};
use crate::daemon::{cluster, say};
use flexnode_kube::ApiProblem;
use flexnode_model::Snapshot;
use flexnode_model::snapshot::NodeView;
use std::time::Duration;

/// The limit of the last word: the service's end does not wait for an API server.
const FAREWELL: Duration = Duration::from_secs(1);

impl Keeper<'_> {
    /// Tells the cluster what it does not know yet. Gives when to try again.
    pub(super) fn say(&mut self, snapshot: &Snapshot, now: Duration) -> Duration {
        let (Some(member), Ok(Some(node))) = (&self.member, &self.seen.node) else {
            self.differs = None;
            return Duration::MAX;
        };
        if self.saying.is_some() {
            return Duration::MAX;
        }
        let missing = say::missing(&say::wanted(snapshot), node);
        if missing.is_empty() {
            self.differs = None;
            return Duration::MAX;
        }
        let from = (*self.differs.get_or_insert(now) + say::LASTS).max(self.say_from);
        if now < from {
            return from;
        }
        self.say_from = now + say::APART;
        let (cluster, node, at) = (member.cluster.clone(), node.clone(), snapshot.at);
        self.saying = Some(Box::pin(async move { send(cluster.as_ref(), &missing, &node, at).await }));
        Duration::MAX
    }

    pub(super) fn said(&mut self, said: Result<usize, ApiProblem>) {
        self.saying = None;
        match said {
            Ok(events) => {
                self.has_said = true;
                self.shared.told(events);
            }
            Err(error) => tracing::debug!(%error, "the cluster could not be told of a change"),
        }
        // The watch brings the Node as it is now; until then the difference is the old one.
        self.differs = None;
    }

    /// The last word to the cluster. What it does not hear in time it does not hear.
    pub async fn say_farewell(&mut self) {
        self.saying = None;
        let (Some(member), Ok(Some(node)), Some(last)) = (&self.member, &self.seen.node, &self.last) else { return };
        let farewell = say::missing(&[say::farewell(last)], node);
        // A node that is gone or was never told anything needs no last word.
        if !farewell.is_empty() && (self.has_said || !node.own_conditions.is_empty()) {
            let now = self.context.host.clock.now();
            let said = member.cluster.set_conditions(&farewell, now, FAREWELL);
            let _ = tokio::time::timeout(FAREWELL, said).await;
        }
    }
}

/// Writes conditions, then the events of those that changed. Gives the number of events.
async fn send(
    cluster: &dyn cluster::Cluster,
    conditions: &[flexnode_kube::OwnCondition],
    node: &NodeView,
    at: jiff::Timestamp,
) -> Result<usize, ApiProblem> {
    cluster.set_conditions(conditions, at, SAY).await?;
    let mut events = 0;
    for condition in conditions.iter().filter(|condition| say::is_event(condition, node)) {
        cluster.event(condition, at, SAY).await?;
        events += 1;
    }
    Ok(events)
}

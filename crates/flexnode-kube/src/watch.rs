//! Watching the own Node for as long as the agent runs.
//!
//! One list, then one watch after the other, each from where the last one ended; the server is not asked in between. A
//! watch says something at least once a minute, because the server sends bookmarks; one that is silent for longer is dead.

use crate::api::{ApiProblem, bounded};
use crate::node::{NodeClient, view};
use flexnode_status::node::NodeView;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::Notify;

/// The limit of a request's beginning.
const BEGIN: Duration = Duration::from_secs(10);
/// A watch is renewed after this, in seconds; the server's own limit is not below.
const RENEW: u32 = 290;
/// A watch that says nothing for so long is dead: bookmarks come once a minute.
const SILENT: Duration = Duration::from_secs(150);
/// After a failure: twice as long each time.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LAST: Duration = Duration::from_secs(30);

/// What a watch tells: the Node, `None` when the cluster has none of that name, or why it is not known.
pub type Told = Result<Option<NodeView>, ApiProblem>;

/// How one watch ended, when it did not fail.
enum Ended {
    /// The next one goes on from where it ended.
    GoOn,
    /// What was seen is too old to go on from.
    Anew,
}

impl NodeClient {
    /// Watches the Node; `tell` gets it at first and after each change, and the reason whenever it cannot be seen. When
    /// `credentials` is notified, the watch begins anew with the credentials as they are now.
    pub async fn watch(&self, credentials: &Notify, tell: &(dyn Fn(Told) + Send + Sync)) -> Infallible {
        let mut version = None;
        let mut pause = PAUSE_FIRST;
        loop {
            let one = tokio::select! {
                one = self.watch_once(&mut version, tell) => one,
                () = credentials.notified() => continue,
            };
            let wait = match one {
                Ok(ended) => {
                    if matches!(ended, Ended::Anew) {
                        version = None;
                    }
                    // A server that ends every watch at once is not asked in a tight loop.
                    pause = PAUSE_FIRST;
                    Duration::from_millis(200)
                }
                Err(problem) => {
                    tell(Err(problem));
                    version = None;
                    let wait = pause;
                    pause = (pause * 2).min(PAUSE_LAST);
                    wait
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = credentials.notified() => {}
            }
        }
    }

    async fn watch_once(
        &self,
        version: &mut Option<String>,
        tell: &(dyn Fn(Told) + Send + Sync),
    ) -> Result<Ended, ApiProblem> {
        let api = self.api()?;
        let from = if let Some(version) = version {
            version.clone()
        } else {
            let from = self.list(&api, tell).await?;
            *version = Some(from.clone());
            from
        };
        let parameters = WatchParams::default().fields(&format!("metadata.name={}", self.node())).timeout(RENEW);
        let mut events = bounded("a watch of the Node", BEGIN, api.watch(&parameters, &from)).await?.boxed();
        loop {
            let event = match tokio::time::timeout(SILENT, events.next()).await {
                Err(_) => {
                    return Err(ApiProblem::Deadline { what: "a watch of the Node is silent".into(), after: SILENT });
                }
                Ok(None) => return Ok(Ended::GoOn),
                Ok(Some(event)) => event.map_err(|e| ApiProblem::from_kube(&e))?,
            };
            match event {
                WatchEvent::Added(node) | WatchEvent::Modified(node) => {
                    version.clone_from(&node.metadata.resource_version);
                    tell(Ok(Some(view(&node))));
                }
                WatchEvent::Deleted(node) => {
                    version.clone_from(&node.metadata.resource_version);
                    tell(Ok(None));
                }
                WatchEvent::Bookmark(bookmark) => *version = Some(bookmark.metadata.resource_version),
                WatchEvent::Error(status) if status.code == 410 => return Ok(Ended::Anew),
                WatchEvent::Error(status) => return Err(ApiProblem::from_status(status.code, &status.message)),
            }
        }
    }

    /// The Node now, and the version to watch from.
    async fn list(&self, api: &Api<Node>, tell: &(dyn Fn(Told) + Send + Sync)) -> Result<String, ApiProblem> {
        let only = ListParams::default().fields(&format!("metadata.name={}", self.node()));
        let list = bounded("the Node", BEGIN, api.list(&only)).await?;
        tell(Ok(list.items.first().map(view)));
        list.metadata.resource_version.ok_or_else(|| ApiProblem::Unreadable("a list without a resource version".into()))
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;

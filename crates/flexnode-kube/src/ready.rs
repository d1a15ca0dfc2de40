//! Waiting until the own Node is Ready.

use crate::api::ApiProblem;
use crate::csr::{LIST_COMMAND, RequestState, node_request};
use crate::node::{NodeClient, view};
use flexnode_status::node::NodeView;
use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::client::Client;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Error as WatchError, watch_object};
use std::time::Duration;
use tokio::time::Instant;

/// How often time is looked at, and missing credentials for.
const TICK: Duration = Duration::from_secs(1);
/// A watch that says nothing for so long is checked by a plain question.
const QUIET: Duration = Duration::from_secs(10);
/// The limit of one question.
const ONE_CALL: Duration = Duration::from_secs(5);
/// A request that is approved by a controller is so within a second or two.
const REQUEST_PATIENCE: i64 = 3;

/// What is waited for.
#[derive(Clone, Debug)]
pub struct WaitReady {
    /// In all.
    pub deadline: Duration,
    /// The heartbeat of the Node before the start: the same one again says nothing about the kubelet that runs now.
    pub before: Option<Timestamp>,
    /// This boot, as the kernel names it: a Node of another one says nothing about the kubelet that runs now. Empty: not known.
    pub boot_id: String,
    /// Ends well when for this long nothing but the network plugin was missing; `None` insists on Ready.
    pub network_patience: Option<Duration>,
}

/// How the wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadyOutcome {
    /// The Node is Ready.
    Ready(Box<NodeView>),
    /// Only the network plugin is missing: the cluster brings it.
    NetworkMissing(Box<NodeView>),
    /// The time is over.
    TimedOut {
        /// The Node as last seen.
        last: Option<Box<NodeView>>,
        /// What it waits for, in words.
        why: String,
    },
}

/// What the wait knows, and what it makes of what it sees. Pure: time comes in from outside.
#[derive(Debug)]
struct Watching<'a> {
    wait: &'a WaitReady,
    network_since: Option<Instant>,
    last: Option<NodeView>,
    why: String,
}

impl<'a> Watching<'a> {
    fn new(wait: &'a WaitReady) -> Self {
        Self { wait, network_since: None, last: None, why: String::new() }
    }

    /// A view of the Node: an outcome, or a change of what is waited for.
    fn see(&mut self, seen: Option<NodeView>, now: Instant) -> Option<ReadyOutcome> {
        let same = self.wait.before.is_some() && seen.as_ref().and_then(NodeView::heartbeat) == self.wait.before;
        let old = same || seen.as_ref().is_some_and(|node| node.is_of_another_boot(&self.wait.boot_id));
        let network = !old && seen.as_ref().is_some_and(NodeView::waits_only_for_network);
        self.network_since = network.then(|| self.network_since.unwrap_or(now));
        self.why = match &seen {
            None => "the Node is not registered yet".into(),
            Some(_) if old => "kubelet has not reported since its start".into(),
            Some(node) => node.why_not_ready().unwrap_or_default(),
        };
        self.last = seen;
        match &self.last {
            Some(node) if !old && node.is_ready() => Some(ReadyOutcome::Ready(Box::new(node.clone()))),
            _ => self.look_at_time(now),
        }
    }

    fn look_at_time(&self, now: Instant) -> Option<ReadyOutcome> {
        let (patience, since, node) = (self.wait.network_patience?, self.network_since?, self.last.as_ref()?);
        (now.duration_since(since) >= patience).then(|| ReadyOutcome::NetworkMissing(Box::new(node.clone())))
    }

    fn timed_out(self) -> ReadyOutcome {
        let why = if self.why.is_empty() { "nothing was heard of the Node".into() } else { self.why };
        ReadyOutcome::TimedOut { last: self.last.map(Box::new), why }
    }
}

/// Tells what is waited for, each time that it changes.
struct Notes<'a> {
    last: String,
    tell: &'a mut (dyn FnMut(&str) + Send),
}

impl Notes<'_> {
    fn tell(&mut self, note: &str) {
        if !note.is_empty() && note != self.last {
            note.clone_into(&mut self.last);
            (self.tell)(note);
        }
    }
}

impl NodeClient {
    /// Waits until the Node is Ready, by a watch, and by asking where the watch is silent. `tell` gets a line each time
    /// that what is waited for changes. While kubelet has no certificate, its signing request is looked for with
    /// `bootstrap` (a client with the bootstrap token), and the command that approves it is told.
    ///
    /// A server that does not answer ends nothing before the deadline.
    pub async fn wait_ready(
        &self,
        wait: &WaitReady,
        bootstrap: Option<&Client>,
        tell: &mut (dyn FnMut(&str) + Send),
    ) -> ReadyOutcome {
        let mut watching = Watching::new(wait);
        let mut notes = Notes { last: String::new(), tell };
        let watch = async {
            loop {
                match self.api() {
                    Ok(api) => {
                        if let Some(outcome) = self.follow(api, &mut watching, &mut notes).await {
                            return outcome;
                        }
                    }
                    Err(problem) => {
                        watching.why = self.before_credentials(&problem, bootstrap).await;
                        notes.tell(&watching.why);
                    }
                }
                tokio::time::sleep(TICK).await;
            }
        };
        match tokio::time::timeout(wait.deadline, watch).await {
            Ok(outcome) => outcome,
            Err(_) => watching.timed_out(),
        }
    }

    /// Watches until there is an outcome, or until the credentials have changed or the stream ended (`None`).
    async fn follow(
        &self,
        api: kube::Api<Node>,
        watching: &mut Watching<'_>,
        notes: &mut Notes<'_>,
    ) -> Option<ReadyOutcome> {
        let mut stream = watch_object(api, self.node()).default_backoff().boxed();
        let mut tick = tokio::time::interval(TICK);
        let mut heard = Instant::now();
        loop {
            tokio::select! {
                event = stream.next() => match event? {
                    Ok(node) => {
                        heard = Instant::now();
                        if let Some(outcome) = watching.see(node.as_ref().map(view), heard) {
                            return Some(outcome);
                        }
                    }
                    Err(e) => {
                        let problem = watch_problem(&e);
                        watching.why = problem.to_string();
                        if problem.is_identity() {
                            notes.tell(&watching.why);
                            return None;
                        }
                    }
                },
                _ = tick.tick() => {
                    if let Some(outcome) = watching.look_at_time(Instant::now()) {
                        return Some(outcome);
                    }
                    if heard.elapsed() >= QUIET {
                        heard = Instant::now();
                        match self.get(ONE_CALL).await {
                            Ok(node) => if let Some(outcome) = watching.see(node, Instant::now()) {
                                return Some(outcome);
                            },
                            Err(problem) => watching.why = problem.to_string(),
                        }
                    }
                }
            }
            notes.tell(&watching.why);
        }
    }

    /// What to say while kubelet's credentials cannot be used.
    async fn before_credentials(&self, problem: &ApiProblem, bootstrap: Option<&Client>) -> String {
        let Some(client) = bootstrap else { return problem.to_string() };
        match node_request(client, self.node(), Timestamp::now(), ONE_CALL).await {
            Ok(RequestState::Pending { age, .. }) if age.as_secs() < REQUEST_PATIENCE => {
                "kubelet's certificate signing request waits for approval".into()
            }
            Ok(state @ RequestState::Pending { .. }) => pending_words(&state),
            Ok(state) => state.advice().unwrap_or_else(|| "kubelet asks for its client certificate".into()),
            Err(ApiProblem::Forbidden(_)) => format!(
                "kubelet has no client certificate yet; its signing request may have to be approved (`{LIST_COMMAND}` \
                 lists them)"
            ),
            Err(problem) => format!("kubelet has no client certificate yet; {problem}"),
        }
    }
}

/// The advice without its age, so that it is told once and not every second.
fn pending_words(state: &RequestState) -> String {
    match state {
        RequestState::Pending { name, .. } => format!(
            "the certificate signing request {name} of this node waits for approval: `kubectl certificate approve {name}`"
        ),
        other => other.advice().unwrap_or_default(),
    }
}

fn watch_problem(error: &WatchError) -> ApiProblem {
    match error {
        WatchError::InitialListFailed(e) | WatchError::WatchStartFailed(e) | WatchError::WatchFailed(e) => {
            ApiProblem::from_kube(e)
        }
        WatchError::WatchError(status) => ApiProblem::from_status(status.code, &status.message),
        WatchError::NoResourceVersion => ApiProblem::Unreadable("a list without a resource version".into()),
    }
}

#[cfg(test)]
#[path = "ready_tests.rs"]
mod tests;

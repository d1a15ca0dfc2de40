//! Metrics and health over HTTP: on a Unix socket, and where the configuration says so on a loopback address.
//!
//! What is true now comes from the newest snapshot each time that it is asked for, so that nothing stays behind when a
//! state is over; what happened is counted. Labels have fixed sets of values: no text of another program, no error, no name
//! that a person chose is one.

mod server;
mod table;

pub use server::{Listen, SOCKET, scrape, serve};
pub use table::{METRICS, Metric, Source, encode, reference};

use crate::daemon::cluster::Cluster;
use flexnode_model::Snapshot;
use flexnode_model::snapshot::Reason;
use flexnode_status::observe::Part;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What happened since the daemon began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Looks at each part.
    pub looks: BTreeMap<Part, u64>,
    /// Writings of the status file that went well.
    pub writes: u64,
    /// Those that did not.
    pub write_failures: u64,
    /// What was mended, by what was found.
    pub mended: BTreeMap<Reason, u64>,
    /// Interrupted operations that were finished.
    pub resumed: u64,
    /// Those that could not be.
    pub resume_failures: u64,
    /// Changes of the agent's conditions.
    pub conditions: u64,
    /// Events.
    pub events: u64,
}

#[derive(Debug, Default)]
struct Inner {
    snapshot: Option<Arc<Snapshot>>,
    counters: Counters,
    cluster: Option<Arc<dyn Cluster>>,
    /// Requests of clients that are gone.
    requests: u64,
}

/// What the loop leaves for those who ask.
#[derive(Debug, Default)]
pub struct Shared(Mutex<Inner>);

impl Shared {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn publish(&self, snapshot: &Snapshot) {
        self.inner().snapshot = Some(Arc::new(snapshot.clone()));
    }

    pub(crate) fn set_cluster(&self, cluster: Option<Arc<dyn Cluster>>) {
        let mut inner = self.inner();
        inner.requests += inner.cluster.take().map_or(0, |cluster| cluster.requests());
        inner.cluster = cluster;
    }

    pub(crate) fn looked(&self, part: Part) {
        *self.inner().counters.looks.entry(part).or_default() += 1;
    }

    pub(crate) fn wrote(&self, ok: bool) {
        let counters = &mut self.inner().counters;
        *(if ok { &mut counters.writes } else { &mut counters.write_failures }) += 1;
    }

    pub(crate) fn mended(&self, reason: Reason) {
        *self.inner().counters.mended.entry(reason).or_default() += 1;
    }

    pub(crate) fn resumed(&self, ok: bool) {
        let counters = &mut self.inner().counters;
        *(if ok { &mut counters.resumed } else { &mut counters.resume_failures }) += 1;
    }

    pub(crate) fn told(&self, events: usize) {
        let counters = &mut self.inner().counters;
        counters.conditions += 1;
        counters.events += events as u64;
    }

    /// What metrics are made of.
    pub fn source(&self) -> Source {
        let inner = self.inner();
        Source {
            snapshot: inner.snapshot.clone(),
            counters: inner.counters.clone(),
            requests: inner.requests + inner.cluster.as_ref().map_or(0, |cluster| cluster.requests()),
        }
    }
}

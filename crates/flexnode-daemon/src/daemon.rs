//! The agent's daemon: finishes what was interrupted, keeps the node's units running, and tells what the node is.
//!
//! It says READY before it looks at anything: a host on which an operation hangs still has a daemon. One task owns the
//! loop ([`keeper`]): it looks ([`schedule`], [`sources`]), judges, writes the status file, decides ([`decide`]), and does
//! one thing at a time ([`mend`]); it goes on looking and writing meanwhile. What it decides is a pure function, so that
//! another source of goals (a machine resource) is one more input and one more action, not another loop.
//!
//! A record is interrupted when it is open and the lock is free. Where an open record is found, the lock is waited for (a
//! command that is alive holds it, and the kernel lets it go when the command is killed); then the record is looked at
//! again, and the operation taken up under the lock.

pub mod cluster;
pub mod decide;
pub mod keeper;
pub mod mend;
pub mod say;
pub mod schedule;
pub mod sources;
#[cfg(test)]
mod tests;

use crate::lock::{Held, Locks};
use crate::metrics::{self, Shared};
use crate::{leftovers, swap_watch};
use async_trait::async_trait;
use cluster::Clusters;
use flexnode_host::cri::Cri;
use flexnode_host::probe::Probe;
use flexnode_host::{FileWatch, Host, Space, UnitWatch};
use flexnode_ops::{Cancel, Journal, JournalError, JournalRecord};
use flexnode_status::certificates::Certificates;
use keeper::Keeper;
use mend::Acted;
use sd_notify::NotifyState;
use sources::Hints;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;

/// Why an operation could not be taken up.
pub type ResumeFailure = Box<dyn std::error::Error + Send + Sync>;

/// Takes interrupted operations up.
#[async_trait]
pub trait Resume: Send + Sync + Debug {
    /// Runs the operation of `record` to its end. `lock` is held by this call until the operation is over.
    async fn resume(&self, record: &JournalRecord, cancel: &Cancel, lock: Box<dyn Held>) -> Result<(), ResumeFailure>;
    /// The record of the last operation cannot be read: nothing is changed, a node that should run is started.
    async fn unreadable(&self, lock: Box<dyn Held>) -> Result<(), ResumeFailure>;
}

/// What the daemon works with.
#[derive(Clone, Debug)]
pub struct DaemonContext {
    /// The host.
    pub host: Host,
    /// The host's lock.
    pub locks: Arc<dyn Locks>,
    /// Takes operations up.
    pub resume: Arc<dyn Resume>,
    /// Set by SIGTERM: the daemon ends at the next boundary.
    pub cancel: Cancel,
    /// Version of this program.
    pub agent_version: String,
    /// The configuration file.
    pub config: PathBuf,
    /// The status file.
    pub status_file: PathBuf,
    /// Kubelet's health.
    pub probe: Arc<dyn Probe>,
    /// The container runtime.
    pub cri: Arc<dyn Cri>,
    /// Free space.
    pub space: Arc<dyn Space>,
    /// The node's certificates.
    pub certificates: Arc<dyn Certificates>,
    /// Changes of units.
    pub units: Arc<dyn UnitWatch>,
    /// Changes of files.
    pub files: Arc<dyn FileWatch>,
    /// The own Node.
    pub clusters: Arc<dyn Clusters>,
    /// Where metrics are served.
    pub metrics: metrics::Listen,
}

/// Runs until `cancel` is requested.
pub async fn run(context: &DaemonContext) {
    tell(&[NotifyState::Ready, NotifyState::Status("looking at the node")]);
    let (hints, shared) = (Arc::new(Hints::default()), Arc::new(Shared::default()));
    let (members, member) = watch::channel(None);
    tokio::select! {
        biased;
        () = work(context, hints.clone(), shared.clone(), members) => {}
        () = ping() => {}
        () = sources::listen(context, &hints, member) => {}
        () = metrics::serve(&context.metrics, &shared, context.host.clock.as_ref()) => {}
    }
    tell(&[NotifyState::Stopping]);
}

async fn work(
    context: &DaemonContext,
    hints: Arc<Hints>,
    shared: Arc<Shared>,
    members: watch::Sender<Option<cluster::Member>>,
) {
    begin(&context.host, context.locks.as_ref(), context.resume.as_ref()).await;
    let mut keeper = Keeper::new(context, hints, shared, members);
    keeper.run().await;
    keeper.say_farewell().await;
}

/// The part of [`run`] that mends what a crash or a power cut left, once: what it does at its start, and an interrupted
/// operation. Whether nothing is left to be taken up.
pub async fn recover(host: &Host, locks: &dyn Locks, resume: &dyn Resume, cancel: &Cancel) -> bool {
    begin(host, locks, resume).await;
    !matches!(take_up(host, locks, resume, cancel).await, Acted::Resumed(false))
}

/// What the daemon does once, before it looks at the node: temporary files that an interruption left go, swap that is on
/// again is turned off, and a node whose journal cannot be read is started.
async fn begin(host: &Host, locks: &dyn Locks, resume: &dyn Resume) {
    leftovers::tidy(host.fs.as_ref(), locks);
    match swap_watch::mend(host, locks).await {
        Ok(None) => {}
        Ok(Some(text)) => tracing::warn!("swap had come back and was turned off: {text}"),
        Err(error) => {
            tracing::error!(error = flexnode_ops::report::line(&error), "swap is on again, so kubelet cannot start");
        }
    }
    start_without_record(host, locks, resume).await;
}

/// Once, at the daemon's start: where no record tells what was done last, the node that is there is started.
async fn start_without_record(host: &Host, locks: &dyn Locks, resume: &dyn Resume) {
    let Err(JournalError::Unreadable { .. }) = Journal::new(host.fs.clone()).last() else { return };
    let Ok(lock) = locks.acquire("daemon") else { return };
    if let Err(error) = resume.unreadable(lock).await {
        tracing::error!(error, "the node could not be started");
    }
}

/// Takes an interrupted operation up, if it still is one once the lock is held.
async fn take_up(host: &Host, locks: &dyn Locks, resume: &dyn Resume, cancel: &Cancel) -> Acted {
    let journal = Journal::new(host.fs.clone());
    // The command that held the lock has mostly just ended well. The lock is not taken to find that out: another command
    // would be told that something runs.
    let Ok(Some(record)) = journal.interrupted() else { return Acted::NotDone };
    let lock = match locks.acquire(&record.operation) {
        Ok(lock) => lock,
        Err(error) => {
            tracing::info!(error, "somebody else took the lock");
            return Acted::NotDone;
        }
    };
    let Ok(Some(record)) = journal.interrupted() else { return Acted::NotDone };
    tracing::info!(
        operation = record.operation,
        step = record.step,
        attempt = record.attempt,
        "an interrupted operation is taken up"
    );
    match resume.resume(&record, cancel, lock).await {
        Ok(()) => {
            tracing::info!(operation = record.operation, "the interrupted operation is finished");
            Acted::Resumed(true)
        }
        Err(error) => {
            tracing::error!(operation = record.operation, error, "the interrupted operation could not be finished");
            Acted::Resumed(false)
        }
    }
}

/// Tells systemd that this task is alive, at half of the time that the unit allows.
async fn ping() {
    let Some(limit) = sd_notify::watchdog_enabled() else { return std::future::pending().await };
    let mut interval = tokio::time::interval(limit / 2);
    loop {
        interval.tick().await;
        tell(&[NotifyState::Watchdog]);
    }
}

/// Without systemd there is nobody to tell.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd was not notified");
    }
}

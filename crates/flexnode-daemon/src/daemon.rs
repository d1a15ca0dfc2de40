//! The agent's daemon. For now it finishes operations that were interrupted, and nothing else.
//!
//! It says READY before it looks at anything: a host on which an operation hangs still has a daemon. A record is
//! interrupted when it is open and the lock is free. So the daemon looks at the journal from time to time; where it finds
//! an open record it waits for the lock (a command that is alive holds it, and the kernel lets it go when the command is
//! killed), looks again, and takes the operation up while it holds the lock.

use crate::lock::{Held, Locks};
use async_trait::async_trait;
use flexnode_host::Host;
use flexnode_ops::{Cancel, Journal, JournalRecord};
use sd_notify::NotifyState;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at the journal.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// After an operation could not be taken up: twice as long each time.
const RETRY_FIRST: Duration = Duration::from_secs(10);
const RETRY_LAST: Duration = Duration::from_mins(5);

/// Why an operation could not be taken up.
pub type ResumeFailure = Box<dyn std::error::Error + Send + Sync>;

/// Takes interrupted operations up.
#[async_trait]
pub trait Resume: Send + Sync + Debug {
    /// Runs the operation of `record` to its end. `lock` is held by this call until the operation is over.
    async fn resume(&self, record: &JournalRecord, cancel: &Cancel, lock: Box<dyn Held>) -> Result<(), ResumeFailure>;
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
}

/// Runs until `cancel` is requested.
pub async fn run(context: &DaemonContext) {
    tell(&[NotifyState::Ready, NotifyState::Status("watching for interrupted operations")]);
    tokio::select! {
        () = ping() => {}
        () = work(context) => {}
    }
    tell(&[NotifyState::Stopping]);
}

/// The main loop. Between operations it ends at once when this is asked for; an operation hears it itself and ends at its
/// next boundary.
async fn work(context: &DaemonContext) {
    let clock = context.host.clock.as_ref();
    let mut retry = RETRY_FIRST;
    loop {
        let pause = match look(context).await {
            Looked::Nothing | Looked::Done => {
                retry = RETRY_FIRST;
                LOOK_EVERY
            }
            Looked::Failed => {
                let pause = retry;
                retry = (retry * 2).min(RETRY_LAST);
                pause
            }
        };
        tokio::select! {
            biased;
            () = context.cancel.requested() => return,
            () = clock.sleep(pause) => {}
        }
    }
}

/// What one look led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// There is nothing to take up.
    Nothing,
    /// An operation was taken up and is over.
    Done,
    /// An operation could not be taken up.
    Failed,
}

async fn look(context: &DaemonContext) -> Looked {
    let journal = Journal::new(context.host.fs.clone());
    // A record that cannot be read changes nothing; status tells of it.
    if !matches!(journal.interrupted(), Ok(Some(_))) {
        return Looked::Nothing;
    }
    let waited = tokio::select! {
        biased;
        () = context.cancel.requested() => return Looked::Nothing,
        waited = context.locks.wait("daemon") => waited,
    };
    let lock = match waited {
        Ok(lock) => lock,
        Err(error) => {
            tracing::warn!(error, "the host's lock cannot be taken");
            return Looked::Failed;
        }
    };
    let Ok(Some(record)) = journal.interrupted() else { return Looked::Nothing };
    tracing::info!(
        operation = record.operation,
        step = record.step,
        attempt = record.attempt,
        "an interrupted operation is taken up"
    );
    tell(&[NotifyState::Status(&format!("finishing an interrupted {}", record.operation))]);
    let result = context.resume.resume(&record, &context.cancel, lock).await;
    tell(&[NotifyState::Status("watching for interrupted operations")]);
    match result {
        Ok(()) => {
            tracing::info!(operation = record.operation, "the interrupted operation is finished");
            Looked::Done
        }
        Err(error) => {
            tracing::error!(operation = record.operation, error, "the interrupted operation could not be finished");
            Looked::Failed
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

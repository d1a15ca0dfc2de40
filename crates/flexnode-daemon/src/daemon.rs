//! The agent's daemon. For now it finishes operations that were interrupted, and nothing else.
//!
//! It says READY before it looks at anything: a host on which an operation hangs still has a daemon. A record is
//! interrupted when it is open and the lock is free. So the daemon looks at the journal from time to time; where it finds
//! an open record it waits for the lock (a command that is alive holds it, and the kernel lets it go when the command is
//! killed), looks again, and takes the operation up while it holds the lock.

use crate::lock::{Held, Locks};
use crate::swap_watch;
use async_trait::async_trait;
use flexnode_host::Host;
use flexnode_ops::{Cancel, Journal, JournalError, JournalRecord};
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
    match swap_watch::mend(&context.host, context.locks.as_ref()).await {
        Ok(None) => {}
        Ok(Some(text)) => tracing::warn!("swap had come back and was turned off: {text}"),
        Err(error) => {
            tracing::error!(error = flexnode_ops::report::line(&error), "swap is on again, so kubelet cannot start");
        }
    }
    start_without_record(context).await;
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

/// Once, at the daemon's start: where no record tells what was done last, the node that is there is started.
async fn start_without_record(context: &DaemonContext) {
    let Err(JournalError::Unreadable { .. }) = Journal::new(context.host.fs.clone()).last() else { return };
    let Ok(lock) = context.locks.acquire("daemon") else { return };
    if let Err(error) = context.resume.unreadable(lock).await {
        tracing::error!(error, "the node could not be started");
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
        waited = context.locks.free() => waited,
    };
    if let Err(error) = waited {
        tracing::warn!(error, "the host's lock cannot be looked at");
        return Looked::Failed;
    }
    // The command that held it has mostly just ended well. The lock is not taken to find that out: another command would
    // be told that something runs.
    let Ok(Some(record)) = journal.interrupted() else { return Looked::Nothing };
    let lock = match context.locks.acquire(&record.operation) {
        Ok(lock) => lock,
        Err(error) => {
            tracing::info!(error, "somebody else took the lock");
            return Looked::Nothing;
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

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_host::testing::FakeHost;
    use flexnode_ops::{Engine, Operation, Outcome, Recovery, Silent, Step};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Debug)]
    struct Token(Arc<AtomicUsize>);
    impl Held for Token {}
    impl Drop for Token {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// A lock that somebody holds for the first looks at it.
    #[derive(Debug, Default)]
    struct FakeLocks {
        held: Arc<AtomicUsize>,
        taken: AtomicUsize,
    }

    #[async_trait]
    impl Locks for FakeLocks {
        fn acquire(&self, _: &str) -> Result<Box<dyn Held>, crate::lock::LockFailure> {
            assert_eq!(self.held.fetch_add(1, Ordering::SeqCst), 0, "it is held already");
            self.taken.fetch_add(1, Ordering::SeqCst);
            Ok(Box::new(Token(self.held.clone())))
        }
        async fn free(&self) -> Result<(), crate::lock::LockFailure> {
            Ok(())
        }
    }

    fn operation(fail: bool) -> Operation {
        let step = Step::new("one", "do it", Duration::from_secs(5), move |_| async move {
            if fail { Err(flexnode_ops::StepError::new("no")) } else { Ok(Outcome::Unchanged) }
        });
        Operation {
            kind: "start",
            goal: String::new(),
            from: None,
            to: None,
            steps: vec![step],
            recovery: Recovery::Resume,
        }
    }

    /// Ends the daemon after the first operation; fails as often as it is told.
    #[derive(Debug)]
    struct FakeResume {
        host: Host,
        failures: Mutex<usize>,
        held: Arc<AtomicUsize>,
        seen: Mutex<Vec<String>>,
    }

    #[async_trait]
    impl Resume for FakeResume {
        async fn resume(
            &self,
            record: &JournalRecord,
            cancel: &Cancel,
            lock: Box<dyn Held>,
        ) -> Result<(), ResumeFailure> {
            assert_eq!(self.held.load(Ordering::SeqCst), 1, "the lock is held while the operation runs");
            self.seen.lock().unwrap().push(record.operation.clone());
            if *self.failures.lock().unwrap() > 0 {
                *self.failures.lock().unwrap() -= 1;
                return Err("the configuration cannot be read".into());
            }
            let engine = Engine::new(&self.host, "daemon", Cancel::new())?;
            assert!(engine.run(&operation(false), Arc::new(Silent)).await?.is_done());
            drop(lock);
            cancel.request();
            Ok(())
        }
        async fn unreadable(&self, _: Box<dyn Held>) -> Result<(), ResumeFailure> {
            assert_eq!(self.held.load(Ordering::SeqCst), 1, "the lock is held meanwhile");
            self.seen.lock().unwrap().push("unreadable".into());
            Ok(())
        }
    }

    fn context(fake: &FakeHost, failures: usize) -> (DaemonContext, Arc<FakeResume>, Arc<FakeLocks>) {
        let locks = Arc::new(FakeLocks::default());
        let resume = Arc::new(FakeResume {
            host: fake.host(),
            failures: Mutex::new(failures),
            held: locks.held.clone(),
            seen: Mutex::default(),
        });
        let context =
            DaemonContext { host: fake.host(), locks: locks.clone(), resume: resume.clone(), cancel: Cancel::new() };
        (context, resume, locks)
    }

    /// Leaves the record of a start that was killed in its first step.
    async fn interrupt(fake: &FakeHost) {
        let engine = Engine::new(&fake.host(), "command", Cancel::new()).unwrap();
        let hangs = Step::new("one", "do it", Duration::from_mins(5), |_| std::future::pending());
        let operation = Operation { steps: vec![hangs], ..operation(false) };
        let run = engine.run(&operation, Arc::new(Silent));
        // Dropping it is what a kill is: the record stays as it was written last.
        assert!(tokio::time::timeout(Duration::from_millis(10), run).await.is_err());
        assert!(engine.journal().interrupted().unwrap().is_some());
    }

    #[tokio::test]
    async fn an_interrupted_operation_is_taken_up_under_the_lock() {
        let fake = FakeHost::new();
        interrupt(&fake).await;
        let (context, resume, locks) = context(&fake, 0);
        run(&context).await;
        assert_eq!(*resume.seen.lock().unwrap(), ["start"]);
        assert_eq!((locks.taken.load(Ordering::SeqCst), locks.held.load(Ordering::SeqCst)), (1, 0));
        assert!(Journal::new(fake.fs.clone()).open().unwrap().is_none());
    }

    #[tokio::test]
    async fn what_cannot_be_taken_up_is_tried_again_more_and_more_slowly() {
        let fake = FakeHost::new();
        interrupt(&fake).await;
        let (context, resume, _) = context(&fake, 7);
        let slept = fake.clock.slept();
        run(&context).await;
        assert_eq!(resume.seen.lock().unwrap().len(), 8);
        let waited = fake.clock.slept().saturating_sub(slept);
        assert_eq!(waited, Duration::from_secs(10 + 20 + 40 + 80 + 160 + 300 + 300));
    }

    #[tokio::test]
    async fn without_a_record_the_lock_is_never_taken() {
        let fake = FakeHost::new();
        let (context, resume, locks) = context(&fake, 0);
        assert_eq!(look(&context).await, Looked::Nothing);
        // A start that ended as failed waits for a person.
        let engine = Engine::new(&fake.host(), "command", Cancel::new()).unwrap();
        engine.run(&operation(true), Arc::new(Silent)).await.unwrap();
        assert!(engine.journal().open().unwrap().is_some());
        assert_eq!(look(&context).await, Looked::Nothing);
        // Nor is a record that makes no sense.
        fake.fs.put("/var/lib/aks-flex-node/journal/record.json", "{", 0o600);
        assert_eq!(look(&context).await, Looked::Nothing);
        assert_eq!(locks.taken.load(Ordering::SeqCst), 0);
        assert!(resume.seen.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_read_is_said_once_at_the_start() {
        let fake = FakeHost::new();
        let (context, resume, locks) = context(&fake, 0);
        start_without_record(&context).await;
        assert_eq!(locks.taken.load(Ordering::SeqCst), 0);
        fake.fs.put("/var/lib/aks-flex-node/journal/record.json", "{", 0o600);
        start_without_record(&context).await;
        assert_eq!(*resume.seen.lock().unwrap(), ["unreadable"]);
        assert_eq!(locks.held.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn it_ends_at_once_when_nothing_runs() {
        let fake = FakeHost::new();
        let (context, ..) = context(&fake, 0);
        context.cancel.request();
        run(&context).await;
    }
}

//! A reset from the lock to the report.

use super::{KIND, ResetContext, ResetReport, operation, steps};
use crate::lock::{Held, LockFailure, Locks};
use crate::service::{self, SERVICE_UNIT_NAME, ServiceError};
use flexnode_ops::{Cancel, Engine, EngineError, Mode, Observer, RunOutcome, StepError};
use std::sync::Arc;
use std::time::Duration;

/// The agent's service ends at the next boundary of what it does, or at that step's deadline.
const TAKE_OVER: Duration = Duration::from_mins(30);

/// Why a reset did not end well. What is left is in [`ResetContext::report`].
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    /// Another process holds the lock, and it is not the agent's service.
    #[error("another operation runs on this host")]
    Busy(#[source] LockFailure),
    /// The agent's service holds the lock and does not end.
    #[error("the agent's service is at work and could not be stopped")]
    Service(#[source] ServiceError),
    /// The agent's service was stopped and the lock is not free.
    #[error("the agent's service did not let go of the lock within {} s", TAKE_OVER.as_secs())]
    Held,
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A step failed.
    #[error("step {step} failed")]
    Step {
        /// Its name.
        step: String,
        /// Why.
        #[source]
        source: StepError,
    },
    /// It was ended from outside.
    #[error("it was ended before step {before_step}; running it again goes on")]
    Cancelled {
        /// The step that did not run.
        before_step: String,
    },
}

impl ResetError {
    /// Another operation runs.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy(_))
    }

    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Busy(_) => Some("wait until it is over".into()),
            Self::Service(_) | Self::Held => Some(format!("journalctl -u {SERVICE_UNIT_NAME}; then run reset again")),
            Self::Step { source, .. } => source.hint.clone(),
            Self::Engine(_) | Self::Cancelled { .. } => None,
        }
    }
}

/// How a reset ended well.
#[derive(Clone, Debug)]
pub struct Done {
    /// Whether anything had to be removed or put back.
    pub changed: bool,
    /// What stays, and why.
    pub report: ResetReport,
}

/// Takes the node away. Where the agent's service holds the lock, it is stopped first.
pub async fn run(
    context: &ResetContext,
    locks: &dyn Locks,
    observer: Arc<dyn Observer>,
    cancel: Cancel,
) -> Result<Done, ResetError> {
    let lock = take(context, locks).await?;
    run_locked(context, observer, cancel, lock).await
}

/// As [`run`], for a caller that holds the lock already.
pub async fn run_locked(
    context: &ResetContext,
    observer: Arc<dyn Observer>,
    cancel: Cancel,
    lock: Box<dyn Held>,
) -> Result<Done, ResetError> {
    let owner = if context.is_daemon { "daemon" } else { "command" };
    let engine = Engine::new(&context.host, owner, cancel)?;
    let (operation, forget) = match steps::of_clean_host(context).await {
        Some(looks) => (looks, false),
        None => (operation(context), true),
    };
    let mode = Mode { supersede: true, forget, ..Mode::default() };
    let report = engine.run_with(&operation, observer, mode).await?;
    drop(lock);
    match report.outcome {
        RunOutcome::Done { changed } => Ok(Done { changed, report: context.report() }),
        RunOutcome::Failed { step, error } | RunOutcome::RolledBack { step, error, .. } => {
            Err(ResetError::Step { step, source: error })
        }
        RunOutcome::Cancelled { before_step } | RunOutcome::Discarded { step: before_step } => {
            Err(ResetError::Cancelled { before_step })
        }
    }
}

async fn take(context: &ResetContext, locks: &dyn Locks) -> Result<Box<dyn Held>, ResetError> {
    let busy = match locks.acquire(KIND) {
        Ok(lock) => return Ok(lock),
        Err(busy) => busy,
    };
    let agent = context.host.systemd.unit(SERVICE_UNIT_NAME).await.map_or(0, |unit| unit.main_pid);
    if agent == 0 || locks.holder() != Some(agent) {
        return Err(ResetError::Busy(busy));
    }
    service::stop(&context.host).await.map_err(ResetError::Service)?;
    match tokio::time::timeout(TAKE_OVER, locks.free()).await {
        Ok(Ok(())) => locks.acquire(KIND).map_err(ResetError::Busy),
        Ok(Err(error)) => Err(ResetError::Busy(error)),
        Err(_) => Err(ResetError::Held),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reset::Options;
    use crate::service::SERVICE_UNIT_PATH;
    use async_trait::async_trait;
    use flexnode_host::Systemd;
    use flexnode_host::cri::fake::FakeCri;
    use flexnode_host::testing::{FakeHost, FakeSystemd};

    #[derive(Debug)]
    struct Token;
    impl Held for Token {}

    /// Held by `holder` as long as the agent's service is active.
    #[derive(Debug)]
    struct WhileActive {
        systemd: Arc<FakeSystemd>,
        holder: u32,
    }

    #[async_trait]
    impl Locks for WhileActive {
        fn acquire(&self, _: &str) -> Result<Box<dyn Held>, LockFailure> {
            if self.holder().is_some() { Err("start runs".into()) } else { Ok(Box::new(Token)) }
        }
        async fn free(&self) -> Result<(), LockFailure> {
            Ok(())
        }
        fn holder(&self) -> Option<u32> {
            self.systemd.state(SERVICE_UNIT_NAME).is_active().then_some(self.holder)
        }
    }

    /// A host whose agent runs, and its PID.
    async fn with_agent() -> (FakeHost, u32) {
        let fake = FakeHost::new();
        let unit = "[Service]\nExecStart=/bin/sh\n[Install]\nWantedBy=multi-user.target\n";
        fake.fs.put(SERVICE_UNIT_PATH, unit, 0o644);
        fake.systemd.lenient();
        fake.systemd.reload().await.unwrap();
        fake.systemd.start(SERVICE_UNIT_NAME, Duration::from_secs(1)).await.unwrap();
        let pid = fake.systemd.state(SERVICE_UNIT_NAME).main_pid;
        assert_ne!(pid, 0);
        (fake, pid)
    }

    fn context(fake: &FakeHost) -> ResetContext {
        ResetContext::new(fake.host(), Arc::new(FakeCri::default()), Options::default())
    }

    #[tokio::test]
    async fn the_lock_is_taken_over_from_the_agents_service() {
        let (fake, pid) = with_agent().await;
        let locks = WhileActive { systemd: fake.systemd.clone(), holder: pid };
        assert!(take(&context(&fake), &locks).await.is_ok());
        assert!(!fake.systemd.state(SERVICE_UNIT_NAME).is_active());
    }

    /// C080: a start that goes on is cancelled by another one.
    #[tokio::test]
    async fn another_command_is_not_disturbed() {
        let (fake, pid) = with_agent().await;
        let locks = WhileActive { systemd: fake.systemd.clone(), holder: pid + 1 };
        let error = take(&context(&fake), &locks).await.unwrap_err();
        assert!(error.is_busy(), "{error}");
        assert!(fake.systemd.state(SERVICE_UNIT_NAME).is_active());
    }

    #[tokio::test]
    async fn a_host_that_is_no_node_is_not_touched() {
        let fake = FakeHost::new();
        fake.fs.put("/etc/aks-flex-node/config.json", "{}", 0o600).put_dir("/var/lib", 0o755);
        fake.network.add_rule("ip/filter", ":KUBE-FIREWALL -");
        let before = fake.fs.tree_with_stamps();
        let ended = run_locked(&context(&fake), Arc::new(flexnode_ops::Silent), Cancel::new(), Box::new(Token)).await;
        let done = ended.unwrap();
        assert!(!done.changed);
        assert_eq!(fake.fs.tree_with_stamps(), before, "not even the time of a directory");
        assert!(fake.systemd.calls().is_empty(), "{:?}", fake.systemd.calls());
        let kept: Vec<&str> = done.report.kept.iter().map(|kept| kept.what.as_str()).collect();
        assert_eq!(kept, ["the chain KUBE-FIREWALL in ip/filter", "/etc/aks-flex-node/config.json"]);
    }
}

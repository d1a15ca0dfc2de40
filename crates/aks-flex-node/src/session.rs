//! What every command that works on the host has around it: one thread for the runtime, progress and signals.

use crate::cli::Output;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::{Env, signals, terminal};
use flexnode_host::Host;
use flexnode_ops::{Cancel, Observer};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// After a command is done, work on other threads that was given up (a step whose deadline passed) is waited for this
/// long. What it leaves is what a kill leaves.
const LINGER: Duration = Duration::from_secs(1);

/// What a command works with.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// The host.
    pub(crate) host: Host,
    /// Set by signals and by a reader that went away.
    pub(crate) cancel: Cancel,
    /// What is shown.
    pub(crate) progress: Progress,
}

impl Session {
    /// What operations tell.
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        Arc::new(self.progress.clone())
    }
}

/// Runs a command that may take a while: signals end it where that does no harm, progress moves.
pub(crate) fn run<F, Fut>(env: &Env, output: Output, command: F) -> Result<Exit, Failure>
where
    F: FnOnce(Session) -> Fut,
    Fut: Future<Output = Result<Exit, Failure>>,
{
    let host = host(env);
    let cancel = Cancel::new();
    let progress = Progress::new(output, &env.terminal.out, &env.terminal.err, host.clock.clone(), cancel.clone());
    let session = Session { host, cancel: cancel.clone(), progress: progress.clone() };
    let ended = block_on(async {
        let listening = signals::listening(cancel, progress.clone()).map_err(|error| {
            Failure::of(Exit::Failed, &error).hint("signals could not be heard; nothing was changed")
        })?;
        let beside = async { tokio::join!(listening, progress.ticking()) };
        tokio::select! {
            biased;
            ended = command(session) => ended,
            _ = beside => unreachable!("signals and the clock do not end"),
        }
    });
    progress.end();
    ended
}

/// Runs a command that is over soon, or that hears signals itself.
pub(crate) fn block_on<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    // One thread: the work is I/O, and a command's memory and start time are those of the runtime.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::of(Exit::Failed, &error))?;
    let ended = runtime.block_on(command);
    runtime.shutdown_timeout(LINGER);
    ended
}

/// The host of the environment.
pub(crate) fn host(env: &Env) -> Host {
    env.host.clone().unwrap_or_else(Host::real)
}

/// Refuses who may not change the host.
pub(crate) fn need_root(env: &Env, command: &str) -> Result<(), Failure> {
    if env.is_root {
        return Ok(());
    }
    Err(Failure::new(Exit::Usage, format!("{command} changes the host and has to run as root; nothing was changed"))
        .hint(format!("sudo aks-flex-node {command} ...")))
}

/// Warnings are for the person; they stand above what follows.
pub(crate) fn warn(progress: &Progress, warnings: &[String]) {
    for warning in warnings {
        progress.say(&format!("warning: {}", terminal::indented(warning)));
    }
}

//! `aks-flex-node daemon`: what the agent's service runs. It ends on SIGTERM, at the next boundary of an operation.

use super::start;
use crate::cli::{DaemonArgs, LogLevel};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Env, logging, session, signals, version};
use flexnode_daemon::config_file;
use flexnode_daemon::daemon::{self, DaemonContext};
use flexnode_daemon::resume::AgentResume;
use flexnode_daemon::start::host_facts;
use flexnode_host::Host;
use flexnode_model::config;
use flexnode_ops::{Asked, Cancel, Traced};
use std::path::Path;
use std::sync::Arc;
use tracing::level_filters::LevelFilter;

/// Runs the command.
pub(crate) fn run(args: &DaemonArgs, level: Option<LogLevel>, env: &Env) -> Result<Exit, Failure> {
    let host = session::host(env);
    logging::begin(level.map_or_else(|| configured_level(&host, &args.config.config), Into::into));
    tracing::info!(version = version::VERSION, commit = version::COMMIT, "the agent begins");
    session::need_root(env, "daemon")?;
    let start = start::context(&host, &args.config.config)?;
    let cancel = Cancel::new();
    let context = DaemonContext {
        host,
        locks: start.locks.clone(),
        resume: Arc::new(AgentResume { start, observer: Arc::new(Traced) }),
        cancel: cancel.clone(),
    };
    session::block_on(async {
        let mut heard = signals::Heard::new().map_err(|error| Failure::of(Exit::Failed, &error))?;
        let listening = async {
            loop {
                let signal = heard.next().await;
                match cancel.request() {
                    Asked::WillStop => tracing::info!(signal, "the agent ends"),
                    Asked::GoesOn => tracing::warn!(signal, "the node may be down: the operation goes on to its end"),
                }
            }
        };
        tokio::select! {
            () = daemon::run(&context) => {}
            () = listening => {}
        }
        Ok(())
    })?;
    Ok(Exit::Done)
}

/// What the configuration says. A daemon runs also where there is none or it cannot be read: it may have an interrupted
/// operation to finish.
fn configured_level(host: &Host, path: &Path) -> LevelFilter {
    let level = || {
        let bytes = config_file::read(host.fs.as_ref(), path).ok()?;
        let facts = host_facts(host).ok()?;
        let (config, ..) = config::Config::load(&bytes, &facts).ok()?;
        Some(config.log_level())
    };
    match level() {
        Some(config::LogLevel::Debug) => LevelFilter::DEBUG,
        Some(config::LogLevel::Warning) => LevelFilter::WARN,
        Some(config::LogLevel::Error) => LevelFilter::ERROR,
        Some(config::LogLevel::Info) | None => LevelFilter::INFO,
    }
}

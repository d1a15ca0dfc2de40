//! `aks-flex-node daemon`: what the agent's service runs. It ends on SIGTERM, at the next boundary of an operation.

use super::start;
use crate::cli::{DaemonArgs, LogLevel};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Env, logging, session, signals, version};
use flexnode_daemon::config_file;
use flexnode_daemon::daemon::cluster::KubeletClusters;
use flexnode_daemon::daemon::{self, DaemonContext};
use flexnode_daemon::metrics::{Listen, SOCKET};
use flexnode_daemon::resume::AgentResume;
use flexnode_daemon::start::host_facts;
use flexnode_host::{Host, Inotify, RealCommands, RealSpace, RealSystemd};
use flexnode_kube::KubeletCertificates;
use flexnode_model::config::{self, Config};
use flexnode_ops::{Asked, Cancel, Traced};
use flexnode_status::get_status_file_path;
use std::path::Path;
use std::sync::Arc;
use tracing::level_filters::LevelFilter;

/// Runs the command.
pub(crate) fn run(args: &DaemonArgs, level: Option<LogLevel>, env: &Env) -> Result<Exit, Failure> {
    // The one connection to PID 1 is both asked and listened to.
    let systemd = Arc::new(RealSystemd::new(Arc::new(RealCommands)));
    let host = Host { systemd: systemd.clone(), ..session::host(env) };
    logging::begin(level.map_or_else(|| configured_level(&host, &args.config.config), Into::into));
    tracing::info!(version = version::VERSION, commit = version::COMMIT, "the agent begins");
    session::need_root(env, "daemon")?;
    let start = start::context(&host, &args.config.config)?;
    let cancel = Cancel::new();
    let context = DaemonContext {
        locks: start.locks.clone(),
        config: start.config.clone(),
        probe: start.probe.clone(),
        cri: start.cri.clone(),
        resume: Arc::new(AgentResume { start, observer: Arc::new(Traced) }),
        cancel: cancel.clone(),
        agent_version: version::VERSION.into(),
        status_file: get_status_file_path(),
        space: Arc::new(RealSpace),
        certificates: Arc::new(KubeletCertificates::new(host.fs.clone())),
        units: systemd,
        files: Arc::new(Inotify),
        clusters: Arc::new(KubeletClusters { fs: host.fs.clone() }),
        metrics: Listen {
            socket: Some(SOCKET.into()),
            address: configured(&host, &args.config.config, Config::metrics_listen).flatten(),
        },
        host,
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

/// Something that the configuration says. A daemon runs also where there is none or it cannot be read: it may have an
/// interrupted operation to finish.
fn configured<T>(host: &Host, path: &Path, what: impl Fn(&Config) -> T) -> Option<T> {
    let bytes = config_file::read(host.fs.as_ref(), path).ok()?;
    let facts = host_facts(host).ok()?;
    let (config, ..) = Config::load(&bytes, &facts).ok()?;
    Some(what(&config))
}

fn configured_level(host: &Host, path: &Path) -> LevelFilter {
    match configured(host, path, Config::log_level) {
        Some(config::LogLevel::Debug) => LevelFilter::DEBUG,
        Some(config::LogLevel::Warning) => LevelFilter::WARN,
        Some(config::LogLevel::Error) => LevelFilter::ERROR,
        Some(config::LogLevel::Info) | None => LevelFilter::INFO,
    }
}

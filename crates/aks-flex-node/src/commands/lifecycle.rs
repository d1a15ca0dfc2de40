//! `aks-flex-node restart`, `stop` and `start-node`.

use super::{start, upgrade};
use crate::cli::{LifecycleArgs, Output};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Env, session};
use flexnode_daemon::config_file;
use flexnode_daemon::operations::NodeContext;
use flexnode_daemon::operations::lifecycle::{self, Lifecycle};
use serde::Serialize;
use std::path::Path;

/// Runs the command.
pub(crate) fn run(which: Lifecycle, args: &LifecycleArgs, env: &Env) -> Result<Exit, Failure> {
    session::need_root(env, which.kind())?;
    let output = args.output.output;
    let out = env.terminal.out.clone();
    session::run(env, output, |session| async move {
        let context = NodeContext::new(start::context(&session.host, Path::new(config_file::CONFIG_PATH))?);
        let changed = lifecycle::run(&context, which, session.observer(), session.cancel.clone()).await;
        let changed = changed.map_err(|error| upgrade::failure(&error))?;
        session.progress.end();
        match output {
            Output::Text => out.line(text(which, changed)),
            Output::Json => session.progress.result(&Told { event: event(which), changed }),
        }
        Ok(Exit::Done)
    })
}

fn text(which: Lifecycle, changed: bool) -> &'static str {
    match (which, changed) {
        (Lifecycle::Restart, _) => "the node was restarted; its pods were left alone",
        (Lifecycle::Stop, true) => "the node is stopped, also after a reboot, until aks-flex-node start-node",
        (Lifecycle::Stop, false) => "the node was stopped already",
        (Lifecycle::Start, true) => "the node runs",
        (Lifecycle::Start, false) => "the node runs already; nothing had to be changed",
    }
}

fn event(which: Lifecycle) -> &'static str {
    match which {
        Lifecycle::Restart => "restarted",
        Lifecycle::Stop => "stopped",
        Lifecycle::Start => "nodeStarted",
    }
}

/// How it ended, for programs: the event `restarted`, `stopped` or `nodeStarted`.
#[derive(Serialize)]
struct Told {
    event: &'static str,
    changed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_told_as_documented() {
        let time: jiff::Timestamp = "2026-11-29T10:11:12.5Z".parse().unwrap();
        for which in [Lifecycle::Restart, Lifecycle::Stop, Lifecycle::Start] {
            let line = crate::progress::json::render(&Told { event: event(which), changed: true }, time);
            assert!(include_str!("../../../../docs/events.md").lines().any(|shown| shown == line), "{line}");
        }
        assert!(text(Lifecycle::Stop, true).contains("start-node"));
        assert_ne!(text(Lifecycle::Start, true), text(Lifecycle::Start, false));
    }
}

//! `aks-flex-node start`: makes this host a node and tells how it ended.

use crate::cli::{self, StartArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session;
use crate::{Env, cli::Output};
use flexnode_daemon::lock::HostLocks;
use flexnode_daemon::start::{self, Kind, RealCluster, StartContext, StartError, StartReport, Wait};
use flexnode_host::Host;
use flexnode_host::cri::{CONTAINERD_SOCKET, CriSocket};
use flexnode_host::probe::LoopbackProbe;
use flexnode_kube::Names;
use flexnode_model::Difference;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Runs the command.
pub(crate) fn run(args: &StartArgs, env: &Env) -> Result<Exit, Failure> {
    session::need_root(env, "start")?;
    let output = args.output.output;
    let out = env.terminal.out.clone();
    session::run(env, output, |session| async move {
        let context = StartContext {
            wait: wait(args.wait),
            timeout: args.timeout,
            ..context(&session.host, &args.config.config)?
        };
        let report =
            start::run(&context, session.observer(), session.cancel.clone()).await.map_err(|error| failure(&error))?;
        session::warn(&session.progress, &report.warnings);
        session.progress.end();
        match output {
            Output::Text => out.write(&text(&report)),
            Output::Json => session.progress.result(&Told::of(&report)),
        }
        Ok(Exit::Done)
    })
}

/// What `start` works with on this machine.
pub(crate) fn context(host: &Host, config: &Path) -> Result<StartContext, Failure> {
    let config = std::path::absolute(config).map_err(|error| Failure::of(Exit::Usage, &error))?;
    let program = std::env::current_exe().map_err(|error| Failure::of(Exit::Failed, &error))?;
    Ok(StartContext {
        host: host.clone(),
        locks: Arc::new(HostLocks::default()),
        cri: Arc::new(CriSocket::new(CONTAINERD_SOCKET)),
        probe: Arc::new(LoopbackProbe),
        names: Names::system(),
        connect: Arc::new(RealCluster),
        config,
        program,
        owner: "command",
        wait: Wait::Joined,
        timeout: Duration::ZERO,
    })
}

/// A node that only lacks its network plugin ends well, unless the person asked for Ready.
fn wait(asked: Option<cli::Wait>) -> Wait {
    match asked {
        None => Wait::Ready,
        Some(cli::Wait::Ready) => Wait::ReadyForSure,
        Some(cli::Wait::Joined) => Wait::Joined,
    }
}

/// What is said of an error, and its exit code.
pub(crate) fn failure(error: &StartError) -> Failure {
    let exit = match error.kind() {
        Kind::Usage => Exit::Usage,
        Kind::Busy => Exit::Busy,
        Kind::NotReady => Exit::NotReady,
        Kind::Failed => Exit::Failed,
    };
    let mut failure = Failure::of(exit, error).maybe_hint(error.hint());
    match error {
        StartError::Differs { differences } => {
            let line = |d: &Difference| format!("{}: {} runs, the configuration says {}", d.path, d.from, d.to);
            failure.layers.extend(differences.iter().map(line));
        }
        StartError::Preflight(findings) => {
            for finding in findings {
                failure.layers.push(format!("{}: {}", finding.name, finding.message));
                failure.hints.extend(finding.hint.clone());
            }
        }
        _ => {}
    }
    failure
}

/// How `start` ended, for a person.
fn text(report: &StartReport) -> String {
    let node = &report.node;
    let mut text = match &report.view {
        _ if report.network_missing => {
            format!("{node} has joined; it becomes Ready when the cluster's network plugin has come to it\n")
        }
        Some(view) if view.is_ready() => format!("{node} is Ready ({})\n", view.kubelet_version),
        _ => format!("{node} has joined\n"),
    };
    if !report.changed {
        text.push_str("nothing on this host had to be changed\n");
    }
    if !report.labels.is_empty() {
        let _ = writeln!(text, "labels of the Node changed: {}", report.labels.join(", "));
    }
    for command in &report.taint_commands {
        let _ = writeln!(text, "to change the taints of the Node: {command}");
    }
    text
}

/// How `start` ended, for programs: the event `started`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    event: &'static str,
    node: &'a str,
    slot: &'a str,
    changed: bool,
    ready: Option<bool>,
    network_missing: bool,
    labels: &'a [String],
    taint_commands: &'a [String],
    warnings: &'a [String],
}

impl<'a> Told<'a> {
    fn of(report: &'a StartReport) -> Self {
        Self {
            event: "started",
            node: &report.node,
            slot: &report.slot,
            changed: report.changed,
            ready: report.view.as_ref().map(flexnode_status::node::NodeView::is_ready),
            network_missing: report.network_missing,
            labels: &report.labels,
            taint_commands: &report.taint_commands,
            warnings: &report.warnings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_daemon::preflight::Finding;
    use flexnode_ops::StepError;

    fn report() -> StartReport {
        StartReport {
            node: "edge-1".into(),
            slot: "1.36.3-1a2b3c4d".into(),
            changed: true,
            view: None,
            network_missing: false,
            labels: vec![],
            taint_commands: vec![],
            warnings: vec![],
        }
    }

    #[test]
    fn the_end_is_told() {
        assert_eq!(text(&report()), "edge-1 has joined\n");
        let missing = StartReport { network_missing: true, ..report() };
        assert!(text(&missing).contains("network plugin"));
        let again = StartReport {
            changed: false,
            labels: vec!["a".into(), "b".into()],
            taint_commands: vec!["kubectl taint node edge-1 c-".into()],
            ..report()
        };
        assert_eq!(
            text(&again),
            "edge-1 has joined\nnothing on this host had to be changed\nlabels of the Node changed: a, b\n\
             to change the taints of the Node: kubectl taint node edge-1 c-\n"
        );
    }

    #[test]
    fn every_kind_of_error_has_its_exit_code_and_says_what_to_do() {
        let failed = StartError::Step {
            step: "start-kubelet".into(),
            source: StepError::caused("kubelet does not answer", std::io::Error::other("refused")).hint("look there"),
        };
        let failed = failure(&failed);
        assert_eq!((failed.exit, failed.layers.len()), (Exit::Failed, 3));
        assert_eq!(failed.hints, ["look there"]);

        let finding = Finding::error("foreign-kubelet", "kubelet.service runs").hint("systemctl disable --now kubelet");
        let refused = failure(&StartError::Preflight(vec![finding]));
        assert_eq!(refused.layers[1], "foreign-kubelet: kubelet.service runs");
        assert_eq!(refused.hints, ["systemctl disable --now kubelet"]);

        let (path, from, to) = ("components.kubernetes".into(), "1.36.3".into(), "1.36.2".into());
        let differs = failure(&StartError::Differs { differences: vec![Difference { path, from, to }] });
        assert_eq!(differs.layers[1], "components.kubernetes: 1.36.3 runs, the configuration says 1.36.2");
        assert!(differs.hints[0].contains("upgrade") && differs.hints[0].contains("edit"), "{:?}", differs.hints);

        assert_eq!(failure(&StartError::Isolation).exit, Exit::Usage);
        assert_eq!(failure(&StartError::Busy("PID 1".into())).exit, Exit::Busy);
        let late = StartError::NotReady { node: "n".into(), after: Duration::from_secs(1), why: "x".into() };
        assert_eq!(failure(&late).exit, Exit::NotReady);
    }

    #[test]
    fn programs_are_told_as_documented() {
        let time = "2026-11-29T10:11:12.5Z".parse().unwrap();
        let line = crate::progress::json::render(&Told { ready: Some(true), ..Told::of(&report()) }, time);
        assert!(include_str!("../../../../docs/events.md").lines().any(|shown| shown == line), "{line}");
    }

    #[test]
    fn only_an_asked_for_ready_insists() {
        assert_eq!(wait(None), Wait::Ready);
        assert_eq!(wait(Some(cli::Wait::Ready)), Wait::ReadyForSure);
        assert_eq!(wait(Some(cli::Wait::Joined)), Wait::Joined);
    }
}

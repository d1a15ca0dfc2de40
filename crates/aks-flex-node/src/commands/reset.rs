//! `aks-flex-node reset`: asks, then takes the node away and tells what stays.

use crate::cli::{Output, ResetArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Env, session};
use flexnode_daemon::config_file::ConfigFileError;
use flexnode_daemon::lock::HostLocks;
use flexnode_daemon::reset::cluster::ByKubeconfig;
use flexnode_daemon::reset::{self, Done, Options, ResetContext, ResetError, ResetReport};
use flexnode_host::cri::{CONTAINERD_SOCKET, CriSocket};
use flexnode_ops::report;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

/// Runs the command.
pub(crate) fn run(args: &ResetArgs, env: &mut Env) -> Result<Exit, Failure> {
    confirm(args, env)?;
    session::need_root(env, "reset")?;
    let nodes = args.kubeconfig.as_deref().map(|path| kubeconfig(env, path)).transpose()?;
    let output = args.output.output;
    let out = env.terminal.out.clone();
    let options = Options { keep_images: args.keep_images, remove_agent: args.remove_agent };
    session::run(env, output, |session| async move {
        let cri = Arc::new(CriSocket::new(CONTAINERD_SOCKET));
        let mut context = ResetContext::new(session.host.clone(), cri, options);
        if let Some(nodes) = nodes {
            context = context.deleting(Arc::new(nodes));
        }
        let done = reset::run(&context, &HostLocks::default(), session.observer(), session.cancel.clone()).await;
        session.progress.end();
        let done = done.map_err(|error| failure(&error, &context.report()))?;
        match output {
            Output::Text => out.write(&text(&done)),
            Output::Json => session.progress.result(&Told::of(&done)),
        }
        Ok(Exit::Done)
    })
}

/// The cluster that the person named, before anything is changed.
fn kubeconfig(env: &Env, path: &Path) -> Result<ByKubeconfig, Failure> {
    ByKubeconfig::open(session::host(env).fs, path).map_err(|error| {
        let mut failure = Failure::new(Exit::Usage, "the kubeconfig is not used; nothing was changed");
        failure.layers.extend(report::layers(&error));
        // That one speaks of --config.
        let hint = error.hint().filter(|_| !matches!(error, ConfigFileError::Missing(_)));
        failure.maybe_hint(hint)
    })
}

/// Nothing happens without a yes: from the flag, or from a person.
fn confirm(args: &ResetArgs, env: &mut Env) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    if !env.terminal.can_ask() {
        let text = "reset takes the node and its pods away, and there is no terminal to ask at; nothing was changed";
        return Err(Failure::new(Exit::Unconfirmed, text).hint("aks-flex-node reset --yes"));
    }
    let images = if args.keep_images { "" } else { ", its images" };
    let question =
        format!("This ends every pod on this host and removes the node's programs{images} and state. Go on?");
    if env.terminal.ask(&question) {
        return Ok(());
    }
    Err(Failure::new(Exit::Unconfirmed, "not confirmed; nothing was changed"))
}

/// What is said of an error, with everything that is left.
fn failure(error: &ResetError, report: &ResetReport) -> Failure {
    let exit = if error.is_busy() { Exit::Busy } else { Exit::Failed };
    let mut failure = Failure::of(exit, error).maybe_hint(error.hint());
    // The step that looks at the end names what is left itself.
    let said = failure.layers.join("\n");
    for left in report.left.iter().filter(|left| !said.contains(&left.what)) {
        failure.layers.push(format!("left: {}: {}", left.what, left.why));
    }
    failure
}

/// How a reset ended, for a person.
fn text(done: &Done) -> String {
    let mut text =
        if done.changed { "this host is no node any more\n" } else { "nothing had to be removed\n" }.to_owned();
    for kept in &done.report.kept {
        let _ = writeln!(text, "  stays: {}: {}", kept.what, kept.why);
    }
    for note in &done.report.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    if let Some(name) = done.report.node_name.as_ref().filter(|_| done.report.node_deleted) {
        let _ = writeln!(text, "the Node {name} is not in the cluster any more");
    }
    if let Some(command) = done.report.delete_node_command() {
        let _ = writeln!(text, "to take the Node from the cluster: {command}");
    }
    text
}

/// How a reset ended, for programs: the event `wasReset`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    event: &'static str,
    changed: bool,
    #[serde(flatten)]
    report: &'a ResetReport,
    delete_node_command: Option<String>,
}

impl<'a> Told<'a> {
    fn of(done: &'a Done) -> Self {
        let delete_node_command = done.report.delete_node_command();
        Self { event: "wasReset", changed: done.changed, report: &done.report, delete_node_command }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::OutputArg;
    use crate::terminal::{Stream, Terminal};
    use flexnode_daemon::reset::{Kept, Left};
    use flexnode_ops::StepError;
    use std::io;

    fn args(yes: bool) -> ResetArgs {
        let output = OutputArg { output: Output::Text };
        ResetArgs { yes, keep_images: false, remove_agent: false, kubeconfig: None, output }
    }

    fn env(answer: Option<&'static str>) -> Env {
        let terminal = Terminal {
            out: Stream::new(io::sink(), false),
            err: Stream::new(io::sink(), answer.is_some()),
            input: Box::new(io::Cursor::new(answer.unwrap_or_default())),
            input_is_terminal: answer.is_some(),
        };
        Env { terminal, host: None, is_root: true }
    }

    #[test]
    fn it_needs_a_yes_from_the_flag_or_from_a_person() {
        assert!(confirm(&args(true), &mut env(None)).is_ok());
        assert!(confirm(&args(false), &mut env(Some("yes\n"))).is_ok());
        let refused = confirm(&args(false), &mut env(Some("\n"))).unwrap_err();
        assert_eq!(refused.exit, Exit::Unconfirmed);
        let nobody = confirm(&args(false), &mut env(None)).unwrap_err();
        assert_eq!((nobody.exit, nobody.hints[0].as_str()), (Exit::Unconfirmed, "aks-flex-node reset --yes"));
    }

    #[test]
    fn what_stays_is_told_with_its_reason() {
        let report = ResetReport {
            kept: vec![Kept { what: "/etc/aks-flex-node/config.json".into(), why: "it is yours".into() }],
            node_name: Some("edge-1".into()),
            ..ResetReport::default()
        };
        let done = Done { changed: true, report };
        let time = "2026-11-29T10:11:12.5Z".parse().unwrap();
        let line = crate::progress::json::render(&Told::of(&done), time);
        assert!(include_str!("../../../../docs/events.md").lines().any(|shown| shown == line), "{line}");
        assert_eq!(
            text(&done),
            "this host is no node any more\n  stays: /etc/aks-flex-node/config.json: it is yours\n\
             to take the Node from the cluster: kubectl delete node edge-1\n"
        );
    }

    #[test]
    fn a_node_that_was_deleted_needs_no_command() {
        let report = ResetReport { node_name: Some("edge-1".into()), node_deleted: true, ..ResetReport::default() };
        let told = text(&Done { changed: true, report });
        assert_eq!(told, "this host is no node any more\nthe Node edge-1 is not in the cluster any more\n");
    }

    #[test]
    fn what_is_left_is_told_once() {
        let left = |what: &str| Left { what: what.into(), why: "busy".into() };
        let report = ResetReport { left: vec![left("/a"), left("/b")], ..ResetReport::default() };
        let error = ResetError::Step { step: "check".into(), source: StepError::new("left: /a") };
        let failure = failure(&error, &report);
        assert_eq!(failure.layers, ["step check failed", "left: /a", "left: /b: busy"]);
        assert_eq!(failure.exit, Exit::Failed);
    }
}

//! `aks-flex-node plan`: the steps of an operation, without running them.

use super::{start, upgrade};
use crate::cli::{Output, PlanArgs, Planned};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Env, session};
use flexnode_daemon::operations::lifecycle::{self, Lifecycle};
use flexnode_daemon::operations::rollback;
use flexnode_daemon::operations::upgrade::{self as upgrading, Decision, UpgradeOptions};
use flexnode_daemon::operations::{NodeContext, OperationError};
use flexnode_daemon::reset::{self, ResetContext};
use flexnode_host::Host;
use flexnode_host::cri::{CONTAINERD_SOCKET, CriSocket};
use flexnode_ops::{Operation, PlanLine, Resolution};
use serde::Serialize;
use std::sync::Arc;

/// The document of `--output json`, version 1.
#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    operation: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a str>,
    steps: &'a [PlanLine],
}

/// Runs the command.
pub(crate) fn run(args: &PlanArgs, env: &Env) -> Result<Exit, Failure> {
    only_where_it_means_something(args)?;
    let (operation, notes) = operation(args, session::host(env))?;
    for note in &notes {
        env.terminal.err.line(&format!("warning: {note}"));
    }
    let lines = flexnode_ops::plan(&operation);
    let (from, to) = (operation.from.as_deref(), operation.to.as_deref());
    env.terminal.out.write(&match args.output.output {
        Output::Text => text(operation.kind, from, to, &lines),
        Output::Json => {
            let document = Document { version: 1, operation: operation.kind, from, to, steps: &lines };
            serde_json::to_string_pretty(&document).map_err(|error| Failure::of(Exit::Failed, &error))? + "\n"
        }
    });
    Ok(Exit::Done)
}

/// A flag that has no meaning for the operation would be a plan of something else than was meant.
fn only_where_it_means_something(args: &PlanArgs) -> Result<(), Failure> {
    let given = [
        ("--to-config", args.to_config.is_some(), Planned::Upgrade, "upgrade"),
        ("--to-version", args.to_version.is_some(), Planned::Upgrade, "upgrade"),
        ("--without-rollback", args.without_rollback, Planned::Upgrade, "upgrade"),
        ("--to", args.to.is_some(), Planned::Rollback, "rollback"),
    ];
    match given.into_iter().find(|(_, given, of, _)| *given && args.operation != *of) {
        None => Ok(()),
        Some((flag, .., of)) => Err(Failure::new(Exit::Usage, format!("{flag} is for `plan {of}` only"))),
    }
}

/// The operation, and what is to be said of it.
fn operation(args: &PlanArgs, host: Host) -> Result<(Operation, Vec<String>), Failure> {
    let context = start::context(&host, &args.config.config)?;
    let node = || NodeContext::new(context.clone());
    let failed = |error: OperationError| upgrade::failure(&error);
    Ok(match args.operation {
        Planned::Start => {
            let planned = session::block_on(async {
                flexnode_daemon::start::plan(&context).await.map_err(|error| start::failure(&error))
            })?;
            (planned.operation, planned.prepared.warnings.clone())
        }
        Planned::Upgrade => {
            let options = UpgradeOptions {
                target: upgrade::target(args.to_version.as_ref(), args.to_config.as_ref(), &args.config.config)?,
                yes: false,
                retry: false,
                rollback: !args.without_rollback,
            };
            let planned = session::block_on(async { upgrading::plan(&node(), &options).await.map_err(failed) })?;
            let mut notes = planned.prepared.warnings.clone();
            notes.extend(match planned.decision {
                Decision::Go => None,
                Decision::Confirm(question) => Some(format!("it has to be confirmed: {question}")),
                Decision::Refuse(why, hint) => Some(format!("it would be refused: {why} ({hint})")),
            });
            (planned.operation, notes)
        }
        Planned::Rollback => {
            let planned = rollback::plan(&node(), args.to.as_deref()).map_err(failed)?;
            (planned.operation, Vec::new())
        }
        Planned::Restart => (lifecycle::plan(&node(), Lifecycle::Restart).map_err(failed)?, Vec::new()),
        Planned::Stop => (lifecycle::plan(&node(), Lifecycle::Stop).map_err(failed)?, Vec::new()),
        Planned::StartNode => (lifecycle::plan(&node(), Lifecycle::Start).map_err(failed)?, Vec::new()),
        Planned::Reset => {
            let cri = Arc::new(CriSocket::new(CONTAINERD_SOCKET));
            (reset::operation(&ResetContext::new(host, cri, reset::Options::default())), Vec::new())
        }
    })
}

/// A table: name, deadline, marks, title.
fn text(operation: &str, from: Option<&str>, to: Option<&str>, lines: &[PlanLine]) -> String {
    let from = from.map(|from| format!(" from {from}")).unwrap_or_default();
    let to = to.map(|to| format!(" to {to}")).unwrap_or_default();
    let mut text = format!("{operation}{from}{to}: {} steps\n", lines.iter().filter(|line| !line.rollback).count());
    let mut back = false;
    for line in lines {
        if line.rollback && !back {
            back = true;
            text.push_str("the way back, after a failure:\n");
        }
        let mark = match (line.read_only, line.takes_down, line.after_crash) {
            (true, ..) => "looks",
            (_, true, _) => "node down",
            (_, _, Resolution::RollBack) => "rolls back",
            _ => "",
        };
        let row = format!("  {:<28} {:>6} s  {mark:<10}  {}", line.step, line.deadline_seconds, line.title);
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: &str, read_only: bool, takes_down: bool) -> PlanLine {
        PlanLine {
            step: step.into(),
            title: format!("do {step}"),
            deadline_seconds: 60.0,
            read_only,
            takes_down,
            rollback: false,
            after_crash: Resolution::Resume,
        }
    }

    #[test]
    fn a_plan_is_a_table() {
        let back = PlanLine { rollback: true, after_crash: Resolution::RollBack, ..line("start-old", false, false) };
        let lines = [line("check-host", true, false), line("write", false, false), line("stop", false, true), back];
        assert_eq!(
            text("upgrade", Some("1.36.2-0a1b2c3d"), Some("1.36.3-1a2b3c4d"), &lines),
            "upgrade from 1.36.2-0a1b2c3d to 1.36.3-1a2b3c4d: 3 steps
  check-host                       60 s  looks       do check-host
  write                            60 s              do write
  stop                             60 s  node down   do stop
the way back, after a failure:
  start-old                        60 s  rolls back  do start-old
"
        );
    }
    fn args(words: &[&str]) -> PlanArgs {
        use clap::Parser as _;
        let words = ["aks-flex-node", "plan"].iter().chain(words);
        match crate::cli::Cli::try_parse_from(words).unwrap().command {
            crate::cli::Command::Plan(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_flag_of_another_operation_is_refused() {
        for words in
            [&["start", "--to", "a"][..], &["rollback", "--to-version", "1.36.3"], &["stop", "--without-rollback"]]
        {
            let refused = only_where_it_means_something(&args(words)).unwrap_err();
            assert_eq!(refused.exit, Exit::Usage, "{words:?}");
            assert!(refused.layers[0].contains("only"), "{:?}", refused.layers);
        }
        for words in
            [&["start"][..], &["rollback", "--to", "a"], &["upgrade", "--to-version", "1.36.3", "--without-rollback"]]
        {
            assert!(only_where_it_means_something(&args(words)).is_ok(), "{words:?}");
        }
    }

    #[test]
    fn every_operation_has_a_name_on_the_command_line() {
        use clap::ValueEnum as _;
        let names: Vec<String> =
            Planned::value_variants().iter().map(|p| p.to_possible_value().unwrap().get_name().to_owned()).collect();
        assert_eq!(names, ["start", "upgrade", "rollback", "restart", "stop", "start-node", "reset"]);
        for name in names {
            assert!(crate::cli::command().find_subcommand(&name).is_some(), "there is no command {name}");
        }
    }
}

//! `aks-flex-node plan`: the steps of an operation, without running them.

use super::start;
use crate::cli::{Output, PlanArgs, Planned};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Env, session};
use flexnode_daemon::reset::{self, ResetContext};
use flexnode_host::cri::{CONTAINERD_SOCKET, CriSocket};
use flexnode_ops::{PlanLine, Resolution};
use serde::Serialize;
use std::sync::Arc;

/// The document of `--output json`, version 1.
#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    operation: &'a str,
    steps: &'a [PlanLine],
}

/// Runs the command.
pub(crate) fn run(args: &PlanArgs, env: &Env) -> Result<Exit, Failure> {
    let host = session::host(env);
    let operation = match args.operation {
        Planned::Start => {
            let context = start::context(&host, &args.config.config)?;
            let planned = session::block_on(async {
                flexnode_daemon::start::plan(&context).await.map_err(|error| start::failure(&error))
            })?;
            for warning in &planned.prepared.warnings {
                env.terminal.err.line(&format!("warning: {warning}"));
            }
            planned.operation
        }
        Planned::Reset => reset::operation(&ResetContext::new(
            host,
            Arc::new(CriSocket::new(CONTAINERD_SOCKET)),
            reset::Options::default(),
        )),
    };
    let lines = flexnode_ops::plan(&operation);
    env.terminal.out.write(&match args.output.output {
        Output::Text => text(operation.kind, operation.to.as_deref(), &lines),
        Output::Json => {
            let document = Document { version: 1, operation: operation.kind, steps: &lines };
            serde_json::to_string_pretty(&document).map_err(|error| Failure::of(Exit::Failed, &error))? + "\n"
        }
    });
    Ok(Exit::Done)
}

/// A table: name, deadline, marks, title.
fn text(operation: &str, to: Option<&str>, lines: &[PlanLine]) -> String {
    let to = to.map(|to| format!(" to {to}")).unwrap_or_default();
    let mut text = format!("{operation}{to}: {} steps\n", lines.iter().filter(|line| !line.rollback).count());
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
            text("upgrade", Some("1.36.3-1a2b3c4d"), &lines),
            "upgrade to 1.36.3-1a2b3c4d: 3 steps
  check-host                       60 s  looks       do check-host
  write                            60 s              do write
  stop                             60 s  node down   do stop
the way back, after a failure:
  start-old                        60 s  rolls back  do start-old
"
        );
    }
}

//! `aks-flex-node rollback`: asks, then goes back to an installed version.

use super::{start, upgrade};
use crate::cli::{Output, RollbackArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Env, session};
use flexnode_daemon::config_file;
use flexnode_daemon::operations::NodeContext;
use flexnode_daemon::operations::rollback::{self, RollbackReport};
use serde::Serialize;

/// Runs the command.
pub(crate) fn run(args: &RollbackArgs, env: &mut Env) -> Result<Exit, Failure> {
    session::need_root(env, "rollback")?;
    let config = std::path::Path::new(config_file::CONFIG_PATH);
    let context = NodeContext::new(start::context(&session::host(env), config)?);
    let planned = rollback::plan(&context, args.to.as_deref()).map_err(|error| upgrade::failure(&error))?;
    if !args.yes && planned.from != planned.to {
        if !env.terminal.can_ask() {
            let text = format!(
                "going back from {} to {} ends every pod on this host, and there is no terminal to ask at; nothing was changed",
                planned.from, planned.to
            );
            return Err(Failure::new(Exit::Unconfirmed, text).hint("aks-flex-node rollback --yes"));
        }
        let question =
            format!("This ends every pod on this host and goes back from {} to {}. Go on?", planned.from, planned.to);
        if !env.terminal.ask(&question) {
            return Err(Failure::new(Exit::Unconfirmed, "not confirmed; nothing was changed"));
        }
    }
    let output = args.output.output;
    let out = env.terminal.out.clone();
    session::run(env, output, |session| async move {
        let to = Some(planned.to.as_str());
        let report = rollback::run(&context, to, session.observer(), session.cancel.clone()).await;
        let report = report.map_err(|error| upgrade::failure(&error))?;
        session.progress.end();
        match output {
            Output::Text => out.write(&text(&report)),
            Output::Json => session.progress.result(&Told::of(&report)),
        }
        Ok(Exit::Done)
    })
}

fn text(report: &RollbackReport) -> String {
    if report.from == report.to && !report.changed {
        return format!("{} runs already; nothing had to be changed\n", report.to);
    }
    format!("{} runs; before it was {}\n{}", report.to, report.from, upgrade::was_down(report.down))
}

/// How a rollback ended, for programs: the event `rolledBack`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    event: &'static str,
    from: &'a str,
    to: &'a str,
    changed: bool,
    down_seconds: Option<f64>,
}

impl<'a> Told<'a> {
    fn of(report: &'a RollbackReport) -> Self {
        let RollbackReport { from, to, changed, down } = report;
        Self { event: "rolledBack", from, to, changed: *changed, down_seconds: upgrade::seconds(*down) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_told() {
        let (from, to) = ("1.36.3-2b3c4d5e".to_owned(), "1.36.2-1a2b3c4d".to_owned());
        let down = Some(std::time::Duration::from_millis(1400));
        let report = RollbackReport { from, to, changed: true, down };
        assert_eq!(text(&report), "1.36.2-1a2b3c4d runs; before it was 1.36.3-2b3c4d5e\nthe node was down for 1.4 s\n");
        let time = "2026-11-29T10:11:12.5Z".parse().unwrap();
        let line = crate::progress::json::render(&Told::of(&report), time);
        assert!(include_str!("../../../../docs/events.md").lines().any(|shown| shown == line), "{line}");
        let same = RollbackReport { from: report.to.clone(), changed: false, ..report };
        assert!(text(&same).contains("runs already"));
    }
}

//! `aks-flex-node upgrade`: asks where that is needed, upgrades, tells how it ended.

use super::start;
use crate::cli::{Output, UpgradeArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Env, session};
use flexnode_daemon::operations::upgrade::{self, Decision, Target, UpgradeOptions, UpgradeReport};
use flexnode_daemon::operations::{NodeContext, OperationError, OperationKind};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Runs the command.
pub(crate) fn run(args: &UpgradeArgs, env: &mut Env) -> Result<Exit, Failure> {
    session::need_root(env, "upgrade")?;
    let context = NodeContext::new(start::context(&session::host(env), &args.config.config)?);
    let mut options = options(args)?;
    if !options.yes && env.terminal.can_ask() {
        let planned =
            session::block_on(async { upgrade::plan(&context, &options).await.map_err(|error| failure(&error)) })?;
        if let Decision::Confirm(question) = planned.decision {
            if !env.terminal.ask(&question) {
                return Err(Failure::new(Exit::Unconfirmed, "not confirmed; nothing was changed"));
            }
            options.yes = true;
        }
    }
    let output = args.output.output;
    let out = env.terminal.out.clone();
    session::run(env, output, |session| async move {
        let report = upgrade::run(&context, &options, session.observer(), session.cancel.clone()).await;
        let report = report.map_err(|error| failure(&error))?;
        session::warn(&session.progress, &report.warnings);
        session.progress.end();
        match output {
            Output::Text => out.write(&text(&report)),
            Output::Json => session.progress.result(&Told::of(&report)),
        }
        Ok(Exit::Done)
    })
}

fn options(args: &UpgradeArgs) -> Result<UpgradeOptions, Failure> {
    let target = target(args.to_version.as_ref(), args.to_config.as_ref(), &args.config.config)?;
    Ok(UpgradeOptions { target, yes: args.yes, retry: args.retry, rollback: !args.without_rollback })
}

/// What is gone to: a version, a file, otherwise what the configuration says.
pub(super) fn target(version: Option<&String>, file: Option<&PathBuf>, config: &Path) -> Result<Target, Failure> {
    if let Some(version) = version {
        return Ok(Target::Version(version.clone()));
    }
    let path = std::path::absolute(file.map_or(config, PathBuf::as_path));
    path.map(Target::Config).map_err(|error| Failure::of(Exit::Usage, &error))
}

/// What is said of an error, and its exit code.
pub(super) fn failure(error: &OperationError) -> Failure {
    if let OperationError::Start(error) = error {
        return start::failure(error);
    }
    let exit = match error.kind() {
        OperationKind::Failed => Exit::Failed,
        OperationKind::Usage => Exit::Usage,
        OperationKind::Unconfirmed => Exit::Unconfirmed,
        OperationKind::Busy => Exit::Busy,
        OperationKind::RolledBack => Exit::RolledBack,
    };
    Failure::of(exit, error).maybe_hint(error.hint())
}

fn text(report: &UpgradeReport) -> String {
    let mut text = match (&report.from, &report.to) {
        (from, to) if from == to && !report.changed => format!("{to} runs already; nothing had to be changed\n"),
        (from, to) if from == to => format!("{to} runs\n"),
        (from, to) => format!("{to} runs; before it was {from}\n"),
    };
    text.push_str(&was_down(report.down));
    if !report.edits.is_empty() {
        text.push_str("the configuration says something else than what runs now; to edit in it:\n");
        for edit in &report.edits {
            let _ = writeln!(text, "  {edit}");
        }
    }
    text
}

/// How long the node was down, where it was.
pub(super) fn was_down(down: Option<Duration>) -> String {
    down.map(|down| format!("the node was down for {:.1} s\n", down.as_secs_f64())).unwrap_or_default()
}

/// Seconds to the millisecond, for programs.
pub(super) fn seconds(down: Option<Duration>) -> Option<f64> {
    down.map(|down| (down.as_secs_f64() * 1000.0).round() / 1000.0)
}

/// How an upgrade ended, for programs: the event `upgraded`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    event: &'static str,
    from: &'a str,
    to: &'a str,
    changed: bool,
    warnings: &'a [String],
    edits: Vec<String>,
    down_seconds: Option<f64>,
}

impl<'a> Told<'a> {
    fn of(report: &'a UpgradeReport) -> Self {
        let UpgradeReport { from, to, changed, warnings, edits, down } = report;
        let edits = edits.iter().map(ToString::to_string).collect();
        Self { event: "upgraded", from, to, changed: *changed, warnings, edits, down_seconds: seconds(*down) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_model::Difference;
    use flexnode_ops::StepError;

    fn report(from: &str, changed: bool) -> UpgradeReport {
        let (to, warnings, edits) = ("1.36.3-2b3c4d5e".into(), Vec::new(), Vec::new());
        let down = changed.then_some(Duration::from_millis(1400));
        UpgradeReport { from: from.into(), to, changed, warnings, edits, down }
    }

    #[test]
    fn the_end_is_told_with_what_to_edit() {
        assert_eq!(
            text(&report("1.36.2-1a2b3c4d", true)),
            "1.36.3-2b3c4d5e runs; before it was 1.36.2-1a2b3c4d\nthe node was down for 1.4 s\n"
        );
        let same = report("1.36.3-2b3c4d5e", false);
        assert_eq!(text(&same), "1.36.3-2b3c4d5e runs already; nothing had to be changed\n");
        let edit =
            |path: &str, from: &str, to: &str| Difference { path: path.into(), from: from.into(), to: to.into() };
        let edits = vec![edit("components.kubernetes", "1.36.2", "1.36.3")];
        let told = text(&UpgradeReport { edits, ..report("1.36.2-1a2b3c4d", true) });
        assert!(told.ends_with("to edit in it:\n  components.kubernetes: 1.36.2 -> 1.36.3\n"), "{told}");
    }

    #[test]
    fn programs_are_told_as_documented() {
        let time = "2026-11-29T10:11:12.5Z".parse().unwrap();
        let line = crate::progress::json::render(&Told::of(&report("1.36.2-1a2b3c4d", true)), time);
        assert!(include_str!("../../../../docs/events.md").lines().any(|shown| shown == line), "{line}");
    }

    #[test]
    fn every_kind_of_error_has_its_exit_code() {
        let source = || StepError::new("kubelet ended").hint("look there");
        let (step, to, down) = ("start-kubelet".into(), "a".into(), Some(Duration::from_millis(3100)));
        let back =
            OperationError::RolledBack { step, to, down, evidence: "/kept/b.txt".into(), source: Box::new(source()) };
        let failed = failure(&back);
        let said = "step start-kubelet failed, and the node went back to a, which runs; it was down for 3.1 s";
        assert_eq!((failed.exit, failed.layers[0].as_str(), failed.layers.len()), (Exit::RolledBack, said, 2));
        assert_eq!(failed.hints, ["what was seen of it is in /kept/b.txt; look there"]);
        let step = OperationError::Step { step: "install".into(), source: source() };
        assert_eq!(failure(&step).exit, Exit::Failed);
        let unconfirmed = failure(&OperationError::Unconfirmed("Go on?".into()));
        assert_eq!((unconfirmed.exit, unconfirmed.hints.len()), (Exit::Unconfirmed, 1));
        assert_eq!(failure(&OperationError::Busy("PID 1".into())).exit, Exit::Busy);
        let refused = OperationError::Refused { text: "no".into(), hint: "--retry".into() };
        assert_eq!(failure(&refused).exit, Exit::Usage);
    }
}

//! `aks-flex-node healthz`: one line and an exit code, from what the daemon wrote. For scripts: it asks nobody and takes a
//! millisecond.

use super::status::exit;
use crate::cli::HealthzArgs;
use crate::exit::Exit;
use crate::{Env, session};
use flexnode_host::Host;
use flexnode_model::Snapshot;
use flexnode_status::file::StatusFileError;
use flexnode_status::{FsSlots, Slots as _, get_status_file_path, load_snapshot_from_file};
use jiff::{SignedDuration, Timestamp};

/// Runs the command.
pub(crate) fn run(args: &HealthzArgs, env: &Env) -> Exit {
    let host = session::host(env);
    let limit = SignedDuration::try_from(args.max_age).unwrap_or(SignedDuration::MAX);
    let (exit, line) =
        judge(load_snapshot_from_file(&get_status_file_path()), limit, host.clock.now(), || is_node(&host));
    env.terminal.out.line(&line);
    exit
}

fn is_node(host: &Host) -> bool {
    let slots = FsSlots::new(host.fs.clone(), flexnode_status::slots::BASE);
    slots.view().map_or(true, |slots| slots.current.is_some())
}

/// What is said of a snapshot. An old one says nothing about now.
fn judge(
    loaded: Result<Option<Snapshot>, StatusFileError>,
    limit: SignedDuration,
    now: Timestamp,
    is_node: impl FnOnce() -> bool,
) -> (Exit, String) {
    let service = "`systemctl status aks-flex-node-agent`";
    let snapshot = match loaded {
        Ok(Some(snapshot)) => snapshot,
        Ok(None) => return (Exit::Degraded, "the status file was not written by this agent".into()),
        Err(StatusFileError::Absent { .. }) if !is_node() => return (Exit::NotANode, "this host is not a node".into()),
        Err(StatusFileError::Absent { .. }) => {
            return (Exit::Degraded, format!("the agent has written no status yet: {service}"));
        }
        Err(error) => return (Exit::Degraded, flexnode_ops::report::line(&error)),
    };
    let age = now.duration_since(snapshot.at);
    if age > limit {
        let seconds = age.as_secs();
        return (Exit::Degraded, format!("the status is {seconds} s old, does the agent run? {service}"));
    }
    match exit(&snapshot) {
        Exit::Done => (Exit::Done, "ok".into()),
        exit => (exit, snapshot.summary),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_status::Verdict;

    fn snapshot(verdict: Verdict) -> Snapshot {
        let bytes = include_bytes!("../../../flexnode-model/tests/samples/snapshot-1.json");
        Snapshot { verdict, ..Snapshot::decode(bytes).unwrap() }
    }

    fn told(loaded: Result<Option<Snapshot>, StatusFileError>, seconds: i64, is_node: bool) -> (u8, String) {
        let now = snapshot(Verdict::Healthy).at + SignedDuration::from_secs(seconds);
        let (exit, line) = judge(loaded, SignedDuration::from_secs(120), now, || is_node);
        (exit.code(), line)
    }

    #[test]
    fn verdicts_age_and_absence() {
        assert_eq!(told(Ok(Some(snapshot(Verdict::Healthy))), 119, true), (0, "ok".into()));
        let (code, line) = told(Ok(Some(snapshot(Verdict::Healthy))), 121, true);
        assert!(code == 3 && line.contains("121 s old"), "{line}");
        let (code, line) = told(Ok(Some(snapshot(Verdict::Degraded))), 1, true);
        assert!(code == 3 && line.contains("PLEG is not healthy"), "{line}");
        assert_eq!(told(Ok(Some(snapshot(Verdict::NotANode))), 1, true).0, 4);
        let absent = || Err(StatusFileError::Absent { path: "/x".into() });
        assert_eq!(told(absent(), 0, false).0, 4);
        let (code, line) = told(absent(), 0, true);
        assert!(code == 3 && line.contains("aks-flex-node-agent"), "{line}");
        assert_eq!(told(Ok(None), 0, true).0, 3);
        assert_eq!(told(Err(StatusFileError::EmptyPath), 0, true).0, 3);
    }
}

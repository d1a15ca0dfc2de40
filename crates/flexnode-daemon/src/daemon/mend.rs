//! Starting what died, under the lock, after a second look at what is true while it is held.

use super::DaemonContext;
use super::decide::{Action, Goal, UnitIs, unit_is};
use crate::records;
use flexnode_host::Host;
use flexnode_isolation::none::{Backend, RollbackUnits};
use flexnode_model::snapshot::{Mended, Reason};
use flexnode_status::Recorded;
use flexnode_status::observe::{ProgramView, UNIT_KUBELET, UnitView, damaged_kubelet_state};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a unit may take to start.
const START: Duration = Duration::from_secs(90);
/// The name under which the lock is held.
const OPERATION: &str = "mend";

/// What came of an action.
#[derive(Debug)]
pub enum Acted {
    /// It was not done after all: somebody else was faster, or it is no longer needed.
    NotDone,
    /// A unit was started, or not.
    Started(&'static str, Reason, Mended),
    /// Damaged state was moved aside.
    SetAside(Mended),
    /// An interrupted operation was taken up; whether it is over.
    Resumed(bool),
    /// The lock is free.
    Freed,
}

/// What is meant to run, by what was recorded.
pub fn goal(recorded: &Recorded, slots_whole: bool) -> Goal {
    let own = recorded.state.as_ref().and_then(|state| state.flexnode.as_ref());
    Goal {
        runs: slots_whole && recorded.problems.is_empty() && own.is_some_and(|own| own.active_slot.is_some()),
        stopped_by_person: recorded.is_stopped_by_person(),
    }
}

/// Does it.
pub async fn act(context: &DaemonContext, action: Action) -> Acted {
    match action {
        Action::Start { unit, reason } => start(context, unit, reason).await,
        Action::SetAside => set_aside(context).await,
        Action::Wait | Action::AwaitLock | Action::TakeUp => Acted::NotDone,
    }
}

/// Whether the node is still to run, now that the lock is held: whoever held it before may have stopped or removed it.
fn still_meant(context: &DaemonContext) -> bool {
    // Who holds the lock is this process.
    let recorded = Recorded { holder: None, ..records::recorded(&context.host, context.locks.as_ref()) };
    let goal = goal(&recorded, true);
    goal.runs && !goal.stopped_by_person && recorded.open().is_none()
}

async fn how(host: &Host, unit: &str) -> UnitIs {
    let state = host.systemd.unit(unit).await.map_err(|e| e.to_string());
    let program = ProgramView { process: Ok(None), slot: None, resident: None };
    unit_is(&UnitView { state, program, last_lines: Vec::new() }, host.clock.now())
}

async fn start(context: &DaemonContext, unit: &'static str, reason: Reason) -> Acted {
    let host = &context.host;
    let Ok(lock) = context.locks.acquire(OPERATION) else { return Acted::NotDone };
    let wanted = if reason == Reason::UnitFailed { UnitIs::Failed } else { UnitIs::Stopped };
    if !still_meant(context) || how(host, unit).await != wanted {
        return Acted::NotDone;
    }
    let why = if reason == Reason::UnitFailed { "it had failed" } else { "somebody had stopped it" };
    tracing::warn!(unit, why, "a unit of the node does not run and is started");
    let started = async {
        units_of_active(host).await?;
        host.systemd.reset_failed(unit).await?;
        host.systemd.start(unit, START).await?;
        Ok(())
    };
    let what = match started.await {
        Ok(()) => format!("started, because {why}"),
        Err(error) => {
            let error: flexnode_isolation::Error = error;
            let line = flexnode_ops::report::line(&error);
            tracing::error!(unit, error = line, "a unit of the node could not be started");
            format!("could not be started after {why}: {}", flexnode_status::lines::clean(&line))
        }
    };
    drop(lock);
    Acted::Started(unit, reason, Mended { at: host.clock.now(), unit: unit.into(), reason, what })
}

/// Nothing is started while the units are not those of the active version: a way back that failed may have left others.
async fn units_of_active(host: &Host) -> Result<(), flexnode_isolation::Error> {
    let mut backend = Backend::new_default(host.clone(), tracing::Span::none());
    backend.rollback_units = RollbackUnits::Recorded;
    backend.ensure_units().await.map(|_| ())
}

async fn set_aside(context: &DaemonContext) -> Acted {
    let host = &context.host;
    let Ok(lock) = context.locks.acquire(OPERATION) else { return Acted::NotDone };
    let damaged = damaged_kubelet_state(host.fs.as_ref());
    let stuck = matches!(how(host, UNIT_KUBELET).await, UnitIs::Looping | UnitIs::Failed);
    if damaged.is_empty() || !stuck || !still_meant(context) {
        return Acted::NotDone;
    }
    let mut said = Vec::new();
    for path in &damaged {
        said.push(match move_aside(host, path) {
            Ok(to) => format!("{} moved to {}", path.display(), to.display()),
            Err(error) => format!("{} could not be moved: {}", path.display(), flexnode_ops::report::line(&error)),
        });
    }
    let said = said.join("; ");
    tracing::warn!(files = said, "kubelet does not start with damaged state, which is moved aside");
    let again = async {
        units_of_active(host).await?;
        host.systemd.reset_failed(UNIT_KUBELET).await?;
        host.systemd.restart(UNIT_KUBELET, START).await?;
        Ok::<(), flexnode_isolation::Error>(())
    };
    let what = match again.await {
        Ok(()) => format!("{said}; kubelet was started again"),
        Err(error) => format!("{said}; kubelet could not be started: {error}"),
    };
    drop(lock);
    let (unit, reason) = (UNIT_KUBELET.into(), Reason::KubeletStateDamaged);
    Acted::SetAside(Mended { at: host.clock.now(), unit, reason, what })
}

/// Renames a file so that kubelet does not find it and a person does.
fn move_aside(host: &Host, path: &Path) -> Result<PathBuf, flexnode_host::FsError> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".damaged-{}", host.clock.now().as_second()));
    let to = PathBuf::from(name);
    host.fs.rename(path, &to)?;
    if let Some(dir) = path.parent() {
        host.fs.sync_dir(dir)?;
    }
    Ok(to)
}

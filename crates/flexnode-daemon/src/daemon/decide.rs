//! What the daemon does next: a pure function of what is seen, of what is meant to run, and of what was tried before.

use flexnode_host::UnitState;
use flexnode_model::snapshot::Reason;
use flexnode_status::judge;
use flexnode_status::observe::{UNIT_CONTAINERD, UNIT_KUBELET, UNIT_LOCAL_DNS, UnitView};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// The units that are kept running, in the order in which they start.
pub const KEPT: [&str; 3] = [UNIT_CONTAINERD, UNIT_LOCAL_DNS, UNIT_KUBELET];
/// A unit that ended is left alone for so long: whoever ended it may be about to start it again.
pub const GRACE: Duration = Duration::from_secs(3);
/// Starts of a unit that failed, within [`WINDOW`].
pub const MOST_STARTS: usize = 5;
/// What was tried is remembered for so long.
pub const WINDOW: Duration = Duration::from_hours(1);
/// After a start that was of no use: twice as long each time.
const PAUSE_FIRST: Duration = Duration::from_secs(10);
const PAUSE_LAST: Duration = Duration::from_mins(5);

/// How a unit is, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnitIs {
    /// systemd did not say.
    Unknown,
    /// It is not installed, or cannot be loaded.
    NotThere,
    /// It is masked, or disabled and does not run: somebody wants it so.
    Off,
    /// It runs.
    Up,
    /// It starts or ends.
    Changing,
    /// Its program ends again and again, and systemd starts it again.
    Looping,
    /// It failed, and systemd does not start it again.
    Failed,
    /// It was stopped.
    Stopped,
}

/// How a unit is.
pub fn unit_is(view: &UnitView, now: Timestamp) -> UnitIs {
    let Ok(state) = &view.state else { return UnitIs::Unknown };
    let off = |state: &UnitState| state.enabled == "disabled" || state.enabled.starts_with("masked");
    match (state.load.as_str(), state.active.as_str()) {
        ("masked", _) => UnitIs::Off,
        (load, _) if load != "loaded" => UnitIs::NotThere,
        _ if judge::is_looping(state, now) => UnitIs::Looping,
        (_, "active" | "reloading" | "refreshing") => UnitIs::Up,
        (_, "activating" | "deactivating") => UnitIs::Changing,
        _ if off(state) => UnitIs::Off,
        (_, "failed") => UnitIs::Failed,
        (_, "inactive") => UnitIs::Stopped,
        _ => UnitIs::Unknown,
    }
}

/// What is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts, and every combination is tested")]
pub struct Observed {
    /// Monotonic time.
    pub now: Duration,
    /// How each unit of [`KEPT`] is, and since when it is in that state, as monotonic time.
    pub units: BTreeMap<&'static str, (UnitIs, Duration)>,
    /// kubelet says that it is healthy.
    pub kubelet_healthy: bool,
    /// State files of kubelet that it cannot read.
    pub damaged_state: usize,
    /// Somebody holds the host's lock.
    pub busy: bool,
    /// An operation has not ended.
    pub open: bool,
    /// It was interrupted.
    pub interrupted: bool,
}

/// What is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// A version is applied, whole and recorded: the node is to run.
    pub runs: bool,
    /// A person stopped it.
    pub stopped_by_person: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Nothing.
    Wait,
    /// Wait until whoever runs an operation is done with it, or was killed.
    AwaitLock,
    /// Take an interrupted operation up.
    TakeUp,
    /// Move damaged state files of kubelet aside and start it again.
    SetAside,
    /// Start a unit.
    Start {
        /// Which.
        unit: &'static str,
        /// [`Reason::UnitFailed`] or [`Reason::UnitStopped`].
        reason: Reason,
    },
}

/// What was tried with one unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tried {
    /// Starts after failures, oldest first.
    failures: Vec<Duration>,
    /// The start after somebody stopped it.
    stopped: Option<Duration>,
}

/// What was tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    units: BTreeMap<&'static str, Tried>,
    set_aside: Option<Duration>,
    resumes: u32,
    resume_from: Duration,
}

/// A pause that doubles with each failure.
fn pause(failures: u32) -> Duration {
    PAUSE_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(PAUSE_LAST)
}

impl Memory {
    /// A unit was started for this reason.
    pub fn started(&mut self, unit: &'static str, reason: Reason, now: Duration) {
        let tried = self.units.entry(unit).or_default();
        match reason {
            Reason::UnitStopped => tried.stopped = Some(now),
            _ => tried.failures.push(now),
        }
    }

    /// Damaged state was moved aside.
    pub fn set_aside(&mut self, now: Duration) {
        self.set_aside = Some(now);
    }

    /// An interrupted operation was taken up.
    pub fn resumed(&mut self, ok: bool, now: Duration) {
        self.resumes = if ok { 0 } else { self.resumes.saturating_add(1) };
        self.resume_from = if ok { now } else { now + pause(self.resumes) };
    }

    /// Forgets what is so long ago that it says nothing any more.
    fn recent(&self, unit: &str, now: Duration) -> Tried {
        let mut tried = self.units.get(unit).cloned().unwrap_or_default();
        tried.failures.retain(|at| now.saturating_sub(*at) < WINDOW);
        tried
    }

    /// A unit that has been up for as long as things are remembered begins anew.
    pub fn forget(&mut self, observed: &Observed) {
        for (unit, (is, since)) in &observed.units {
            if *is == UnitIs::Up && observed.now.saturating_sub(*since) >= WINDOW {
                self.units.remove(unit);
            }
        }
        self.set_aside = self.set_aside.filter(|at| observed.now.saturating_sub(*at) < WINDOW);
    }

    /// Why a unit that does not run is left alone now, in a sentence.
    pub fn left(&self, unit: &str, is: UnitIs, now: Duration) -> Option<String> {
        let tried = self.recent(unit, now);
        match is {
            UnitIs::Stopped if tried.stopped.is_some() => Some(format!(
                "{unit} was stopped again after the agent had started it: it is left alone, `systemctl start {unit}` starts it"
            )),
            UnitIs::Failed if tried.failures.len() >= MOST_STARTS => Some(format!(
                "{unit} failed {MOST_STARTS} times within an hour although it was started again: it is left alone for a while"
            )),
            _ => None,
        }
    }
}

/// What to do next, and when to look again at the latest when nothing changes until then.
pub fn decide(observed: &Observed, goal: Goal, state: &Memory) -> (Action, Option<Duration>) {
    let now = observed.now;
    // Whoever holds the lock looks after the node.
    if observed.interrupted {
        return match observed.busy {
            true => (Action::AwaitLock, None),
            false if now < state.resume_from => (Action::Wait, Some(state.resume_from.saturating_sub(now))),
            false => (Action::TakeUp, None),
        };
    }
    if observed.busy || observed.open || !goal.runs || goal.stopped_by_person {
        return (Action::Wait, None);
    }
    let mut again: Option<Duration> = None;
    let mut later = |wait: Duration| again = Some(again.map_or(wait, |before| before.min(wait)));
    for unit in KEPT {
        let Some((is, since)) = observed.units.get(unit) else { continue };
        if unit == UNIT_KUBELET && is_stuck(*is, observed) && state.set_aside.is_none() {
            return (Action::SetAside, None);
        }
        let reason = match is {
            UnitIs::Failed => Reason::UnitFailed,
            UnitIs::Stopped => Reason::UnitStopped,
            _ => continue,
        };
        if state.left(unit, *is, now).is_some() {
            later(WINDOW);
            continue;
        }
        let tried = state.recent(unit, now);
        let paused = tried.failures.last().filter(|_| reason == Reason::UnitFailed);
        let failures = u32::try_from(tried.failures.len()).unwrap_or(u32::MAX);
        let from = paused.map_or(Duration::ZERO, |at| *at + pause(failures)).max(*since + GRACE);
        if now < from {
            later(from.saturating_sub(now));
            continue;
        }
        return (Action::Start { unit, reason }, None);
    }
    (Action::Wait, again)
}

/// kubelet does not come up, and there is a file that it cannot read.
fn is_stuck(is: UnitIs, observed: &Observed) -> bool {
    observed.damaged_state > 0 && !observed.kubelet_healthy && matches!(is, UnitIs::Looping | UnitIs::Failed)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;

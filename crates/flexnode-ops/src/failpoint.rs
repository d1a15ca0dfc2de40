//! Fail points: places at which a test makes an operation crash, fail or hang.
//!
//! `FLEXNODE_FAILPOINT=<operation>/<step>/<before|after>=<crash|error|hang>`, several separated by `;`. Steps of a way
//! back are those of `<operation>.rollback`. Compiled in by the feature `failpoints` only; without it the variable is
//! not read.
//!
//! `crash` ends the process with SIGKILL sent to itself: no unwinding, no flushing, no destructors, no core file. That is
//! what a kill from outside does, so what survives is what was durable. `hang` never returns, so that the deadline of the
//! step has to fire. `error` fails the step; after it, the step's work is done all the same.
//!
//! Deadlines are minutes. Suites that meet hundreds of points shorten them with settings that exist in such builds only:
//! [`HANG_LIMIT`] and whatever else reads [`seconds`].

use std::fmt;
use std::time::Duration;

/// The variable that names the points.
pub const VARIABLE: &str = "FLEXNODE_FAILPOINT";

/// Seconds after which a step that hangs at its point is given up, instead of at its deadline.
pub const HANG_LIMIT: &str = "FLEXNODE_HANG_LIMIT";

/// A time in seconds from the environment, in builds with fail points only.
pub fn seconds(variable: &str) -> Option<Duration> {
    if !cfg!(feature = "failpoints") {
        return None;
    }
    let text = std::env::var(variable).ok()?;
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

/// On which side of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Its record is written, it has not run.
    Before,
    /// It has run, the next record is not written.
    After,
}

/// What happens there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The process ends at once.
    Crash,
    /// The step fails.
    Error,
    /// The step never returns.
    Hang,
}

/// One place and what happens there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailPoint {
    /// Kind of operation, with `.rollback` for its way back.
    pub operation: String,
    /// Name of the step.
    pub step: String,
    /// Before or after it.
    pub side: Side,
    /// What happens.
    pub action: Action,
}

impl fmt::Display for FailPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Before => "before",
            Side::After => "after",
        };
        let action = match self.action {
            Action::Crash => "crash",
            Action::Error => "error",
            Action::Hang => "hang",
        };
        write!(f, "{}/{}/{side}={action}", self.operation, self.step)
    }
}

/// A value of [`VARIABLE`] that does not say what to do.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE}: {entry:?} is not <operation>/<step>/<before|after>=<crash|error|hang>")]
pub struct FailPointError {
    /// The entry that is malformed.
    pub entry: String,
}

/// Reads the value of [`VARIABLE`]. Empty entries are skipped.
pub fn parse(value: &str) -> Result<Vec<FailPoint>, FailPointError> {
    value.split(';').map(str::trim).filter(|entry| !entry.is_empty()).map(parse_one).collect()
}

fn parse_one(entry: &str) -> Result<FailPoint, FailPointError> {
    let malformed = || FailPointError { entry: entry.chars().take(200).collect() };
    let (place, action) = entry.split_once('=').ok_or_else(malformed)?;
    let mut parts = place.split('/');
    let (Some(operation), Some(step), Some(side), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(malformed());
    };
    if operation.is_empty() || step.is_empty() {
        return Err(malformed());
    }
    let side = match side {
        "before" => Side::Before,
        "after" => Side::After,
        _ => return Err(malformed()),
    };
    let action = match action {
        "crash" => Action::Crash,
        "error" => Action::Error,
        "hang" => Action::Hang,
        _ => return Err(malformed()),
    };
    Ok(FailPoint { operation: operation.into(), step: step.into(), side, action })
}

/// The points of this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailPoints {
    points: Vec<FailPoint>,
}

impl FailPoints {
    /// Those of the environment; none in a build without the feature.
    pub(crate) fn from_env() -> Result<Self, FailPointError> {
        if !cfg!(feature = "failpoints") {
            return Ok(Self::default());
        }
        match std::env::var_os(VARIABLE) {
            None => Ok(Self::default()),
            Some(value) => Self::new(&value.to_string_lossy()),
        }
    }

    /// Those of a value.
    pub(crate) fn new(value: &str) -> Result<Self, FailPointError> {
        Ok(Self { points: parse(value)? })
    }

    /// The first point on this operation that names none of `steps`.
    pub(crate) fn unknown(&self, operation: &str, steps: &[&'static str]) -> Option<&FailPoint> {
        self.points.iter().find(|point| point.operation == operation && !steps.contains(&point.step.as_str()))
    }

    /// What happens at this place, if anything.
    pub(crate) fn at(&self, operation: &str, step: &str, side: Side) -> Option<Action> {
        let here = |point: &&FailPoint| point.operation == operation && point.step == step && point.side == side;
        self.points.iter().find(here).map(|point| point.action)
    }
}

/// Ends this process the way a kill from outside does. In this crate's own tests it unwinds instead, so that a test can
/// drop everything that was in memory and go on with what was durable.
pub(crate) fn crash() -> ! {
    #[cfg(test)]
    std::panic::panic_any(Crashed);
    #[cfg(not(test))]
    {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        // Not reached: SIGKILL cannot be blocked. Should it be refused, this is the next best.
        std::process::abort()
    }
}

/// What [`crash`] unwinds with in this crate's own tests.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Crashed;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_points_are_read() {
        let points =
            parse("upgrade/flip/before=crash; upgrade.rollback/start/after=hang;reset/stop-kubelet/after=error;")
                .unwrap();
        let texts: Vec<String> = points.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            ["upgrade/flip/before=crash", "upgrade.rollback/start/after=hang", "reset/stop-kubelet/after=error"]
        );
        assert_eq!(parse(" ; ").unwrap(), []);
    }

    #[test]
    fn a_malformed_value_is_refused_and_named() {
        for value in [
            "upgrade/flip/before",
            "upgrade/flip=crash",
            "upgrade/flip/during=crash",
            "upgrade/flip/before=panic",
            "upgrade/flip/before/x=crash",
            "/flip/before=crash",
            "upgrade//before=crash",
            "upgrade/flip/before=crash,reset/stop/before=crash",
        ] {
            let all = format!("start/link/before=error;{value}");
            assert_eq!(parse(&all).unwrap_err().entry, value);
        }
    }

    #[test]
    fn a_point_counts_for_its_own_place_only() {
        let points = FailPoints::new("upgrade/flip/before=error").unwrap();
        assert_eq!(points.at("upgrade", "flip", Side::Before), Some(Action::Error));
        assert_eq!(points.at("upgrade", "flip", Side::After), None);
        assert_eq!(points.at("upgrade.rollback", "flip", Side::Before), None);
        assert_eq!(points.at("upgrade", "stop", Side::Before), None);
        assert!(points.unknown("upgrade", &["flip"]).is_none());
        assert_eq!(points.unknown("upgrade", &["stop"]).unwrap().step, "flip");
        assert!(points.unknown("reset", &["stop"]).is_none());
    }
}

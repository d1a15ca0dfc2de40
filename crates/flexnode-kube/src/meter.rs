//! What can be learnt from every answer of the API server, without asking for it: its clock, and how often it is asked.

use flexnode_model::snapshot::ClockSkew;
use flexnode_status::observe::Skew;
use jiff::{SignedDuration, Timestamp};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A measure that is older says nothing about now: clocks are set, and drift. Watches are renewed more often.
const OLD: SignedDuration = SignedDuration::from_mins(15);

/// Counts requests and reads the `Date` header of the answers.
#[derive(Debug, Default)]
pub struct Meter {
    requests: AtomicU64,
    last: Mutex<Option<ClockSkew>>,
}

impl Meter {
    /// Requests that were sent.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the time of an answer that has just come; one that cannot be read is passed over.
    pub(crate) fn hear(&self, date: &str, now: Timestamp) {
        let Ok(theirs) = jiff::fmt::rfc2822::parse(date) else { return };
        let seconds = now.duration_since(theirs.timestamp()).as_secs();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(ClockSkew { seconds, measured: now });
    }
}

impl Skew for Meter {
    fn skew(&self, now: Timestamp) -> Result<ClockSkew, String> {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.ok_or_else(|| "the API server has not answered yet".to_owned())?;
        let age = now.duration_since(last.measured);
        // A negative age: this host's clock was set back since.
        if age > OLD || age.is_negative() {
            return Err(format!("the API server's clock was last seen at {:.0} by this host's clock", last.measured));
        }
        Ok(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// C110.
    #[test]
    fn the_difference_is_that_of_the_last_answer() {
        let meter = Meter::default();
        let now = at("2026-11-30T12:02:00.9Z");
        assert!(meter.skew(now).unwrap_err().contains("not answered yet"));
        meter.hear("Mon, 30 Nov 2026 12:00:00 GMT", now);
        assert_eq!(meter.skew(now).unwrap().seconds, 120);
        meter.hear("nonsense", now);
        assert_eq!(meter.skew(now).unwrap().seconds, 120);
        meter.hear("Mon, 30 Nov 2026 12:03:00 GMT", now);
        assert_eq!(meter.skew(now).unwrap().seconds, -59);
        assert!(meter.skew(at("2026-11-30T12:20:00Z")).is_err(), "an old measure does not look fresh");
        assert!(meter.skew(at("2026-11-30T11:00:00Z")).is_err());
    }
}

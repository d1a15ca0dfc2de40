//! When each part of the node is looked at again, when nothing told that it changed. Pure.
//!
//! What can be watched is asked seldom: a change comes by itself, and the question is only for changes that got lost. All
//! periods are multiples of one another, so that one waking up serves several.

use flexnode_status::observe::Part;
use std::collections::BTreeMap;
use std::time::Duration;

/// A change is waited on for so long, because it seldom comes alone.
pub const GATHER: Duration = Duration::from_millis(100);
/// The file is written at least this often. Readers take one of 5 minutes for old, and want one of 60 s.
pub const WRITE: Duration = Duration::from_secs(50);

const SOON: Duration = Duration::from_secs(2);
const OFTEN: Duration = Duration::from_secs(10);
const SOMETIMES: Duration = WRITE;
const SELDOM: Duration = Duration::from_secs(300);

/// What is looked at: a part of the node, or what is recorded of it. In the order of looking: the records say which Node
/// is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// State, journal and lock.
    Records,
    /// The configuration file.
    Configuration,
    /// Of the node.
    Part(Part),
}

impl Subject {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Subject> {
        Part::ALL.into_iter().map(Subject::Part).chain([Subject::Records, Subject::Configuration])
    }
}

/// How long after a look a subject is looked at again. `ill`: what was found is not as it should be and may mend soon.
pub fn period(subject: Subject, ill: bool) -> Duration {
    let Subject::Part(part) = subject else {
        return if subject == Subject::Records { SOMETIMES } else { SELDOM };
    };
    match part {
        Part::Healthz | Part::Runtime if ill => SOON,
        Part::Healthz => OFTEN,
        Part::Runtime | Part::Programs | Part::Disks | Part::Clock | Part::Node | Part::Reboot => SOMETIMES,
        Part::KubeletState if ill => OFTEN,
        Part::Slots
        | Part::Units
        | Part::Versions
        | Part::Arc
        | Part::Certificates
        | Part::Cni
        | Part::KubeletState => SELDOM,
    }
}

/// When each subject is due, as monotonic time.
#[derive(Clone, Debug)]
pub struct Schedule(BTreeMap<Subject, Duration>);

impl Schedule {
    /// Everything is due now.
    pub fn new(now: Duration) -> Self {
        Self(Subject::all().map(|subject| (subject, now)).collect())
    }

    /// A change was told: the subject is due in a moment, if it is not due before.
    pub fn hint(&mut self, subject: Subject, now: Duration) {
        let soon = now + GATHER;
        let due = self.0.entry(subject).or_insert(soon);
        *due = (*due).min(soon);
    }

    /// A look at the subject begins: the next one is due after its period, on a grid.
    pub fn looked(&mut self, subject: Subject, ill: bool, now: Duration) {
        let period = period(subject, ill).as_secs().max(1);
        let next = (now.as_secs() / period + 1) * period;
        self.0.insert(subject, Duration::from_secs(next));
    }

    /// What was found is not as it should be: the subject is due as one that is ill, if it is not due before.
    pub fn found_ill(&mut self, subject: Subject, now: Duration) {
        let period = period(subject, true).as_secs().max(1);
        let next = Duration::from_secs((now.as_secs() / period + 1) * period);
        let due = self.0.entry(subject).or_insert(next);
        *due = (*due).min(next);
    }

    /// What is due.
    pub fn due(&self, now: Duration) -> Vec<Subject> {
        self.0.iter().filter(|(_, due)| **due <= now).map(|(subject, _)| *subject).collect()
    }

    /// When something is due next.
    pub fn next(&self) -> Duration {
        self.0.values().min().copied().unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_share_their_wake_ups() {
        let start = Duration::from_millis(7_300);
        let mut schedule = Schedule::new(start);
        assert_eq!(schedule.due(start).len(), 16, "at first everything");
        schedule.due(start).into_iter().for_each(|subject| schedule.looked(subject, false, start));
        // The wake-ups of an hour of a healthy node.
        let (mut now, mut wakes) = (start, 0);
        while now < start + Duration::from_hours(1) {
            now = schedule.next();
            wakes += 1;
            schedule.due(now).into_iter().for_each(|subject| schedule.looked(subject, false, now));
        }
        assert_eq!(wakes, 361, "one in ten seconds");
    }

    #[test]
    fn a_hint_comes_soon_and_does_not_put_off_what_is_due() {
        let now = Duration::from_secs(1000);
        let mut schedule = Schedule::new(now);
        let units = Subject::Part(Part::Units);
        schedule.looked(units, false, now);
        assert!(!schedule.due(now).contains(&units));
        schedule.hint(units, now);
        schedule.hint(units, now + Duration::from_millis(60));
        assert!(schedule.due(now + GATHER).contains(&units));
        schedule.looked(units, false, now + GATHER);
        let healthz = Subject::Part(Part::Healthz);
        schedule.looked(healthz, false, now);
        schedule.found_ill(healthz, now);
        assert!(schedule.due(now + SOON).contains(&healthz));
        assert!(!schedule.due(now + GATHER * 2).contains(&units));
    }

    #[test]
    fn what_is_ill_is_looked_at_more_often_and_nothing_more_seldom_than_five_minutes() {
        for subject in Subject::all() {
            assert!(period(subject, true) <= period(subject, false) && period(subject, false) <= SELDOM);
        }
        assert_eq!(period(Subject::Part(Part::Healthz), true), SOON);
    }
}

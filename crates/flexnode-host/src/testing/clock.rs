//! Time that moves only when somebody waits.

use super::locked;
use crate::Clock;
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use std::sync::Mutex;
use std::time::Duration;

/// A clock that jumps ahead instead of waiting. It starts at 2026-01-01T00:00:00Z and at 1000 s of monotonic time.
#[derive(Debug)]
pub struct FakeClock {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    now: Timestamp,
    monotonic: Duration,
    slept: Duration,
}

impl Default for FakeClock {
    fn default() -> Self {
        let now = Timestamp::constant(1_767_225_600, 0);
        Self { state: Mutex::new(State { now, monotonic: Duration::from_secs(1000), slept: Duration::ZERO }) }
    }
}

impl FakeClock {
    /// A clock at its start.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves both clocks ahead.
    pub fn advance(&self, time: Duration) {
        let mut state = locked(&self.state);
        state.monotonic += time;
        state.now = after(state.now, time);
    }

    /// Sets the wall clock alone, as a time server does; it may go back.
    pub fn set_wall(&self, now: Timestamp) {
        locked(&self.state).now = now;
    }

    /// The time that was waited for so far.
    pub fn slept(&self) -> Duration {
        locked(&self.state).slept
    }

    /// Waits without being asked through the trait: for the other fakes.
    pub(super) fn pass(&self, time: Duration) {
        self.advance(time);
        locked(&self.state).slept += time;
    }

    /// The wall clock in microseconds since the epoch.
    pub(super) fn now_us(&self) -> u64 {
        u64::try_from(locked(&self.state).now.as_microsecond()).unwrap_or(0)
    }
}

fn after(now: Timestamp, time: Duration) -> Timestamp {
    SignedDuration::try_from(time).ok().and_then(|time| now.checked_add(time).ok()).unwrap_or(Timestamp::MAX)
}

#[async_trait]
impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        locked(&self.state).now
    }
    fn monotonic(&self) -> Duration {
        locked(&self.state).monotonic
    }
    async fn sleep(&self, time: Duration) {
        self.pass(time);
        // Others get their turn, as they would while this task waits.
        tokio::task::yield_now().await;
    }
}

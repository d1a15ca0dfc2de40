//! The clocks of the machine.

use crate::Clock;
use async_trait::async_trait;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The machine's clocks. Monotonic time counts from the first use in this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealClock;

#[async_trait]
impl Clock for RealClock {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }
    fn monotonic(&self) -> Duration {
        START.elapsed()
    }
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

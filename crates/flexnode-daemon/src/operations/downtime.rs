//! How long the node was down in an operation, seen from what the engine tells.

use flexnode_host::Clock;
use flexnode_ops::{Event, Observer};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Adds up the times from a stop of the stack until kubelet was well again, and passes every event on.
pub(super) struct Downtime {
    next: Arc<dyn Observer>,
    clock: Arc<dyn Clock>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    since: Option<Duration>,
    total: Option<Duration>,
}

impl Downtime {
    pub(super) fn new(next: Arc<dyn Observer>, clock: Arc<dyn Clock>) -> Self {
        Self { next, clock, seen: Mutex::default() }
    }

    /// The sum; `None` when the node was not stopped, or is still down.
    pub(super) fn down(&self) -> Option<Duration> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.since.is_some() { None } else { seen.total }
    }
}

impl Observer for Downtime {
    fn event(&self, event: &Event) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::StepStarted { step, .. } if step == "stop" => {
                seen.since.get_or_insert(self.clock.monotonic());
            }
            Event::StepFinished { step, .. } if step == "start-kubelet" => {
                if let Some(since) = seen.since.take() {
                    let time = self.clock.monotonic().saturating_sub(since);
                    *seen.total.get_or_insert_default() += time;
                }
            }
            _ => {}
        }
        drop(seen);
        self.next.event(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_host::testing::FakeHost;
    use flexnode_ops::Silent;
    use flexnode_ops::observer::Finish;

    #[tokio::test]
    async fn times_without_a_node_are_added_up() {
        let fake = FakeHost::new();
        let watch = Downtime::new(Arc::new(Silent), fake.clock.clone());
        let begins = |step: &str| {
            let (step, title) = (step.to_owned(), String::new());
            watch.event(&Event::StepStarted { step, title, index: 1, of: 1, deadline_seconds: 1.0, rollback: false });
        };
        let ends = |step: &str| {
            let (step, text) = (step.to_owned(), String::new());
            watch.event(&Event::StepFinished { step, outcome: Finish::Changed, text, seconds: 1.0 });
        };
        let wait = |s| fake.clock.sleep(Duration::from_secs(s));
        begins("start-kubelet");
        ends("start-kubelet");
        assert_eq!(watch.down(), None, "it was not stopped");
        begins("stop");
        wait(2).await;
        begins("start-kubelet");
        wait(3).await;
        assert_eq!(watch.down(), None, "it is down");
        ends("start-kubelet");
        assert_eq!(watch.down(), Some(Duration::from_secs(5)));
        wait(30).await;
        begins("stop");
        wait(1).await;
        ends("start-kubelet");
        assert_eq!(watch.down(), Some(Duration::from_secs(6)));
    }
}

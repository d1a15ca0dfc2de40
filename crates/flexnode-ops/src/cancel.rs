//! The shared request to cancel, and the point from which on it is no longer heard.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::Notify;

/// Nothing was asked, the operation can be cancelled.
const FREE: u8 = 0;
/// It was asked in time.
const REQUESTED: u8 = 1;
/// The operation goes on to its end.
const COMMITTED: u8 = 2;
/// It was asked too late; it counts again when the operation is over.
const COMMITTED_REQUESTED: u8 = 3;

/// What a request to cancel leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The operation ends before its next step, or in the step when that is interruptible.
    WillStop,
    /// The node may be down: the operation goes on to the new state or the old one.
    GoesOn,
}

/// A flag shared between the engine and whoever hears signals. Cheap to clone; all clones are the same flag.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: AtomicU8,
    asked: Notify,
}

impl Cancel {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for the end. May be called from any thread, more than once.
    pub fn request(&self) -> Asked {
        let before = self.0.state.fetch_or(REQUESTED, Ordering::SeqCst);
        self.0.asked.notify_waiters();
        if before & COMMITTED == 0 { Asked::WillStop } else { Asked::GoesOn }
    }

    /// Whether a request is to be obeyed now.
    pub fn is_requested(&self) -> bool {
        self.0.state.load(Ordering::SeqCst) == REQUESTED
    }

    /// Whether requests are not heard now.
    pub fn is_committed(&self) -> bool {
        self.0.state.load(Ordering::SeqCst) & COMMITTED != 0
    }

    /// Waits until [`Cancel::is_requested`]. Safe to drop and call again.
    pub async fn requested(&self) {
        loop {
            let asked = self.0.asked.notified();
            tokio::pin!(asked);
            // Registered before the look, so that a request in between is not lost.
            asked.as_mut().enable();
            if self.is_requested() {
                return;
            }
            asked.await;
        }
    }

    /// From now on requests are not heard. `false`: one was made before, and the operation has to end.
    pub(crate) fn commit(&self) -> bool {
        match self.0.state.compare_exchange(FREE, COMMITTED, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => true,
            Err(now) => now != REQUESTED,
        }
    }

    /// As [`Cancel::commit`], whatever was asked before: a way back always goes to its end.
    pub(crate) fn force_commit(&self) {
        self.0.state.fetch_or(COMMITTED, Ordering::SeqCst);
    }

    /// The operation is over. What was asked meanwhile counts for what the command does next.
    pub(crate) fn release(&self) {
        let before = self.0.state.fetch_and(!COMMITTED, Ordering::SeqCst);
        if before == COMMITTED_REQUESTED {
            self.0.asked.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_before_the_commit_wins() {
        let cancel = Cancel::new();
        assert_eq!(cancel.request(), Asked::WillStop);
        assert!(cancel.is_requested());
        assert!(!cancel.commit());
        assert!(!cancel.is_committed());
    }

    #[test]
    fn a_request_after_the_commit_counts_when_the_operation_is_over() {
        let cancel = Cancel::new();
        assert!(cancel.commit());
        assert!(cancel.commit());
        assert_eq!(cancel.request(), Asked::GoesOn);
        assert_eq!(cancel.request(), Asked::GoesOn);
        assert!(!cancel.is_requested());
        cancel.release();
        assert!(cancel.is_requested());
    }

    #[test]
    fn a_way_back_goes_on_although_the_end_was_asked_for() {
        let cancel = Cancel::new();
        cancel.request();
        cancel.force_commit();
        assert!(!cancel.is_requested());
        assert_eq!(cancel.request(), Asked::GoesOn);
    }

    #[tokio::test]
    async fn waiting_hears_a_request_of_before_and_of_later() {
        let cancel = Cancel::new();
        let clone = cancel.clone();
        let waiter = tokio::spawn(async move { clone.requested().await });
        tokio::task::yield_now().await;
        cancel.request();
        waiter.await.unwrap();
        cancel.requested().await;
    }
}

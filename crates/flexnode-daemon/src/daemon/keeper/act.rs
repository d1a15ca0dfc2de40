//! What is done next, and what came of it.

use super::{KEPT_MENDED, Keeper, MAKE_ROOM};
use crate::daemon::decide::{Action, Observed, UnitIs, decide};
use crate::daemon::mend::{self, Acted};
use crate::daemon::schedule::{GATHER, Subject};
use crate::daemon::take_up;
use flexnode_status::observe::Part;
use futures_util::future::BoxFuture;
use std::time::Duration;

impl<'a> Keeper<'a> {
    /// Decides and begins to act. Gives when to decide again.
    pub(super) fn decide(&mut self, now: Duration) -> Duration {
        if self.acting.is_some() {
            return Duration::MAX;
        }
        if now < self.act_from {
            return self.act_from;
        }
        let observed = Observed {
            now,
            units: self.units.clone(),
            kubelet_healthy: self.seen.healthz.is_ok(),
            damaged_state: self.seen.damaged_state.len(),
            busy: self.recorded.holder.is_some(),
            open: self.recorded.open().is_some(),
            interrupted: self.recorded.last.as_ref().is_some_and(flexnode_model::JournalRecord::is_interrupted),
        };
        self.memory.forget(&observed);
        let whole = self.seen.slots.as_ref().is_ok_and(|s| s.current.as_ref().is_some_and(|c| c.problem.is_none()));
        let (action, again) = decide(&observed, mend::goal(&self.recorded, whole), &self.memory);
        let context = self.context;
        let acting: BoxFuture<'a, Acted> = match action {
            Action::Wait => return again.map_or(Duration::MAX, |wait| now + wait),
            Action::AwaitLock => Box::pin(async move {
                match context.locks.free().await {
                    Ok(()) => Acted::Freed,
                    Err(error) => {
                        tracing::warn!(error, "the host's lock cannot be looked at");
                        Acted::NotDone
                    }
                }
            }),
            Action::TakeUp => {
                Box::pin(take_up(&context.host, context.locks.as_ref(), context.resume.as_ref(), &context.cancel))
            }
            Action::Start { .. } | Action::SetAside => Box::pin(mend::act(context, action)),
        };
        self.acting = Some((action, acting));
        now
    }

    pub(super) fn acted(&mut self, acted: Acted) {
        self.acting = None;
        let now = self.now();
        let mended = match acted {
            Acted::NotDone => {
                self.act_from = now + MAKE_ROOM;
                None
            }
            Acted::Freed => None,
            Acted::Resumed(ok) => {
                self.memory.resumed(ok, now);
                self.shared.resumed(ok);
                None
            }
            Acted::Started(unit, reason, mended) => {
                self.memory.started(unit, reason, now);
                // What was seen before the start says nothing any more.
                self.units.insert(unit, (UnitIs::Changing, now));
                Some(mended)
            }
            Acted::SetAside(mended) => {
                self.memory.set_aside(now);
                Some(mended)
            }
        };
        if let Some(mended) = mended {
            self.shared.mended(mended.reason);
            self.mended.push(mended);
            let surplus = self.mended.len().saturating_sub(KEPT_MENDED);
            self.mended.drain(..surplus);
        }
        // What was true before is not any more. The records are looked at before anything else is decided.
        self.look_at_records();
        self.hints.add([Part::Slots, Part::Units, Part::Healthz, Part::Runtime, Part::KubeletState].map(Subject::Part));
        self.hints.add([Subject::Configuration]);
        self.act_from = self.act_from.max(now + GATHER * 5);
    }
}

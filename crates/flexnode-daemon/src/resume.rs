//! Which operations the daemon takes up, and how.

use crate::daemon::{Resume, ResumeFailure};
use crate::lock::Held;
use crate::operations::{NodeContext, recover};
use crate::reset::{self, Options, ResetContext};
use crate::start::{self, StartContext, Wait, decide};
use async_trait::async_trait;
use flexnode_ops::{Cancel, JournalRecord, Observer};
use std::sync::Arc;

/// An operation of which this program knows nothing: a newer one wrote the record.
#[derive(Debug, thiserror::Error)]
#[error("this program cannot finish an interrupted {0}; run the one that began it")]
pub struct UnknownOperation(pub String);

/// Takes up what the agent's commands begin.
#[derive(Clone)]
pub struct AgentResume {
    /// What `start` works with. It is not waited for the Node: the operation is over when its record is closed.
    pub start: StartContext,
    /// Sees what happens.
    pub observer: Arc<dyn Observer>,
}

impl std::fmt::Debug for AgentResume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentResume").field("start", &self.start).finish_non_exhaustive()
    }
}

#[async_trait]
impl Resume for AgentResume {
    async fn resume(&self, record: &JournalRecord, cancel: &Cancel, lock: Box<dyn Held>) -> Result<(), ResumeFailure> {
        match record.operation.as_str() {
            decide::KIND => {
                let context = StartContext { wait: Wait::Joined, owner: "daemon", ..self.start.clone() };
                start::run_locked(&context, self.observer.clone(), cancel.clone(), lock).await?;
                Ok(())
            }
            reset::KIND => {
                let options = Options::from_record(&record.goal);
                let context = ResetContext::new(self.start.host.clone(), self.start.cri.clone(), options);
                reset::run_locked(&context.for_daemon(), self.observer.clone(), cancel.clone(), lock).await?;
                Ok(())
            }
            other => {
                let context = NodeContext::new(StartContext { owner: "daemon", ..self.start.clone() });
                let Some((operation, mode)) = recover::operation(&context, record) else {
                    return Err(Box::new(UnknownOperation(other.into())));
                };
                let (observer, cancel) = (self.observer.clone(), cancel.clone());
                let said = recover::run(&context, record, (&operation, mode), observer, cancel, lock).await?;
                tracing::info!("{said}");
                Ok(())
            }
        }
    }

    async fn unreadable(&self, lock: Box<dyn Held>) -> Result<(), ResumeFailure> {
        let context = NodeContext::new(StartContext { owner: "daemon", ..self.start.clone() });
        let said = recover::start_current(&context).await?;
        drop(lock);
        tracing::warn!("{said}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_person_chose_survives_the_journal() {
        for keep_images in [false, true] {
            for remove_agent in [false, true] {
                let options = Options { keep_images, remove_agent };
                assert_eq!(Options::from_record(&options.to_record()), options);
            }
        }
        assert_eq!(Options::from_record("later,keep-images"), Options { keep_images: true, remove_agent: false });
        assert_eq!(Options::from_record(""), Options::default());
    }
}

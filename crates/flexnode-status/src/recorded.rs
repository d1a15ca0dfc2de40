//! What was recorded of the node, as plain data: who reads the records stands above.

use crate::observe::Known;
use flexnode_model::snapshot::{EndedOperation, GoalReport, OpenOperation, Reading};
use flexnode_model::{Difference, JournalRecord, State};

/// What the configuration file leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configured {
    /// Fingerprint of its goal.
    pub goal: String,
    /// What it says otherwise than what is applied: from the applied value to the file's.
    pub differences: Vec<Difference>,
}

/// What was recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// The agent made this host a node: only then is its service missed when it is not there.
    pub agent_expected: bool,
    /// Who looks is the agent's service itself: that its unit is just starting says nothing.
    pub is_agent: bool,
    /// Name of the Node.
    pub node_name: Option<String>,
    /// The applied state.
    pub state: Option<State>,
    /// The newest operation, open or closed.
    pub last: Option<JournalRecord>,
    /// PID of who holds the host's lock.
    pub holder: Option<u32>,
    /// What the configuration file leads to; `None` when there is no file, or nothing is applied.
    pub configured: Option<Known<Configured>>,
    /// Records that cannot be read, in sentences.
    pub problems: Vec<String>,
}

impl Recorded {
    /// A person stopped the node.
    pub fn is_stopped_by_person(&self) -> bool {
        self.state.as_ref().and_then(|state| state.flexnode.as_ref()).is_some_and(|own| own.stopped_by_person)
    }

    /// The operation that has not ended.
    pub fn open(&self) -> Option<&JournalRecord> {
        self.last.as_ref().filter(|record| record.is_open())
    }

    /// An operation was interrupted, and nobody runs it now.
    pub fn is_interrupted(&self) -> bool {
        self.holder.is_none() && self.last.as_ref().is_some_and(JournalRecord::is_interrupted)
    }

    pub(crate) fn open_operation(&self) -> Option<OpenOperation> {
        let record = self.open()?;
        Some(OpenOperation {
            operation: record.operation.clone(),
            step: record.step.clone(),
            rolling_back: record.phase == flexnode_model::journal::Phase::RollingBack,
            attempt: record.attempt,
            started: record.started,
            pid: self.holder,
            failed_step: record.failed_step.clone(),
            reason: record.error.as_deref().map(crate::lines::clean),
        })
    }

    pub(crate) fn ended_operation(&self) -> Option<EndedOperation> {
        let record = self.last.as_ref().filter(|record| !record.is_open())?;
        Some(EndedOperation {
            operation: record.operation.clone(),
            outcome: record.outcome?,
            ended: record.updated,
            failed_step: record.failed_step.clone(),
            reason: record.error.as_deref().map(crate::lines::clean),
        })
    }

    pub(crate) fn goal(&self) -> GoalReport {
        let own = self.state.as_ref().and_then(|state| state.flexnode.as_ref());
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        GoalReport {
            applied: own.and_then(|own| some(&own.goal)),
            applied_kubernetes_version: self.state.as_ref().and_then(|state| some(&state.applied_kubernetes_version)),
            configured: self.configured.as_ref().map(|known| match known {
                Ok(configured) => Reading::Known(configured.goal.clone()),
                Err(reason) => Reading::Unknown(reason.clone()),
            }),
            differences: match &self.configured {
                Some(Ok(configured)) => configured.differences.clone(),
                _ => Vec::new(),
            },
            failed: own.map(|own| own.failed_goals.clone()).unwrap_or_default(),
        }
    }

    pub(crate) fn previous_slot(&self) -> Option<String> {
        self.state.as_ref()?.flexnode.as_ref()?.previous_slot.clone()
    }
}

//! Restart, stop and start of a node that is there. The backend does it; what a person stopped is recorded here.

use super::error::outcome;
use super::{NodeContext, OperationError, SHORT, change_state, execute, lock};
use crate::lock::Held;
use flexnode_host::Fs;
use flexnode_isolation::none::run::kind;
use flexnode_ops::{Cancel, Observer, Operation, Recovery, Step};
use std::sync::Arc;

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// Restarts containerd and kubelet; pods are left alone.
    Restart,
    /// Stops them and keeps them from starting at boot.
    Stop,
    /// Starts what a stop ended.
    Start,
}

impl Lifecycle {
    /// Its name in journal, plan and fail points.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Restart => kind::RESTART,
            Self::Stop => kind::STOP,
            Self::Start => kind::START,
        }
    }

    /// That of a journal record.
    pub fn of_kind(kind: &str) -> Option<Self> {
        [Self::Restart, Self::Stop, Self::Start].into_iter().find(|it| it.kind() == kind)
    }
}

/// The steps. What a person wants is recorded before a stop and after a start: a crash between leaves a node that the next
/// run of the same operation finishes.
pub fn operation(context: &NodeContext, which: Lifecycle) -> Operation {
    let backend = context.backend();
    let fs = &context.host().fs;
    let steps = match which {
        Lifecycle::Stop => {
            let mut steps = vec![record(fs, true)];
            steps.extend(backend.stop_steps());
            steps.extend(backend.disable_steps());
            steps
        }
        Lifecycle::Start | Lifecycle::Restart => {
            let mut steps =
                if which == Lifecycle::Start { backend.start_steps_with_units() } else { backend.restart_steps() };
            steps.push(record(fs, false));
            steps
        }
    };
    Operation { kind: which.kind(), goal: String::new(), from: None, to: None, steps, recovery: Recovery::Resume }
}

/// What [`run`] would run on this node.
pub fn plan(context: &NodeContext, which: Lifecycle) -> Result<Operation, OperationError> {
    context.state()?;
    Ok(operation(context, which))
}

fn record(fs: &Arc<dyn Fs>, stopped: bool) -> Step {
    let fs = fs.clone();
    let title = if stopped { "record that a person stops the node" } else { "record that the node is to run" };
    Step::new("save-state", title, SHORT, move |_| {
        let fs = fs.clone();
        async move { change_state(&fs, |state| state.flexnode.get_or_insert_default().stopped_by_person = stopped) }
    })
}

/// Runs it; says whether anything changed.
pub async fn run(
    context: &NodeContext,
    which: Lifecycle,
    observer: Arc<dyn Observer>,
    cancel: Cancel,
) -> Result<bool, OperationError> {
    let lock: Box<dyn Held> = lock(context, which.kind())?;
    let operation = plan(context, which)?;
    let (report, _) = execute(context, &operation, observer, cancel, lock).await?;
    outcome(report, ("", ""), None)
}

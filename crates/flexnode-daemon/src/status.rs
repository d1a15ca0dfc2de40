//! The facts behind `aks-flex-node status`: what was seen, and what was recorded.

use crate::lock::Locks;
use crate::record::RecordStore;
use crate::state::StateStore;
use flexnode_host::Host;
use flexnode_host::cri::{CONTAINERD_SOCKET, CriSocket};
use flexnode_host::probe::LoopbackProbe;
use flexnode_isolation::none::{DEFAULT_BASE, Layout};
use flexnode_kube::{Names, NodeClient};
use flexnode_model::{JournalRecord, MachineGoal, State};
use flexnode_ops::Journal;
use flexnode_stack::places;
use flexnode_status::report::{Context, report};
use flexnode_status::{FsSlots, NodeReport, OwnNode, Seams, observe};
use std::sync::Arc;

const GOAL_LIMIT: u64 = 4 << 20;

/// What was recorded of the machine, with what could not be read as a sentence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// The applied state.
    pub state: Option<State>,
    /// The operation that has not ended.
    pub open: Option<JournalRecord>,
    /// An operation runs now: the lock is held.
    pub busy: bool,
    /// Name of the Node.
    pub node_name: Option<String>,
    /// What is wrong with the records.
    pub problems: Vec<String>,
}

/// Reads the records. Takes no lock and changes nothing.
pub fn recorded(host: &Host, locks: &dyn Locks) -> Recorded {
    let mut found = Recorded { busy: locks.holder().is_some(), ..Recorded::default() };
    match StateStore::new(host.fs.clone()).load() {
        Ok(state) => found.state = state,
        Err(e) => found.problems.push(sentence(&e)),
    }
    match Journal::new(host.fs.clone()).open() {
        Ok(open) => found.open = open,
        Err(e) => found.problems.push(sentence(&e)),
    }
    let record = match RecordStore::new(host.fs.clone()).load() {
        Ok(record) => record,
        Err(e) => {
            found.problems.push(sentence(&e));
            None
        }
    };
    found.node_name = record.and_then(|r| r.node_name).or_else(|| goal_name(host));
    found
}

/// The node name of the active slot's goal.
fn goal_name(host: &Host) -> Option<String> {
    let path = Layout::default().current_config(places::config::GOAL);
    let bytes = host.fs.read(&path, GOAL_LIMIT).ok()??;
    MachineGoal::decode(&bytes).ok().map(|goal| goal.node_name)
}

/// What `status` counts as a deviation beside what it sees. Pure.
pub fn deviations(recorded: &Recorded) -> Vec<String> {
    let mut out = recorded.problems.clone();
    if recorded.state.as_ref().and_then(|s| s.flexnode.as_ref()).is_some_and(|f| f.stopped_by_person) {
        out.push("the node was stopped by a person; aks-flex-node start-node starts it".into());
    }
    if let Some(open) = &recorded.open {
        out.push(match (&open.failed_step, recorded.busy) {
            (_, true) => format!("{} runs now, at step {}", open.operation, open.step),
            (Some(step), false) => format!(
                "{} failed at step {step}; running aks-flex-node {} again continues",
                open.operation, open.operation
            ),
            (None, false) => format!("{} was interrupted at step {}", open.operation, open.step),
        });
    }
    out
}

/// Looks at everything and judges it. `agent_version` is this program's.
pub async fn node_report(host: &Host, locks: &dyn Locks, agent_version: &str) -> NodeReport {
    let recorded = recorded(host, locks);
    let node: Option<Arc<dyn OwnNode>> = recorded.node_name.as_deref().map(|name| {
        let client = NodeClient::from_kubelet_credentials(host.fs.clone(), places::KUBECONFIG, name, Names::system());
        Arc::new(client) as Arc<dyn OwnNode>
    });
    let slots = Arc::new(FsSlots::new(host.fs.clone(), DEFAULT_BASE));
    let cri = Arc::new(CriSocket::new(CONTAINERD_SOCKET));
    let seams = Seams::new(host, Arc::new(LoopbackProbe), cri, slots, node);
    let seen = observe::observe(&seams, false).await;
    let context = Context {
        agent_version: agent_version.into(),
        deviations: deviations(&recorded),
        agent_expected: recorded.state.is_some(),
        node_name: recorded.node_name,
    };
    report(&seen, &context)
}

fn sentence(error: &(dyn std::error::Error + 'static)) -> String {
    flexnode_ops::report::line(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_model::journal::{Subject, Writer};
    use flexnode_model::state::Extension;

    fn open(failed: bool) -> JournalRecord {
        let by = Writer { boot_id: "b".into(), pid: 1, owner: "command".into() };
        let subject = Subject { operation: "start".into(), ..Subject::default() };
        let mut record = JournalRecord::open("1", subject, &by, jiff::Timestamp::UNIX_EPOCH);
        record.enter("flip", jiff::Timestamp::UNIX_EPOCH);
        if failed {
            record.fail("no", jiff::Timestamp::UNIX_EPOCH);
        }
        record
    }

    #[test]
    fn an_operation_is_told_by_how_it_stands() {
        let told = |failed, busy| deviations(&Recorded { open: Some(open(failed)), busy, ..Recorded::default() });
        assert_eq!(told(false, true), ["start runs now, at step flip"]);
        assert_eq!(told(false, false), ["start was interrupted at step flip"]);
        assert_eq!(told(true, false), ["start failed at step flip; running aks-flex-node start again continues"]);
        assert!(deviations(&Recorded::default()).is_empty());
    }

    #[test]
    fn what_cannot_be_read_and_a_stop_by_a_person_are_told() {
        let extension = Extension { stopped_by_person: true, ..Extension::default() };
        let state = State { flexnode: Some(extension), ..State::default() };
        let recorded = Recorded { state: Some(state), problems: vec!["broken".into()], ..Recorded::default() };
        assert_eq!(deviations(&recorded).len(), 2);
        assert_eq!(deviations(&recorded)[0], "broken");
    }

    #[test]
    fn records_that_make_no_sense_stop_nothing() {
        let fake = flexnode_host::testing::FakeHost::new();
        fake.fs.put(crate::state::STATE_PATH, "{", 0o600).put(crate::record::RECORD_PATH, "{", 0o600);
        fake.fs.put("/var/lib/aks-flex-node/journal/record.json", "{", 0o600);
        let found = recorded(&fake.host(), &NoLock);
        assert_eq!(found.problems.len(), 3, "{:?}", found.problems);
        assert!(found.state.is_none() && found.open.is_none());
    }

    #[derive(Debug)]
    struct NoLock;

    #[async_trait::async_trait]
    impl Locks for NoLock {
        fn acquire(&self, _: &str) -> Result<Box<dyn crate::lock::Held>, crate::lock::LockFailure> {
            Err("not here".into())
        }
        async fn free(&self) -> Result<(), crate::lock::LockFailure> {
            Ok(())
        }
    }
}

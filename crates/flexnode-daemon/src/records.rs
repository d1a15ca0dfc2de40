//! What was recorded of this host, as plain data for [`flexnode_status`]. Takes no lock and changes nothing.

use crate::config_file::{self, ConfigFileError};
use crate::lock::Locks;
use crate::record::RecordStore;
use crate::start::host_facts;
use crate::state::StateStore;
use flexnode_host::Host;
use flexnode_isolation::none::Layout;
use flexnode_model::{Config, MachineGoal};
use flexnode_ops::{Journal, report};
use flexnode_stack::places;
use flexnode_status::{Configured, Recorded};
use std::path::Path;

const GOAL_LIMIT: u64 = 4 << 20;

/// Reads the records. What cannot be read is a sentence in them.
pub fn recorded(host: &Host, locks: &dyn Locks) -> Recorded {
    let mut found = Recorded { holder: locks.holder(), ..Recorded::default() };
    let mut problem = |e: &(dyn std::error::Error + 'static)| found.problems.push(report::line(e));
    let state = StateStore::new(host.fs.clone()).load().map_err(|e| problem(&e)).ok().flatten();
    let last = Journal::new(host.fs.clone()).last().map_err(|e| problem(&e)).ok().flatten();
    let record = RecordStore::new(host.fs.clone()).load().map_err(|e| problem(&e)).ok().flatten();
    found.agent_expected = record.is_some();
    found.node_name = record.and_then(|record| record.node_name).or_else(|| Some(applied(host)?.node_name));
    (found.state, found.last) = (state, last);
    found
}

/// The goal of the active slot.
fn applied(host: &Host) -> Option<MachineGoal> {
    let path = Layout::default().current_config(places::config::GOAL);
    MachineGoal::decode(&host.fs.read(&path, GOAL_LIMIT).ok()??).ok()
}

/// What the configuration at `path` leads to, compared with what is applied; `None` when there is no file, or nothing is
/// applied.
pub fn configured(host: &Host, path: &Path) -> Option<Result<Configured, String>> {
    let applied = applied(host)?;
    let bytes = match config_file::read(host.fs.as_ref(), path) {
        Ok(bytes) => bytes,
        Err(ConfigFileError::Missing(_)) => return None,
        Err(e) => return Some(Err(report::line(&e))),
    };
    let facts = match host_facts(host) {
        Ok(facts) => facts,
        Err(e) => return Some(Err(report::line(&e))),
    };
    Some(match Config::load(&bytes, &facts) {
        Ok((config, goal, ..)) => {
            let told = completed(goal.clone(), &applied);
            let differences = config.differences(&facts, &applied, &told);
            // Another version has other artifacts: which, only its slot knows, when it was ever prepared.
            let prepared = if differences.is_empty() { None } else { prepared(host, &goal) };
            Ok(Configured { goal: prepared.unwrap_or(told).fingerprint(), differences })
        }
        Err(e) => Err(report::line(&e)),
    })
}

/// The goal of the slot that was made for this configuration.
fn prepared(host: &Host, goal: &MachineGoal) -> Option<MachineGoal> {
    let layout = Layout::default();
    let slots = host.fs.read_dir(Path::new(flexnode_isolation::none::DEFAULT_BASE)).ok()?;
    slots.iter().filter_map(|entry| entry.name.to_str()).find_map(|slot| {
        let path = layout.version_dir(slot).join("etc").join(places::config::GOAL);
        let made = MachineGoal::decode(&host.fs.read(&path, GOAL_LIMIT).ok()??).ok()?;
        (completed(goal.clone(), &made) == made).then_some(made)
    })
}

/// The goal of a configuration with what the file leaves to the source: that is no difference.
pub fn completed(mut goal: MachineGoal, applied: &MachineGoal) -> MachineGoal {
    goal.artifacts.clone_from(&applied.artifacts);
    goal.isolation = applied.isolation;
    goal.take_unset_versions(applied);
    goal
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_host::testing::FakeHost;

    const GOAL: &[u8] = include_bytes!("../../flexnode-model/tests/samples/machine-goal-1.json");

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

    #[test]
    fn records_that_make_no_sense_stop_nothing() {
        let fake = FakeHost::new();
        assert_eq!(recorded(&fake.host(), &NoLock), Recorded::default());
        fake.fs.put(crate::state::STATE_PATH, "{", 0o600).put(crate::record::RECORD_PATH, "{", 0o600);
        fake.fs.put("/var/lib/aks-flex-node/journal/record.json", "{", 0o600);
        let found = recorded(&fake.host(), &NoLock);
        assert_eq!(found.problems.len(), 3, "{:?}", found.problems);
        assert!(found.state.is_none() && found.last.is_none());
    }

    #[test]
    fn what_the_file_leaves_to_the_source_is_no_difference() {
        let applied = MachineGoal::decode(GOAL).unwrap();
        let mut told = applied.clone();
        (told.containerd_version, told.runc_version, told.cni_version) = (None, None, None);
        told.artifacts.clear();
        assert_eq!(completed(told.clone(), &applied), applied);
        told.kubernetes_version = "1.40.0".into();
        assert_eq!(applied.differences(&completed(told.clone(), &applied)).len(), 1);
        // The slot that was made for it knows its artifacts.
        let mut made = MachineGoal { kubernetes_version: "1.40.0".into(), ..applied.clone() };
        made.artifacts.insert("another".into(), "00".into());
        let fake = FakeHost::new();
        fake.fs.put_dir("/opt/unbounded/node/1.40.0-aa/etc", 0o755);
        fake.fs.put("/opt/unbounded/node/1.40.0-aa/etc/goal.json", made.encode(), 0o600);
        assert_eq!(prepared(&fake.host(), &told), Some(made));
        told.kubernetes_version = "1.41.0".into();
        assert_eq!(prepared(&fake.host(), &told), None);
    }

    #[test]
    fn a_configuration_that_cannot_be_read_is_told_and_a_missing_one_is_nothing() {
        let fake = FakeHost::new();
        let path = Path::new(crate::config_file::CONFIG_PATH);
        assert_eq!(configured(&fake.host(), path), None, "nothing is applied");
        fake.fs.put_dir("/opt/unbounded/node/a/etc", 0o755).put_link("a", "/opt/unbounded/node/current");
        fake.fs.put("/opt/unbounded/node/a/etc/goal.json", GOAL, 0o600);
        assert_eq!(configured(&fake.host(), path), None, "there is no file");
        fake.fs.put(path, "{", 0o600);
        assert!(configured(&fake.host(), path).unwrap().is_err());
        fake.fs.put(path, "{}", 0o644);
        assert!(configured(&fake.host(), path).unwrap().unwrap_err().contains("others"));
    }
}

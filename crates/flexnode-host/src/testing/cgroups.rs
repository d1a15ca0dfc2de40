//! Control groups.

use super::{FakeClock, FakeProcesses, locked};
use crate::{CgroupVersion, Cgroups, HostError};
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Control groups; which processes are in them is what [`FakeProcesses`] says.
#[derive(Debug)]
pub struct FakeCgroups {
    processes: Arc<FakeProcesses>,
    clock: Arc<FakeClock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    version: Option<CgroupVersion>,
    groups: BTreeSet<String>,
    frozen: BTreeSet<String>,
}

impl FakeCgroups {
    /// Version 2 with `init.scope`, `system.slice` and `user.slice`.
    pub fn new(processes: Arc<FakeProcesses>, clock: Arc<FakeClock>) -> Self {
        let groups = ["init.scope", "system.slice", "user.slice"].map(str::to_owned).into();
        Self {
            processes,
            clock,
            state: Mutex::new(State { version: Some(CgroupVersion::V2), groups, frozen: BTreeSet::new() }),
        }
    }

    /// Another hierarchy.
    pub fn set_version(&self, version: Option<CgroupVersion>) {
        locked(&self.state).version = version;
    }

    /// Makes a group, and those above it.
    pub fn add(&self, path: &str) -> &Self {
        let mut state = locked(&self.state);
        let path = path.trim_matches('/');
        let above = path.match_indices('/').map(|(at, _)| path[..at].to_owned());
        state.groups.extend(above.chain([path.to_owned()]));
        drop(state);
        self
    }

    /// Makes a group and freezes it, as a kill does that does not come to its end.
    pub fn add_frozen(&self, path: &str) -> &Self {
        self.add(path);
        locked(&self.state).frozen.insert(path.trim_matches('/').to_owned());
        self
    }

    /// Groups that are frozen: nothing in them runs.
    pub fn frozen(&self) -> Vec<String> {
        locked(&self.state).frozen.iter().cloned().collect()
    }

    /// All groups.
    pub fn all(&self) -> Vec<String> {
        locked(&self.state).groups.iter().cloned().collect()
    }
}

#[async_trait]
impl Cgroups for FakeCgroups {
    fn version(&self) -> Option<CgroupVersion> {
        locked(&self.state).version
    }

    fn below(&self, path: &str) -> Result<Vec<String>, HostError> {
        let path = crate::cgroups::relative(path)?;
        let prefix = format!("{path}/");
        let state = locked(&self.state);
        let mut found: Vec<String> =
            state.groups.iter().filter(|group| **group == path || group.starts_with(&prefix)).cloned().collect();
        crate::cgroups::deepest_first(&mut found);
        Ok(found)
    }

    fn top(&self) -> Result<Vec<String>, HostError> {
        Ok(locked(&self.state).groups.iter().filter(|group| !group.contains('/')).cloned().collect())
    }

    fn pids(&self, path: &str) -> Result<Vec<u32>, HostError> {
        Ok(self.processes.in_cgroup(&crate::cgroups::relative(path)?))
    }

    async fn kill(&self, path: &str, deadline: Duration) -> Result<(), HostError> {
        let mut all_gone = true;
        for group in self.below(path)? {
            for pid in self.processes.in_cgroup(&group) {
                all_gone &= self.processes.kill(pid);
            }
        }
        if all_gone {
            return Ok(());
        }
        self.clock.pass(deadline);
        Err(HostError::Deadline { what: format!("ending control group {path}"), after: deadline })
    }

    fn thaw(&self, path: &str) -> Result<bool, HostError> {
        let groups = self.below(path)?;
        let mut state = locked(&self.state);
        let before = state.frozen.len();
        state.frozen.retain(|group| !groups.contains(group));
        Ok(state.frozen.len() < before)
    }

    fn remove(&self, path: &str) -> Result<(), HostError> {
        for group in self.below(path)? {
            if !self.processes.in_cgroup(&group).is_empty() {
                let what = format!("remove control group {group}");
                return Err(HostError::Failed { what, reason: "device or resource busy".to_owned() });
            }
            locked(&self.state).groups.remove(&group);
        }
        Ok(())
    }
}

//! Ending what outlives the units: containerd's shims, and the processes of pods.

use super::consts::UNIT_KUBELET;
use super::node::Backend;
use super::preflight::{Ownership, without_deleted};
use crate::backend::{Error, JoinedErrors};
use flexnode_host::Process;
use flexnode_ops::{Outcome, StepError};
use std::time::Duration;

/// How long a killed process may take to go.
const GONE: Duration = Duration::from_secs(10);
/// How long a group of control groups may take to empty.
const EMPTIED: Duration = Duration::from_secs(20);
/// Looks at the process table: something may be forked while we kill.
const ROUNDS: usize = 3;
/// Both together, for a step.
pub(crate) const REAP: Duration = Duration::from_mins(2);

/// What is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reap {
    /// Shims and pods, so that another version can start.
    Pods,
    /// Every process that runs a program of ours, and the pods' control groups for good.
    All,
}

/// Whether a top-level control group is kubelet's: `kubepods` (cgroupfs driver) or `kubepods.slice` (systemd driver).
pub(crate) fn is_pods_group(name: &str) -> bool {
    matches!(name.trim_start_matches('/').strip_prefix("kubepods"), Some("" | ".slice"))
}

fn is_shim(process: &Process) -> bool {
    let exe = without_deleted(&process.exe);
    exe.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("containerd-shim"))
}

impl Backend {
    /// Ends shims, then the pods' control groups: ending a shim leaves its pod's processes running. What is unset is skipped.
    pub(crate) async fn reap(&self, what: Reap) -> Result<Outcome, Error> {
        let mut errors = Vec::new();
        let mut ended = 0;
        match self.reap_processes(what).await {
            Ok(count) => ended += count,
            Err(error) => errors.push(StepError::caused("could not end all processes of the node stack", error)),
        }
        match self.reap_groups(what).await {
            Ok(count) => ended += count,
            Err(error) => errors.push(StepError::caused("could not end all pods", error)),
        }
        if !errors.is_empty() {
            return Err(JoinedErrors(errors).into());
        }
        Ok(super::run::changed_if(ended > 0, format!("{ended} shims and groups")))
    }

    /// Lets pods run that an end of pods left frozen because it was killed itself: nothing that kubelet puts into their groups
    /// would ever run. While kubelet runs they are its own.
    pub(crate) async fn thaw_pods(&self) -> Result<bool, Error> {
        let Some(cgroups) = &self.cgroup_root else { return Ok(false) };
        if self.system.systemd.unit(UNIT_KUBELET).await?.is_active() {
            return Ok(false);
        }
        let mut thawed = false;
        for group in cgroups.top()?.iter().filter(|name| is_pods_group(name)) {
            thawed |= cgroups.thaw(group)?;
        }
        Ok(thawed)
    }

    async fn reap_processes(&self, what: Reap) -> Result<usize, Error> {
        let Some(processes) = &self.proc else { return Ok(0) };
        let own = Ownership::among(&self.system, &**processes, self.layout.base_dir());
        let me = std::process::id();
        let mut ended = 0;
        for _ in 0..ROUNDS {
            let all = processes.list()?;
            let doomed: Vec<&Process> =
                all.iter().filter(|p| p.pid != me && own.owns(p) && (what == Reap::All || is_shim(p))).collect();
            if doomed.is_empty() {
                return Ok(ended);
            }
            for process in &doomed {
                self.kill.end(&**processes, process)?;
                ended += 1;
            }
            if self.kill.is_own() {
                return Ok(ended);
            }
            for process in doomed {
                if !processes.wait_gone(process, GONE).await? {
                    let (pid, exe) = (process.pid, process.exe.display());
                    return Err(Error::Request(format!("process {pid} ({exe}) does not end, although it was killed")));
                }
            }
        }
        Ok(ended)
    }

    async fn reap_groups(&self, what: Reap) -> Result<usize, Error> {
        let Some(cgroups) = &self.cgroup_root else { return Ok(0) };
        let groups: Vec<String> = cgroups.top()?.into_iter().filter(|name| is_pods_group(name)).collect();
        let mut ended = 0;
        for group in &groups {
            let mut busy = false;
            for path in cgroups.below(group)? {
                busy = busy || !cgroups.pids(&path)?.is_empty();
            }
            if busy {
                cgroups.kill(group, EMPTIED).await?;
                ended += 1;
            }
        }
        if what == Reap::All {
            ended += self.remove_groups(&groups).await?;
        }
        Ok(ended)
    }

    /// Removes the emptied groups. With the systemd driver they are slices and scopes, which systemd has to let go of.
    async fn remove_groups(&self, groups: &[String]) -> Result<usize, Error> {
        let Some(cgroups) = &self.cgroup_root else { return Ok(0) };
        for slice in self.system.systemd.list(&["kubepods.slice", "kubepods-*.slice"]).await? {
            self.system.systemd.stop(&slice, EMPTIED).await?;
        }
        for group in groups {
            cgroups.remove(group)?;
        }
        Ok(groups.len())
    }
}

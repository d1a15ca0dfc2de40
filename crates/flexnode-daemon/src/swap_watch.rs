//! Swap that came back: looked for when the daemon starts, which is after every boot.
//!
//! `start` turns swap off for later boots wherever it can be told from: fstab, units, generators. A script or the initramfs
//! turns it on all the same, and then kubelet does not start.

use crate::host_setup::{self, swap};
use crate::lock::Locks;
use crate::record::{HostRecorder, RecordStore};
use flexnode_host::Host;
use flexnode_isolation::none::Layout;
use flexnode_model::MachineGoal;
use flexnode_ops::{Outcome, StepContext, StepError};
use flexnode_stack::places;
use std::path::Path;

const GOAL_LIMIT: u64 = 4 << 20;

/// Turns swap off again on a node whose kubelet does not live with it. `None`: there was nothing to do, or somebody else
/// holds the lock, who looks himself.
pub async fn mend(host: &Host, locks: &dyn Locks) -> Result<Option<String>, StepError> {
    let Some((config, node)) = recorded_node(host) else { return Ok(None) };
    let Some(keep) = keeps(host) else { return Ok(None) };
    if swap::decide(&host_setup::observe_swap(host).await?, keep).actions.is_empty() {
        return Ok(None);
    }
    let Ok(lock) = locks.acquire("swap") else { return Ok(None) };
    let recorder = HostRecorder::new(host, Path::new(&config), &node);
    let outcome = host_setup::set_up_swap(host, &recorder, keep, &StepContext::silent()).await?;
    drop(lock);
    Ok(match outcome {
        Outcome::Changed(text) => Some(text),
        Outcome::Unchanged => None,
    })
}

/// Configuration and name of the node that this host was made, by the record that `start` keeps.
fn recorded_node(host: &Host) -> Option<(String, String)> {
    let record = RecordStore::new(host.fs.clone()).load().ok()??;
    Some((record.config.unwrap_or_default(), record.node_name?))
}

/// Whether the active version's kubelet lives with swap; `None` when no version is active.
fn keeps(host: &Host) -> Option<bool> {
    let path = Layout::default().current_config(places::config::GOAL);
    let goal = MachineGoal::decode(&host.fs.read(&path, GOAL_LIMIT).ok()??).ok()?;
    Some(swap::keeps(&goal))
}

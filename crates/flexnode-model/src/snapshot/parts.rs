//! The parts of a snapshot.

use super::{Reading, Reason};
use crate::Difference;
use crate::journal::Ending;
use crate::state::FailedGoal;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How kubelet begins the message of a Ready condition that is false because the network plugin is not there.
const NETWORK_NOT_READY: &str = "container runtime network not ready:";

/// The Ready condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadyCondition {
    /// `true`, `false`; `None` is the API's `Unknown` (kubelet stopped reporting).
    pub status: Option<bool>,
    /// One word: `KubeletReady`, `KubeletNotReady`, `NodeStatusUnknown`.
    pub reason: String,
    /// Kubelet's sentence.
    pub message: String,
    /// When kubelet last said so.
    pub heartbeat: Option<Timestamp>,
    /// When the status changed last.
    pub since: Option<Timestamp>,
}

/// A Node object, as far as it matters to the node itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Name of the object.
    pub name: String,
    /// Its UID: another one means that it was deleted and made again.
    pub uid: String,
    /// The Ready condition; `None` when it has none yet.
    pub ready: Option<ReadyCondition>,
    /// Version that kubelet reported, as it writes it: `v1.36.3`.
    pub kubelet_version: String,
    /// The boot in which kubelet reported this, as its kernel names it; empty when it did not tell.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// Runtime that kubelet reported: `containerd://2.1.9`.
    pub runtime_version: String,
    /// Addresses with their kind: `InternalIP`, `Hostname`.
    pub addresses: Vec<(String, String)>,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// Taints as `key=value:Effect`, or `key:Effect` without a value.
    pub taints: Vec<String>,
    /// `spec.unschedulable`: cordoned.
    pub unschedulable: bool,
    /// The agent's own conditions: status and reason by type.
    #[serde(default)]
    pub own_conditions: BTreeMap<String, (String, String)>,
}

impl NodeView {
    /// Whether the cluster counts the node as ready.
    pub fn is_ready(&self) -> bool {
        self.ready.as_ref().is_some_and(|r| r.status == Some(true))
    }

    /// Whether nothing but the network plugin is missing: the cluster brings it as a DaemonSet, or somebody puts it in
    /// place.
    ///
    /// kubelet joins several complaints in brackets; then the network is not the only one.
    pub fn waits_only_for_network(&self) -> bool {
        self.ready.as_ref().is_some_and(|r| r.status == Some(false) && r.message.starts_with(NETWORK_NOT_READY))
    }

    /// When kubelet last reported Ready or not.
    pub fn heartbeat(&self) -> Option<Timestamp> {
        self.ready.as_ref().and_then(|r| r.heartbeat)
    }

    /// Whether kubelet reported it before the machine went down: what it says of readiness is not of this boot. The cluster
    /// takes a minute or so to find out.
    pub fn is_of_another_boot(&self, this_boot: &str) -> bool {
        !self.boot_id.is_empty() && !this_boot.is_empty() && self.boot_id != this_boot
    }

    /// Why it is not ready, in one line; `None` when it is.
    pub fn why_not_ready(&self) -> Option<String> {
        let Some(ready) = &self.ready else {
            return Some("kubelet has not reported yet".into());
        };
        if ready.status == Some(true) {
            return None;
        }
        let unknown = if ready.status.is_none() { "unknown: " } else { "" };
        Some(match ready.message.as_str() {
            "" => format!("{unknown}{}", ready.reason),
            message => format!("{unknown}{}: {message}", ready.reason),
        })
    }
}

/// What is meant to run, and whether it does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GoalReport {
    /// Fingerprint of the goal that was applied last; absent when none was.
    pub applied: Option<String>,
    /// Its Kubernetes version.
    pub applied_kubernetes_version: Option<String>,
    /// Fingerprint of the goal that the configuration file leads to, with the recorded artifacts where the file leaves
    /// them open; absent when there is no file.
    pub configured: Option<Reading<String>>,
    /// What the file says otherwise than what is applied.
    pub differences: Vec<Difference>,
    /// Goals that failed and are not tried again by themselves, oldest first.
    pub failed: Vec<FailedGoal>,
}

impl GoalReport {
    /// Whether the node runs what the file says; `None` when it is not known.
    pub fn is_up_to_date(&self) -> Option<bool> {
        match (&self.applied, &self.configured) {
            (Some(_), Some(Reading::Known(_))) => Some(self.differences.is_empty()),
            _ => None,
        }
    }

    /// The failure of the goal that the file leads to.
    pub fn configured_failure(&self) -> Option<&FailedGoal> {
        let configured = self.configured.as_ref()?.known()?;
        self.failed.iter().find(|failed| failed.goal == *configured)
    }
}

/// An operation that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenOperation {
    /// `start`, `upgrade`, ...
    pub operation: String,
    /// The step that runs, or ran last.
    pub step: String,
    /// Its way back runs.
    pub rolling_back: bool,
    /// 1 for the first.
    pub attempt: u32,
    /// When it began.
    pub started: Timestamp,
    /// PID of who runs it; absent when nobody does.
    pub pid: Option<u32>,
    /// The step that failed, when one did.
    pub failed_step: Option<String>,
    /// Why, when something went wrong.
    pub reason: Option<String>,
}

/// An operation that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndedOperation {
    /// `start`, `upgrade`, ...
    pub operation: String,
    /// How it ended.
    pub outcome: Ending,
    /// When it ended.
    pub ended: Timestamp,
    /// The step that failed, when one did.
    pub failed_step: Option<String>,
    /// Why, when something went wrong.
    pub reason: Option<String>,
}

/// One unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnitReport {
    /// Its name.
    pub unit: String,
    /// `active`, `failed`, ...; `unknown` when systemd did not answer.
    pub active: String,
    /// `running`, `dead`, ...
    pub sub: String,
    /// `enabled`, `disabled`, `masked`, ...
    pub enabled: String,
    /// Since when it is in this state.
    pub since: Option<Timestamp>,
    /// Automatic restarts.
    pub restarts: u32,
    /// PID of the main process.
    pub main_pid: Option<u32>,
    /// What the main process runs, as the kernel names it.
    #[serde(default)]
    pub executable: Option<String>,
    /// Memory of the main process that is in RAM, in bytes.
    #[serde(default)]
    pub resident_bytes: Option<u64>,
    /// The slot whose program it runs.
    pub slot: Option<String>,
    /// Version of that program, where it is known.
    pub version: Option<String>,
    /// The last lines of its log when it failed; bounded, without what looks like a token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
}

/// What the container runtime says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeReport {
    /// Containers can be made.
    pub ready: bool,
    /// The network plugin is there and initialised.
    pub network_ready: bool,
    /// In its words, when something is not.
    pub reasons: Vec<String>,
}

/// The network plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cni {
    /// The configuration file that counts: the first by name.
    pub configuration: Option<String>,
    /// Programs that it names and that are not there.
    pub missing_programs: Vec<String>,
}

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// What it is for: `kubeletClient`, `kubeletServing`, `clusterCa`.
    pub name: String,
    /// Where it lies.
    pub path: String,
    /// Its time, or why it cannot be read.
    pub validity: Reading<Validity>,
}

/// The time of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Validity {
    /// Its begin.
    pub not_before: Timestamp,
    /// Its end.
    pub not_after: Timestamp,
}

/// A file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// A path in it.
    pub path: String,
    /// What is free in it.
    pub space: Reading<Space>,
}

/// What is free in a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Space {
    /// Its size in bytes.
    pub total_bytes: u64,
    /// Bytes free for programs that are not root's.
    pub free_bytes: u64,
    /// Its inodes; 0 where it does not count them.
    pub total_inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
}

impl Space {
    /// Less than a tenth of the bytes is free: kubelet evicts pods from there on.
    pub fn is_short_of_bytes(&self) -> bool {
        self.total_bytes > 0 && self.free_bytes < self.total_bytes / 10
    }
    /// Less than a twentieth of the inodes is free.
    pub fn is_short_of_inodes(&self) -> bool {
        self.total_inodes > 0 && self.free_inodes < self.total_inodes / 20
    }
}

/// This host's clock against the API server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClockSkew {
    /// Seconds that this host is ahead; negative: behind.
    pub seconds: i64,
    /// When it was measured, by this host's clock.
    pub measured: Timestamp,
}

/// Whether the host waits for a reboot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingReboot {
    /// The distribution says that a reboot is needed.
    pub needed: bool,
    /// The packages that ask for it, where they are named.
    pub packages: Vec<String>,
}

/// Something that the agent mended by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mended {
    /// When.
    pub at: Timestamp,
    /// The unit.
    pub unit: String,
    /// What was found.
    pub reason: Reason,
    /// What was done and what came of it, in a sentence.
    pub what: String,
}

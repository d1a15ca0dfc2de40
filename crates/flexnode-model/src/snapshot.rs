//! The richer snapshot of a node: what `aks-flex-node status --output json` prints, and what stands under one key of
//! `status.json` beside the contract's fields. Programs that do not know the key ignore it.
//!
//! Within one version fields and words are only added; a reader takes a word that it does not know for `Other`.

mod parts;
mod reason;

pub use parts::{
    Certificate, ClockSkew, Cni, Disk, EndedOperation, GoalReport, Mended, NodeView, OpenOperation, PendingReboot,
    ReadyCondition, RuntimeReport, Space, UnitReport, Validity,
};
pub use reason::Reason;

use crate::document::{self, DocumentError};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What was found out, or why it was not. Never an older value in place of one that could not be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reading<T> {
    /// Found out.
    Known(T),
    /// Not, and why.
    Unknown(String),
}

impl<T> Reading<T> {
    /// The value, when it is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Reading::Known(value) => Some(value),
            Reading::Unknown(_) => None,
        }
    }
}

impl<T> From<Result<T, String>> for Reading<T> {
    fn from(result: Result<T, String>) -> Self {
        result.map_or_else(Reading::Unknown, Reading::Known)
    }
}

/// How the node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// All is as it should be.
    Healthy,
    /// It is a node, and something deviates.
    Degraded,
    /// This host is not a node.
    NotANode,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Verdict; 3] = [Verdict::Healthy, Verdict::Degraded, Verdict::NotANode];

    /// The exit code of `status` and `healthz`: 0, 3 or 4.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Healthy => 0,
            Verdict::Degraded => 3,
            Verdict::NotANode => 4,
        }
    }
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deviation {
    /// One word, for programs.
    pub reason: Reason,
    /// A sentence: what, on which path or unit, and what to do. It may quote other programs, so it stays on this host.
    pub message: String,
}

impl Deviation {
    /// A deviation.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// Everything that is known of the node at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Format of this document: [`Snapshot::VERSION`].
    pub version: u32,
    /// How the node is.
    pub verdict: Verdict,
    /// The most important deviation's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The verdict in one line.
    pub summary: String,
    /// Since when verdict and reason are these; absent where nobody watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What deviates, the most important first.
    pub deviations: Vec<Deviation>,
    /// What is worth knowing and no deviation.
    pub notes: Vec<String>,
    /// When this was seen.
    pub at: Timestamp,
    /// Version of the agent that wrote it.
    pub agent_version: String,
    /// Name of the Node, where it is known.
    pub node_name: Option<String>,
    /// Kubernetes version that runs.
    pub kubernetes_version: Option<String>,
    /// containerd version that runs.
    pub containerd_version: Option<String>,
    /// runc version.
    pub runc_version: Option<String>,
    /// The active slot.
    pub slot: Option<String>,
    /// The slot that ran before, as recorded.
    #[serde(default)]
    pub previous_slot: Option<String>,
    /// All other slots that are installed.
    pub other_slots: Vec<String>,
    /// A person stopped the node.
    pub stopped_by_person: bool,
    /// What is meant to run, and whether it does.
    pub goal: GoalReport,
    /// The operation that has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OpenOperation>,
    /// The operation that ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<EndedOperation>,
    /// The units that are there.
    pub units: Vec<UnitReport>,
    /// Whether kubelet says that it is healthy.
    pub kubelet_healthy: Reading<bool>,
    /// The container runtime.
    pub runtime: Reading<RuntimeReport>,
    /// The network plugin's configuration.
    pub cni: Reading<Cni>,
    /// `true`, `false`, or `null` when it is not known.
    pub ready: Option<bool>,
    /// The Node as the cluster has it; known and null: it has none of this name.
    pub node: Reading<Option<NodeView>>,
    /// Certificates with their ends.
    pub certificates: Reading<Vec<Certificate>>,
    /// The file systems that a node fills.
    pub disks: Vec<Disk>,
    /// This host's clock against the API server's.
    pub clock: Reading<ClockSkew>,
    /// Whether the host waits for a reboot.
    pub reboot: Reading<PendingReboot>,
    /// What the agent mended by itself lately, newest last.
    #[serde(default)]
    pub mended: Vec<Mended>,
}

impl Snapshot {
    /// The format that is written.
    pub const VERSION: u32 = 1;
    /// Its key in `status.json`.
    pub const KEY: &str = "flexnode";
    const KIND: &'static str = "node snapshot";

    /// Reads the value of the key.
    pub fn from_value(value: serde_json::Value) -> Result<Self, DocumentError> {
        document::decode_value(value, Self::KIND, Self::VERSION, Self::VERSION)
    }

    /// Reads a document of its own.
    pub fn decode(bytes: &[u8]) -> Result<Self, DocumentError> {
        document::decode(bytes, Self::KIND, Self::VERSION)
    }

    /// The document: two spaces of indent and a newline at the end.
    pub fn encode(&self) -> Vec<u8> {
        document::encode(self)
    }

    /// Whether two snapshots say the same of the node. What moves by itself (times of looking, memory, free space, the
    /// Node's heartbeat, a second of clock difference) is no difference.
    pub fn says_the_same(&self, other: &Snapshot) -> bool {
        self.still() == other.still()
    }

    fn still(&self) -> Snapshot {
        let mut still = self.clone();
        still.at = Timestamp::UNIX_EPOCH;
        for unit in &mut still.units {
            unit.resident_bytes = None;
        }
        for disk in &mut still.disks {
            if let Reading::Known(space) = &mut disk.space {
                (space.free_bytes, space.free_inodes) = (0, 0);
            }
        }
        if let Reading::Known(Some(node)) = &mut still.node
            && let Some(ready) = &mut node.ready
        {
            ready.heartbeat = None;
        }
        if let Reading::Known(skew) = &mut still.clock {
            skew.measured = Timestamp::UNIX_EPOCH;
            if skew.seconds.abs() <= 1 {
                skew.seconds = 0;
            }
        }
        still
    }
}

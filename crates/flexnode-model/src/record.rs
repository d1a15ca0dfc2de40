//! What the agent made and changed on the host, with how it was before: what a reset puts back.
//!
//! Written durably before each change. What is recorded once stays: it is the older value.

use crate::document::{self, DocumentError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A swap area that was turned off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SwapBefore {
    /// Device or file.
    pub path: String,
    /// Its priority.
    pub priority: i32,
}

/// A chain of the packet filter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChainBefore {
    /// `ip/nat`, `ip6/filter`, ...: as the host's network seam names tables.
    pub table: String,
    /// Its name.
    pub chain: String,
}

/// What there was before the first change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Existed {
    /// Of the paths that the node uses, those that existed, and the files in the directory of network configurations.
    pub paths: BTreeSet<String>,
    /// All paths that were looked at.
    pub looked_at: BTreeSet<String>,
    /// Mounts at or below these paths.
    pub mounts: BTreeSet<String>,
    /// All network links.
    pub links: BTreeSet<String>,
    /// All named network namespaces.
    pub namespaces: BTreeSet<String>,
    /// All chains of the packet filter.
    pub chains: BTreeSet<ChainBefore>,
    /// All tables that iptables kept through nft; `None`: nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<BTreeSet<String>>,
    /// All sets of addresses (ipset(8)); `None`: nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_sets: Option<BTreeSet<String>>,
    /// All routes that did not come by themselves; `None`: nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<BTreeSet<String>>,
}

/// The record of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostRecord {
    /// Format of this document: [`HostRecord::VERSION`].
    pub version: u32,
    /// When it was begun.
    pub created: Timestamp,
    /// The configuration file that the node was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// Name of the Node, to tell how it is deleted from the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// What there was before the first change; `None` until it was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existed: Option<Existed>,
    /// Kernel settings that were changed, with their values before.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// Kernel modules that were loaded.
    #[serde(default)]
    pub modules: BTreeSet<String>,
    /// Swap areas that were turned off.
    #[serde(default)]
    pub swaps: Vec<SwapBefore>,
    /// /etc/fstab was edited; the lines are marked in it.
    #[serde(default)]
    pub fstab: bool,
    /// Units that were masked.
    #[serde(default)]
    pub masked: BTreeSet<String>,
    /// Units that were disabled and had been enabled.
    #[serde(default)]
    pub disabled: BTreeSet<String>,
    /// Files that were written outside of the agent's own directories, with the content before in base64; null: there was
    /// no such file.
    #[serde(default)]
    pub files: BTreeMap<String, Option<String>>,
}

impl HostRecord {
    /// The format that is written.
    pub const VERSION: u32 = 1;
    const KIND: &'static str = "record of the host";

    /// An empty record.
    pub fn new(created: Timestamp) -> Self {
        Self {
            version: Self::VERSION,
            created,
            config: None,
            node_name: None,
            existed: None,
            sysctls: BTreeMap::new(),
            modules: BTreeSet::new(),
            swaps: Vec::new(),
            fstab: false,
            masked: BTreeSet::new(),
            disabled: BTreeSet::new(),
            files: BTreeMap::new(),
        }
    }

    /// Whether `path` existed before the first change: `None` when nobody looked.
    pub fn existed(&self, path: &str) -> Option<bool> {
        let existed = self.existed.as_ref()?;
        existed.looked_at.contains(path).then(|| existed.paths.contains(path))
    }

    /// Keeps what a file was, unless it is kept already.
    pub fn keep_file(&mut self, path: &str, content: Option<&[u8]>) {
        self.files.entry(path.to_owned()).or_insert_with(|| content.map(|bytes| STANDARD.encode(bytes)));
    }

    /// What a file was: `None` when it was not kept, `Some(None)` when there was none. A content that is no base64 counts
    /// as not kept.
    pub fn file(&self, path: &str) -> Option<Option<Vec<u8>>> {
        match self.files.get(path)? {
            None => Some(None),
            Some(text) => STANDARD.decode(text).ok().map(Some),
        }
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<Self, DocumentError> {
        document::decode(bytes, Self::KIND, Self::VERSION)
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        document::encode(self)
    }
}

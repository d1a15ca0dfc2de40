//! The record of what was on the host before the agent changed it, in a file.
//!
//! It is written before each change, so that a reset knows after any crash what to take away and what to put back. What is
//! recorded once is never written over: it is the older value.

use crate::host_setup::{Before, Recorder};
use async_trait::async_trait;
use flexnode_host::durable::{self, Change};
use flexnode_host::{FileKind, Fs, FsError, Host, HostError};
use flexnode_model::DocumentError;
use flexnode_model::record::{ChainBefore, Existed, HostRecord, SwapBefore};
use flexnode_ops::{Outcome, StepError};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the record is.
pub const RECORD_PATH: &str = "/var/lib/aks-flex-node/record.json";
const MODE: u32 = 0o600;
/// A host with thousands of links and chains stays far below.
const LIMIT: u64 = 16 << 20;

/// Every path that a node uses and that may have been there before. A parent stands before what is in it.
pub const USED_PATHS: &[&str] = &[
    "/etc/aks-flex-node",
    "/etc/cni",
    "/etc/cni/net.d",
    "/etc/containerd",
    "/etc/containerd/certs.d",
    "/etc/kubernetes",
    "/etc/kubernetes/manifests",
    "/etc/kubernetes/pki",
    "/etc/kubernetes/volumeplugins",
    "/etc/modules-load.d",
    "/etc/sysctl.d",
    "/etc/unbounded",
    "/etc/unbounded/containerd",
    "/etc/unbounded/kubelet",
    "/opt/cni",
    "/opt/cni/bin",
    "/opt/containerd",
    "/opt/unbounded",
    "/opt/unbounded/agent",
    "/opt/unbounded/agent/bin",
    "/opt/unbounded/agent/lib",
    "/run/containerd",
    "/run/netns",
    "/run/nri",
    "/usr/libexec/kubernetes",
    "/var/lib/cni",
    "/var/lib/cni/networks",
    "/var/lib/cni/results",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/log/aks-flex-node",
    "/var/log/containers",
    "/var/log/pods",
];

/// Directories that network plugins of other programs use too: what was in them before is kept by name.
const LISTED: [&str; 2] = ["/etc/cni/net.d", "/var/lib/cni/networks"];

/// Why the record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It makes no sense.
    #[error("the record {} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: DocumentError,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The host could not be looked at.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Keeps the record in its file. Whoever writes holds the host's lock.
#[derive(Clone, Debug)]
pub struct RecordStore {
    fs: Arc<dyn Fs>,
    path: PathBuf,
}

impl RecordStore {
    /// The store at [`RECORD_PATH`]. Touches nothing.
    pub fn new(fs: Arc<dyn Fs>) -> Self {
        Self { fs, path: RECORD_PATH.into() }
    }

    /// The record; `None` when there is none.
    pub fn load(&self) -> Result<Option<HostRecord>, RecordError> {
        let Some(bytes) = self.fs.read(&self.path, LIMIT)? else { return Ok(None) };
        match HostRecord::decode(&bytes) {
            Ok(record) => Ok(Some(record)),
            Err(source) => Err(RecordError::Unreadable { path: self.path.clone(), source }),
        }
    }

    /// Writes it durably. The same record again changes nothing.
    pub fn save(&self, record: &HostRecord) -> Result<Change, RecordError> {
        let fs = self.fs.as_ref();
        if let Some(dir) = self.path.parent() {
            durable::ensure_dir(fs, dir, 0o755)?;
        }
        Ok(durable::write(fs, &self.path, &record.encode(), MODE)?)
    }

    /// Removes it.
    pub fn remove(&self) -> Result<Change, RecordError> {
        Ok(durable::remove_file(self.fs.as_ref(), &self.path)?)
    }
}

/// Records the host before the first change, and each change before it is made.
#[derive(Clone, Debug)]
pub struct HostRecorder {
    store: RecordStore,
    /// When a record is begun.
    now: Timestamp,
    config: PathBuf,
    node_name: String,
}

impl HostRecorder {
    /// A recorder for a node of this name, started with this configuration file.
    pub fn new(host: &Host, config: &Path, node_name: &str) -> Self {
        Self {
            store: RecordStore::new(host.fs.clone()),
            now: host.clock.now(),
            config: config.to_path_buf(),
            node_name: node_name.to_owned(),
        }
    }

    fn load(&self) -> Result<HostRecord, RecordError> {
        Ok(self.store.load()?.unwrap_or_else(|| HostRecord::new(self.now)))
    }

    /// Looks once: when that was recorded before, what is there now may be the agent's.
    async fn look(&self, host: &Host) -> Result<Outcome, RecordError> {
        let mut record = self.load()?;
        if record.existed.is_none() {
            record.existed = Some(observe(host).await?);
        }
        record.config = self.config.to_str().map(ToOwned::to_owned);
        record.node_name = Some(self.node_name.clone());
        let change = self.store.save(&record)?;
        Ok(if change.made() { Outcome::Changed(String::new()) } else { Outcome::Unchanged })
    }
}

fn not_recorded(what: &str, source: RecordError) -> StepError {
    StepError::caused(format!("the host before the change cannot be recorded: {what}"), source)
        .hint(format!("without it nothing is changed; if {RECORD_PATH} is damaged, run `aks-flex-node reset` first"))
}

#[async_trait]
impl Recorder for HostRecorder {
    async fn record_host(&self, host: &Host) -> Result<Outcome, StepError> {
        self.look(host).await.map_err(|e| not_recorded(&e.to_string(), e))
    }

    fn record(&self, before: &Before) -> Result<(), StepError> {
        let keep = || -> Result<(), RecordError> {
            let mut record = self.load()?;
            merge(&mut record, before);
            self.store.save(&record)?;
            Ok(())
        };
        keep().map_err(|e| not_recorded(&e.to_string(), e))
    }
}

/// Adds what is about to be changed; what is there stays.
fn merge(record: &mut HostRecord, before: &Before) {
    for (key, value) in &before.sysctls {
        record.sysctls.entry(key.clone()).or_insert_with(|| value.clone());
    }
    record.modules.extend(before.modules.iter().cloned());
    for area in &before.swaps {
        let path = area.path.to_string_lossy().into_owned();
        if !record.swaps.iter().any(|known| known.path == path) {
            record.swaps.push(SwapBefore { path, priority: area.priority });
        }
    }
    record.masked.extend(before.masked.iter().cloned());
    record.disabled.extend(before.disabled.iter().cloned());
    record.fstab |= before.fstab;
    for (path, content) in &before.files {
        record.keep_file(path, content.as_deref());
    }
}

/// What there is on the host now.
async fn observe(host: &Host) -> Result<Existed, RecordError> {
    let mut existed = Existed::default();
    for path in USED_PATHS {
        existed.looked_at.insert((*path).to_owned());
        if host.fs.lstat(Path::new(path))?.is_some() {
            existed.paths.insert((*path).to_owned());
        }
    }
    for dir in LISTED.map(Path::new) {
        if host.fs.stat(dir)?.is_some_and(|stat| stat.kind == FileKind::Dir) {
            let names = host.fs.read_dir(dir)?.into_iter().map(|entry| dir.join(entry.name));
            existed.paths.extend(names.map(|path| path.to_string_lossy().into_owned()));
        }
    }
    for mount in host.mounts.list()? {
        if USED_PATHS.iter().any(|used| mount.path.starts_with(used)) {
            existed.mounts.insert(mount.path.to_string_lossy().into_owned());
        }
    }
    let network = host.network.as_ref();
    let (links, filters, sets, routes) =
        tokio::join!(network.links(), network.filters(), network.ip_sets(), network.routes());
    let filters = filters?;
    existed.links = links?.into_iter().map(|link| link.name).collect();
    existed.namespaces = network.namespaces()?.into_iter().collect();
    existed.chains = chains(&filters.rules);
    existed.tables = Some(filters.tables.into_iter().map(|table| table.name).collect());
    // Only a reset's report depends on them: tools that cannot tell do not stop a start.
    existed.ip_sets = sets.ok().map(|sets| sets.into_iter().collect());
    existed.routes = routes.ok().map(|routes| routes.into_iter().map(|route| route.line).collect());
    Ok(existed)
}

/// The chains that are declared (`:NAME POLICY`) or have rules (`-A NAME ...`) in the lines of the network seam.
pub(crate) fn chains(rules: &[(String, String)]) -> BTreeSet<ChainBefore> {
    rules
        .iter()
        .filter_map(|(table, rule)| {
            let chain = rule.strip_prefix(':').or_else(|| rule.strip_prefix("-A "))?.split_whitespace().next()?;
            Some(ChainBefore { table: table.clone(), chain: chain.to_owned() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_host::SwapArea;
    use flexnode_host::testing::FakeHost;

    fn recorder(fake: &FakeHost) -> HostRecorder {
        HostRecorder::new(&fake.host(), Path::new("/etc/aks-flex-node/config.json"), "n1")
    }

    fn load(fake: &FakeHost) -> HostRecord {
        RecordStore::new(fake.fs.clone()).load().unwrap().unwrap()
    }

    #[tokio::test]
    async fn what_was_there_is_recorded_once() {
        let fake = FakeHost::new();
        fake.fs.put_dir("/opt/cni/bin", 0o755).put("/etc/cni/net.d/87-podman.conflist", "{}", 0o644);
        fake.network.add_link("cni0", "bridge", &[]).add_namespace("netns-1").add_rule("ip/nat", ":CNI-1 - [0:0]");
        fake.mounts.mount("/var/lib/kubelet", "ext4", "/dev/vdb");
        assert!(matches!(recorder(&fake).record_host(&fake.host()).await, Ok(Outcome::Changed(_))));
        // What comes later is ours and does not get into it.
        fake.network.add_link("veth1", "veth", &[]);
        fake.fs.put_dir("/var/lib/containerd", 0o711);
        assert!(matches!(recorder(&fake).record_host(&fake.host()).await, Ok(Outcome::Unchanged)));
        let record = load(&fake);
        let existed = record.existed.as_ref().unwrap();
        assert_eq!(record.existed("/opt/cni/bin"), Some(true));
        assert_eq!(record.existed("/var/lib/containerd"), Some(false));
        assert_eq!(record.existed("/somewhere"), None);
        assert!(existed.paths.contains("/etc/cni/net.d/87-podman.conflist"));
        assert!(existed.links.contains("cni0") && !existed.links.contains("veth1"));
        assert!(existed.namespaces.contains("netns-1") && existed.mounts.contains("/var/lib/kubelet"));
        assert_eq!(existed.chains.iter().map(|c| c.chain.as_str()).collect::<Vec<_>>(), ["CNI-1"]);
        assert_eq!((record.node_name.as_deref(), record.version), (Some("n1"), 1));
        assert_eq!(fake.fs.lstat(Path::new(RECORD_PATH)).unwrap().unwrap().mode, 0o600);
    }

    #[test]
    fn the_older_value_stays() {
        let fake = FakeHost::new();
        let area = |priority| SwapArea { path: "/swap.img".into(), kind: "file".into(), bytes: 1, priority };
        let before = |value: &str, content: Option<&str>, priority| Before {
            sysctls: [("net.ipv4.ip_forward".to_owned(), value.to_owned())].into(),
            swaps: vec![area(priority)],
            files: vec![("/etc/sysctl.d/99-aks-flex-node.conf", content.map(|c| c.as_bytes().to_vec()))],
            fstab: priority == -2,
            ..Before::default()
        };
        recorder(&fake).record(&before("0", None, -2)).unwrap();
        recorder(&fake).record(&before("1", Some("ours"), 5)).unwrap();
        let record = load(&fake);
        assert_eq!(record.sysctls["net.ipv4.ip_forward"], "0");
        assert_eq!(record.swaps, [SwapBefore { path: "/swap.img".into(), priority: -2 }]);
        assert_eq!(record.file("/etc/sysctl.d/99-aks-flex-node.conf"), Some(None));
        assert!(record.fstab && record.existed.is_none());
    }

    #[test]
    fn nothing_is_changed_over_a_record_that_makes_no_sense() {
        let fake = FakeHost::new();
        fake.fs.put(RECORD_PATH, "{\"version\": 9}", 0o600);
        let error = recorder(&fake).record(&Before::default()).unwrap_err();
        assert!(error.hint.unwrap().contains("aks-flex-node reset"));
        assert_eq!(fake.fs.text(RECORD_PATH), "{\"version\": 9}");
    }
}

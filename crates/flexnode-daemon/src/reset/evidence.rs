//! Which network objects belong to the pods of this node: what the runtime knows of its sandboxes, and what CNI wrote down
//! for them.
//!
//! It is gone once the sandboxes are, so it is looked for before, and kept in a file until the end of the reset.

use crate::record::RECORD_PATH;
use flexnode_host::durable;
use flexnode_host::{Fs, FsError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where it is kept during a reset.
pub const EVIDENCE_PATH: &str = "/var/lib/aks-flex-node/reset.json";
const VERSION: u32 = 1;
/// A cached result is a few kilobytes.
const LIMIT: u64 = 1 << 20;
/// Results of libcni (github.com/containernetworking/cni, libcni/api.go): one file for each attachment.
const RESULTS: &str = "/var/lib/cni/results";
/// Reservations of host-local: a directory for each network, a file for each address, whose first line is the container.
const NETWORKS: &str = "/var/lib/cni/networks";
/// Where containerd has a directory for each sandbox or task of Kubernetes.
const SANDBOX_DIRS: [&str; 3] = [
    "/run/containerd/io.containerd.grpc.v1.cri/sandboxes",
    "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes",
    "/run/containerd/io.containerd.runtime.v2.task/k8s.io",
];
/// Where network plugins put their configuration.
pub(super) const CONF: &str = "/etc/cni/net.d";

/// What belongs to the pods of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Evidence {
    /// Format of the file: 1.
    pub version: u32,
    /// Identifiers of sandboxes.
    pub sandboxes: BTreeSet<String>,
    /// Links on the host that were made for them.
    pub links: BTreeSet<String>,
    /// Names of their network namespaces.
    pub namespaces: BTreeSet<String>,
    /// Links that CNI wrote down for containers of others.
    pub foreign_links: BTreeSet<String>,
    /// Directories of networks in which containers of others have addresses.
    pub foreign_networks: BTreeSet<PathBuf>,
    /// Bridges that the configuration of the pods' network names.
    pub bridges: BTreeSet<String>,
    /// The network configuration that containerd used.
    pub conf: Option<PathBuf>,
    /// Files of CNI that are about these sandboxes.
    pub files: BTreeSet<PathBuf>,
}

impl Evidence {
    /// Adds what another look found.
    fn merge(&mut self, other: Evidence) {
        self.version = VERSION;
        self.sandboxes.extend(other.sandboxes);
        self.links.extend(other.links);
        self.namespaces.extend(other.namespaces);
        self.foreign_links.extend(other.foreign_links);
        self.foreign_networks.extend(other.foreign_networks);
        // Once the node's configuration is gone, the first one left is of another program.
        if self.conf.is_none() {
            (self.conf, self.bridges) = (other.conf, other.bridges);
        }
        self.files.extend(other.files);
    }
}

/// What was kept by a reset that did not end. A file that makes no sense is none.
pub fn load(fs: &dyn Fs) -> Evidence {
    let bytes = fs.read(Path::new(EVIDENCE_PATH), LIMIT).ok().flatten().unwrap_or_default();
    let kept: Evidence = serde_json::from_slice(&bytes).unwrap_or_default();
    if kept.version == VERSION { kept } else { Evidence::default() }
}

/// Looks again, adds it to what was kept, and keeps it. `known`: identifiers that the runtime told.
///
/// On a host that was no node nothing is written.
pub fn gather(fs: &dyn Fs, known: impl IntoIterator<Item = String>) -> Result<Evidence, FsError> {
    let mut evidence = load(fs);
    let before = evidence.clone();
    evidence.sandboxes.extend(known);
    for dir in SANDBOX_DIRS {
        evidence.sandboxes.extend(names(fs, Path::new(dir))?);
    }
    let mut found = Evidence::default();
    configuration(fs, &mut found)?;
    results(fs, &evidence.sandboxes, &mut found)?;
    reservations(fs, &evidence.sandboxes, &mut found)?;
    evidence.merge(found);
    let is_node = !evidence.sandboxes.is_empty() || fs.lstat(Path::new(RECORD_PATH))?.is_some();
    if is_node && evidence != before {
        let path = Path::new(EVIDENCE_PATH);
        if let Some(dir) = path.parent() {
            durable::ensure_dir(fs, dir, 0o755)?;
        }
        let bytes = serde_json::to_vec(&evidence).unwrap_or_default();
        durable::write(fs, path, &bytes, 0o600)?;
    }
    Ok(evidence)
}

fn names(fs: &dyn Fs, dir: &Path) -> Result<Vec<String>, FsError> {
    match fs.read_dir(dir) {
        Ok(entries) => Ok(entries.into_iter().filter_map(|entry| entry.name.into_string().ok()).collect()),
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(e) => Err(e),
    }
}

fn results(fs: &dyn Fs, ours: &BTreeSet<String>, found: &mut Evidence) -> Result<(), FsError> {
    let dir = Path::new(RESULTS);
    for name in names(fs, dir)? {
        let path = dir.join(name);
        let Ok(Some(bytes)) = fs.read(&path, LIMIT) else { continue };
        let Ok(cached) = serde_json::from_slice::<Value>(&bytes) else { continue };
        let container = cached["containerId"].as_str().unwrap_or_default();
        let host_links = cached["result"]["interfaces"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|interface| interface["sandbox"].as_str().unwrap_or_default().is_empty())
            .filter_map(|interface| interface["name"].as_str().map(ToOwned::to_owned));
        if !ours.contains(container) {
            found.foreign_links.extend(host_links);
            continue;
        }
        found.links.extend(host_links);
        let inside = cached["result"]["interfaces"].as_array().into_iter().flatten();
        let paths = inside.filter_map(|interface| interface["sandbox"].as_str()).chain(cached["netns"].as_str());
        found.namespaces.extend(paths.filter_map(namespace));
        found.files.insert(path);
    }
    Ok(())
}

/// The name below /run/netns (/var/run is a link to /run).
fn namespace(path: &str) -> Option<String> {
    let name = path.strip_prefix("/var/run/netns/").or_else(|| path.strip_prefix("/run/netns/"))?;
    (!name.is_empty() && !name.contains('/') && name != "." && name != "..").then(|| name.to_owned())
}

fn reservations(fs: &dyn Fs, ours: &BTreeSet<String>, found: &mut Evidence) -> Result<(), FsError> {
    for network in names(fs, Path::new(NETWORKS))? {
        let dir = Path::new(NETWORKS).join(network);
        for address in names(fs, &dir)? {
            let path = dir.join(address);
            let Ok(Some(bytes)) = fs.read(&path, LIMIT) else { continue };
            let text = String::from_utf8_lossy(&bytes);
            match text.lines().next().map(str::trim) {
                Some(id) if ours.contains(id) => drop(found.files.insert(path)),
                // host-local's own files; everything else is the reservation of an address.
                _ if path.file_name().is_some_and(is_bookkeeping) => {}
                _ => drop(found.foreign_networks.insert(dir.clone())),
            }
        }
    }
    Ok(())
}

/// What host-local keeps beside the reservations: `lock` and `last_reserved_ip.N`.
fn is_bookkeeping(name: &std::ffi::OsStr) -> bool {
    name.to_str().is_some_and(|name| name == "lock" || name.starts_with("last_reserved_ip."))
}

/// The configuration that containerd uses, and its bridges: the first in /etc/cni/net.d that can be read. The others are
/// of other programs.
fn configuration(fs: &dyn Fs, found: &mut Evidence) -> Result<(), FsError> {
    let is_conf = |name: &&String| {
        Path::new(name).extension().is_some_and(|kind| ["conf", "conflist", "json"].iter().any(|known| kind == *known))
    };
    for name in names(fs, Path::new(CONF))?.iter().filter(is_conf) {
        let path = Path::new(CONF).join(name);
        let Ok(Some(bytes)) = fs.read(&path, LIMIT) else { continue };
        let Ok(conf) = serde_json::from_slice::<Value>(&bytes) else { continue };
        let plugins = conf["plugins"].as_array().cloned().unwrap_or_else(|| vec![conf.clone()]);
        let bridges = plugins.iter().filter(|plugin| plugin["type"] == "bridge");
        found.bridges = bridges.map(|plugin| plugin["bridge"].as_str().unwrap_or("cni0").to_owned()).collect();
        found.conf = Some(path);
        return Ok(());
    }
    Ok(())
}

//! What a reset looks at before it decides: a snapshot of plain data.

use super::evidence::Evidence;
use super::places;
use crate::agent_binary;
use crate::host_setup::{modules, swap, sysctls};
use flexnode_host::{DirEntry, FileKind, Fs, FsError, Host, HostError, Route};
use flexnode_model::record::HostRecord;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Configuration files that are looked into are smaller than this.
pub(super) const TEXT_LIMIT: u64 = 1 << 20;

/// What a person chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// /var/lib/containerd stays.
    pub keep_images: bool,
    /// The agent's own program goes too.
    pub remove_agent: bool,
}

/// How [`Options::keep_images`] is written down.
const KEEP_IMAGES: &str = "keep-images";
/// How [`Options::remove_agent`] is written down.
const REMOVE_AGENT: &str = "remove-agent";

impl Options {
    /// For the journal, so that whoever finishes an interrupted reset does what the person chose.
    pub fn to_record(self) -> String {
        let chosen = [(self.keep_images, KEEP_IMAGES), (self.remove_agent, REMOVE_AGENT)];
        let words: Vec<&str> = chosen.into_iter().filter_map(|(chosen, word)| chosen.then_some(word)).collect();
        words.join(",")
    }

    /// What [`Options::to_record`] wrote; words that are not known are left out.
    pub fn from_record(text: &str) -> Self {
        let has = |word: &str| text.split(',').any(|chosen| chosen == word);
        Self { keep_images: has(KEEP_IMAGES), remove_agent: has(REMOVE_AGENT) }
    }
}

/// One directory that a node uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// What the path itself is; `None`: nothing is there.
    pub kind: Option<FileKind>,
    /// The directory that it leads to, when it is one or a link to one.
    pub real: Option<PathBuf>,
    /// What is in it.
    pub entries: Vec<DirEntry>,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// What a person chose.
    pub options: Options,
    /// What was before; `None` without a readable record.
    pub record: Option<HostRecord>,
    /// Every directory of [`places::PLACES`].
    pub places: BTreeMap<PathBuf, Place>,
    /// What is there of [`places::FILES`], the agent's program and CNI's files about the pods.
    pub files: BTreeMap<PathBuf, FileKind>,
    /// R, the directory below which the agent is installed, with links resolved.
    pub host_root: PathBuf,
    /// Mount points, in the kernel's order.
    pub mounts: Vec<PathBuf>,
    /// Names of links.
    pub links: BTreeSet<String>,
    /// Names of network namespaces.
    pub namespaces: BTreeSet<String>,
    /// Rules and chains: table and line.
    pub rules: Vec<(String, String)>,
    /// Tables of iptables that do nothing.
    pub idle_tables: BTreeSet<String>,
    /// Names of sets of addresses.
    pub ip_sets: BTreeSet<String>,
    /// Routes that did not come by themselves.
    pub routes: Vec<Route>,
    /// What the pods of this node had.
    pub evidence: Evidence,
    /// Values of the recorded kernel settings.
    pub sysctls: BTreeMap<String, String>,
    /// Active swap areas.
    pub swaps: BTreeSet<String>,
    /// Recorded swap areas whose device or file is there.
    pub swap_paths: BTreeSet<String>,
    /// /etc/fstab.
    pub fstab: Option<String>,
    /// Content of the files that the host's setup writes.
    pub setup_files: BTreeMap<PathBuf, Option<Vec<u8>>>,
    /// Recorded units that are masked by a link in /etc/systemd/system.
    pub masked: BTreeSet<String>,
    /// Recorded units that are installed and not enabled.
    pub disabled: BTreeSet<String>,
}

/// Why the host could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// A file.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// Something else.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Looks at the host, at its network objects only when `network` is set: that runs programs. Nothing below a mount point is touched: a dead file system must not stop a reset.
pub async fn observe(
    host: &Host,
    options: Options,
    record: Option<HostRecord>,
    evidence: Evidence,
    network: bool,
) -> Result<Facts, FactsError> {
    let fs = host.fs.as_ref();
    let host_root = agent_binary::resolved_root(fs);
    let mut facts = Facts {
        options,
        evidence,
        mounts: host.mounts.list()?.into_iter().map(|mount| mount.path).collect(),
        swaps: host.kernel.swaps()?.into_iter().map(|area| area.path.to_string_lossy().into_owned()).collect(),
        fstab: text(fs, Path::new(swap::FSTAB))?,
        ..Facts::default()
    };
    if network {
        let net = host.network.as_ref();
        let (links, filters, sets, routes) = tokio::join!(net.links(), net.filters(), net.ip_sets(), net.routes());
        facts.links = links?.into_iter().map(|link| link.name).collect();
        facts.namespaces = net.namespaces()?.into_iter().collect();
        let filters = filters?;
        facts.rules = filters.rules;
        facts.idle_tables = filters.tables.into_iter().filter(|table| table.idle).map(|table| table.name).collect();
        facts.ip_sets = sets.unwrap_or_default().into_iter().collect();
        facts.routes = routes.unwrap_or_default();
    }
    for place in places::PLACES {
        facts.places.insert(place.path.into(), look(fs, Path::new(place.path))?);
    }
    let program = host_root.join("bin").join(agent_binary::PROGRAM);
    let single = places::FILES.iter().map(PathBuf::from).chain([program, host_root.join(places::AGENT_SLOTS)]);
    for file in single.chain(facts.evidence.files.clone()).chain(facts.evidence.conf.clone()) {
        if let Some(stat) = fs.lstat(&file)? {
            facts.files.insert(file, stat.kind);
        }
    }
    settings(host, record.as_ref(), &mut facts).await?;
    facts.record = record;
    facts.host_root = host_root;
    Ok(facts)
}

fn look(fs: &dyn Fs, path: &Path) -> Result<Place, FsError> {
    let Some(stat) = fs.lstat(path)? else { return Ok(Place::default()) };
    let real = match stat.kind {
        FileKind::Dir => Some(path.to_path_buf()),
        FileKind::Link => match fs.stat(path)? {
            Some(stat) if stat.kind == FileKind::Dir => Some(fs.canonicalize(path)?),
            _ => None,
        },
        FileKind::File | FileKind::Other => None,
    };
    let entries = match &real {
        Some(dir) => fs.read_dir(dir)?,
        None => Vec::new(),
    };
    Ok(Place { kind: Some(stat.kind), real, entries })
}

fn text(fs: &dyn Fs, path: &Path) -> Result<Option<String>, FsError> {
    Ok(fs.read(path, TEXT_LIMIT)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

async fn settings(host: &Host, record: Option<&HostRecord>, facts: &mut Facts) -> Result<(), FactsError> {
    let fs = host.fs.as_ref();
    let ours = [sysctls::SYSCTL_FILE, modules::MODULES_FILE].map(ToOwned::to_owned);
    for path in record.iter().flat_map(|record| record.files.keys().cloned()).chain(ours) {
        let content = fs.read(Path::new(&path), TEXT_LIMIT)?;
        facts.setup_files.insert(path.into(), content);
    }
    let Some(record) = record else { return Ok(()) };
    for key in record.sysctls.keys() {
        if let Some(value) = host.kernel.sysctl(key)? {
            facts.sysctls.insert(key.clone(), value);
        }
    }
    for area in &record.swaps {
        if fs.lstat(Path::new(&area.path))?.is_some() {
            facts.swap_paths.insert(area.path.clone());
        }
    }
    for unit in &record.masked {
        let path = Path::new(swap::SYSTEM_UNITS).join(unit);
        if fs.lstat(&path)?.is_some_and(|stat| stat.kind == FileKind::Link)
            && fs.read_link(&path)? == Path::new("/dev/null")
        {
            facts.masked.insert(unit.clone());
        }
    }
    for unit in &record.disabled {
        if host.systemd.unit(unit).await?.enabled == "disabled" {
            facts.disabled.insert(unit.clone());
        }
    }
    Ok(())
}

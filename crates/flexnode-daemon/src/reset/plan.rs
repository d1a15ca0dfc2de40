//! What a reset takes away and puts back: a pure function over [`Facts`].
//!
//! Planned again after everything was tried, what it still names is what is left.

use super::evidence::CONF;
use super::facts::{Facts, Place};
use super::places::{self, Policy};
use super::{network, settings};
use flexnode_host::{FileKind, FilterPart};
use std::fmt;
use std::path::{Path, PathBuf};

/// What CNI keeps.
const CNI: &str = "/var/lib/cni";

/// One thing to do. Each is idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Unmount the topmost mount at this path.
    Unmount(PathBuf),
    /// Remove the named network namespace.
    Namespace(String),
    /// Remove the link.
    Link(String),
    /// Remove one rule that leads to a chain that goes: table and line.
    Rule(String, String),
    /// Remove the chain: table and name.
    Chain(String, String),
    /// A table of iptables that does nothing any more.
    Table(String),
    /// A table of nft with all that is in it.
    NftTable(String),
    /// A set of addresses.
    IpSet(String),
    /// Remove a file, link or directory with all that is in it, around the mount points that are to stay.
    Tree {
        /// What.
        path: PathBuf,
        /// Mount points at or below it that are not touched.
        spare: Vec<PathBuf>,
    },
    /// Remove all that is in a directory, which is itself a mount point.
    Contents {
        /// The directory.
        path: PathBuf,
        /// Mount points below it that are not touched.
        spare: Vec<PathBuf>,
    },
    /// Remove a directory if it is empty.
    IfEmpty(PathBuf),
    /// Give a file the content that it had.
    Restore(PathBuf, Vec<u8>),
    /// Set a kernel setting.
    Sysctl(String, String),
    /// Turn a swap area on with this priority.
    SwapOn(String, i32),
    /// Take a unit's mask away.
    Unmask(String),
    /// Enable a unit again.
    Enable(String),
    /// Make R/bin/aks-flex-node a regular file.
    PlainProgram(PathBuf),
}

/// In which step a removal is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Mounts.
    Mounts,
    /// Links, namespaces, rules.
    Network,
    /// Files.
    Trees,
    /// The host's own settings.
    Settings,
}

impl Removal {
    /// In which step it is done.
    pub fn stage(&self) -> Stage {
        match self {
            Self::Unmount(_) => Stage::Mounts,
            Self::Namespace(_)
            | Self::Link(_)
            | Self::Rule(..)
            | Self::Chain(..)
            | Self::Table(_)
            | Self::NftTable(_)
            | Self::IpSet(_) => Stage::Network,
            Self::Tree { .. } | Self::Contents { .. } | Self::IfEmpty(_) | Self::PlainProgram(_) => Stage::Trees,
            Self::Restore(..) | Self::Sysctl(..) | Self::SwapOn(..) | Self::Unmask(_) | Self::Enable(_) => {
                Stage::Settings
            }
        }
    }
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmount(path) => write!(f, "the mount {}", path.display()),
            Self::Namespace(name) => write!(f, "the network namespace {name}"),
            Self::Link(name) => write!(f, "the network link {name}"),
            Self::Rule(table, rule) => write!(f, "the rule {rule} in {table}"),
            Self::Chain(table, chain) => write!(f, "the chain {chain} in {table}"),
            Self::Table(table) => write!(f, "the empty table {table}"),
            Self::NftTable(table) => write!(f, "the table {table}"),
            Self::IpSet(name) => write!(f, "the set of addresses {name}"),
            Self::Tree { path, .. } | Self::IfEmpty(path) => write!(f, "{}", path.display()),
            Self::Contents { path, .. } => write!(f, "the content of {}", path.display()),
            Self::Restore(path, _) => write!(f, "the former content of {}", path.display()),
            Self::Sysctl(key, value) => write!(f, "the kernel setting {key} = {value}"),
            Self::SwapOn(path, _) => write!(f, "swap on {path}"),
            Self::Unmask(unit) => write!(f, "the mask of {unit}"),
            Self::Enable(unit) => write!(f, "the enablement of {unit}"),
            Self::PlainProgram(path) => write!(f, "{} as a regular file", path.display()),
        }
    }
}

/// Something that stays, and why.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Kept {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

impl Kept {
    pub(super) fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into() }
    }
}

/// What to do, and what stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which it is done.
    pub removals: Vec<Removal>,
    /// What stays and why.
    pub kept: Vec<Kept>,
}

impl Plan {
    /// The part of the packet filter that a removal is about.
    pub(super) fn filter(removal: &Removal) -> Option<FilterPart> {
        match removal.clone() {
            Removal::Rule(table, rule) => Some(FilterPart::Rule { table, rule }),
            Removal::Chain(table, chain) => Some(FilterPart::Chain { table, chain }),
            Removal::Table(table) | Removal::NftTable(table) => Some(FilterPart::Table { table }),
            _ => None,
        }
    }

    /// What one step does.
    pub fn of(&self, stage: Stage) -> impl Iterator<Item = &Removal> {
        self.removals.iter().filter(move |removal| removal.stage() == stage)
    }
}

/// Decides all of it.
pub fn plan(facts: &Facts) -> Plan {
    let mut plan = Plan::default();
    mounts(facts, &mut plan);
    network::plan(facts, &mut plan);
    trees(facts, &mut plan);
    program(facts, &mut plan);
    settings::plan(facts, &mut plan);
    plan
}

/// Mounts below our directories that were not there before, the last one first. A mount at such a directory itself is not
/// the agent's.
fn mounts(facts: &Facts, plan: &mut Plan) {
    for mount in facts.mounts.iter().rev() {
        let below = |place: &Place| place.real.as_deref().is_some_and(|dir| mount.starts_with(dir) && mount != dir);
        if facts.places.iter().any(|(path, place)| unmounts(path) && below(place)) && !was_mounted(facts, mount) {
            plan.removals.push(Removal::Unmount(mount.clone()));
        }
    }
}

/// Directories below which pods and containerd mount. /run/netns is not one of them: its names go one by one.
fn unmounts(path: &Path) -> bool {
    ["/var/lib/kubelet", "/run/containerd", "/var/lib/containerd", "/var/lib/cni", "/var/log/pods"]
        .iter()
        .any(|dir| path == Path::new(dir))
}

fn was_mounted(facts: &Facts, mount: &Path) -> bool {
    let existed = facts.record.as_ref().and_then(|record| record.existed.as_ref());
    existed.is_some_and(|existed| existed.mounts.iter().any(|known| Path::new(known) == mount))
}

fn trees(facts: &Facts, plan: &mut Plan) {
    for credential in places::CREDENTIALS {
        // In a directory that is a link the real one is meant: a certificate must not survive there.
        if let Some(path) = credential_path(facts, Path::new(credential)) {
            push_tree(facts, plan, path);
        }
    }
    for file in places::FILES.iter().map(Path::new) {
        if facts.files.contains_key(file) {
            push_tree(facts, plan, file.to_path_buf());
        }
    }
    for file in facts.evidence.files.iter().filter(|file| facts.files.contains_key(*file)) {
        if file.starts_with(CNI) && !goes_whole(facts, Path::new(CNI)) {
            push_tree(facts, plan, file.clone());
        }
    }
    // Where other programs keep theirs, the configuration of the node's own network goes: it came with an add-on.
    let new = |conf: &&PathBuf| facts.files.contains_key(*conf) && came_after(facts, conf) && conf.starts_with(CONF);
    if let Some(conf) = facts.evidence.conf.as_ref().filter(new).filter(|_| !goes_whole(facts, Path::new(CONF))) {
        push_tree(facts, plan, conf.clone());
    }
    for place in places::PLACES {
        let path = Path::new(place.path);
        if let Some(state) = facts.places.get(path).filter(|state| state.kind.is_some()) {
            directory(facts, path, state, place.policy, plan);
        }
    }
}

/// Where a credential is, when it is there.
fn credential_path(facts: &Facts, path: &Path) -> Option<PathBuf> {
    let place = facts.places.get(path.parent()?)?;
    let name = path.file_name()?;
    place.entries.iter().any(|entry| entry.name == name).then(|| place.real.as_deref().map(|dir| dir.join(name)))?
}

/// Whether it was there before the node: `None` when nobody knows.
fn existed(facts: &Facts, path: &Path) -> Option<bool> {
    facts.record.as_ref()?.existed(path.to_str()?)
}

/// Whether a file in a directory that was looked at was not there before the node.
pub(super) fn came_after(facts: &Facts, file: &Path) -> bool {
    let existed = facts.record.as_ref().and_then(|record| record.existed.as_ref());
    existed.is_some_and(|existed| {
        let looked = file.parent().and_then(Path::to_str).is_some_and(|dir| existed.looked_at.contains(dir));
        looked && file.to_str().is_some_and(|file| !existed.paths.contains(file))
    })
}

fn goes_whole(facts: &Facts, path: &Path) -> bool {
    existed(facts, path) == Some(false)
}

fn directory(facts: &Facts, path: &Path, place: &Place, policy: Policy, plan: &mut Plan) {
    let new = goes_whole(facts, path);
    match policy {
        Policy::Own => whole(facts, path, place, plan),
        Policy::Images if facts.options.keep_images => {
            plan.kept.push(Kept::new(path.display().to_string(), "the images are kept, as --keep-images says"));
        }
        Policy::Shared(_) | Policy::Whole | Policy::Images | Policy::PodLogs | Policy::ContainerLogs if new => {
            whole(facts, path, place, plan);
        }
        Policy::OwnWhenEmpty => when_empty(facts, path, place, plan),
        Policy::WhenEmpty if new => when_empty(facts, path, place, plan),
        Policy::WhenEmpty => {}
        Policy::Shared(patterns) => {
            entries(facts, place, plan, |name, _| places::matches(patterns, name));
            keep(facts, path, plan);
        }
        Policy::Networks => {
            let of_pods = |network: &Path| {
                came_after(facts, network)
                    && facts.evidence.files.iter().any(|file| file.starts_with(network))
                    && !facts.evidence.foreign_networks.contains(network)
            };
            entries(facts, place, plan, |name, kind| kind == FileKind::Dir && of_pods(&path.join(name)));
            if new {
                when_empty(facts, path, place, plan);
            }
        }
        Policy::Entries(patterns) => entries(facts, place, plan, |name, _| places::matches(patterns, name)),
        Policy::PodLogs => {
            entries(facts, place, plan, |name, kind| kind == FileKind::Dir && places::is_pod_log(name));
            keep(facts, path, plan);
        }
        Policy::ContainerLogs => {
            entries(facts, place, plan, |name, kind| kind == FileKind::Link && places::matches(&["*.log"], name));
            keep(facts, path, plan);
        }
        Policy::Whole | Policy::Images => keep(facts, path, plan),
    }
}

fn keep(facts: &Facts, path: &Path, plan: &mut Plan) {
    let why = match existed(facts, path) {
        Some(true) => "it was there before the node",
        _ => "nothing says that the agent made it",
    };
    plan.kept.push(Kept::new(path.display().to_string(), why));
}

/// A directory that goes whole. A link in its place is removed and not followed; a mount point is emptied.
fn whole(facts: &Facts, path: &Path, place: &Place, plan: &mut Plan) {
    let covered =
        plan.removals.iter().any(|r| matches!(r, Removal::Tree { path: above, .. } if path.starts_with(above)));
    if covered {
        return;
    }
    if place.kind == Some(FileKind::Dir) && facts.mounts.iter().any(|mount| mount == path) {
        plan.kept.push(Kept::new(path.display().to_string(), "a file system that the agent did not mount is there"));
        if !place.entries.is_empty() {
            let spare = spared(facts, path, plan);
            plan.removals.push(Removal::Contents { path: path.to_path_buf(), spare });
        }
        return;
    }
    push_tree(facts, plan, path.to_path_buf());
}

fn push_tree(facts: &Facts, plan: &mut Plan, path: PathBuf) {
    let spare = spared(facts, &path, plan);
    if spare.contains(&path) {
        return;
    }
    let removal = Removal::Tree { path, spare };
    if !plan.removals.contains(&removal) {
        plan.removals.push(removal);
    }
}

/// Mount points at or below `path`. Those that are to be unmounted are gone when it works; when it does not, what is below
/// them is not ours to delete.
fn spared(facts: &Facts, path: &Path, plan: &mut Plan) -> Vec<PathBuf> {
    let mut spare: Vec<PathBuf> = facts.mounts.iter().filter(|mount| mount.starts_with(path)).cloned().collect();
    spare.sort_unstable();
    spare.dedup();
    for mount in &spare {
        let kept = Kept::new(mount.display().to_string(), "it was mounted before the node");
        if was_mounted(facts, mount) && !plan.kept.contains(&kept) {
            plan.kept.push(kept);
        }
    }
    spare
}

fn entries(facts: &Facts, place: &Place, plan: &mut Plan, goes: impl Fn(&str, FileKind) -> bool) {
    let Some(dir) = place.real.as_deref() else { return };
    // A link that leads to a top directory of the system is a mistake that must not cost the system.
    if dir.components().count() < 3 {
        plan.kept.push(Kept::new(dir.display().to_string(), "a link leads there, it is no directory of a node"));
        return;
    }
    for entry in &place.entries {
        if entry.name.to_str().is_some_and(|name| goes(name, entry.kind)) {
            push_tree(facts, plan, dir.join(&entry.name));
        }
    }
}

fn when_empty(facts: &Facts, path: &Path, place: &Place, plan: &mut Plan) {
    let Some(dir) = place.real.as_deref() else { return };
    let mounted = facts.mounts.iter().any(|mount| mount == dir);
    // A link (a host root that was taken over) is not the agent's to remove.
    if place.kind == Some(FileKind::Dir) && !mounted && place.entries.iter().all(|e| goes(plan, &dir.join(&e.name))) {
        plan.removals.push(Removal::IfEmpty(path.to_path_buf()));
    }
}

/// Whether a path is gone when all before it is done.
fn goes(plan: &Plan, path: &Path) -> bool {
    plan.removals.iter().any(|removal| match removal {
        Removal::Tree { path: tree, spare } => path.starts_with(tree) && spare.is_empty(),
        Removal::IfEmpty(dir) => path == dir,
        _ => false,
    })
}

/// The agent's own program stays as a regular file, without the slots of its upgrades, unless a person wants it gone.
fn program(facts: &Facts, plan: &mut Plan) {
    let program = facts.host_root.join("bin").join(crate::agent_binary::PROGRAM);
    let slots = facts.host_root.join(places::AGENT_SLOTS);
    match (facts.files.get(&program), facts.options.remove_agent) {
        (None, _) => {}
        (Some(_), true) => push_tree(facts, plan, program),
        (Some(kind), false) => {
            let kept = Kept::new(program.display().to_string(), "the agent's program stays; --remove-agent removes it");
            plan.kept.push(kept);
            if *kind == FileKind::Link {
                plan.removals.push(Removal::PlainProgram(program));
            }
        }
    }
    if facts.files.contains_key(&slots) {
        push_tree(facts, plan, slots);
    }
    // The directories were planned before the program; they are empty only now.
    let agents: Vec<Removal> = plan
        .removals
        .iter()
        .filter(|r| matches!(r, Removal::IfEmpty(path) if path.starts_with("/opt/unbounded")))
        .cloned()
        .collect();
    plan.removals.retain(|removal| !agents.contains(removal));
    for place in places::PLACES.iter().filter(|place| place.path.starts_with("/opt/unbounded")) {
        if let Some(state) = facts.places.get(Path::new(place.path)).filter(|state| state.kind.is_some()) {
            when_empty(facts, Path::new(place.path), state, plan);
        }
    }
}

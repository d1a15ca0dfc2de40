//! The checker: invariants 1 to 4 of the design on a host that was switched on after a power cut.
//!
//! 1. Only what the agent made is changed: what others own is as it was.
//! 2. The old version runs or the new one does, whole; no reader ever sees half a file.
//! 3. A failed upgrade ends with the old version running, and the goal is remembered.
//! 4. Reset ends well when it is run again.

use crate::scenario::Action;
use crate::world::{FOREIGN, World};
use flexnode_daemon::operations::state_files;
use flexnode_daemon::record::RecordStore;
use flexnode_daemon::service::SERVICE_UNIT_NAME;
use flexnode_daemon::state::StateStore;
use flexnode_host::testing::{FakeHost, MemFs, Tree};
use flexnode_host::{Fs, Processes as _};
use flexnode_isolation::none::{Layout, Level, SlotError, UNIT_CONTAINERD, UNIT_KUBELET, manifest};
use flexnode_model::MachineGoal;
use flexnode_model::config::Config;
use flexnode_model::journal::{Ending, JournalRecord, Phase};
use flexnode_ops::Journal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What runs in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Old,
    New,
    /// A person stopped it.
    Stopped,
    /// No node.
    Gone,
}

type Checked<T> = Result<T, String>;

macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err(format!($($text)+));
        }
    };
}

fn says<T, E: std::error::Error + Send + Sync + 'static>(what: &str, result: Result<T, E>) -> Checked<T> {
    result.map_err(|e| format!("{what}: {}", flexnode_ops::report::layers(&e).join(": ")))
}

/// Invariant 1, for what others own.
pub fn foreign(before: &MemFs, now: &MemFs) -> Checked<()> {
    for path in FOREIGN.map(Path::new) {
        let read = |fs: &MemFs| Tree::read(fs, path, false).map_err(|e| e.to_string());
        let lines = read(before)?.difference(&read(now)?);
        ensure!(lines.is_empty(), "what others own was changed: {lines:#?}");
    }
    Ok(())
}

/// No reader sees half a file: everything on the disk can be read or is not there, before anything runs.
pub fn readers(action: Action, disk: &MemFs) -> Checked<()> {
    let fs: Arc<dyn Fs> = Arc::new(disk.clone());
    says("the journal", Journal::new(fs.clone()).last())?;
    says("the history of the journal", Journal::new(fs.clone()).history())?;
    says("the state", StateStore::new(fs.clone()).load())?;
    says("the record", RecordStore::new(fs.clone()).load())?;
    says("the record of kept files", state_files::load(fs.as_ref()))?;
    history_is_whole(disk)?;
    let config = says("the configuration", fs.read(Path::new(crate::world::CONFIG), 1 << 20))?.unwrap_or_default();
    let facts = flexnode_daemon::start::host_facts(&FakeHost::new().host()).map_err(|e| e.to_string())?;
    says("the configuration", Config::load(&config, &facts))?;
    let goes = matches!(action, Action::Reset | Action::Destroy);
    let layout = Layout::default();
    for slot in says("the versions", layout.versions(disk))? {
        match manifest::verify(disk, &layout, &slot, Level::Content) {
            Ok(_) => goal(disk, &layout, &slot).map(drop)?,
            Err(SlotError::Incomplete { .. }) => {}
            Err(_) if goes => {}
            Err(e) => return Err(format!("version {slot}: {}", flexnode_ops::report::layers(&e).join(": "))),
        }
    }
    if let Some(slot) = says("the current link", layout.current(disk))? {
        // Its content was looked at above, when it has a manifest.
        says("the active version", manifest::verify(disk, &layout, &slot, Level::Shape))?;
    }
    Ok(())
}

/// [`Journal::history`] leaves out what it cannot read; here it may not come to that.
fn history_is_whole(disk: &MemFs) -> Checked<()> {
    let dir = Path::new(flexnode_ops::journal::DIR).join("history");
    for entry in disk.read_dir(&dir).unwrap_or_default() {
        let path = dir.join(&entry.name);
        if path.extension().is_some_and(|kind| kind == "json") {
            let bytes = says("the history", disk.read(&path, 1 << 20))?.unwrap_or_default();
            says(&format!("{} in the history", path.display()), JournalRecord::decode(&bytes))?;
        }
    }
    Ok(())
}

fn goal(fs: &dyn Fs, layout: &Layout, slot: &str) -> Checked<MachineGoal> {
    let path = layout.version_dir(slot).join("etc/goal.json");
    let bytes = says("the goal", fs.read(&path, 4 << 20))?;
    let Some(bytes) = bytes else { return Err(format!("the goal of {slot} is not there")) };
    let goal = says("the goal", MachineGoal::decode(&bytes))?;
    // What `slots prune` is to remove was never a version.
    let name = says("the goal", goal.slot())?;
    ensure!(name.as_str() == slot, "the goal in {slot} is that of {name}");
    Ok(goal)
}

/// What boots without the agent's help is whole: nothing, or all units from one complete version.
pub fn booted(action: Action, world: &World) -> Checked<()> {
    let (fake, layout) = (&world.fake, Layout::default());
    let current = says("the current link", layout.current(fake.fs.as_ref()))?;
    let runs: Vec<bool> = [UNIT_CONTAINERD, UNIT_KUBELET].map(|unit| fake.systemd.state(unit).is_active()).into();
    let was_up = !matches!(action, Action::Start | Action::Stop | Action::StartNode | Action::Reset | Action::Destroy);
    if was_up {
        ensure!(runs == [true, true], "a node that ran does not come up by itself: {runs:?} of {current:?}");
    }
    for unit in [UNIT_CONTAINERD, UNIT_KUBELET] {
        if fake.systemd.state(unit).is_active() {
            let slot = current.as_deref().ok_or("a unit runs and no version is active")?;
            runs_from(world, unit, slot)?;
        }
    }
    Ok(())
}

fn runs_from(world: &World, unit: &str, slot: &str) -> Checked<()> {
    let state = world.fake.systemd.state(unit);
    let process = says("processes", world.fake.processes.get(state.main_pid))?;
    let exe = process.map(|process| process.exe).unwrap_or_default();
    let bin = Layout::default().version_dir(slot).join("bin");
    ensure!(exe.starts_with(&bin), "{unit} is {} and runs {}, not from {}", state.active, exe.display(), bin.display());
    Ok(())
}

/// What runs now, and that all of it is of one version.
pub fn node((old, new): (&str, &str), world: &World) -> Checked<Verdict> {
    let fake = &world.fake;
    let fs: Arc<dyn Fs> = fake.fs.clone();
    let layout = Layout::default();
    let open = says("the journal", Journal::new(fs.clone()).open())?;
    ensure!(open.is_none(), "an operation is left open: {open:?}");
    let state = says("the state", StateStore::new(fs.clone()).load())?.ok_or("no state is recorded")?;
    let extension = state.flexnode.clone().ok_or("the state is not of this agent")?;
    let slot = says("the current link", layout.current(fs.as_ref()))?.ok_or("no version is active")?;
    says("the active version", manifest::verify(fs.as_ref(), &layout, &slot, Level::Content))?;
    let goal = goal(fs.as_ref(), &layout, &slot)?;
    ensure!(
        extension.active_slot.as_deref() == Some(&slot),
        "the state names {:?}, {slot} is active",
        extension.active_slot
    );
    ensure!(state.applied_kubernetes_version == goal.kubernetes_version, "the state names another version: {state:?}");
    for (path, name) in [
        ("/var/lib/kubelet/config.yaml", "kubelet/config.yaml"),
        ("/etc/unbounded/containerd/config.toml", "containerd/config.toml"),
    ] {
        let leads = says("the configuration", fs.canonicalize(Path::new(path)))?;
        let wanted = layout.version_dir(&slot).join("etc").join(name);
        ensure!(leads == wanted, "{path} leads to {}", leads.display());
    }
    for entry in says("plugins", fs.read_dir(&layout.version_dir(&slot).join("cni")))? {
        let link = Path::new("/opt/cni/bin").join(&entry.name);
        let leads: PathBuf = says("a plugin", fs.canonicalize(&link))?;
        ensure!(leads.starts_with(layout.version_dir(&slot)), "{} leads to {}", link.display(), leads.display());
    }
    let agent = fake.systemd.state(SERVICE_UNIT_NAME);
    ensure!(agent.is_active() && agent.enabled == "enabled", "the agent is {} and {}", agent.active, agent.enabled);
    for unit in [UNIT_CONTAINERD, UNIT_KUBELET] {
        let bytes = says("a unit", fs.read(&Path::new("/etc/systemd/system").join(unit), 1 << 16))?;
        let kept = layout.version_dir(&slot).join("etc/units").join(unit);
        ensure!(bytes == says("a unit", fs.read(&kept, 1 << 16))?, "{unit} is not that of {slot}");
        let state = fake.systemd.state(unit);
        if extension.stopped_by_person {
            ensure!(!state.is_active() && state.enabled != "enabled", "{unit} was stopped and is {state:?}");
            continue;
        }
        ensure!(state.is_active() && state.enabled == "enabled", "{unit} is {} and {}", state.active, state.enabled);
        ensure!(!state.need_reload, "systemd has not read {unit}");
        runs_from(world, unit, &slot)?;
    }
    match slot {
        _ if extension.stopped_by_person => Ok(Verdict::Stopped),
        slot if slot == old => Ok(Verdict::Old),
        slot if slot == new => Ok(Verdict::New),
        slot => Err(format!("{slot} runs, which is neither the old version nor the new one")),
    }
}

/// The fingerprint and the reason of the goal that failed, as far as the journal on the disk knows of it.
pub fn failed(disk: &MemFs) -> Option<String> {
    let record = Journal::new(Arc::new(disk.clone())).last().ok()??;
    let knows = record.operation == "upgrade" && record.failed_step.is_some();
    let back = record.phase == Phase::RollingBack || record.outcome == Some(Ending::RolledBack);
    // An upgrade that the power interrupted is not to blame.
    (knows && back && !record.interrupted).then_some(record.goal)
}

/// Invariant 3.
pub fn remembered(world: &World, goal: &str) -> Checked<()> {
    let state = says("the state", StateStore::new(world.fake.fs.clone()).load())?.unwrap_or_default();
    ensure!(state.failure_of(goal).is_some(), "the goal {goal} failed and is not remembered: {state:?}");
    Ok(())
}

/// A goal that nothing is wrong with but that the power went is not held against anybody.
pub fn innocent(world: &World) -> Checked<()> {
    let state = says("the state", StateStore::new(world.fake.fs.clone()).load())?.unwrap_or_default();
    let failed = state.flexnode.map(|extension| extension.failed_goals).unwrap_or_default();
    ensure!(failed.is_empty(), "the power went, and a goal is blamed: {failed:?}");
    Ok(())
}

/// Invariant 4 and 1: nothing of the node is left, and everything else is as it was.
pub fn gone(pristine: &MemFs, world: &World) -> Checked<()> {
    let stays = |path: &Path| {
        // The program that a person may want again, and the directories that it lies in; what is in memory.
        let kept = ["/opt/unbounded", "/run", "/tmp", "/proc"];
        kept.iter().any(|kept| path.starts_with(kept)) || path == Path::new(crate::world::CONFIG)
    };
    let tree = |fs: &MemFs| {
        let mut tree = fs.tree();
        tree.0.retain(|path, _| !stays(path));
        tree
    };
    let lines = tree(pristine).difference(&tree(&world.fake.fs));
    ensure!(lines.is_empty(), "the reset left something: {lines:#?}");
    let left: Vec<String> = world.fake.fs.tree().0.into_keys().map(|path| path.display().to_string()).collect();
    let left: Vec<&String> = left.iter().filter(|path| path.starts_with("/opt/unbounded/node")).collect();
    ensure!(left.is_empty(), "versions are left: {left:?}");
    Ok(())
}

/// Destroy takes the node stack away and leaves what belongs to the host and the agent.
pub fn destroyed(world: &World) -> Checked<()> {
    for path in ["/opt/unbounded/node", "/etc/unbounded/containerd", "/var/lib/kubelet/config.yaml"] {
        ensure!(!world.fake.fs.exists(path), "{path} is left");
    }
    for unit in [UNIT_CONTAINERD, UNIT_KUBELET] {
        let state = world.fake.systemd.state(unit);
        ensure!(!state.is_active() && state.load == "not-found", "{unit} is {state:?}");
    }
    Ok(())
}

//! Which version directory is active, and what it says of itself.

use flexnode_host::{FileKind, Fs};
use flexnode_model::{MachineGoal, SlotName};
use serde::Serialize;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The agent's base for version directories (none.txt, `DefaultBase`).
pub const BASE: &str = "/opt/unbounded/node";
/// A goal with its configuration has some kilobytes.
const MAX_GOAL: u64 = 4 * 1024 * 1024;

/// One version directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SlotFacts {
    /// Its name.
    pub name: String,
    /// Kubernetes version without `v`, as recorded when it was made.
    pub kubelet_version: Option<String>,
    /// containerd version without `v`, as recorded.
    pub containerd_version: Option<String>,
    /// runc version without `v`, as recorded.
    pub runc_version: Option<String>,
    /// Why the slot cannot be relied on, in words; `None` when it is whole as far as it was looked at.
    pub problem: Option<String>,
}

/// The version directories of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotsView {
    /// The active one; `None` when none was ever activated.
    pub current: Option<SlotFacts>,
    /// The others that are there, by name.
    pub others: Vec<SlotFacts>,
}

impl SlotsView {
    /// The slot whose program `name` (such as `kubelet`) lies at `path`, with links resolved.
    pub fn owner<'a>(&'a self, base: &Path, path: &Path) -> Option<&'a SlotFacts> {
        let inside = path.strip_prefix(base).ok()?;
        let slot = inside.components().next()?.as_os_str().to_str()?;
        self.current.iter().chain(&self.others).find(|facts| facts.name == slot)
    }
}

/// Reads the version directories.
pub trait Slots: Send + Sync + Debug {
    /// What is there now. The error says why it is not known.
    fn view(&self) -> Result<SlotsView, String>;
    /// Where they lie.
    fn base(&self) -> &Path;
}

/// Version directories in a file system.
#[derive(Clone, Debug)]
pub struct FsSlots {
    fs: Arc<dyn Fs>,
    base: PathBuf,
}

impl FsSlots {
    /// Those below `base`, normally [`BASE`].
    pub fn new(fs: Arc<dyn Fs>, base: impl Into<PathBuf>) -> Self {
        Self { fs, base: base.into() }
    }

    fn facts(&self, name: &str) -> SlotFacts {
        let dir = self.base.join(name);
        let named =
            |problem: String| SlotFacts { name: name.to_owned(), problem: Some(problem), ..SlotFacts::default() };
        match self.fs.lstat(&dir) {
            Ok(Some(stat)) if stat.kind == FileKind::Dir => {}
            Ok(_) => return named(format!("{} is not there", dir.display())),
            Err(e) => return named(format!("{e}: {}", e.source)),
        }
        // The manifest is written last: without it the directory was never finished.
        let manifest = dir.join("etc/manifest.json");
        let problem = match self.fs.lstat(&manifest) {
            Ok(Some(_)) => None,
            Ok(None) => Some("it was never finished: it has no manifest".to_owned()),
            Err(e) => Some(format!("{e}: {}", e.source)),
        };
        let goal = dir.join("etc/goal.json");
        let goal: Option<MachineGoal> = match self.fs.read(&goal, MAX_GOAL) {
            Ok(Some(bytes)) => match serde_json::from_slice(&bytes) {
                Ok(goal) => Some(goal),
                Err(_) => return named(format!("{} cannot be read", goal.display())),
            },
            Ok(None) => None,
            Err(e) => return named(format!("{e}: {}", e.source)),
        };
        let plain = |version: &str| version.trim_start_matches('v').to_owned();
        SlotFacts {
            name: name.to_owned(),
            kubelet_version: goal.as_ref().map(|g| plain(&g.kubernetes_version)),
            containerd_version: goal.as_ref().and_then(|g| g.containerd_version.as_deref().map(plain)),
            runc_version: goal.as_ref().and_then(|g| g.runc_version.as_deref().map(plain)),
            problem,
        }
    }

    fn active(&self) -> Result<Option<String>, String> {
        let link = self.base.join("current");
        let failed = |e: flexnode_host::FsError| format!("{e}: {}", e.source);
        match self.fs.lstat(&link).map_err(failed)? {
            None => return Ok(None),
            Some(stat) if stat.kind != FileKind::Link => {
                return Err(format!("{} is a {}, no link", link.display(), stat.kind));
            }
            Some(_) => {}
        }
        let target = self.fs.read_link(&link).map_err(failed)?;
        let name = target.strip_prefix(&self.base).unwrap_or(&target);
        match name.to_str().map(SlotName::new) {
            Some(Ok(name)) => Ok(Some(name.into())),
            _ => Err(format!("{} points to {}, which is no version", link.display(), target.display())),
        }
    }
}

impl Slots for FsSlots {
    fn view(&self) -> Result<SlotsView, String> {
        let active = self.active()?;
        let entries = match self.fs.read_dir(&self.base) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(format!("{e}: {}", e.source)),
        };
        let names = entries.iter().filter(|e| e.kind == FileKind::Dir).filter_map(|e| e.name.to_str());
        let others = names.filter(|n| SlotName::new(*n).is_ok() && Some(*n) != active.as_deref());
        Ok(SlotsView {
            others: others.map(|name| self.facts(name)).collect(),
            current: active.map(|name| self.facts(&name)),
        })
    }

    fn base(&self) -> &Path {
        &self.base
    }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
pub(crate) mod tests;

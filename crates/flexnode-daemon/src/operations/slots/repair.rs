//! Mending an installed version from the artifact source.
//!
//! The version tells itself what it was made of: its goal is in it. The source is the configuration's. Everything is
//! installed into a copy beside the versions first, verified as at any installation, and then the version's manifest decides
//! which files are replaced.

use super::no_record;
use crate::operations::{NodeContext, OperationError, lock};
use crate::start::{Prepared, prepare, prepare_goal};
use flexnode_host::durable::{self, TEMP_PREFIX};
use flexnode_host::{Fs, FsError};
use flexnode_isolation::none::{Layout, Level, Root, SlotError, manifest};
use flexnode_model::JournalRecord;
use flexnode_ops::StepContext;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a repair did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The files that were replaced, relative to the version; empty when it was as it was installed.
    pub files: Vec<String>,
    /// Programs of the version run that were replaced: the node has to be restarted to run the mended ones.
    pub restart: bool,
}

/// Mends a version, whether it runs or not. What runs goes on running.
pub async fn repair(context: &NodeContext, slot: &str, cx: StepContext) -> Result<Repaired, OperationError> {
    let _lock = lock(context, "slots-repair")?;
    no_record(context, JournalRecord::is_interrupted)?;
    let (fs, layout, name) = (context.host().fs.clone(), context.layout(), slot.to_owned());
    let found = blocking(move || Ok(manifest::verify(fs.as_ref(), &layout, &name, Level::Content))).await?;
    match found {
        Ok(_) => return Ok(Repaired { files: Vec::new(), restart: false }),
        Err(SlotError::Damaged { .. } | SlotError::Incomplete { .. } | SlotError::Manifest { .. }) => {}
        Err(SlotError::Absent { .. } | SlotError::Name(_)) => {
            return Err(refused(format!("version {slot} is not installed"), "aks-flex-node slots list"));
        }
        Err(other) => return Err(OperationError::Backend(other.into())),
    }
    let prepared = Arc::new(made_of(context, slot).await?);
    let parts = context.start.parts(&prepared, context.layout());
    let copy = context.layout().base_dir().join(format!("{TEMP_PREFIX}repair"));
    let failed = |e: FsError| OperationError::Backend(e.into());
    let fs = context.host().fs.clone();
    durable::remove_tree(fs.as_ref(), &copy).map_err(failed)?;
    let root = Root { layout: Layout::new(&copy), version: slot.to_owned(), host_root: PathBuf::new() };
    for dir in ["bin", "libexec", "cni", "etc"] {
        durable::ensure_dir(fs.as_ref(), &root.dir().join(dir), 0o755).map_err(failed)?;
    }
    let backend = parts.backend();
    let installed = backend.install.call(cx, root).await;
    let mended = match installed {
        Err(source) => Err(OperationError::Step { step: "install".into(), source }),
        Ok(_) => mend(context, slot, &copy, &prepared).await,
    };
    let cleared = durable::remove_tree(fs.as_ref(), &copy).map_err(failed);
    mended.and_then(|mended| cleared.map(|_| mended))
}

async fn mend(context: &NodeContext, slot: &str, copy: &Path, prepared: &Prepared) -> Result<Repaired, OperationError> {
    let (backend, copy, slot, goal) =
        (context.backend(), Layout::new(copy), slot.to_owned(), prepared.fingerprint.clone());
    let fs = context.host().fs.clone();
    let dir = context.layout().version_dir(&slot);
    let processes = context.host().processes.list().map_err(|e| OperationError::Backend(e.into()))?;
    blocking(move || {
        let bin = dir.join("bin");
        let before = programs(fs.as_ref(), &bin)?;
        let files = backend.mend_version(&slot, &copy, &goal).map_err(|e| OperationError::Backend(e.into()))?;
        let after = programs(fs.as_ref(), &bin)?;
        let gone = |id: &(u64, u64)| before.values().any(|old| old == id) && !after.values().any(|new| new == id);
        let restart = processes.iter().filter_map(|process| process.exe_id).any(|id| gone(&id));
        Ok(Repaired { files, restart })
    })
    .await
}

/// Device and inode of each file in `bin`.
fn programs(fs: &dyn Fs, bin: &Path) -> Result<BTreeMap<PathBuf, (u64, u64)>, OperationError> {
    let failed = |e: FsError| OperationError::Backend(e.into());
    let mut found = BTreeMap::new();
    if fs.lstat(bin).map_err(failed)?.is_none() {
        return Ok(found);
    }
    for entry in fs.read_dir(bin).map_err(failed)? {
        let path = bin.join(entry.name);
        if let Some(stat) = fs.lstat(&path).map_err(failed)? {
            found.insert(path, (stat.dev, stat.ino));
        }
    }
    Ok(found)
}

/// What the version was made of: its own goal, when that is whole, otherwise what the configuration leads to.
async fn made_of(context: &NodeContext, slot: &str) -> Result<Prepared, OperationError> {
    let own = context.goal_of(slot).ok().filter(|goal| goal.slot().is_ok_and(|name| name.as_str() == slot));
    // What the configuration leaves open of the node is as it was recorded.
    let applied =
        context.state().ok().and_then(|(_, e)| e.active_slot).and_then(|active| context.goal_of(&active).ok());
    let (host, config, known) = (context.host().clone(), context.start.config.clone(), own.is_some());
    let prepared = blocking(move || {
        Ok(match own {
            Some(goal) => prepare_goal(&host, &config, goal)?,
            None => prepare(&host, &config, applied.as_ref())?,
        })
    })
    .await?;
    if prepared.slot.as_str() == slot {
        return Ok(prepared);
    }
    let source = prepared.join.source.display();
    Err(if known {
        let text = format!("the artifact source {source} has other files than version {slot} was made of");
        refused(
            text,
            "put the bundle there that it was installed from, or name a configuration that has it with --config",
        )
    } else {
        let text = format!("the goal of version {slot} is lost, and the configuration leads to {}", prepared.slot);
        refused(text, "name the configuration that the version was made from with --config")
    })
}

fn refused(text: String, hint: &str) -> OperationError {
    OperationError::Refused { text, hint: hint.into() }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OperationError> + Send + 'static,
) -> Result<T, OperationError> {
    tokio::task::spawn_blocking(work).await.map_err(|e| OperationError::State(Box::new(e)))?
}

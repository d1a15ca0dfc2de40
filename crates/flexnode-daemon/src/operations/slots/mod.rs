//! The installed versions: which there are, which may go, and mending one.

mod repair;

pub use repair::{Repaired, repair};

use super::{NodeContext, OperationError, lock};
use flexnode_host::{FileKind, Fs, FsError};
use flexnode_isolation::none::{Level, manifest};
use flexnode_ops::{JournalRecord, Outcome, Step, StepError};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Slots that are kept besides the active and the previous one.
const MORE: usize = 1;
/// Removing some gigabytes on a slow disk.
const PRUNE: Duration = Duration::from_mins(5);

/// One installed version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "a slot can be any of these at once")]
pub struct Slot {
    /// Its name.
    pub name: String,
    /// The link selects it.
    pub active: bool,
    /// A rollback goes to it.
    pub previous: bool,
    /// A process runs one of its programs.
    pub in_use: bool,
    /// It is what its manifest says, as far as names, sizes and modes tell.
    pub complete: bool,
    /// What is wrong with it.
    pub problem: Option<String>,
    /// Bytes of its files.
    pub bytes: u64,
    /// When it was begun: nanoseconds since the epoch.
    #[serde(skip)]
    pub since: i128,
}

/// Which may go: never what is active, previous or in use, and not the newest complete one besides. Decided from what runs
/// and from the link; a record only ever keeps more.
pub fn surplus(slots: &[Slot]) -> Vec<String> {
    let mut free: Vec<&Slot> = slots.iter().filter(|s| !s.active && !s.previous && !s.in_use).collect();
    free.sort_by_key(|slot| (slot.complete, slot.since, slot.name.clone()));
    let complete = free.iter().filter(|slot| slot.complete).count();
    let keep = complete.min(MORE);
    free.iter().take(free.len() - keep).map(|slot| slot.name.clone()).collect()
}

/// All slots, by name.
pub fn list(context: &NodeContext) -> Result<Vec<Slot>, OperationError> {
    let (fs, layout) = (context.host().fs.as_ref(), context.layout());
    let failed = |e| OperationError::Backend(flexnode_isolation::Error::Layout(e));
    let active = layout.current(fs).map_err(failed)?;
    // Without a readable state nothing is known of a previous one; prune refuses then.
    let previous = context.state().ok().and_then(|(_, extension)| extension.previous_slot);
    let processes = context.host().processes.list().map_err(|e| OperationError::Backend(e.into()))?;
    let running: BTreeSet<(u64, u64)> = processes.iter().filter_map(|process| process.exe_id).collect();
    let mut slots = Vec::new();
    for name in layout.versions(fs).map_err(failed)? {
        let dir = layout.version_dir(&name);
        let mut files = Files::default();
        files.add(fs, &dir).map_err(|e| OperationError::Backend(e.into()))?;
        let problem = manifest::verify(fs, &layout, &name, Level::Shape).err().map(|e| e.to_string());
        let since = fs.lstat(&dir).map_err(|e| OperationError::Backend(e.into()))?.map_or(0, |stat| stat.mtime_ns);
        slots.push(Slot {
            active: active.as_ref() == Some(&name),
            previous: previous.as_ref() == Some(&name),
            in_use: files.ids.iter().any(|id| running.contains(id)),
            complete: problem.is_none(),
            problem,
            bytes: files.bytes,
            since,
            name,
        });
    }
    slots.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(slots)
}

#[derive(Default)]
struct Files {
    bytes: u64,
    ids: Vec<(u64, u64)>,
}

impl Files {
    fn add(&mut self, fs: &dyn Fs, dir: &Path) -> Result<(), FsError> {
        for entry in fs.read_dir(dir)? {
            let path = dir.join(&entry.name);
            match entry.kind {
                FileKind::Dir => self.add(fs, &path)?,
                FileKind::File => {
                    if let Some(stat) = fs.lstat(&path)? {
                        self.bytes += stat.size;
                        self.ids.push((stat.dev, stat.ino));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Removes what may go; the names.
pub fn prune(context: &NodeContext) -> Result<Vec<String>, OperationError> {
    let _lock = lock(context, "slots-prune")?;
    no_open_operation(context)?;
    remove_surplus(context)
}

/// The last step of an upgrade that came up: what nobody goes back to any more goes. The node runs whatever becomes of it.
pub(super) fn prune_step(context: &NodeContext) -> Step {
    let context = context.clone();
    let title = "remove versions that are not needed any more";
    Step::new("prune-slots", title, PRUNE, move |_| {
        let context = context.clone();
        async move {
            let work = tokio::task::spawn_blocking(move || remove_surplus(&context)).await;
            let work = work.map_err(|e| StepError::caused("the removal was ended", e))?;
            let gone = work.map_err(|e| StepError::caused("not all of them could be removed", e))?;
            Ok(if gone.is_empty() { Outcome::Unchanged } else { Outcome::Changed(gone.join(", ")) })
        }
    })
    .optional()
}

fn remove_surplus(context: &NodeContext) -> Result<Vec<String>, OperationError> {
    context.state()?;
    let (fs, layout) = (context.host().fs.as_ref(), context.layout());
    let gone = surplus(&list(context)?);
    for name in &gone {
        layout.remove(fs, name).map_err(|e| OperationError::Backend(e.into()))?;
    }
    Ok(gone)
}

/// An operation that did not end may need any of them.
fn no_open_operation(context: &NodeContext) -> Result<(), OperationError> {
    no_record(context, |_| true)
}

/// Refuses while there is a record that has not ended and that `counts`.
fn no_record(context: &NodeContext, counts: fn(&JournalRecord) -> bool) -> Result<(), OperationError> {
    let journal = flexnode_ops::Journal::new(context.host().fs.clone());
    match journal.open().map_err(|e| OperationError::State(Box::new(e)))?.filter(counts) {
        None => Ok(()),
        Some(record) => Err(OperationError::Refused {
            text: format!("{} has not ended (step {})", record.operation, record.step),
            hint: "wait until the agent's service has finished it: aks-flex-node status".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(name: &str, marks: &str, since: i128) -> Slot {
        Slot {
            name: name.into(),
            active: marks.contains('a'),
            previous: marks.contains('p'),
            in_use: marks.contains('u'),
            complete: !marks.contains('i'),
            problem: None,
            bytes: 0,
            since,
        }
    }

    #[test]
    fn the_active_the_previous_what_runs_and_one_more_are_kept() {
        let all = [
            slot("1", "", 1),
            slot("2", "i", 9),
            slot("3", "a", 2),
            slot("4", "p", 3),
            slot("5", "u", 4),
            slot("6", "", 5),
            slot("7", "", 4),
        ];
        assert_eq!(surplus(&all), ["2", "1", "7"]);
        assert_eq!(surplus(&all[2..5]), Vec::<String>::new());
        assert_eq!(surplus(&[slot("1", "", 1)]), Vec::<String>::new());
        assert_eq!(surplus(&[slot("1", "i", 1)]), ["1"]);
        assert_eq!(surplus(&[slot("1", "ai", 1), slot("2", "pi", 1)]), Vec::<String>::new());
    }
}

//! Where the applied goal is kept (daemon.txt, `NewFileStateStore`, `State`, `SeededState`).
//!
//! Two files, and a crash between any two writes has to leave a pair that proves itself. So the checksum file is written
//! first, with the digests of the new data and of the old, then the data, then the checksum of the new data alone.

use flexnode_host::durable::{self, Change};
use flexnode_host::{Fs, FsError};
use flexnode_model::state::{self, StateError};
use flexnode_model::{MachineGoal, SlotNameError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use flexnode_model::State;

/// The state file.
pub const STATE_PATH: &str = "/etc/aks-flex-node/daemon-state.json";
/// What is appended to its name for the checksum file.
const CHECKSUM: &str = ".sha256";
const MODE: u32 = 0o600;
const LIMIT: u64 = 1 << 20;

/// Why the state cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateStoreError {
    /// It decides nothing as it is.
    #[error("the recorded state {} cannot be used", path.display())]
    Unusable {
        /// The state file.
        path: PathBuf,
        /// Why.
        #[source]
        source: StateError,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// Keeps the state in files.
#[derive(Clone, Debug)]
pub struct StateStore {
    fs: Arc<dyn Fs>,
    path: PathBuf,
}

impl StateStore {
    /// The store at [`STATE_PATH`] (`NewFileStateStore`). Touches nothing.
    pub fn new(fs: Arc<dyn Fs>) -> Self {
        Self { fs, path: STATE_PATH.into() }
    }

    /// The state file and its checksum file.
    pub fn paths(&self) -> [PathBuf; 2] {
        [self.path.clone(), self.checksum_path()]
    }

    /// The state; `None` when none was saved, also where a checksum file is left alone. Data that its checksum does not
    /// name is an error: what to do is not guessed.
    pub fn load(&self) -> Result<Option<State>, StateStoreError> {
        let Some(data) = self.fs.read(&self.path, LIMIT)? else { return Ok(None) };
        let checksum = self.fs.read(&self.checksum_path(), LIMIT)?;
        match State::decode(&data, checksum.as_deref()) {
            Ok(state) => Ok(Some(state)),
            Err(source) => Err(StateStoreError::Unusable { path: self.path.clone(), source }),
        }
    }

    /// Saves the state durably. The same state again changes nothing.
    pub fn save(&self, state: &State) -> Result<Change, StateStoreError> {
        let fs = self.fs.as_ref();
        let data = state.encode();
        let old = fs.read(&self.path, LIMIT)?;
        let proof = fs.read(&self.checksum_path(), LIMIT)?;
        // Data that its own checksum does not name must not be named by ours.
        let proven = old.as_deref().filter(|old| State::decode(old, proof.as_deref()).is_ok());
        if let Some(dir) = self.path.parent() {
            durable::ensure_dir(fs, dir, 0o755)?;
        }
        let checksum = self.checksum_path();
        let done = state::checksum(&data);
        if old.as_deref() == Some(data.as_slice()) {
            let change = durable::write(fs, &self.path, &data, MODE)?;
            return Ok(change.or(durable::write(fs, &checksum, done.as_bytes(), MODE)?));
        }
        durable::write(fs, &checksum, state::transition(&data, proven).as_bytes(), MODE)?;
        durable::write(fs, &self.path, &data, MODE)?;
        durable::write(fs, &checksum, done.as_bytes(), MODE)?;
        Ok(Change::Made)
    }

    /// Removes both files; absent is fine. The data goes first: a checksum alone is no state.
    pub fn delete(&self) -> Result<Change, StateStoreError> {
        let fs = self.fs.as_ref();
        if let Some(dir) = self.path.parent()
            && fs.stat(dir)?.is_none()
        {
            return Ok(Change::None);
        }
        let change = durable::remove_file(fs, &self.path)?;
        Ok(change.or(durable::remove_file(fs, &self.checksum_path())?))
    }

    fn checksum_path(&self) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(CHECKSUM);
        PathBuf::from(name)
    }
}

/// The state of a machine to which `goal` is applied first (`SeededState`).
pub fn seeded_state(goal: &MachineGoal) -> Result<State, SlotNameError> {
    State::seeded(goal)
}

/// The directory that the state lies in.
pub fn state_dir() -> &'static Path {
    Path::new("/etc/aks-flex-node")
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_host::testing::{Cut, MemFs};
    use flexnode_model::state::Extension;

    fn state(goal: &str) -> State {
        State {
            applied_kubernetes_version: "1.36.3".into(),
            flexnode: Some(Extension { goal: goal.into(), ..Extension::default() }),
            ..State::default()
        }
    }

    fn store(fs: &MemFs) -> StateStore {
        StateStore::new(Arc::new(fs.clone()))
    }

    #[test]
    fn what_is_saved_is_loaded_and_removed() {
        let fs = MemFs::new();
        fs.put_dir("/etc", 0o755);
        let store = store(&fs);
        assert!(store.load().unwrap().is_none());
        assert_eq!(store.delete().unwrap(), Change::None);
        assert_eq!(store.save(&state("a")).unwrap(), Change::Made);
        assert_eq!(store.load().unwrap(), Some(state("a")));
        let before = fs.tree_with_stamps();
        assert_eq!(store.save(&state("a")).unwrap(), Change::None);
        assert_eq!(fs.tree_with_stamps(), before, "the same state again touches nothing");
        for path in store.paths() {
            assert_eq!(fs.lstat(&path).unwrap().unwrap().mode, 0o600);
        }
        assert_eq!(store.delete().unwrap(), Change::Made);
        assert!(store.load().unwrap().is_none());
    }

    #[test]
    fn every_crash_and_power_cut_leaves_the_old_state_or_the_new_one() {
        let fs = MemFs::new();
        fs.put_dir("/etc", 0o755);
        store(&fs).save(&state("old")).unwrap();
        let mut crashes = 0;
        for after in 0.. {
            let run = fs.fork();
            run.crash_after(after);
            let done = store(&run).save(&state("new")).is_ok();
            let cuts = [Cut::Lazy, Cut::Eager];
            for left in cuts.map(|cut| run.after_power_cut(cut)) {
                let loaded = store(&left).load().unwrap().unwrap();
                assert!(loaded == state("old") || loaded == state("new"), "after {after} changes: {loaded:?}");
                assert!(!done || loaded == state("new"));
                store(&left).save(&state("third")).unwrap();
                assert_eq!(store(&left).load().unwrap(), Some(state("third")));
            }
            if done {
                break;
            }
            crashes += 1;
        }
        assert!(crashes >= 6, "only {crashes} points were tried");
    }

    #[test]
    fn data_that_is_not_proven_is_an_error_and_is_not_proven_by_a_later_save() {
        let fs = MemFs::new();
        fs.put_dir("/etc", 0o755);
        store(&fs).save(&state("a")).unwrap();
        fs.put(STATE_PATH, state("forged").encode(), 0o600);
        assert!(matches!(store(&fs).load(), Err(StateStoreError::Unusable { .. })));
        let run = fs.fork();
        run.crash_after(3);
        store(&run).save(&state("b")).unwrap_err();
        assert!(store(&run.after_power_cut(Cut::Eager)).load().is_err(), "the forged data still counts for nothing");
        assert_eq!(store(&fs).delete().unwrap(), Change::Made, "reset does not need it");
    }
}

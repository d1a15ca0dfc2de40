//! A mount table.

use super::{FakeClock, MemFs, locked};
use crate::{HostError, MountPoint, Mounts};
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A mount table. What is mounted is another device in [`MemFs`].
#[derive(Debug)]
pub struct FakeMounts {
    fs: Arc<MemFs>,
    clock: Arc<FakeClock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    mounts: Vec<MountPoint>,
    hanging: BTreeSet<PathBuf>,
    refusing: BTreeSet<PathBuf>,
    unmounted: Vec<PathBuf>,
    next_id: u64,
}

impl FakeMounts {
    /// Only `/`, ext4.
    pub fn new(fs: Arc<MemFs>, clock: Arc<FakeClock>) -> Self {
        let mounts = Self { fs, clock, state: Mutex::default() };
        mounts.put(mount_point("/", "ext4", "/dev/vda1"));
        mounts
    }

    /// Adds a line to the table alone; its ID is given here.
    pub fn put(&self, mut mount: MountPoint) -> &Self {
        let mut state = locked(&self.state);
        state.next_id += 1;
        mount.id = 20 + state.next_id;
        state.mounts.push(mount);
        drop(state);
        self
    }

    /// Mounts a file system of this type at `path` (the directory is made): a line here, another device there.
    pub fn mount(&self, path: impl AsRef<Path>, kind: &str, source: &str) -> &Self {
        let path = path.as_ref();
        if !self.fs.exists(path) {
            self.fs.put_dir(path, 0o755);
        }
        self.put(mount_point(path, kind, source));
        self.fs.mount(path, 100 + locked(&self.state).next_id);
        self
    }

    /// Bind-mounts: the same device, yet a mount.
    pub fn bind(&self, source: impl AsRef<Path>, path: impl AsRef<Path>) -> &Self {
        let path = path.as_ref();
        if !self.fs.exists(path) {
            self.fs.put_dir(path, 0o755);
        }
        self.put(MountPoint { root: source.as_ref().to_path_buf(), ..mount_point(path, "ext4", "/dev/vda1") });
        self.fs.mount(path, 0);
        self
    }

    /// Unmounting `path` plainly hangs, as with a dead NFS server: the deadline passes, then it is detached.
    pub fn hang(&self, path: impl AsRef<Path>) -> &Self {
        locked(&self.state).hanging.insert(path.as_ref().to_path_buf());
        self
    }

    /// Unmounting `path` fails, also lazily.
    pub fn refuse(&self, path: impl AsRef<Path>) -> &Self {
        locked(&self.state).refusing.insert(path.as_ref().to_path_buf());
        self
    }

    /// What was unmounted, in order.
    pub fn unmounted(&self) -> Vec<PathBuf> {
        locked(&self.state).unmounted.clone()
    }
}

/// A plain read-write mount of the root of `source`.
pub fn mount_point(path: impl AsRef<Path>, kind: &str, source: &str) -> MountPoint {
    MountPoint {
        id: 0,
        path: path.as_ref().to_path_buf(),
        kind: kind.to_owned(),
        source: source.to_owned(),
        root: PathBuf::from("/"),
        read_only: false,
        no_exec: false,
    }
}

#[async_trait]
impl Mounts for FakeMounts {
    fn list(&self) -> Result<Vec<MountPoint>, HostError> {
        Ok(locked(&self.state).mounts.clone())
    }

    async fn unmount(&self, path: &Path, deadline: Duration) -> Result<(), HostError> {
        let mut state = locked(&self.state);
        let Some(topmost) = state.mounts.iter().rposition(|mount| mount.path == path) else {
            return Err(HostError::Absent { what: format!("mount {}", path.display()) });
        };
        if state.refusing.contains(path) {
            let what = format!("unmount {}", path.display());
            return Err(HostError::Failed { what, reason: "operation not permitted".to_owned() });
        }
        if state.hanging.contains(path) {
            self.clock.pass(deadline);
        }
        state.mounts.remove(topmost);
        state.unmounted.push(path.to_path_buf());
        if !state.mounts.iter().any(|mount| mount.path == path) && self.fs.exists(path) {
            self.fs.unmount(path);
        }
        Ok(())
    }
}

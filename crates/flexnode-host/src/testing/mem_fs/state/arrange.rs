//! Arranging, outside of what the code under test does.

use super::State;
use crate::testing::mem_fs::inode::Body;
use rustix::io::Errno;
use std::path::Path;

impl State {
    pub(in crate::testing::mem_fs) fn put_dir(&mut self, path: &Path, mode: u32) -> Result<(), Errno> {
        if let Some(dir) = path.parent()
            && self.stat(dir)?.is_none()
        {
            self.put_dir(dir, 0o755)?;
        }
        match self.find(path, true)?.ino {
            Some(ino) => {
                self.entries(ino)?;
                self.inode(ino)?.change().mode = mode;
            }
            None => drop(self.create(path, Body::dir(), mode)?),
        }
        self.sync_all();
        Ok(())
    }

    pub(in crate::testing::mem_fs) fn put(&mut self, path: &Path, body: Body, mode: u32) -> Result<(), Errno> {
        let dir = path.parent().ok_or(Errno::INVAL)?;
        if self.stat(dir)?.is_none() {
            self.put_dir(dir, 0o755)?;
        }
        if self.find(path, false)?.ino.is_some() {
            self.unlink(path)?;
        }
        self.create(path, body, mode)?;
        self.sync_all();
        Ok(())
    }

    pub(in crate::testing::mem_fs) fn take(&mut self, path: &Path) -> Result<(), Errno> {
        let Ok((place, _)) = self.there(path, false) else { return Ok(()) };
        self.change_entries(place.dir, |entries| {
            entries.remove(&place.name);
        })?;
        self.sync_all();
        Ok(())
    }

    pub(in crate::testing::mem_fs) fn mount(&mut self, path: &Path, device: Option<u64>) -> Result<(), Errno> {
        let (_, ino) = self.there(path, true)?;
        let outside = self.dev_of_dir(path)?;
        self.inode(ino)?.mounted = device.map(|device| if device == 0 { outside } else { device });
        Ok(())
    }

    pub(in crate::testing::mem_fs) fn set_read_only(&mut self, path: &Path, read_only: bool) -> Result<(), Errno> {
        let (_, ino) = self.there(path, true)?;
        self.inode(ino)?.read_only = read_only;
        Ok(())
    }

    pub(in crate::testing::mem_fs) fn sync_all(&mut self) {
        self.device.is(self.inodes.iter().map(|(ino, inode)| (*ino, inode.now.clone())));
    }
}

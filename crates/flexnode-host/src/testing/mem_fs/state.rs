//! The operations of the file system in memory.

mod arrange;
mod disk;
mod paths;

use super::fault::{Fault, Op};
use super::inode::{Body, Data, Inode};
use crate::testing::power::{Device, Moment, Part};
use crate::{DirEntry, FileKind, Stat};
use paths::Place;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ROOT_INO: u64 = 1;
const ROOT_DEV: u64 = 1;

type Labeler = dyn Fn(&Path) -> Option<Vec<u8>> + Send + Sync;

/// All of a [`super::MemFs`].
#[derive(Clone)]
pub(super) struct State {
    inodes: BTreeMap<u64, Inode>,
    next_ino: u64,
    now_ns: i128,
    pub(super) free: u64,
    pub(super) labeler: Option<Arc<Labeler>>,
    /// Files are labelled again when they get another name.
    pub(super) relabels: bool,
    pub(super) faults: Vec<Fault>,
    pub(super) crash_in: Option<usize>,
    pub(super) skip_sync_in: Option<usize>,
    pub(super) skip_site: Option<&'static str>,
    pub(super) log: Vec<(Op, PathBuf)>,
    /// What is on the device, and what may be.
    pub(super) device: Device,
    /// What a power cut would have found, after every change and sync since the recording began.
    pub(super) recorded: Option<Vec<Moment>>,
    /// The operation that runs.
    running: (Op, PathBuf),
}

impl State {
    pub(super) fn new() -> Self {
        let mut state = Self {
            inodes: BTreeMap::new(),
            next_ino: ROOT_INO,
            now_ns: 1_700_000_000_000_000_000,
            free: 100 << 30,
            labeler: None,
            relabels: false,
            faults: Vec::new(),
            crash_in: None,
            skip_sync_in: None,
            skip_site: None,
            log: Vec::new(),
            device: Device::default(),
            recorded: None,
            running: (Op::Stat, PathBuf::new()),
        };
        state.add(Body::dir(), 0o755);
        state.sync_all();
        state
    }

    pub(super) fn fork(&self) -> Self {
        self.with(self.inodes.clone(), self.device.clone())
    }

    /// The same settings with other content, without faults and logs.
    fn with(&self, inodes: BTreeMap<u64, Inode>, device: Device) -> Self {
        Self {
            inodes,
            next_ino: self.next_ino,
            now_ns: self.now_ns,
            free: self.free,
            labeler: self.labeler.clone(),
            relabels: self.relabels,
            faults: Vec::new(),
            crash_in: None,
            skip_sync_in: None,
            skip_site: None,
            log: Vec::new(),
            device,
            recorded: None,
            running: (Op::Stat, PathBuf::new()),
        }
    }

    pub(super) fn run<T>(
        &mut self,
        op: Op,
        path: &Path,
        f: impl FnOnce(&mut Self) -> Result<T, Errno>,
    ) -> Result<T, std::io::Error> {
        if self.crash_in == Some(0) {
            return Err(std::io::Error::other("the process was killed"));
        }
        if let Some(error) = self.faults.iter_mut().find_map(|fault| fault.strikes(op, path)) {
            return Err(error.into());
        }
        if !path.is_absolute() {
            return Err(Errno::INVAL.into());
        }
        if !op.changes() && !op.syncs() {
            return Ok(f(self)?);
        }
        self.running = (op, path.to_path_buf());
        let result = f(self)?;
        self.log.push((op, path.to_path_buf()));
        self.crash_in = self.crash_in.map(|left| left - 1);
        if let Some(recorded) = &mut self.recorded {
            recorded.push(Moment::new(self.running.clone(), self.device.clone()));
        }
        Ok(result)
    }

    /// What a power cut would find now, with nothing having happened yet.
    pub(super) fn moment(&self) -> Moment {
        Moment::new((Op::Stat, PathBuf::new()), self.device.clone())
    }

    fn add(&mut self, body: Body, mode: u32) -> u64 {
        let ino = self.next_ino;
        self.next_ino += 1;
        let mtime_ns = self.tick();
        let now = Arc::new(Data { body, mode, owner: (0, 0), xattrs: BTreeMap::new(), mtime_ns });
        self.inodes.insert(ino, Inode { now, mounted: None, read_only: false });
        ino
    }

    fn tick(&mut self) -> i128 {
        self.now_ns += 1;
        self.now_ns
    }

    fn inode(&mut self, ino: u64) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&ino).ok_or(Errno::NOENT)
    }

    fn entries(&self, dir: u64) -> Result<&BTreeMap<OsString, u64>, Errno> {
        match self.inodes.get(&dir).map(|inode| &inode.now.body) {
            Some(Body::Dir(entries)) => Ok(entries),
            Some(_) => Err(Errno::NOTDIR),
            None => Err(Errno::NOENT),
        }
    }

    /// Changes a directory's entries, and with them its time.
    fn change_entries(&mut self, dir: u64, f: impl FnOnce(&mut BTreeMap<OsString, u64>)) -> Result<(), Errno> {
        let now = self.tick();
        let data = self.inode(dir)?.change();
        let Body::Dir(entries) = &mut data.body else { return Err(Errno::NOTDIR) };
        f(Arc::make_mut(entries));
        data.mtime_ns = now;
        Ok(())
    }

    /// Sets or removes one name, which the next sync of its directory brings to the device.
    fn set_entry(&mut self, dir: u64, name: OsString, ino: Option<u64>) -> Result<(), Errno> {
        self.set_entries(vec![Part { dir, name, ino }])
    }

    /// Sets and removes names in one step, as a rename does.
    fn set_entries(&mut self, parts: Vec<Part>) -> Result<(), Errno> {
        for Part { dir, name, ino } in &parts {
            self.change_entries(*dir, |entries| match ino {
                Some(ino) => drop(entries.insert(name.clone(), *ino)),
                None => drop(entries.remove(name)),
            })?;
        }
        self.device.names(&self.running, parts);
        Ok(())
    }

    /// Changes mode, owner or attributes, which the next sync of the inode brings to the device.
    fn change_meta(&mut self, ino: u64, f: impl FnOnce(&mut Data)) -> Result<(), Errno> {
        let inode = self.inode(ino)?;
        f(inode.change());
        let data = inode.now.clone();
        self.device.meta(&self.running, ino, &data);
        Ok(())
    }

    fn stat_of(&self, place: &Place) -> Option<Stat> {
        let inode = self.inodes.get(&place.ino?)?;
        Some(Stat {
            kind: inode.now.body.kind(),
            mode: inode.now.mode,
            uid: inode.now.owner.0,
            gid: inode.now.owner.1,
            size: inode.now.body.size(),
            dev: place.dev,
            ino: place.ino?,
            mtime_ns: inode.now.mtime_ns,
            mount_root: inode.mounted.is_some(),
        })
    }

    fn stat_with(&self, path: &Path, follow: bool) -> Result<Option<Stat>, Errno> {
        match self.find(path, follow) {
            Ok(place) => Ok(self.stat_of(&place)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub(super) fn lstat(&mut self, path: &Path) -> Result<Option<Stat>, Errno> {
        self.stat_with(path, false)
    }

    pub(super) fn stat(&mut self, path: &Path) -> Result<Option<Stat>, Errno> {
        self.stat_with(path, true)
    }

    pub(super) fn content(&mut self, path: &Path) -> Result<Arc<Vec<u8>>, Errno> {
        let (_, ino) = self.there(path, true)?;
        match &self.inode(ino)?.now.body {
            Body::File(bytes) => Ok(bytes.clone()),
            Body::Dir(_) => Err(Errno::ISDIR),
            _ => Err(Errno::NXIO),
        }
    }

    pub(super) fn read_link(&mut self, path: &Path) -> Result<PathBuf, Errno> {
        let (_, ino) = self.there(path, false)?;
        match &self.inode(ino)?.now.body {
            Body::Link(target) => Ok(target.clone()),
            _ => Err(Errno::INVAL),
        }
    }

    pub(super) fn canonicalize(&mut self, path: &Path) -> Result<PathBuf, Errno> {
        Ok(self.there(path, true)?.0.path)
    }

    pub(super) fn read_dir(&mut self, path: &Path) -> Result<Vec<DirEntry>, Errno> {
        let (_, dir) = self.there(path, false)?;
        let entries = self.entries(dir)?.iter();
        let kind = |ino| self.inodes.get(ino).map_or(FileKind::Other, |inode| inode.now.body.kind());
        Ok(entries.map(|(name, ino)| DirEntry { name: name.clone(), kind: kind(ino) }).collect())
    }

    pub(super) fn create(&mut self, path: &Path, body: Body, mode: u32) -> Result<u64, Errno> {
        let place = self.find(path, false)?;
        if place.ino.is_some() {
            return Err(Errno::EXIST);
        }
        if place.read_only {
            return Err(Errno::ROFS);
        }
        let ino = self.add(body, mode & 0o7777);
        if let Some(label) = self.labeler.clone().and_then(|labeler| labeler(&place.path)) {
            self.inode(ino)?.change().xattrs.insert(crate::durable::SELINUX_LABEL.to_owned(), label);
        }
        let data = self.inode(ino)?.now.clone();
        self.device.created(&self.running, ino, &data);
        self.set_entry(place.dir, place.name, Some(ino))?;
        Ok(ino)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Errno> {
        let (old, ino) = self.writable_place(from, false)?;
        let new = self.find(to, false)?;
        let is_dir = self.entries(ino).is_ok();
        if new.read_only {
            return Err(Errno::ROFS);
        }
        if new.ino == Some(ino) {
            return Ok(());
        }
        if new.path.starts_with(&old.path) {
            return Err(Errno::INVAL);
        }
        if self.inode(ino)?.mounted.is_some() {
            return Err(Errno::BUSY);
        }
        if let Some(target) = new.ino {
            self.may_replace(target, is_dir)?;
        }
        if self.dev_of_dir(to)? != old.dev {
            return Err(Errno::XDEV);
        }
        let (taken, given) =
            (Part { dir: old.dir, name: old.name, ino: None }, Part { dir: new.dir, name: new.name, ino: Some(ino) });
        let named = new.path;
        self.set_entries(vec![taken, given])?;
        let key = crate::durable::SELINUX_LABEL;
        let label = self.labeler.clone().filter(|_| self.relabels).and_then(|labeler| labeler(&named));
        match label.filter(|label| self.inodes.get(&ino).is_some_and(|inode| inode.now.xattrs.get(key) != Some(label)))
        {
            Some(label) => self.change_meta(ino, |data| drop(data.xattrs.insert(key.to_owned(), label))),
            None => Ok(()),
        }
    }

    fn dev_of_dir(&self, path: &Path) -> Result<u64, Errno> {
        self.find(path.parent().ok_or(Errno::INVAL)?, true).map(|place| place.dev)
    }

    fn may_replace(&mut self, target: u64, by_dir: bool) -> Result<(), Errno> {
        if self.inode(target)?.mounted.is_some() {
            return Err(Errno::BUSY);
        }
        match (self.entries(target), by_dir) {
            (Ok(_), false) => Err(Errno::ISDIR),
            (Err(_), true) => Err(Errno::NOTDIR),
            (Ok(entries), true) if !entries.is_empty() => Err(Errno::NOTEMPTY),
            _ => Ok(()),
        }
    }

    pub(super) fn unlink(&mut self, path: &Path) -> Result<(), Errno> {
        let (place, ino) = self.writable_place(path, false)?;
        if self.entries(ino).is_ok() {
            return Err(Errno::ISDIR);
        }
        if self.inode(ino)?.mounted.is_some() {
            return Err(Errno::BUSY);
        }
        self.set_entry(place.dir, place.name, None)
    }

    pub(super) fn rmdir(&mut self, path: &Path) -> Result<(), Errno> {
        let (place, ino) = self.writable_place(path, false)?;
        if ino == ROOT_INO || self.inode(ino)?.mounted.is_some() {
            return Err(Errno::BUSY);
        }
        if !self.entries(ino)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.set_entry(place.dir, place.name, None)
    }

    pub(super) fn chmod(&mut self, path: &Path, mode: u32) -> Result<(), Errno> {
        let (_, ino) = self.writable_place(path, false)?;
        if matches!(self.inode(ino)?.now.body, Body::Link(_)) {
            return Err(Errno::OPNOTSUPP);
        }
        self.change_meta(ino, |data| data.mode = mode & 0o7777)
    }

    pub(super) fn chown(&mut self, path: &Path, uid: u32, gid: u32) -> Result<(), Errno> {
        let (_, ino) = self.writable_place(path, false)?;
        self.change_meta(ino, |data| {
            data.owner = (uid, gid);
            if matches!(data.body, Body::File(_)) {
                data.mode &= 0o1777;
            }
        })
    }

    pub(super) fn append(&mut self, ino: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let now = self.tick();
        let data = self.inode(ino)?.change();
        if let Body::File(content) = &mut data.body {
            let at = content.len();
            Arc::make_mut(content).extend_from_slice(bytes);
            data.mtime_ns = now;
            self.device.data(&self.running, ino, at, bytes);
        }
        Ok(bytes.len())
    }

    pub(super) fn sync_inode(&mut self, ino: u64) -> Result<(), Errno> {
        match self.skip_sync_in.take() {
            Some(0) => return Ok(()),
            left => self.skip_sync_in = left.map(|left| left - 1),
        }
        if self.skip_site.is_some_and(|site| site == crate::durable::site()) {
            return Ok(());
        }
        self.inode(ino)?;
        self.device.sync(ino);
        Ok(())
    }

    pub(super) fn sync_file(&mut self, path: &Path) -> Result<(), Errno> {
        let (_, ino) = self.there(path, false)?;
        match self.inode(ino)?.now.body {
            Body::File(_) => self.sync_inode(ino),
            Body::Dir(_) => Err(Errno::ISDIR),
            _ => Err(Errno::LOOP),
        }
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> Result<(), Errno> {
        let (_, ino) = self.there(path, true)?;
        self.entries(ino)?;
        self.sync_inode(ino)
    }

    pub(super) fn get_xattr(&mut self, path: &Path, name: &str) -> Result<Option<Vec<u8>>, Errno> {
        let (_, ino) = self.there(path, false)?;
        Ok(self.inode(ino)?.now.xattrs.get(name).cloned())
    }

    pub(super) fn set_xattr(&mut self, path: &Path, name: &str, value: &[u8]) -> Result<(), Errno> {
        let (_, ino) = self.writable_place(path, false)?;
        self.change_meta(ino, |data| drop(data.xattrs.insert(name.to_owned(), value.to_vec())))
    }

    pub(super) fn writable(&mut self, path: &Path) -> Result<bool, Errno> {
        Ok(!self.there(path, true)?.0.read_only)
    }
}

//! The operations of the file system in memory.

use super::fault::{Fault, Op};
use super::inode::{Body, Data, Inode};
use crate::{DirEntry, FileKind, Stat};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

const ROOT_INO: u64 = 1;
const ROOT_DEV: u64 = 1;
/// Links that are followed on one path (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// What a power cut leaves of that which was not synced. POSIX allows any mixture; these are its two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing: names and content are those of the last syncs.
    Lazy,
    /// All names, but content, modes and owners only as synced: new files that were not are empty.
    Eager,
}

type Labeler = dyn Fn(&Path) -> Option<Vec<u8>> + Send + Sync;

/// All of a [`super::MemFs`].
#[derive(Clone)]
pub(super) struct State {
    inodes: BTreeMap<u64, Inode>,
    next_ino: u64,
    now_ns: i128,
    pub(super) free: u64,
    pub(super) labeler: Option<Arc<Labeler>>,
    pub(super) faults: Vec<Fault>,
    pub(super) crash_in: Option<usize>,
    pub(super) skip_sync_in: Option<usize>,
    pub(super) log: Vec<(Op, PathBuf)>,
}

/// A resolved path.
struct Place {
    /// What is there.
    ino: Option<u64>,
    /// The directory that holds the name.
    dir: u64,
    name: OsString,
    /// Without links.
    path: PathBuf,
    dev: u64,
    read_only: bool,
}

impl State {
    pub(super) fn new() -> Self {
        let mut state = Self {
            inodes: BTreeMap::new(),
            next_ino: ROOT_INO,
            now_ns: 1_700_000_000_000_000_000,
            free: 100 << 30,
            labeler: None,
            faults: Vec::new(),
            crash_in: None,
            skip_sync_in: None,
            log: Vec::new(),
        };
        state.add(Body::Dir(BTreeMap::new()), 0o755);
        state.sync_all();
        state
    }

    pub(super) fn fork(&self) -> Self {
        Self { faults: Vec::new(), crash_in: None, skip_sync_in: None, log: Vec::new(), ..self.clone() }
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
        let result = f(self)?;
        if op.changes() || op.syncs() {
            self.log.push((op, path.to_path_buf()));
            self.crash_in = self.crash_in.map(|left| left - 1);
        }
        Ok(result)
    }

    fn add(&mut self, body: Body, mode: u32) -> u64 {
        let ino = self.next_ino;
        self.next_ino += 1;
        let mtime_ns = self.tick();
        let now = Data { body, mode, owner: (0, 0), xattrs: BTreeMap::new(), mtime_ns };
        self.inodes.insert(ino, Inode { now, synced: None, mounted: None, read_only: false });
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
        let inode = self.inode(dir)?;
        let Body::Dir(entries) = &mut inode.now.body else { return Err(Errno::NOTDIR) };
        f(entries);
        inode.now.mtime_ns = now;
        Ok(())
    }

    /// Resolves `path`; the last component is followed when it is a link and `follow` says so. What is missing on the
    /// way is an error, a missing last component is not.
    fn find(&self, path: &Path, follow: bool) -> Result<Place, Errno> {
        if path.as_os_str().len() > 4095 {
            return Err(Errno::NAMETOOLONG);
        }
        let mut todo: VecDeque<OsString> = components(path);
        let mut way: Vec<(OsString, u64)> = Vec::new();
        let mut links = 0;
        while let Some(name) = todo.pop_front() {
            if name == ".." {
                way.pop();
                continue;
            }
            if name.len() > 255 {
                return Err(Errno::NAMETOOLONG);
            }
            let dir = way.last().map_or(ROOT_INO, |(_, ino)| *ino);
            let last = todo.is_empty();
            let Some(&ino) = self.entries(dir)?.get(&name) else {
                return if last { Ok(self.place(&way, name, None)) } else { Err(Errno::NOENT) };
            };
            match &self.inodes.get(&ino).ok_or(Errno::NOENT)?.now.body {
                Body::Link(target) if !last || follow => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP);
                    }
                    if target.is_absolute() {
                        way.clear();
                    }
                    for component in components(target).into_iter().rev() {
                        todo.push_front(component);
                    }
                }
                _ if last => return Ok(self.place(&way, name, Some(ino))),
                _ => way.push((name, ino)),
            }
        }
        // `/`, or a path that ended in `..`.
        match way.pop() {
            Some((name, ino)) => Ok(self.place(&way, name, Some(ino))),
            None => Ok(self.place(&[], OsString::new(), Some(ROOT_INO))),
        }
    }

    fn place(&self, way: &[(OsString, u64)], name: OsString, ino: Option<u64>) -> Place {
        let path = Path::new("/").join(way.iter().map(|(name, _)| name).collect::<PathBuf>()).join(&name);
        let dir = way.last().map_or(ROOT_INO, |(_, ino)| *ino);
        let (mut dev, mut read_only) = (ROOT_DEV, false);
        for ino in std::iter::once(ROOT_INO).chain(way.iter().map(|(_, ino)| *ino)).chain(ino) {
            let Some(inode) = self.inodes.get(&ino) else { continue };
            dev = inode.mounted.unwrap_or(dev);
            read_only |= inode.read_only;
        }
        Place { ino, dir, name, path, dev, read_only }
    }

    /// A place that exists.
    fn there(&self, path: &Path, follow: bool) -> Result<(Place, u64), Errno> {
        let place = self.find(path, follow)?;
        let ino = place.ino.ok_or(Errno::NOENT)?;
        Ok((place, ino))
    }

    /// A place that exists and may be changed.
    fn writable_place(&self, path: &Path, follow: bool) -> Result<(Place, u64), Errno> {
        let (place, ino) = self.there(path, follow)?;
        if place.read_only { Err(Errno::ROFS) } else { Ok((place, ino)) }
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

    pub(super) fn content(&mut self, path: &Path) -> Result<Vec<u8>, Errno> {
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
            self.inode(ino)?.now.xattrs.insert(crate::durable::SELINUX_LABEL.to_owned(), label);
        }
        self.change_entries(place.dir, |entries| {
            entries.insert(place.name, ino);
        })?;
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
        self.change_entries(old.dir, |entries| {
            entries.remove(&old.name);
        })?;
        self.change_entries(new.dir, |entries| {
            entries.insert(new.name, ino);
        })
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
        self.change_entries(place.dir, |entries| {
            entries.remove(&place.name);
        })
    }

    pub(super) fn rmdir(&mut self, path: &Path) -> Result<(), Errno> {
        let (place, ino) = self.writable_place(path, false)?;
        if ino == ROOT_INO || self.inode(ino)?.mounted.is_some() {
            return Err(Errno::BUSY);
        }
        if !self.entries(ino)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.change_entries(place.dir, |entries| {
            entries.remove(&place.name);
        })
    }

    pub(super) fn chmod(&mut self, path: &Path, mode: u32) -> Result<(), Errno> {
        let (_, ino) = self.writable_place(path, false)?;
        let data = &mut self.inode(ino)?.now;
        if matches!(data.body, Body::Link(_)) {
            return Err(Errno::OPNOTSUPP);
        }
        data.mode = mode & 0o7777;
        Ok(())
    }

    pub(super) fn chown(&mut self, path: &Path, uid: u32, gid: u32) -> Result<(), Errno> {
        let (_, ino) = self.writable_place(path, false)?;
        let data = &mut self.inode(ino)?.now;
        data.owner = (uid, gid);
        if matches!(data.body, Body::File(_)) {
            data.mode &= 0o1777;
        }
        Ok(())
    }

    pub(super) fn append(&mut self, ino: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let now = self.tick();
        let data = &mut self.inode(ino)?.now;
        if let Body::File(content) = &mut data.body {
            content.extend_from_slice(bytes);
            data.mtime_ns = now;
        }
        Ok(bytes.len())
    }

    pub(super) fn sync_inode(&mut self, ino: u64) -> Result<(), Errno> {
        match self.skip_sync_in.take() {
            Some(0) => return Ok(()),
            left => self.skip_sync_in = left.map(|left| left - 1),
        }
        let inode = self.inode(ino)?;
        inode.synced = Some(inode.now.clone());
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
        self.inode(ino)?.now.xattrs.insert(name.to_owned(), value.to_vec());
        Ok(())
    }

    pub(super) fn writable(&mut self, path: &Path) -> Result<bool, Errno> {
        Ok(!self.there(path, true)?.0.read_only)
    }
}

/// Arranging, outside of what the code under test does.
impl State {
    pub(super) fn put_dir(&mut self, path: &Path, mode: u32) -> Result<(), Errno> {
        if let Some(dir) = path.parent()
            && self.stat(dir)?.is_none()
        {
            self.put_dir(dir, 0o755)?;
        }
        match self.find(path, true)?.ino {
            Some(ino) => {
                self.entries(ino)?;
                self.inode(ino)?.now.mode = mode;
            }
            None => drop(self.create(path, Body::Dir(BTreeMap::new()), mode)?),
        }
        self.sync_all();
        Ok(())
    }

    pub(super) fn put(&mut self, path: &Path, body: Body, mode: u32) -> Result<(), Errno> {
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

    pub(super) fn take(&mut self, path: &Path) -> Result<(), Errno> {
        let Ok((place, _)) = self.there(path, false) else { return Ok(()) };
        self.change_entries(place.dir, |entries| {
            entries.remove(&place.name);
        })?;
        self.sync_all();
        Ok(())
    }

    pub(super) fn mount(&mut self, path: &Path, device: Option<u64>) -> Result<(), Errno> {
        let (_, ino) = self.there(path, true)?;
        let outside = self.dev_of_dir(path)?;
        self.inode(ino)?.mounted = device.map(|device| if device == 0 { outside } else { device });
        Ok(())
    }

    pub(super) fn set_read_only(&mut self, path: &Path, read_only: bool) -> Result<(), Errno> {
        let (_, ino) = self.there(path, true)?;
        self.inode(ino)?.read_only = read_only;
        Ok(())
    }

    fn sync_all(&mut self) {
        for inode in self.inodes.values_mut() {
            inode.synced = Some(inode.now.clone());
        }
    }

    pub(super) fn after_power_cut(&self, cut: Cut) -> State {
        let mut after = self.fork();
        for inode in after.inodes.values_mut() {
            let never =
                || Data { body: inode.now.body.emptied(), mode: inode.now.body.unsynced_mode(), ..inode.now.clone() };
            let mut left = inode.synced.take().unwrap_or_else(never);
            if cut == Cut::Eager && inode.now.body.kind() == FileKind::Dir {
                left.body = inode.now.body.clone();
            }
            inode.now = left;
        }
        after.sync_all();
        after
    }
}

fn components(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsStr::new("..").to_owned()),
            _ => None,
        })
        .collect()
}

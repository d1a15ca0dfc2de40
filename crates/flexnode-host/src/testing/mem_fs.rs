//! A file system in memory.

mod fault;
pub(super) mod inode;
mod state;

pub use fault::{Fault, Op};

use super::power::{Cut, Doubts, History};
use super::{Tree, locked};
use crate::{DirEntry, FileWriter, Fs, FsError, Stat};
use inode::Body;
use rustix::io::Errno;
use state::State;
use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A file system in memory: modes, owners, links, extended attributes, devices, and what a power cut would leave.
///
/// It behaves as Linux does for root. Clones share their content; [`MemFs::fork`] makes an independent copy. It counts
/// changes and syncs, fails where a test says so ([`Fault`], [`MemFs::crash_after`]), and knows which content and which
/// names were synced ([`MemFs::after_power_cut`]).
#[derive(Clone)]
pub struct MemFs {
    state: Arc<Mutex<State>>,
}

/// A node of a tree that [`MemFs::fill`] copies.
#[derive(Clone, Debug)]
pub enum Given {
    /// A regular file.
    File(Arc<Vec<u8>>),
    /// A directory.
    Dir,
    /// A symbolic link.
    Link(PathBuf),
    /// A device, socket or pipe.
    Other,
}

impl Default for MemFs {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemFs")
    }
}

/// Arranging and looking; none of it is counted, and no fault stops it.
impl MemFs {
    /// An empty file system: `/`, mode 0755.
    pub fn new() -> Self {
        Self { state: Arc::new(Mutex::new(State::new())) }
    }

    /// An independent copy, without faults and with counters at zero.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self { state: Arc::new(Mutex::new(locked(&self.state).fork())) }
    }

    fn arrange<T>(&self, what: &str, path: &Path, f: impl FnOnce(&mut State) -> Result<T, Errno>) -> T {
        f(&mut locked(&self.state)).unwrap_or_else(|e| panic!("cannot {what} {} in MemFs: {e}", path.display()))
    }

    /// Puts a file there, with its directories (0755), replacing a file. It counts as synced.
    pub fn put(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>, mode: u32) -> &Self {
        let path = path.as_ref();
        self.arrange("put", path, |state| state.put(path, Body::file(bytes.as_ref()), mode));
        self
    }

    /// Puts a directory there, with those above it. It counts as synced.
    pub fn put_dir(&self, path: impl AsRef<Path>, mode: u32) -> &Self {
        let path = path.as_ref();
        self.arrange("put", path, |state| state.put_dir(path, mode));
        self
    }

    /// Puts a link there, with its directories. It counts as synced.
    pub fn put_link(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> &Self {
        let path = path.as_ref();
        self.arrange("put", path, |state| state.put(path, Body::Link(target.as_ref().to_path_buf()), 0o777));
        self
    }

    /// Puts a device, socket or pipe there.
    pub fn put_special(&self, path: impl AsRef<Path>, mode: u32) -> &Self {
        let path = path.as_ref();
        self.arrange("put", path, |state| state.put(path, Body::Other, mode));
        self
    }

    /// Puts one node of a tree that is copied from elsewhere; its directory is there and its name is free. After the last
    /// one comes [`MemFs::settle`]. A file's bytes are shared with the caller's.
    pub fn fill(&self, path: impl AsRef<Path>, given: Given, mode: u32, owner: (u32, u32)) -> &Self {
        let path = path.as_ref();
        let body = match given {
            Given::File(bytes) => Body::File(bytes),
            Given::Dir => Body::dir(),
            Given::Link(target) => Body::Link(target),
            Given::Other => Body::Other,
        };
        self.arrange("fill in", path, |state| {
            let is_link = matches!(body, Body::Link(_));
            state.create(path, body, mode)?;
            state.chown(path, owner.0, owner.1)?;
            // An owner that changes takes bits of the mode along.
            if is_link { Ok(()) } else { state.chmod(path, mode) }
        });
        self
    }

    /// Removes what is there, with all below it; nothing when it is absent.
    pub fn take(&self, path: impl AsRef<Path>) -> &Self {
        let path = path.as_ref();
        self.arrange("take", path, |state| state.take(path));
        self
    }

    /// Makes `path` the root of a mount of another device (the device of its parent for a bind mount: `device == 0`).
    pub fn mount(&self, path: impl AsRef<Path>, device: u64) -> &Self {
        let path = path.as_ref();
        self.arrange("mount", path, |state| state.mount(path, Some(device)));
        self
    }

    /// Takes the mount away again; what was below stays visible.
    pub fn unmount(&self, path: impl AsRef<Path>) -> &Self {
        let path = path.as_ref();
        self.arrange("unmount", path, |state| state.mount(path, None));
        self
    }

    /// Makes the tree at `path` read-only, or writable again.
    pub fn set_read_only(&self, path: impl AsRef<Path>, read_only: bool) -> &Self {
        let path = path.as_ref();
        self.arrange("make read-only", path, |state| state.set_read_only(path, read_only));
        self
    }

    /// Sets what [`Fs::free_bytes`] says.
    pub fn set_free_bytes(&self, bytes: u64) -> &Self {
        locked(&self.state).free = bytes;
        self
    }

    /// Labels new files as an SELinux policy does: from the path they are created at.
    pub fn set_labeler(&self, labeler: impl Fn(&Path) -> Option<Vec<u8>> + Send + Sync + 'static) -> &Self {
        locked(&self.state).labeler = Some(Arc::new(labeler));
        self
    }

    /// Something on the host labels files again when they get another name, as restorecond does.
    pub fn relabel_renamed(&self) -> &Self {
        locked(&self.state).relabels = true;
        self
    }

    /// The text of a file; panics when there is none.
    pub fn text(&self, path: impl AsRef<Path>) -> String {
        let path = path.as_ref();
        let bytes = self.arrange("read", path, |state| state.content(path));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether something is at `path`, links not followed.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        self.arrange("stat", path, |state| state.lstat(path)).is_some()
    }

    /// Everything, without inode numbers and times.
    pub fn tree(&self) -> Tree {
        self.whole_tree(false)
    }

    /// Everything, with inode numbers and times: equal only when nothing was touched.
    pub fn tree_with_stamps(&self) -> Tree {
        self.whole_tree(true)
    }

    fn whole_tree(&self, stamps: bool) -> Tree {
        Tree::read(&self.fork(), Path::new("/"), stamps)
            .unwrap_or_else(|e| panic!("a tree in memory can be read: {e}: {}", e.source))
    }

    /// Lets operations fail.
    pub fn fault(&self, fault: Fault) -> &Self {
        locked(&self.state).faults.push(fault);
        self
    }

    /// After `changes` more changing operations (syncs count) every operation fails, as for a process that was killed.
    pub fn crash_after(&self, changes: usize) -> &Self {
        locked(&self.state).crash_in = Some(changes);
        self
    }

    /// Whether the crash of [`MemFs::crash_after`] was reached.
    pub fn crashed(&self) -> bool {
        locked(&self.state).crash_in == Some(0)
    }

    /// Ends crash and faults: the next process runs.
    pub fn revive(&self) -> &Self {
        let mut state = locked(&self.state);
        state.crash_in = None;
        state.faults.clear();
        drop(state);
        self
    }

    /// The `nth` sync from now on (the first is 0) returns without syncing: a test of the power cut has to notice.
    pub fn leave_out_sync(&self, nth: usize) -> &Self {
        locked(&self.state).skip_sync_in = Some(nth);
        self
    }

    /// The syncs of [`crate::durable`] that have this name (one of [`crate::durable::sites`]) return without syncing: a test
    /// of the power cut has to notice.
    pub fn leave_out_site(&self, site: &'static str) -> &Self {
        locked(&self.state).skip_site = Some(site);
        self
    }

    /// What is on the device after a power cut now.
    #[must_use]
    pub fn after_power_cut(&self, cut: Cut) -> MemFs {
        let state = locked(&self.state);
        let after = state.after(&state.moment(), &mut Doubts::of_cut(cut));
        drop(state);
        Self { state: Arc::new(Mutex::new(after)) }
    }

    /// Everything that was changed so far reaches the device: time passed.
    pub fn settle(&self) -> &Self {
        locked(&self.state).sync_all();
        self
    }

    /// A number for everything that can be seen: two file systems with the same number are the same, times and inode numbers
    /// apart.
    pub fn fingerprint(&self) -> u64 {
        locked(&self.state).fingerprint()
    }

    /// Keeps, from now on, what a power cut would find after each change and sync.
    pub fn record(&self) -> &Self {
        let mut state = locked(&self.state);
        state.recorded = Some(vec![state.moment()]);
        drop(state);
        self
    }

    /// What was recorded since [`MemFs::record`]; the recording ends.
    pub fn recorded(&self) -> History {
        let moments = locked(&self.state).recorded.take().unwrap_or_default();
        History::new(self.fork(), moments)
    }

    /// What is there when the power went at `moment` of a recording of this file system.
    pub(super) fn after_moment(&self, moment: &super::power::Moment, doubts: &mut Doubts) -> MemFs {
        let after = locked(&self.state).after(moment, doubts);
        Self { state: Arc::new(Mutex::new(after)) }
    }

    /// Successful changing operations so far, syncs not counted.
    pub fn changes(&self) -> usize {
        locked(&self.state).log.iter().filter(|(op, _)| op.changes()).count()
    }

    /// Successful syncs so far.
    pub fn syncs(&self) -> usize {
        locked(&self.state).log.iter().filter(|(op, _)| op.syncs()).count()
    }

    /// Every successful change and sync so far, in order.
    pub fn log(&self) -> Vec<(Op, PathBuf)> {
        locked(&self.state).log.clone()
    }

    /// Empties the log and with it the counters.
    pub fn clear_log(&self) -> &Self {
        locked(&self.state).log.clear();
        self
    }

    /// Runs one operation: crash and faults first, then `f`, then the log.
    fn run<T>(&self, op: Op, path: &Path, f: impl FnOnce(&mut State) -> Result<T, Errno>) -> Result<T, FsError> {
        let mut state = locked(&self.state);
        state.run(op, path, f).map_err(|e| FsError::new(op.verb(), path, e))
    }
}

impl Fs for MemFs {
    fn lstat(&self, path: &Path) -> Result<Option<Stat>, FsError> {
        self.run(Op::Lstat, path, |state| state.lstat(path))
    }
    fn stat(&self, path: &Path) -> Result<Option<Stat>, FsError> {
        self.run(Op::Stat, path, |state| state.stat(path))
    }
    fn open(&self, path: &Path) -> Result<Box<dyn Read + Send>, FsError> {
        let bytes = self.run(Op::Open, path, |state| state.content(path))?;
        Ok(Box::new(io::Cursor::new(Shared(bytes))))
    }
    fn read_link(&self, path: &Path) -> Result<PathBuf, FsError> {
        self.run(Op::ReadLink, path, |state| state.read_link(path))
    }
    fn canonicalize(&self, path: &Path) -> Result<PathBuf, FsError> {
        self.run(Op::Canonicalize, path, |state| state.canonicalize(path))
    }
    fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>, FsError> {
        self.run(Op::ReadDir, path, |state| state.read_dir(path))
    }
    fn create(&self, path: &Path, mode: u32) -> Result<Box<dyn FileWriter>, FsError> {
        let ino = self.run(Op::Create, path, |state| state.create(path, Body::file(&[]), mode))?;
        Ok(Box::new(Writer { fs: self.clone(), path: path.to_path_buf(), ino }))
    }
    fn mkdir(&self, path: &Path, mode: u32) -> Result<(), FsError> {
        self.run(Op::Mkdir, path, |state| state.create(path, Body::dir(), mode).map(drop))
    }
    fn symlink(&self, target: &Path, path: &Path) -> Result<(), FsError> {
        self.run(Op::Symlink, path, |state| state.create(path, Body::Link(target.to_path_buf()), 0o777).map(drop))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        self.run(Op::Rename, to, |state| state.rename(from, to))
    }
    fn unlink(&self, path: &Path) -> Result<(), FsError> {
        self.run(Op::Unlink, path, |state| state.unlink(path))
    }
    fn rmdir(&self, path: &Path) -> Result<(), FsError> {
        self.run(Op::Rmdir, path, |state| state.rmdir(path))
    }
    fn chmod(&self, path: &Path, mode: u32) -> Result<(), FsError> {
        self.run(Op::Chmod, path, |state| state.chmod(path, mode))
    }
    fn chown(&self, path: &Path, uid: u32, gid: u32) -> Result<(), FsError> {
        self.run(Op::Chown, path, |state| state.chown(path, uid, gid))
    }
    fn sync_file(&self, path: &Path) -> Result<(), FsError> {
        self.run(Op::SyncFile, path, |state| state.sync_file(path))
    }
    fn sync_dir(&self, path: &Path) -> Result<(), FsError> {
        self.run(Op::SyncDir, path, |state| state.sync_dir(path))
    }
    fn get_xattr(&self, path: &Path, name: &str) -> Result<Option<Vec<u8>>, FsError> {
        self.run(Op::GetXattr, path, |state| state.get_xattr(path, name))
    }
    fn set_xattr(&self, path: &Path, name: &str, value: &[u8]) -> Result<(), FsError> {
        self.run(Op::SetXattr, path, |state| state.set_xattr(path, name, value))
    }
    fn writable(&self, path: &Path) -> Result<bool, FsError> {
        self.run(Op::Writable, path, |state| state.writable(path))
    }
    fn free_bytes(&self, path: &Path) -> Result<u64, FsError> {
        self.run(Op::FreeBytes, path, |state| state.stat(path)?.map(|_| state.free).ok_or(Errno::NOENT))
    }
}

/// A file's bytes, without a copy.
struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A file of [`MemFs`] that is being written. It follows its inode through a rename.
struct Writer {
    fs: MemFs,
    path: PathBuf,
    ino: u64,
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let ino = self.ino;
        self.fs.run(Op::Write, &self.path, |state| state.append(ino, bytes)).map_err(|e| e.source)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FileWriter for Writer {
    fn sync(&mut self) -> io::Result<()> {
        let ino = self.ino;
        self.fs.run(Op::SyncFile, &self.path, |state| state.sync_inode(ino)).map_err(|e| e.source)
    }
}

#[cfg(test)]
mod tests;

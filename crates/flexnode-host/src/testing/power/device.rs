//! What is on the device for certain, and what is in doubt.

use super::{Doubt, Doubts};
use crate::testing::Op;
use crate::testing::mem_fs::inode::{Body, Data};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that reach the device together.
const BLOCK: usize = 4096;
/// What a block held that was never written by this file.
const STALE: u8 = 0xa5;

/// A name in a directory: the inode that it leads to, or none.
#[derive(Clone, Debug)]
pub(in crate::testing) struct Part {
    pub(in crate::testing) dir: u64,
    pub(in crate::testing) name: OsString,
    pub(in crate::testing) ino: Option<u64>,
}

/// Something that was not synced.
#[derive(Clone, Debug)]
struct Pending {
    by: (Op, PathBuf),
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// Names that change together.
    Names(Vec<Part>),
    /// Mode, owner, attributes and times of an inode.
    Meta(u64, Arc<Data>),
    /// Bytes of a file from this position on.
    Bytes { ino: u64, at: usize, bytes: Vec<u8> },
}

/// The disk.
#[derive(Clone, Debug, Default)]
pub(in crate::testing) struct Device {
    /// Every inode as it is on the device, or would be when only its existence got there.
    synced: BTreeMap<u64, Arc<Data>>,
    /// In the order in which it happened.
    pending: Vec<Arc<Pending>>,
}

impl Device {
    /// A disk with nothing in doubt.
    pub(in crate::testing) fn of(synced: BTreeMap<u64, Arc<Data>>) -> Self {
        Self { synced, pending: Vec::new() }
    }

    /// Everything is on the device.
    pub(in crate::testing) fn is(&mut self, inodes: impl Iterator<Item = (u64, Arc<Data>)>) {
        self.pending.clear();
        self.synced = inodes.collect();
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    fn push(&mut self, by: &(Op, PathBuf), what: What) {
        self.pending.push(Arc::new(Pending { by: by.clone(), what }));
    }

    pub(in crate::testing) fn created(&mut self, by: &(Op, PathBuf), ino: u64, data: &Arc<Data>) {
        // Rule 7: there is no second call that completes these.
        if matches!(data.body, Body::Link(_) | Body::Other) {
            self.synced.insert(ino, data.clone());
            return;
        }
        let bare = Data {
            body: data.body.emptied(),
            mode: 0,
            owner: (0, 0),
            xattrs: BTreeMap::new(),
            mtime_ns: data.mtime_ns,
        };
        self.synced.insert(ino, Arc::new(bare));
        self.meta(by, ino, data);
    }

    pub(in crate::testing) fn names(&mut self, by: &(Op, PathBuf), parts: Vec<Part>) {
        self.push(by, What::Names(parts));
    }

    pub(in crate::testing) fn meta(&mut self, by: &(Op, PathBuf), ino: u64, data: &Arc<Data>) {
        self.push(by, What::Meta(ino, data.clone()));
    }

    pub(in crate::testing) fn data(&mut self, by: &(Op, PathBuf), ino: u64, at: usize, bytes: &[u8]) {
        self.push(by, What::Bytes { ino, at, bytes: bytes.to_vec() });
    }

    /// Rules 1 and 2: what belongs to this inode is on the device from now on.
    pub(in crate::testing) fn sync(&mut self, ino: u64) {
        let mut left = Vec::with_capacity(self.pending.len());
        for pending in std::mem::take(&mut self.pending) {
            match &pending.what {
                What::Meta(of, data) if *of == ino => set_meta(&mut self.synced, ino, data),
                What::Bytes { ino: of, at, bytes } if *of == ino => append(&mut self.synced, ino, *at, bytes),
                What::Names(parts) if parts.iter().any(|part| part.dir == ino) => {
                    let (here, elsewhere): (Vec<Part>, Vec<Part>) =
                        parts.iter().cloned().partition(|part| part.dir == ino);
                    for part in &here {
                        set_name(&mut self.synced, part);
                    }
                    if !elsewhere.is_empty() {
                        left.push(Arc::new(Pending { by: pending.by.clone(), what: What::Names(elsewhere) }));
                    }
                }
                _ => left.push(pending),
            }
        }
        self.pending = left;
    }

    /// What is there after a power cut.
    pub(in crate::testing) fn left(&self, doubts: &mut Doubts) -> BTreeMap<u64, Arc<Data>> {
        let mut left = self.synced.clone();
        let mut files: Vec<(u64, Vec<&Pending>)> = Vec::new();
        for pending in &self.pending {
            match &pending.what {
                What::Names(parts) => resolve_names(&mut left, parts, pending, doubts),
                What::Meta(ino, data) => {
                    if doubts.resolve(Doubt::Inode, &pending.by) == 0 {
                        set_meta(&mut left, *ino, data);
                    }
                }
                What::Bytes { ino, .. } => match files.iter_mut().find(|(of, _)| of == ino) {
                    Some((_, writes)) => writes.push(pending),
                    None => files.push((*ino, vec![pending])),
                },
            }
        }
        for (ino, writes) in files {
            resolve_content(&mut left, ino, &writes, doubts);
        }
        left
    }
}

/// Rules 3 and 4.
fn resolve_names(left: &mut BTreeMap<u64, Arc<Data>>, parts: &[Part], pending: &Pending, doubts: &mut Doubts) {
    let two_dirs = parts.iter().any(|part| part.dir != parts[0].dir);
    let answer = doubts.resolve(if two_dirs { Doubt::Names } else { Doubt::Name }, &pending.by);
    for part in parts {
        // Both names: what is given is there, what is taken is there still.
        if answer == 0 || (two_dirs && answer == 1 && part.ino.is_some()) {
            set_name(left, part);
        }
    }
}

/// Rule 5.
fn resolve_content(left: &mut BTreeMap<u64, Arc<Data>>, ino: u64, writes: &[&Pending], doubts: &mut Doubts) {
    let Some(Body::File(before)) = left.get(&ino).map(|data| data.body.clone()) else { return };
    let mut whole = before.to_vec();
    let mut lengths = vec![before.len()];
    for write in writes {
        let What::Bytes { at, bytes, .. } = &write.what else { continue };
        whole.resize((*at).max(whole.len()), 0);
        whole.truncate(*at);
        whole.extend_from_slice(bytes);
        lengths.extend([usize::midpoint(lengths[lengths.len() - 1], whole.len()), whole.len()]);
    }
    lengths.dedup();
    lengths.reverse();
    let by = &writes[writes.len() - 1].by;
    let answers = u32::try_from(lengths.len()).unwrap_or(u32::MAX);
    // Nothing was written: there is nothing to be in doubt about.
    if answers < 2 {
        return;
    }
    let length = lengths[doubts.resolve(Doubt::Length(answers), by) as usize];
    whole.truncate(length);
    let mut at = before.len();
    while at < length {
        let end = ((at / BLOCK + 1) * BLOCK).min(length);
        match doubts.resolve(Doubt::Block, by) {
            0 => {}
            1 => whole[at..end].fill(0),
            _ => whole[at..end].fill(STALE),
        }
        at = end;
    }
    if let Some(data) = left.get_mut(&ino) {
        Arc::make_mut(data).body = Body::File(Arc::new(whole));
    }
}

fn set_name(inodes: &mut BTreeMap<u64, Arc<Data>>, part: &Part) {
    let Some(data) = inodes.get_mut(&part.dir) else { return };
    if let Body::Dir(entries) = &mut Arc::make_mut(data).body {
        let entries = Arc::make_mut(entries);
        match part.ino {
            Some(ino) => drop(entries.insert(part.name.clone(), ino)),
            None => drop(entries.remove(&part.name)),
        }
    }
}

fn set_meta(inodes: &mut BTreeMap<u64, Arc<Data>>, ino: u64, new: &Data) {
    let Some(data) = inodes.get_mut(&ino) else { return };
    let data = Arc::make_mut(data);
    data.mode = new.mode;
    data.owner = new.owner;
    data.xattrs.clone_from(&new.xattrs);
    data.mtime_ns = new.mtime_ns;
}

fn append(inodes: &mut BTreeMap<u64, Arc<Data>>, ino: u64, at: usize, bytes: &[u8]) {
    let Some(data) = inodes.get_mut(&ino) else { return };
    if let Body::File(content) = &mut Arc::make_mut(data).body {
        let content = Arc::make_mut(content);
        content.resize(at, 0);
        content.extend_from_slice(bytes);
    }
}

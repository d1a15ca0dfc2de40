//! What a power cut leaves, and telling one disk from another.

use super::{ROOT_INO, State};
use crate::testing::mem_fs::inode::{Body, Data, Inode};
use crate::testing::power::{Device, Doubts, Moment};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

impl State {
    pub(in crate::testing::mem_fs) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let mut todo = vec![ROOT_INO];
        while let Some(ino) = todo.pop() {
            let Some(inode) = self.inodes.get(&ino) else { continue };
            let data = &inode.now;
            (data.mode, data.owner, &data.xattrs, inode.mounted, inode.read_only).hash(&mut hasher);
            match &data.body {
                Body::File(bytes) => bytes.hash(&mut hasher),
                Body::Link(target) => target.hash(&mut hasher),
                Body::Other => 0_u8.hash(&mut hasher),
                Body::Dir(entries) => {
                    entries.len().hash(&mut hasher);
                    entries.keys().for_each(|name| name.hash(&mut hasher));
                    todo.extend(entries.values());
                }
            }
        }
        hasher.finish()
    }

    /// What is there when the power went at `moment`, and the doubts were resolved so. What was mounted and read-only then
    /// is so still.
    pub(in crate::testing::mem_fs) fn after(&self, moment: &Moment, doubts: &mut Doubts) -> State {
        let left = moment.device().left(doubts);
        let flags = |ino| self.inodes.get(&ino).map_or((None, false), |inode| (inode.mounted, inode.read_only));
        let inode = |(ino, now): (u64, Arc<Data>)| {
            let (mounted, read_only) = flags(ino);
            (ino, Inode { now, mounted, read_only })
        };
        let mut after = self.with(left.clone().into_iter().map(inode).collect(), Device::default());
        after.next_ino = left.last_key_value().map_or(ROOT_INO, |(ino, _)| *ino).max(after.next_ino - 1) + 1;
        after.device = Device::of(left);
        after
    }
}

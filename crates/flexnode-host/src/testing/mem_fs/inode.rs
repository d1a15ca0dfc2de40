//! What the file system in memory consists of.

use crate::FileKind;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// An inode's content.
#[derive(Clone, Debug)]
pub(super) enum Body {
    File(Vec<u8>),
    Dir(BTreeMap<OsString, u64>),
    Link(PathBuf),
    Other,
}

impl Body {
    pub(super) fn kind(&self) -> FileKind {
        match self {
            Body::File(_) => FileKind::File,
            Body::Dir(_) => FileKind::Dir,
            Body::Link(_) => FileKind::Link,
            Body::Other => FileKind::Other,
        }
    }

    pub(super) fn size(&self) -> u64 {
        let size = match self {
            Body::File(bytes) => bytes.len(),
            Body::Dir(_) => 4096,
            Body::Link(target) => target.as_os_str().len(),
            Body::Other => 0,
        };
        size as u64
    }

    /// The same kind of thing with nothing in it: what may be left of one that was never synced.
    pub(super) fn emptied(&self) -> Body {
        match self {
            Body::File(_) => Body::File(Vec::new()),
            Body::Dir(_) => Body::Dir(BTreeMap::new()),
            // A link's text is written with its inode; there is no call that syncs it.
            other => other.clone(),
        }
    }

    /// The mode that may be left of one that was never synced: it is set after the creation.
    pub(super) fn unsynced_mode(&self) -> u32 {
        if matches!(self, Body::Link(_)) { 0o777 } else { 0 }
    }
}

/// What of an inode a sync brings to the device.
#[derive(Clone, Debug)]
pub(super) struct Data {
    pub(super) body: Body,
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    pub(super) xattrs: BTreeMap<String, Vec<u8>>,
    pub(super) mtime_ns: i128,
}

/// An inode: as the running system sees it, and as it is on the device.
#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) now: Data,
    pub(super) synced: Option<Data>,
    /// The device that is mounted here.
    pub(super) mounted: Option<u64>,
    pub(super) read_only: bool,
}

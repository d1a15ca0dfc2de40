//! What the file system in memory consists of.

use crate::FileKind;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// An inode's content. It is shared until it is changed: copies of whole file systems are made by the thousand.
#[derive(Clone, Debug)]
pub(in crate::testing) enum Body {
    File(Arc<Vec<u8>>),
    Dir(Arc<BTreeMap<OsString, u64>>),
    Link(PathBuf),
    Other,
}

impl Body {
    pub(in crate::testing) fn file(bytes: &[u8]) -> Body {
        Body::File(Arc::new(bytes.to_vec()))
    }

    pub(in crate::testing) fn dir() -> Body {
        Body::Dir(Arc::default())
    }

    pub(in crate::testing) fn kind(&self) -> FileKind {
        match self {
            Body::File(_) => FileKind::File,
            Body::Dir(_) => FileKind::Dir,
            Body::Link(_) => FileKind::Link,
            Body::Other => FileKind::Other,
        }
    }

    pub(in crate::testing) fn size(&self) -> u64 {
        let size = match self {
            Body::File(bytes) => bytes.len(),
            Body::Dir(_) => 4096,
            Body::Link(target) => target.as_os_str().len(),
            Body::Other => 0,
        };
        size as u64
    }

    /// The same kind of thing with nothing in it: what may be left of one that was never synced.
    pub(in crate::testing) fn emptied(&self) -> Body {
        match self {
            Body::File(_) => Body::File(Arc::default()),
            Body::Dir(_) => Body::dir(),
            // A link's text is written with its inode; there is no call that syncs it.
            other => other.clone(),
        }
    }
}

/// What of an inode a sync brings to the device.
#[derive(Clone, Debug)]
pub(in crate::testing) struct Data {
    pub(in crate::testing) body: Body,
    pub(in crate::testing) mode: u32,
    pub(in crate::testing) owner: (u32, u32),
    pub(in crate::testing) xattrs: BTreeMap<String, Vec<u8>>,
    pub(in crate::testing) mtime_ns: i128,
}

/// An inode as the running system sees it.
#[derive(Clone, Debug)]
pub(in crate::testing) struct Inode {
    pub(in crate::testing) now: Arc<Data>,
    /// The device that is mounted here.
    pub(in crate::testing) mounted: Option<u64>,
    pub(in crate::testing) read_only: bool,
}

impl Inode {
    /// What it is made of, to be changed.
    pub(in crate::testing) fn change(&mut self) -> &mut Data {
        Arc::make_mut(&mut self.now)
    }
}

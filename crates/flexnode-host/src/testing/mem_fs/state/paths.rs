//! From a path to what is there.

use super::{ROOT_DEV, ROOT_INO, State};
use crate::testing::mem_fs::inode::Body;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// Links that are followed on one path (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// A resolved path.
pub(super) struct Place {
    /// What is there.
    pub(super) ino: Option<u64>,
    /// The directory that holds the name.
    pub(super) dir: u64,
    pub(super) name: OsString,
    /// Without links.
    pub(super) path: PathBuf,
    pub(super) dev: u64,
    pub(super) read_only: bool,
}

impl State {
    /// Resolves `path`; the last component is followed when it is a link and `follow` says so. What is missing on the
    /// way is an error, a missing last component is not.
    pub(super) fn find(&self, path: &Path, follow: bool) -> Result<Place, Errno> {
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
    pub(super) fn there(&self, path: &Path, follow: bool) -> Result<(Place, u64), Errno> {
        let place = self.find(path, follow)?;
        let ino = place.ino.ok_or(Errno::NOENT)?;
        Ok((place, ino))
    }

    /// A place that exists and may be changed.
    pub(super) fn writable_place(&self, path: &Path, follow: bool) -> Result<(Place, u64), Errno> {
        let (place, ino) = self.there(path, follow)?;
        if place.read_only { Err(Errno::ROFS) } else { Ok((place, ino)) }
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

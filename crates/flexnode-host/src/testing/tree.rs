//! A whole tree as data, to compare what was with what is.

use crate::{FileKind, Fs, FsError};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

/// One path of a [`Tree`].
#[derive(Clone, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// A file's bytes, or a link's text.
    pub content: Vec<u8>,
    /// Its SELinux label.
    pub label: Option<Vec<u8>>,
    /// Inode and modification time in nanoseconds; `None` where only the content matters.
    pub stamp: Option<(u64, i128)>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (uid, gid) = self.owner;
        write!(f, "{} {:04o} {uid}:{gid}", self.kind, self.mode)?;
        match self.kind {
            FileKind::File => {
                let shown = String::from_utf8_lossy(&self.content[..self.content.len().min(200)]).into_owned();
                write!(f, " {} bytes {shown:?}", self.content.len())?;
            }
            FileKind::Link => write!(f, " -> {}", String::from_utf8_lossy(&self.content))?,
            _ => {}
        }
        if let Some(label) = &self.label {
            write!(f, " label {}", String::from_utf8_lossy(label))?;
        }
        match self.stamp {
            Some((ino, mtime)) => write!(f, " ino {ino} mtime {mtime}"),
            None => Ok(()),
        }
    }
}

/// Every path below a directory, with all that two runs are compared by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(pub BTreeMap<PathBuf, Node>);

impl Tree {
    /// Reads the tree at `path` (nothing when it is absent). Links are not followed. With `stamps`, inode numbers and
    /// modification times are kept: then two trees are equal only when nothing was touched.
    pub fn read(fs: &dyn Fs, path: &Path, stamps: bool) -> Result<Self, FsError> {
        let mut nodes = BTreeMap::new();
        let mut todo = vec![path.to_path_buf()];
        while let Some(path) = todo.pop() {
            let Some(stat) = fs.lstat(&path)? else { continue };
            let mut content = Vec::new();
            match stat.kind {
                FileKind::File => {
                    let mut file = fs.open(&path)?;
                    file.read_to_end(&mut content).map_err(|e| FsError::new("read", &path, e))?;
                }
                FileKind::Link => content = fs.read_link(&path)?.into_os_string().into_encoded_bytes(),
                FileKind::Dir => todo.extend(fs.read_dir(&path)?.into_iter().map(|entry| path.join(entry.name))),
                FileKind::Other => {}
            }
            let node = Node {
                kind: stat.kind,
                mode: stat.mode,
                owner: (stat.uid, stat.gid),
                content,
                label: fs.get_xattr(&path, crate::durable::SELINUX_LABEL)?,
                stamp: stamps.then_some((stat.ino, stat.mtime_ns)),
            };
            nodes.insert(path, node);
        }
        Ok(Self(nodes))
    }

    /// The paths that differ, one line each: `+` only in `other`, `-` only here, `~` different.
    pub fn difference(&self, other: &Tree) -> Vec<String> {
        let mut lines = Vec::new();
        for (path, node) in &self.0 {
            match other.0.get(path) {
                None => lines.push(format!("- {} {node:?}", path.display())),
                Some(now) if now != node => lines.push(format!("~ {} {node:?} => {now:?}", path.display())),
                Some(_) => {}
            }
        }
        let new = other.0.iter().filter(|(path, _)| !self.0.contains_key(*path));
        lines.extend(new.map(|(path, node)| format!("+ {} {node:?}", path.display())));
        lines
    }

    /// Whether a path is in it.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.0.contains_key(path.as_ref())
    }
}

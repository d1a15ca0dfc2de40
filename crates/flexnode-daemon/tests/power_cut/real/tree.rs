//! A disk that is mounted on the side, brought into memory for the host of fakes.

use flexnode_host::testing::{Given, MemFs};
use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is read whole: all that the agent or a person writes.
const WHOLE: [&str; 7] =
    ["/etc", "/opt", "/root", "/home", "/usr/local", "/usr/lib/systemd/system", "/usr/lib/systemd/network"];
/// Of [`WHOLE`], in /var/lib.
const STATES: [&str; 4] = ["/var/lib/aks-flex-node", "/var/lib/kubelet", "/var/lib/other", "/var/lib/cni"];
/// Programs that only have to be there; of containerd's layers nobody looks at the content either, but at its databases.
const NAMES: [&str; 3] = ["/usr/bin", "/usr/sbin", "/var/lib/containerd"];

/// Reads trees; what was read before and is the same is not kept twice.
#[derive(Debug, Default)]
pub struct Reader {
    /// The large files by their path: states of one disk mostly have the same.
    known: HashMap<PathBuf, Arc<Vec<u8>>>,
}

/// Smaller ones are not worth a comparison.
const LARGE: u64 = 64 << 10;

impl Reader {
    /// Reads the tree whose root is `root` on this machine.
    pub fn read(&mut self, root: &Path) -> io::Result<MemFs> {
        let fs = MemFs::new();
        for name in names(root)? {
            let (from, to) = (root.join(&name), Path::new("/").join(&name));
            let meta = from.symlink_metadata()?;
            let given = if meta.is_symlink() { Given::Link(fs::read_link(&from)?) } else { Given::Dir };
            fs.fill(&to, given, meta.permissions().mode() & 0o7777, (meta.uid(), meta.gid()));
        }
        for (paths, whole) in [(&WHOLE[..], true), (&STATES[..], true), (&NAMES[..], false)] {
            for path in paths.iter().map(Path::new) {
                let from = below(root, path);
                if from.symlink_metadata().is_ok() {
                    parents(&fs, root, path)?;
                    self.copy(&fs, root, path, whole)?;
                }
            }
        }
        fs.settle();
        Ok(fs)
    }

    /// Reads a directory of this machine to a place of a host.
    pub fn read_to(&mut self, fs: &MemFs, from: &Path, to: &Path) -> io::Result<()> {
        for name in names(from)? {
            let (from, to) = (from.join(&name), to.join(&name));
            let meta = from.metadata()?;
            let given = if meta.is_dir() { Given::Dir } else { self.content(&from, &to, &meta)? };
            fs.fill(&to, given, meta.permissions().mode() & 0o7777, (0, 0));
            if meta.is_dir() {
                self.read_to(fs, &from, &to)?;
            }
        }
        Ok(())
    }

    fn copy(&mut self, fs: &MemFs, root: &Path, path: &Path, whole: bool) -> io::Result<()> {
        let from = below(root, path);
        let meta = from.symlink_metadata()?;
        let whole = whole || path.extension().is_some_and(|kind| kind == "db");
        let given = match meta.file_type() {
            kind if kind.is_dir() => Given::Dir,
            kind if kind.is_symlink() => Given::Link(fs::read_link(&from)?),
            kind if kind.is_file() && whole => self.content(&from, path, &meta)?,
            kind if kind.is_file() => Given::File(Arc::default()),
            _ => Given::Other,
        };
        let is_dir = matches!(given, Given::Dir);
        if !(is_dir && fs.exists(path)) {
            fs.fill(path, given, meta.permissions().mode() & 0o7777, (meta.uid(), meta.gid()));
        }
        if is_dir {
            for name in names(&from)? {
                self.copy(fs, root, &path.join(name), whole)?;
            }
        }
        Ok(())
    }

    fn content(&mut self, from: &Path, path: &Path, meta: &Metadata) -> io::Result<Given> {
        let bytes = fs::read(from)?;
        if meta.len() < LARGE {
            return Ok(Given::File(Arc::new(bytes)));
        }
        if let Some(known) = self.known.get(path)
            && **known == bytes
        {
            return Ok(Given::File(known.clone()));
        }
        let bytes = Arc::new(bytes);
        self.known.insert(path.to_owned(), bytes.clone());
        Ok(Given::File(bytes))
    }
}

/// The place on this machine of a path of the host.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn parents(fs: &MemFs, root: &Path, path: &Path) -> io::Result<()> {
    let above: Vec<&Path> = path.ancestors().skip(1).collect();
    for dir in above.into_iter().rev().filter(|dir| !fs.exists(dir)) {
        let meta = below(root, dir).symlink_metadata()?;
        fs.fill(dir, Given::Dir, meta.permissions().mode() & 0o7777, (meta.uid(), meta.gid()));
    }
    Ok(())
}

fn names(dir: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    let mut names: Vec<_> = fs::read_dir(dir)?.map(|entry| entry.map(|e| e.file_name())).collect::<io::Result<_>>()?;
    names.sort_unstable();
    Ok(names)
}

/// What others own in /usr, which no state's tree has whole: a line for each path.
pub fn programs(root: &Path) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut todo = vec![root.join("usr")];
    while let Some(path) = todo.pop() {
        let meta = path.symlink_metadata()?;
        let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let (mode, owner) = (meta.mode(), (meta.uid(), meta.gid()));
        if meta.is_dir() {
            todo.extend(names(&path)?.into_iter().map(|name| path.join(name)));
            lines.push(format!("/{shown} {mode:o} {owner:?}"));
        } else {
            lines.push(format!("/{shown} {mode:o} {owner:?} {} {}.{}", meta.len(), meta.mtime(), meta.mtime_nsec()));
        }
    }
    lines.sort_unstable();
    Ok(lines)
}

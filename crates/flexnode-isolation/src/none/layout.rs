//! The on-disk arrangement of versioned artifacts: version directories below a base, and a link that selects one.

use super::consts::{CURRENT, DEFAULT_BASE};
use flexnode_host::durable::{self, Change, TEMP_PREFIX};
use flexnode_host::{FileKind, Fs, FsError};
use flexnode_model::{SlotName, SlotNameError};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Why version directories or the current link could not be used as asked.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The active version cannot be removed (`ErrVersionActive`).
    #[error("version {version} is active")]
    VersionActive {
        /// The version.
        version: String,
    },
    /// A version has to be one safe path component.
    #[error(transparent)]
    Name(#[from] SlotNameError),
    /// The version has no directory.
    #[error("version {version} is not installed: {} is no directory", path.display())]
    NotInstalled {
        /// The version.
        version: String,
        /// Where it should be.
        path: PathBuf,
    },
    /// The link that selects a version is not one of ours.
    #[error("{} {problem}; move it away if nothing needs it", path.display())]
    ForeignLink {
        /// The path of the link.
        path: PathBuf,
        /// What is there instead.
        problem: String,
    },
    /// The base is not a directory of its own.
    #[error("{} is a {kind}, but the node base has to be a directory of its own; move it away", path.display())]
    BaseNotDir {
        /// The base.
        path: PathBuf,
        /// What it is.
        kind: FileKind,
    },
    /// Nothing is active.
    #[error("no version is active: {} does not exist", path.display())]
    NoneActive {
        /// The link.
        path: PathBuf,
    },
    /// A file operation.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// The on-disk arrangement of versioned artifacts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The agent-owned directory. Empty means [`DEFAULT_BASE`].
    pub base: PathBuf,
}

impl Default for Layout {
    fn default() -> Self {
        Self { base: PathBuf::from(DEFAULT_BASE) }
    }
}

impl Layout {
    /// The arrangement below `base`.
    pub fn new(base: impl Into<PathBuf>) -> Self {
        Self { base: base.into() }
    }

    /// The base, with the default for an empty one.
    pub fn base_dir(&self) -> &Path {
        if self.base.as_os_str().is_empty() { Path::new(DEFAULT_BASE) } else { &self.base }
    }

    /// The link that selects the active version. Its text is the version's name, so the base can move.
    pub fn current_link(&self) -> PathBuf {
        self.base_dir().join(CURRENT)
    }

    /// Where the active version's executables are found. Units refer to binaries through the current link, so a flip
    /// changes what they run.
    pub fn bin_dir(&self) -> PathBuf {
        self.current_link().join("bin")
    }

    /// Where the active version's CNI plugins are, through the current link.
    pub fn cni_bin_dir(&self) -> PathBuf {
        self.current_link().join("cni")
    }

    /// The active version's configuration file `name`, through the current link.
    pub fn current_config(&self, name: &str) -> PathBuf {
        self.current_link().join("etc").join(name)
    }

    /// The directory that holds the artifacts of one version. The name is not checked; what creates or removes checks it.
    pub fn version_dir(&self, version: &str) -> PathBuf {
        self.base_dir().join(version)
    }

    /// The active version, or `None` when nothing is active yet. It need not be installed any more.
    ///
    /// Anything but a link to a name beside it is refused: it is not ours, and what would run is not known.
    pub fn current(&self, fs: &dyn Fs) -> Result<Option<String>, LayoutError> {
        let link = self.current_link();
        let foreign = |problem: String| LayoutError::ForeignLink { path: link.clone(), problem };
        match fs.lstat(&link)? {
            None => Ok(None),
            Some(stat) if stat.kind != FileKind::Link => Err(foreign(format!("is a {}, no link", stat.kind))),
            Some(_) => {
                let target = fs.read_link(&link)?;
                // An absolute link to a version below the base is read too: a person may have made it.
                let name = target.strip_prefix(self.base_dir()).unwrap_or(&target);
                match name.to_str().map(SlotName::new) {
                    Some(Ok(version)) => Ok(Some(version.into())),
                    _ => Err(foreign(format!("points to {}, which is no version", target.display()))),
                }
            }
        }
    }

    /// Creates the version directory and its bin directory if needed, makes base, version and bin directory 0755 whatever
    /// the umask, and returns the version directory's path. Idempotent.
    pub fn ensure(&self, fs: &dyn Fs, version: &str) -> Result<PathBuf, LayoutError> {
        SlotName::new(version)?;
        self.check_base(fs)?;
        mkdir_traversable(fs, self.base_dir())?;
        let dir = self.version_dir(version);
        mkdir_traversable(fs, &dir)?;
        mkdir_traversable(fs, &dir.join("bin"))?;
        Ok(dir)
    }

    /// Whether the version has a directory.
    pub fn is_installed(&self, fs: &dyn Fs, version: &str) -> Result<bool, LayoutError> {
        SlotName::new(version)?;
        Ok(fs.lstat(&self.version_dir(version))?.is_some_and(|stat| stat.kind == FileKind::Dir))
    }

    /// Atomically points the current link at an installed version and returns the version that it replaced (`None` if
    /// there was none). The new link is made beside the old one and renamed over it, so there is no moment without one.
    pub fn flip(&self, fs: &dyn Fs, version: &str) -> Result<Option<String>, LayoutError> {
        if !self.is_installed(fs, version)? {
            return Err(LayoutError::NotInstalled { version: version.to_owned(), path: self.version_dir(version) });
        }
        let replaced = self.current(fs)?;
        durable::replace_link(fs, Path::new(version), &self.current_link())?;
        Ok(replaced)
    }

    /// The installed versions in sorted order. Unfinished directories and the current link are not among them.
    pub fn versions(&self, fs: &dyn Fs) -> Result<Vec<String>, LayoutError> {
        self.check_base(fs)?;
        if fs.lstat(self.base_dir())?.is_none() {
            return Ok(Vec::new());
        }
        let versions = fs.read_dir(self.base_dir())?.into_iter().filter(|entry| entry.kind == FileKind::Dir);
        let mut names: Vec<String> = versions.filter_map(|entry| version_name(&entry.name)).collect();
        names.sort();
        Ok(names)
    }

    /// Deletes one installed version. The active version cannot be removed ([`LayoutError::VersionActive`]); one that is
    /// not installed counts as removed.
    ///
    /// The directory loses its name first, so that a crash never leaves half a version under it.
    pub fn remove(&self, fs: &dyn Fs, version: &str) -> Result<Change, LayoutError> {
        SlotName::new(version)?;
        if self.current(fs)?.as_deref() == Some(version) {
            return Err(LayoutError::VersionActive { version: version.to_owned() });
        }
        if !self.is_installed(fs, version)? {
            return Ok(Change::None);
        }
        let doomed = self.base_dir().join(format!("{TEMP_PREFIX}removed-{version}"));
        durable::remove_tree(fs, &doomed)?;
        durable::rename(fs, &self.version_dir(version), &doomed)?;
        durable::remove_tree(fs, &doomed)?;
        Ok(Change::Made)
    }

    /// Deletes the whole base directory, active version included. Absent is fine; a base that is a link is refused, since
    /// what it leads to is not ours to delete.
    ///
    /// The link goes first: units that are still there then find nothing, rather than half a version.
    pub fn remove_all(&self, fs: &dyn Fs) -> Result<Change, LayoutError> {
        self.check_base(fs)?;
        if fs.lstat(self.base_dir())?.is_none() {
            return Ok(Change::None);
        }
        let link = self.current_link();
        if fs.lstat(&link)?.is_some_and(|stat| stat.kind == FileKind::Link) {
            durable::remove_file(fs, &link)?;
        }
        durable::remove_tree(fs, self.base_dir())?;
        Ok(Change::Made)
    }

    /// Removes what a crash left under temporary names in the base and on the way to it.
    pub fn sweep(&self, fs: &dyn Fs) -> Result<(), LayoutError> {
        self.check_base(fs)?;
        Ok(sweep_up(fs, self.base_dir())?)
    }

    fn check_base(&self, fs: &dyn Fs) -> Result<(), LayoutError> {
        match fs.lstat(self.base_dir())? {
            Some(stat) if stat.kind != FileKind::Dir => {
                Err(LayoutError::BaseNotDir { path: self.base_dir().to_path_buf(), kind: stat.kind })
            }
            _ => Ok(()),
        }
    }
}

fn version_name(name: &OsStr) -> Option<String> {
    SlotName::new(name.to_str()?).ok().map(String::from)
}

/// Removes what a crash left under temporary names in `dir` and in the directories above it, the root apart.
pub(crate) fn sweep_up(fs: &dyn Fs, dir: &Path) -> Result<(), FsError> {
    for at in dir.ancestors().filter(|at| at.parent().is_some()) {
        durable::sweep(fs, at)?;
    }
    Ok(())
}

/// Creates `dir` with any missing parents and makes `dir`, and each parent that it created, 0755 whatever the umask. A
/// parent that existed keeps its mode: it is not the agent's to change.
///
/// LocalDNS runs as a dynamic user, which has to traverse the base and version directories to reach its binaries; under
/// the umask 027 of a hardened host a plain mkdir would leave them 0750.
pub fn mkdir_traversable(fs: &dyn Fs, dir: &Path) -> Result<Change, FsError> {
    let made = durable::ensure_dir(fs, dir, 0o755)?;
    if fs.stat(dir)?.is_some_and(|stat| stat.mode != 0o755) {
        fs.chmod(dir, 0o755)?;
        fs.sync_dir(dir)?;
        return Ok(Change::Made);
    }
    Ok(made)
}

#[cfg(test)]
mod tests;

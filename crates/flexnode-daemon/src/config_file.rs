//! Reading the user's configuration file, which root takes its orders from, and other files of which the same is asked.

use flexnode_host::{FileKind, Fs, FsError};
use std::path::{Path, PathBuf};

/// Where the configuration lies unless `--config` names another file.
pub const CONFIG_PATH: &str = "/etc/aks-flex-node/config.json";

/// A configuration is never larger.
const LIMIT: u64 = 1 << 20;

/// Why the file is not read.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFileError {
    /// It is not there.
    #[error("there is no file {}", .0.display())]
    Missing(PathBuf),
    /// It is a directory, device or pipe.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// Another user owns it, and could change what root does.
    #[error("{} belongs to user {uid}, not to root", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// Others can read the token in it, or change it.
    #[error("{} can be read or changed by others: its mode is {mode:04o}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Others can put another file in its place.
    #[error("others can replace the file: the directory {} is writable by them (mode {mode:04o}, owner {uid})", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Its owner.
        uid: u32,
    },
    /// It cannot be read.
    #[error("the file cannot be read")]
    Fs(#[from] FsError),
}

impl ConfigFileError {
    /// The command or deed that mends it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing(path) => {
                Some(format!("write it there, or name another file with --config ({})", path.display()))
            }
            Self::Owner { path, .. } => Some(format!("chown root: {}", path.display())),
            Self::Open { path, .. } => Some(format!("chmod 0600 {}", path.display())),
            Self::Directory { path, .. } => Some(format!("chown root: {0} && chmod go-w {0}", path.display())),
            Self::NotAFile(_) | Self::Fs(_) => None,
        }
    }
}

/// Checks owner and modes of the file that `path` leads to, and of the directory that it lies in.
pub fn check(fs: &dyn Fs, path: &Path) -> Result<(), ConfigFileError> {
    let Some(stat) = fs.stat(path)? else { return Err(ConfigFileError::Missing(path.into())) };
    if stat.kind != FileKind::File {
        return Err(ConfigFileError::NotAFile(path.into()));
    }
    if stat.uid != 0 {
        return Err(ConfigFileError::Owner { path: path.into(), uid: stat.uid });
    }
    if stat.mode & 0o077 != 0 {
        return Err(ConfigFileError::Open { path: path.into(), mode: stat.mode });
    }
    let real = fs.canonicalize(path)?;
    for file in [path, &real] {
        for (depth, dir) in file.ancestors().skip(1).enumerate() {
            check_dir(fs, dir, depth == 0)?;
        }
    }
    Ok(())
}

/// In a sticky directory (/tmp) a stranger cannot rename what is root's, so one further up is no danger; the file itself
/// may not lie in one.
fn check_dir(fs: &dyn Fs, dir: &Path, nearest: bool) -> Result<(), ConfigFileError> {
    let Some(stat) = fs.stat(dir)? else { return Ok(()) };
    let open = stat.mode & 0o022 != 0 && (nearest || stat.mode & 0o1000 == 0);
    if stat.uid != 0 || open {
        return Err(ConfigFileError::Directory { path: dir.into(), mode: stat.mode, uid: stat.uid });
    }
    Ok(())
}

/// Checks the file, then reads it.
pub fn read(fs: &dyn Fs, path: &Path) -> Result<Vec<u8>, ConfigFileError> {
    check(fs, path)?;
    fs.read(path, LIMIT)?.ok_or_else(|| ConfigFileError::Missing(path.into()))
}

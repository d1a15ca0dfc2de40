//! How much is free in a file system (statvfs(3)).

use crate::HostError;
use std::fmt::Debug;
use std::path::Path;

/// What is free in a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceLeft {
    /// Its device number: the same for two paths in one file system.
    pub device: u64,
    /// Its size in bytes.
    pub total_bytes: u64,
    /// Bytes free for programs that are not root's.
    pub free_bytes: u64,
    /// Its inodes; 0 where it does not count them.
    pub total_inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
}

/// Tells how much is free.
pub trait Space: Send + Sync + Debug {
    /// Of the file system that holds `path`; `None` when the path is not there. It can wait for as long as the file system
    /// does: callers that must not wait ask from a thread.
    fn left(&self, path: &Path) -> Result<Option<SpaceLeft>, HostError>;
}

/// This machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealSpace;

impl Space for RealSpace {
    fn left(&self, path: &Path) -> Result<Option<SpaceLeft>, HostError> {
        let failed = |e: rustix::io::Errno| HostError::Failed {
            what: format!("ask for the free space at {}", path.display()),
            reason: std::io::Error::from(e).to_string(),
        };
        let space = match rustix::fs::statvfs(path) {
            Ok(space) => space,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        let device = rustix::fs::stat(path).map_err(failed)?.st_dev;
        Ok(Some(SpaceLeft {
            device,
            total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
            free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
            total_inodes: space.f_files,
            free_inodes: space.f_favail,
        }))
    }
}

/// File systems that a test fills.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug, Default)]
pub struct FakeSpace(std::sync::Mutex<std::collections::BTreeMap<std::path::PathBuf, Result<SpaceLeft, String>>>);

#[cfg(any(test, feature = "testing"))]
impl FakeSpace {
    /// What is told of a path, or why nothing is.
    pub fn set(&self, path: impl Into<std::path::PathBuf>, left: Result<SpaceLeft, &str>) {
        let mut all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.insert(path.into(), left.map_err(str::to_owned));
    }
}

#[cfg(any(test, feature = "testing"))]
impl Space for FakeSpace {
    fn left(&self, path: &Path) -> Result<Option<SpaceLeft>, HostError> {
        let all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match all.get(path).cloned() {
            None => Ok(None),
            Some(Ok(left)) => Ok(Some(left)),
            Some(Err(reason)) => Err(HostError::Failed { what: format!("ask at {}", path.display()), reason }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_room_somewhere() {
        let left = RealSpace.left(Path::new("/")).unwrap().unwrap();
        assert!(left.total_bytes > 0 && left.free_bytes <= left.total_bytes && left.free_inodes <= left.total_inodes);
        assert_eq!(RealSpace.left(Path::new("/no/such/place")).unwrap(), None);
    }
}

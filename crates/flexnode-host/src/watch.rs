//! Being told of changes, in place of asking again and again: files by inotify(7), units by D-Bus signals.
//!
//! A watch only says that something may have changed; what it is now its reader asks. So a change that is told twice, or
//! told together with others, does no harm.

use crate::HostError;
use crate::sys::readable;
use async_trait::async_trait;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use tokio::io::unix::AsyncFd;

/// Tells when units change.
#[async_trait]
pub trait UnitWatch: Send + Sync + Debug {
    /// Calls `tell` once when it begins to watch, and after each change of one of `units` or of unit files. Returns when it
    /// cannot go on; dropping the future ends it.
    async fn watch(&self, units: &[&str], tell: &(dyn Fn() + Send + Sync)) -> HostError;
}

/// Tells when files change.
#[async_trait]
pub trait FileWatch: Send + Sync + Debug {
    /// Calls `tell` with one of `dirs` after something in it was made, written, renamed or removed; not of what is below.
    /// A directory that is not there yet is watched from when it is made. Returns when it cannot go on; dropping the future
    /// ends it.
    async fn watch(&self, dirs: &[PathBuf], tell: &(dyn for<'p> Fn(&'p Path) + Send + Sync)) -> HostError;
}

/// inotify.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inotify;

#[async_trait]
impl FileWatch for Inotify {
    async fn watch(&self, dirs: &[PathBuf], tell: &(dyn for<'p> Fn(&'p Path) + Send + Sync)) -> HostError {
        let failed = |e: std::io::Error| HostError::Failed { what: "watch files".into(), reason: e.to_string() };
        let mut watched = match Watched::new(dirs) {
            Ok(watched) => watched,
            Err(e) => return failed(e.into()),
        };
        loop {
            match watched.next().await {
                Ok(changed) => {
                    for dir in &changed {
                        tell(dir);
                    }
                }
                Err(e) => return failed(e),
            }
        }
    }
}

/// What is told of a directory.
fn flags() -> WatchFlags {
    WatchFlags::CREATE
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::MOVED_TO
        | WatchFlags::MOVED_FROM
        | WatchFlags::DELETE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR
}

/// An inotify instance with its watches.
struct Watched {
    fd: AsyncFd<OwnedFd>,
    dirs: Vec<PathBuf>,
    /// The watch of each directory, or of the nearest one above it that is there.
    at: BTreeMap<PathBuf, i32>,
    /// The directories whose own watch it is.
    own: BTreeSet<PathBuf>,
}

impl Watched {
    fn new(dirs: &[PathBuf]) -> Result<Self, Errno> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let fd = readable(fd).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        let mut this = Self { fd, dirs: dirs.to_vec(), at: BTreeMap::new(), own: BTreeSet::new() };
        this.settle()?;
        Ok(this)
    }

    /// Puts every watch where it belongs now. Gives the directories that got another one.
    fn settle(&mut self) -> Result<BTreeSet<PathBuf>, Errno> {
        let mut moved = BTreeSet::new();
        let mut used = BTreeMap::new();
        for dir in &self.dirs {
            let mut at = dir.as_path();
            let wd = loop {
                match inotify::add_watch(self.fd.get_ref(), at, flags()) {
                    Ok(wd) => break Some(wd),
                    Err(Errno::NOENT | Errno::NOTDIR) => match at.parent() {
                        Some(parent) => at = parent,
                        None => break None,
                    },
                    Err(e) => return Err(e),
                }
            };
            let Some(wd) = wd else { continue };
            let is_own = at == dir;
            let was_own = if is_own { !self.own.insert(dir.clone()) } else { self.own.remove(dir) };
            if (is_own || was_own) && (self.at.get(dir) != Some(&wd) || is_own != was_own) {
                moved.insert(dir.clone());
            }
            used.insert(dir.clone(), wd);
        }
        let kept: BTreeSet<i32> = used.values().copied().collect();
        for wd in self.at.values().filter(|wd| !kept.contains(wd)) {
            // One that is gone with its directory is no longer known.
            let _ = inotify::remove_watch(self.fd.get_ref(), *wd);
        }
        self.at = used;
        Ok(moved)
    }

    /// Waits for the next changes.
    async fn next(&mut self) -> std::io::Result<BTreeSet<PathBuf>> {
        loop {
            let Some((wds, all)) = self.read().await? else { continue };
            let is_hit = |dir: &&PathBuf| all || self.at.get(*dir).is_some_and(|wd| wds.contains(wd));
            // The watch of a directory above says only that a missing one may be there now.
            let mut changed: BTreeSet<PathBuf> =
                self.dirs.iter().filter(is_hit).filter(|dir| all || self.own.contains(*dir)).cloned().collect();
            changed.extend(self.settle()?);
            if !changed.is_empty() {
                return Ok(changed);
            }
        }
    }

    /// The watches that something happened to; the second value says that some may have been lost.
    async fn read(&self) -> std::io::Result<Option<(BTreeSet<i32>, bool)>> {
        let mut ready = self.fd.readable().await?;
        let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.fd.get_ref(), &mut buffer);
        let (mut wds, mut all) = (BTreeSet::new(), false);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => all = true,
                Ok(event) => {
                    wds.insert(event.wd());
                }
                Err(Errno::WOULDBLOCK) => break,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        ready.clear_ready();
        Ok((all || !wds.is_empty()).then_some((wds, all)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn changed(watched: &mut Watched) -> Vec<PathBuf> {
        let next = tokio::time::timeout(Duration::from_secs(10), watched.next());
        next.await.expect("a change is told").unwrap().into_iter().collect()
    }

    #[tokio::test]
    async fn changes_in_a_directory_are_told_and_those_below_are_not() {
        let temp = tempfile::tempdir().unwrap();
        let (a, b) = (temp.path().join("a"), temp.path().join("b"));
        std::fs::create_dir_all(a.join("below")).unwrap();
        std::fs::create_dir(&b).unwrap();
        let mut watched = Watched::new(&[a.clone(), b.clone()]).unwrap();
        std::fs::write(a.join("below/x"), "1").unwrap();
        std::fs::write(b.join("x"), "1").unwrap();
        assert_eq!(changed(&mut watched).await, std::slice::from_ref(&b));
        std::fs::rename(b.join("x"), a.join("x")).unwrap();
        assert_eq!(changed(&mut watched).await, [a, b]);
    }

    #[tokio::test]
    async fn a_directory_is_watched_from_when_it_is_made_and_again_after_it_was_replaced() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("one/two");
        let mut watched = Watched::new(std::slice::from_ref(&dir)).unwrap();
        std::fs::create_dir(temp.path().join("one")).unwrap();
        std::fs::create_dir(&dir).unwrap();
        assert_eq!(changed(&mut watched).await, std::slice::from_ref(&dir));
        std::fs::write(dir.join("x"), "1").unwrap();
        assert_eq!(changed(&mut watched).await, std::slice::from_ref(&dir));
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(changed(&mut watched).await, std::slice::from_ref(&dir));
        std::fs::create_dir(&dir).unwrap();
        let mut told = changed(&mut watched).await;
        std::fs::write(dir.join("y"), "1").unwrap();
        told.extend(changed(&mut watched).await);
        assert!(told.iter().all(|path| *path == dir) && told.len() >= 2, "{told:?}");
    }

    #[tokio::test]
    async fn a_link_to_a_directory_is_followed_anew_when_it_turns() {
        let temp = tempfile::tempdir().unwrap();
        let (base, link) = (temp.path().to_path_buf(), temp.path().join("current"));
        for slot in ["1", "2"] {
            std::fs::create_dir(temp.path().join(slot)).unwrap();
        }
        std::os::unix::fs::symlink("1", &link).unwrap();
        let mut watched = Watched::new(&[base.clone(), link.clone()]).unwrap();
        std::os::unix::fs::symlink("2", temp.path().join("new")).unwrap();
        std::fs::rename(temp.path().join("new"), &link).unwrap();
        assert!(changed(&mut watched).await.contains(&base));
        std::fs::write(temp.path().join("2/program"), "x").unwrap();
        let mut told = changed(&mut watched).await;
        while !told.contains(&link) {
            told.extend(changed(&mut watched).await);
        }
    }
}

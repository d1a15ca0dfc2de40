//! The one lock: who holds it may change this node.
//!
//! It is a flock(2) on a file that is never removed by us. The kernel gives it back whenever the holder ends, however
//! that happens. Who holds it and for what is written in the file, for people and for [`Lock::owner`]; the lock itself
//! decides.

use crate::processes::start_ticks;
use jiff::Timestamp;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the lock of this host lies. Not in /run/aks-flex-node: systemd removes that when the daemon stops.
pub const LOCK_PATH: &str = "/run/aks-flex-node.lock";

/// How long somebody is waited for who holds the lock without having said so: [`wait_free`] takes it for a moment.
const UNNAMED: Duration = Duration::from_millis(500);

/// Who holds the lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its PID.
    pub pid: u32,
    /// Its start in clock ticks since boot, so that a reused PID is not taken for it.
    pub start_ticks: u64,
    /// What it does: `start`, `upgrade`, `daemon`.
    pub operation: String,
    /// Since when it holds the lock.
    pub since: Timestamp,
}

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else holds it.
    #[error("another operation holds the lock {}: {}", path.display(), described(owner.as_ref()))]
    Held {
        /// The lock file.
        path: PathBuf,
        /// Who, if it said so.
        owner: Option<Owner>,
    },
    /// The file cannot be used.
    #[error("cannot use the lock {}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

fn described(owner: Option<&Owner>) -> String {
    match owner {
        Some(Owner { pid, operation, since, .. }) => format!("{operation} (PID {pid}) since {since:.0}"),
        None => "it has not said what it does".to_owned(),
    }
}

/// The lock, held. It is given back when this is dropped. Functions that change the node take a reference to it as a
/// proof that it is held.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
    owner: Owner,
}

impl Lock {
    /// Takes the lock at `path` without waiting, or says who holds it. The directory must exist; the file is made, mode
    /// 0600, and is not passed on to programs that are run.
    pub fn acquire(path: &Path, operation: &str) -> Result<Self, LockError> {
        let failed = |source: io::Error| LockError::Io { path: path.to_path_buf(), source };
        let tried = Instant::now();
        loop {
            let file = open(path).map_err(failed)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::INTR) => continue,
                Err(Errno::WOULDBLOCK) => match Self::owner(path) {
                    None if tried.elapsed() < UNNAMED => {
                        std::thread::yield_now();
                        continue;
                    }
                    owner => return Err(LockError::Held { path: path.to_path_buf(), owner }),
                },
                Err(e) => return Err(failed(e.into())),
            }
            // Somebody may have removed the file and made a new one before we got the lock of the old one.
            if is_at(&file, path).map_err(failed)? {
                let pid = std::process::id();
                let ticks = start_ticks(pid).map_err(failed)?;
                let owner = Owner { pid, start_ticks: ticks, operation: operation.to_owned(), since: Timestamp::now() };
                let lock = Self { file, path: path.to_path_buf(), owner };
                lock.write().map_err(failed)?;
                return Ok(lock);
            }
        }
    }

    /// Says that another operation goes on now; the lock stays held, `since` stays.
    pub fn set_operation(&mut self, operation: &str) -> Result<(), LockError> {
        operation.clone_into(&mut self.owner.operation);
        self.write().map_err(|source| LockError::Io { path: self.path.clone(), source })
    }

    /// What the file says of this holder.
    pub fn held_by(&self) -> &Owner {
        &self.owner
    }

    /// Who holds the lock at `path`: `None` when it is free or nobody has said so yet. Takes no lock.
    pub fn owner(path: &Path) -> Option<Owner> {
        let mut text = String::new();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
        file.take(4096).read_to_string(&mut text).ok()?;
        let owner: Owner = serde_json::from_str(&text).ok()?;
        // A holder that was killed could not clear its name.
        (start_ticks(owner.pid).ok()? == owner.start_ticks).then_some(owner)
    }

    fn write(&self) -> io::Result<()> {
        let mut text = serde_json::to_string(&self.owner).map_err(io::Error::other)?;
        text.push('\n');
        self.file.set_len(0)?;
        self.file.write_all_at(text.as_bytes(), 0)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The closing that follows gives the lock back; the name must be gone before.
        let _ = self.file.set_len(0);
    }
}

/// Waits until the lock at `path` is free, and returns at once when it is. It does not take it: whoever wants it
/// acquires it then, and may find that somebody else was faster. Dropping the future leaves a thread that ends when the
/// lock becomes free.
pub async fn wait_free(path: &Path) -> Result<(), LockError> {
    let (done, ended) = tokio::sync::oneshot::channel();
    let at = path.to_path_buf();
    let waiting = std::thread::Builder::new().name("lock".to_owned()).spawn(move || {
        // Nobody may be listening any more.
        let _ = done.send(block_until_free(&at));
    });
    let failed = |source: io::Error| LockError::Io { path: path.to_path_buf(), source };
    waiting.map_err(failed)?;
    ended.await.unwrap_or_else(|_| Err(io::Error::other("the waiting thread ended"))).map_err(failed)
}

fn block_until_free(path: &Path) -> io::Result<()> {
    loop {
        let file = open(path)?;
        match rustix::fs::flock(&file, FlockOperation::LockShared) {
            Ok(()) if is_at(&file, path)? => return Ok(()),
            Ok(()) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Opens or makes the file. A link, or a file of somebody else, is refused.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mode = Mode::from_raw_mode(0o600);
    let file = File::from(rustix::fs::open(path, flags, mode)?);
    let meta = file.metadata()?;
    if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not a regular file of this user"));
    }
    if meta.mode() & 0o7777 != 0o600 {
        rustix::fs::fchmod(&file, mode)?;
    }
    Ok(file)
}

/// Whether `path` still names this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(now) => Ok((now.dev(), now.ino()) == (held.dev(), held.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        (dir, path)
    }

    fn held(result: Result<Lock, LockError>) -> Option<Owner> {
        match result.unwrap_err() {
            LockError::Held { owner, .. } => owner,
            other @ LockError::Io { .. } => panic!("{other}"),
        }
    }

    #[test]
    fn the_second_is_told_who_is_first() {
        let (_dir, path) = place();
        let mut first = Lock::acquire(&path, "start").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        let owner = held(Lock::acquire(&path, "reset")).unwrap();
        assert_eq!((&owner, owner.pid, owner.operation.as_str()), (first.held_by(), std::process::id(), "start"));
        first.set_operation("upgrade").unwrap();
        let now = Lock::owner(&path).unwrap();
        assert_eq!((now.operation.as_str(), now.since), ("upgrade", owner.since));
        let message = Lock::acquire(&path, "reset").unwrap_err().to_string();
        assert!(message.contains("upgrade (PID ") && message.contains("lock"), "{message}");
        drop(first);
        assert_eq!(Lock::owner(&path), None);
        Lock::acquire(&path, "reset").unwrap();
    }

    #[test]
    fn a_removed_file_is_noticed() {
        let (_dir, path) = place();
        let first = Lock::acquire(&path, "start").unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(!is_at(&first.file, &path).unwrap());
        // The holder of a file that is gone does not stop anybody; whoever comes makes a new file and holds that.
        let second = Lock::acquire(&path, "reset").unwrap();
        assert!(is_at(&second.file, &path).unwrap());
        assert_eq!(Lock::owner(&path).unwrap().operation, "reset");
        assert!(held(Lock::acquire(&path, "third")).is_some());
    }

    #[test]
    fn a_link_and_what_is_no_file_are_refused() {
        let (dir, path) = place();
        let target = dir.path().join("target");
        std::fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(matches!(Lock::acquire(&path, "start"), Err(LockError::Io { .. })));
        assert!(matches!(Lock::acquire(dir.path(), "start"), Err(LockError::Io { .. })));
        assert_eq!(std::fs::read(&target).unwrap(), b"kept");
    }

    #[test]
    fn nonsense_in_the_file_is_no_owner() {
        let (_dir, path) = place();
        for text in ["", "{", "{\"pid\":1}", "\u{0}\u{0}"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(Lock::owner(&path), None, "{text:?}");
            Lock::acquire(&path, "start").unwrap();
        }
        let gone = Owner { pid: 1, start_ticks: u64::MAX, operation: "x".to_owned(), since: Timestamp::now() };
        std::fs::write(&path, serde_json::to_vec(&gone).unwrap()).unwrap();
        assert_eq!(Lock::owner(&path), None, "a reused PID");
    }

    /// A child that holds the lock until it is killed.
    fn holding_child(path: &Path) -> std::process::Child {
        let script = format!("exec 9<>'{}'; flock 9 || exit 1; echo held; exec sleep 600", path.display());
        let mut child = Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = [0; 5];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(&said, b"held\n");
        child
    }

    /// C095: a file that is gone is taken for an owner that has ended.
    #[tokio::test]
    async fn a_killed_holder_holds_no_more() {
        let (_dir, path) = place();
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        let mut child = holding_child(&path);
        assert_eq!(held(Lock::acquire(&path, "start")), None, "it has not said who it is");

        let mut waiting = Box::pin(wait_free(&path));
        let early = tokio::time::timeout(Duration::from_millis(50), &mut waiting).await;
        assert!(early.is_err(), "it is held");
        child.kill().unwrap();
        child.wait().unwrap();
        tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
        let lock = Lock::acquire(&path, "start").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        drop(lock);
        wait_free(&path).await.unwrap();
    }

    #[tokio::test]
    async fn somebody_who_only_waits_is_not_in_the_way() {
        let (_dir, path) = place();
        for _ in 0..50 {
            let lock = Lock::acquire(&path, "start").unwrap();
            let at = path.clone();
            let waiting = tokio::spawn(async move { wait_free(&at).await });
            tokio::task::yield_now().await;
            drop(lock);
            let again = Lock::acquire(&path, "again").unwrap();
            drop(again);
            waiting.await.unwrap().unwrap();
        }
    }

    #[test]
    fn the_lock_is_not_passed_on() {
        let (_dir, path) = place();
        let lock = Lock::acquire(&path, "start").unwrap();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        drop(lock);
        let again = Lock::acquire(&path, "again");
        child.kill().unwrap();
        child.wait().unwrap();
        again.unwrap();
    }
}

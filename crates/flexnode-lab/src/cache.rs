//! The cache: what takes long to make is made once, outside of the checkout.
//!
//! An entry is a directory whose name has a digest of all that went into it. It is made beside its place and renamed, so
//! an entry that is there is complete. A lock per entry lets one process build while the others wait.

use crate::{interrupt, poll};
use anyhow::{Context as _, Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The lab's directory: `FLEXNODE_CACHE`, else `flexnode-lab` in `XDG_CACHE_HOME` or in `~/.cache`.
pub fn dir() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let root = variable("FLEXNODE_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|cache| cache.join("flexnode-lab")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/flexnode-lab")));
    let Some(root) = root else { bail!("no place for the lab's cache: set FLEXNODE_CACHE or HOME") };
    if !root.is_absolute() {
        bail!("the lab's cache has to be an absolute path, not {}", root.display());
    }
    fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
    Ok(root)
}

/// The directory of one entry. When it is not there yet, `make` fills an empty one.
///
/// `what` tells a person what is made and how long it takes; `inputs` is everything that the content depends on.
pub fn entry(name: &str, inputs: &[&str], what: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let folder = dir()?.join("entries");
    fs::create_dir_all(&folder)?;
    let key = format!("{name}-{}", digest(inputs));
    let place = folder.join(&key);
    if place.is_dir() {
        return Ok(place);
    }
    let _lock = lock(&folder.join(format!(".{key}.lock")), &format!("another process to make {name}"))?;
    if place.is_dir() {
        return Ok(place);
    }
    let progress = Progress::start(what);
    // What an earlier attempt left: nobody else makes this entry now.
    let temporary = folder.join(format!(".{key}.tmp"));
    remove_tree(&temporary)?;
    fs::create_dir_all(&temporary)?;
    make(&temporary).with_context(|| format!("cannot make {name} for the lab"))?;
    fs::rename(&temporary, &place).with_context(|| format!("cannot rename {}", temporary.display()))?;
    progress.done();
    Ok(place)
}

/// Takes a lock file, waiting as long as another process has it.
pub fn lock(path: &Path, what: &str) -> Result<File> {
    let file = File::options().create(true).append(true).open(path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    let mut told = false;
    poll(Duration::from_secs(3600), Duration::from_millis(100), what, || {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(())),
            Err(Errno::WOULDBLOCK) => {
                if !told {
                    eprintln!("lab: waiting for {what}");
                    told = true;
                }
                Ok(None)
            }
            Err(cause) => Err(cause.into()),
        }
    })?;
    Ok(file)
}

/// Removes a directory tree of the lab's own, on its own file system only. What is not there is fine.
pub fn remove_tree(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    let mut command = std::process::Command::new("rm");
    command.args(["-rf", "--one-file-system", "--"]).arg(path);
    crate::run::must(&mut command, Duration::from_secs(300))?;
    Ok(())
}

/// 12 hex digits over the inputs; each is closed by a byte that no text has.
fn digest(inputs: &[&str]) -> String {
    let mut hash = Sha256::new();
    for input in inputs {
        hash.update(input.as_bytes());
        hash.update([0]);
    }
    hex(&hash.finalize()[..6])
}

/// Bytes as hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Tells on standard error that long work runs, and for how many seconds already.
#[derive(Debug)]
pub struct Progress {
    what: String,
    started: Instant,
    ticker: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Begins, and tells what.
    pub fn start(what: &str) -> Self {
        eprintln!("lab: {what}");
        let (stop, stopped) = channel();
        let (told, started) = (what.to_owned(), Instant::now());
        let ticker = std::thread::spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(Duration::from_secs(15)) {
                if !interrupt::pending() {
                    eprintln!("lab: {told}: {} s", started.elapsed().as_secs());
                }
            }
        });
        Self { what: what.to_owned(), started, ticker: Some((stop, ticker)) }
    }

    /// Tells that it is done and how long it took.
    pub fn done(self) {
        eprintln!("lab: {}: done in {:.1} s", self.what, self.started.elapsed().as_secs_f32());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, ticker)) = self.ticker.take() {
            drop(stop);
            // It only prints: a panic in it is of no use to anybody.
            let _ = ticker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::digest;

    #[test]
    fn every_input_and_its_place_count() {
        assert_eq!(digest(&["a", "b"]), digest(&["a", "b"]));
        assert_ne!(digest(&["a", "b"]), digest(&["b", "a"]));
        assert_ne!(digest(&["ab"]), digest(&["a", "b"]));
        assert_eq!(digest(&[]).len(), 12);
    }
}

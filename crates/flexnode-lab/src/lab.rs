//! A lab: a slot of this machine with a network of its own, in which a control plane and hosts run.

use crate::record::{self, Record};
use crate::run::must;
use crate::{cache, poll, prerequisites};
use anyhow::{Context as _, Result, anyhow, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);
/// Slots of one machine; a slot is also the third byte of the lab's network.
const SLOTS: std::ops::RangeInclusive<u8> = 1..=250;
/// The bridge in the lab's namespace.
pub(crate) const BRIDGE: &str = "lab0";

/// A slot with its network: a bridge at 10.99.SLOT.1/24 in a network namespace named `flexnode-SLOT`. Nothing leads out of it.
///
/// Cheap to clone. When the last clone is gone, all of it is removed, unless it was kept.
#[derive(Clone, Debug)]
pub struct Lab {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    slot: u8,
    record: Record,
    kept: AtomicBool,
    /// Held as long as this lab lives: a record whose lock is free and that was not kept is a leftover.
    lock: Option<File>,
}

impl Lab {
    /// Removes what killed labs left, takes a free slot and makes its network.
    pub fn new() -> Result<Self> {
        prerequisites::ensure()?;
        sweep()?;
        for slot in slots_after_last()? {
            if let Some(lab) = Self::take(slot)? {
                return Ok(lab);
            }
        }
        bail!("all {} slots for labs are taken; `cargo xtask lab down` removes kept ones", SLOTS.count());
    }

    /// As [`Lab::new`], with this slot: for machines that have its addresses already. It is waited for when it is taken.
    pub fn at(slot: u8) -> Result<Self> {
        prerequisites::ensure()?;
        sweep()?;
        poll(Duration::from_secs(600), Duration::from_secs(1), &format!("slot {slot} to be free"), || Self::take(slot))
    }

    fn take(slot: u8) -> Result<Option<Self>> {
        let folder = folder(slot)?;
        let Some(lock) = try_lock(slot)? else { return Ok(None) };
        if folder.exists() {
            return Ok(None);
        }
        fs::write(last_file()?, slot.to_string())?;
        let record = Record::create(&folder)?;
        let inner = Inner { slot, record, kept: AtomicBool::new(false), lock: Some(lock) };
        let lab = Self { inner: Arc::new(inner) };
        lab.make_network().context("cannot make the lab's network")?;
        Ok(Some(lab))
    }

    /// The lab that was kept, if there is one.
    pub fn open() -> Result<Option<Self>> {
        for slot in SLOTS {
            if is_kept(&folder(slot)?) {
                let record = Record::open(&folder(slot)?)?;
                let inner = Inner { slot, record, kept: AtomicBool::new(true), lock: None };
                return Ok(Some(Self { inner: Arc::new(inner) }));
            }
        }
        Ok(None)
    }

    /// From now on the lab and all in it stays when this process ends.
    pub fn keep(&self) -> Result<()> {
        fs::write(self.record().folder.join("kept"), "")?;
        self.inner.kept.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Takes [`Lab::keep`] back: it goes again with its last clone.
    pub fn release(&self) -> Result<()> {
        fs::remove_file(self.record().folder.join("kept"))?;
        self.inner.kept.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Whether it stays.
    pub fn is_kept(&self) -> bool {
        self.inner.kept.load(Ordering::Relaxed)
    }

    /// Its number on this machine.
    pub fn slot(&self) -> u8 {
        self.inner.slot
    }

    /// The name of its network namespace.
    pub fn namespace(&self) -> String {
        format!("flexnode-{}", self.slot())
    }

    /// The address of its bridge, where the control plane listens: `10.99.SLOT.1`.
    pub fn gateway(&self) -> String {
        self.address(1)
    }

    /// An address of its network.
    pub fn address(&self, number: u8) -> String {
        format!("10.99.{}.{number}", self.slot())
    }

    /// Its directory, for files of a test; removed with the lab.
    pub fn folder(&self) -> &Path {
        &self.record().folder
    }

    pub(crate) fn record(&self) -> &Record {
        &self.inner.record
    }

    /// A command that will run in the lab's network namespace; the process is the program's own.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace())).arg("--").arg(program);
        command
    }

    /// Runs `work` in a thread that is in the lab's network namespace: for clients in the test's own process.
    pub fn in_network<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        in_namespace(&self.namespace(), work)
    }

    fn make_network(&self) -> Result<()> {
        let name = self.namespace();
        record::add_namespace(self.record(), &name)?;
        let address = format!("{}/24", self.gateway());
        for words in [
            &["link", "add", BRIDGE, "type", "bridge"] as &[&str],
            &["addr", "add", &address, "dev", BRIDGE],
            &["link", "set", BRIDGE, "up"],
        ] {
            must(Command::new("ip").args(["-n", &name]).args(words), LIMIT)?;
        }
        // Hosts reach each other's pods through it.
        let forward = "/proc/sys/net/ipv4/ip_forward";
        let set = format!("echo 1 > {forward}");
        must(self.command(Path::new("sh")).args(["-c", &set]), LIMIT)?;
        Ok(())
    }
}

/// Runs `work` in a thread that is in a named network namespace.
pub(crate) fn in_namespace<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    let path = format!("/run/netns/{name}");
    let namespace = File::open(&path).with_context(|| format!("cannot open {path}"))?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        });
        thread.join().map_err(|_| anyhow!("the work in {path} panicked"))?
    })
}

impl Drop for Inner {
    fn drop(&mut self) {
        if *self.kept.get_mut() {
            return;
        }
        if let Err(error) = self.record.remove() {
            eprintln!("lab: {error:#}");
        }
        drop(self.lock.take());
    }
}

/// Removes what labs left whose process was killed. Labs that were kept and labs of living processes stay.
pub fn sweep() -> Result<()> {
    remove_where(|folder| !is_kept(folder))
}

/// Removes the labs that were kept; also what killed ones left.
pub fn down() -> Result<()> {
    remove_where(|_| true)
}

fn remove_where(wanted: impl Fn(&Path) -> bool) -> Result<()> {
    for slot in SLOTS {
        let folder = folder(slot)?;
        if !folder.exists() || !wanted(&folder) {
            continue;
        }
        let Some(_lock) = try_lock(slot)? else { continue };
        // Looked at again: until the lock was taken, another process may have removed it or made a new one.
        if folder.exists() && wanted(&folder) {
            Record { folder }.remove()?;
        }
    }
    Ok(())
}

/// All slots, beginning after the one that was taken last: names and addresses do not come again soon, so that what one
/// lab left can be told from what the next one has.
fn slots_after_last() -> Result<impl Iterator<Item = u8>> {
    let last = fs::read_to_string(last_file()?).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    Ok(SLOTS.filter(move |slot| *slot > last).chain(SLOTS.filter(move |slot| *slot <= last)))
}

fn last_file() -> Result<PathBuf> {
    Ok(cache::dir()?.join("labs").join("last"))
}

fn is_kept(folder: &Path) -> bool {
    folder.join("kept").exists()
}

fn folder(slot: u8) -> Result<PathBuf> {
    Ok(cache::dir()?.join("labs").join(slot.to_string()))
}

fn try_lock(slot: u8) -> Result<Option<File>> {
    let path = folder(slot)?.with_extension("lock");
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let file = File::options().create(true).append(true).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(cause) => Err(cause).with_context(|| format!("cannot lock {}", path.display())),
    }
}

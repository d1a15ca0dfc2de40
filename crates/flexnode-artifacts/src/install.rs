//! Artifacts into a slot: verified while they are copied or unpacked, one pass over the bytes.
//!
//! Every file is written under a temporary name. Only when all artifacts of the call matched their digests and all files
//! are on the device, the final names are given. So a call that fails leaves nothing under a final name that was not
//! there before.

use crate::digest::HashingReader;
use crate::error::ArtifactError;
use crate::names::Role;
use crate::resolve::Artifact;
use crate::stage::{StageError, Staged};
use crate::tarball::{self, Limits, Member};
use flexnode_host::durable;
use flexnode_host::{FileWriter, Fs, FsError};
use std::collections::{BTreeSet, VecDeque};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

/// Mode of every installed program.
const PROGRAM_MODE: u32 = 0o755;
/// Mode of the directories of a slot; the LocalDNS unit runs as another user and passes through them.
const DIR_MODE: u32 = 0o755;
/// Bytes that are read from a source at a time.
const BUFFER: usize = 1 << 20;
/// Threads that only wait for the device. Two let the file system put several syncs into one commit.
const SYNCERS: usize = 2;
/// A gzipped archive of Go programs unpacks to about 2.7 times its size; less than this was not seen.
const UNPACKED: u64 = 2;

/// Where files go, by role. These come from the backend, never from a source.
#[derive(Clone, Debug)]
pub struct Destinations {
    /// kubelet, kubectl, containerd and its helpers, runc, crictl.
    pub bin: PathBuf,
    /// CNI plugins.
    pub cni: PathBuf,
}

/// A file that was installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledFile {
    /// Its host path.
    pub path: PathBuf,
    /// SHA-256 of its content, 64 hexadecimal digits. For a slot's manifest: no second pass over the bytes is needed.
    pub sha256: String,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
}

/// Installs programs and archives; artifacts of the role [`Role::Image`] and [`Role::KubeProxy`] are left out.
///
/// `stop` ends it at the next chunk with [`ArtifactError::Stopped`]. What an earlier, killed run left under temporary
/// names in the destinations is swept first; the caller holds the lock that makes this safe. Blocks the thread and uses
/// a thread per processor.
pub fn install(
    fs: &dyn Fs,
    artifacts: &[Artifact],
    to: &Destinations,
    stop: &AtomicBool,
) -> Result<Vec<InstalledFile>, ArtifactError> {
    let wanted: Vec<_> = artifacts.iter().filter(|a| !matches!(a.role, Role::Image | Role::KubeProxy)).collect();
    let needed = needed(&wanted);
    install_all(fs, &wanted, needed, to, stop).map_err(|error| error.needing(needed))
}

fn install_all(
    fs: &dyn Fs,
    wanted: &[&Artifact],
    needed: u64,
    to: &Destinations,
    stop: &AtomicBool,
) -> Result<Vec<InstalledFile>, ArtifactError> {
    for dir in [&to.bin, &to.cni] {
        durable::ensure_dir(fs, dir, DIR_MODE)?;
        durable::sweep(fs, dir)?;
    }
    check_space(fs, needed, to)?;
    let staged = stage_all(fs, wanted, to, stop)?;
    no_duplicates(&staged)?;
    let mut files: Vec<_> = staged.iter().map(describe).collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    for file in staged {
        file.publish()?;
    }
    for dir in [&to.bin, &to.cni] {
        fs.sync_dir(dir)?;
    }
    Ok(files)
}

fn describe(file: &Staged<'_>) -> InstalledFile {
    InstalledFile { path: file.path().to_path_buf(), sha256: file.digest.to_string(), size: file.size, mode: file.mode }
}

/// Two archives must not claim one file.
fn no_duplicates(staged: &[Staged<'_>]) -> Result<(), ArtifactError> {
    let mut seen = BTreeSet::new();
    match staged.iter().find(|file| !seen.insert(file.path())) {
        Some(twice) => Err(ArtifactError::archive(twice.path(), "two artifacts of the source would write it")),
        None => Ok(()),
    }
}

/// Bytes that the files need at least.
fn needed(artifacts: &[&Artifact]) -> u64 {
    artifacts.iter().map(|a| if a.role.is_archive() { a.size * UNPACKED } else { a.size }).sum()
}

/// Fails early where it is certain that the files will not fit.
fn check_space(fs: &dyn Fs, needed: u64, to: &Destinations) -> Result<(), ArtifactError> {
    let free = fs.free_bytes(&to.bin)?;
    if free < needed {
        return Err(ArtifactError::NoSpace { dir: to.bin.clone(), needed, free });
    }
    Ok(())
}

type ToSync = (Box<dyn FileWriter>, PathBuf);

/// Writes all files under temporary names and syncs them, with a thread per processor for the bytes and two that wait
/// for the device meanwhile.
fn stage_all<'a>(
    fs: &'a dyn Fs,
    artifacts: &[&Artifact],
    to: &Destinations,
    stop: &AtomicBool,
) -> Result<Vec<Staged<'a>>, ArtifactError> {
    let mut queue: Vec<_> = artifacts.to_vec();
    // The most work first, so that the threads end together.
    queue.sort_by_key(|a| std::cmp::Reverse(if a.role.is_archive() { a.size * 4 } else { a.size }));
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(queue.len()).min(4);
    let queue = Mutex::new(VecDeque::from(queue));
    let failed = AtomicBool::new(false);
    let results = Mutex::new((Vec::new(), Vec::new()));
    let (sender, receiver) = mpsc::channel::<ToSync>();
    let receiver = Mutex::new(receiver);
    let keep = |result: Result<Vec<Staged<'a>>, ArtifactError>| {
        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(files) => results.0.extend(files),
            Err(error) => {
                failed.store(true, Ordering::Relaxed);
                results.1.push(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let (sender, queue, keep, failed) = (sender.clone(), &queue, &keep, &failed);
            scope.spawn(move || {
                while let Some(artifact) = next(queue)
                    && !failed.load(Ordering::Relaxed)
                {
                    keep(stage_one(fs, artifact, to, Stop { caller: stop, failed }, &sender));
                }
            });
        }
        drop(sender);
        for _ in 0..SYNCERS {
            scope.spawn(|| {
                while let Some((mut file, path)) = receive(&receiver) {
                    if let Err(e) = file.sync() {
                        keep(Err(ArtifactError::write(FsError::new("sync", &path, e), &path)));
                    }
                }
            });
        }
    });
    let (files, errors) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Others stopped because one failed; that one is what the person has to know.
    match errors.into_iter().reduce(|first, next| if matches!(first, ArtifactError::Stopped) { next } else { first }) {
        Some(error) => Err(error),
        None => Ok(files),
    }
}

fn next<T>(queue: &Mutex<VecDeque<T>>) -> Option<T> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

fn receive(receiver: &Mutex<mpsc::Receiver<ToSync>>) -> Option<ToSync> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// Two reasons to stop.
#[derive(Clone, Copy)]
struct Stop<'a> {
    caller: &'a AtomicBool,
    failed: &'a AtomicBool,
}

impl Stop<'_> {
    fn asked(self) -> bool {
        self.caller.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }
}

/// One artifact: read once, hashed, its files staged, its digest compared.
fn stage_one<'a>(
    fs: &'a dyn Fs,
    artifact: &Artifact,
    to: &Destinations,
    stop: Stop<'_>,
    sync: &mpsc::Sender<ToSync>,
) -> Result<Vec<Staged<'a>>, ArtifactError> {
    let started = std::time::Instant::now();
    let mut source = HashingReader::new(Stopping { inner: fs.open(&artifact.source)?, stop });
    let staged = if artifact.role.is_archive() {
        unpack(fs, artifact, to, &mut source, sync)
    } else {
        let path = to.bin.join(artifact.role.name());
        stage(fs, &path, &mut source, sync).map(|file| vec![file]).map_err(|e| e.blame("read", &artifact.source))
    };
    // A failed read after a stop is the stop.
    let staged = if stop.asked() { Err(ArtifactError::Stopped) } else { staged }?;
    let (found, _) = source.finish();
    if found != artifact.digest {
        return Err(ArtifactError::WrongDigest {
            path: artifact.source.clone(),
            expected: artifact.digest.to_string(),
            found: found.to_string(),
        });
    }
    tracing::debug!(artifact = artifact.path, files = staged.len(), took = ?started.elapsed(), "verified and staged");
    Ok(staged)
}

fn unpack<'a>(
    fs: &'a dyn Fs,
    artifact: &Artifact,
    to: &Destinations,
    source: &mut dyn Read,
    sync: &mpsc::Sender<ToSync>,
) -> Result<Vec<Staged<'a>>, ArtifactError> {
    let mut staged: Vec<Staged<'a>> = Vec::new();
    tarball::walk(source, &artifact.source, Limits::PROGRAMS, &mut |member, bytes| {
        if let Some(path) = destination(artifact.role, member, to) {
            let file = stage(fs, &path, bytes, sync);
            staged.push(file.map_err(|e| in_archive(e, &artifact.source, &member.name))?);
        }
        Ok(())
    })?;
    let names = staged.iter().filter_map(|file| file.path().file_name()?.to_str());
    let missing = missing_members(artifact.role, &names.collect::<Vec<_>>());
    if missing.is_empty() {
        Ok(staged)
    } else {
        Err(ArtifactError::archive(&artifact.source, format!("it has no {}", missing.join(", no "))))
    }
}

fn in_archive(error: StageError, archive: &Path, member: &str) -> ArtifactError {
    match error {
        StageError::Source(e) => ArtifactError::Archive {
            path: archive.to_path_buf(),
            reason: format!("it is damaged or cut off in the member {member:?}"),
            source: Some(e),
        },
        StageError::Other(e) => e,
    }
}

fn stage<'a>(
    fs: &'a dyn Fs,
    path: &Path,
    reader: &mut dyn Read,
    sync: &mpsc::Sender<ToSync>,
) -> Result<Staged<'a>, StageError> {
    let (file, writer) = Staged::write(fs, path, PROGRAM_MODE, reader)?;
    // The receivers live as long as the scope.
    let _ = sync.send((writer, path.to_path_buf()));
    Ok(file)
}

/// Where a member of a release archive goes; `None` for what is not a program of it (licences, other tools).
///
/// The name is checked to be a plain file name, so a destination is always directly in one of the two directories.
pub(crate) fn destination(role: Role, member: &Member, to: &Destinations) -> Option<PathBuf> {
    let name = member.file_name();
    let plain = !name.starts_with(['.', '-']) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if !plain {
        return None;
    }
    match (role, member.directory()) {
        (Role::Containerd, "bin" | "") if name == "ctr" || name.starts_with("containerd") => Some(to.bin.join(name)),
        (Role::Crictl, "") if name == "crictl" => Some(to.bin.join(name)),
        (Role::Cni, "") if member.executable => Some(to.cni.join(name)),
        _ => None,
    }
}

/// Which files an archive of this role has to hold and does not.
pub(crate) fn missing_members(role: Role, have: &[&str]) -> Vec<&'static str> {
    let needed: &[&'static str] = match role {
        Role::Containerd => &["containerd", "containerd-shim-runc-v2", "ctr"],
        Role::Cni => &["loopback", "host-local"],
        Role::Crictl => &["crictl"],
        _ => &[],
    };
    needed.iter().filter(|name| !have.contains(*name)).copied().collect()
}

/// Fails its reads once somebody asked to stop.
struct Stopping<'a, R> {
    inner: R,
    stop: Stop<'a>,
}

impl<R: Read> Read for Stopping<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.stop.asked() {
            return Err(std::io::Error::other("stopped"));
        }
        let most = buffer.len().min(BUFFER);
        self.inner.read(&mut buffer[..most])
    }
}

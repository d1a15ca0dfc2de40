//! Whether a slot is whole: its manifest names every other file with digest, size and mode, and is written last.

use super::hooks::WrittenFile;
use super::layout::Layout;
use super::units::{UNIT_MODE, UnitError, UnitSpec, render_containerd, render_kubelet};
use flexnode_host::durable::{self, Change};
use flexnode_host::{FileKind, Fs, FsError, Stat};
use flexnode_model::{DocumentError, SlotName, SlotNameError, document};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The manifest, relative to the slot.
pub const MANIFEST: &str = "etc/manifest.json";
/// The unit specification that the slot was prepared with, relative to the slot.
pub const UNIT_SPEC: &str = "etc/units/spec.json";
/// A manifest has a few hundred entries of about a hundred bytes.
const MANIFEST_LIMIT: u64 = 4 << 20;
const SPEC_LIMIT: u64 = 64 << 10;
const VERSION: u32 = 1;
/// What this program renders; a difference to a slot's own is reported, never acted upon.
pub const RENDERER: &str = concat!("aks-flex-node ", env!("CARGO_PKG_VERSION"));

/// A slot that is not what its manifest says.
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    /// It is no directory.
    #[error("version {slot} is not installed")]
    Absent {
        /// The slot.
        slot: String,
    },
    /// It has no manifest: its preparation did not end.
    #[error("version {slot} is incomplete, its preparation did not end; `aks-flex-node slots repair` completes it")]
    Incomplete {
        /// The slot.
        slot: String,
    },
    /// A file is missing or is not the one that was installed.
    #[error("version {slot} is damaged: {} {problem}; `aks-flex-node slots repair` mends it", path.display())]
    Damaged {
        /// The slot.
        slot: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The manifest cannot be read.
    #[error("the manifest {} cannot be read; `aks-flex-node slots repair` makes it again", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: DocumentError,
    },
    /// No name of a slot.
    #[error(transparent)]
    Name(#[from] SlotNameError),
    /// The slot's units could not be rendered or recorded.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A file operation.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// A file of a slot as it was installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// SHA-256 in lower-case hexadecimal digits.
    pub sha256: String,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
}

/// What a slot consists of. Paths are relative to the slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Format of this document: 1.
    pub version: u32,
    /// The slot's name.
    pub slot: String,
    /// Fingerprint of the goal that it was made from; may be empty.
    pub goal: String,
    /// The program that rendered its configuration.
    pub renderer: String,
    /// Every regular file but the manifest.
    pub files: BTreeMap<String, FileEntry>,
    /// Every link, with its text.
    #[serde(default)]
    pub links: BTreeMap<String, String>,
}

/// How closely a slot is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Every file is there with its size and mode. Fast enough for the time that a node is down.
    Shape,
    /// The content of every file too.
    Content,
}

/// The manifest of a slot that is whole; otherwise the reason why it is not.
///
/// Files that the manifest does not name do no harm to what it names and are not looked at.
pub fn verify(fs: &dyn Fs, layout: &Layout, slot: &str, level: Level) -> Result<Manifest, SlotError> {
    let manifest = read(fs, layout, slot)?;
    let dir = layout.version_dir(slot);
    let names = manifest.files.keys().chain(manifest.links.keys());
    for name in names {
        if let Some(problem) = damage(fs, &dir, &manifest, name, level)? {
            return Err(SlotError::Damaged { slot: slot.to_owned(), path: dir.join(name), problem });
        }
    }
    Ok(manifest)
}

/// What is wrong with one file or link that the manifest names; `None` when it is as it was installed.
pub(crate) fn damage(
    fs: &dyn Fs,
    dir: &Path,
    manifest: &Manifest,
    name: &str,
    level: Level,
) -> Result<Option<String>, FsError> {
    let path = dir.join(name);
    let found = fs.lstat(&path)?;
    if let Some(target) = manifest.links.get(name) {
        let is_link = found.is_some_and(|stat| stat.kind == FileKind::Link);
        let same = is_link && fs.read_link(&path)? == Path::new(target);
        return Ok((!same).then(|| format!("is not the link to {target} any more")));
    }
    let Some(entry) = manifest.files.get(name) else { return Ok(None) };
    Ok(match found {
        None => Some("is missing".into()),
        Some(stat) if stat.kind != FileKind::File => Some(format!("is a {}", stat.kind)),
        Some(stat) if stat.size != entry.size => Some(format!("has {} bytes, not {}", stat.size, entry.size)),
        Some(stat) if stat.mode != entry.mode => Some(format!("has mode {:o}, not {:o}", stat.mode, entry.mode)),
        Some(_) if level == Level::Content && digest(fs, &path)? != entry.sha256 => {
            Some("has another content than was installed".into())
        }
        Some(_) => None,
    })
}

/// The manifest of a slot, without comparing it with the files.
pub fn read(fs: &dyn Fs, layout: &Layout, slot: &str) -> Result<Manifest, SlotError> {
    SlotName::new(slot)?;
    let dir = layout.version_dir(slot);
    if fs.lstat(&dir)?.is_none_or(|stat| stat.kind != FileKind::Dir) {
        return Err(SlotError::Absent { slot: slot.to_owned() });
    }
    let path = dir.join(MANIFEST);
    let Some(bytes) = fs.read(&path, MANIFEST_LIMIT)? else {
        return Err(SlotError::Incomplete { slot: slot.to_owned() });
    };
    let unreadable = |source| SlotError::Manifest { path: path.clone(), source };
    let manifest: Manifest = document::decode(&bytes, "manifest of a version", VERSION).map_err(unreadable)?;
    let climbs = |name: &String| Path::new(name).components().any(|c| !matches!(c, std::path::Component::Normal(_)));
    if let Some(name) = manifest.files.keys().chain(manifest.links.keys()).find(|name| climbs(name)) {
        let problem = format!("names {name:?}, which is no path in the version");
        return Err(SlotError::Damaged { slot: slot.to_owned(), path, problem });
    }
    Ok(manifest)
}

/// Digests of files that this process has just written, each with what the file was right after: as long as it is that, its
/// content is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(BTreeMap<PathBuf, (Stat, String)>);

impl Known {
    /// Takes the files of an installer. One that is not what was written, or is not there, is left out, and so is read.
    pub(crate) fn of(fs: &dyn Fs, files: Vec<WrittenFile>) -> Result<Self, FsError> {
        let mut known = BTreeMap::new();
        for file in files {
            if let Some(stat) = fs.lstat(&file.path)?.filter(|s| s.kind == FileKind::File && s.size == file.size) {
                known.insert(file.path, (stat, file.sha256));
            }
        }
        Ok(Self(known))
    }

    /// The digest of a file that is still the very one: the same inode, size, owner and time of change.
    fn digest(&self, path: &Path, stat: &Stat) -> Option<String> {
        self.0.get(path).filter(|(then, _)| then == stat).map(|(_, digest)| digest.clone())
    }
}

/// Records the units of a slot and writes its manifest, last and durably: from then on the slot is complete and is never
/// written again.
pub(crate) fn seal(
    fs: &dyn Fs,
    layout: &Layout,
    slot: &str,
    goal: &str,
    spec: &UnitSpec,
    known: &Known,
) -> Result<Manifest, SlotError> {
    let dir = layout.version_dir(slot);
    record_units(fs, &dir, spec)?;
    let mut manifest = Manifest {
        version: VERSION,
        slot: slot.to_owned(),
        goal: goal.to_owned(),
        renderer: RENDERER.to_owned(),
        files: BTreeMap::new(),
        links: BTreeMap::new(),
    };
    scan(fs, &dir, Path::new(""), known, &mut manifest)?;
    durable::write(fs, &dir.join(MANIFEST), &document::encode(&manifest), 0o644)?;
    Ok(manifest)
}

/// The unit spec that a slot was prepared with; `None` when it recorded none.
pub fn recorded_units(fs: &dyn Fs, layout: &Layout, slot: &str) -> Result<Option<UnitSpec>, UnitError> {
    let path = layout.version_dir(slot).join(UNIT_SPEC);
    let Some(bytes) = fs.read(&path, SPEC_LIMIT)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|source| UnitError::Record { path, source })
}

fn record_units(fs: &dyn Fs, dir: &Path, spec: &UnitSpec) -> Result<Change, UnitError> {
    let units = dir.join("etc/units");
    durable::ensure_dir(fs, &units, 0o755)?;
    // The bytes are for people and for comparing; a rollback renders from the spec.
    for (name, bytes) in [
        (super::consts::UNIT_CONTAINERD, render_containerd(spec)?),
        (super::consts::UNIT_KUBELET, render_kubelet(spec)?),
    ] {
        durable::write(fs, &units.join(name), &bytes, UNIT_MODE)?;
    }
    Ok(durable::write(fs, &dir.join(UNIT_SPEC), &document::encode(spec), UNIT_MODE)?)
}

/// Adds all files and links below `below` of the slot.
fn scan(fs: &dyn Fs, slot: &Path, below: &Path, known: &Known, manifest: &mut Manifest) -> Result<(), SlotError> {
    for entry in fs.read_dir(&slot.join(below))? {
        let relative = below.join(&entry.name);
        let path = slot.join(&relative);
        let Some(name) = relative.to_str() else {
            let problem = "has a name that is not valid UTF-8".to_owned();
            return Err(SlotError::Damaged { slot: manifest.slot.clone(), path, problem });
        };
        match entry.kind {
            FileKind::Dir => scan(fs, slot, &relative, known, manifest)?,
            FileKind::File if name == MANIFEST => {}
            FileKind::File => {
                let Some(stat) = fs.lstat(&path)? else { continue };
                let sha256 = match known.digest(&path, &stat) {
                    Some(sha256) => sha256,
                    None => digest(fs, &path)?,
                };
                let file = FileEntry { sha256, size: stat.size, mode: stat.mode };
                manifest.files.insert(name.to_owned(), file);
            }
            FileKind::Link => {
                let target = fs.read_link(&path)?.to_string_lossy().into_owned();
                manifest.links.insert(name.to_owned(), target);
            }
            FileKind::Other => {
                let problem = format!("is a {}, which no version has", entry.kind);
                return Err(SlotError::Damaged { slot: manifest.slot.clone(), path, problem });
            }
        }
    }
    Ok(())
}

fn digest(fs: &dyn Fs, path: &Path) -> Result<String, FsError> {
    let mut file = fs.open(path)?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 256 << 10];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => hash.update(&chunk[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(FsError::new("read", path, e)),
        }
    }
    Ok(hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
mod tests;

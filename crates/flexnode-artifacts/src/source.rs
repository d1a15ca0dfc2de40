//! The offline bundle: a directory with `manifest.json` and the artifacts at fixed places.

use crate::digest::{Digest, HashingReader, parse_sidecar};
use crate::error::ArtifactError;
use crate::trust::Trust;
use flexnode_host::{Fs, FsError, Stat};
use flexnode_model::BundleManifest;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The manifest's name.
pub(crate) const MANIFEST: &str = "manifest.json";
/// Largest manifest that is read.
const MAX_MANIFEST: u64 = 4 << 20;
/// Largest `.sha256` file that is read.
const MAX_SIDECAR: u64 = 1024;
/// What is appended to an artifact's name for its digest file.
pub(crate) const SIDECAR: &str = ".sha256";

/// An offline bundle that belongs to root.
#[derive(Clone, Debug)]
pub struct Bundle {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    trust: Trust,
    manifest: BundleManifest,
}

impl Bundle {
    /// Opens the bundle in `dir`, an absolute path that may lead there through links of root.
    ///
    /// Fails when the directory or its manifest may be changed by somebody whom `trust` does not name, and when the
    /// manifest is missing, not JSON, or of another schema version.
    pub fn open(fs: Arc<dyn Fs>, dir: &Path, trust: Trust) -> Result<Self, ArtifactError> {
        let dir = trust.directory(fs.as_ref(), dir)?;
        let path = dir.join(MANIFEST);
        let unusable = |reason: String, source| ArtifactError::Manifest { path: path.clone(), reason, source };
        if trust.file(fs.as_ref(), &dir, MANIFEST)?.is_none() {
            let reason = "it is not there; an offline bundle is made with `aks-flex-node bundle`";
            return Err(unusable(reason.into(), None));
        }
        let bytes = fs.read(&path, MAX_MANIFEST)?.unwrap_or_default();
        let manifest = BundleManifest::decode(&bytes)
            .map_err(|e| unusable("it is no manifest of an offline bundle".into(), Some(Box::new(e))))?;
        Ok(Self { fs, dir, trust, manifest })
    }

    /// Where it really is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What it says of itself.
    pub fn manifest(&self) -> &BundleManifest {
        &self.manifest
    }

    pub(crate) fn fs(&self) -> &dyn Fs {
        self.fs.as_ref()
    }

    /// The artifact at `path`, a place that this crate computed; `None` when it is not there.
    pub(crate) fn stat(&self, path: &str) -> Result<Option<Stat>, ArtifactError> {
        self.trust.file(self.fs(), &self.dir, path)
    }

    /// The digest that the source promises for `path`: from the manifest's `digests`, or from the file beside it. `Err`
    /// holds a sentence about a digest that cannot be used.
    pub(crate) fn promised(&self, path: &str) -> Result<Result<Option<Digest>, String>, ArtifactError> {
        let in_manifest = match self.manifest.digests.get(path).map(|text| text.parse::<Digest>()) {
            Some(Err(e)) => return Ok(Err(format!("`digests` of {MANIFEST} for {path}: {e}"))),
            Some(Ok(digest)) => Some(digest),
            None => None,
        };
        let beside = format!("{path}{SIDECAR}");
        if self.stat(&beside)?.is_none() {
            return Ok(Ok(in_manifest));
        }
        let bytes = match self.fs.read(&self.dir.join(&beside), MAX_SIDECAR) {
            Ok(bytes) => bytes.unwrap_or_default(),
            Err(e) if e.kind() == std::io::ErrorKind::FileTooLarge => {
                return Ok(Err(format!("{beside} is larger than {MAX_SIDECAR} bytes")));
            }
            Err(e) => return Err(e.into()),
        };
        Ok(match (parse_sidecar(&bytes), in_manifest) {
            (Err(e), _) => Err(format!("{beside}: {e}")),
            (Ok(found), Some(other)) if found != other => {
                Err(format!("{beside} and `digests` of {MANIFEST} promise different digests"))
            }
            (Ok(found), _) => Ok(Some(found)),
        })
    }
}

/// Reads a whole file and gives its digest and size.
pub(crate) fn measure(fs: &dyn Fs, path: &Path) -> Result<(Digest, u64), ArtifactError> {
    let mut reader = HashingReader::new(fs.open(path)?);
    let mut chunk = vec![0; 256 << 10];
    loop {
        match std::io::Read::read(&mut reader, &mut chunk) {
            Ok(0) => return Ok(reader.finish()),
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(FsError::new("read", path, e).into()),
        }
    }
}

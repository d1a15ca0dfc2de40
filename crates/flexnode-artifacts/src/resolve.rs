//! Which artifacts of a bundle a machine needs, and whether they are all there and verifiable.

use crate::digest::{Digest, HashingReader};
use crate::error::ArtifactError;
use crate::image::identifiers;
use crate::names::{ARCHITECTURES, Role, clean_version, image_path};
use crate::source::{Bundle, MANIFEST, SIDECAR, measure};
use flexnode_host::FsError;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

/// What a machine wants of a source. Versions with or without `v`.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// `components.kubernetes`.
    pub kubernetes: String,
    /// `components.containerd`, when the configuration names it.
    pub containerd: Option<String>,
    /// `components.runc`, when the configuration names it.
    pub runc: Option<String>,
    /// `networking.cniVersion`, when the configuration names it.
    pub cni: Option<String>,
    /// `amd64` or `arm64`.
    pub arch: String,
    /// `bootstrap.allowUnverified`: artifacts that may be installed without a promised digest, by their path in the
    /// source or by the name of their role.
    pub allow_unverified: Vec<String>,
}

/// One artifact of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// What it is for.
    pub role: Role,
    /// Its place in the source.
    pub path: String,
    /// Its host path.
    pub source: PathBuf,
    /// Bytes.
    pub size: u64,
    /// The promised digest; where `verified` is false, what was measured when the source was looked at.
    pub digest: Digest,
    /// Whether the source promised the digest. Otherwise a person allowed it by name.
    pub verified: bool,
    /// The image reference, for [`Role::Image`].
    pub image: Option<String>,
}

/// All artifacts for a machine.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// In the order of roles, images last in the manifest's order.
    pub artifacts: Vec<Artifact>,
    /// Kubernetes version without `v`.
    pub kubernetes: String,
    /// containerd version without `v`.
    pub containerd: String,
    /// runc version without `v`.
    pub runc: String,
    /// Version of the CNI plugins without `v`.
    pub cni: String,
    /// Sentences for a person: optional files that are missing, artifacts without a digest.
    pub notes: Vec<String>,
}

impl Resolved {
    /// Path in the source to digest, for the machine goal.
    pub fn digests(&self) -> BTreeMap<String, String> {
        self.artifacts.iter().map(|a| (a.path.clone(), a.digest.to_string())).collect()
    }

    /// The image archives.
    pub fn images(&self) -> impl Iterator<Item = &Artifact> {
        self.artifacts.iter().filter(|a| a.role == Role::Image)
    }
}

/// What is collected while a bundle is looked through.
struct Search<'a> {
    bundle: &'a Bundle,
    artifacts: Vec<Artifact>,
    problems: Vec<String>,
    notes: Vec<String>,
    allowed: BTreeSet<&'a str>,
}

impl Bundle {
    /// Finds what `wanted` needs. Every problem is named: versions that differ, files that are missing, digests that are
    /// missing or of no use. Files are not read, but for `.sha256` files and artifacts without a digest that were
    /// allowed by name.
    pub fn resolve(&self, wanted: &Wanted) -> Result<Resolved, ArtifactError> {
        let allowed = wanted.allow_unverified.iter().map(String::as_str).collect();
        let mut search = Search { bundle: self, artifacts: vec![], problems: vec![], notes: vec![], allowed };
        if !ARCHITECTURES.contains(&wanted.arch.as_str()) {
            search.problems.push(format!("there are no artifacts for the architecture {}", wanted.arch));
        }
        let versions = &self.manifest().versions;
        let kubernetes = search.version("kubernetes", versions.kubernetes.as_deref(), Some(&wanted.kubernetes));
        let containerd = search.version("containerd", versions.containerd.as_deref(), wanted.containerd.as_deref());
        let runc = search.version("runc", versions.runc.as_deref(), wanted.runc.as_deref());
        let cni = search.version("cni", versions.cni.as_deref(), wanted.cni.as_deref());
        let crictl = versions.crictl.as_deref().and_then(clean_version);
        for (role, version) in [
            (Role::Kubelet, &kubernetes),
            (Role::Kubectl, &kubernetes),
            (Role::Containerd, &containerd),
            (Role::Runc, &runc),
            (Role::Cni, &cni),
            (Role::Crictl, &crictl),
        ] {
            match version {
                Some(version) => search.add(role, role.path(version, &wanted.arch), None)?,
                None if role == Role::Crictl => search.notes.push("the source has no crictl; none is installed".into()),
                None => {}
            }
        }
        for image in &self.manifest().container_images {
            if let Some(path) = image_path(image, &wanted.arch) {
                search.add(Role::Image, path, Some(image.clone()))?;
            } else {
                search.problems.push(format!("`containerImages` of {MANIFEST} names {image:?}, which is no image"));
            }
        }
        let (Some(kubernetes), Some(containerd), Some(runc), Some(cni)) = (kubernetes, containerd, runc, cni) else {
            return Err(search.unfit());
        };
        if !search.problems.is_empty() {
            return Err(search.unfit());
        }
        for left in &search.allowed {
            search.notes.push(format!("bootstrap.allowUnverified names {left}, which is verified or not installed"));
        }
        Ok(Resolved { artifacts: search.artifacts, kubernetes, containerd, runc, cni, notes: search.notes })
    }

    /// Reads an image archive again and compares it with its digest; to be imported at once.
    ///
    /// Images are not copied: the source belongs to root, and containerd keeps what it imported.
    pub fn verified_image(&self, image: &Artifact) -> Result<VerifiedImage, ArtifactError> {
        self.stat(&image.path)?;
        let mut reader = HashingReader::new(self.fs().open(&image.source)?);
        let reference = image.image.as_deref().unwrap_or_default();
        let told = identifiers(&mut reader, &image.source, reference);
        // An archive in another form than these is the runtime's to judge: it is told by its name alone.
        let identifiers = told.unwrap_or_default();
        io::copy(&mut reader, &mut io::sink()).map_err(|e| FsError::new("read", &image.source, e))?;
        let (found, _) = reader.finish();
        if found != image.digest {
            return Err(ArtifactError::WrongDigest {
                path: image.source.clone(),
                expected: image.digest.to_string(),
                found: found.to_string(),
            });
        }
        Ok(VerifiedImage { archive: image.source.clone(), identifiers })
    }
}

/// An image archive whose bytes are those that were promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedImage {
    /// Its host path.
    pub archive: PathBuf,
    /// The identifiers (`sha256:...` of its configuration) that the image may have in a runtime, one for each platform;
    /// none when the archive does not tell.
    pub identifiers: BTreeSet<String>,
}

impl Search<'_> {
    fn unfit(self) -> ArtifactError {
        ArtifactError::Unfit { dir: self.bundle.dir().to_path_buf(), problems: self.problems }
    }

    /// The version that the source has, when it is there, safe in a path, and the wanted one.
    fn version(&mut self, what: &str, have: Option<&str>, want: Option<&str>) -> Option<String> {
        let Some(have) = have else {
            self.problems.push(format!("`versions` of {MANIFEST} has no {what}"));
            return None;
        };
        let Some(version) = clean_version(have) else {
            self.problems.push(format!("`versions` of {MANIFEST} names {what} {have:?}, which is no version"));
            return None;
        };
        if let Some(want) = want
            && want.trim().trim_start_matches('v') != version
        {
            self.problems.push(format!("{what} {want} is wanted, the source has {version}"));
        }
        Some(version)
    }

    fn add(&mut self, role: Role, path: String, image: Option<String>) -> Result<(), ArtifactError> {
        let Some(stat) = self.bundle.stat(&path)? else {
            let required = role.is_required() || role == Role::Image;
            let list = if required { &mut self.problems } else { &mut self.notes };
            list.push(format!("{path} is missing{}", if required { "" } else { "; it is not needed" }));
            return Ok(());
        };
        let source = self.bundle.dir().join(&path);
        let allowed = self.allowed.remove(path.as_str()) | self.allowed.remove(role.name());
        let (digest, verified) = match self.bundle.promised(&path)? {
            Err(problem) => {
                self.problems.push(problem);
                return Ok(());
            }
            Ok(Some(digest)) => (digest, true),
            Ok(None) if allowed => {
                self.notes
                    .push(format!("{path} is installed without a promised digest, as bootstrap.allowUnverified says"));
                (measure(self.bundle.fs(), &source)?.0, false)
            }
            Ok(None) => {
                self.problems.push(no_digest(role, &path));
                return Ok(());
            }
        };
        self.artifacts.push(Artifact { role, path, source, size: stat.size, digest, verified, image });
        Ok(())
    }
}

fn no_digest(role: Role, path: &str) -> String {
    let place = if role.has_sidecar() {
        format!("{path}{SIDECAR}, or `digests` of {MANIFEST},")
    } else {
        format!("`digests` of {MANIFEST}")
    };
    format!("{path} has no digest: {place} has to promise one, or bootstrap.allowUnverified has to name the path")
}

//! Making an offline bundle from the release files that a person has.

mod program;
mod version;

use crate::digest::Digest;
use crate::error::ArtifactError;
use crate::image;
use crate::names::{ARCHITECTURES, Role, clean_version, image_path};
use crate::source::{MANIFEST, SIDECAR, measure};
use crate::stage::Staged;
use crate::tarball::{Packing, peek};
use flate2::bufread::MultiGzDecoder;
use flexnode_host::{Commands, FileWriter, Fs, FsError, durable};
use flexnode_model::BundleManifest;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// Files in a bundle can be read by everybody: they hold no secret.
const FILE_MODE: u32 = 0o644;
const PROGRAM_MODE: u32 = 0o755;
const DIR_MODE: u32 = 0o755;
const MAX_MANIFEST: u64 = 4 << 20;

/// Versions by component, where a person tells them.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    /// Of kubelet, kubectl and kube-proxy.
    pub kubernetes: Option<String>,
    /// Of containerd.
    pub containerd: Option<String>,
    /// Of runc.
    pub runc: Option<String>,
    /// Of the CNI plugins.
    pub cni: Option<String>,
    /// Of crictl.
    pub crictl: Option<String>,
}

/// What `aks-flex-node bundle` packs. All paths are absolute.
#[derive(Clone, Debug, Default)]
pub struct BundleRequest {
    /// The bundle's directory; made when it is missing, added to when it is a bundle.
    pub dir: PathBuf,
    /// `amd64` or `arm64`.
    pub arch: String,
    /// The kubelet program, or an archive that has it.
    pub kubelet: Option<PathBuf>,
    /// kubectl, likewise.
    pub kubectl: Option<PathBuf>,
    /// kube-proxy, likewise. This agent does not install it; older agents want it in a bundle.
    pub kube_proxy: Option<PathBuf>,
    /// containerd's release archive (gzipped or not), or a directory with its programs.
    pub containerd: Option<PathBuf>,
    /// The runc program.
    pub runc: Option<PathBuf>,
    /// The CNI plugins' release archive (gzipped or not), or a directory with the plugins.
    pub cni: Option<PathBuf>,
    /// crictl's release archive, or the program.
    pub crictl: Option<PathBuf>,
    /// Image archives (OCI layout or `docker save`, gzipped or not).
    pub images: Vec<PathBuf>,
    /// Versions that are told rather than found out.
    pub versions: Versions,
}

/// What was packed.
#[derive(Clone, Debug, Default)]
pub struct BundleReport {
    /// Paths in the bundle that were written.
    pub written: Vec<String>,
    /// Paths that had these bytes already.
    pub unchanged: Vec<String>,
    /// What a node cannot run without and the bundle does not have: one sentence each, with the release's file name.
    pub missing: Vec<String>,
    /// What is worth knowing besides.
    pub notes: Vec<String>,
    /// The images in it.
    pub images: Vec<String>,
}

impl Versions {
    fn of(&self, role: Role) -> Option<&str> {
        match role {
            Role::Kubelet | Role::Kubectl | Role::KubeProxy => self.kubernetes.as_deref(),
            Role::Containerd => self.containerd.as_deref(),
            Role::Runc => self.runc.as_deref(),
            Role::Cni => self.cni.as_deref(),
            Role::Crictl => self.crictl.as_deref(),
            Role::Image => None,
        }
    }
}

impl BundleRequest {
    fn input(&self, role: Role) -> Option<&Path> {
        match role {
            Role::Kubelet => self.kubelet.as_deref(),
            Role::Kubectl => self.kubectl.as_deref(),
            Role::KubeProxy => self.kube_proxy.as_deref(),
            Role::Containerd => self.containerd.as_deref(),
            Role::Runc => self.runc.as_deref(),
            Role::Cni => self.cni.as_deref(),
            Role::Crictl => self.crictl.as_deref(),
            Role::Image => None,
        }
    }
}

/// Packs a bundle, or adds to one. Every file is complete and on the device before it gets its name, the manifest is
/// written last; run again with the same files it changes nothing.
///
/// Versions come from the request, from the file names of official releases, or from the programs themselves
/// (`--version`, when they are for this machine). What is missing is reported, not an error: a bundle can be made in
/// several runs.
pub async fn pack(
    fs: &dyn Fs,
    commands: &dyn Commands,
    request: &BundleRequest,
) -> Result<BundleReport, ArtifactError> {
    if !ARCHITECTURES.contains(&request.arch.as_str()) {
        let reason = format!("the architecture {:?} is none of {}", request.arch, ARCHITECTURES.join(", "));
        return Err(ArtifactError::input(&request.dir, reason));
    }
    durable::ensure_dir(fs, &request.dir, DIR_MODE)?;
    durable::sweep(fs, &request.dir)?;
    let manifest = existing(fs, &request.dir)?;
    let mut packer = Packer { fs, commands, request, manifest, report: BundleReport::default() };
    for role in Role::PROGRAMS {
        if let Some(input) = request.input(role) {
            packer.program(role, input).await?;
        }
    }
    for archive in &request.images {
        packer.image(archive)?;
    }
    packer.finish()
}

/// The manifest of a bundle that is added to, or an empty one.
fn existing(fs: &dyn Fs, dir: &Path) -> Result<BundleManifest, ArtifactError> {
    let path = dir.join(MANIFEST);
    let Some(bytes) = fs.read(&path, MAX_MANIFEST)? else { return Ok(BundleManifest::default()) };
    BundleManifest::decode(&bytes).map_err(|e| ArtifactError::Manifest {
        path,
        reason: "it is no manifest of an offline bundle; give another directory".into(),
        source: Some(Box::new(e)),
    })
}

struct Packer<'a> {
    fs: &'a dyn Fs,
    commands: &'a dyn Commands,
    request: &'a BundleRequest,
    manifest: BundleManifest,
    report: BundleReport,
}

impl<'a> Packer<'a> {
    /// The name for a file whose place is not known yet.
    fn incoming(&self) -> PathBuf {
        self.request.dir.join("incoming")
    }

    /// Copies `bytes` of `input` into the bundle's directory, synced and closed.
    fn stage(&self, mode: u32, bytes: &mut dyn Read, input: &Path) -> Result<Staged<'a>, ArtifactError> {
        let written = Staged::write(self.fs, &self.incoming(), mode, bytes);
        let (staged, writer) = written.map_err(|e| e.blame("read", input))?;
        settle(staged, writer)
    }

    fn version(&self, role: Role) -> Option<String> {
        let versions = &self.manifest.versions;
        let text = match role {
            Role::Kubelet | Role::Kubectl | Role::KubeProxy => &versions.kubernetes,
            Role::Containerd => &versions.containerd,
            Role::Runc => &versions.runc,
            Role::Cni => &versions.cni,
            Role::Crictl => &versions.crictl,
            Role::Image => return None,
        };
        text.as_deref().and_then(clean_version)
    }

    fn set_version(&mut self, role: Role, version: &str) {
        let versions = &mut self.manifest.versions;
        match role {
            // Only this one has the `v` in a bundle's manifest.
            Role::Kubelet | Role::Kubectl | Role::KubeProxy => versions.kubernetes = Some(format!("v{version}")),
            Role::Containerd => versions.containerd = Some(version.to_owned()),
            Role::Runc => versions.runc = Some(version.to_owned()),
            Role::Cni => versions.cni = Some(version.to_owned()),
            Role::Crictl => versions.crictl = Some(version.to_owned()),
            Role::Image => {}
        }
    }

    /// Gives a staged file its place in the bundle, with its digest.
    fn place(&mut self, mut staged: Staged<'a>, path: &str, sidecar: bool) -> Result<(), ArtifactError> {
        let target = self.request.dir.join(path);
        let dir = target.parent().unwrap_or(&self.request.dir).to_path_buf();
        durable::ensure_dir(self.fs, &dir, DIR_MODE)?;
        let digest = staged.digest;
        if self.is_there(&target, &staged)? {
            drop(staged);
            self.report.unchanged.push(path.to_owned());
        } else {
            staged.aim_at(target.clone());
            staged.publish()?;
            self.fs.sync_dir(&dir)?;
            self.report.written.push(path.to_owned());
        }
        if sidecar {
            let name = target.file_name().unwrap_or_default().to_string_lossy();
            let line = format!("{digest}  {name}\n");
            durable::write(self.fs, &self.request.dir.join(format!("{path}{SIDECAR}")), line.as_bytes(), FILE_MODE)?;
        }
        self.manifest.digests.insert(path.to_owned(), digest.to_string());
        Ok(())
    }

    fn is_there(&self, target: &Path, staged: &Staged<'_>) -> Result<bool, ArtifactError> {
        match self.fs.lstat(target)? {
            Some(stat) if stat.size == staged.size && stat.mode == staged.mode => {
                Ok(measure(self.fs, target)?.0 == staged.digest)
            }
            _ => Ok(false),
        }
    }

    fn image(&mut self, archive: &Path) -> Result<(), ArtifactError> {
        let (packing, mut bytes) = open(self.fs, archive)?;
        let staged = if packing == Packing::Gzip {
            let mut plain = MultiGzDecoder::new(BufReader::new(bytes));
            self.stage(FILE_MODE, &mut plain, archive)?
        } else {
            self.stage(FILE_MODE, &mut bytes, archive)?
        };
        let mut again = self.fs.open(staged.temp())?;
        let references = image::references(&mut again, archive)?;
        let paths = references.iter().map(|reference| {
            let unusable = || ArtifactError::input(archive, format!("its image name {reference:?} is none"));
            Ok((reference.clone(), image_path(reference, &self.request.arch).ok_or_else(unusable)?))
        });
        let paths = paths.collect::<Result<Vec<_>, ArtifactError>>()?;
        let Some((first, others)) = paths.split_first() else {
            let reason = "it names no image; save it by name and tag, not by its identifier";
            return Err(ArtifactError::input(archive, reason));
        };
        self.place(staged, &first.1, true)?;
        // A bundle has one file for each image; the archive imports all of them each time, which does no harm.
        for (_, path) in others {
            let mut copy = self.fs.open(&self.request.dir.join(&first.1))?;
            let staged = self.stage(FILE_MODE, &mut copy, archive)?;
            self.place(staged, path, true)?;
        }
        self.manifest.container_images.extend(paths.into_iter().map(|(reference, _)| reference));
        Ok(())
    }

    /// Drops what is no longer there, writes the manifest, says what is missing.
    fn finish(mut self) -> Result<BundleReport, ArtifactError> {
        let dir = &self.request.dir;
        let mut kept = std::collections::BTreeMap::new();
        for (path, digest) in std::mem::take(&mut self.manifest.digests) {
            if digest.parse::<Digest>().is_ok() && self.fs.lstat(&dir.join(&path))?.is_some() {
                kept.insert(path, digest);
            }
        }
        self.manifest.digests = kept;
        self.manifest.schema_version = 1;
        self.manifest.container_images.sort();
        self.manifest.container_images.dedup();
        durable::write(self.fs, &dir.join(MANIFEST), &self.manifest.encode(), FILE_MODE)?;
        for role in Role::PROGRAMS {
            if let Some(sentence) = self.lack(role)? {
                let list = if role.is_required() { &mut self.report.missing } else { &mut self.report.notes };
                list.push(sentence);
            }
        }
        if self.manifest.container_images.is_empty() {
            self.report.notes.push(
                "no image is in it: nodes pull the sandbox (pause) image from its registry, or --image adds it".into(),
            );
        }
        self.report.images = self.manifest.container_images;
        Ok(self.report)
    }

    /// A sentence about a file that the bundle does not have.
    fn lack(&self, role: Role) -> Result<Option<String>, ArtifactError> {
        let arch = &self.request.arch;
        let version = self.version(role);
        if let Some(version) = &version
            && self.fs.lstat(&self.request.dir.join(role.path(version, arch)))?.is_some()
        {
            return Ok(None);
        }
        let file = role.release_file(version.as_deref().unwrap_or("VERSION"), arch);
        let purpose = match role {
            Role::Kubectl | Role::KubeProxy => ", wanted only by other agents that read such bundles",
            Role::Crictl => ", a tool for looking into a node",
            _ => "",
        };
        Ok(Some(format!("{role} is missing: give --{role} {file}{purpose}")))
    }
}

/// Waits for the device and closes the file: a program that is open for writing cannot be executed.
fn settle(staged: Staged<'_>, mut writer: Box<dyn FileWriter>) -> Result<Staged<'_>, ArtifactError> {
    let path = staged.temp();
    writer.sync().map_err(|e| ArtifactError::write(FsError::new("sync", path, e), path))?;
    Ok(staged)
}

/// Opens what a person gave and judges it by its first bytes.
fn open(fs: &dyn Fs, input: &Path) -> Result<(Packing, Box<dyn Read + Send>), ArtifactError> {
    let Some(stat) = fs.stat(input)? else {
        return Err(ArtifactError::input(input, "it is not there"));
    };
    if stat.kind != flexnode_host::FileKind::File {
        return Err(ArtifactError::input(input, "it is no regular file"));
    }
    let (packing, bytes) = peek(fs.open(input)?).map_err(|e| FsError::new("read", input, e))?;
    Ok((packing, Box::new(bytes)))
}

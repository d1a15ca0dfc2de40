//! Files as the projects release them, for the agent's `bundle` command.

use crate::packages::{Packages, Suite};
use crate::{base, cache, image, kubernetes};
use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use tar::Builder;

const RECIPE: &str = "1";

/// What one node version is made of. The versions are those that the files have, not those that were hoped for.
#[derive(Clone, Debug)]
pub struct Artifacts {
    /// Version of kubelet and kubectl.
    pub kubernetes_version: String,
    /// Version of containerd.
    pub containerd_version: String,
    /// Version of runc.
    pub runc_version: String,
    /// Version of the CNI plugins.
    pub cni_version: String,
    /// The kubelet program.
    pub kubelet: PathBuf,
    /// The kubectl program.
    pub kubectl: PathBuf,
    /// containerd, its shim and ctr below `bin/`, as `containerd-VERSION-linux-ARCH.tar.gz`.
    pub containerd_tgz: PathBuf,
    /// The runc program, as `runc.ARCH`.
    pub runc: PathBuf,
    /// The CNI plugins, as `cni-plugins-linux-ARCH-vVERSION.tgz`.
    pub cni_tgz: PathBuf,
    /// The crictl program.
    pub crictl: PathBuf,
    /// Image archives: the sandbox image first, then the web image.
    pub images: Vec<PathBuf>,
}

/// The files for a version of Kubernetes ([`kubernetes::NEW`] or [`kubernetes::OLD`]) with a suite's containerd and runc.
pub fn artifacts(kubernetes_version: &str, suite: Suite) -> Result<Artifacts> {
    let programs = kubernetes::programs(kubernetes_version)?;
    let (packages, plugins) = (Packages::of(suite)?, Packages::of(Suite::Forky)?);
    let runtime = runtime(suite, &packages)?;
    let cni = cni(&plugins)?;
    let images = images()?;
    Ok(Artifacts {
        kubernetes_version: kubernetes_version.to_owned(),
        containerd_version: packages.version("containerd")?,
        runc_version: packages.version("runc")?,
        cni_version: plugins.version("containernetworking-plugins")?,
        kubelet: programs.join("kubelet"),
        kubectl: programs.join("kubectl"),
        containerd_tgz: runtime.join(containerd_name(&packages)?),
        runc: runtime.join(format!("runc.{}", image::architecture())),
        cni_tgz: cni,
        crictl: kubernetes::crictl()?,
        images: vec![images.join("pause.tar"), images.join("web.tar")],
    })
}

impl Artifacts {
    /// Puts the programs of a node into a directory, under their own names: kubelet, containerd, its shim, ctr, runc.
    pub fn unpack_programs(&self, into: &Path) -> Result<()> {
        for (file, name) in [(&self.kubelet, "kubelet"), (&self.runc, "runc")] {
            fs::copy(file, into.join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
        }
        let packed = File::open(&self.containerd_tgz)?;
        for entry in tar::Archive::new(flate2::read::GzDecoder::new(packed)).entries()? {
            let mut entry = entry?;
            let name = entry.path()?.file_name().map(std::borrow::ToOwned::to_owned);
            if let Some(name) = name.filter(|_| entry.header().entry_type().is_file()) {
                entry.unpack(into.join(name))?;
            }
        }
        Ok(())
    }
}

/// The directory with `pause.tar` and `web.tar`.
pub fn images() -> Result<PathBuf> {
    let busybox = base::busybox()?;
    let inputs = [RECIPE, image::PAUSE, image::WEB, &busybox.to_string_lossy()];
    cache::entry("images", &inputs, "making images", |into| {
        image::write_pause(&busybox, &into.join("pause.tar"))?;
        image::write_web(&busybox, &into.join("web.tar"))
    })
}

fn containerd_name(packages: &Packages) -> Result<String> {
    Ok(format!("containerd-{}-linux-{}.tar.gz", packages.version("containerd")?, image::architecture()))
}

fn runtime(suite: Suite, packages: &Packages) -> Result<PathBuf> {
    let (name, runc) = (containerd_name(packages)?, packages.program("runc")?);
    let inputs = [RECIPE, suite.name(), &name, &runc.to_string_lossy()];
    cache::entry(&format!("runtime-{}", suite.name()), &inputs, &format!("packing {name}"), |into| {
        let programs = ["containerd", "containerd-shim-runc-v2", "ctr"];
        let members = programs.map(|program| Ok((format!("bin/{program}"), packages.program(program)?)));
        pack(&into.join(&name), members.into_iter().collect::<Result<Vec<_>>>()?)?;
        fs::copy(&runc, into.join(format!("runc.{}", image::architecture())))?;
        Ok(())
    })
}

fn cni(packages: &Packages) -> Result<PathBuf> {
    let version = packages.version("containernetworking-plugins")?;
    let name = format!("cni-plugins-linux-{}-v{version}.tgz", image::architecture());
    let plugins = packages.cni();
    let inputs = [RECIPE, &name, &plugins.to_string_lossy()];
    let folder = cache::entry("cni", &inputs, &format!("packing {name}"), |into| {
        let mut members = Vec::new();
        for plugin in fs::read_dir(&plugins)? {
            let plugin = plugin?;
            members.push((format!("./{}", plugin.file_name().to_string_lossy()), plugin.path()));
        }
        members.sort();
        pack(&into.join(&name), members)
    })?;
    Ok(folder.join(name))
}

fn pack(to: &Path, members: Vec<(String, PathBuf)>) -> Result<()> {
    let file = File::create(to).with_context(|| format!("cannot make {}", to.display()))?;
    let mut archive = Builder::new(GzBuilder::new().mtime(0).write(file, Compression::fast()));
    for (name, path) in members {
        archive.append_path_with_name(&path, &name).with_context(|| format!("cannot pack {}", path.display()))?;
    }
    archive.into_inner()?.finish()?;
    Ok(())
}

//! `aks-flex-node bundle`: release files to an offline bundle. Needs no root and no node.

use crate::cli::BundleArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Env, session};
use flexnode_artifacts::bundle::{BundleReport, BundleRequest, Versions, pack};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Runs the command.
pub(crate) fn run(args: BundleArgs, env: &Env) -> Result<Exit, Failure> {
    let host = session::host(env);
    let request = request(args, host.kernel.arch())?;
    let report = session::block_on(async {
        pack(&*host.fs, &*host.commands, &request).await.map_err(|error| Failure::of(Exit::Failed, &error))
    })?;
    env.terminal.out.write(&text(&request.dir, &report));
    Ok(Exit::Done)
}

fn request(args: BundleArgs, arch: &str) -> Result<BundleRequest, Failure> {
    Ok(BundleRequest {
        dir: absolute(&args.dir)?,
        arch: args.arch.unwrap_or_else(|| arch.to_owned()),
        kubelet: args.kubelet.as_deref().map(absolute).transpose()?,
        kubectl: args.kubectl.as_deref().map(absolute).transpose()?,
        kube_proxy: args.kube_proxy.as_deref().map(absolute).transpose()?,
        containerd: args.containerd.as_deref().map(absolute).transpose()?,
        runc: args.runc.as_deref().map(absolute).transpose()?,
        cni: args.cni.as_deref().map(absolute).transpose()?,
        crictl: args.crictl.as_deref().map(absolute).transpose()?,
        images: args.images.iter().map(|path| absolute(path)).collect::<Result<_, _>>()?,
        versions: Versions {
            kubernetes: args.kubernetes_version,
            containerd: args.containerd_version,
            runc: args.runc_version,
            cni: args.cni_version,
            crictl: args.crictl_version,
        },
    })
}

/// The path from the root; below the present directory when it is relative.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| {
        let mut failure = Failure::of(Exit::Usage, &error);
        failure.layers.insert(0, format!("{} is no path", path.display()));
        failure
    })
}

/// What was packed, and what is still missing.
fn text(dir: &Path, report: &BundleReport) -> String {
    let mut text =
        format!("{}: {} files written, {} unchanged\n", dir.display(), report.written.len(), report.unchanged.len());
    let sections = [("image", &report.images), ("note", &report.notes), ("missing", &report.missing)];
    for (word, lines) in sections {
        for line in lines {
            let _ = writeln!(text, "  {word}: {line}");
        }
    }
    if report.missing.is_empty() {
        text.push_str("  complete; name it in the configuration as bootstrap.offlineArtifacts.source\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_what_is_missing() {
        let report = BundleReport {
            written: vec!["manifest.json".into()],
            missing: vec!["runc (runc.amd64)".into()],
            images: vec!["registry.k8s.io/pause:3.10".into()],
            ..BundleReport::default()
        };
        assert_eq!(
            text(Path::new("/opt/bundle"), &report),
            "/opt/bundle: 1 files written, 0 unchanged\n  image: registry.k8s.io/pause:3.10\n  missing: runc (runc.amd64)\n"
        );
        assert!(text(Path::new("/opt/bundle"), &BundleReport::default()).contains("complete"));
    }
}

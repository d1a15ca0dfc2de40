//! Kubernetes and crictl, built from their Go modules.
//!
//! The modules of one release are pinned by a go.mod of one requirement; the staging modules come at the matching 0.x
//! version. Go checks all of them against its checksum database.

use crate::cache;
use crate::prerequisites::find_program;
use crate::run::must;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The version of the control plane, and the newer one of the node.
pub const NEW: &str = "1.36.3";
/// The older version of the node: the same objects as [`NEW`], linked with another reported version.
pub const OLD: &str = "1.36.2";
/// The version of crictl.
pub const CRICTL: &str = "1.36.0";

const RECIPE: &str = "1";
const CONTROL_PLANE: [&str; 5] = ["kubelet", "kubectl", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];
const NODE: [&str; 2] = ["kubelet", "kubectl"];
const STAGING: [&str; 33] = [
    "api",
    "apiextensions-apiserver",
    "apimachinery",
    "apiserver",
    "cli-runtime",
    "client-go",
    "cloud-provider",
    "cluster-bootstrap",
    "code-generator",
    "component-base",
    "component-helpers",
    "controller-manager",
    "cri-api",
    "cri-client",
    "cri-streaming",
    "csi-translation-lib",
    "dynamic-resource-allocation",
    "endpointslice",
    "externaljwt",
    "kms",
    "kube-aggregator",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "metrics",
    "mount-utils",
    "pod-security-admission",
    "sample-apiserver",
    "sample-cli-plugin",
    "sample-controller",
    "streaming",
];

/// The directory with the programs of a version: all five for [`NEW`], kubelet and kubectl for [`OLD`].
pub fn programs(version: &str) -> Result<PathBuf> {
    let (names, time): (&[&str], _) = match version {
        NEW => (&CONTROL_PLANE, "some 6 minutes the first time"),
        OLD => (&NODE, "seconds"),
        other => bail!("the lab has Kubernetes {NEW} and {OLD}, not {other}"),
    };
    let inputs = [RECIPE, "kubernetes", NEW, version, &names.join(" "), std::env::consts::ARCH];
    let what = format!("building Kubernetes {version} ({time})");
    if version == OLD {
        // Its objects are those of the other build.
        programs(NEW)?;
    }
    cache::entry(&format!("kubernetes-{version}"), &inputs, &what, |into| {
        let packages: Vec<String> = names.iter().map(|name| format!("k8s.io/kubernetes/cmd/{name}")).collect();
        build(into, "k8s.io/kubernetes", NEW, &packages, &version_flags(version))
    })
}

/// The path of crictl.
pub fn crictl() -> Result<PathBuf> {
    let inputs = [RECIPE, "crictl", CRICTL, NEW, std::env::consts::ARCH];
    let what = format!("building crictl {CRICTL} (some 40 s the first time)");
    let folder = cache::entry("crictl", &inputs, &what, |into| {
        let flags = format!("-s -w -X sigs.k8s.io/cri-tools/pkg/version.Version=v{CRICTL}");
        build(into, "sigs.k8s.io/cri-tools", CRICTL, &["sigs.k8s.io/cri-tools/cmd/crictl".to_owned()], &flags)
    })?;
    Ok(folder.join("crictl"))
}

/// What makes a program report a version; all of it ends up in the link step, never in an object.
fn version_flags(version: &str) -> String {
    let minor = version.split('.').nth(1).unwrap_or_default();
    let component = "k8s.io/component-base/version";
    format!(
        "-s -w -X {component}.gitVersion=v{version} -X {component}.gitMajor=1 -X {component}.gitMinor={minor} \
         -X k8s.io/client-go/pkg/version.gitVersion=v{version}"
    )
}

fn build(into: &Path, module: &str, version: &str, packages: &[String], flags: &str) -> Result<()> {
    let source = into.join(".source");
    fs::create_dir(&source)?;
    fs::write(source.join("go.mod"), go_mod(module, version))?;
    fs::write(source.join("tools.go"), tools(packages))?;
    must(go(&source)?.args(["mod", "tidy"]), Duration::from_secs(1800))
        .with_context(|| format!("the Go modules of {module} v{version} could not be fetched"))?;
    let mut command = go(&source)?;
    command.args(["build", "-trimpath", "-ldflags", flags, "-o"]).arg(into).args(packages);
    must(&mut command, Duration::from_secs(5400))?;
    fs::remove_dir_all(&source)?;
    Ok(())
}

fn go(folder: &Path) -> Result<Command> {
    let mut command = Command::new(find_program("go").context("there is no go in PATH")?);
    command.current_dir(folder).env("CGO_ENABLED", "0").env("GOTOOLCHAIN", "local").env("GOFLAGS", "-mod=mod");
    for name in ["GOOS", "GOARCH", "GOWORK"] {
        command.env_remove(name);
    }
    Ok(command)
}

fn go_mod(module: &str, version: &str) -> String {
    let staging = NEW.replacen("1.", "0.", 1);
    let replaced: Vec<String> =
        STAGING.iter().map(|name| format!("replace k8s.io/{name} => k8s.io/{name} v{staging}")).collect();
    let replaced = replaced.join("\n");
    format!("module flexnode.invalid/lab\n\ngo 1.26\n\nrequire {module} v{version}\n\n{replaced}\n")
}

fn tools(packages: &[String]) -> String {
    let imports: Vec<String> = packages.iter().map(|package| format!("import _ \"{package}\"")).collect();
    format!("//go:build tools\n\npackage lab\n\n{}\n", imports.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::{NEW, go_mod, version_flags};

    #[test]
    fn staging_modules_have_the_matching_version() {
        let text = go_mod("k8s.io/kubernetes", NEW);
        assert!(text.contains("require k8s.io/kubernetes v1.36.3\n"));
        assert!(text.contains("replace k8s.io/api => k8s.io/api v0.36.3\n"));
    }

    #[test]
    fn both_version_variables_are_set() {
        let flags = version_flags("1.36.2");
        assert!(flags.contains("component-base/version.gitVersion=v1.36.2 ") && flags.contains("gitMinor=36"));
    }
}

//! What the agent's program needs to make a lab host a node: the bundle and a configuration.

use crate::artifacts::{Artifacts, artifacts};
use crate::packages::Suite;
use crate::run::{Input, run};
use crate::snapshot::sha256;
use crate::{ControlPlane, Host, cache, image, stand_in};
use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The offline bundle of a version, packed by the agent's own command `bundle`.
///
/// It is packed once for each program and each choice of parts, so that it is always what this program packs. Hosts of other
/// tests look at it: while nothing of that changes, nothing is written into it.
pub fn bundle(agent: &Path, kubernetes_version: &str, suite: Suite) -> Result<PathBuf> {
    let name = format!("{kubernetes_version}-{}", suite.name());
    pack(agent, &name, &artifacts(kubernetes_version, suite)?, None)
}

/// As [`bundle`], of a version that does not work: it calls itself `called`, has the programs of `kubernetes_version`, and
/// in the place of kubelet a program that tells that version and ends at once with exit code 1 when it is started.
pub fn broken_bundle(agent: &Path, called: &str, kubernetes_version: &str, suite: Suite) -> Result<PathBuf> {
    let mut parts = artifacts(kubernetes_version, suite)?;
    let says = format!("Kubernetes v{called}");
    let kubelet = cache::entry("kubelet-that-ends", &[&says, "1"], "making a kubelet that ends at once", |into| {
        stand_in::only_says(&into.join("kubelet"), &says)
    })?;
    parts.kubelet = kubelet.join("kubelet");
    pack(agent, &format!("{called}-{}-broken", suite.name()), &parts, Some(called))
}

fn pack(agent: &Path, name: &str, parts: &Artifacts, called: Option<&str>) -> Result<PathBuf> {
    let dir = cache::dir()?.join("bundles").join(name);
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut command = Command::new(agent);
    command.arg("bundle").arg(&dir);
    for (flag, file) in [
        ("--kubelet", &parts.kubelet),
        ("--kubectl", &parts.kubectl),
        ("--containerd", &parts.containerd_tgz),
        ("--runc", &parts.runc),
        ("--cni", &parts.cni_tgz),
        ("--crictl", &parts.crictl),
    ] {
        command.arg(flag).arg(file);
    }
    if let Some(version) = called {
        command.args(["--kubernetes-version", version]);
    }
    // A program for another libc than this machine's cannot tell its version here.
    command.args(["--runc-version", &parts.runc_version]);
    for archive in &parts.images {
        command.arg("--image").arg(archive);
    }
    let program = sha256(agent).with_context(|| format!("cannot read {}", agent.display()))?;
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    let key = std::iter::once(program).chain(words).collect::<Vec<_>>().join("\n");
    let beside = |end: &str| dir.with_file_name(format!("{name}.{end}"));
    let (lock, packed) = (beside("lock"), beside("packed"));
    let _lock = cache::lock(&lock, "another process to pack the bundle")?;
    if std::fs::read_to_string(&packed).is_ok_and(|of| of == key) {
        return Ok(dir);
    }
    // Until it is whole again it is nobody's.
    match std::fs::remove_file(&packed) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => return Err(cause.into()),
        _ => (),
    }
    run(&mut command, Input::Empty, Duration::from_secs(300))?.success().context("the bundle cannot be packed")?;
    std::fs::write(&packed, key).with_context(|| packed.display().to_string())?;
    Ok(dir)
}

/// A configuration with which `host` joins `control_plane` out of the bundle at `source` (a path in the host).
pub fn config(
    control_plane: &ControlPlane,
    host: &Host,
    kubernetes_version: &str,
    suite: Suite,
    source: &str,
) -> Result<Value> {
    config_for(control_plane, (host.name(), &host.address()), kubernetes_version, suite, source)
}

/// As [`config`], for a node of this name and address.
pub fn config_for(
    control_plane: &ControlPlane,
    (name, address): (&str, &str),
    kubernetes_version: &str,
    suite: Suite,
    source: &str,
) -> Result<Value> {
    let ca = BASE64.encode(control_plane.ca()?);
    Ok(json!({
        "azure": {"bootstrapToken": {"token": control_plane.token()?}},
        "agent": {"nodeName": name},
        "components": {"kubernetes": kubernetes_version, "sandboxImage": image::PAUSE},
        "networking": {"dnsServiceIP": "10.96.0.10"},
        "bootstrap": {"offlineArtifacts": {"source": source}},
        "node": {
            "isolation": "none",
            "labels": {"example.com/site": "lab"},
            "kubelet": {
                "clusterFQDN": control_plane.address(),
                "caCertData": ca,
                "nodeIP": address,
                "config": {"evictionHard": eviction()},
                "imageGCHighThreshold": 100,
                "imageGCLowThreshold": 99,
            },
            "containerd": {"config": containerd(suite)},
        },
    }))
}

/// Hosts share this machine's disk, which is as full as it is. kubelet's own limits (15 % free) would evict a lab's pods,
/// and nothing of it is to be seen in the Node's readiness.
pub(crate) fn eviction() -> Value {
    json!({
        "memory.available": "100Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%",
        "imagefs.inodesFree": "1%",
    })
}

/// What containerd needs on a machine without CAP_SYS_RESOURCE, where nobody can lower an OOM score: only of labs.
fn containerd(suite: Suite) -> Value {
    let plugin = match suite {
        Suite::Forky => "io.containerd.cri.v1.runtime",
        Suite::Trixie => "io.containerd.grpc.v1.cri",
    };
    json!({"plugins": {plugin: {"restrict_oom_score_adj": true}}})
}

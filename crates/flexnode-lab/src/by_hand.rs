//! A node made by hand: the least sequence of commands that turns a host of the lab into a Ready node, with digests checked
//! and files synced. It shows that the lab can carry a node, and it is what the agent's `start` is measured against.

use crate::artifacts::Artifacts;
use crate::control_plane::{ControlPlane, DNS_SERVICE};
use crate::host::{Host, Share};
use crate::lab::Lab;
use crate::{cache, image, poll, snapshot};
use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where hosts see the lab's cache when they have [`share`].
const SHARED: &str = "/srv/lab";
const LIMIT: Duration = Duration::from_secs(120);
const SCRIPT: &str = include_str!("by_hand.sh");

/// The cache's entries, for hosts that take artifacts from there.
pub fn share() -> Result<Share> {
    Ok(Share { from: cache::dir()?.join("entries"), to: SHARED.into() })
}

/// The path that a file of the cache has in a host with [`share`].
pub fn shared(path: &Path) -> Result<String> {
    let entries = cache::dir()?.join("entries");
    let inside = path.strip_prefix(&entries).with_context(|| format!("{} is not in the cache", path.display()))?;
    Ok(format!("{SHARED}/{}", inside.display()))
}

/// Whether this machine has its controllers in control groups of version 2.
pub fn unified_cgroups() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// Writes what is the cluster's or the person's to give: the network's configuration, the authority, the bootstrap
/// kubeconfig. Not part of what is measured.
pub fn prepare(host: &Host, control_plane: &ControlPlane) -> Result<()> {
    host.put("/etc/cni/net.d/10-lab.conflist", host.network_plugin_config(), 0o644)?;
    host.put("/etc/kubernetes/pki/ca.crt", control_plane.ca()?, 0o644)?;
    let authority = BASE64.encode(control_plane.ca()?);
    let cluster = json!({"server": control_plane.server(), "certificate-authority-data": authority});
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "bootstrap", "user": {"token": control_plane.token()?}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "bootstrap"}}],
    });
    host.put("/etc/kubernetes/bootstrap-kubeconfig", config.to_string(), 0o600)
}

/// The script: installs, configures, starts both services, and waits until kubelet answers and has its certificate. For a
/// host with [`share`].
pub fn script(host: &Host, artifacts: &Artifacts) -> Result<String> {
    let programs = [&artifacts.kubelet, &artifacts.kubectl, &artifacts.crictl];
    let all = programs.into_iter().chain([&artifacts.containerd_tgz, &artifacts.runc, &artifacts.cni_tgz]);
    let digests: Vec<String> = all.chain(&artifacts.images).map(|path| digest_line(path)).collect::<Result<_>>()?;
    let words = |paths: Vec<&PathBuf>| -> Result<String> {
        Ok(paths.into_iter().map(|path| shared(path)).collect::<Result<Vec<_>>>()?.join(" "))
    };
    let filled = [
        ("@digests@", digests.join("\n")),
        ("@programs@", words(programs.to_vec())?),
        ("@runc@", shared(&artifacts.runc)?),
        ("@containerd@", shared(&artifacts.containerd_tgz)?),
        ("@cni@", shared(&artifacts.cni_tgz)?),
        ("@images@", words(artifacts.images.iter().collect())?),
        ("@containerd-config@", containerd_config(&artifacts.containerd_version)),
        ("@kubelet-config@", kubelet_config()),
        ("@address@", host.address()),
        ("@name@", host.name().to_owned()),
    ];
    Ok(filled.iter().fold(SCRIPT.to_owned(), |script, (word, value)| script.replace(word, value)))
}

/// Makes a host with [`share`] a node, and waits until it is Ready.
pub fn join(host: &Host, control_plane: &ControlPlane, artifacts: &Artifacts) -> Result<()> {
    prepare(host, control_plane)?;
    host.sh(&script(host, artifacts)?)?.success().context("the node could not be made by hand")?;
    control_plane.wait_ready(host.name(), LIMIT)
}

/// Runs a web pod on a node, and gives its address once it runs. The node has the image already.
pub fn run_web_pod(control_plane: &ControlPlane, name: &str, node: &str) -> Result<String> {
    control_plane.apply(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "web", "image": image::WEB, "imagePullPolicy": "Never"}],
        },
    }))?;
    poll(LIMIT, Duration::from_millis(100), &format!("pod {name} to run"), || {
        let pod = control_plane.get(&["pod", name])?;
        let address = pod["status"]["podIP"].as_str().map(str::to_owned);
        Ok(address.filter(|_| pod["status"]["phase"] == "Running"))
    })
}

/// What the web pod at an address answers, asked from the lab's network.
pub fn ask_web_pod(lab: &Lab, address: &str) -> Result<String> {
    let place = SocketAddr::new(address.parse().with_context(|| format!("{address:?} is no address"))?, 80);
    poll(Duration::from_secs(20), Duration::from_millis(50), &format!("the pod at {address} to answer"), || {
        let answer = lab.in_network(|| -> std::io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&place, Duration::from_secs(2))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        })??;
        Ok(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()))
    })
}

/// A fragment of containerd's configuration that a machine without CAP_SYS_RESOURCE needs: nobody there may lower a
/// process's oom_score_adj, and no container starts when it is tried. For the lab only, never a product's default.
pub fn oom_fragment(containerd_version: &str) -> String {
    format!("[plugins.'{}']\nrestrict_oom_score_adj = true\n", runtime_plugin(containerd_version))
}

/// containerd 1.7 reads version 2 of the configuration, in which one plugin does both images and containers.
fn is_old(containerd_version: &str) -> bool {
    containerd_version.starts_with("1.")
}

fn runtime_plugin(containerd_version: &str) -> &'static str {
    if is_old(containerd_version) { "io.containerd.grpc.v1.cri" } else { "io.containerd.cri.v1.runtime" }
}

fn containerd_config(version: &str) -> String {
    let (plugin, cgroups, pause) = (runtime_plugin(version), unified_cgroups(), image::PAUSE);
    let (number, directories, sandbox) = if is_old(version) {
        (2, "bin_dir = '/opt/cni/bin'", format!("sandbox_image = '{pause}'"))
    } else {
        let table = "[plugins.'io.containerd.cri.v1.images'.pinned_images]";
        (3, "bin_dirs = ['/opt/cni/bin']", format!("{table}\nsandbox = '{pause}'"))
    };
    format!(
        "version = {number}\n{}{sandbox}\n[plugins.'{plugin}'.cni]\n{directories}\nconf_dir = '/etc/cni/net.d'\n\
         [plugins.'{plugin}'.containerd.runtimes.runc]\nruntime_type = 'io.containerd.runc.v2'\n\
         [plugins.'{plugin}'.containerd.runtimes.runc.options]\nSystemdCgroup = {cgroups}",
        oom_fragment(version)
    )
}

fn kubelet_config() -> String {
    let unified = unified_cgroups();
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false}, "webhook": {"enabled": true},
            "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": if unified { "systemd" } else { "cgroupfs" },
        "clusterDNS": [DNS_SERVICE], "clusterDomain": "cluster.local", "rotateCertificates": true,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "evictionHard": crate::node::eviction(), "imageGCHighThresholdPercent": 100,
    });
    if !unified {
        config["failCgroupV1"] = false.into();
    }
    config.to_string()
}

/// A line for `sha256sum -c`.
fn digest_line(path: &Path) -> Result<String> {
    let digest = snapshot::sha256(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(format!("{digest}  {}", shared(path)?))
}

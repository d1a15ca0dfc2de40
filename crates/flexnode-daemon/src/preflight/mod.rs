//! The checks before the first change. All of them only look; what they find is data, told to a person by whoever asked.

mod finding;
mod host;
mod listeners;
mod node;
pub mod ports;

pub use finding::{Finding, Severity, errors};
pub use host::{covering, nearest, privileged};
pub use ports::{KUBELET_HEALTHZ_PORT, KUBELET_PORT, Port};

use crate::agent_binary::HOST_ROOT;
use crate::foreign;
use crate::service::SERVICE_UNIT_NAME;
use flexnode_host::Host;
use flexnode_isolation::none::{DEFAULT_BASE, HostFs, UNIT_CONTAINERD, UNIT_KUBELET};
use std::path::{Path, PathBuf};

/// Where kubelet looks for manifests of static pods.
pub const STATIC_POD_DIR: &str = "/etc/kubernetes/manifests";
/// Where kubelet keeps pods, credentials and state.
pub const KUBELET_DIR: &str = "/var/lib/kubelet";

const STATE: &str = "existing-deployment";
const UNMANAGED: &str = "unmanaged-node-stack";

/// What the checks are about.
#[derive(Clone, Debug)]
pub struct Input {
    /// The configuration file.
    pub config: PathBuf,
    /// API server of the goal, `https://host:port`.
    pub api_server: String,
    /// CA of the goal, PEM.
    pub ca_pem: String,
    /// Ports that have to be free, as [`ports::of`] gives them.
    pub ports: Vec<Port>,
    /// Kubelet lives with swap.
    pub keep_swap: bool,
    /// The node's own stack runs, so that its processes and ports are no findings.
    pub runs: bool,
}

/// Paths that are written, and must be writable.
fn written() -> Vec<PathBuf> {
    [
        "/etc",
        "/etc/systemd/system",
        "/etc/sysctl.d",
        "/etc/modules-load.d",
        DEFAULT_BASE,
        HOST_ROOT,
        "/opt/cni/bin",
        "/var/lib",
        "/run",
    ]
    .map(PathBuf::from)
    .to_vec()
}

/// Runs every check. The order is that of a person who reads: who am I, what is the host, what is on it already.
pub async fn run(host: &Host, input: &Input) -> Vec<Finding> {
    let fs = host.fs.as_ref();
    let mut found = vec![host::privileged(fs), host::systemd(fs), host::cgroups(host), host::config(fs, &input.config)];
    found.extend(host::writable(fs, &written()));
    found.extend(host::disk_space(fs, &[PathBuf::from("/var/lib"), PathBuf::from(DEFAULT_BASE)]));
    let programs =
        [Path::new(DEFAULT_BASE), Path::new(HOST_ROOT), Path::new("/var/lib/containerd"), Path::new("/opt/cni/bin")];
    found.extend(executable(host, &programs));
    found.push(host::swap(host, input.keep_swap));
    found.extend(unmanaged(host));
    found.extend(node::masked_units(host, &[UNIT_CONTAINERD, UNIT_KUBELET, SERVICE_UNIT_NAME]).await);
    if !input.runs {
        found.extend(node::ports(host, &input.ports));
    }
    found.push(state(host, input));
    found.push(node::static_pods(fs, Path::new(STATIC_POD_DIR)));
    found.push(host::firewall(host).await);
    found
}

fn executable(host: &Host, paths: &[&Path]) -> Vec<Finding> {
    let fs = host.fs.as_ref();
    // A link on the way (a host root that is a link to /usr/local) leads to another mount.
    let real: Vec<PathBuf> = paths
        .iter()
        .map(|path| {
            let near = nearest(fs, path);
            fs.canonicalize(&near).unwrap_or(near)
        })
        .collect();
    match host.mounts.list() {
        Ok(mounts) => host::executable(&mounts, &real),
        Err(e) => vec![Finding::warning("executable-paths", format!("the mount table cannot be read: {e}"))],
    }
}

fn unmanaged(host: &Host) -> Vec<Finding> {
    let found = match HostFs::default().detect_unmanaged(host, Path::new(DEFAULT_BASE)) {
        Ok(found) => found,
        Err(e) => {
            return vec![Finding::error(
                UNMANAGED,
                format!("cannot tell whether another kubelet or containerd is there: {e}"),
            )];
        }
    };
    if found.is_empty() {
        return vec![Finding::ok(UNMANAGED, "no other kubelet or containerd is on the host")];
    }
    let hint = "two kubelets or two containerds on one host fight over the same sockets and directories: \
                remove the package that it belongs to, or use a host without it";
    found
        .into_iter()
        .map(|found| Finding::error(UNMANAGED, format!("this host already has a {found}")).hint(hint))
        .collect()
}

fn state(host: &Host, input: &Input) -> Finding {
    match foreign::look(host.fs.as_ref(), &input.api_server, &input.ca_pem) {
        Ok(found) => match found {
            None => Finding::ok(STATE, "the host is not part of another cluster"),
            Some(found) => Finding::error(STATE, found.to_string())
                .target(found.path().display().to_string())
                .hint("if nothing of it is needed any more: aks-flex-node reset --yes, then start again"),
        },
        Err(e) => Finding::error(STATE, format!("{e}: {}", e.source)),
    }
}

#[cfg(test)]
mod tests;

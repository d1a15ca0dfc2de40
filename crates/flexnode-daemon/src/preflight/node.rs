//! What could already be on the host in the place of the node.

use super::finding::Finding;
use super::listeners;
use super::ports::Port;
use flexnode_host::{Fs, Host};
use std::path::Path;

const MASKED: &str = "masked-units";
const PORTS: &str = "kubelet-bind-address";
const STATIC_PODS: &str = "static-pods";

/// No unit of ours is masked. Foreign masks (kubelet.service, as some images ship) do not matter: our names differ.
pub async fn masked_units(host: &Host, units: &[&str]) -> Vec<Finding> {
    let mut found = Vec::new();
    for unit in units {
        match host.systemd.unit(unit).await {
            Ok(state) if state.load == "masked" || state.enabled.starts_with("masked") => found.push(
                Finding::error(MASKED, format!("the unit {unit} is masked, so it cannot start"))
                    .target(*unit)
                    .hint(format!("systemctl unmask {unit}")),
            ),
            Ok(_) => {}
            Err(e) => {
                found.push(Finding::error(MASKED, format!("systemd does not answer for {unit}: {e}")).target(*unit));
            }
        }
    }
    if found.is_empty() {
        found.push(Finding::ok(MASKED, "none of the agent's units is masked"));
    }
    found
}

/// The node's ports are free. Not asked where our own kubelet runs: they are its own then.
pub fn ports(host: &Host, wanted: &[Port]) -> Vec<Finding> {
    let mut listening = Vec::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        // Without IPv6 there is no tcp6.
        let text = host.fs.read(Path::new(file), 16 << 20).ok().flatten().unwrap_or_default();
        listening.extend(listeners::parse(&String::from_utf8_lossy(&text)));
    }
    let taken = |port: &&Port| listening.iter().any(|l| listeners::collides(*l, port.address, port.port));
    let mut found: Vec<Finding> = wanted
        .iter()
        .filter(taken)
        .map(|Port { program, port, .. }| {
            Finding::error(PORTS, format!("something listens on TCP port {port}, which {program} needs"))
                .target(port.to_string())
                .hint(format!("`ss -ltnp sport = :{port}` shows which program; stop it"))
        })
        .collect();
    if found.is_empty() {
        found.push(Finding::ok(PORTS, "the ports of kubelet and containerd are free"));
    }
    found
}

/// Manifests that kubelet would run as pods of this host, left there by another installation or put there on purpose.
pub fn static_pods(fs: &dyn Fs, dir: &Path) -> Finding {
    let names: Vec<String> = match fs.read_dir(dir) {
        Ok(entries) => entries.into_iter().map(|e| e.name.to_string_lossy().into_owned()).collect(),
        Err(_) => Vec::new(),
    };
    if names.iter().all(|name| name.starts_with('.')) {
        return Finding::ok(STATIC_PODS, "there are no manifests of static pods");
    }
    Finding::warning(
        STATIC_PODS,
        format!("kubelet will run the pods of the manifests in {}: {}", dir.display(), names.join(", ")),
    )
    .target(dir.display().to_string())
    .hint("move them away if they belong to another cluster")
}

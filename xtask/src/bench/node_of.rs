//! Hosts for measures.

use anyhow::Result;
use flexnode_lab::host::{Options, Share};
use flexnode_lab::packages::Suite;
use flexnode_lab::{Host, Lab, by_hand, node};
use std::path::{Path, PathBuf};

/// Where a host has the agent.
pub const AGENT: &str = "/root/aks-flex-node";

/// A host with the agent, the network plugin's configuration, bundles (version and where the host sees it), and the files
/// that are installed by hand.
pub fn host(lab: &Lab, name: &str, agent: &Path, bundles: &[(&str, &str)]) -> Result<Host> {
    let mut shares = vec![by_hand::share()?];
    for (version, at) in bundles {
        shares.push(Share { from: node::bundle(agent, version, Suite::Forky)?, to: PathBuf::from(at) });
    }
    let host = Host::with(lab, name, Options { shares })?;
    host.copy_in(agent, AGENT, 0o755)?;
    host.put("/etc/cni/net.d/10-lab.conflist", host.network_plugin_config(), 0o644)?;
    Ok(host)
}

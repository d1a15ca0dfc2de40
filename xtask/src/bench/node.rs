//! `start` against the least sequence of commands that does the same by hand, and `reset`.

use super::{Measure, milliseconds};
use anyhow::{Context as _, Result};
use flexnode_lab::host::{Options, Share};
use flexnode_lab::packages::Suite;
use flexnode_lab::{ControlPlane, Host, Lab, artifacts, by_hand, control_plane, kubernetes, node, prerequisites};
use std::path::{Path, PathBuf};
use std::time::Instant;

const AGENT: &str = "/root/aks-flex-node";
const BUNDLE: &str = "/srv/bundle";

/// Pairs of a fresh host that the agent starts and one that is made by hand; then resets.
pub fn measure(agent: &Path, pairs: usize) -> Result<Vec<Measure>> {
    prerequisites::ensure()?;
    let parts = artifacts::artifacts(kubernetes::NEW, Suite::Forky)?;
    let bundle = node::bundle(agent, kubernetes::NEW, Suite::Forky)?;
    let lab = Lab::new()?;
    let control_plane = ControlPlane::new(&lab, &control_plane::Options::default())?;
    let (mut starts, mut readies, mut resets, mut cleans) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for n in 0..pairs {
        let shares = vec![Share { from: bundle.clone(), to: PathBuf::from(BUNDLE) }, by_hand::share()?];
        let host = Host::with(&lab, &format!("agent-{n}"), Options { shares: shares.clone() })?;
        host.copy_in(agent, AGENT, 0o755)?;
        host.put("/etc/cni/net.d/10-lab.conflist", host.network_plugin_config(), 0o644)?;
        let config = node::config(&control_plane, &host, kubernetes::NEW, Suite::Forky, BUNDLE)?;
        host.put("/etc/aks-flex-node/config.json", serde_json::to_vec_pretty(&config)?, 0o600)?;
        cleans.push(timed(&host, &[AGENT, "reset", "--yes"])?);
        let begin = Instant::now();
        let joined = timed(&host, &[AGENT, "start", "--wait", "joined"])?;
        control_plane.wait_ready(host.name(), std::time::Duration::from_secs(120))?;
        readies.push(milliseconds(begin.elapsed()));
        resets.push(timed(&host, &[AGENT, "reset", "--yes"])?);
        drop(host);

        let host = Host::with(&lab, &format!("hand-{n}"), Options { shares })?;
        by_hand::prepare(&host, &control_plane)?;
        let script = by_hand::script(&host, &parts)?;
        let by_hand = timed(&host, &["sh", "-c", &script])?;
        starts.push((joined, by_hand));
    }
    Ok(vec![
        Measure::paired("start: until kubelet has joined, against the same by hand", &starts, "ms", 1.25),
        Measure::absolute("start: from the command to Node Ready", super::median(readies), "ms", 13_400.0),
        Measure::absolute("reset: of a joined node without pods", super::median(resets), "ms", 1500.0),
        Measure::absolute("reset: of a clean host", super::median(cleans), "ms", 50.0),
    ])
}

fn timed(host: &Host, words: &[&str]) -> Result<f64> {
    let begin = Instant::now();
    let output = host.exec(words)?;
    let took = milliseconds(begin.elapsed());
    output.success().with_context(|| words[..words.len().min(3)].join(" "))?;
    Ok(took)
}

//! `start` against the least sequence of commands that does the same by hand, and `reset`.

use super::{Measure, median, milliseconds, node_of};
use anyhow::{Context as _, Result};
use flexnode_lab::packages::Suite;
use flexnode_lab::{ControlPlane, Host, Lab, artifacts, by_hand, control_plane, kubernetes, node};
use std::path::Path;
use std::time::{Duration, Instant};

const AGENT: &str = node_of::AGENT;
const BUNDLE: &str = "/srv/bundle";

/// Times of one kind, in milliseconds.
#[derive(Default)]
struct Times {
    /// The agent until kubelet has joined, and the same by hand.
    starts: Vec<(f64, f64)>,
    /// The agent from the command to Ready.
    readies: Vec<f64>,
    /// `reset` of a node without pods.
    resets: Vec<f64>,
    /// `reset` of a host that never was a node.
    cleans: Vec<f64>,
}

/// Pairs of a fresh host that the agent starts and one that is made by hand; then resets.
pub fn measure(agent: &Path, pairs: usize) -> Result<Vec<Measure>> {
    let parts = artifacts::artifacts(kubernetes::NEW, Suite::Forky)?;
    let lab = Lab::new()?;
    let control_plane = ControlPlane::new(&lab, &control_plane::Options::default())?;
    let mut times = Times::default();
    for n in 0..pairs {
        // Who is first changes, because the first one of a pair meets a colder cache.
        let mut by_hand = None;
        if n % 2 == 1 {
            by_hand = Some(hand(&lab, &control_plane, &parts, agent, n)?);
        }
        let joined = by_agent(&lab, &control_plane, agent, n, &mut times)?;
        let by_hand = match by_hand {
            Some(time) => time,
            None => hand(&lab, &control_plane, &parts, agent, n)?,
        };
        times.starts.push((joined, by_hand));
    }
    Ok(vec![
        Measure::paired("start: until kubelet has joined, against the same by hand", &times.starts, "ms", 1.25),
        Measure::absolute("start: from the command to Node Ready", median(times.readies), "ms", 13_400.0),
        Measure::absolute("reset: of a joined node without pods", median(times.resets), "ms", 1500.0),
        Measure::absolute("reset: of a clean host", median(times.cleans), "ms", 50.0),
    ])
}

/// A life of a node; gives the time until kubelet had joined.
fn by_agent(lab: &Lab, control_plane: &ControlPlane, agent: &Path, n: usize, times: &mut Times) -> Result<f64> {
    let host = node_of::host(lab, &format!("agent-{n}"), agent, &[(kubernetes::NEW, BUNDLE)])?;
    let config = node::config(control_plane, &host, kubernetes::NEW, Suite::Forky, BUNDLE)?;
    host.put("/etc/aks-flex-node/config.json", serde_json::to_vec_pretty(&config)?, 0o600)?;
    times.cleans.push(timed(&host, &[AGENT, "reset", "--yes"])?);
    let begin = Instant::now();
    let joined = timed(&host, &[AGENT, "start", "--wait", "joined"])?;
    control_plane.wait_ready(host.name(), Duration::from_secs(120))?;
    times.readies.push(milliseconds(begin.elapsed()));
    times.resets.push(timed(&host, &[AGENT, "reset", "--yes"])?);
    Ok(joined)
}

fn hand(lab: &Lab, control_plane: &ControlPlane, parts: &artifacts::Artifacts, agent: &Path, n: usize) -> Result<f64> {
    let host = node_of::host(lab, &format!("hand-{n}"), agent, &[])?;
    by_hand::prepare(&host, control_plane)?;
    timed(&host, &["sh", "-c", &by_hand::script(&host, parts)?])
}

/// The time of a command as a shell in the host sees it: without the way into the host.
fn timed(host: &Host, words: &[&str]) -> Result<f64> {
    let clock = "b=$(date +%s%N); \"$@\" >/dev/null; c=$?; e=$(date +%s%N); echo $((e - b)); exit $c";
    let output = host.exec(&[&["sh", "-c", clock, "sh"], words].concat())?;
    let nanoseconds = output.success().with_context(|| words[..words.len().min(3)].join(" "))?.stdout;
    let nanoseconds: u64 = nanoseconds.trim().parse().context("date")?;
    Ok(milliseconds(Duration::from_nanos(nanoseconds)))
}

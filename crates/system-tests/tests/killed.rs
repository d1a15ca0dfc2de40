//! `start` and `reset` crashed, failed and hung at each step, then run again: Ready, or clean. The steps are those that the
//! agent plans: a new one is met without a change here.
#![allow(clippy::unwrap_used, missing_docs)]

use flexnode_lab::snapshot;
use std::time::Instant;
use system_tests::points::{self, Point};
use system_tests::{BUNDLE, Cluster, NEW, Node, all, report};

/// The exit code of a program that SIGKILL ended, as a shell tells it.
const KILLED: i32 = 137;

/// What may differ: the lock's file, which nobody may remove; systemd's own state; a target that says that the network is
/// there, which kubelet's unit asked for.
const KNOWN: [&str; 3] = ["file /run/aks-flex-node.lock:", "file /var/lib/systemd/", "unit network-online.target:"];

/// What has to end early here: steps that hang.
const HANG: &str = "FLEXNODE_HANG_LIMIT=1";

/// The points of an operation, as the agent itself plans it: all crashes before a step, and of the rest what the seed chooses.
fn chosen(node: &Node<'_>, operation: &str, seed: u64) -> Vec<Point> {
    let output = node.agent(&["plan", operation, "--output", "json"]).success().unwrap();
    let all_points = points::of_plan(&serde_json::from_str(&output.stdout).unwrap());
    assert!(all_points.len() > 8 * 6, "{}", output.stdout);
    let chosen = points::choose(&all_points, seed, all());
    let of = all_points.len();
    report(&format!("crash suite, {operation}: seed {seed}, {} of {of} points", chosen.len()));
    chosen
}

/// Runs the command until it meets its point: the process is gone, or it failed and says so.
fn meet(node: &Node<'_>, point: &Point, words: &[&str]) {
    // The service that an earlier run installed would go on by itself; here each run is gone on with by the next.
    node.host.sh("systemctl stop aks-flex-node-agent 2>/dev/null; true").unwrap();
    let output = node.agent_with(&[HANG, &format!("FLEXNODE_FAILPOINT={point}")], words);
    let wanted = if point.crashes() { KILLED } else { 1 };
    assert_eq!(output.code, wanted, "{point}: {}{}", output.stdout, output.stderr);
}

fn look(node: &Node<'_>) -> snapshot::Snapshot {
    node.host.snapshot_with(&snapshot::Options { times: false, ..Default::default() }).unwrap()
}

/// One host goes through all points in the order of the steps: each run takes up what the one before it left, so that every
/// step is also met by what an end at each earlier step leaves behind.
#[test]
#[ignore = "needs root and the lab's programs"]
fn start_and_reset_that_end_at_each_step_end_ready_and_clean() {
    let cluster = Cluster::new();
    let node = cluster.node_with("killed", &[(NEW, BUNDLE)], true);
    let before = look(&node);
    let (seed, begin) = (points::seed(), Instant::now());
    for point in chosen(&node, "start", seed) {
        meet(&node, &point, &["start"]);
    }
    node.start();
    node.wait_ready();

    for point in chosen(&node, "reset", seed) {
        meet(&node, &point, &["reset", "--yes", "--remove-agent"]);
    }
    let output = node.agent(&["reset", "--yes", "--remove-agent"]);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    let lines: Vec<String> = snapshot::diff(&before, &look(&node))
        .into_iter()
        .filter(|line| !KNOWN.iter().any(|known| line.contains(known)))
        .collect();
    assert!(lines.is_empty(), "after reset:\n{}", lines.join("\n"));
    report(&format!("crash suite, start and reset: {:.0} s", begin.elapsed().as_secs_f32()));
}

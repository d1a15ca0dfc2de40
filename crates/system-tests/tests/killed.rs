//! `start` and `reset` killed at each step, then run again: Ready, or clean.
#![allow(clippy::unwrap_used, missing_docs)]

use flexnode_lab::{Output, snapshot};
use system_tests::{BUNDLE, Cluster, NEW, Node};

/// The exit code of a program that SIGKILL ended, as a shell tells it.
const KILLED: i32 = 137;

/// What may differ: the lock's file, which nobody may remove; systemd's own state; a target that says that the network is
/// there, which kubelet's unit asked for.
const KNOWN: [&str; 3] = ["file /run/aks-flex-node.lock:", "file /var/lib/systemd/", "unit network-online.target:"];

/// The names of an operation's steps, as the agent itself plans them.
fn steps(node: &Node<'_>, operation: &str) -> Vec<String> {
    let output = node.agent(&["plan", operation, "--output", "json"]).success().unwrap();
    let plan: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let steps = plan["steps"].as_array().unwrap_or_else(|| panic!("{}", output.stdout));
    steps.iter().map(|step| step["step"].as_str().unwrap().to_owned()).collect()
}

/// Runs the command until it meets its fail point.
fn kill_at(node: &Node<'_>, operation: &str, step: &str, words: &[&str]) -> Output {
    node.agent_env(&format!("FLEXNODE_FAILPOINT={operation}/{step}/before=crash"), words)
}

fn look(node: &Node<'_>) -> snapshot::Snapshot {
    node.host.snapshot_with(&snapshot::Options { times: false, ..Default::default() }).unwrap()
}

/// One host goes through all kills: each run takes up what the killed one before it left, so that every step is also met
/// by what a kill at each earlier step leaves behind.
#[test]
#[ignore = "needs root and the lab's programs"]
fn start_and_reset_killed_at_each_step_end_ready_and_clean() {
    let cluster = Cluster::new();
    let node = cluster.node_with("killed", &[(NEW, BUNDLE)], true);
    let before = look(&node);
    let starts = steps(&node, "start");
    assert!(starts.len() > 10, "{starts:?}");
    for step in &starts {
        let output = kill_at(&node, "start", step, &["start"]);
        assert_eq!(output.code, KILLED, "start before {step}: {}{}", output.stdout, output.stderr);
    }
    node.start();
    node.wait_ready();

    let resets = steps(&node, "reset");
    assert!(resets.len() > 8, "{resets:?}");
    for step in &resets {
        let output = kill_at(&node, "reset", step, &["reset", "--yes", "--remove-agent"]);
        assert_eq!(output.code, KILLED, "reset before {step}: {}{}", output.stdout, output.stderr);
    }
    let output = node.agent(&["reset", "--yes", "--remove-agent"]);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    let lines: Vec<String> = snapshot::diff(&before, &look(&node))
        .into_iter()
        .filter(|line| !KNOWN.iter().any(|known| line.contains(known)))
        .collect();
    assert!(lines.is_empty(), "after reset:\n{}", lines.join("\n"));
}

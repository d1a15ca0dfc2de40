//! What a running node survives: kills, reboots, a lost terminal, two people at once; and what a second run does not do.
#![allow(clippy::unwrap_used, missing_docs)]

use flexnode_lab::{poll, snapshot};
use rustix::process::Signal;
use std::time::Duration;
use system_tests::{AGENT, Cluster, NEW, Node, OLD, SOON};

const BUNDLES: [(system_tests::Version, &str); 2] = [(OLD, "/srv/old"), (NEW, "/srv/new")];
const PROBATION: &str = "FLEXNODE_PROBATION=2";
const LIMIT: Duration = Duration::from_secs(180);

/// A node of the old version, configured for the new one; its agent's service has the suite's probation too.
fn node<'a>(cluster: &'a Cluster, name: &str) -> Node<'a> {
    let node = cluster.node_with(name, &BUNDLES, true);
    node.configure(&node.config_of(OLD, BUNDLES[0].1));
    let dir = "/etc/systemd/system/aks-flex-node-agent.service.d";
    node.host.put(&format!("{dir}/lab.conf"), format!("[Service]\nEnvironment={PROBATION}\n"), 0o644).unwrap();
    node.start();
    node.configure(&node.config_of(NEW, BUNDLES[1].1));
    node
}

/// Waits until the journal is closed.
fn wait_closed(node: &Node<'_>) {
    poll(LIMIT, SOON, "the interrupted operation to be finished", || {
        let record = node.host.read("/var/lib/aks-flex-node/journal/record.json")?;
        let record: serde_json::Value = serde_json::from_str(&record)?;
        Ok((record["phase"] == "closed").then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", node.evidence()));
}

fn is_one_of(node: &Node<'_>, versions: &[&str]) {
    for unit in ["unbounded-containerd.service", "unbounded-kubelet.service"] {
        // After a boot kubelet may have to wait for what it needs.
        node.host.wait_unit(unit, "active", LIMIT).unwrap_or_else(|error| panic!("{error:#}\n{}", node.evidence()));
    }
    node.wait_ready();
    assert!(versions.contains(&node.active().as_str()), "{} runs", node.active());
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn what_a_kill_or_a_reboot_left_is_finished_by_the_agents_service() {
    let cluster = Cluster::new();
    let mut node = node(&cluster, "killed");
    // A real kill while the node is down; the service takes over within seconds, without anybody.
    let point = "FLEXNODE_FAILPOINT=upgrade/start-containerd/before=hang";
    let running = node.host.spawn(&["env", PROBATION, point, AGENT, "upgrade"]).unwrap();
    wait_step(&node, "start-containerd");
    running.kill().unwrap();
    wait_closed(&node);
    is_said(&node, "the upgrade that was interrupted at");
    is_one_of(&node, &[OLD.kubernetes, NEW.kubernetes]);

    // The machine goes down at the worst place, hard, and comes up again.
    let output = node.agent_with(&[PROBATION], &["upgrade", "--retry"]);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    node.host.sh("systemctl stop aks-flex-node-agent").unwrap().success().unwrap();
    let point = "FLEXNODE_FAILPOINT=rollback/write-units/before=crash";
    let killed = node.agent_with(&[PROBATION, point], &["rollback", "--yes"]);
    assert_eq!(killed.code, 137, "{}{}", killed.stdout, killed.stderr);
    node.host.reboot(true).unwrap();
    wait_closed(&node);
    is_said(&node, "rollback that was interrupted at");
    is_one_of(&node, &[OLD.kubernetes, NEW.kubernetes]);

    // A node that a person stopped stays down over a reboot.
    assert_eq!(node.agent(&["stop"]).code, 0);
    node.host.reboot(false).unwrap();
    node.host.wait_unit("aks-flex-node-agent.service", "active", LIMIT).unwrap();
    let states = node.host.sh("systemctl is-active unbounded-kubelet unbounded-containerd").unwrap().stdout;
    assert_eq!(states, "inactive\ninactive\n");
    assert_eq!(node.agent(&["start-node"]).code, 0);
    is_one_of(&node, &[OLD.kubernetes, NEW.kubernetes]);
}

/// The agent's service says in one sentence how an operation ended, and what runs: a moment after the record is closed.
fn is_said(node: &Node<'_>, begins: &str) {
    let sentence = poll(LIMIT, SOON, "the sentence of the agent's service", || {
        let said = node.host.sh("journalctl --no-pager -o cat -u aks-flex-node-agent")?.stdout;
        Ok(said.lines().find(|line| line.contains(begins)).map(str::to_owned))
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", node.evidence()));
    let tells = ["was finished", "was undone", "was given up"].iter().any(|end| sentence.contains(end));
    assert!(tells && sentence.contains("1.36."), "{sentence}");
}

/// Waits until the journal says that a step runs.
fn wait_step(node: &Node<'_>, step: &str) {
    poll(LIMIT, Duration::from_millis(20), &format!("step {step}"), || {
        let record = node.host.read("/var/lib/aks-flex-node/journal/record.json")?;
        let record: serde_json::Value = serde_json::from_str(&record)?;
        Ok((record["step"] == step && record["phase"] == "running").then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", node.evidence()));
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn a_lost_session_and_a_second_person_do_no_harm() {
    let cluster = Cluster::new();
    let node = node(&cluster, "lost");
    // The session goes while the node is down: the terminal's process group is told, and nobody reads any more.
    let running = node.host.spawn(&["env", PROBATION, AGENT, "upgrade"]).unwrap();
    wait_step(&node, "start-containerd");
    running.signal(Signal::HUP).unwrap();
    // Another person tries meanwhile, and is told who is at work.
    let pid = node.host.sh("pgrep -f 'aks-flex-node upgrade' | head -1").unwrap().stdout.trim().to_owned();
    for words in [&["upgrade"] as &[&str], &["restart"], &["stop"], &["start-node"]] {
        let second = node.agent(words);
        assert_eq!(second.code, 6, "{words:?}: {}{}", second.stdout, second.stderr);
        assert!(second.stderr.contains("upgrade") && second.stderr.contains(&pid), "{words:?}: {}", second.stderr);
    }
    let output = running.wait(LIMIT).unwrap();
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    is_one_of(&node, &[NEW.kubernetes]);
    // A reader that closes its end; every later write fails.
    let output = node.host.sh(&format!("{PROBATION} {AGENT} rollback --yes 2>&1 | head -n 1")).unwrap();
    assert_eq!(output.code, 0);
    wait_closed(&node);
    poll(LIMIT, SOON, "the lock", || {
        Ok((node.host.sh("flock -n /run/aks-flex-node.lock true")?.code == 0).then_some(()))
    })
    .unwrap();
    is_one_of(&node, &[OLD.kubernetes, NEW.kubernetes]);
}

/// However often the agent's service ended in a short time, it is started again: nobody else finishes what is open.
#[test]
#[ignore = "needs root and the lab's programs"]
fn a_service_that_is_killed_again_and_again_comes_back_and_finishes_what_is_open() {
    let cluster = Cluster::new();
    let node = node(&cluster, "again");
    let service = "aks-flex-node-agent.service";
    // The product's pause is for crash loops; the count of starts is what matters here.
    let quick = "[Service]\nRestartSec=50ms\nRestartSteps=0\n";
    node.host.put(&format!("/etc/systemd/system/{service}.d/quick.conf"), quick, 0o644).unwrap();
    node.host.sh("systemctl daemon-reload").unwrap().success().unwrap();
    let pid = || node.host.exec(&["systemctl", "show", "-P", "MainPID", service]).unwrap().stdout.trim().to_owned();
    let kill = |last: &str| {
        node.host.sh(&format!("kill -KILL {last}")).unwrap();
        poll(LIMIT, SOON, "the service to come back", || {
            let now = pid();
            Ok((now != "0" && now != last && node.host.exec(&["systemctl", "is-active", service])?.code == 0)
                .then_some(now))
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", node.evidence()))
    };
    let mut last = pid();
    for _ in 0..8 {
        last = kill(&last);
    }
    let point = "FLEXNODE_FAILPOINT=upgrade/start-containerd/before=crash";
    assert_eq!(node.agent_with(&[PROBATION, point], &["upgrade"]).code, 137);
    kill(&last);
    wait_closed(&node);
    is_said(&node, "the upgrade that was interrupted at");
    is_one_of(&node, &[OLD.kubernetes, NEW.kubernetes]);
}

/// All that a second run could touch, with times, and the processes.
fn state_of(node: &Node<'_>) -> (Vec<snapshot::Snapshot>, Vec<String>) {
    let mut options = snapshot::Options::default();
    options.excluded.push("/var/lib/aks-flex-node/journal".into()); // A run is a run: only its record may change.
    let trees = ["/opt", "/etc", "/var/lib/aks-flex-node", "/root"];
    (trees.map(|tree| node.host.files(tree, &options).unwrap()).to_vec(), node.main_pids())
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn a_second_run_changes_nothing_and_a_reset_after_an_upgrade_leaves_nothing() {
    let cluster = Cluster::new();
    let node = cluster.node_with("twice", &BUNDLES, true);
    let mut options = snapshot::Options { times: false, ..Default::default() };
    options.excluded.push("/etc/aks-flex-node/config.json".into()); // The user's, who changes it here.
    let fresh = node.host.snapshot_with(&options).unwrap();
    node.configure(&node.config_of(OLD, BUNDLES[0].1));
    node.start();
    node.configure(&node.config_of(NEW, BUNDLES[1].1));
    let run = |words: &[&str]| {
        let output = node.agent_with(&[PROBATION], words);
        assert_eq!(output.code, 0, "{words:?}: {}{}\n{}", output.stdout, output.stderr, node.evidence());
    };
    // A failed one first: what it keeps has to go in the end too.
    let failed = node.agent_with(&[PROBATION, "FLEXNODE_FAILPOINT=upgrade/start-kubelet/after=error"], &["upgrade"]);
    assert_eq!(failed.code, 7, "{}{}", failed.stdout, failed.stderr);
    run(&["upgrade", "--retry"]);
    let old = node.host.sh("cd /opt/unbounded/node && ls -d 1.36.2-*").unwrap().stdout.trim().to_owned();
    // C064, C068: nothing is written, restarted or reloaded.
    for twice in [
        &["upgrade"] as &[&str],
        &["start"],
        &["start-node"],
        &["rollback", "--to", &old, "--yes"],
        &["stop"],
        &["start-node"],
    ] {
        run(twice);
        let (first, pids) = state_of(&node);
        let reloads = "journalctl --no-pager -o cat -b _PID=1 | grep -c -i reload";
        let reloaded = node.host.sh(reloads).unwrap().stdout;
        run(twice);
        let (second, pids_then) = state_of(&node);
        let lines: Vec<String> = first.iter().zip(&second).flat_map(|(a, b)| snapshot::diff(a, b)).collect();
        assert!(lines.is_empty(), "a second {twice:?} changed something:\n{}", lines.join("\n"));
        assert_eq!(pids, pids_then, "a second {twice:?} restarted something");
        assert_eq!(reloaded, node.host.sh(reloads).unwrap().stdout, "a second {twice:?} made systemd reload");
    }
    cluster.run_pods(&node, 1);
    run(&["reset", "--yes", "--remove-agent"]);
    let left = snapshot::diff(&fresh, &node.host.snapshot_with(&options).unwrap());
    let known = ["file /run/aks-flex-node.lock:", "file /var/lib/systemd/", "unit network-online.target:"];
    let left: Vec<&String> = left.iter().filter(|line| !known.iter().any(|known| line.contains(known))).collect();
    assert!(left.is_empty(), "after reset:\n{left:#?}");
}

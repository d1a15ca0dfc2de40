//! From a fresh host to a Ready node and back, without a trace.
#![allow(clippy::unwrap_used, missing_docs)]

use flexnode_lab::{Host, image, poll, snapshot};
use std::time::Duration;
use system_tests::{AGENT, CONFIG, Cluster, Node, SOON};

/// What may differ after a reset, each by name and with the reason. Everything else must be as before.
fn allowed(line: &str) -> bool {
    let Some((_, thing)) = line.split_once(' ') else { return false };
    [
        // systemd's own state of runs: journals, timers, the unit cache.
        "file /var/lib/systemd/",
        "file /var/log/wtmp",
        "file /var/log/btmp",
        "file /run/",
        "file /tmp",
        "file /var/tmp",
        // A directory in which something was made and removed again has another time; its content is compared.
        "file /etc:",
        "file /var/lib:",
        "file /var/log:",
        "file /opt:",
        // A target of systemd that kubelet's unit asked for; it says of itself that the network is there.
        "unit network-online.target:",
    ]
    .iter()
    .any(|prefix| thing.starts_with(prefix))
}

#[track_caller]
fn assert_same(before: &snapshot::Snapshot, after: &snapshot::Snapshot, what: &str) {
    let lines: Vec<String> = snapshot::diff(before, after).into_iter().filter(|l| !allowed(l)).collect();
    assert!(lines.is_empty(), "{what}:\n{}", lines.join("\n"));
}

fn snapshot_without_times(host: &Host) -> snapshot::Snapshot {
    host.snapshot_with(&snapshot::Options { times: false, ..Default::default() }).unwrap()
}

/// All that a second `start` could touch: the node's files with their times, and the main processes of its units.
fn state_of(node: &Node<'_>) -> (Vec<snapshot::Snapshot>, Vec<String>) {
    let mut options = snapshot::Options::default();
    options.excluded.push("/var/lib/aks-flex-node/journal".into()); // A run is a run: only its record may change.
    let trees = ["/opt", "/etc", "/usr", "/var/lib/aks-flex-node", "/root"];
    (trees.map(|tree| node.host.files(tree, &options).unwrap()).to_vec(), node.main_pids())
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn start_makes_a_ready_node_and_reset_leaves_no_trace() {
    let cluster = Cluster::new();
    let node = cluster.node("whole");
    let before = snapshot_without_times(&node.host);
    assert_eq!(node.agent(&["status"]).code, 4, "a host without a node is not a node");

    let output = node.start();
    assert!(node.is_ready(), "start ends when the Node is Ready: {}", output.stdout);
    let pods = cluster.run_pods(&node, 1);
    let address = node.wait_pod(&pods[0]);
    assert!(cluster.ask_pod(&address).ends_with(image::WEB_ANSWER));
    let status = node.agent(&["status"]);
    assert_eq!(status.code, 0, "{}{}", status.stdout, status.stderr);
    assert!(status.stdout.contains("1.36.3"), "{}", status.stdout);

    let first = state_of(&node);
    let again = node.start();
    let second = state_of(&node);
    let lines: Vec<String> = first.0.iter().zip(&second.0).flat_map(|(a, b)| snapshot::diff(a, b)).collect();
    assert!(lines.is_empty(), "a second start changed something:\n{}", lines.join("\n"));
    assert_eq!(first.1, second.1, "a second start restarted something");
    assert!(
        format!("{}{}", again.stdout, again.stderr).contains("othing"),
        "it says that nothing changed: {}{}",
        again.stdout,
        again.stderr
    );

    cluster.control_plane.kubectl(&["delete", "pod", &pods[0], "--grace-period=1"]).unwrap().success().unwrap();
    let reset = node.agent(&["reset", "--yes", "--remove-agent"]);
    assert_eq!(reset.code, 0, "{}{}", reset.stdout, reset.stderr);
    assert!(reset.stdout.contains("kubectl delete node whole"), "the command for the Node object: {}", reset.stdout);
    assert_same(&before, &snapshot_without_times(&node.host), "after reset");
    assert_eq!(node.agent(&["status"]).code, 4);
    assert_eq!(node.agent(&["reset", "--yes"]).code, 0, "a second reset ends well");
    assert_same(&before, &snapshot_without_times(&node.host), "after a second reset");
}

/// What another user of CNI and podman has on a host.
const FOREIGN: &str = "set -e
ip link add cni0 type bridge; ip link set cni0 addrgenmode none; ip addr add 10.88.0.1/16 dev cni0; ip link set cni0 up
ip netns add podman-box; ip link add veth-other type veth peer name eth0 netns podman-box; ip link set veth-other master cni0
iptables -t nat -N CNI-foreign; iptables -t nat -A CNI-foreign -s 10.88.0.0/16 -j MASQUERADE; iptables -t nat -A POSTROUTING -j CNI-foreign
mkdir -p /opt/cni/bin /etc/cni/net.d /var/lib/cni/networks/podman
echo other >/opt/cni/bin/other-plugin; echo '{}' >/etc/cni/net.d/87-podman.conflist; echo box >/var/lib/cni/networks/podman/10.88.0.5
";

#[test]
#[ignore = "needs root and the lab's programs"]
fn reset_with_ten_pods_leaves_what_others_have() {
    let cluster = Cluster::new();
    let node = cluster.node("shared");
    node.host.sh(FOREIGN).unwrap().success().unwrap();
    // Our pods need a bridge of their own: the name cni0 is taken here.
    let conflist = node.host.network_plugin_config().replace("cni0", "cni-lab");
    node.host.put("/etc/cni/net.d/10-lab.conflist", conflist, 0o644).unwrap();
    let before = snapshot_without_times(&node.host);
    node.start();
    cluster.run_pods(&node, 10);
    let reset = node.agent(&["reset", "--yes", "--remove-agent"]);
    assert_eq!(reset.code, 0, "{}{}", reset.stdout, reset.stderr);
    let after = snapshot_without_times(&node.host);
    let lines: Vec<String> = snapshot::diff(&before, &after)
        .into_iter()
        .filter(|l| !allowed(l))
        .filter(|l| !l.contains("cni-lab") || !reset.stdout.contains("cni-lab"))
        .collect();
    assert!(lines.is_empty(), "after reset:\n{}\n{}", lines.join("\n"), reset.stdout);
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn a_host_of_someone_else_is_refused_with_every_finding() {
    let cluster = Cluster::new();
    let node = cluster.node("foreign");
    node.host.put("/usr/lib/systemd/system/containerd.service", "[Service]\nExecStart=/bin/true\n", 0o644).unwrap();
    node.host.put("/usr/bin/kubelet", "#!/bin/sh\n", 0o755).unwrap();
    let before = snapshot_without_times(&node.host);
    let output = node.agent(&["start"]);
    let said = format!("{}{}", output.stdout, output.stderr);
    assert_eq!(output.code, 1, "{said}");
    assert!(said.contains("/usr/lib/systemd/system/containerd.service"), "{said}");
    assert!(said.contains("/usr/bin/kubelet"), "{said}");
    assert_same(&before, &snapshot_without_times(&node.host), "a refused start changes nothing");
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn a_cluster_that_cannot_be_joined_is_said_before_any_change() {
    let cluster = Cluster::new();
    let node = cluster.node("outside");
    let before = snapshot_without_times(&node.host);
    let good = node.config();
    let expired = flexnode_lab::control_plane::Token { without_rights: true, ..Default::default() };
    let weak = cluster.control_plane.add_token(&expired).unwrap();
    let cases: [(&str, serde_json::Value, &[&str]); 5] = [
        ("/azure/bootstrapToken/token", "aaaaaa.bbbbbbbbbbbbbbbb".into(), &["token"]),
        ("/azure/bootstrapToken/token", weak.into(), &["certificate signing requests", "system:node-bootstrapper"]),
        ("/node/kubelet/clusterFQDN", format!("{}:1", cluster.lab.gateway()).into(), &["refused"]),
        ("/node/kubelet/clusterFQDN", "no-such-name.invalid:6443".into(), &["no-such-name.invalid"]),
        ("/node/kubelet/caCertData", other_ca(&cluster).into(), &["CA"]),
    ];
    for (pointer, value, words) in cases {
        let mut config = good.clone();
        *config.pointer_mut(pointer).unwrap() = value.clone();
        node.configure(&config);
        let begin = std::time::Instant::now();
        let output = node.agent(&["start"]);
        let said = format!("{}{}", output.stdout, output.stderr);
        assert_eq!(output.code, 1, "{pointer} = {value}: {said}");
        assert!(begin.elapsed() < Duration::from_secs(12), "{pointer}: it took {:?}", begin.elapsed());
        for word in words {
            assert!(said.contains(word), "{pointer} = {value}: {word:?} is not in: {said}");
        }
        assert!(!said.contains("bbbbbbbbbbbbbbbb"), "the token is not shown: {said}");
    }
    node.configure(&good);
    assert_same(&before, &snapshot_without_times(&node.host), "nothing was changed");
}

fn other_ca(cluster: &Cluster) -> String {
    use base64::Engine as _;
    let folder = cluster.lab.folder().join("other-ca");
    std::fs::create_dir_all(&folder).unwrap();
    let other = flexnode_lab::pki::Authority::create(&folder, "other-ca").unwrap();
    base64::engine::general_purpose::STANDARD.encode(other.certificate().unwrap())
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn a_pending_request_is_named_with_the_command_that_approves_it() {
    let cluster = Cluster::with(&flexnode_lab::control_plane::Options { manual_approval: true, ..Default::default() });
    let node = cluster.node("pending");
    let start = node.host.spawn(&[AGENT, "start"]).unwrap();
    let request = poll(Duration::from_secs(120), SOON, "a pending request", || {
        Ok(cluster.control_plane.pending_requests()?.pop())
    })
    .unwrap();
    let mut said = String::new();
    let mut approved = false;
    let output = start
        .wait_with(Duration::from_secs(180), |_, bytes| {
            said.push_str(&String::from_utf8_lossy(bytes));
            if !approved && said.contains("kubectl certificate approve") {
                cluster.control_plane.approve(&request).unwrap();
                approved = true;
            }
        })
        .unwrap();
    assert!(approved, "{said}");
    assert_eq!(output.code, 0, "{said}");
    node.wait_ready();
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn a_node_that_only_lacks_its_network_plugin_ends_well() {
    let cluster = Cluster::new();
    let node = cluster.node("bare");
    node.host.sh("rm -r /etc/cni").unwrap().success().unwrap();
    let output = node.start();
    assert!(!node.is_ready());
    assert!(output.stdout.contains("network plugin") || output.stderr.contains("network plugin"), "{}", output.stdout);
    assert_eq!(
        node.agent(&["start", "--wait", "ready", "--timeout", "2s"]).code,
        8,
        "asked by name, it has to be Ready"
    );
    node.host.put("/etc/cni/net.d/10-lab.conflist", node.host.network_plugin_config(), 0o644).unwrap();
    node.wait_ready();
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn another_goal_changes_nothing_and_names_the_upgrade() {
    let cluster = Cluster::new();
    let node = cluster.node("fixed");
    node.start();
    let first = state_of(&node);
    let mut config = node.config();
    config["node"]["maxPods"] = 42.into();
    node.host.put(CONFIG, config.to_string(), 0o600).unwrap();
    let output = node.agent(&["start"]);
    let said = format!("{}{}", output.stdout, output.stderr);
    assert_eq!(output.code, 1, "{said}");
    assert!(said.contains("42") && said.contains("110") && said.contains("aks-flex-node upgrade"), "{said}");
    assert_eq!(first.1, node.main_pids(), "nothing was restarted");

    // Labels belong to the node, not to a version: they are patched, nothing restarts.
    let mut config = node.config();
    config["node"]["labels"]["example.com/site"] = "moved".into();
    node.configure(&config);
    node.start();
    let object = node.object().unwrap();
    assert_eq!(object["metadata"]["labels"]["example.com/site"], "moved");
    assert_eq!(first.1, node.main_pids(), "nothing was restarted");
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn a_hardened_host_gets_explicit_modes_and_no_secret_leaks() {
    let cluster = Cluster::new();
    let node = cluster.node("hardened");
    // C011, C020: a closed umask, and an image in which kubelet.service is masked.
    node.host.sh("ln -s /dev/null /etc/systemd/system/kubelet.service").unwrap().success().unwrap();
    let output = node.host.sh(&format!("umask 077; exec {AGENT} start")).unwrap();
    assert_eq!(output.code, 0, "{}{}\n{}", output.stdout, output.stderr, node.evidence());
    node.wait_ready();
    let modes = "stat -Lc '%a %n' /opt/unbounded /opt/unbounded/node /opt/unbounded/node/current /opt/unbounded/node/current/bin \
        /opt/unbounded/node/current/bin/kubelet /etc/unbounded/kubelet/registration.env /opt/cni/bin";
    for line in node.host.sh(modes).unwrap().success().unwrap().stdout.lines() {
        let mode = line.split(' ').next().unwrap();
        assert!(mode == "755" || mode == "644", "{line}");
    }
    let token = cluster.control_plane.token().unwrap();
    let secret = token.split('.').next_back().unwrap();
    assert!(!format!("{}{}", output.stdout, output.stderr).contains(secret), "the token is in the output");
    // The commands that look must not have it among their arguments.
    node.host.put("/root/secret", secret, 0o600).unwrap();
    let leaks = "grep -rslFf /root/secret /etc /opt /var/lib /run --exclude-dir=kubepods | xargs -r stat -c '%a %n'; \
         journalctl --no-pager | grep -cFf /root/secret; cat /proc/[0-9]*/cmdline | grep -caFf /root/secret";
    let found = node.host.sh(leaks).unwrap().stdout;
    for line in found.lines().filter(|l| l.contains('/')) {
        assert!(line.starts_with("600 "), "a file that others can read has the token: {line}");
    }
    assert!(found.lines().filter(|l| !l.contains('/')).all(|l| l == "0"), "journal and arguments: {found}");
    node.reset();
    assert_eq!(
        node.host.sh("readlink /etc/systemd/system/kubelet.service").unwrap().stdout,
        "/dev/null\n",
        "the mask stays"
    );
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn names_resolve_in_the_static_program_from_hosts_and_dns() {
    let cluster = Cluster::new();
    let node = cluster.node("named");
    let mut config = node.config();
    config["node"]["kubelet"]["clusterFQDN"] = "kubernetes.default.svc:6443".into();
    node.configure(&config);
    let kind = node.host.sh(&format!("ldd {AGENT} 2>&1 || true")).unwrap().stdout;
    assert!(kind.contains("statically linked") || kind.contains("not a dynamic"), "{kind}");
    node.host
        .sh(&format!("echo '{} kubernetes.default.svc' >>/etc/hosts", cluster.lab.gateway()))
        .unwrap()
        .success()
        .unwrap();
    let output = node.agent(&["start", "--wait", "joined"]);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
}

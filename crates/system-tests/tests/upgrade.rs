//! From one version to another and back, with real programs and a real API server.
#![allow(clippy::unwrap_used, missing_docs)]

use flexnode_lab::image;
use system_tests::{Cluster, NEW, Node, OLD};

const OLD_BUNDLE: &str = "/srv/old";
const NEW_BUNDLE: &str = "/srv/new";

/// A node of the old version that sees the bundles of both.
fn node<'a>(cluster: &'a Cluster, name: &str, fail_points: bool) -> Node<'a> {
    let node = cluster.node_with(name, &[(OLD, OLD_BUNDLE), (NEW, NEW_BUNDLE)], fail_points);
    node.configure(&node.config_of(OLD, OLD_BUNDLE));
    node.start();
    node
}

/// What kubelet and the runtime say that they are.
fn reported(node: &Node<'_>) -> (String, String) {
    let object = node.object().unwrap();
    let info = &object["status"]["nodeInfo"];
    let text = |key: &str| info[key].as_str().unwrap_or_default().to_owned();
    (text("kubeletVersion"), text("containerRuntimeVersion"))
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn an_upgrade_under_running_pods_and_the_way_back() {
    let cluster = Cluster::new();
    let node = node(&cluster, "upgraded", false);
    let pods = cluster.run_pods(&node, 1);
    assert_eq!(node.active(), OLD.kubernetes);
    let (_, old_runtime) = reported(&node);

    node.configure(&node.config_of(NEW, NEW_BUNDLE));
    let output = node.agent(&["upgrade"]);
    assert_eq!(output.code, 0, "{}{}\n{}", output.stdout, output.stderr, node.evidence());
    assert_eq!(node.active(), NEW.kubernetes);
    assert!(node.is_ready(), "upgrade ends when the Node is Ready again");
    let (kubelet, new_runtime) = reported(&node);
    assert_eq!(kubelet, format!("v{}", NEW.kubernetes));
    assert_ne!(new_runtime, old_runtime);
    let address = node.wait_pod(&pods[0]);
    assert!(cluster.ask_pod(&address).ends_with(image::WEB_ANSWER), "the pod came back");

    let before = node.main_pids();
    let again = node.agent(&["upgrade"]);
    assert_eq!(again.code, 0, "{}{}", again.stdout, again.stderr);
    assert!(again.stdout.contains("runs already"), "{}", again.stdout);
    assert_eq!(before, node.main_pids(), "a second upgrade restarts nothing");

    assert_eq!(node.agent(&["rollback"]).code, 5, "without a terminal it has to be confirmed");
    let output = node.agent(&["rollback", "--yes"]);
    assert_eq!(output.code, 0, "{}{}\n{}", output.stdout, output.stderr, node.evidence());
    assert_eq!(node.active(), OLD.kubernetes);
    assert_eq!(reported(&node), (format!("v{}", OLD.kubernetes), old_runtime));
    assert!(node.is_ready());
    node.wait_pod(&pods[0]);
    assert_eq!(node.agent(&["upgrade"]).code, 5, "a person went back from this goal");
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn a_new_version_that_does_not_come_up_is_taken_back_and_not_tried_again() {
    let cluster = Cluster::new();
    let node = node(&cluster, "failed", true);
    node.configure(&node.config_of(NEW, NEW_BUNDLE));
    let output = node.agent_env("FLEXNODE_FAILPOINT=upgrade/start-kubelet/after=error", &["upgrade"]);
    assert_eq!(output.code, 7, "{}{}\n{}", output.stdout, output.stderr, node.evidence());
    assert_eq!(node.active(), OLD.kubernetes);
    node.wait_ready();
    let evidence = node.host.sh("stat -c %a /var/lib/aks-flex-node/artifacts/evidence/*").unwrap();
    assert_eq!(evidence.stdout, "600\n");
    let refused = node.agent(&["upgrade"]);
    assert_eq!(refused.code, 2, "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("--retry"), "{}", refused.stderr);
    let output = node.agent(&["upgrade", "--retry"]);
    assert_eq!(output.code, 0, "{}{}\n{}", output.stdout, output.stderr, node.evidence());
    assert_eq!(node.active(), NEW.kubernetes);
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn a_stop_lasts_until_the_node_is_started_again() {
    let cluster = Cluster::new();
    let node = cluster.node("stopped");
    node.start();
    assert_eq!(node.agent(&["stop"]).code, 0);
    let states = "systemctl is-active unbounded-kubelet unbounded-containerd; systemctl is-enabled unbounded-kubelet unbounded-containerd";
    assert_eq!(node.host.sh(states).unwrap().stdout, "inactive\ninactive\ndisabled\ndisabled\n");
    let output = node.agent(&["start-node"]);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    assert_eq!(node.host.sh(states).unwrap().stdout, "active\nactive\nenabled\nenabled\n");
    let before = node.main_pids();
    let output = node.agent(&["restart"]);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    assert_ne!(before[..2], node.main_pids()[..2]);
    node.wait_ready();
}

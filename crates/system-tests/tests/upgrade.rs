//! From one version to another and back, with real programs and a real API server.
#![allow(clippy::unwrap_used, missing_docs)]

use flexnode_lab::{image, poll};
use std::time::Duration;
use system_tests::{Cluster, NEW, Node, OLD, SOON, Version};

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
    let pods = cluster.run_pods(&node, 10);
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
    for pod in &pods {
        let address = node.wait_pod(pod);
        assert!(cluster.ask_pod(&address).ends_with(image::WEB_ANSWER), "{pod} came back");
    }

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
    for pod in &pods {
        node.wait_pod(pod);
    }
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

/// The suite has no time for the product's half minute.
const PROBATION: &str = "FLEXNODE_PROBATION=4";

#[test]
#[ignore = "needs root and the lab's programs"]
fn a_node_that_waits_for_its_network_plugin_can_be_upgraded() {
    let cluster = Cluster::new();
    let node = cluster.node_with("waits", &[(OLD, OLD_BUNDLE), (NEW, NEW_BUNDLE)], true);
    node.host.sh("rm -r /etc/cni").unwrap().success().unwrap();
    node.configure(&node.config_of(OLD, OLD_BUNDLE));
    node.start();
    assert!(!node.is_ready());
    node.configure(&node.config_of(NEW, NEW_BUNDLE));
    let output = node.agent_env(PROBATION, &["upgrade"]);
    assert_eq!(output.code, 0, "{}{}\n{}", output.stdout, output.stderr, node.evidence());
    assert_eq!((node.active().as_str(), node.is_ready()), (NEW.kubernetes, false));
    node.host.put("/etc/cni/net.d/10-lab.conflist", node.host.network_plugin_config(), 0o644).unwrap();
    node.wait_ready();
}

/// What the person has to edit, as `status` tells it.
fn to_edit(node: &Node<'_>) -> Vec<String> {
    let status = node.agent(&["status"]);
    let lines = status.stdout.lines().skip_while(|line| !line.starts_with("To keep what runs"));
    lines.skip(1).take_while(|line| line.starts_with("    ")).map(|line| line.trim().to_owned()).collect()
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn another_kubernetes_version_alone_and_back_with_the_lines_to_edit() {
    let cluster = Cluster::new();
    // Everything else is as it runs: the same containerd. The source is named after the version that is gone to.
    let between = Version { kubernetes: NEW.kubernetes, suite: OLD.suite };
    let at = [OLD.kubernetes, NEW.kubernetes].map(|version| format!("/srv/v{version}"));
    let node = cluster.node_with("versions", &[(OLD, &at[0]), (between, &at[1])], true);
    node.configure(&node.config_of(OLD, "/srv/{{.KubernetesVersion}}"));
    node.start();
    let (_, runtime) = reported(&node);
    assert_eq!(node.agent(&["upgrade", "--to-version", "1.2.3"]).code, 1, "there is no such source");

    let output = node.agent_env(PROBATION, &["upgrade", "--to-version", NEW.kubernetes]);
    assert_eq!(output.code, 0, "{}{}\n{}", output.stdout, output.stderr, node.evidence());
    assert_eq!(reported(&node), (format!("v{}", NEW.kubernetes), runtime.clone()));
    let edit = format!("components.kubernetes: {} -> {}", OLD.kubernetes, NEW.kubernetes);
    assert!(output.stdout.ends_with(&format!("to edit in it:\n  {edit}\n")), "{}", output.stdout);
    poll(Duration::from_secs(90), SOON, "status to tell what to edit", || {
        Ok((to_edit(&node) == [edit.clone()]).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", node.agent(&["status"]).stdout));
    let before = node.main_pids();
    let start = node.agent(&["start"]);
    assert_eq!(start.code, 1, "{}{}", start.stdout, start.stderr);
    let line = format!("components.kubernetes: {} runs, the configuration says {}", NEW.kubernetes, OLD.kubernetes);
    assert!(start.stderr.contains(&line) && start.stderr.contains("edit these lines"), "{}", start.stderr);
    assert!(!start.stderr.contains("Reserved") && !start.stderr.contains("artifacts"), "{}", start.stderr);
    assert_eq!(before, node.main_pids());

    // To what the configuration says: it is older, so a person has to say yes.
    let asked = node.agent(&["upgrade"]);
    assert_eq!(asked.code, 5, "{}{}", asked.stdout, asked.stderr);
    let back = node.agent_env(PROBATION, &["upgrade", "--yes"]);
    assert_eq!(back.code, 0, "{}{}\n{}", back.stdout, back.stderr, node.evidence());
    assert_eq!(reported(&node), (format!("v{}", OLD.kubernetes), runtime));
    assert!(!back.stdout.contains("to edit"), "{}", back.stdout);
    poll(Duration::from_secs(90), SOON, "status to tell nothing to edit", || {
        Ok(to_edit(&node).is_empty().then_some(()))
    })
    .unwrap();
    assert_eq!(node.agent(&["start"]).code, 0);
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn the_cpu_managers_policy_is_changed_and_a_failure_brings_its_state_back() {
    let cluster = Cluster::new();
    let node = node(&cluster, "pinned", true);
    let policy = || node.host.read("/var/lib/kubelet/cpu_manager_state").unwrap();
    let before = policy();
    assert!(before.contains("\"policyName\":\"none\""), "{before}");
    let mut config = node.config_of(NEW, NEW_BUNDLE);
    config["node"]["kubelet"]["config"]["cpuManagerPolicy"] = "static".into();
    node.configure(&config);
    // C116. The new kubelet has run and written a state that the old one refuses.
    let failed = "FLEXNODE_FAILPOINT=upgrade/wait-ready/before=error";
    let output = node.agent_with(&[PROBATION, failed], &["upgrade"]);
    assert_eq!(output.code, 7, "{}{}\n{}", output.stdout, output.stderr, node.evidence());
    assert_eq!((node.active().as_str(), policy()), (OLD.kubernetes, before));
    node.wait_ready();
    let output = node.agent_with(&[PROBATION], &["upgrade", "--retry"]);
    assert_eq!(output.code, 0, "{}{}\n{}", output.stdout, output.stderr, node.evidence());
    assert!(policy().contains("\"policyName\":\"static\""), "{}", policy());
    node.wait_ready();
}

//! What only shows on a real host: a reset that touches nothing, the Node that is deleted, an image under an old name.
#![allow(clippy::unwrap_used, missing_docs)]

use flexnode_lab::{image, snapshot};
use system_tests::{Cluster, Node};

/// Trees with everything that the agent could touch; what systemd writes by itself is left out.
fn files(node: &Node<'_>) -> Vec<snapshot::Snapshot> {
    let mut options = snapshot::Options::default();
    options.excluded.push("/var/lib/systemd".into());
    ["/etc", "/opt", "/usr", "/root", "/var/lib"].map(|tree| node.host.files(tree, &options).unwrap()).to_vec()
}

#[track_caller]
fn assert_untouched(before: &[snapshot::Snapshot], after: &[snapshot::Snapshot]) {
    let lines: Vec<String> = before.iter().zip(after).flat_map(|(a, b)| snapshot::diff(a, b)).collect();
    assert!(lines.is_empty(), "something was touched:\n{}", lines.join("\n"));
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn a_reset_of_a_host_that_is_no_node_touches_nothing() {
    let cluster = Cluster::new();
    let node = cluster.node("clean");
    let before = files(&node);
    let output = node.agent(&["reset", "--yes"]);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    assert!(output.stdout.contains("nothing had to be removed"), "{}", output.stdout);
    assert_untouched(&before, &files(&node));
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn with_a_credential_that_may_the_node_is_deleted_too() {
    let cluster = Cluster::new();
    let node = cluster.node("deleted");
    let admin = std::fs::read(cluster.control_plane.kubeconfig()).unwrap();
    node.host.put("/root/open.conf", &admin, 0o644).unwrap();
    node.host.put("/root/admin.conf", &admin, 0o600).unwrap();
    node.start();
    let refused = node.agent(&["reset", "--yes", "--kubeconfig", "/root/open.conf"]);
    assert_eq!(refused.code, 2, "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("chmod 0600 /root/open.conf"), "{}", refused.stderr);
    assert!(node.is_ready(), "nothing was changed");

    let output = node.agent(&["reset", "--yes", "--kubeconfig", "/root/admin.conf"]);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    assert!(output.stdout.contains("the Node deleted is not in the cluster any more"), "{}", output.stdout);
    assert!(node.object().is_none(), "the Node is gone");
    // A kubelet that is gone does not register it again, and there is nothing left to reset.
    let again = node.agent(&["reset", "--yes", "--kubeconfig", "/root/admin.conf"]);
    assert_eq!(again.code, 0, "{}{}", again.stdout, again.stderr);
    assert!(node.object().is_none());
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn an_image_with_another_content_under_its_name_is_imported_again() {
    let cluster = Cluster::new();
    let node = cluster.node("images");
    node.start();
    let ctr = "/opt/unbounded/node/current/bin/ctr -n k8s.io images";
    let digest = |name: &str| {
        let listed = node.host.sh(&format!("{ctr} ls name=={name} | tail -n 1")).unwrap().success().unwrap().stdout;
        listed.split_whitespace().nth(2).unwrap_or_default().to_owned()
    };
    let pause = digest(image::PAUSE);
    assert_ne!(pause, digest(image::WEB));
    node.host.sh(&format!("{ctr} tag --force {} {}", image::WEB, image::PAUSE)).unwrap().success().unwrap();
    assert_eq!(digest(image::PAUSE), digest(image::WEB));

    let before = node.main_pids();
    let output = node.start();
    assert_eq!(digest(image::PAUSE), pause, "{}{}", output.stdout, output.stderr);
    assert_eq!(before, node.main_pids(), "nothing was restarted for it");
    let output = node.start();
    assert!(!format!("{}{}", output.stdout, output.stderr).contains("importing"), "{}{}", output.stdout, output.stderr);
}

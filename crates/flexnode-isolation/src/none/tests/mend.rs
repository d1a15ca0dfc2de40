use super::*;
use crate::none::manifest::{self, Level, SlotError};
use flexnode_host::testing::MemFs;
use std::path::Path;

const COPY: &str = "/opt/unbounded/node/.flexnode-tmp-copy";

/// v1 is installed; a copy of its files lies beside it.
async fn damaged(break_it: impl FnOnce(&MemFs)) -> Node {
    let node = Node::new().running("v1").await;
    let fs = &node.fake.fs;
    for file in ["bin/kubelet", "bin/containerd", "etc/kubelet/config.yaml"] {
        let path = Path::new("/opt/unbounded/node/v1").join(file);
        let bytes = flexnode_host::Fs::read(fs.as_ref(), &path, 1 << 20).unwrap();
        if let (Some(bytes), Some(stat)) = (bytes, flexnode_host::Fs::lstat(fs.as_ref(), &path).unwrap()) {
            fs.put(Path::new(COPY).join("v1").join(file), bytes, stat.mode);
        }
    }
    break_it(fs);
    node
}

fn mend(node: &Node) -> Result<Vec<String>, SlotError> {
    node.backend.mend_version("v1", &Layout::new(COPY), "goal")
}

fn is_whole(node: &Node) {
    manifest::verify(node.fake.fs.as_ref(), &node.backend.layout, "v1", Level::Content).unwrap();
}

#[tokio::test]
async fn what_is_damaged_or_missing_is_replaced_and_nothing_else() {
    let node = damaged(|fs| {
        fs.put("/opt/unbounded/node/v1/bin/kubelet", "half", 0o755);
        fs.take("/opt/unbounded/node/v1/etc/kubelet/config.yaml");
        flexnode_host::Fs::chmod(fs, Path::new("/opt/unbounded/node/v1/bin/containerd"), 0o600).unwrap();
        fs.put("/opt/unbounded/node/v1/bin/other", "not ours", 0o644);
    })
    .await;
    let before = node.fake.fs.fork();
    assert_eq!(mend(&node).unwrap(), ["bin/containerd", "bin/kubelet", "etc/kubelet/config.yaml"]);
    is_whole(&node);
    assert_eq!(node.text("/opt/unbounded/node/v1/bin/other"), "not ours");
    let changed = before.tree_with_stamps().difference(&node.fake.fs.tree_with_stamps());
    let elsewhere: Vec<_> =
        changed.iter().filter(|l| !l.contains(COPY) && !l.contains("/v1/bin") && !l.contains("/v1/etc")).collect();
    assert!(elsewhere.is_empty(), "{elsewhere:?}");
    assert_eq!(mend(&node).unwrap(), Vec::<String>::new(), "a second time replaces nothing");
}

#[tokio::test]
async fn labels_survive_a_repair_and_an_upgrade() {
    use flexnode_host::Fs as _;
    let label = |node: &Node, path: &str| node.fake.fs.get_xattr(Path::new(path), durable::SELINUX_LABEL).unwrap();
    let (kubelet, unit) = ("/opt/unbounded/node/v1/bin/kubelet", "/etc/systemd/system/unbounded-kubelet.service");
    let mut node = damaged(|fs| {
        fs.set_xattr(Path::new(kubelet), durable::SELINUX_LABEL, b"kubelet_exec_t").unwrap();
        fs.set_xattr(Path::new(unit), durable::SELINUX_LABEL, b"own_unit_t").unwrap();
        flexnode_host::Fs::chmod(fs, Path::new(kubelet), 0o700).unwrap();
    })
    .await;
    mend(&node).unwrap();
    assert_eq!(label(&node, kubelet).as_deref(), Some(&b"kubelet_exec_t"[..]));
    // What is new gets the policy's, what is replaced keeps its own.
    let policy = |path: &Path| path.starts_with("/opt/unbounded/node").then(|| b"node_t".to_vec());
    node.fake.fs.set_labeler(policy);
    node.backend.prepare_version(&spec("v2")).await.unwrap();
    assert_eq!(label(&node, "/opt/unbounded/node/v2/bin/kubelet").as_deref(), Some(&b"node_t"[..]));
    node.backend.units.gpu_setup = vec![vec!["/usr/bin/true".into()]];
    node.fake.fs.put(unit, "# older\n", 0o644);
    node.fake.fs.set_xattr(Path::new(unit), durable::SELINUX_LABEL, b"own_unit_t").unwrap();
    node.backend.upgrade("v2", Hook::default()).await.unwrap();
    assert_ne!(node.text(unit), "# older\n");
    assert_eq!(label(&node, unit).as_deref(), Some(&b"own_unit_t"[..]));
}

/// C041: programs are replaced while they run.
#[tokio::test]
async fn a_version_that_runs_goes_on_running_while_it_is_mended() {
    let node = damaged(|fs| _ = fs.put("/opt/unbounded/node/v1/bin/kubelet", "half", 0o755)).await;
    let before = node.state(UNIT_KUBELET).main_pid;
    mend(&node).unwrap();
    assert_eq!(node.state(UNIT_KUBELET).main_pid, before);
    assert_eq!(node.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn a_version_without_a_manifest_becomes_what_the_copy_is() {
    for manifest in [None, Some("{")] {
        let node = damaged(|fs| {
            fs.take("/opt/unbounded/node/v1/etc/manifest.json").take("/opt/unbounded/node/v1/bin/kubelet");
            if let Some(text) = manifest {
                fs.put("/opt/unbounded/node/v1/etc/manifest.json", text, 0o644);
            }
        })
        .await;
        assert_eq!(mend(&node).unwrap(), ["bin/kubelet", "etc/manifest.json"]);
        is_whole(&node);
    }
}

#[tokio::test]
async fn a_source_that_has_something_else_changes_nothing() {
    let node = damaged(|fs| {
        fs.put("/opt/unbounded/node/v1/bin/kubelet", "half", 0o755).take("/opt/unbounded/node/v1/bin/containerd");
        fs.put(Path::new(COPY).join("v1/bin/kubelet"), "another build", 0o755);
    })
    .await;
    let error = mend(&node).unwrap_err();
    assert!(matches!(&error, SlotError::Damaged { path, .. } if path.ends_with("v1/bin/kubelet")), "{error}");
    assert!(!node.fake.fs.exists("/opt/unbounded/node/v1/bin/containerd"));
    assert_eq!(node.text("/opt/unbounded/node/v1/bin/kubelet"), "half");
}

#[tokio::test]
async fn a_crash_anywhere_leaves_a_version_that_the_next_run_mends() {
    for after in 0.. {
        let node = damaged(|fs| {
            fs.put("/opt/unbounded/node/v1/bin/kubelet", "half", 0o755).take("/opt/unbounded/node/v1/bin/containerd");
        })
        .await;
        node.fake.fs.crash_after(after);
        let done = mend(&node).is_ok();
        node.fake.fs.revive();
        mend(&node).unwrap();
        is_whole(&node);
        if done {
            assert!(after > 4, "only {after} points");
            return;
        }
    }
}

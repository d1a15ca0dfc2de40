use super::*;
use crate::testing::{FakeNodeHost, node};
use flexnode_host::testing::Verb;
use std::path::Path;

async fn status(host: &FakeNodeHost) -> NodeStatus {
    to_status(&host.observe().await, "0.1.0")
}

#[tokio::test]
async fn a_healthy_node_in_the_contracts_words() {
    let host = FakeNodeHost::healthy().await;
    let status = status(&host).await;
    assert_eq!(status.kubelet_version, "1.36.3");
    assert_eq!(status.containerd_version, "2.1.9");
    assert_eq!(status.runc_version, "1.3.6");
    assert!(status.kubelet_running && status.containerd_running);
    assert_eq!(status.kubelet_ready, "Ready");
    assert_eq!(status.agent_version, "0.1.0");
    assert_eq!(status.arc_status, ArcStatus::default());
    assert!(status.last_updated.is_some());
    assert!(status.last_updated_by.is_unspecified() && status.last_updated_reason.is_unspecified());
}

#[tokio::test]
async fn a_bare_host_is_unknown_and_not_an_error() {
    let status = status(&FakeNodeHost::bare()).await;
    let versions = [status.kubelet_version, status.containerd_version, status.runc_version];
    assert_eq!(versions, ["unknown", "unknown", "unknown"]);
    assert!(!status.kubelet_running && !status.containerd_running);
    assert_eq!(status.kubelet_ready, "Unknown");
}

#[tokio::test]
async fn readiness_is_that_of_the_node_object() {
    let host = FakeNodeHost::healthy().await;
    for (seen, word) in [
        (Ok(Some(node(Some(true), "KubeletReady", ""))), "Ready"),
        (Ok(Some(node(Some(false), "KubeletNotReady", ""))), "NotReady"),
        (Ok(Some(node(None, "NodeStatusUnknown", ""))), "Unknown"),
        (Ok(Some(crate::NodeView::default())), "Unknown"),
        (Ok(None), "Unknown"),
        (Err("the API server is away"), "Unknown"),
    ] {
        host.node.set(seen);
        assert_eq!(status(&host).await.kubelet_ready, word);
    }
}

#[tokio::test]
async fn a_version_is_that_of_the_program_that_runs() {
    let host = FakeNodeHost::healthy().await;
    // The link was flipped, and kubelet was not restarted.
    host.host.fs.take("/opt/unbounded/node/current").put_link("1.35.4-bb", "/opt/unbounded/node/current");
    assert_eq!(status(&host).await.kubelet_version, "1.36.3");
    // It ended: the active slot's is what would run.
    host.host.systemd.set_active(UNIT_KUBELET, "failed", "failed");
    host.host.processes.end(host.pid(UNIT_KUBELET));
    let after = status(&host).await;
    assert!(!after.kubelet_running);
    assert_eq!(after.kubelet_version, "1.35.4");
}

#[tokio::test]
async fn a_program_that_was_replaced_has_no_version() {
    let host = FakeNodeHost::healthy().await;
    // Another file at the same path: another inode.
    let path = Path::new("/opt/unbounded/node/1.36.3-aa/bin/kubelet");
    host.host.fs.take(path).put(path, "another kubelet", 0o755);
    let status = status(&host).await;
    assert!(status.kubelet_running);
    assert_eq!(status.kubelet_version, "unknown");
    assert_eq!(status.containerd_version, "2.1.9");
}

#[tokio::test]
async fn a_seam_that_fails_leaves_the_others_known() {
    let host = FakeNodeHost::healthy().await;
    host.host.systemd.script_always(Verb::Unit, UNIT_KUBELET, flexnode_host::testing::Script::Refuse("no bus".into()));
    host.cri.set_running(false);
    let seen = host.observe().await;
    assert!(seen.unit(UNIT_KUBELET).unwrap().state.as_ref().unwrap_err().contains("no bus"));
    assert!(seen.runtime.is_err());
    let status = to_status(&seen, "0.1.0");
    assert!(!status.kubelet_running && status.containerd_running);
    assert_eq!(status.containerd_version, "2.1.9", "recorded in the slot");
}

#[tokio::test]
async fn arc_is_asked_only_where_it_is_configured() {
    let host = FakeNodeHost::healthy().await;
    let collect = |arc| {
        let collector = Collector::with_file(CollectorConfig { arc }, host.seams(), "0.1.0", "/nowhere");
        async move { collector.collect_status().await.arc_status }
    };
    assert_eq!(collect(true).await, ArcStatus::default(), "not installed");
    host.host.commands.on_path("azcmagent", "/usr/bin/azcmagent");
    host.host.commands.answer("/usr/bin/azcmagent", &["show"], "Agent Status: Connected\nResource Name: edge-1\n");
    assert_eq!(collect(false).await, ArcStatus::default());
    let arc = collect(true).await;
    assert!(arc.connected && arc.registered);
    assert_eq!(arc.machine_name, "edge-1");
}

#[tokio::test]
async fn what_is_published_needs_no_bootstrap_until_it_is_old() {
    let temp = tempfile::tempdir().unwrap();
    let host = FakeNodeHost::healthy().await;
    let file = temp.path().join("run/status.json");
    let collector = Collector::with_file(CollectorConfig::default(), host.seams(), "0.1.0", &file);
    assert!(collector.needs_bootstrap(), "there is no file");
    collector.publish().await.unwrap();
    assert!(!collector.needs_bootstrap());
    let written = load_status_from_file(&file).unwrap();
    assert_eq!(written.last_updated_by, LastUpdatedBy::StatusCollectionLoop);
    assert_eq!(written.last_updated_reason, LastUpdatedReason::PeriodicStatusLoop);
    host.host.clock.advance(std::time::Duration::from_secs(301));
    assert_eq!(collector.bootstrap_reason(), Some(BootstrapReason::Stale));
    collector.publish().await.unwrap();
    assert!(!collector.needs_bootstrap());
    crate::mark_kubelet_unhealthy_best_effort_at_path(&file, None);
    assert_eq!(collector.bootstrap_reason(), Some(BootstrapReason::KubeletNotRunning));
    let arc = Collector::with_file(CollectorConfig { arc: true }, host.seams(), "0.1.0", &file);
    arc.publish().await.unwrap();
    assert_eq!(arc.bootstrap_reason(), Some(BootstrapReason::ArcNotConnected));
}

#[tokio::test]
async fn a_collector_uses_the_file_of_its_process() {
    let host = FakeNodeHost::healthy().await;
    let collector = Collector::new(CollectorConfig::default(), host.seams(), "0.1.0");
    assert_eq!(collector.file, get_status_file_path());
}

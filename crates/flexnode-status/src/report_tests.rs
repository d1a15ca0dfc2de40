use super::*;
use crate::render::{to_json, to_text};
use crate::testing::{FakeNodeHost, node};
use std::path::Path;

fn context() -> Context {
    Context {
        agent_version: "0.1.0".into(),
        node_name: Some("node-1".into()),
        deviations: Vec::new(),
        agent_expected: true,
    }
}

async fn judge(host: &FakeNodeHost) -> NodeReport {
    report(&host.observe().await, &context())
}

/// Degraded, by this alone.
async fn only(host: &FakeNodeHost, words: &str) {
    let report = judge(host).await;
    assert_eq!(report.verdict, Verdict::Degraded);
    assert!(report.deviations.len() == 1 && report.deviations[0].contains(words), "{:#?}", report.deviations);
    assert!(report.summary.starts_with("node-1 is degraded: ") && report.summary.contains(words), "{}", report.summary);
}

#[test]
fn exit_codes_are_those_of_the_contract() {
    let codes = [Verdict::Healthy, Verdict::Degraded, Verdict::NotANode].map(Verdict::exit_code);
    assert_eq!(codes, [0, 3, 4]);
}

#[tokio::test]
async fn a_healthy_node() {
    let report = judge(&FakeNodeHost::healthy().await).await;
    assert_eq!(report.deviations, Vec::<String>::new());
    assert_eq!(report.verdict, Verdict::Healthy);
    assert_eq!(report.summary, "node-1 is Ready: Kubernetes 1.36.3");
    assert_eq!(report.slot.as_deref(), Some("1.36.3-aa"));
    assert_eq!(report.previous_slots, ["1.35.4-bb"]);
    let text = to_text(&report);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "node-1 is Ready: Kubernetes 1.36.3");
    assert_eq!(lines[2], "Node          node-1, Ready");
    assert_eq!(lines[3], "Versions      kubelet 1.36.3, containerd 2.1.9, runc 1.3.6, agent 0.1.0");
    assert_eq!(lines[4], "Slot          1.36.3-aa");
    assert_eq!(lines[5], "Other slots   1.35.4-bb");
    assert!(lines[7].starts_with("UNIT") && lines[8].starts_with("unbounded-containerd.service"), "{text}");
    assert_eq!(lines.len(), 11, "no row for a unit that is not installed: {text}");
    assert!(lines.iter().all(|line| *line == line.trim_end()), "{text}");
}

#[tokio::test]
async fn a_bare_host_is_not_a_node() {
    let report = judge(&FakeNodeHost::bare()).await;
    assert_eq!(report.verdict, Verdict::NotANode);
    assert!(to_text(&report).starts_with("this host is not a node"), "{}", to_text(&report));
}

#[tokio::test]
async fn json_has_what_the_text_has() {
    let report = judge(&FakeNodeHost::healthy().await).await;
    let json: serde_json::Value = serde_json::from_str(&to_json(&report)).unwrap();
    assert_eq!((json["version"].as_u64(), json["verdict"].as_str()), (Some(1), Some("healthy")));
    assert_eq!(json["kubernetesVersion"], "1.36.3");
    assert_eq!(json["units"][1]["unit"], "unbounded-kubelet.service");
    assert_eq!(json["units"][1]["version"], "1.36.3");
    assert!(json["units"][1]["mainPid"].is_number());
    assert_eq!(json["node"]["ready"]["status"], true);
}

#[tokio::test]
async fn a_unit_that_failed_is_the_reason_and_not_what_follows() {
    let host = FakeNodeHost::healthy().await;
    let pid = host.pid(UNIT_KUBELET);
    host.host.systemd.set_active(UNIT_KUBELET, "failed", "failed");
    host.host.processes.end(pid);
    host.probe.set(flexnode_host::probe::KUBELET_HEALTHZ, flexnode_host::probe::FakeAnswer::Hang);
    only(&host, "unbounded-kubelet.service is failed").await;
}

#[tokio::test]
async fn a_unit_that_is_gone_or_masked_is_told_apart() {
    let host = FakeNodeHost::healthy().await;
    let systemd = host.host.host().systemd;
    systemd.stop(UNIT_KUBELET, std::time::Duration::from_secs(5)).await.unwrap();
    let file = Path::new("/etc/systemd/system").join(UNIT_KUBELET);
    host.host.fs.take(&file).put_link("/dev/null", &file);
    systemd.reload().await.unwrap();
    only(&host, "is masked").await;
    host.host.fs.take(&file);
    systemd.reload().await.unwrap();
    only(&host, "unbounded-kubelet.service is not installed").await;
}

#[tokio::test]
async fn a_unit_that_is_not_enabled_is_told() {
    let host = FakeNodeHost::healthy().await;
    let systemd = host.host.host().systemd;
    systemd.disable(UNIT_CONTAINERD).await.unwrap();
    systemd.reload().await.unwrap();
    only(&host, "will not after a reboot").await;
}

#[tokio::test]
async fn a_program_of_another_version_or_of_nobody_is_told() {
    let host = FakeNodeHost::healthy().await;
    host.host.fs.take("/opt/unbounded/node/current").put_link("1.35.4-bb", "/opt/unbounded/node/current");
    let deviations = judge(&host).await.deviations;
    assert!(deviations.iter().any(|d| d.contains("kubelet.service still runs version 1.36.3-aa; 1.35.4-bb is active")));

    let host = FakeNodeHost::healthy().await;
    let path = "/opt/unbounded/node/1.36.3-aa/bin/containerd";
    host.host.fs.take(path).put(path, "another", 0o755);
    only(&host, "which is no program of a version").await;
}

#[tokio::test]
async fn health_and_runtime_are_told() {
    let host = FakeNodeHost::healthy().await;
    host.probe.set(flexnode_host::probe::KUBELET_HEALTHZ, flexnode_host::probe::FakeAnswer::Hang);
    only(&host, "kubelet is not healthy").await;
    let host = FakeNodeHost::healthy().await;
    host.cri.set_running(false);
    only(&host, "containerd does not answer").await;
    let host = FakeNodeHost::healthy().await;
    let reasons = vec!["RuntimeNotReady: plugin".to_owned()];
    host.cri.set_status(flexnode_host::cri::RuntimeStatus { runtime_ready: false, network_ready: true, reasons });
    only(&host, "containerd is not ready: RuntimeNotReady: plugin").await;
}

#[tokio::test]
async fn the_nodes_reason_is_told() {
    let host = FakeNodeHost::healthy().await;
    host.node.set(Ok(Some(node(Some(false), "KubeletNotReady", "PLEG is not healthy"))));
    only(&host, "the Node is not Ready: KubeletNotReady: PLEG is not healthy").await;
    let network = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:x";
    host.node.set(Ok(Some(node(Some(false), "KubeletNotReady", network))));
    only(&host, "waits for the cluster's network plugin").await;
    host.node.set(Ok(None));
    only(&host, "no Node of this name").await;
    host.node.set(Err("no connection to the API server: refused"));
    only(&host, "whether the Node is Ready is not known: no connection").await;
}

#[tokio::test]
async fn an_incomplete_slot_and_a_foreign_link_are_told() {
    let host = FakeNodeHost::healthy().await;
    host.host.fs.take("/opt/unbounded/node/1.36.3-aa/etc/manifest.json");
    only(&host, "version 1.36.3-aa: it was never finished").await;
    host.host.fs.take("/opt/unbounded/node/current").put_link("/usr/bin", "/opt/unbounded/node/current");
    let report = judge(&host).await;
    assert_eq!(report.verdict, Verdict::Degraded);
    assert!(report.deviations[0].contains("points to /usr/bin"), "{:?}", report.deviations);
}

#[tokio::test]
async fn what_the_caller_knows_comes_first() {
    let host = FakeNodeHost::healthy().await;
    let mut context = context();
    context.deviations = vec!["stopped by a person at 12:00: `aks-flex-node start-node` starts it".into()];
    let report = report(&host.observe().await, &context);
    assert_eq!(report.verdict.exit_code(), 3);
    assert!(report.summary.contains("stopped by a person"), "{}", report.summary);
    let text = to_text(&report);
    assert_eq!(text.matches("stopped by a person").count(), 1, "{text}");
}

#[tokio::test]
async fn the_agents_service_counts_only_where_it_is_expected() {
    let host = FakeNodeHost::healthy().await;
    let systemd = host.host.host().systemd;
    systemd.stop(UNIT_AGENT, std::time::Duration::from_secs(5)).await.unwrap();
    host.host.fs.take(Path::new("/etc/systemd/system").join(UNIT_AGENT));
    systemd.reload().await.unwrap();
    only(&host, "aks-flex-node-agent.service is not installed").await;
    let context = Context { agent_expected: false, ..context() };
    assert_eq!(report(&host.observe().await, &context).verdict, Verdict::Healthy);
}

#[tokio::test]
async fn notes_change_no_verdict() {
    let host = FakeNodeHost::healthy().await;
    let cordoned = crate::NodeView {
        unschedulable: true,
        kubelet_version: "v1.35.4".into(),
        ..node(Some(true), "KubeletReady", "")
    };
    host.node.set(Ok(Some(cordoned)));
    let report = judge(&host).await;
    assert_eq!(report.verdict, Verdict::Healthy);
    assert_eq!(report.notes.len(), 2, "{:?}", report.notes);
    assert!(to_text(&report).contains("  - the Node is cordoned"));
}

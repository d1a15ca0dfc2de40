use super::*;
use crate::observe::UNIT_AGENT;
use crate::recorded::Configured;
use crate::render::{to_json, to_json_line, to_text, to_yaml};
use crate::testing::{FakeNodeHost, node};
use flexnode_model::snapshot::Reason;
use flexnode_model::state::{Extension, FailedGoal};
use flexnode_model::{Difference, State};
use std::path::Path;

fn recorded() -> Recorded {
    Recorded { agent_expected: true, node_name: Some("node-1".into()), ..Recorded::default() }
}

fn context() -> Context {
    Context { agent_version: "0.1.0".into(), recorded: recorded(), ..Context::default() }
}

async fn judge(host: &FakeNodeHost) -> Snapshot {
    report(&host.observe().await, &context())
}

/// Degraded, by this alone.
async fn only(host: &FakeNodeHost, words: &str) {
    let report = judge(host).await;
    assert_eq!(report.verdict, Verdict::Degraded);
    assert!(report.deviations.len() == 1 && report.deviations[0].message.contains(words), "{:#?}", report.deviations);
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
    assert_eq!(report.deviations, []);
    assert_eq!(report.verdict, Verdict::Healthy);
    assert_eq!(report.summary, "node-1 is Ready: Kubernetes 1.36.3");
    assert_eq!(report.slot.as_deref(), Some("1.36.3-aa"));
    assert_eq!(report.other_slots, ["1.35.4-bb"]);
    let text = to_text(&report);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "node-1 is Ready: Kubernetes 1.36.3");
    assert_eq!(lines[2], "Node          node-1, Ready");
    assert_eq!(lines[3], "Versions      kubelet 1.36.3, containerd 2.1.9, runc 1.3.6, agent 0.1.0");
    assert_eq!(lines[4], "Slot          1.36.3-aa");
    assert_eq!(lines[5], "Other slots   1.35.4-bb");
    assert!(lines[6].starts_with("State         healthy for "), "{text}");
    assert!(lines[7].starts_with("Certificate   kubeletClient until 2026-06-01"), "{text}");
    assert!(lines[9].starts_with("UNIT") && lines[10].starts_with("unbounded-containerd.service"), "{text}");
    assert_eq!(lines.len(), 13, "no row for a unit that is not installed: {text}");
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
    assert_eq!(json["node"]["known"]["ready"]["status"], true);
    assert_eq!(Snapshot::decode(to_json(&report).as_bytes()).unwrap(), report);
    assert_eq!(serde_json::from_str::<Snapshot>(&to_json_line(&report)).unwrap(), report);
    let yaml: serde_json::Value = serde_saphyr::from_str(&to_yaml(&report)).unwrap();
    assert_eq!(yaml, json, "YAML has the same keys and values");
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
    assert!(
        deviations
            .iter()
            .any(|d| d.message.contains("kubelet.service still runs version 1.36.3-aa; 1.35.4-bb is active"))
    );

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
    assert!(report.deviations[0].message.contains("points to /usr/bin"), "{:?}", report.deviations);
}

#[tokio::test]
async fn a_stop_by_a_person_is_the_first_line_and_hides_what_it_causes() {
    let host = FakeNodeHost::healthy().await;
    let systemd = host.host.host().systemd;
    for unit in [UNIT_KUBELET, UNIT_CONTAINERD] {
        systemd.stop(unit, std::time::Duration::from_secs(5)).await.unwrap();
        systemd.disable(unit).await.unwrap();
    }
    systemd.reload().await.unwrap();
    host.probe.set(flexnode_host::probe::KUBELET_HEALTHZ, flexnode_host::probe::FakeAnswer::Hang);
    host.node.set(Ok(Some(node(None, "NodeStatusUnknown", ""))));
    let own = Extension { stopped_by_person: true, ..Extension::default() };
    let state = Some(State { flexnode: Some(own), ..State::default() });
    let context = Context { recorded: Recorded { state, ..recorded() }, ..context() };
    let report = report(&host.observe().await, &context);
    assert_eq!(report.verdict.exit_code(), 3);
    assert_eq!((report.deviations.len(), report.reason), (1, Some(Reason::StoppedByPerson)), "{:?}", report.deviations);
    let text = to_text(&report);
    let first = text.lines().next().unwrap();
    assert!(first.contains("stopped by a person") && first.contains("start-node"), "{text}");
}

#[tokio::test]
async fn what_the_configuration_says_otherwise_is_told_with_the_lines_to_edit() {
    let host = FakeNodeHost::healthy().await;
    let own = Extension { goal: "aaaaaaaa".into(), ..Extension::default() };
    let mut state = State { flexnode: Some(own), ..State::default() };
    let difference = Difference { path: "components.kubernetes".into(), from: "1.36.3".into(), to: "1.36.4".into() };
    let configured = Configured { goal: "bbbbbbbb".into(), differences: vec![difference] };
    let told = |state: &State, configured| {
        let recorded = Recorded { state: Some(state.clone()), configured: Some(configured), ..recorded() };
        Context { recorded, ..context() }
    };
    let seen = host.observe().await;
    let snapshot = report(&seen, &told(&state, Ok(configured.clone())));
    assert_eq!((snapshot.verdict, snapshot.goal.is_up_to_date()), (Verdict::Healthy, Some(false)));
    let text = to_text(&snapshot);
    assert!(
        text.contains("aks-flex-node upgrade") && text.contains("components.kubernetes: 1.36.4 -> 1.36.3"),
        "{text}"
    );

    // C052: what was gone back from is not taken again by itself, and this is said.
    let when = jiff::Timestamp::UNIX_EPOCH;
    state.remember_failure(FailedGoal { goal: "bbbbbbbb".into(), reason: "kubelet did not come up".into(), when });
    let snapshot = report(&seen, &told(&state, Ok(configured.clone())));
    assert!(snapshot.notes[0].contains("kubelet did not come up") && snapshot.notes[0].contains("--retry"));
    assert!(to_text(&snapshot).contains("Failed goal   bbbbbbbb"), "{}", to_text(&snapshot));

    let same = Configured { goal: "aaaaaaaa".into(), differences: Vec::new() };
    assert_eq!(report(&seen, &told(&state, Ok(same))).goal.is_up_to_date(), Some(true));
    let unknown = report(&seen, &told(&state, Err("it cannot be read".into())));
    assert_eq!(unknown.goal.is_up_to_date(), None);
    assert!(unknown.notes.iter().any(|note| note.contains("it cannot be read")));
}

/// C128: reason, message and the last transition stand at the top.
#[tokio::test]
async fn since_when_it_is_so_goes_on_while_verdict_and_reason_stay() {
    let host = FakeNodeHost::healthy().await;
    let first = judge(&host).await;
    assert_eq!(first.since, Some(first.at));
    host.host.clock.advance(std::time::Duration::from_secs(60));
    let seen = host.observe().await;
    let second = report(&seen, &Context { before: Some(first.clone()), ..context() });
    assert_eq!(second.since, Some(first.at));
    host.cri.set_running(false);
    let third = report(&host.observe().await, &Context { before: Some(second), ..context() });
    assert_eq!((third.reason, third.since), (Some(Reason::RuntimeSilent), Some(third.at)));
    assert!(third.summary.contains("containerd does not answer"));
    // A clock that was set back does not put the transition into the future.
    host.host.clock.set_wall(jiff::Timestamp::UNIX_EPOCH);
    let fourth = report(&host.observe().await, &Context { before: Some(third), ..context() });
    assert_eq!(fourth.since, Some(fourth.at));
}

#[tokio::test]
async fn the_agents_service_counts_only_where_it_is_expected() {
    let host = FakeNodeHost::healthy().await;
    let systemd = host.host.host().systemd;
    systemd.stop(UNIT_AGENT, std::time::Duration::from_secs(5)).await.unwrap();
    host.host.fs.take(Path::new("/etc/systemd/system").join(UNIT_AGENT));
    systemd.reload().await.unwrap();
    only(&host, "aks-flex-node-agent.service is not installed").await;
    let context = Context { recorded: Recorded { agent_expected: false, ..recorded() }, ..context() };
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

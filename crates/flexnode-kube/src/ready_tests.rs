use super::*;
use crate::testing::mock_streaming;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

const NETWORK: &str = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:x";

fn wait() -> WaitReady {
    let (before, boot_id) = (None, String::new());
    WaitReady { deadline: Duration::from_secs(300), before, boot_id, network_patience: Some(Duration::from_secs(20)) }
}

fn node(status: &str, message: &str, heartbeat: &str) -> Value {
    crate::node::tests::object(status, message, heartbeat)
}

fn seen(status: &str, message: &str, heartbeat: &str) -> NodeView {
    view(&serde_json::from_value(node(status, message, heartbeat)).unwrap())
}

const T0: &str = "2026-11-30T12:00:00Z";
const T1: &str = "2026-11-30T12:00:10Z";

#[tokio::test(start_paused = true)]
async fn ready_is_ready_at_once() {
    let wait = wait();
    let mut watching = Watching::new(&wait);
    assert_eq!(watching.see(None, Instant::now()), None);
    assert_eq!(watching.why, "the Node is not registered yet");
    assert_eq!(watching.see(Some(seen("False", "PLEG", T0)), Instant::now()), None);
    assert_eq!(watching.why, "R: PLEG");
    assert!(matches!(watching.see(Some(seen("True", "", T1)), Instant::now()), Some(ReadyOutcome::Ready(_))));
}

#[tokio::test(start_paused = true)]
async fn an_old_heartbeat_says_nothing_about_the_kubelet_of_now() {
    let wait = WaitReady { before: Some(T0.parse().unwrap()), ..wait() };
    let mut watching = Watching::new(&wait);
    assert_eq!(watching.see(Some(seen("True", "", T0)), Instant::now()), None);
    assert!(watching.why.contains("has not reported since its start"));
    assert!(matches!(watching.see(Some(seen("True", "", T1)), Instant::now()), Some(ReadyOutcome::Ready(_))));
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_boot_says_nothing_about_the_kubelet_of_now() {
    let wait = WaitReady { boot_id: "this".into(), ..wait() };
    let mut watching = Watching::new(&wait);
    let of = |boot: &str| NodeView { boot_id: boot.into(), ..seen("True", "", T1) };
    assert_eq!(watching.see(Some(of("other")), Instant::now()), None);
    assert!(watching.why.contains("has not reported since its start"));
    assert!(matches!(watching.see(Some(of("this")), Instant::now()), Some(ReadyOutcome::Ready(_))));
}

#[tokio::test(start_paused = true)]
async fn only_the_network_missing_ends_well_after_its_patience() {
    let wait = wait();
    let mut watching = Watching::new(&wait);
    let begin = Instant::now();
    assert_eq!(watching.see(Some(seen("False", NETWORK, T0)), begin), None);
    let later = |seconds| begin + Duration::from_secs(seconds);
    assert_eq!(watching.look_at_time(later(19)), None);
    assert!(matches!(watching.look_at_time(later(20)), Some(ReadyOutcome::NetworkMissing(_))));
    // Another reason in between begins anew.
    assert_eq!(watching.see(Some(seen("False", "PLEG", T1)), later(19)), None);
    assert_eq!(watching.see(Some(seen("False", NETWORK, T1)), later(19)), None);
    assert_eq!(watching.look_at_time(later(38)), None);
    assert!(watching.look_at_time(later(39)).is_some());
    // Who insists on Ready gets nothing else.
    let insists = WaitReady { network_patience: None, ..wait.clone() };
    let mut watching = Watching::new(&insists);
    assert_eq!(watching.see(Some(seen("False", NETWORK, T0)), begin), None);
    assert_eq!(watching.look_at_time(later(1000)), None);
}

/// Runs a wait against scripted answers; what was told comes back too.
async fn run(
    wait: &WaitReady,
    bootstrap: Option<Client>,
    answer: impl Fn(&str) -> (u16, Vec<Value>, bool) + Send + Sync + 'static,
) -> (ReadyOutcome, Vec<String>) {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = told.clone();
    let client = NodeClient::with_client(mock_streaming(answer), "node-1");
    let mut tell = move |note: &str| log.lock().unwrap().push(note.to_owned());
    let outcome = client.wait_ready(wait, bootstrap.as_ref(), &mut tell).await;
    let told = told.lock().unwrap().clone();
    (outcome, told)
}

fn list(items: &[Value]) -> Vec<Value> {
    vec![json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})]
}

fn event(kind: &str, node: &Value) -> Value {
    json!({"type": kind, "object": node})
}

#[tokio::test(start_paused = true)]
async fn a_watch_brings_the_node_to_ready() {
    let (outcome, told) = run(&wait(), None, |line| {
        assert!(line.contains("fieldSelector=metadata.name%3Dnode-1"), "only the own Node may be read: {line}");
        if line.contains("watch=true") {
            let events = vec![
                event("ADDED", &node("False", "starting", T0)),
                event("MODIFIED", &node("False", "starting", T0)),
                event("MODIFIED", &node("True", "", T1)),
            ];
            return (200, events, true);
        }
        (200, list(&[]), false)
    })
    .await;
    assert!(matches!(outcome, ReadyOutcome::Ready(_)), "{outcome:?}");
    assert_eq!(told, ["the Node is not registered yet", "R: starting"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_in_trouble_is_waited_for() {
    let failures = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (outcome, told) = run(&wait(), None, move |line| {
        if failures.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 3 {
            return (503, vec![json!({"kind": "Status", "status": "Failure", "message": "busy", "code": 503})], false);
        }
        if line.contains("watch=true") {
            return (200, vec![], true);
        }
        (200, if line.contains('?') { list(&[node("True", "", T1)]) } else { vec![node("True", "", T1)] }, false)
    })
    .await;
    assert!(matches!(outcome, ReadyOutcome::Ready(_)), "{outcome:?}");
    assert_eq!(told, ["the API server is not well: it answers 503: busy"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_silent_is_checked_by_a_question() {
    let (outcome, _) = run(&wait(), None, |line| match line {
        line if line.contains("watch=true") => (200, vec![], true),
        line if line.contains('?') => (200, list(&[node("False", "starting", T0)]), false),
        _ => (200, vec![node("True", "", T1)], false),
    })
    .await;
    assert!(matches!(outcome, ReadyOutcome::Ready(_)), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_it_with_the_reason() {
    let begin = Instant::now();
    let (outcome, _) = run(&wait(), None, |line| match line {
        line if line.contains("watch=true") => (200, vec![], true),
        line if line.contains('?') => (200, list(&[node("False", "starting", T0)]), false),
        _ => (200, vec![node("False", "starting", T0)], false),
    })
    .await;
    assert_eq!(begin.elapsed(), Duration::from_secs(300));
    let ReadyOutcome::TimedOut { last: Some(last), why } = outcome else { panic!("{outcome:?}") };
    assert_eq!((last.name.as_str(), why.as_str()), ("node-1", "R: starting"));
}

#[tokio::test(start_paused = true)]
async fn while_kubelet_has_no_certificate_its_request_is_named() {
    let fs: Arc<dyn flexnode_host::Fs> = Arc::new(flexnode_host::testing::MemFs::new());
    let client =
        NodeClient::from_kubelet_credentials(fs, "/var/lib/kubelet/kubeconfig", "node-1", crate::Names::system());
    let request = crate::csr::tests::request("node-csr-x", "node-1", "2020-01-01T00:00:00Z", &json!({}));
    let requests = json!({
        "kind": "CertificateSigningRequestList", "apiVersion": "certificates.k8s.io/v1", "metadata": {}, "items": [request],
    });
    let bootstrap = crate::testing::mock(move |_| (200, requests.clone()));
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = told.clone();
    let mut tell = move |note: &str| log.lock().unwrap().push(note.to_owned());
    let wait = WaitReady { deadline: Duration::from_secs(30), ..wait() };
    let outcome = client.wait_ready(&wait, Some(&bootstrap), &mut tell).await;
    let ReadyOutcome::TimedOut { last: None, why } = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("kubectl certificate approve node-csr-x"), "{why}");
    assert_eq!(told.lock().unwrap().len(), 1, "told once, not every second");
}

#[test]
fn the_wait_can_run_on_any_task() {
    fn is_send<T: Send>(_: T) {}
    let client = NodeClient::from_kubelet_credentials(
        Arc::new(flexnode_host::testing::MemFs::new()),
        "/k",
        "node-1",
        crate::Names::system(),
    );
    let wait = wait();
    let mut tell = |_: &str| {};
    is_send(client.wait_ready(&wait, None, &mut tell));
    let probe = crate::ApiServerProbe { url: String::new(), ca_pem: String::new(), token: None, identity: None };
    let names = crate::Names::system();
    is_send(crate::preflight(&probe, &names, Duration::from_secs(1)));
}

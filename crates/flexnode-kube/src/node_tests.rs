use super::*;
use crate::testing::{Ca, Reply, Server, mock};
use flexnode_host::testing::MemFs;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

const LIMIT: Duration = Duration::from_secs(5);

pub(crate) fn object(status: &str, message: &str, heartbeat: &str) -> Value {
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {"name": "node-1", "uid": "u-1", "resourceVersion": "7", "labels": {"a": "b"}},
        "spec": {
            "unschedulable": true,
            "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "x", "effect": "NoExecute"}],
        },
        "status": {
            "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {
                    "type": "Ready", "status": status, "reason": "R", "message": message,
                    "lastHeartbeatTime": heartbeat, "lastTransitionTime": "2026-11-30T11:00:00Z",
                },
            ],
            "nodeInfo": {
                "kubeletVersion": "v1.36.3", "containerRuntimeVersion": "containerd://2.1.9", "architecture": "amd64",
                "bootID": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "linux",
                "osImage": "", "systemUUID": "",
            },
        },
    })
}

fn failure(code: u16, message: &str) -> (u16, Value) {
    let reason = if code == 404 { "NotFound" } else { "Other" };
    (code, json!({"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}))
}

#[tokio::test]
async fn a_node_is_seen_with_what_matters() {
    let client = mock(|line| {
        assert_eq!(line, "GET /api/v1/nodes/node-1");
        (200, object("True", "posting", "2026-11-30T12:00:00Z"))
    });
    let node = NodeClient::with_client(client, "node-1").get(LIMIT).await.unwrap().unwrap();
    assert!(node.is_ready() && node.unschedulable);
    assert_eq!((node.uid.as_str(), node.kubelet_version.as_str()), ("u-1", "v1.36.3"));
    assert_eq!(node.runtime_version, "containerd://2.1.9");
    assert_eq!(node.taints, ["k=v:NoSchedule", "x:NoExecute"]);
    assert_eq!(node.addresses, [("InternalIP".to_owned(), "192.0.2.1".to_owned())]);
    assert_eq!(node.heartbeat().unwrap().to_string(), "2026-11-30T12:00:00Z");
    assert_eq!(node.labels["a"], "b");
}

#[tokio::test]
async fn the_machine_of_a_node_is_told() {
    let mut node = object("True", "", "2026-11-30T12:00:00Z");
    node["status"]["nodeInfo"]["machineID"] = "abc".into();
    let client = NodeClient::with_client(mock(move |_| (200, node.clone())), "node-1");
    let machine = client.machine(LIMIT).await.unwrap().unwrap();
    assert_eq!(machine, NodeMachine { uid: "u-1".into(), machine_id: "abc".into() });
    let absent = NodeClient::with_client(mock(|_| failure(404, "nodes \"node-1\" not found")), "node-1");
    assert_eq!(absent.machine(LIMIT).await.unwrap(), None);
}

#[tokio::test]
async fn no_node_and_no_answer_are_told_apart() {
    let none = NodeClient::with_client(mock(|_| failure(404, "nodes \"node-1\" not found")), "node-1");
    assert_eq!(none.get(LIMIT).await.unwrap(), None);
    assert_eq!(none.view(LIMIT).await.unwrap(), None);
    let ill = NodeClient::with_client(mock(|_| failure(503, "etcd is away")), "node-1");
    assert!(ill.get(LIMIT).await.unwrap_err().is_silence());
    assert!(ill.view(LIMIT).await.unwrap_err().reason.contains("etcd is away"));
}

#[tokio::test]
async fn labels_are_patched_and_a_conflict_is_tried_again() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let client = mock(move |line| {
        assert_eq!(line, "PATCH /api/v1/nodes/node-1?&fieldManager=aks-flex-node");
        match counted.fetch_add(1, Ordering::Relaxed) {
            0 => failure(409, "conflict"),
            _ => (200, object("True", "", "2026-11-30T12:00:00Z")),
        }
    });
    let node = NodeClient::with_client(client, "node-1");
    node.patch_labels(&BTreeMap::new(), LIMIT).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 0, "nothing to change is not sent");
    node.patch_labels(&BTreeMap::from([("a".to_owned(), None)]), LIMIT).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn labels_that_the_cluster_refuses_are_told() {
    let client = mock(|_| failure(403, "is not allowed to modify labels: node-restriction.kubernetes.io/x"));
    let changes = BTreeMap::from([("node-restriction.kubernetes.io/x".to_owned(), Some("1".to_owned()))]);
    let problem = NodeClient::with_client(client, "node-1").patch_labels(&changes, LIMIT).await.unwrap_err();
    assert!(matches!(&problem, ApiProblem::Forbidden(why) if why.contains("modify labels")), "{problem:?}");
}

#[test]
fn only_our_labels_change() {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    };
    let have = map(&[("theirs", "1"), ("same", "1"), ("old", "1"), ("gone", "1")]);
    let changes =
        label_changes(&have, &map(&[("same", "1"), ("old", "2"), ("new", "1")]), &map(&[("gone", "1"), ("x", "1")]));
    let want = [("gone", None), ("new", Some("1")), ("old", Some("2"))];
    let want: BTreeMap<_, _> = want.map(|(k, v)| (k.to_owned(), v.map(str::to_owned))).into();
    assert_eq!(changes, want);
}

#[tokio::test]
async fn the_cluster_dns_is_compared() {
    let service = json!({
        "kind": "Service", "apiVersion": "v1", "metadata": {"name": "kube-dns"},
        "spec": {"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10", "fd00::a"]},
    });
    let client = mock(move |line| {
        assert_eq!(line, "GET /api/v1/namespaces/kube-system/services/kube-dns");
        (200, service.clone())
    });
    let found = NodeClient::with_client(client, "node-1").cluster_dns(LIMIT).await.unwrap().unwrap();
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(found, [ip("10.96.0.10"), ip("fd00::a")]);
    assert_eq!(dns_warning(Some(&found), &[ip("10.96.0.10")]), None);
    let warning = dns_warning(Some(&found), &[ip("10.0.0.10")]).unwrap();
    assert!(warning.contains("10.96.0.10, fd00::a") && warning.contains("10.0.0.10"), "{warning}");
    assert!(dns_warning(Some(&found), &[]).unwrap().contains("not set"));
    assert_eq!(dns_warning(None, &[ip("10.0.0.10")]), None);
    let none = NodeClient::with_client(mock(|_| failure(404, "no")), "node-1");
    assert_eq!(none.cluster_dns(LIMIT).await.unwrap(), None);
}

#[tokio::test]
async fn only_the_very_node_is_deleted() {
    let delete = |answer: fn() -> (u16, Value)| async move {
        let client = mock(move |line| {
            assert!(line.starts_with("DELETE /api/v1/nodes/node-1"), "{line}");
            answer()
        });
        NodeClient::with_client(client, "node-1").delete("u-1", LIMIT).await
    };
    assert_eq!(delete(|| (200, json!({"kind": "Status", "status": "Success"}))).await, Ok(()));
    assert_eq!(delete(|| failure(404, "gone")).await, Ok(()));
    assert!(matches!(delete(|| failure(409, "another uid")).await, Err(ApiProblem::Conflict(_))));
    assert!(matches!(delete(|| failure(403, "no")).await, Err(ApiProblem::Forbidden(_))));
}

/// Rotation under a running client: the new certificate is shown at the next call.
#[tokio::test]
async fn credentials_that_change_on_the_host_count_at_once() {
    let (first, second) = (Ca::new(), Ca::new());
    let server_first =
        Server::start(&first.server(), Some(&first), |_| Reply::json(200, &object("True", "", "2026-11-30T12:00:00Z")))
            .await;
    let fs = Arc::new(MemFs::new());
    let put = |issued: &crate::testing::Issued| {
        let ca = base64_of(&first.pem);
        let url = server_first.url();
        let config = format!(
            "clusters: [{{name: k, cluster: {{server: '{url}', certificate-authority-data: {ca}}}}}]\n\
             users: [{{name: u, user: {{client-certificate: /pki/c.pem, client-key: /pki/c.pem}}}}]\n\
             contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\ncurrent-context: c\n"
        );
        fs.put("/kubeconfig", config, 0o600);
        fs.put("/pki/c.pem", format!("{}{}", issued.certificate, issued.key), 0o600);
    };
    let node = NodeClient::from_kubelet_credentials(fs.clone(), "/kubeconfig", "node-1", Names::system());
    let problem = node.get(LIMIT).await.unwrap_err();
    assert!(matches!(problem, ApiProblem::Credentials(_)), "they need not exist yet: {problem:?}");

    put(&second.issue(&[], -1, 1));
    assert!(node.get(LIMIT).await.unwrap_err().is_identity());
    put(&first.issue(&[], -1, 1));
    assert!(node.get(LIMIT).await.unwrap().unwrap().is_ready());
    assert!(!format!("{node:?}").contains("PRIVATE"));
}

fn base64_of(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

use super::*;
use crate::testing::mock;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

const NOW: &str = "2026-11-30T12:00:00Z";

fn pem(node: &str) -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
}

pub(crate) fn request(name: &str, node: &str, created: &str, status: &Value) -> Value {
    use base64::Engine as _;
    json!({
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {
            "request": base64::engine::general_purpose::STANDARD.encode(pem(node)),
            "signerName": SIGNER,
            "username": "system:bootstrap:abcdef",
        },
        "status": status,
    })
}

async fn state(requests: Vec<Value>) -> Result<RequestState, ApiProblem> {
    let list = json!({
        "kind": "CertificateSigningRequestList", "apiVersion": "certificates.k8s.io/v1", "metadata": {}, "items": requests,
    });
    let client = mock(move |line| {
        assert!(line.starts_with("GET /apis/certificates.k8s.io/v1/certificatesigningrequests?"), "{line}");
        assert!(line.contains("fieldSelector=spec.signerName%3D"), "{line}");
        (200, list.clone())
    });
    node_request(&client, "node-1", NOW.parse().unwrap(), Duration::from_secs(5)).await
}

fn condition(kind: &str, message: Option<&str>) -> Value {
    json!({"conditions": [{"type": kind, "status": "True", "message": message, "reason": "ByHand"}]})
}

#[tokio::test]
async fn a_pending_request_is_named_with_its_command() {
    let found = state(vec![request("node-csr-x", "node-1", "2026-11-30T11:59:18Z", &json!({}))]).await.unwrap();
    assert_eq!(found, RequestState::Pending { name: "node-csr-x".into(), age: SignedDuration::from_secs(42) });
    let advice = found.advice().unwrap();
    assert!(advice.contains("kubectl certificate approve node-csr-x") && advice.contains("42 s"), "{advice}");
}

#[tokio::test]
async fn other_nodes_requests_are_not_ours() {
    let other = request("node-csr-y", "node-10", "2026-11-30T11:59:00Z", &json!({}));
    assert_eq!(state(vec![other]).await.unwrap(), RequestState::None);
    let mut server = request("csr-z", "node-1", "2026-11-30T11:59:00Z", &json!({}));
    server["spec"]["signerName"] = "kubernetes.io/kubelet-serving".into();
    assert_eq!(state(vec![server]).await.unwrap(), RequestState::None);
    let mut broken = request("csr-b", "node-1", "2026-11-30T11:59:00Z", &json!({}));
    broken["spec"]["request"] = "QUJD".into();
    assert_eq!(state(vec![broken]).await.unwrap(), RequestState::None);
}

#[tokio::test]
async fn the_newest_request_counts_and_each_state_has_its_words() {
    let old = || request("old", "node-1", "2026-11-30T10:00:00Z", &condition("Denied", Some("no")));
    let newest = |status: &Value| vec![request("new", "node-1", "2026-11-30T11:00:00Z", status), old()];
    let name = || "new".to_owned();
    let denied = state(newest(&condition("Denied", None))).await.unwrap();
    assert_eq!(denied, RequestState::Denied { name: name(), message: "ByHand".into() });
    assert!(denied.advice().unwrap().contains("kubectl delete csr new"));
    let failed = state(newest(&condition("Failed", Some("no key")))).await.unwrap();
    assert!(failed.advice().unwrap().contains("no key"));
    let approved = state(newest(&condition("Approved", None))).await.unwrap();
    assert_eq!(approved, RequestState::Approved { name: name() });
    assert!(approved.advice().unwrap().contains("kube-controller-manager"));
    let issued = json!({"conditions": [{"type": "Approved", "status": "True"}], "certificate": "QUJD"});
    let issued = state(newest(&issued)).await.unwrap();
    assert_eq!((issued.advice(), issued), (None, RequestState::Issued { name: name() }));
}

#[tokio::test]
async fn where_it_may_not_be_read_the_problem_says_so() {
    let client = mock(|_| (403, json!({"kind": "Status", "status": "Failure", "message": "no", "code": 403})));
    let problem = node_request(&client, "node-1", NOW.parse().unwrap(), Duration::from_secs(5)).await.unwrap_err();
    assert!(matches!(problem, ApiProblem::Forbidden(_)), "{problem:?}");
}

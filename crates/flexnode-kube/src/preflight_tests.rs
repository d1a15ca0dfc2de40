//! Against a real TLS server on loopback: each way in which joining can fail has its own words.

use super::*;
use crate::names::{NameError, Names};
use crate::testing::{Ca, Issued, Reply, Seen, Server};
use crate::tls::TlsSetupError;
use serde_json::json;

const TOKEN: &str = "abcdef.0123456789abcdef";

fn probe(url: String, ca: &Ca) -> ApiServerProbe {
    ApiServerProbe { url, ca_pem: ca.pem.clone(), token: Some(Secret::new(TOKEN)), identity: None }
}

async fn ask(probe: &ApiServerProbe) -> Result<ApiServerFacts, JoinProblem> {
    preflight(probe, &Names::system(), DEADLINE).await
}

fn healthy(seen: &Seen) -> Reply {
    match seen.line.as_str() {
        "GET /version" => Reply::json(200, &json!({"gitVersion": "v1.36.3", "major": "1"})),
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
            Reply::json(201, &json!({"kind": "SelfSubjectAccessReview", "status": {"allowed": true}}))
        }
        _ => Reply::json(404, &json!({"message": "no such path"})),
    }
}

/// A server whose review is answered like this.
async fn reviewing(ca: &Ca, status: u16, body: serde_json::Value) -> Server {
    Server::start(&ca.server(), None, move |seen| {
        if seen.line.starts_with("POST") { Reply::json(status, &body) } else { healthy(seen) }
    })
    .await
}

async fn with_certificate(ca: &Ca, issued: &Issued) -> JoinProblem {
    let server = Server::start(issued, None, healthy).await;
    let problem = ask(&probe(server.url(), ca)).await.unwrap_err();
    assert!(server.seen().is_empty(), "nothing, least of all the token, goes to a server that is not trusted");
    problem
}

fn says(problem: &JoinProblem, words: &[&str]) {
    let text = problem.to_string();
    for word in words {
        assert!(text.contains(word), "{text:?} lacks {word:?}");
    }
    assert!(problem.hint().len() > 20);
    assert!(!text.contains(TOKEN) && !format!("{problem:?}").contains(TOKEN));
}

#[tokio::test]
async fn a_good_server_takes_the_token() {
    let ca = Ca::new();
    let server = Server::start(&ca.server(), None, healthy).await;
    let facts = ask(&probe(server.url(), &ca)).await.unwrap();
    assert_eq!((facts.version.as_deref(), facts.peer, facts.clock_skew), (Some("1.36.3"), server.address, None));
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|s| s.authorization.as_deref() == Some("Bearer abcdef.0123456789abcdef")));
    assert!(seen[1].body.contains("certificatesigningrequests"), "{}", seen[1].body);
}

#[tokio::test]
async fn another_ca_is_said() {
    // The same name with another key, as after a cluster was made anew.
    let problem = with_certificate(&Ca::new(), &Ca::new().server()).await;
    assert!(matches!(&problem, JoinProblem::Tls { problem: TlsProblem::UnknownCa, .. }), "{problem:?}");
    says(&problem, &["not signed by the cluster's CA"]);
    assert!(problem.hint().contains("caCertData") && !problem.is_temporary());
}

#[tokio::test]
async fn an_expired_certificate_is_said_with_its_end() {
    let ca = Ca::new();
    let problem = with_certificate(&ca, &ca.issue(&["127.0.0.1"], -3, -2)).await;
    assert!(matches!(&problem, JoinProblem::Tls { problem: TlsProblem::Expired { .. }, .. }), "{problem:?}");
    says(&problem, &["ended at", "clock says"]);
}

#[tokio::test]
async fn a_certificate_of_tomorrow_is_a_clock_skew() {
    let ca = Ca::new();
    let problem = with_certificate(&ca, &ca.issue(&["127.0.0.1"], 1, 2)).await;
    let JoinProblem::Tls { problem: TlsProblem::NotYetValid { seconds, .. }, .. } = &problem else {
        panic!("{problem:?}")
    };
    assert!((86_390..=86_400).contains(seconds), "{seconds}");
    says(&problem, &[&format!("clock skew of {seconds} s")]);
    assert!(!problem.is_temporary(), "a day is not waited for");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_said_with_its_names() {
    let ca = Ca::new();
    let problem = with_certificate(&ca, &ca.issue(&["api.lab.test", "192.0.2.1"], -1, 1)).await;
    says(&problem, &["not for 127.0.0.1", "api.lab.test", "192.0.2.1"]);
    assert!(problem.hint().contains("api.lab.test"));
}

#[tokio::test]
async fn a_ca_that_is_out_of_its_time_is_said_before_anything_is_sent() {
    let ca = Ca::within(-3, -2);
    let problem = with_certificate(&ca, &ca.server()).await;
    assert!(matches!(problem, JoinProblem::CaTime { problem: TlsProblem::Expired { .. } }), "{problem:?}");
    says(&problem, &["the cluster's CA cannot be used: it ended at"]);
    let ca = Ca::within(1, 2);
    let problem = with_certificate(&ca, &ca.server()).await;
    says(&problem, &["the cluster's CA cannot be used: it is not valid yet: clock skew of"]);
}

#[tokio::test]
async fn a_ca_that_is_no_certificate_is_said() {
    let ca = Ca::new();
    let mut probe = probe("https://127.0.0.1:1".into(), &ca);
    probe.ca_pem = "no certificate".into();
    let problem = ask(&probe).await.unwrap_err();
    assert!(matches!(problem, JoinProblem::Setup(TlsSetupError::Ca(_))), "{problem:?}");
    says(&problem, &["CA holds no certificate"]);
}

#[tokio::test]
async fn a_refused_token_is_said() {
    let ca = Ca::new();
    let server = reviewing(&ca, 401, json!({"message": "Unauthorized"})).await;
    let problem = ask(&probe(server.url(), &ca)).await.unwrap_err();
    assert!(matches!(problem, JoinProblem::TokenRefused { .. }), "{problem:?}");
    says(&problem, &["refuses the bootstrap token"]);
    // An API server without anonymous access says so at the first request.
    let server = Server::start(&ca.server(), None, |_| Reply::json(401, &json!({"message": "Unauthorized"}))).await;
    let problem = ask(&probe(server.url(), &ca)).await.unwrap_err();
    assert!(matches!(problem, JoinProblem::TokenRefused { .. }), "{problem:?}");
}

#[tokio::test]
async fn a_token_that_may_not_join_is_said() {
    let ca = Ca::new();
    let server = reviewing(&ca, 201, json!({"status": {"allowed": false, "reason": "no binding"}})).await;
    let problem = ask(&probe(server.url(), &ca)).await.unwrap_err();
    says(&problem, &["may not create certificate signing requests", "no binding"]);
    let server = reviewing(&ca, 403, json!({"message": "forbidden: User \"system:bootstrap:abcdef\""})).await;
    let problem = ask(&probe(server.url(), &ca)).await.unwrap_err();
    assert!(matches!(problem, JoinProblem::MayNotJoin { .. }), "{problem:?}");
    says(&problem, &["system:bootstrap:abcdef"]);
    assert!(problem.hint().contains("system:node-bootstrapper"));
}

#[tokio::test]
async fn load_and_errors_of_the_server_do_not_blame_the_token() {
    let ca = Ca::new();
    for status in [429, 500, 503] {
        let server = reviewing(&ca, status, json!({"message": "etcd is away"})).await;
        let problem =
            preflight(&probe(server.url(), &ca), &Names::system(), Duration::from_millis(900)).await.unwrap_err();
        assert!(matches!(problem, JoinProblem::NotWell { .. }), "{problem:?}");
        says(&problem, &["is not well", &status.to_string(), "etcd is away"]);
        assert!(problem.is_temporary());
    }
}

#[tokio::test]
async fn what_passes_by_itself_is_asked_again() {
    let ca = Ca::new();
    let first = std::sync::atomic::AtomicBool::new(true);
    let server = Server::start(&ca.server(), None, move |seen| {
        if first.swap(false, std::sync::atomic::Ordering::Relaxed) {
            return Reply::json(503, &json!({"message": "starting"}));
        }
        healthy(seen)
    })
    .await;
    assert_eq!(ask(&probe(server.url(), &ca)).await.unwrap().version.as_deref(), Some("1.36.3"));
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn a_server_that_never_answers_meets_the_deadline() {
    let ca = Ca::new();
    let server = Server::start(&ca.server(), None, |_| Reply::Hang).await;
    let deadline = Duration::from_millis(300);
    let problem = preflight(&probe(server.url(), &ca), &Names::system(), deadline).await.unwrap_err();
    says(&problem, &["did not answer within 0.3 s while it was asked for its version"]);

    // One that accepts and says nothing at all.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let problem = preflight(&probe(url, &ca), &Names::system(), deadline).await.unwrap_err();
    says(&problem, &["while the TLS handshake"]);
}

#[tokio::test]
async fn a_closed_port_is_said_with_the_address() {
    let ca = Ca::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let probe = probe(format!("https://{address}"), &ca);
    let problem = preflight(&probe, &Names::system(), Duration::from_millis(900)).await.unwrap_err();
    assert!(matches!(problem, JoinProblem::Unreachable { .. }), "{problem:?}");
    says(&problem, &[&address.to_string(), "refused"]);
}

#[tokio::test]
async fn a_plain_server_does_not_speak_tls() {
    use tokio::io::AsyncWriteExt as _;
    let ca = Ca::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await.unwrap();
        std::future::pending::<()>().await;
    });
    let problem = ask(&probe(url, &ca)).await.unwrap_err();
    assert!(matches!(&problem, JoinProblem::Tls { problem: TlsProblem::NotTls, .. }), "{problem:?}");
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_said() {
    let dir = tempfile::tempdir().unwrap();
    // Nobody listens on this DNS port.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    std::fs::write(dir.path().join("resolv.conf"), "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n").unwrap();
    let names = Names::from_files(dir.path().join("hosts"), dir.path().join("resolv.conf"), port);
    let ca = Ca::new();
    let probe = probe("https://api.lab.test:6443".into(), &ca);
    let problem = preflight(&probe, &names, Duration::from_secs(1)).await.unwrap_err();
    assert!(
        matches!(problem, JoinProblem::Name(NameError::NoAnswer { .. }) | JoinProblem::TooSlow { .. }),
        "{problem:?}"
    );
    says(&problem, &["api.lab.test"]);
}

#[tokio::test]
async fn a_name_of_the_hosts_file_is_reached() {
    let ca = Ca::new();
    let server = Server::start(&ca.issue(&["api.lab.test"], -1, 1), None, healthy).await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("hosts"), "127.0.0.1 api.lab.test\n").unwrap();
    let names = Names::from_files(dir.path().join("hosts"), dir.path().join("resolv.conf"), 1);
    let probe = probe(format!("https://api.lab.test:{}", server.address.port()), &ca);
    assert!(preflight(&probe, &names, DEADLINE).await.is_ok());
}

#[tokio::test]
async fn another_service_is_not_taken_for_an_api_server() {
    let ca = Ca::new();
    let server = Server::start(&ca.server(), None, |_| Reply::Json(200, "<html>welcome</html>".into())).await;
    let problem = ask(&probe(server.url(), &ca)).await.unwrap_err();
    assert!(matches!(problem, JoinProblem::NotApiServer { .. }), "{problem:?}");
    let server = Server::start(&ca.server(), None, |_| Reply::Json(404, String::new())).await;
    says(&ask(&probe(server.url(), &ca)).await.unwrap_err(), &["answers 404 to /version"]);
}

#[tokio::test]
async fn a_client_certificate_stands_in_for_the_token() {
    let ca = Ca::new();
    let server = Server::start(&ca.server(), Some(&ca), healthy).await;
    let mut probe = probe(server.url(), &ca);
    probe.token = None;
    probe.identity = Some(ca.issue(&[], -1, 1).identity());
    assert!(ask(&probe).await.is_ok());
    assert_eq!(server.seen().len(), 1, "the right to create requests is not needed");

    probe.identity = Some(Ca::new().issue(&[], -1, 1).identity());
    let problem = ask(&probe).await.unwrap_err();
    assert!(matches!(&problem, JoinProblem::Tls { problem: TlsProblem::Refused(_), .. }), "{problem:?}");
}

#[tokio::test]
async fn an_address_that_is_none_is_said() {
    let problem = ask(&probe("http://127.0.0.1:6443".into(), &Ca::new())).await.unwrap_err();
    says(&problem, &["https://"]);
}

#[test]
fn the_date_header_tells_the_skew() {
    let now: Timestamp = "2026-11-30T02:02:00Z".parse().unwrap();
    assert_eq!(clock_skew("Mon, 30 Nov 2026 02:00:00 GMT", now), Some(SignedDuration::from_secs(120)));
    assert_eq!(clock_skew("Mon, 30 Nov 2026 02:03:00 GMT", now), Some(SignedDuration::from_secs(-60)));
    assert_eq!(clock_skew("Mon, 30 Nov 2026 02:02:10 GMT", now), None);
    assert_eq!(clock_skew("yesterday", now), None);
}

use super::*;
use crate::testing::{Ca, Reply, Server};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(5);

async fn version(client: &Client) -> Result<String, ApiProblem> {
    bounded("its version", LIMIT, client.apiserver_version()).await.map(|v| v.git_version)
}

fn token(text: &str) -> Credentials {
    Credentials::Token(Secret::new(text))
}

fn info() -> serde_json::Value {
    json!({
        "gitVersion": "v1.36.3", "major": "1", "minor": "36", "gitCommit": "", "gitTreeState": "", "buildDate": "",
        "goVersion": "", "compiler": "", "platform": "",
    })
}

#[tokio::test]
async fn the_client_uses_our_names_tls_and_token() {
    let ca = Ca::new();
    let server = Server::start(&ca.issue(&["api.lab.test"], -1, 1), None, |_| Reply::json(200, &info())).await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("hosts"), "127.0.0.1 api.lab.test\n").unwrap();
    let names = Names::from_files(dir.path().join("hosts"), dir.path().join("resolv.conf"), 1);
    let url = format!("https://api.lab.test:{}", server.address.port());
    let client = client(&url, &ca.pem, &token("abcdef.0123456789abcdef"), &names).unwrap();
    assert_eq!(version(&client).await.unwrap(), "v1.36.3");
    assert_eq!(server.seen()[0].authorization.as_deref(), Some("Bearer abcdef.0123456789abcdef"));
}

#[tokio::test]
async fn a_client_certificate_is_shown() {
    let ca = Ca::new();
    let server = Server::start(&ca.server(), Some(&ca), |_| Reply::json(200, &info())).await;
    let ask = |identity| client(&server.url(), &ca.pem, &Credentials::Certificate(identity), &Names::system()).unwrap();
    assert!(version(&ask(ca.issue(&[], -1, 1).identity())).await.is_ok());
    let problem = version(&ask(Ca::new().issue(&[], -1, 1).identity())).await.unwrap_err();
    assert!(problem.is_identity(), "{problem:?}");
}

#[tokio::test]
async fn problems_keep_their_kind_through_the_library() {
    let ca = Ca::new();
    let names = Names::system();
    let server = Server::start(&ca.server(), None, |_| Reply::json(200, &info())).await;
    let problem = version(&client(&server.url(), &Ca::new().pem, &token("a.b"), &names).unwrap()).await.unwrap_err();
    assert_eq!(problem, ApiProblem::Tls(TlsProblem::UnknownCa));
    assert!(problem.is_identity() && !problem.is_silence());

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let asked = client(&url, &ca.pem, &token("a.b"), &names).unwrap();
    let problem = bounded("x", Duration::from_millis(100), asked.apiserver_version()).await.unwrap_err();
    assert!(matches!(problem, ApiProblem::Deadline { .. }), "{problem:?}");
    drop(listener);
    let problem = version(&client(&url, &ca.pem, &token("a.b"), &names).unwrap()).await.unwrap_err();
    assert!(matches!(&problem, ApiProblem::Connection(why) if why.contains("refused")), "{problem:?}");
    assert!(problem.is_silence() && !problem.is_identity());

    let dir = tempfile::tempdir().unwrap();
    // Nobody answers on this DNS port.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    std::fs::write(dir.path().join("resolv.conf"), "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n").unwrap();
    let nowhere = Names::from_files(dir.path().join("hosts"), dir.path().join("resolv.conf"), port);
    let lost = client("https://api.lab.test:1", &ca.pem, &token("a.b"), &nowhere).unwrap();
    let problem = version(&lost).await.unwrap_err();
    assert!(matches!(problem, ApiProblem::Name(NameError::NoAnswer { .. })), "{problem:?}");
    assert!(problem.is_silence());
}

#[tokio::test]
async fn answers_keep_their_kind_and_are_not_retried() {
    let ca = Ca::new();
    for (status, silence, identity) in
        [(401, false, true), (403, false, false), (404, false, false), (429, true, false), (503, true, false)]
    {
        let body = json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "X", "code": status});
        let server = Server::start(&ca.server(), None, move |_| Reply::json(status, &body)).await;
        let client = client(&server.url(), &ca.pem, &token("a.b"), &Names::system()).unwrap();
        let problem = version(&client).await.unwrap_err();
        assert_eq!((problem.is_silence(), problem.is_identity()), (silence, identity), "{problem:?}");
        assert_eq!(server.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_sent_is_not_shown() {
    let problem = client("https://a", &Ca::new().pem, &token("abc\ndef"), &Names::system()).map(drop).unwrap_err();
    assert!(!problem.to_string().contains("abc"), "{problem}");
}

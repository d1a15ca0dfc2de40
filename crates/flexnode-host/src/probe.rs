//! HTTP questions to programs on this machine: kubelet's `/healthz` and the like.

use crate::HostError;
use async_trait::async_trait;
use http::{Request, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpStream;

/// Kubelet's health, by its defaults `healthzBindAddress` and `healthzPort`.
pub const KUBELET_HEALTHZ: &str = "http://127.0.0.1:10248/healthz";

/// What is kept of an answer. A verbose health report has some kilobytes.
const MAX_BODY: usize = 64 * 1024;

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Status code.
    pub status: u16,
    /// The body as text; 64 KiB at most, an answer beyond that is an error.
    pub body: String,
}

impl HttpAnswer {
    /// 200 to 299.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Asks programs on this machine.
#[async_trait]
pub trait Probe: Send + Sync + Debug {
    /// GET of an `http://` URL whose host is a loopback address or `localhost`. Connection, answer and body together take
    /// `deadline` at most. Any status is an answer; `Absent` when nothing listens there.
    async fn http_get(&self, url: &str, deadline: Duration) -> Result<HttpAnswer, HostError>;
}

/// The real one: a connection of its own for each question.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopbackProbe;

#[async_trait]
impl Probe for LoopbackProbe {
    async fn http_get(&self, url: &str, deadline: Duration) -> Result<HttpAnswer, HostError> {
        let target = target(url)?;
        match tokio::time::timeout(deadline, get(url, target)).await {
            Ok(answer) => answer,
            Err(_) => Err(HostError::Deadline { what: format!("GET {url}"), after: deadline }),
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "callers hand over errors that they are done with")]
fn failed(url: &str, reason: impl std::fmt::Display) -> HostError {
    HostError::Failed { what: format!("GET {url}"), reason: format!("{reason}") }
}

/// Where to connect and what to ask for, when the URL is one that we ask.
fn target(url: &str) -> Result<(SocketAddr, Uri), HostError> {
    let uri: Uri = url.parse().map_err(|e| failed(url, e))?;
    if uri.scheme_str() != Some("http") {
        return Err(failed(url, "only plain http is asked here"));
    }
    let host = uri.host().unwrap_or_default();
    let ip = match host.trim_start_matches('[').trim_end_matches(']') {
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        literal => literal.parse().map_err(|_| failed(url, "the host is neither localhost nor an address"))?,
    };
    if !ip.is_loopback() {
        return Err(failed(url, "only loopback addresses are asked"));
    }
    Ok((SocketAddr::new(ip, uri.port_u16().unwrap_or(80)), uri))
}

async fn get(url: &str, (address, uri): (SocketAddr, Uri)) -> Result<HttpAnswer, HostError> {
    let stream = TcpStream::connect(address).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::ConnectionRefused => {
            HostError::Absent { what: format!("a program that listens on {address}") }
        }
        _ => failed(url, e),
    })?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| failed(url, e))?;
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    let request = Request::get(path)
        .header(header::HOST, address.to_string())
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|e| failed(url, e))?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(|e| failed(url, e))?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), MAX_BODY).collect().await.map_err(|e| failed(url, e))?;
        Ok(HttpAnswer { status, body: String::from_utf8_lossy(&body.to_bytes()).into_owned() })
    };
    // The connection moves the bytes of the exchange; both run in this task, so that nothing outlives a deadline.
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        _ = connection => exchange.await,
    }
}

/// A probe that answers what the test says.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug, Default)]
pub struct FakeProbe {
    answers: std::sync::Mutex<std::collections::BTreeMap<String, FakeAnswer>>,
}

/// What a [`FakeProbe`] does for one URL.
#[cfg(any(test, feature = "testing"))]
#[derive(Clone, Debug)]
pub enum FakeAnswer {
    /// Answers.
    Answer(HttpAnswer),
    /// Accepts and never answers: the deadline fires.
    Hang,
}

#[cfg(any(test, feature = "testing"))]
impl FakeProbe {
    /// A probe for which `url` answers `status` and `body`.
    pub fn answering(url: &str, status: u16, body: &str) -> Self {
        let probe = Self::default();
        probe.set(url, FakeAnswer::Answer(HttpAnswer { status, body: body.to_owned() }));
        probe
    }
    /// What `url` does from now on. URLs that were never set are not listened on.
    pub fn set(&self, url: &str, answer: FakeAnswer) {
        self.answers.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(url.to_owned(), answer);
    }
}

#[cfg(any(test, feature = "testing"))]
#[async_trait]
impl Probe for FakeProbe {
    async fn http_get(&self, url: &str, deadline: Duration) -> Result<HttpAnswer, HostError> {
        target(url)?;
        let answer = self.answers.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(url).cloned();
        match answer {
            Some(FakeAnswer::Answer(answer)) => Ok(answer),
            Some(FakeAnswer::Hang) => Err(HostError::Deadline { what: format!("GET {url}"), after: deadline }),
            None => Err(HostError::Absent { what: format!("a program that listens at {url}") }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    const DEADLINE: Duration = Duration::from_secs(5);

    /// A server that answers one connection with these bytes; then keeps it open when told to.
    async fn serve(answer: Vec<u8>, hang: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/healthz", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let read = stream.read(&mut request).await.unwrap();
            assert!(request[..read].starts_with(b"GET /healthz HTTP/1.1\r\n"));
            stream.write_all(&answer).await.unwrap();
            if hang {
                std::future::pending::<()>().await;
            }
        });
        url
    }

    #[tokio::test]
    async fn an_answer_comes_with_status_and_body() {
        let url = serve(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec(), true).await;
        let answer = LoopbackProbe.http_get(&url, DEADLINE).await.unwrap();
        assert_eq!(answer, HttpAnswer { status: 200, body: "ok".into() });
        let url =
            serve(b"HTTP/1.1 500 Internal Server Error\r\nconnection: close\r\n\r\nnot yet".to_vec(), false).await;
        let answer = LoopbackProbe.http_get(&url, DEADLINE).await.unwrap();
        assert_eq!((answer.status, answer.is_success(), answer.body.as_str()), (500, false, "not yet"));
    }

    #[tokio::test]
    async fn nothing_that_listens_is_absent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/healthz", listener.local_addr().unwrap());
        drop(listener);
        let error = LoopbackProbe.http_get(&url, DEADLINE).await.unwrap_err();
        assert!(matches!(error, HostError::Absent { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_never_answers_meets_the_deadline() {
        let url = serve(Vec::new(), true).await;
        let error = LoopbackProbe.http_get(&url, Duration::from_millis(50)).await.unwrap_err();
        assert!(matches!(error, HostError::Deadline { .. }), "{error}");
        let url = serve(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nha".to_vec(), true).await;
        let error = LoopbackProbe.http_get(&url, Duration::from_millis(50)).await.unwrap_err();
        assert!(matches!(error, HostError::Deadline { .. }), "{error}");
    }

    #[tokio::test]
    async fn an_endless_body_is_refused() {
        let mut answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec();
        answer.resize(answer.len() + MAX_BODY + 1, b'x');
        let url = serve(answer, false).await;
        let error = LoopbackProbe.http_get(&url, DEADLINE).await.unwrap_err();
        assert!(error.to_string().contains("length limit exceeded"), "{error}");
    }

    #[tokio::test]
    async fn only_this_machine_is_asked() {
        for url in
            ["http://192.0.2.1/healthz", "https://127.0.0.1/", "http://example.org/", "nonsense", "http://[::2]/"]
        {
            let error = LoopbackProbe.http_get(url, DEADLINE).await.unwrap_err();
            assert!(matches!(error, HostError::Failed { .. }), "{url}: {error}");
        }
        assert_eq!(target("http://localhost:10248/healthz").unwrap().0, "127.0.0.1:10248".parse().unwrap());
        assert_eq!(target("http://[::1]:7/x?y").unwrap().0, "[::1]:7".parse().unwrap());
    }
}

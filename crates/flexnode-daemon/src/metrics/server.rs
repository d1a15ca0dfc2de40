//! A small HTTP server: two paths, few connections, a limit of time for each.

use super::{Shared, encode};
use flexnode_host::{Clock, HostError};
use flexnode_model::snapshot::Verdict;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// The socket. The directory is made by the service's unit.
pub const SOCKET: &str = "/run/aks-flex-node/metrics.sock";
/// Root's alone; for others there is the loopback address.
const SOCKET_MODE: u32 = 0o600;
/// Connections at the same time.
const CONNECTIONS: usize = 8;
/// How long a connection may take.
const LIMIT: Duration = Duration::from_secs(10);
/// After a connection could not be taken (no descriptors, for example).
const PAUSE: Duration = Duration::from_secs(5);
/// A snapshot that is older says nothing about now: the loop hangs.
const STALE: jiff::SignedDuration = jiff::SignedDuration::from_mins(5);

/// Where metrics are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listen {
    /// A Unix socket.
    pub socket: Option<PathBuf>,
    /// A loopback address.
    pub address: Option<SocketAddr>,
}

/// Serves for ever. A place that cannot be had is logged and left out: the node is kept all the same.
pub async fn serve(listen: &Listen, shared: &Arc<Shared>, clock: &dyn Clock) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    let unix = async {
        let Some(path) = &listen.socket else { return };
        match bind(path) {
            Ok(listener) => loop {
                match listener.accept().await {
                    Ok((stream, _)) => take(stream, shared, &connections),
                    Err(error) => refused(&error, clock).await,
                }
            },
            Err(error) => tracing::warn!(path = %path.display(), %error, "metrics are not served on the socket"),
        }
    };
    let tcp = async {
        let Some(address) = listen.address.filter(|address| address.ip().is_loopback()) else { return };
        match TcpListener::bind(address).await {
            Ok(listener) => loop {
                match listener.accept().await {
                    Ok((stream, _)) => take(stream, shared, &connections),
                    Err(error) => refused(&error, clock).await,
                }
            },
            Err(error) => tracing::warn!(%address, %error, "metrics are not served on the address"),
        }
    };
    tokio::join!(unix, tcp);
    std::future::pending::<()>().await;
}

async fn refused(error: &io::Error, clock: &dyn Clock) {
    tracing::warn!(%error, "a connection for metrics could not be taken");
    clock.sleep(PAUSE).await;
}

/// Takes the place of a socket that a daemon before this one left; anything else there is left alone.
fn bind(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket is there")),
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok(listener)
}

/// Answers a connection in a task of its own; when there are too many, it is closed at once.
fn take(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, shared: &Arc<Shared>, all: &Arc<Semaphore>) {
    let Ok(permit) = all.clone().try_acquire_owned() else { return };
    let shared = shared.clone();
    tokio::spawn(async move {
        let answer = hyper::service::service_fn(move |request: Request<Incoming>| {
            let answer = answer(request.method(), request.uri().path(), &shared);
            async move { Ok::<_, Infallible>(answer) }
        });
        let mut server = hyper::server::conn::http1::Builder::new();
        server.keep_alive(false).max_buf_size(16 * 1024);
        let _ = tokio::time::timeout(LIMIT, server.serve_connection(TokioIo::new(stream), answer)).await;
        drop(permit);
    });
}

fn answer(method: &Method, path: &str, shared: &Shared) -> Response<Full<Bytes>> {
    let text = |status: StatusCode, kind: &'static str, body: String| {
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
        response
    };
    let plain = "text/plain; charset=utf-8";
    if method != Method::GET && method != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, plain, "only GET is answered\n".into());
    }
    match path {
        "/metrics" => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            text(StatusCode::OK, kind, encode(&shared.source()))
        }
        "/healthz" => {
            let (healthy, line) = health(shared, jiff::Timestamp::now());
            let status = if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            text(status, plain, format!("{line}\n"))
        }
        _ => text(StatusCode::NOT_FOUND, plain, "there are /metrics and /healthz\n".into()),
    }
}

/// Whether the node is healthy by the newest snapshot, and a line that says so. It names the reason's word, not what other
/// programs say: whoever can connect reads it.
fn health(shared: &Shared, now: jiff::Timestamp) -> (bool, String) {
    let Some(snapshot) = shared.source().snapshot else { return (false, "nothing was looked at yet".into()) };
    if now.duration_since(snapshot.at) > STALE {
        return (false, "the last look at the node is old".into());
    }
    match (snapshot.verdict, snapshot.reason) {
        (Verdict::Healthy, _) => (true, "ok".into()),
        (_, Some(reason)) => (false, format!("{}: {}", reason.as_str(), reason.sentence())),
        (_, None) => (false, "not a node".into()),
    }
}

/// Asks the daemon that serves at `socket` for its metrics.
pub async fn scrape(socket: &Path) -> Result<String, HostError> {
    let failed = |reason: String| HostError::Failed { what: format!("ask at {}", socket.display()), reason };
    let ask = async {
        let stream = UnixStream::connect(socket).await.map_err(|e| failed(e.to_string()))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| failed(e.to_string()))?;
        let request = Request::get("/metrics").header(header::HOST, "localhost").body(Empty::<Bytes>::new());
        let request = request.map_err(|e| failed(e.to_string()))?;
        let exchange = async {
            let answer = sender.send_request(request).await.map_err(|e| failed(e.to_string()))?;
            let body = Limited::new(answer.into_body(), 4 << 20).collect().await.map_err(|e| failed(e.to_string()))?;
            Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
        };
        let mut exchange = std::pin::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            _ = connection => exchange.await,
        }
    };
    match tokio::time::timeout(LIMIT, ask).await {
        Ok(answer) => answer,
        Err(_) => Err(HostError::Deadline { what: format!("asking at {}", socket.display()), after: LIMIT }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_host::testing::FakeClock;
    use flexnode_model::Snapshot;

    fn shared() -> Arc<Shared> {
        let bytes = include_bytes!("../../../flexnode-model/tests/samples/snapshot-1.json");
        let shared = Arc::new(Shared::default());
        shared.publish(&Snapshot::decode(bytes).unwrap());
        shared
    }

    #[tokio::test]
    async fn metrics_are_served_on_a_socket_that_is_roots_alone() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("metrics.sock");
        // A socket of a daemon that was killed is there.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listen = Listen { socket: Some(path.clone()), address: None };
        let (shared, clock) = (shared(), FakeClock::new());
        let ask = async {
            while std::fs::metadata(&path).map_or(0, |m| m.permissions().mode() & 0o777) != 0o600 {
                tokio::task::yield_now().await;
            }
            scrape(&path).await.unwrap()
        };
        let text = tokio::select! {
            text = ask => text,
            () = serve(&listen, &shared, &clock) => unreachable!(),
        };
        assert!(text.contains("flexnode_verdict{verdict=\"degraded\"} 1.0"), "{text}");
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("file");
        std::fs::write(&path, "mine").unwrap();
        assert!(bind(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn health_is_that_of_the_newest_snapshot_and_an_old_one_is_none() {
        assert!(!health(&Shared::default(), jiff::Timestamp::now()).0);
        let shared = shared();
        let at = shared.source().snapshot.unwrap().at;
        let (healthy, line) = health(&shared, at);
        assert!(!healthy && line.starts_with("NodeNotReady: "), "{line}");
        let mut snapshot = (*shared.source().snapshot.unwrap()).clone();
        (snapshot.verdict, snapshot.reason) = (Verdict::Healthy, None);
        shared.publish(&snapshot);
        assert_eq!(health(&shared, at), (true, "ok".into()));
        assert!(!health(&shared, at + jiff::SignedDuration::from_mins(6)).0);
    }

    #[test]
    fn other_paths_and_methods_are_refused() {
        let shared = shared();
        assert_eq!(answer(&Method::GET, "/", &shared).status(), StatusCode::NOT_FOUND);
        assert_eq!(answer(&Method::POST, "/metrics", &shared).status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(answer(&Method::GET, "/healthz", &shared).status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}

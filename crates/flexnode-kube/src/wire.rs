//! One connection to an API server, made step by step, so that each step can say in its own words why it failed.

use crate::address::ServerAddress;
use crate::names::Names;
use crate::problem::JoinProblem;
use crate::tls::{self, Identity, TlsProblem};
use flexnode_model::Secret;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// What is kept of an answer: reviews, versions and error messages are small.
const MAX_BODY: usize = 256 * 1024;
/// An address that does not answer within this makes room for the next.
const CONNECT_EACH: Duration = Duration::from_secs(3);

/// What is being waited for, readable from outside when the time is over.
#[derive(Debug)]
pub(crate) struct Stage(Mutex<&'static str>);

impl Stage {
    pub fn new(stage: &'static str) -> Self {
        Self(Mutex::new(stage))
    }
    pub fn set(&self, stage: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }
    pub fn get(&self) -> &'static str {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    /// The `Date` header, as given.
    pub date: Option<String>,
    pub body: Vec<u8>,
}

/// An open connection after the TLS handshake.
pub(crate) struct Connection {
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
    address: ServerAddress,
    /// The address that took the connection.
    pub peer: SocketAddr,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Looks the name up, connects, shakes hands. `stage` is set before each step that can wait.
    pub async fn open(
        address: &ServerAddress,
        ca_pem: &str,
        identity: Option<&Identity>,
        names: &Names,
        stage: &Stage,
    ) -> Result<Self, JoinProblem> {
        let server = address.authority();
        let config = tls::client_config(ca_pem, identity).map_err(JoinProblem::Setup)?;
        let name = ServerName::try_from(address.host.clone())
            .map_err(|e| JoinProblem::BadUrl { url: address.url(), reason: e.to_string() })?;

        stage.set("its name was looked up");
        let addresses = names.resolve(&address.host).await.map_err(JoinProblem::Name)?;
        stage.set("connecting");
        let (stream, peer) = connect(addresses.into_iter().map(|ip| SocketAddr::new(ip, address.port))).await?;

        stage.set("the TLS handshake");
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
        let stream = connector.connect(name, stream).await.map_err(|e| match TlsProblem::find(&e) {
            Some(problem) => JoinProblem::Tls { server: server.clone(), problem },
            None => JoinProblem::Broken { server: server.clone(), reason: e.to_string() },
        })?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| JoinProblem::Broken { server: server.clone(), reason: e.to_string() })?;
        let driver = tokio::spawn(async move {
            // Its error reaches the request through the sender.
            let _ = connection.await;
        });
        Ok(Self { sender, driver, address: address.clone(), peer })
    }

    /// One request on the connection. Any status is an answer.
    pub async fn request(
        &mut self,
        method: Method,
        path: &str,
        token: Option<&Secret>,
        body: Vec<u8>,
    ) -> Result<Answer, JoinProblem> {
        let server = self.address.authority();
        let broken = |e: &(dyn std::error::Error + 'static)| match TlsProblem::find(e) {
            // With TLS 1.3 the server judges our certificate after the handshake.
            Some(problem) => JoinProblem::Tls { server: server.clone(), problem },
            None => JoinProblem::Broken { server: server.clone(), reason: chain(e) },
        };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.address.path))
            .header(header::HOST, self.address.authority())
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("aks-flex-node/", env!("CARGO_PKG_VERSION")));
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, bearer(token).map_err(|()| token_refused(&server))?);
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|e| broken(&e))?;
        let answer = self.sender.send_request(request).await.map_err(|e| broken(&e))?;
        let status = answer.status().as_u16();
        let date = answer.headers().get(header::DATE).and_then(|d| d.to_str().ok()).map(str::to_owned);
        let body = Limited::new(answer.into_body(), MAX_BODY).collect().await.map_err(|e| broken(e.as_ref()))?;
        Ok(Answer { status, date, body: body.to_bytes().to_vec() })
    }
}

fn token_refused(server: &str) -> JoinProblem {
    JoinProblem::TokenRefused { server: server.to_owned() }
}

/// The Authorization header; it hides itself from every Debug on the way. Fails when the token cannot be in a header.
pub(crate) fn bearer(token: &Secret) -> Result<http::HeaderValue, ()> {
    let mut value = http::HeaderValue::from_str(&format!("Bearer {}", token.expose())).map_err(drop)?;
    value.set_sensitive(true);
    Ok(value)
}

async fn connect(addresses: impl Iterator<Item = SocketAddr>) -> Result<(TcpStream, SocketAddr), JoinProblem> {
    let mut tried = Vec::new();
    for address in addresses {
        match tokio::time::timeout(CONNECT_EACH, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Requests are small and wait for their answers.
                let _ = stream.set_nodelay(true);
                return Ok((stream, address));
            }
            Ok(Err(e)) => tried.push((address, e.to_string())),
            Err(_) => tried.push((address, format!("no answer within {} s", CONNECT_EACH.as_secs()))),
        }
    }
    Err(JoinProblem::Unreachable { tried })
}

/// An error with all its causes.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !words.contains(&text) {
            words = format!("{words}: {text}");
        }
        next = cause.source();
    }
    words
}

//! An API server in this process, with certificates of its own.

use crate::tls::Identity;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;

/// A certificate authority.
pub struct Ca {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, in PEM.
pub struct Issued {
    pub certificate: String,
    pub key: String,
}

impl Issued {
    pub fn identity(&self) -> Identity {
        Identity::from_pem(self.certificate.as_bytes(), self.key.as_bytes()).unwrap()
    }
}

/// From now; negative is the past.
pub type Days = i64;

fn validity(params: &mut CertificateParams, from: Days, to: Days) {
    // rcgen's own time type, without naming its crate here.
    let now = std::time::SystemTime::now();
    let at = |days: Days| {
        let span = Duration::from_secs(days.unsigned_abs() * 86_400);
        if days < 0 { now - span } else { now + span }
    };
    params.not_before = at(from).into();
    params.not_after = at(to).into();
}

impl Ca {
    pub fn new() -> Self {
        Self::within(-1, 1)
    }

    pub fn within(from: Days, to: Days) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "kubernetes");
        validity(&mut params, from, to);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    pub fn issue(&self, names: &[&str], from: Days, to: Days) -> Issued {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, "system:node:node-1");
        validity(&mut params, from, to);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Issued { certificate, key: key.serialize_pem() }
    }

    /// For this machine, valid now.
    pub fn server(&self) -> Issued {
        self.issue(&["127.0.0.1", "localhost"], -1, 1)
    }
}

/// What the server got.
#[derive(Clone, Debug)]
pub struct Seen {
    pub line: String,
    pub authorization: Option<String>,
    pub body: String,
}

/// What it answers: status and JSON, or nothing ever.
#[derive(Clone)]
pub enum Reply {
    Json(u16, String),
    Hang,
}

impl Reply {
    pub fn json(status: u16, value: &serde_json::Value) -> Self {
        Reply::Json(status, value.to_string())
    }
}

/// A server that runs until the test ends.
pub struct Server {
    pub address: SocketAddr,
    pub seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// `answer` is called with `METHOD /path` and says what comes back.
    pub async fn start(
        issued: &Issued,
        client_ca: Option<&Ca>,
        answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server_config(issued, client_ca)));
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let answer: Arc<dyn Fn(&Seen) -> Reply + Send + Sync> = Arc::new(answer);
        let log = seen.clone();
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (acceptor, answer, log) = (acceptor.clone(), answer.clone(), log.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service =
                        hyper::service::service_fn(move |request| respond(request, answer.clone(), log.clone()));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { address, seen }
    }
}

fn server_config(issued: &Issued, client_ca: Option<&Ca>) -> rustls::ServerConfig {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        rustls::ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(ca.pem.as_bytes()).unwrap()).unwrap();
            let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let chain = vec![CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()];
    builder.with_single_cert(chain, PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap()).unwrap()
}

async fn respond(
    request: Request<Incoming>,
    answer: Arc<dyn Fn(&Seen) -> Reply + Send + Sync>,
    log: Arc<Mutex<Vec<Seen>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let line = format!("{} {}", request.method(), request.uri());
    let authorization = request.headers().get("authorization").map(|v| v.to_str().unwrap().to_owned());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let seen = Seen { line, authorization, body: String::from_utf8(body.to_vec()).unwrap() };
    log.lock().unwrap().push(seen.clone());
    match answer(&seen) {
        Reply::Json(status, json) => {
            let answer = Response::builder().status(status).header("content-type", "application/json");
            Ok(answer.body(Full::new(Bytes::from(json))).unwrap())
        }
        Reply::Hang => std::future::pending().await,
    }
}

/// A client whose requests are answered by `answer`: it gets `METHOD /path?query`, and gives status and JSON.
pub fn mock(answer: impl Fn(&str) -> (u16, serde_json::Value) + Send + Sync + 'static) -> kube::client::Client {
    mock_streaming(move |line| {
        let (status, body) = answer(line);
        (status, vec![body], false)
    })
}

/// As [`mock`], with a body of several lines that stays open at its end when the third value says so: a watch.
pub fn mock_streaming(
    answer: impl Fn(&str) -> (u16, Vec<serde_json::Value>, bool) + Send + Sync + 'static,
) -> kube::client::Client {
    use futures_util::StreamExt as _;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let path = request.uri().path_and_query().map_or("", |p| p.as_str());
        let (status, lines, open) = answer(&format!("{} {path}", request.method()));
        let frames = lines.into_iter().map(|line| Ok::<_, Infallible>(Frame::data(Bytes::from(format!("{line}\n")))));
        let end = if open { futures_util::stream::pending().boxed() } else { futures_util::stream::empty().boxed() };
        let body = StreamBody::new(futures_util::stream::iter(frames).chain(end));
        async move { Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap()) }
    });
    kube::client::Client::new(service, "default")
}

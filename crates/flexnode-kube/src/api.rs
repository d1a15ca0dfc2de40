//! A client of one API server: our name resolution, our TLS, a deadline for every call, no retries behind one's back.

use crate::address::ServerAddress;
use crate::meter::Meter;
use crate::names::{NameError, Names};
use crate::tls::{Identity, TlsProblem, client_config};
use crate::wire::{bearer, chain};
use flexnode_model::Secret;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::middleware::BaseUriLayer;
use kube::client::{Body, Client};
use std::sync::Arc;
use std::time::Duration;
use tower::{BoxError, ServiceBuilder};

/// A connection that is not made within this is given up.
const CONNECT: Duration = Duration::from_secs(5);
/// Idle connections are closed after this: load balancers forget them after some minutes without telling.
const IDLE: Duration = Duration::from_secs(60);

/// As whom to ask.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// A bearer token.
    Token(Secret),
    /// A client certificate.
    Certificate(Identity),
}

/// Why a call did not work. `Display` is for people; the kinds are for decisions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiProblem {
    /// There is no credential to ask with (yet).
    #[error("there are no usable credentials: {0}")]
    Credentials(String),
    /// The name has no address.
    #[error("the API server cannot be found: {0}")]
    Name(NameError),
    /// No connection, or it broke.
    #[error("no connection to the API server: {0}")]
    Connection(String),
    /// The handshake failed.
    #[error("the API server cannot be trusted: {0}")]
    Tls(TlsProblem),
    /// No answer in time.
    #[error("the API server did not answer within {} s: {what}", after.as_secs_f32())]
    Deadline {
        /// What was asked.
        what: String,
        /// The limit.
        after: Duration,
    },
    /// 401.
    #[error("the API server does not accept the credentials")]
    Unauthorized,
    /// 403.
    #[error("not allowed: {0}")]
    Forbidden(String),
    /// 404.
    #[error("not found: {0}")]
    NotFound(String),
    /// 409.
    #[error("changed by somebody else in between: {0}")]
    Conflict(String),
    /// 429 or 5xx.
    #[error("the API server is not well: it answers {status}: {message}")]
    NotWell {
        /// HTTP status.
        status: u16,
        /// Its message.
        message: String,
    },
    /// Any other answer.
    #[error("the API server answers {status}: {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Its message.
        message: String,
    },
    /// An answer that cannot be read.
    #[error("the API server's answer cannot be read: {0}")]
    Unreadable(String),
}

impl ApiProblem {
    /// The server said nothing about what was asked: it is away, slow or in trouble of its own. Not a verdict on the node.
    pub fn is_silence(&self) -> bool {
        matches!(
            self,
            ApiProblem::Name(_)
                | ApiProblem::Connection(_)
                | ApiProblem::Deadline { .. }
                | ApiProblem::NotWell { .. }
                | ApiProblem::Unreadable(_)
        )
    }

    /// The identity itself is refused: another CA, or a certificate that is over. Only this, and never a server that is
    /// away, is a reason to bootstrap again.
    pub fn is_identity(&self) -> bool {
        matches!(self, ApiProblem::Unauthorized | ApiProblem::Tls(TlsProblem::UnknownCa | TlsProblem::Refused(_)))
    }

    /// Names what the client library says.
    pub(crate) fn from_kube(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::from_status(status.code, &status.message),
            kube::Error::SerdeError(e) => ApiProblem::Unreadable(e.to_string()),
            e => Self::from_transport(e),
        }
    }

    pub(crate) fn from_status(code: u16, message: &str) -> Self {
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        let message: String = message.chars().take(400).collect();
        match code {
            401 => ApiProblem::Unauthorized,
            403 => ApiProblem::Forbidden(message),
            404 | 410 => ApiProblem::NotFound(message),
            409 => ApiProblem::Conflict(message),
            429 | 500.. => ApiProblem::NotWell { status: code, message },
            status => ApiProblem::Refused { status, message },
        }
    }

    fn from_transport(error: &(dyn std::error::Error + 'static)) -> Self {
        if let Some(problem) = TlsProblem::find(error) {
            return ApiProblem::Tls(problem);
        }
        let mut next = Some(error);
        while let Some(cause) = next {
            if let Some(name) = cause.downcast_ref::<NameError>() {
                return ApiProblem::Name(name.clone());
            }
            next = cause.source();
        }
        ApiProblem::Connection(chain(error))
    }
}

/// Makes a client. Nothing is sent before it is used.
///
/// kube's own stack would retry 15 times with pauses of up to 1000 s and resolve names with the C library; this one does
/// neither. Calls go through [`bounded`].
pub fn client(url: &str, ca_pem: &str, credentials: &Credentials, names: &Names) -> Result<Client, ApiProblem> {
    metered_client(url, ca_pem, credentials, names, &Arc::default())
}

/// As [`client`]; `meter` learns from each answer.
pub fn metered_client(
    url: &str,
    ca_pem: &str,
    credentials: &Credentials,
    names: &Names,
    meter: &Arc<Meter>,
) -> Result<Client, ApiProblem> {
    let address = ServerAddress::parse(url).map_err(ApiProblem::Credentials)?;
    let (identity, header) = match credentials {
        Credentials::Certificate(identity) => (Some(identity), None),
        Credentials::Token(token) => {
            let header = bearer(token)
                .map_err(|()| ApiProblem::Credentials("the token holds characters that no token has".into()))?;
            (None, Some(header))
        }
    };
    let tls = client_config(ca_pem, identity).map_err(|e| ApiProblem::Credentials(e.to_string()))?;
    let mut http = HttpConnector::new_with_resolver(names.clone());
    http.enforce_http(false);
    http.set_connect_timeout(Some(CONNECT));
    http.set_nodelay(true);
    http.set_keepalive(Some(IDLE));
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1()
        .wrap_connector(http);
    let hyper = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .build::<_, Body>(connector);
    let base = address.url().parse().map_err(|e: http::uri::InvalidUri| ApiProblem::Credentials(e.to_string()))?;
    let (counts, hears) = (meter.clone(), meter.clone());
    let service = ServiceBuilder::new()
        .layer(BaseUriLayer::new(base))
        .map_response(move |answer: http::Response<hyper::body::Incoming>| {
            if let Some(date) = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok()) {
                hears.hear(date, jiff::Timestamp::now());
            }
            answer
        })
        .map_request(move |mut request: http::Request<Body>| {
            counts.count();
            if let Some(header) = &header {
                request.headers_mut().insert(http::header::AUTHORIZATION, header.clone());
            }
            request
        })
        .map_err(BoxError::from)
        .service(hyper);
    Ok(Client::new(service, "default"))
}

/// Runs one call with a deadline; `what` completes "asking for ...".
pub async fn bounded<T>(
    what: &str,
    deadline: Duration,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApiProblem> {
    match tokio::time::timeout(deadline, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(ApiProblem::from_kube(&e)),
        Err(_) => Err(ApiProblem::Deadline { what: what.to_owned(), after: deadline }),
    }
}

#[cfg(test)]
#[path = "api_tests.rs"]
mod tests;

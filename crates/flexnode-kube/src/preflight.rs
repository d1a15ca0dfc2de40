//! Before anything is changed on a host: can it join this API server?

use crate::address::ServerAddress;
use crate::identity::{CertificateState, certificate_state};
use crate::names::Names;
use crate::problem::JoinProblem;
use crate::tls::{Identity, TlsProblem};
use crate::wire::{Answer, Connection, Stage};
use flexnode_model::Secret;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// How long the whole question may take.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// The pause before a temporary problem is looked at again.
const AGAIN: Duration = Duration::from_secs(1);
/// Clocks that differ by less are not worth a word.
const SKEW_NOTED: i64 = 30;

/// Whom to ask, and as whom.
#[derive(Clone, Debug)]
pub struct ApiServerProbe {
    /// `https://host:port`.
    pub url: String,
    /// The cluster's CA, PEM.
    pub ca_pem: String,
    /// The bootstrap token; `None` where kubelet has a client certificate already.
    pub token: Option<Secret>,
    /// Kubelet's client certificate, where there is one that is still valid.
    pub identity: Option<Identity>,
}

/// What was learned from an API server that can be joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServerFacts {
    /// The server's version without `v`; `None` when it does not tell those who may not ask.
    pub version: Option<String>,
    /// The address that took the connection.
    pub peer: SocketAddr,
    /// How far this host's clock is ahead of the server's (negative: behind), where the difference is 30 s or more.
    pub clock_skew: Option<SignedDuration>,
}

/// Asks the API server everything that joining needs: name, connection, TLS by the given CA, token, permission to create
/// certificate signing requests. Changes nothing there.
///
/// Problems that pass by themselves (load, a small difference of clocks) are tried again within `deadline`. The answer
/// comes within `deadline`.
pub async fn preflight(
    probe: &ApiServerProbe,
    names: &Names,
    deadline: Duration,
) -> Result<ApiServerFacts, JoinProblem> {
    let address =
        ServerAddress::parse(&probe.url).map_err(|reason| JoinProblem::BadUrl { url: probe.url.clone(), reason })?;
    let end = Instant::now() + deadline;
    loop {
        let stage = Stage::new("starting");
        let problem = match tokio::time::timeout_at(end, once(probe, &address, names, &stage)).await {
            Ok(Ok(facts)) => return Ok(facts),
            Ok(Err(problem)) => problem,
            Err(_) => {
                return Err(JoinProblem::TooSlow { server: address.authority(), stage: stage.get(), after: deadline });
            }
        };
        let wait = pause(&problem);
        if !problem.is_temporary() || Instant::now() + wait >= end {
            return Err(problem);
        }
        tracing::info!(%problem, "the API server is asked again");
        tokio::time::sleep(wait).await;
    }
}

/// A clock that is behind is waited for as long as it takes; everything else is asked again soon.
fn pause(problem: &JoinProblem) -> Duration {
    match problem {
        JoinProblem::Tls { problem: TlsProblem::NotYetValid { seconds, .. }, .. }
        | JoinProblem::CaTime { problem: TlsProblem::NotYetValid { seconds, .. } } => {
            Duration::from_secs(u64::try_from(*seconds).unwrap_or(0) + 1)
        }
        _ => AGAIN,
    }
}

async fn once(
    probe: &ApiServerProbe,
    address: &ServerAddress,
    names: &Names,
    stage: &Stage,
) -> Result<ApiServerFacts, JoinProblem> {
    check_ca_time(&probe.ca_pem, Timestamp::now())?;
    let mut connection = Connection::open(address, &probe.ca_pem, probe.identity.as_ref(), names, stage).await?;
    let server = address.authority();

    stage.set("it was asked for its version");
    let answer = connection.request(Method::GET, "/version", probe.token.as_ref(), Vec::new()).await?;
    let version = read_version(&answer, &server, probe)?;
    let clock_skew = answer.date.as_deref().and_then(|date| clock_skew(date, Timestamp::now()));

    if probe.token.is_some() {
        stage.set("it was asked whether the token may join");
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = connection.request(Method::POST, path, probe.token.as_ref(), review()).await?;
        read_review(&answer, &server)?;
    }
    Ok(ApiServerFacts { version, peer: connection.peer, clock_skew })
}

/// Kubelet (Go) also refuses a CA that is not within its time; rustls does not look at it.
fn check_ca_time(ca_pem: &str, now: Timestamp) -> Result<(), JoinProblem> {
    // A bundle may hold an old CA beside the new one: one that is good is enough here.
    let mut problem = None;
    for pem in x509_parser::pem::Pem::iter_from_buffer(ca_pem.as_bytes()).flatten() {
        problem = match certificate_state(&pem.contents, now) {
            CertificateState::Valid { .. } => return Ok(()),
            CertificateState::Expired { ended } => Some(TlsProblem::Expired { ended, now }),
            CertificateState::NotYet { begins } => Some(TlsProblem::not_yet(begins, now)),
            // The handshake says what is wrong with it.
            CertificateState::Unreadable { .. } => continue,
        };
    }
    problem.map_or(Ok(()), |problem| Err(JoinProblem::CaTime { problem }))
}

fn review() -> Vec<u8> {
    serde_json::json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": { "group": "certificates.k8s.io", "resource": "certificatesigningrequests", "verb": "create" },
        },
    })
    .to_string()
    .into_bytes()
}

/// The part of metav1.Status that is for people.
#[derive(Deserialize)]
struct StatusMessage {
    message: String,
}

/// The server's own message in one bounded line, or nothing.
fn message(answer: &Answer) -> String {
    let text = serde_json::from_slice::<StatusMessage>(&answer.body).map(|s| s.message).unwrap_or_default();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(300).collect()
}

fn not_well(answer: &Answer, server: &str) -> Option<JoinProblem> {
    let bad = answer.status == 429 || answer.status >= 500;
    bad.then(|| JoinProblem::NotWell { server: server.to_owned(), status: answer.status, message: message(answer) })
}

fn refused(probe: &ApiServerProbe, server: &str) -> Option<JoinProblem> {
    let server = server.to_owned();
    match (&probe.token, &probe.identity) {
        (Some(_), _) => Some(JoinProblem::TokenRefused { server }),
        (None, Some(_)) => Some(JoinProblem::CertificateRefused { server }),
        (None, None) => None,
    }
}

fn read_version(answer: &Answer, server: &str, probe: &ApiServerProbe) -> Result<Option<String>, JoinProblem> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        git_version: String,
    }
    if let Some(problem) = not_well(answer, server) {
        return Err(problem);
    }
    match answer.status {
        200 => match serde_json::from_slice::<Version>(&answer.body) {
            Ok(version) => Ok(Some(version.git_version.trim_start_matches('v').to_owned())),
            Err(_) => Err(not_api_server(server, "its /version is not that of Kubernetes")),
        },
        401 => refused(probe, server).map_or(Ok(None), Err),
        // Some clusters hide the version; what counts is asked next.
        403 => Ok(None),
        status => Err(not_api_server(server, &format!("it answers {status} to /version"))),
    }
}

fn not_api_server(server: &str, reason: &str) -> JoinProblem {
    JoinProblem::NotApiServer { server: server.to_owned(), reason: reason.to_owned() }
}

fn read_review(answer: &Answer, server: &str) -> Result<(), JoinProblem> {
    #[derive(Deserialize)]
    struct Review {
        status: ReviewStatus,
    }
    #[derive(Deserialize)]
    struct ReviewStatus {
        allowed: bool,
        #[serde(default)]
        reason: String,
    }
    if let Some(problem) = not_well(answer, server) {
        return Err(problem);
    }
    match answer.status {
        200 | 201 => {
            let review: Review = serde_json::from_slice(&answer.body)
                .map_err(|_| not_api_server(server, "its answer to an access review cannot be read"))?;
            if review.status.allowed {
                return Ok(());
            }
            let reason = match review.status.reason {
                reason if reason.is_empty() => "no role allows it".to_owned(),
                reason => reason,
            };
            Err(JoinProblem::MayNotJoin { reason })
        }
        401 => Err(JoinProblem::TokenRefused { server: server.to_owned() }),
        403 => Err(JoinProblem::MayNotJoin { reason: message(answer) }),
        status => Err(not_api_server(server, &format!("it answers {status} to an access review"))),
    }
}

/// Our clock against the `Date` header; `None` when it is close enough or cannot be read.
fn clock_skew(date: &str, now: Timestamp) -> Option<SignedDuration> {
    let theirs = jiff::fmt::rfc2822::parse(date).ok()?.timestamp();
    let skew = now.duration_since(theirs);
    (skew.as_secs().abs() >= SKEW_NOTED).then_some(SignedDuration::from_secs(skew.as_secs()))
}

#[cfg(test)]
#[path = "preflight_tests.rs"]
mod tests;

//! What keeps a host from joining, in words: what is wrong, and what to do.

use crate::names::NameError;
use crate::tls::{TlsProblem, TlsSetupError};
use std::net::SocketAddr;
use std::time::Duration;

/// Seconds of clock difference that are waited for and not only reported.
pub const SMALL_SKEW: i64 = 300;

/// Why the API server cannot be used for joining. `Display` says what is wrong, [`JoinProblem::hint`] what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinProblem {
    /// The URL cannot be used.
    #[error("the API server's address {url:?} cannot be used: {reason}")]
    BadUrl {
        /// As given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The CA or client certificate cannot be used.
    #[error(transparent)]
    Setup(TlsSetupError),
    /// The name has no address.
    #[error("the API server cannot be found: {0}")]
    Name(NameError),
    /// No address takes a connection.
    #[error("no connection to the API server: {}", list(tried))]
    Unreachable {
        /// Each address with what happened.
        tried: Vec<(SocketAddr, String)>,
    },
    /// The handshake failed.
    #[error("the API server at {server} cannot be trusted: {problem}")]
    Tls {
        /// Host and port.
        server: String,
        /// Why.
        problem: TlsProblem,
    },
    /// The cluster's CA itself is outside of its time: kubelet refuses it.
    #[error("the cluster's CA cannot be used: {}", ca_words(problem))]
    CaTime {
        /// Expired or not valid yet.
        problem: TlsProblem,
    },
    /// 401.
    #[error("the API server at {server} refuses the bootstrap token")]
    TokenRefused {
        /// Host and port.
        server: String,
    },
    /// 401 for a client certificate.
    #[error("the API server at {server} refuses the client certificate")]
    CertificateRefused {
        /// Host and port.
        server: String,
    },
    /// The token is good, and may not create certificate signing requests.
    #[error("the bootstrap token may not create certificate signing requests: {reason}")]
    MayNotJoin {
        /// What the server says.
        reason: String,
    },
    /// 429 or 5xx: says nothing about the token.
    #[error("the API server at {server} is not well: it answers {status}{}", after_colon(message))]
    NotWell {
        /// Host and port.
        server: String,
        /// HTTP status.
        status: u16,
        /// Its message.
        message: String,
    },
    /// Something that is not a Kubernetes API server answers.
    #[error("what answers at {server} is not a Kubernetes API server: {reason}")]
    NotApiServer {
        /// Host and port.
        server: String,
        /// What it answered.
        reason: String,
    },
    /// The connection ended in the middle.
    #[error("the connection to the API server at {server} broke: {reason}")]
    Broken {
        /// Host and port.
        server: String,
        /// What happened.
        reason: String,
    },
    /// The time was over.
    #[error("the API server at {server} did not answer within {} s while {stage}", after.as_secs_f32())]
    TooSlow {
        /// Host and port.
        server: String,
        /// What was waited for: `its name was looked up`, `connecting`, ...
        stage: &'static str,
        /// The limit.
        after: Duration,
    },
}

impl JoinProblem {
    /// What a person can do about it.
    pub fn hint(&self) -> String {
        match self {
            JoinProblem::BadUrl { .. } => {
                "give node.kubelet.clusterFQDN as a host name, host:port or https://host:port".into()
            }
            JoinProblem::Setup(TlsSetupError::Ca(_)) => {
                "node.kubelet.caCertData is the base64 of the cluster's CA in PEM: `kubectl config view --raw --minify \
                 -o jsonpath='{.clusters[0].cluster.certificate-authority-data}'` prints it"
                    .into()
            }
            JoinProblem::Setup(TlsSetupError::Identity(_)) | JoinProblem::CertificateRefused { .. } => {
                "kubelet's client certificate in /var/lib/kubelet/pki is of no use here: was this host in another \
                 cluster? `aks-flex-node reset`, then start with a new bootstrap token"
                    .into()
            }
            JoinProblem::Name(_) => {
                "check node.kubelet.clusterFQDN, /etc/resolv.conf and the DNS server, or add a line to /etc/hosts".into()
            }
            JoinProblem::Unreachable { .. } | JoinProblem::Broken { .. } => {
                "check that the control plane runs, the port, and the firewalls between this host and it".into()
            }
            JoinProblem::TooSlow { stage, .. } => format!(
                "check firewalls and routes between this host and the control plane, and its load (it stopped while \
                 {stage})"
            ),
            JoinProblem::Tls { problem, .. } => tls_hint(problem),
            JoinProblem::CaTime { problem: TlsProblem::NotYetValid { .. } } => clock_hint(),
            JoinProblem::CaTime { .. } => {
                "the cluster's CA has to be renewed; when this host's clock is wrong, set it (`timedatectl`)".into()
            }
            JoinProblem::TokenRefused { .. } => {
                "bootstrap tokens live a day by default: make a new one with `kubeadm token create` (or a Secret of type \
                 bootstrap.kubernetes.io/token in kube-system) and put it into azure.bootstrapToken.token"
                    .into()
            }
            JoinProblem::MayNotJoin { .. } => "bind the ClusterRole for joining: `kubectl create clusterrolebinding \
                 aks-flex-node-bootstrapper --clusterrole=system:node-bootstrapper --group=system:bootstrappers`, and \
                 check the token's auth-extra-groups"
                .into(),
            JoinProblem::NotWell { status: 429, .. } => "the API server is overloaded; try again later".into(),
            JoinProblem::NotWell { .. } => "look at the control plane's health; the token was not judged".into(),
            JoinProblem::NotApiServer { .. } => {
                "check the address and port in node.kubelet.clusterFQDN; a proxy or another service may answer there".into()
            }
        }
    }

    /// Whether waiting may help by itself: load, a restart, or a small difference of clocks.
    pub fn is_temporary(&self) -> bool {
        match self {
            JoinProblem::NotWell { .. }
            | JoinProblem::Unreachable { .. }
            | JoinProblem::Broken { .. }
            | JoinProblem::TooSlow { .. }
            | JoinProblem::Name(NameError::NoAnswer { .. }) => true,
            JoinProblem::Tls { problem, .. } | JoinProblem::CaTime { problem } => {
                matches!(problem, TlsProblem::NotYetValid { seconds, .. } if *seconds <= SMALL_SKEW)
            }
            _ => false,
        }
    }
}

fn tls_hint(problem: &TlsProblem) -> String {
    match problem {
        TlsProblem::UnknownCa => {
            "take node.kubelet.caCertData from the same cluster as node.kubelet.clusterFQDN".into()
        }
        TlsProblem::Expired { .. } => "the certificate of the API server has to be renewed (`kubeadm certs renew \
                                       apiserver`); when this host's clock is wrong, set it (`timedatectl`)"
            .into(),
        TlsProblem::NotYetValid { .. } => clock_hint(),
        TlsProblem::NameMismatch { presented, .. } => format!(
            "use one of the names of the certificate in node.kubelet.clusterFQDN ({}), or add the name to the API server's \
             certificate",
            presented.join(", ")
        ),
        TlsProblem::NotTls => "check the port: the API server listens with TLS, mostly on 6443 or 443".into(),
        TlsProblem::Refused(_) | TlsProblem::Other(_) => {
            "check what listens there, and a proxy that breaks TLS open on the way".into()
        }
    }
}

fn clock_hint() -> String {
    "compare this host's clock with the control plane's (`timedatectl`) and start a time service on both; a small \
     difference passes by itself"
        .into()
}

fn ca_words(problem: &TlsProblem) -> String {
    problem.to_string().replacen("its certificate", "it", 1)
}

fn list(tried: &[(SocketAddr, String)]) -> String {
    let words: Vec<String> = tried.iter().map(|(address, why)| format!("{address}: {why}")).collect();
    words.join("; ")
}

fn after_colon(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

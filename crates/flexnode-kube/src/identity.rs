//! What a host already has of a cluster: kubelet's kubeconfig and client certificate, and whether they fit the goal.

use crate::address::ServerAddress;
use jiff::Timestamp;
use kube::config::Kubeconfig;
use std::path::PathBuf;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Whether a certificate can be used now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateState {
    /// Within its time.
    Valid {
        /// End of its validity.
        until: Timestamp,
    },
    /// Its time is over: kubelet needs a bootstrap token again.
    Expired {
        /// End of its validity.
        ended: Timestamp,
    },
    /// Its time has not begun by this clock.
    NotYet {
        /// Begin of its validity.
        begins: Timestamp,
    },
    /// There is no certificate in it, or one that is damaged.
    Unreadable {
        /// Why.
        reason: String,
    },
}

/// The state of the first certificate of a PEM text, such as /var/lib/kubelet/pki/kubelet-client-current.pem.
pub fn client_certificate_state(pem: &[u8], now: Timestamp) -> CertificateState {
    for block in x509_parser::pem::Pem::iter_from_buffer(pem) {
        match block {
            Ok(block) if block.label == "CERTIFICATE" => return certificate_state(&block.contents, now),
            Ok(_) => {}
            Err(e) => return CertificateState::Unreadable { reason: e.to_string() },
        }
    }
    CertificateState::Unreadable { reason: "it holds no certificate".into() }
}

/// The state of one certificate in DER.
pub(crate) fn certificate_state(der: &[u8], now: Timestamp) -> CertificateState {
    let validity = match X509Certificate::from_der(der) {
        Ok((_, certificate)) => certificate.validity().clone(),
        Err(e) => return CertificateState::Unreadable { reason: e.to_string() },
    };
    // A time beyond what a Timestamp holds (year 9999) counts as that end.
    let begins = Timestamp::from_second(validity.not_before.timestamp()).unwrap_or(Timestamp::MIN);
    let ends = Timestamp::from_second(validity.not_after.timestamp()).unwrap_or(Timestamp::MAX);
    if now < begins {
        CertificateState::NotYet { begins }
    } else if now > ends {
        CertificateState::Expired { ended: ends }
    } else {
        CertificateState::Valid { until: ends }
    }
}

/// How a kubeconfig proves who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityRef {
    /// Certificate and key in files (kubelet's own form); they are to be looked for.
    Files {
        /// `client-certificate`.
        certificate: PathBuf,
        /// `client-key`.
        key: PathBuf,
    },
    /// Certificate and key within.
    Inline,
    /// A token, within or in a file.
    Token,
    /// A program that prints credentials.
    Exec,
    /// Nothing of it.
    Nothing,
}

/// What a kubeconfig's current context says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeconfigFacts {
    /// `https://host:port`, normalised.
    pub server: String,
    /// The cluster's CA in PEM, when it is within.
    pub ca_pem: Option<String>,
    /// The file with the CA, when it is not.
    pub ca_file: Option<PathBuf>,
    /// How it authenticates.
    pub identity: IdentityRef,
}

/// A kubeconfig that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kubeconfig cannot be used: {0}")]
pub struct KubeconfigError(pub String);

/// The parts of a kubeconfig's current context.
pub(crate) struct Parts {
    pub server: String,
    pub cluster: kube::config::Cluster,
    pub user: kube::config::AuthInfo,
}

pub(crate) fn parts(kubeconfig: &[u8]) -> Result<Parts, KubeconfigError> {
    // The parser's errors can quote the input, which holds keys.
    let text = std::str::from_utf8(kubeconfig).map_err(|_| KubeconfigError("it is not text".into()))?;
    let config = Kubeconfig::from_yaml(text).map_err(|_| KubeconfigError("it is not a kubeconfig in YAML".into()))?;
    let wanted = config.current_context.clone().unwrap_or_default();
    let context = match config.contexts.iter().find(|c| c.name == wanted) {
        Some(named) => named.context.clone(),
        None if wanted.is_empty() && config.contexts.len() == 1 => config.contexts[0].context.clone(),
        None => return Err(KubeconfigError(format!("its current context {wanted:?} is not in it"))),
    };
    let context = context.ok_or_else(|| KubeconfigError("its current context is empty".into()))?;
    let cluster = config
        .clusters
        .into_iter()
        .find(|c| c.name == context.cluster)
        .and_then(|c| c.cluster)
        .ok_or_else(|| KubeconfigError(format!("its cluster {:?} is not in it", context.cluster)))?;
    let user_name = context.user.unwrap_or_default();
    let user =
        config.auth_infos.into_iter().find(|u| u.name == user_name).and_then(|u| u.auth_info).unwrap_or_default();
    let server = cluster.server.clone().ok_or_else(|| KubeconfigError("its cluster names no server".into()))?;
    Ok(Parts { server, cluster, user })
}

/// Reads what a kubeconfig says, without looking at the files that it names.
pub fn kubeconfig_facts(kubeconfig: &[u8]) -> Result<KubeconfigFacts, KubeconfigError> {
    let Parts { server, cluster, user } = parts(kubeconfig)?;
    let server = ServerAddress::parse(&server).map_or(server, |a| a.url());
    let ca_pem = match &cluster.certificate_authority_data {
        Some(data) => Some(decode_pem(data).ok_or_else(|| KubeconfigError("its CA is not base64 of PEM".into()))?),
        None => None,
    };
    let identity = match user {
        user if user.client_certificate_data.is_some() => IdentityRef::Inline,
        kube::config::AuthInfo { client_certificate: Some(certificate), client_key, .. } => IdentityRef::Files {
            key: client_key.map_or_else(|| certificate.clone().into(), Into::into),
            certificate: certificate.into(),
        },
        user if user.token.is_some() || user.token_file.is_some() => IdentityRef::Token,
        user if user.exec.is_some() => IdentityRef::Exec,
        _ => IdentityRef::Nothing,
    };
    Ok(KubeconfigFacts { server, ca_pem, ca_file: cluster.certificate_authority.map(Into::into), identity })
}

pub(crate) fn decode_pem(data: &str) -> Option<String> {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(data.trim()).ok()?;
    String::from_utf8(bytes).ok()
}

/// How the cluster of a kubeconfig compares with the goal's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SameCluster {
    /// Same server and a common CA.
    Yes,
    /// Another API server, with the same CA: mostly another name of the same cluster.
    OtherServer {
        /// The one of the kubeconfig.
        server: String,
    },
    /// Another CA: this host was in another cluster. Joining would look well and never show up.
    OtherCa {
        /// The server of the kubeconfig.
        server: String,
    },
    /// The kubeconfig cannot be read.
    Unreadable {
        /// Why.
        reason: String,
    },
}

/// Compares a kubeconfig that was found on the host with the goal. `ca_file` reads the CA where the kubeconfig names a
/// file: it gets the path and gives the bytes, when there are any.
pub fn same_cluster(
    kubeconfig: &[u8],
    api_server: &str,
    ca_pem: &str,
    ca_file: impl FnOnce(&std::path::Path) -> Option<Vec<u8>>,
) -> SameCluster {
    let facts = match kubeconfig_facts(kubeconfig) {
        Ok(facts) => facts,
        Err(e) => return SameCluster::Unreadable { reason: e.0 },
    };
    let theirs = match (&facts.ca_pem, &facts.ca_file) {
        (Some(pem), _) => pem.clone().into_bytes(),
        (None, Some(path)) => match ca_file(path) {
            Some(bytes) => bytes,
            None => return SameCluster::Unreadable { reason: format!("its CA file {} is not there", path.display()) },
        },
        (None, None) => return SameCluster::Unreadable { reason: "it names no CA".into() },
    };
    let ours = ServerAddress::parse(api_server).map_or_else(|_| api_server.to_owned(), |a| a.url());
    // CA bundles overlap while a CA is rotated; a common certificate is a common cluster.
    let ours_ca = blocks(ca_pem.as_bytes());
    if !blocks(&theirs).iter().any(|block| ours_ca.contains(block)) {
        return SameCluster::OtherCa { server: facts.server };
    }
    if facts.server != ours {
        return SameCluster::OtherServer { server: facts.server };
    }
    SameCluster::Yes
}

fn blocks(pem: &[u8]) -> Vec<Vec<u8>> {
    x509_parser::pem::Pem::iter_from_buffer(pem)
        .flatten()
        .filter(|block| block.label == "CERTIFICATE")
        .map(|block| block.contents)
        .collect()
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;

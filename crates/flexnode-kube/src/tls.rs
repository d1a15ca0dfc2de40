//! TLS towards the API server: one provider (aws-lc-rs), the cluster's own CA and nothing else, and a name for each way in
//! which a handshake fails.

use jiff::Timestamp;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use std::error::Error as StdError;
use std::sync::Arc;

/// Makes aws-lc-rs the process's provider for all users of rustls. Called once, first thing in `main`; calling it again
/// changes nothing.
pub fn install_crypto_provider() {
    // The only error is that there is one already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// What was given for TLS cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsSetupError {
    /// The CA text holds no certificate.
    #[error("the cluster's CA holds no certificate that can be read: {0}")]
    Ca(String),
    /// The client certificate or its key.
    #[error("the client certificate cannot be used: {0}")]
    Identity(String),
}

/// A client certificate with its key.
#[derive(Debug)]
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

impl Identity {
    /// From PEM texts; kubelet keeps both in one file, which may be given twice.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, TlsSetupError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .map_err(|e| TlsSetupError::Identity(e.to_string()))?;
        if chain.is_empty() {
            return Err(TlsSetupError::Identity("it holds no certificate".into()));
        }
        // The error of the parser could quote the input; the key must not be shown.
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| TlsSetupError::Identity("it holds no private key that can be read".into()))?;
        Ok(Self { chain, key })
    }
}

/// The certificates of a PEM text, at least one.
pub(crate) fn certificates(ca_pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsSetupError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(ca_pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|e| TlsSetupError::Ca(e.to_string()))?;
    if found.is_empty() {
        return Err(TlsSetupError::Ca("there is no CERTIFICATE block in it".into()));
    }
    Ok(found)
}

/// A client that trusts the given CA alone: no certificate store of the host plays a part.
pub fn client_config(ca_pem: &str, identity: Option<&Identity>) -> Result<ClientConfig, TlsSetupError> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(ca_pem)? {
        roots.add(certificate).map_err(|e| TlsSetupError::Ca(e.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| TlsSetupError::Ca(e.to_string()))?
        .with_root_certificates(roots);
    match identity {
        None => Ok(builder.with_no_client_auth()),
        Some(Identity { chain, key }) => builder
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(|e| TlsSetupError::Identity(e.to_string())),
    }
}

/// Why a TLS handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsProblem {
    /// Signed by a CA that is not the given one.
    #[error("its certificate is not signed by the cluster's CA that was given")]
    UnknownCa,
    /// Its time is over.
    #[error("its certificate ended at {ended}, and this host's clock says {now}")]
    Expired {
        /// End of its validity.
        ended: Timestamp,
        /// This host's clock.
        now: Timestamp,
    },
    /// Its time has not begun, by this host's clock.
    #[error(
        "its certificate is not valid yet: clock skew of {seconds} s (valid from {begins}, this host's clock says {now})"
    )]
    NotYetValid {
        /// Seconds until it is valid.
        seconds: i64,
        /// Begin of its validity.
        begins: Timestamp,
        /// This host's clock.
        now: Timestamp,
    },
    /// It is for other names.
    #[error("its certificate is not for {expected}, but for {}", presented.join(", "))]
    NameMismatch {
        /// The host of the URL.
        expected: String,
        /// What the certificate names.
        presented: Vec<String>,
    },
    /// What answered does not speak TLS.
    #[error("what answers there does not speak TLS")]
    NotTls,
    /// The server ended the handshake: it refuses our certificate, or nothing that both support.
    #[error("it ended the TLS handshake: {0}")]
    Refused(String),
    /// Anything else.
    #[error("the TLS handshake failed: {0}")]
    Other(String),
}

impl TlsProblem {
    /// Names what rustls says.
    pub fn from_rustls(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(e) => Self::from_certificate(e),
            rustls::Error::InvalidMessage(_) => TlsProblem::NotTls,
            rustls::Error::AlertReceived(alert) => TlsProblem::Refused(format!("{alert:?}")),
            e => TlsProblem::Other(e.to_string()),
        }
    }

    fn from_certificate(error: &rustls::CertificateError) -> Self {
        use rustls::CertificateError as E;
        match error {
            // The second: a CA of the same name with another key, as after `kubeadm init` was run again.
            E::UnknownIssuer | E::BadSignature => TlsProblem::UnknownCa,
            E::ExpiredContext { time, not_after } => {
                TlsProblem::Expired { ended: timestamp(*not_after), now: timestamp(*time) }
            }
            E::NotValidYetContext { time, not_before } => Self::not_yet(timestamp(*not_before), timestamp(*time)),
            E::NotValidForNameContext { expected, presented } => TlsProblem::NameMismatch {
                expected: expected.to_str().into_owned(),
                presented: presented.iter().map(|name| plain_name(name)).collect(),
            },
            e => TlsProblem::Other(e.to_string()),
        }
    }

    pub(crate) fn not_yet(begins: Timestamp, now: Timestamp) -> Self {
        TlsProblem::NotYetValid { seconds: begins.as_second() - now.as_second(), begins, now }
    }

    /// The TLS problem behind an error of the layers above, when there is one.
    pub fn find(error: &(dyn StdError + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(tls) = error.downcast_ref::<rustls::Error>() {
                return Some(Self::from_rustls(tls));
            }
            // io::Error hides the error that it was made of from `source`.
            next = match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
                Some(inner) => Some(inner),
                None => error.source(),
            };
        }
        None
    }
}

fn timestamp(time: UnixTime) -> Timestamp {
    i64::try_from(time.as_secs()).ok().and_then(|s| Timestamp::from_second(s).ok()).unwrap_or(Timestamp::MAX)
}

/// webpki shows names as `DnsName("x")` and `IpAddress(1.2.3.4)`; a person wants `x`.
fn plain_name(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"').to_owned()
}

//! Kubelet's credentials as they lie on the host. They are read again at each use: kubelet rotates its certificate, and a
//! long-running client must not keep the old one.

use crate::api::{ApiProblem, Credentials};
use crate::identity::{self, CertificateState, IdentityRef, client_certificate_state, decode_pem, kubeconfig_facts};
use crate::tls::Identity;
use flexnode_host::Fs;
use flexnode_model::Secret;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where kubelet keeps its kubeconfig.
pub const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
/// Kubeconfigs, certificates and keys have some kilobytes.
const MAX_FILE: u64 = 1024 * 1024;

/// Whether kubelet can prove who it is without a bootstrap token.
#[derive(Clone, Debug)]
pub enum KubeletIdentity {
    /// There is no kubeconfig: this host never joined.
    Absent,
    /// A client certificate that is good now.
    Valid {
        /// End of its validity.
        until: Timestamp,
        /// The certificate with its key.
        identity: Identity,
    },
    /// The certificate's time is over: a token is needed.
    Expired {
        /// End of its validity.
        ended: Timestamp,
    },
    /// The certificate's time has not begun by this clock.
    NotYet {
        /// Begin of its validity.
        begins: Timestamp,
    },
    /// The kubeconfig names a file that is not there (or a link that dangles): kubelet would refuse to start with it.
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Something cannot be read or used.
    Unusable {
        /// What, in words.
        reason: String,
    },
    /// The kubeconfig authenticates in another way (token, exec plugin).
    Other,
}

impl KubeletIdentity {
    /// Whether kubelet starts and is accepted without a bootstrap token.
    pub fn is_valid(&self) -> bool {
        matches!(self, KubeletIdentity::Valid { .. } | KubeletIdentity::Other)
    }
}

/// Looks at kubelet's kubeconfig and at the files that it names.
pub fn kubelet_identity(fs: &dyn Fs, kubeconfig: &Path, now: Timestamp) -> KubeletIdentity {
    let unusable = |reason: String| KubeletIdentity::Unusable { reason };
    let bytes = match read(fs, kubeconfig) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return KubeletIdentity::Absent,
        Err(reason) => return unusable(reason),
    };
    let facts = match kubeconfig_facts(&bytes) {
        Ok(facts) => facts,
        Err(e) => return unusable(format!("{}: {e}", kubeconfig.display())),
    };
    let (certificate, key) = match facts.identity {
        IdentityRef::Files { certificate, key } => (certificate, key),
        IdentityRef::Nothing => return unusable(format!("{} names no credentials", kubeconfig.display())),
        IdentityRef::Inline | IdentityRef::Token | IdentityRef::Exec => return KubeletIdentity::Other,
    };
    let (certificate_pem, key_pem) = match (read(fs, &certificate), read(fs, &key)) {
        (Ok(Some(certificate)), Ok(Some(key))) => (certificate, key),
        (Ok(None), _) => return KubeletIdentity::Missing { path: certificate },
        (_, Ok(None)) => return KubeletIdentity::Missing { path: key },
        (Err(reason), _) | (_, Err(reason)) => return unusable(reason),
    };
    match client_certificate_state(&certificate_pem, now) {
        CertificateState::Valid { until } => match Identity::from_pem(&certificate_pem, &key_pem) {
            Ok(identity) => KubeletIdentity::Valid { until, identity },
            Err(e) => unusable(format!("{}: {e}", certificate.display())),
        },
        CertificateState::Expired { ended } => KubeletIdentity::Expired { ended },
        CertificateState::NotYet { begins } => KubeletIdentity::NotYet { begins },
        CertificateState::Unreadable { reason } => unusable(format!("{}: {reason}", certificate.display())),
    }
}

fn read(fs: &dyn Fs, path: &Path) -> Result<Option<Vec<u8>>, String> {
    fs.read(path, MAX_FILE).map_err(|e| format!("{e}: {}", e.source))
}

/// A kubeconfig with all that it names, ready to be used.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub url: String,
    pub ca_pem: String,
    pub credentials: Credentials,
    /// All bytes that went in: when they are the same, the client is.
    pub fingerprint: Vec<u8>,
}

/// A kubeconfig on the host.
#[derive(Clone, Debug)]
pub(crate) struct KubeconfigFile {
    pub fs: Arc<dyn Fs>,
    pub path: PathBuf,
}

impl KubeconfigFile {
    pub fn load(&self) -> Result<Loaded, ApiProblem> {
        self.try_load().map_err(ApiProblem::Credentials)
    }

    fn needed(&self, path: &Path, fingerprint: &mut Vec<u8>) -> Result<Vec<u8>, String> {
        let bytes = read(self.fs.as_ref(), path)?.ok_or_else(|| format!("{} is not there", path.display()))?;
        fingerprint.extend_from_slice(&bytes.len().to_le_bytes());
        fingerprint.extend_from_slice(&bytes);
        Ok(bytes)
    }

    fn try_load(&self) -> Result<Loaded, String> {
        let mut fingerprint = Vec::new();
        let bytes = self.needed(&self.path, &mut fingerprint)?;
        let shown = self.path.display();
        let identity::Parts { server, cluster, user } =
            identity::parts(&bytes).map_err(|e| format!("{shown}: {}", e.0))?;
        let ca_pem = match (cluster.certificate_authority_data, cluster.certificate_authority) {
            (Some(data), _) => decode_pem(&data).ok_or_else(|| format!("{shown}: its CA is not base64 of PEM"))?,
            (None, Some(file)) => String::from_utf8(self.needed(Path::new(&file), &mut fingerprint)?)
                .map_err(|_| format!("{file} is not PEM"))?,
            (None, None) => return Err(format!("{shown} names no CA")),
        };
        let secret_text = |bytes: Vec<u8>| String::from_utf8(bytes).map(|t| Secret::new(t.trim()));
        let credentials = if let Some(data) = &user.client_certificate_data {
            let key = user.client_key_data.as_ref().and_then(|key| decode_pem(key.expose_secret()));
            let key = key.ok_or_else(|| format!("{shown} has no key in base64"))?;
            let certificate = decode_pem(data).ok_or_else(|| format!("{shown}: its certificate is not base64"))?;
            certificate_credentials(certificate.as_bytes(), key.as_bytes())?
        } else if let Some(file) = &user.client_certificate {
            let certificate = self.needed(Path::new(file), &mut fingerprint)?;
            let key = match &user.client_key {
                Some(key) if key != file => self.needed(Path::new(key), &mut fingerprint)?,
                _ => certificate.clone(),
            };
            certificate_credentials(&certificate, &key)?
        } else if let Some(token) = &user.token {
            Credentials::Token(Secret::new(token.expose_secret()))
        } else if let Some(file) = &user.token_file {
            let token = secret_text(self.needed(Path::new(file), &mut fingerprint)?);
            Credentials::Token(token.map_err(|_| format!("{file} is not text"))?)
        } else {
            return Err(format!("{shown} has neither certificate nor token"));
        };
        Ok(Loaded { url: server, ca_pem, credentials, fingerprint })
    }
}

fn certificate_credentials(certificate: &[u8], key: &[u8]) -> Result<Credentials, String> {
    Identity::from_pem(certificate, key).map(Credentials::Certificate).map_err(|e| e.to_string())
}

#[cfg(test)]
#[path = "kubelet_tests.rs"]
mod tests;

//! What kubelet of an earlier installation left: credentials of another cluster, with which a join "works" and the Node
//! never shows up.

use flexnode_host::{Fs, FsError};
use flexnode_kube::identity::{SameCluster, same_cluster};
use flexnode_stack::places;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use x509_parser::prelude::{FromDer, ParsedExtension, Pem, X509Certificate};

/// kubelet's client certificate and key: a link to the newest one.
const CLIENT_CERTIFICATE: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
/// Where kubeadm keeps the kubelet's kubeconfig.
const KUBEADM_KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";

const LIMIT: u64 = 1 << 20;

/// Something of another cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// A kubeconfig for another API server.
    Server {
        /// The file.
        path: PathBuf,
        /// The server in it.
        server: String,
        /// The goal's.
        wanted: String,
    },
    /// A kubeconfig whose CA shares no certificate with the goal's.
    Ca {
        /// The file.
        path: PathBuf,
        /// The server in it.
        server: String,
    },
    /// A client certificate that the goal's CA did not issue, which kubelet would use as long as it is valid.
    Certificate {
        /// The file.
        path: PathBuf,
        /// Its issuer.
        issuer: String,
    },
    /// A kubeadm node.
    Kubeadm {
        /// The file that tells.
        path: PathBuf,
    },
    /// A kubeconfig that cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it; no content.
        reason: String,
    },
}

impl Foreign {
    /// The file that was found.
    pub fn path(&self) -> &Path {
        match self {
            Self::Server { path, .. }
            | Self::Ca { path, .. }
            | Self::Certificate { path, .. }
            | Self::Kubeadm { path }
            | Self::Unreadable { path, .. } => path,
        }
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path().display();
        match self {
            Self::Server { server, wanted, .. } => {
                write!(
                    f,
                    "the host belongs to another cluster: {path} names the API server {server}, the configuration {wanted}"
                )
            }
            Self::Ca { server, .. } => write!(
                f,
                "the host belongs to another cluster: the CA of {server} in {path} is not the one of the configuration"
            ),
            Self::Certificate { issuer, .. } => {
                write!(
                    f,
                    "a client certificate of another cluster lies in {path}: its issuer is {issuer}, and kubelet would use it"
                )
            }
            Self::Kubeadm { .. } => write!(f, "the host was joined to a cluster by kubeadm: {path} exists"),
            Self::Unreadable { reason, .. } => write!(f, "kubelet's {path} cannot be read: {reason}"),
        }
    }
}

/// Looks for credentials of another cluster. `ca_pem` is the goal's CA.
pub fn look(fs: &dyn Fs, api_server: &str, ca_pem: &str) -> Result<Option<Foreign>, FsError> {
    let kubeadm = Path::new(KUBEADM_KUBECONFIG);
    if fs.stat(kubeadm)?.is_some() {
        return Ok(Some(Foreign::Kubeadm { path: kubeadm.into() }));
    }
    let path = Path::new(places::KUBECONFIG);
    if let Some(bytes) = fs.read(path, LIMIT)? {
        return Ok(kubeconfig(fs, path, &bytes, api_server, ca_pem));
    }
    let path = Path::new(CLIENT_CERTIFICATE);
    match fs.read(path, LIMIT)? {
        Some(pem) => Ok(issuer_outside(&pem, ca_pem).map(|issuer| Foreign::Certificate { path: path.into(), issuer })),
        None => Ok(None),
    }
}

fn kubeconfig(fs: &dyn Fs, path: &Path, bytes: &[u8], api_server: &str, ca_pem: &str) -> Option<Foreign> {
    // A CA file that is gone says nothing; start writes it anew.
    let ca_file = |file: &Path| fs.read(file, LIMIT).ok().flatten().or_else(|| Some(ca_pem.as_bytes().to_vec()));
    match same_cluster(bytes, api_server, ca_pem, ca_file) {
        SameCluster::Yes => None,
        SameCluster::OtherServer { server } => {
            Some(Foreign::Server { path: path.into(), server, wanted: api_server.into() })
        }
        SameCluster::OtherCa { server } => Some(Foreign::Ca { path: path.into(), server }),
        SameCluster::Unreadable { reason } => Some(Foreign::Unreadable { path: path.into(), reason }),
    }
}

/// The certificates of a PEM text, by their bytes.
fn certificates(pem: &[u8]) -> BTreeSet<Vec<u8>> {
    Pem::iter_from_buffer(pem).filter_map(Result::ok).filter(|p| p.label == "CERTIFICATE").map(|p| p.contents).collect()
}

/// The issuer of the first certificate, when none of the CA's certificates has its name and key. The signature is not
/// checked: the API server does this; here a left-over has to be told from our own.
fn issuer_outside(pem: &[u8], ca_pem: &str) -> Option<String> {
    let first = Pem::iter_from_buffer(pem).filter_map(Result::ok).find(|p| p.label == "CERTIFICATE")?;
    let (_, certificate) = X509Certificate::from_der(&first.contents).ok()?;
    let wanted_key = certificate.extensions().iter().find_map(|e| match e.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|k| k.0.to_vec()),
        _ => None,
    });
    let issued_by_goal = certificates(ca_pem.as_bytes()).iter().any(|der| {
        let Ok((_, ca)) = X509Certificate::from_der(der) else { return false };
        let key = ca.extensions().iter().find_map(|e| match e.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        let same_key = match (&wanted_key, &key) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        same_key && ca.subject().as_raw() == certificate.issuer().as_raw()
    });
    (!issued_by_goal).then(|| certificate.issuer().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_host::testing::MemFs;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    const SERVER: &str = "https://10.0.0.1:6443";

    /// All clusters that kubeadm makes name their CA "kubernetes".
    fn ca() -> (String, Issuer<'static, KeyPair>) {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "kubernetes");
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        (pem, Issuer::new(params, key))
    }

    fn client(issuer: &Issuer<'static, KeyPair>) -> String {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.use_authority_key_identifier_extension = true;
        params.distinguished_name.push(DnType::CommonName, "system:node:n1");
        let key = KeyPair::generate().unwrap();
        format!("{}{}", params.signed_by(&key, issuer).unwrap().pem(), key.serialize_pem())
    }

    fn kubeconfig_text(server: &str, ca: &str) -> String {
        format!(
            "clusters:\n- name: c\n  cluster: {{server: '{server}', certificate-authority: {ca}}}\n\
             users:\n- name: u\n  user: {{}}\ncontexts:\n- name: x\n  context: {{cluster: c, user: u}}\ncurrent-context: x\n"
        )
    }

    #[test]
    fn a_fresh_host_and_our_own_node_are_not_foreign() {
        let fs = MemFs::new();
        let (pem, issuer) = ca();
        assert_eq!(look(&fs, SERVER, &pem).unwrap(), None);
        fs.put(CLIENT_CERTIFICATE, client(&issuer), 0o600);
        assert_eq!(look(&fs, SERVER, &pem).unwrap(), None);
        fs.put(places::KUBECONFIG, kubeconfig_text(SERVER, "/etc/kubernetes/pki/ca.crt"), 0o600);
        assert_eq!(look(&fs, SERVER, &pem).unwrap(), None, "a CA file that is gone says nothing");
        fs.put("/etc/kubernetes/pki/ca.crt", &pem, 0o644);
        assert_eq!(look(&fs, SERVER, &pem).unwrap(), None);
    }

    #[test]
    fn a_client_certificate_of_another_ca_of_the_same_name_is_foreign() {
        let fs = MemFs::new();
        let ((ours, _), (_, theirs)) = (ca(), ca());
        fs.put(CLIENT_CERTIFICATE, client(&theirs), 0o600);
        let found = look(&fs, SERVER, &ours).unwrap();
        assert!(
            matches!(&found, Some(Foreign::Certificate { issuer, .. }) if issuer.contains("kubernetes")),
            "{found:?}"
        );
    }

    #[test]
    fn a_kubeconfig_of_another_cluster_is_foreign() {
        let fs = MemFs::new();
        let ((ours, _), (theirs, _)) = (ca(), ca());
        fs.put("/ca.crt", &theirs, 0o644);
        fs.put(places::KUBECONFIG, kubeconfig_text(SERVER, "/ca.crt"), 0o600);
        assert!(matches!(look(&fs, SERVER, &ours).unwrap(), Some(Foreign::Ca { .. })));
        fs.put("/ca.crt", &ours, 0o644);
        fs.put(places::KUBECONFIG, kubeconfig_text("https://10.9.9.9:6443", "/ca.crt"), 0o600);
        let found = look(&fs, SERVER, &ours).unwrap().unwrap();
        assert!(found.to_string().contains("https://10.9.9.9:6443"), "{found}");
        fs.put(places::KUBECONFIG, "secret-token", 0o600);
        let found = look(&fs, SERVER, &ours).unwrap().unwrap();
        assert!(matches!(found, Foreign::Unreadable { .. }) && !found.to_string().contains("secret-token"), "{found}");
    }

    #[test]
    fn a_kubeadm_node_is_named() {
        let fs = MemFs::new();
        fs.put(KUBEADM_KUBECONFIG, "", 0o600);
        assert!(matches!(look(&fs, SERVER, &ca().0).unwrap(), Some(Foreign::Kubeadm { .. })));
    }
}

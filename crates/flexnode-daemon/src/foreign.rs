//! What kubelet of an earlier installation left: credentials of another cluster, with which a join "works" and the Node
//! never shows up.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flexnode_host::{Fs, FsError};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use x509_parser::prelude::{FromDer, ParsedExtension, Pem, X509Certificate};

/// The kubeconfig that kubelet works with; TLS bootstrap writes it.
pub const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
/// kubelet's client certificate and key: a link to the newest one.
pub const CLIENT_CERTIFICATE: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
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
            | Self::Ca { path }
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
            Self::Ca { .. } => {
                write!(f, "the host belongs to another cluster: the CA in {path} is not the one of the configuration")
            }
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
    let path = Path::new(KUBECONFIG);
    if let Some(bytes) = fs.read(path, LIMIT)? {
        return kubeconfig(fs, path, &bytes, api_server, ca_pem);
    }
    let path = Path::new(CLIENT_CERTIFICATE);
    match fs.read(path, LIMIT)? {
        Some(pem) => Ok(issuer_outside(&pem, ca_pem).map(|issuer| Foreign::Certificate { path: path.into(), issuer })),
        None => Ok(None),
    }
}

#[derive(Deserialize)]
struct Kubeconfig {
    #[serde(default)]
    clusters: Vec<NamedCluster>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    #[serde(default)]
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
}

fn kubeconfig(
    fs: &dyn Fs,
    path: &Path,
    bytes: &[u8],
    api_server: &str,
    ca_pem: &str,
) -> Result<Option<Foreign>, FsError> {
    let unreadable = |reason: &str| Some(Foreign::Unreadable { path: path.into(), reason: reason.into() });
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(unreadable("it is not UTF-8 text")) };
    let Ok(parsed) = serde_saphyr::from_str::<Kubeconfig>(text) else { return Ok(unreadable("it is no kubeconfig")) };
    let Some(NamedCluster { cluster }) = parsed.clusters.into_iter().next() else {
        return Ok(unreadable("it names no cluster"));
    };
    if normal_server(&cluster.server) != normal_server(api_server) {
        return Ok(Some(Foreign::Server { path: path.into(), server: cluster.server, wanted: api_server.into() }));
    }
    let ca = match (cluster.certificate_authority_data, cluster.certificate_authority) {
        (Some(data), _) => STANDARD.decode(data.trim()).ok(),
        // Our own kubeconfigs name the CA by its file, which start writes anew.
        (None, Some(file)) if file.is_absolute() => fs.read(&file, LIMIT)?,
        _ => None,
    };
    let Some(ca) = ca else { return Ok(None) };
    let (there, wanted) = (certificates(&ca), certificates(ca_pem.as_bytes()));
    let foreign = !there.is_empty() && there.is_disjoint(&wanted);
    Ok(foreign.then(|| Foreign::Ca { path: path.into() }))
}

/// The server in the form in which two spellings of it are equal: no slash at the end, port written out, lower case.
fn normal_server(server: &str) -> String {
    let server = server.trim().trim_end_matches('/').to_ascii_lowercase();
    let host = server.strip_prefix("https://").unwrap_or(&server);
    let has_port =
        host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()) && !port.is_empty());
    if has_port && !host.ends_with(']') { format!("https://{host}") } else { format!("https://{host}:443") }
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

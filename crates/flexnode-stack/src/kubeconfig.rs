//! Kubeconfigs: the one that kubelet asks for its certificate with, and what others name.

use flexnode_model::Secret;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A kubeconfig that cannot be read. Its text is never shown: it may hold a token.
#[derive(Debug, thiserror::Error)]
#[error("{} is no kubeconfig; remove it, kubelet makes it anew from a bootstrap token", path.display())]
pub struct KubeconfigError {
    /// The file.
    pub path: PathBuf,
}

/// The bootstrap kubeconfig. Holds the token: mode 0600. The CA is in it, so that kubelet's own kubeconfig, which is made
/// from it, needs no other file for it.
pub fn bootstrap(api_server: &str, ca_pem: &str, token: &Secret) -> Vec<u8> {
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(ca_pem);
    let [server, token] = [api_server, token.expose()].map(|text| serde_json::Value::from(text).to_string());
    // JSON texts are YAML texts.
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: kubelet
  user:
    token: {token}
contexts:
- name: default
  context:
    cluster: cluster
    user: kubelet
current-context: default
"
    )
    .into_bytes()
}

/// What a kubeconfig says of interest here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// API servers of all clusters in it.
    pub servers: Vec<String>,
    /// Files that it names: certificates, keys, CAs, token files. Relative ones are joined to its directory.
    pub files: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedCluster {
    #[serde(default)]
    cluster: Cluster,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: Option<String>,
    certificate_authority: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    #[serde(default)]
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: Option<String>,
    client_key: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
}

/// Reads the kubeconfig that lies at `path`.
pub fn contents(path: &Path, bytes: &[u8]) -> Result<Contents, KubeconfigError> {
    let unreadable = || KubeconfigError { path: path.to_path_buf() };
    let text = std::str::from_utf8(bytes).map_err(|_| unreadable())?;
    // The reader's own error quotes the text.
    let document: Document = serde_saphyr::from_str(text).map_err(|_| unreadable())?;
    if document.clusters.is_empty() || document.users.is_empty() {
        return Err(unreadable());
    }
    let dir = path.parent().unwrap_or(Path::new("/"));
    let mut contents = Contents::default();
    let mut file = |name: Option<String>| contents.files.extend(name.filter(|n| !n.is_empty()).map(|n| dir.join(n)));
    for NamedCluster { cluster } in document.clusters {
        file(cluster.certificate_authority);
        contents.servers.extend(cluster.server);
    }
    for NamedUser { user } in document.users {
        [user.client_certificate, user.client_key, user.token_file].into_iter().for_each(&mut file);
    }
    contents.files.sort();
    contents.files.dedup();
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bootstrap_kubeconfig_reads_back() {
        let bytes = bootstrap("https://[fd00::1]:6443", "PEM\n", &Secret::new("abcdef.0123456789abcdef"));
        let found = contents(Path::new("/var/lib/kubelet/bootstrap-kubeconfig"), &bytes).unwrap();
        assert_eq!(found, Contents { servers: vec!["https://[fd00::1]:6443".into()], files: vec![] });
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains("certificate-authority-data: UEVNCg==\n"), "{text}");
        assert!(text.contains("token: \"abcdef.0123456789abcdef\"\n"), "{text}");
    }

    #[test]
    fn a_value_cannot_break_out_of_its_place() {
        let token = Secret::new("a\"\nusers: []\n#");
        let bytes = bootstrap("https://h:1", "PEM", &token);
        let document: serde_json::Value = serde_saphyr::from_str(std::str::from_utf8(&bytes).unwrap()).unwrap();
        assert_eq!(document["users"][0]["user"]["token"], token.expose());
    }

    #[test]
    fn files_that_it_names_are_found() {
        let text = "apiVersion: v1\nkind: Config\nclusters:\n- name: default-cluster\n  cluster: {server: 'https://a:1', certificate-authority: ca.crt}\n\
            users:\n- name: default-auth\n  user:\n    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem\n    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem\n    tokenFile: ''\n";
        let found = contents(Path::new("/var/lib/kubelet/kubeconfig"), text.as_bytes()).unwrap();
        let wanted = ["/var/lib/kubelet/ca.crt", "/var/lib/kubelet/pki/kubelet-client-current.pem"];
        assert_eq!(found.files, wanted.map(PathBuf::from));
        assert_eq!(found.servers, ["https://a:1"]);
    }

    #[test]
    fn what_is_no_kubeconfig_is_refused_without_showing_it() {
        for text in ["", "token: sesame", "[sesame", "clusters: sesame", "clusters: []\nusers: []", "\u{0}sesame"] {
            let error = contents(Path::new("/k"), text.as_bytes()).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("sesame"), "{shown}");
        }
        assert!(contents(Path::new("/k"), &[0xff]).is_err());
    }
}

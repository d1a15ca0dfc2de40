//! The certificates that a node lives by, with their ends.

use crate::identity::{IdentityRef, kubeconfig_facts};
use crate::kubelet::KUBECONFIG;
use flexnode_host::Fs;
use flexnode_model::snapshot::{Certificate, Reading, Validity};
use flexnode_status::certificates::Certificates;
use jiff::Timestamp;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// What kubelet serves with, where it made the certificate itself or got it from the cluster.
const SERVING: [&str; 2] = ["/var/lib/kubelet/pki/kubelet-server-current.pem", "/var/lib/kubelet/pki/kubelet.crt"];
const MAX_FILE: u64 = 1 << 20;

/// Those that kubelet's kubeconfig names, and the one that it serves with.
#[derive(Clone, Debug)]
pub struct KubeletCertificates {
    fs: Arc<dyn Fs>,
    kubeconfig: PathBuf,
}

impl KubeletCertificates {
    /// At the usual places of this file system.
    pub fn new(fs: Arc<dyn Fs>) -> Self {
        Self { fs, kubeconfig: KUBECONFIG.into() }
    }

    fn read(&self, name: &str, path: &Path) -> Certificate {
        let validity = match self.fs.read(path, MAX_FILE) {
            Ok(Some(bytes)) => validity(&bytes).map_err(|reason| format!("{}: {reason}", path.display())),
            Ok(None) => Err(format!("{} is not there", path.display())),
            Err(e) => Err(format!("{e}: {}", e.source)),
        };
        Certificate { name: name.into(), path: path.display().to_string(), validity: validity.into() }
    }
}

impl Certificates for KubeletCertificates {
    fn view(&self) -> Result<Vec<Certificate>, String> {
        let shown = self.kubeconfig.display();
        let bytes = match self.fs.read(&self.kubeconfig, MAX_FILE) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Vec::new()),
            Err(e) => return Err(format!("{e}: {}", e.source)),
        };
        let facts = kubeconfig_facts(&bytes).map_err(|e| format!("{shown}: {e}"))?;
        let mut found = Vec::new();
        if let IdentityRef::Files { certificate, .. } = &facts.identity {
            found.push(self.read("kubeletClient", certificate));
        }
        let is_there = |path: &&str| matches!(self.fs.lstat(Path::new(path)), Ok(Some(_)));
        if let Some(path) = SERVING.iter().find(|path| is_there(path)) {
            found.push(self.read("kubeletServing", Path::new(path)));
        }
        match (&facts.ca_pem, &facts.ca_file) {
            (Some(pem), _) => found.push(Certificate {
                name: "clusterCa".into(),
                path: shown.to_string(),
                validity: Reading::from(validity(pem.as_bytes())),
            }),
            (None, Some(file)) => found.push(self.read("clusterCa", file)),
            (None, None) => {}
        }
        Ok(found)
    }
}

/// The time of the first certificate in a PEM text.
fn validity(pem: &[u8]) -> Result<Validity, String> {
    for block in x509_parser::pem::Pem::iter_from_buffer(pem) {
        let block = block.map_err(|e| e.to_string())?;
        if block.label == "CERTIFICATE" {
            let (_, certificate) = X509Certificate::from_der(&block.contents).map_err(|e| e.to_string())?;
            let time = certificate.validity();
            // A time beyond what a Timestamp holds (year 9999) counts as that end.
            return Ok(Validity {
                not_before: Timestamp::from_second(time.not_before.timestamp()).unwrap_or(Timestamp::MIN),
                not_after: Timestamp::from_second(time.not_after.timestamp()).unwrap_or(Timestamp::MAX),
            });
        }
    }
    Err("it holds no certificate".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Ca;
    use base64::Engine as _;
    use flexnode_host::testing::MemFs;

    fn kubeconfig(ca: &Ca, certificate: &str) -> String {
        let data = base64::engine::general_purpose::STANDARD.encode(&ca.pem);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: k\n  cluster: {{server: \
             'https://a:6443', certificate-authority-data: {data}}}\nusers:\n- name: u\n  user: {{client-certificate: \
             {certificate}, client-key: {certificate}}}\ncontexts:\n- name: c\n  context: {{cluster: k, user: u}}\n"
        )
    }

    fn view(fs: &Arc<MemFs>) -> Vec<(String, bool)> {
        let found = KubeletCertificates::new(fs.clone()).view().unwrap();
        found.into_iter().map(|c| (c.name, c.validity.known().is_some())).collect()
    }

    #[test]
    fn each_certificate_with_its_end_and_a_missing_one_with_its_reason() {
        let fs = Arc::new(MemFs::new());
        fs.put_dir("/var/lib/kubelet/pki", 0o755);
        assert_eq!(view(&fs), [], "this host never joined");
        let ca = Ca::within(-1, 30);
        let client = "/var/lib/kubelet/pki/kubelet-client-current.pem";
        fs.put(KUBECONFIG, kubeconfig(&ca, client), 0o600);
        // C104: the kubeconfig stayed and the certificate is gone.
        assert_eq!(view(&fs), [("kubeletClient".to_owned(), false), ("clusterCa".to_owned(), true)]);
        let found = KubeletCertificates::new(fs.clone()).view().unwrap();
        assert!(matches!(&found[0].validity, Reading::Unknown(reason) if reason.contains("is not there")));
        fs.put(client, ca.issue(&[], -2, 5).certificate, 0o600);
        fs.put(SERVING[1], ca.server().certificate, 0o644);
        let found = KubeletCertificates::new(fs.clone()).view().unwrap();
        let validity = found[0].validity.known().unwrap();
        let left = validity.not_after.duration_since(Timestamp::now()).as_hours();
        assert!((118..=120).contains(&left), "{left}");
        assert!(validity.not_before < Timestamp::now());
        assert_eq!(
            found.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(),
            ["kubeletClient", "kubeletServing", "clusterCa"]
        );
        fs.put(client, "damaged", 0o600);
        assert!(!view(&fs)[0].1);
        fs.put(KUBECONFIG, "{", 0o600);
        assert!(KubeletCertificates::new(fs).view().is_err());
    }
}

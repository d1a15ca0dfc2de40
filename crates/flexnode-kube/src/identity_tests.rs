use super::*;
use crate::testing::Ca;
use base64::Engine as _;

fn kubeconfig(server: &str, ca: &str) -> String {
    let ca = base64::engine::general_purpose::STANDARD.encode(ca);
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: default-cluster\n  cluster:\n    server: {server}\n    \
         certificate-authority-data: {ca}\nusers:\n- name: default-auth\n  user:\n    client-certificate: \
         /var/lib/kubelet/pki/kubelet-client-current.pem\n    client-key: \
         /var/lib/kubelet/pki/kubelet-client-current.pem\ncontexts:\n- name: default-context\n  context:\n    cluster: \
         default-cluster\n    user: default-auth\ncurrent-context: default-context\n"
    )
}

fn no_file(_: &std::path::Path) -> Option<Vec<u8>> {
    None
}

#[test]
fn kubelets_kubeconfig_is_read() {
    let ca = Ca::new();
    let facts = kubeconfig_facts(kubeconfig("https://API.lab.test", &ca.pem).as_bytes()).unwrap();
    assert_eq!(facts.server, "https://api.lab.test:443");
    assert_eq!(facts.ca_pem.as_deref(), Some(ca.pem.as_str()));
    let pem: PathBuf = "/var/lib/kubelet/pki/kubelet-client-current.pem".into();
    assert_eq!(facts.identity, IdentityRef::Files { certificate: pem.clone(), key: pem });
}

#[test]
fn a_host_of_another_cluster_is_found_out() {
    let (ours, theirs) = (Ca::new(), Ca::new());
    let config = kubeconfig("https://api.lab.test:6443", &ours.pem);
    let compare = |config: &str, server: &str, ca: &str| same_cluster(config.as_bytes(), server, ca, no_file);
    assert_eq!(compare(&config, "https://api.lab.test:6443", &ours.pem), SameCluster::Yes);
    // While a CA is rotated, either side has both.
    let both = format!("{}{}", theirs.pem, ours.pem);
    assert_eq!(compare(&config, "https://api.lab.test:6443/", &both), SameCluster::Yes);
    assert_eq!(
        compare(&config, "https://api.lab.test:6443", &theirs.pem),
        SameCluster::OtherCa { server: "https://api.lab.test:6443".into() }
    );
    assert_eq!(
        compare(&config, "https://api2.lab.test:6443", &ours.pem),
        SameCluster::OtherServer { server: "https://api.lab.test:6443".into() }
    );
    assert!(matches!(compare("garbage: [", "https://a", &ours.pem), SameCluster::Unreadable { .. }));
}

#[test]
fn a_ca_in_a_file_is_followed() {
    let ca = Ca::new();
    let config = kubeconfig("https://api.lab.test:6443", &ca.pem);
    let start = config.find("    certificate-authority-data").unwrap();
    let end = start + config[start..].find('\n').unwrap();
    let config = format!("{}    certificate-authority: /etc/kubernetes/pki/ca.crt{}", &config[..start], &config[end..]);
    let read = |path: &std::path::Path| {
        assert_eq!(path, std::path::Path::new("/etc/kubernetes/pki/ca.crt"));
        Some(ca.pem.clone().into_bytes())
    };
    assert_eq!(same_cluster(config.as_bytes(), "https://api.lab.test:6443", &ca.pem, read), SameCluster::Yes);
    let gone = same_cluster(config.as_bytes(), "https://api.lab.test:6443", &ca.pem, no_file);
    assert!(matches!(gone, SameCluster::Unreadable { reason } if reason.contains("/etc/kubernetes/pki/ca.crt")));
}

#[test]
fn a_certificate_is_judged_by_its_time() {
    let now = Timestamp::now();
    let ca = Ca::new();
    let state = |from, to| {
        let issued = ca.issue(&[], from, to);
        // kubelet's file: certificate and key in one.
        client_certificate_state(format!("{}{}", issued.key, issued.certificate).as_bytes(), now)
    };
    assert!(matches!(state(-1, 1), CertificateState::Valid { until } if until > now));
    assert!(matches!(state(-2, -1), CertificateState::Expired { ended } if ended < now));
    assert!(matches!(state(1, 2), CertificateState::NotYet { begins } if begins > now));
    assert!(matches!(client_certificate_state(b"", now), CertificateState::Unreadable { .. }));
    let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(client_certificate_state(broken, now), CertificateState::Unreadable { .. }));
}

#[test]
fn errors_never_quote_the_input() {
    let error = kubeconfig_facts(b"users: [{name: x, user: {token: [abcdef.0123456789abcdef}}]").unwrap_err();
    assert!(!error.to_string().contains("0123456789abcdef"), "{error}");
}

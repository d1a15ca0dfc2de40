use super::*;
use crate::testing::{Ca, Issued};
use base64::Engine as _;
use flexnode_host::testing::MemFs;

const PEM: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

fn kubeconfig(ca: &Ca, user: &str) -> String {
    let ca = base64::engine::general_purpose::STANDARD.encode(&ca.pem);
    format!(
        r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{{"name": "k", "cluster": {{"server": "https://127.0.0.1:6443", "certificate-authority-data": "{ca}"}}}}],
            "users": [{{"name": "u", "user": {user}}}],
            "contexts": [{{"name": "c", "context": {{"cluster": "k", "user": "u"}}}}]}}"#
    )
}

fn files() -> String {
    format!(r#"{{"client-certificate": "{PEM}", "client-key": "{PEM}"}}"#)
}

/// kubelet's own arrangement: a link to a file with certificate and key.
fn joined(ca: &Ca, issued: &Issued) -> Arc<MemFs> {
    let fs = Arc::new(MemFs::new());
    fs.put(KUBECONFIG, kubeconfig(ca, &files()), 0o600);
    fs.put_dir("/var/lib/kubelet/pki", 0o755);
    fs.put("/var/lib/kubelet/pki/one.pem", format!("{}{}", issued.certificate, issued.key), 0o600);
    fs.put_link("one.pem", PEM);
    fs
}

fn look(fs: &MemFs) -> KubeletIdentity {
    kubelet_identity(fs, Path::new(KUBECONFIG), Timestamp::now())
}

#[test]
fn a_joined_host_needs_no_token() {
    let ca = Ca::new();
    let fs = joined(&ca, &ca.issue(&[], -1, 1));
    assert!(matches!(look(&fs), KubeletIdentity::Valid { until, .. } if until > Timestamp::now()));
    assert!(look(&fs).is_valid());
}

#[test]
fn a_fresh_host_has_nothing() {
    assert!(matches!(look(&MemFs::new()), KubeletIdentity::Absent));
}

#[test]
fn a_certificate_out_of_its_time_is_told() {
    let ca = Ca::new();
    assert!(matches!(look(&joined(&ca, &ca.issue(&[], -3, -2))), KubeletIdentity::Expired { .. }));
    assert!(matches!(look(&joined(&ca, &ca.issue(&[], 2, 3))), KubeletIdentity::NotYet { .. }));
}

#[test]
fn a_file_that_is_named_and_gone_is_told() {
    let ca = Ca::new();
    let fs = joined(&ca, &ca.issue(&[], -1, 1));
    fs.take("/var/lib/kubelet/pki/one.pem");
    assert!(matches!(look(&fs), KubeletIdentity::Missing { path } if path == Path::new(PEM)));
    assert!(!look(&fs).is_valid());
}

#[test]
fn damage_is_told_without_the_key() {
    let ca = Ca::new();
    let issued = ca.issue(&[], -1, 1);
    let fs = joined(&ca, &issued);
    fs.put("/var/lib/kubelet/pki/one.pem", &issued.certificate, 0o600);
    assert!(matches!(look(&fs), KubeletIdentity::Unusable { reason } if reason.contains("private key")));
    let broken = issued.key.replace("PRIVATE KEY", "PRIVATE KE");
    fs.put("/var/lib/kubelet/pki/one.pem", format!("{}{broken}", issued.certificate), 0o600);
    let secret = issued.key.lines().nth(1).unwrap();
    assert!(!format!("{:?}", look(&fs)).contains(secret));
    fs.put(KUBECONFIG, "{", 0o600);
    assert!(matches!(look(&fs), KubeletIdentity::Unusable { .. }));
}

#[test]
fn a_kubeconfig_is_loaded_with_what_it_names() {
    let ca = Ca::new();
    let issued = ca.issue(&[], -1, 1);
    let fs = joined(&ca, &issued);
    let file = KubeconfigFile { fs: fs.clone(), path: KUBECONFIG.into() };
    let first = file.load().unwrap();
    assert_eq!((first.url.as_str(), &first.ca_pem), ("https://127.0.0.1:6443", &ca.pem));
    assert!(matches!(first.credentials, Credentials::Certificate(_)));
    assert_eq!(file.load().unwrap().fingerprint, first.fingerprint);
    // Rotation: the link leads to another file.
    let next = ca.issue(&[], -1, 1);
    fs.put("/var/lib/kubelet/pki/two.pem", format!("{}{}", next.certificate, next.key), 0o600);
    fs.take(PEM).put_link("two.pem", PEM);
    assert_ne!(file.load().unwrap().fingerprint, first.fingerprint);
}

#[test]
fn other_ways_to_authenticate_are_loaded_too() {
    let ca = Ca::new();
    let fs = Arc::new(MemFs::new());
    let file = KubeconfigFile { fs: fs.clone(), path: "/k".into() };
    let load = |user: &str| {
        fs.put("/k", kubeconfig(&ca, user), 0o600);
        file.load()
    };
    let token = load(r#"{"token": "abc.def"}"#).unwrap().credentials;
    assert!(matches!(token, Credentials::Token(t) if t.expose() == "abc.def"));
    fs.put("/token", "abc.ghi\n", 0o600);
    let token = load(r#"{"tokenFile": "/token"}"#).unwrap().credentials;
    assert!(matches!(token, Credentials::Token(t) if t.expose() == "abc.ghi"));
    let issued = ca.issue(&[], -1, 1);
    let base64 = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let inline = format!(
        r#"{{"client-certificate-data": "{}", "client-key-data": "{}"}}"#,
        base64(&issued.certificate),
        base64(&issued.key)
    );
    assert!(matches!(load(&inline).unwrap().credentials, Credentials::Certificate(_)));
    for user in ["{}", r#"{"tokenFile": "/gone"}"#, r#"{"client-certificate-data": "QQ=="}"#] {
        assert!(matches!(load(user), Err(ApiProblem::Credentials(_))), "{user}");
    }
}

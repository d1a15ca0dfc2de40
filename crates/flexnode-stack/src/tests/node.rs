use super::*;
use crate::node_files;
use crate::references::{Credentials, ReferenceError, check, credentials};
use flexnode_host::testing::MemFs;
use flexnode_host::{Fs as _, durable};
use flexnode_isolation::NodeRoot as _;
use flexnode_isolation::none::{Layout, Root};
use flexnode_model::Join;

const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
const CERTIFICATE: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

fn root() -> Root {
    Root { layout: Layout::new("/opt/unbounded/node"), version: "1.36.3-0a0b0c0d".into(), host_root: "".into() }
}

/// A host with a rendered slot.
fn host() -> (MemFs, MachineGoal) {
    let fs = MemFs::new();
    let goal = goal("2.1.9", CgroupLayout::V2);
    fs.put_dir("/etc", 0o755).put_dir("/var/lib", 0o755);
    fs.put("/etc/resolv.conf", "nameserver 10.0.0.1\n", 0o644);
    fs.put(root().config("kubelet/config.yaml"), rendered(&goal, "kubelet/config.yaml"), 0o644);
    (fs, goal)
}

/// What kubelet leaves after it bootstrapped.
fn bootstrapped(fs: &MemFs) {
    fs.put(
        KUBECONFIG,
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n    server: https://api.example:6443\n  name: c\n\
             users:\n- name: u\n  user:\n    client-certificate: {CERTIFICATE}\n    client-key: {CERTIFICATE}\n"
        ),
        0o600,
    );
    fs.put("/var/lib/kubelet/pki/kubelet-client-2026.pem", "PEM", 0o600);
    fs.put_link("/var/lib/kubelet/pki/kubelet-client-2026.pem", CERTIFICATE);
}

fn write(fs: &MemFs, goal: &MachineGoal, join: &Join) -> Vec<String> {
    let files = node_files::write(fs, &root(), goal, join).unwrap();
    files.changed.iter().map(|path| path.to_str().unwrap().to_owned()).collect()
}

#[test]
fn everything_that_the_configuration_names_is_there_after_writing() {
    let (fs, goal) = host();
    let error = check(&fs, &root()).unwrap_err();
    assert!(matches!(&error, ReferenceError::Missing { path, .. } if path == Path::new(places::CLIENT_CA)), "{error}");
    assert_eq!(
        write(&fs, &goal, &join()),
        [places::CLIENT_CA, "/etc/unbounded/kubelet/registration.env", places::BOOTSTRAP_KUBECONFIG]
    );
    check(&fs, &root()).unwrap();
    let mode = |path: &str| fs.lstat(Path::new(path)).unwrap().unwrap().mode;
    assert_eq!(mode(places::BOOTSTRAP_KUBECONFIG), 0o600);
    assert_eq!(mode(places::CLIENT_CA), 0o644);
    assert_eq!(mode(places::STATIC_PODS), 0o700);
    assert_eq!(fs.text(places::CLIENT_CA), goal.ca_pem);
    insta::assert_snapshot!(fs.text(places::BOOTSTRAP_KUBECONFIG));
}

#[test]
fn every_path_that_is_made_is_named_for_the_record() {
    let (fs, goal) = host();
    let before = fs.tree();
    write(&fs, &goal, &join());
    let known = node_files::paths();
    for path in fs.tree().0.keys().filter(|path| !before.0.contains_key(*path)) {
        assert!(known.contains(&path.to_str().unwrap()), "{} is not named", path.display());
    }
}

#[test]
fn a_second_write_touches_nothing() {
    let (fs, goal) = host();
    write(&fs, &goal, &join());
    let before = fs.tree_with_stamps();
    assert!(write(&fs, &goal, &join()).is_empty());
    assert_eq!(fs.tree_with_stamps(), before);
}

#[test]
fn a_node_with_its_own_credentials_needs_no_token() {
    let (fs, goal) = host();
    bootstrapped(&fs);
    let servers = vec!["https://api.example:6443".to_owned()];
    let own = Credentials::Own { servers, files: vec![CERTIFICATE.into()] };
    assert_eq!(credentials(&fs, &root()).unwrap(), own);
    let files = node_files::write(&fs, &root(), &goal, &join()).unwrap();
    assert!(!files.bootstraps && !fs.exists(places::BOOTSTRAP_KUBECONFIG));
    check(&fs, &root()).unwrap();
}

#[test]
fn a_dangling_certificate_means_bootstrapping_again() {
    let (fs, goal) = host();
    bootstrapped(&fs);
    fs.take("/var/lib/kubelet/pki/kubelet-client-2026.pem");
    assert_eq!(credentials(&fs, &root()).unwrap(), Credentials::Dangling { missing: vec![CERTIFICATE.into()] });
    assert!(matches!(check(&fs, &root()), Err(ReferenceError::Missing { .. })), "the CA is missing too");
    let files = node_files::write(&fs, &root(), &goal, &join()).unwrap();
    assert!(files.bootstraps && !fs.exists(KUBECONFIG) && fs.exists(places::BOOTSTRAP_KUBECONFIG));
    check(&fs, &root()).unwrap();
}

#[test]
fn without_token_and_credentials_it_is_told_before_the_start() {
    let (fs, goal) = host();
    let join = Join { token: None, ..join() };
    node_files::write(&fs, &root(), &goal, &join).unwrap();
    let error = check(&fs, &root()).unwrap_err();
    assert!(error.to_string().contains("give azure.bootstrapToken.token"), "{error}");
    fs.put(KUBECONFIG, "", 0o600);
    assert!(matches!(check(&fs, &root()), Err(ReferenceError::NoCredentials { own: "missing" })));
}

#[test]
fn each_file_of_the_configuration_is_looked_for() {
    for (spoil, key) in [
        (places::CLIENT_CA, "authentication.x509.clientCAFile"),
        (places::RESOLV_CONF, "resolvConf"),
        (places::STATIC_PODS, "staticPodPath"),
    ] {
        let (fs, goal) = host();
        write(&fs, &goal, &join());
        fs.take(spoil);
        let text = check(&fs, &root()).unwrap_err().to_string();
        assert!(text.contains(key) && text.contains(spoil), "{text}");
    }
    let (fs, goal) = host();
    write(&fs, &goal, &join());
    fs.take(places::STATIC_PODS).put(places::STATIC_PODS, "", 0o600);
    assert!(matches!(check(&fs, &root()), Err(ReferenceError::Kind { .. })));
    fs.take(root().config("kubelet/config.yaml"));
    assert!(matches!(check(&fs, &root()), Err(ReferenceError::Configuration { .. })));
}

#[test]
fn no_error_shows_the_token() {
    let (fs, goal) = host();
    write(&fs, &goal, &join());
    let secret = "0123456789abcdef";
    durable::write(&fs, Path::new(KUBECONFIG), format!("token: [{secret}").as_bytes(), 0o600).unwrap();
    let error = node_files::write(&fs, &root(), &goal, &join()).unwrap_err();
    assert!(!format!("{error} {error:?} {:?}", join()).contains(secret));
    let error = check(&fs, &root()).unwrap_err();
    assert!(!format!("{error} {error:?}").contains(secret));
}

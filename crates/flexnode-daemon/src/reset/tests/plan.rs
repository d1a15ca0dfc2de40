//! Directories, mounts and settings.

use crate::agent_binary::HOST_ROOT;
use crate::host_setup::{fstab, swap, sysctls};
use crate::reset::facts::{Facts, Place};
use crate::reset::places::{PLACES, is_pod_log};
use crate::reset::plan::{Plan, Removal, Stage, plan};
use flexnode_host::{DirEntry, FileKind};
use flexnode_model::record::{Existed, HostRecord, SwapBefore};
use jiff::Timestamp;
use std::path::{Path, PathBuf};

/// A record of a host on which the paths `existed`, and none of the others, were there.
pub fn record(existed: &[&str]) -> HostRecord {
    let mut record = HostRecord::new(Timestamp::UNIX_EPOCH);
    record.existed = Some(Existed {
        paths: existed.iter().map(ToString::to_string).collect(),
        looked_at: crate::record::USED_PATHS.iter().map(ToString::to_string).collect(),
        ..Existed::default()
    });
    record
}

pub fn facts(record: Option<HostRecord>) -> Facts {
    Facts { record, host_root: HOST_ROOT.into(), ..Facts::default() }
}

/// A directory with files of these names; `name/` is a directory, `name@` a link.
fn dir(facts: &mut Facts, path: &str, entries: &[&str]) {
    let entry = |text: &&str| {
        let (name, kind) = match (text.strip_suffix('/'), text.strip_suffix('@')) {
            (Some(name), _) => (name, FileKind::Dir),
            (_, Some(name)) => (name, FileKind::Link),
            _ => (*text, FileKind::File),
        };
        DirEntry { name: name.into(), kind }
    };
    let entries = entries.iter().map(entry).collect();
    facts.places.insert(path.into(), Place { kind: Some(FileKind::Dir), real: Some(path.into()), entries });
}

fn trees(plan: &Plan) -> Vec<String> {
    let show = |removal: &Removal| match removal {
        Removal::Tree { path, spare } if spare.is_empty() => path.display().to_string(),
        Removal::Tree { path, spare } => format!("{} around {spare:?}", path.display()),
        Removal::Contents { path, .. } => format!("in {}", path.display()),
        Removal::IfEmpty(path) => format!("{}/", path.display()),
        other => other.to_string(),
    };
    plan.of(Stage::Trees).map(show).collect()
}

fn kept(plan: &Plan) -> Vec<String> {
    plan.kept.iter().map(|kept| format!("{}: {}", kept.what, kept.why)).collect()
}

const KUBELET_DIR: &[&str] =
    &["pki/", "kubeconfig", "pods/", "config.yaml@", "seccomp/", "my-notes", ".flexnode-tmp-1-1"];

#[test]
fn a_host_that_was_no_node_is_left_alone() {
    assert_eq!(plan(&facts(None)), Plan::default());
    assert_eq!(plan(&facts(Some(record(&[])))), Plan::default());
}

#[test]
fn every_directory_that_was_not_there_before_goes_whole() {
    let mut facts = facts(Some(record(&[])));
    for place in PLACES {
        dir(&mut facts, place.path, &["something"]);
    }
    let found = trees(&plan(&facts));
    for path in [
        "/var/lib/kubelet",
        "/run/containerd",
        "/var/lib/containerd",
        "/opt/containerd",
        "/etc/containerd",
        "/var/lib/cni",
        "/etc/cni",
        "/opt/cni",
        "/etc/kubernetes",
        "/usr/libexec/kubernetes",
        "/var/log/pods",
        "/var/log/containers",
        "/run/aks-flex-node",
        "/etc/unbounded/containerd",
        "/etc/unbounded/kubelet",
    ] {
        assert!(found.contains(&path.to_owned()), "{path}: {found:#?}");
    }
    // What is the user's or the system's, and not empty, stays.
    for path in ["/etc/aks-flex-node", "/etc/sysctl.d", "/etc/modules-load.d", "/run/netns", "/opt/unbounded"] {
        assert!(!found.iter().any(|f| f.trim_end_matches('/') == path), "{path}: {found:#?}");
    }
}

#[test]
fn of_a_directory_that_was_there_only_what_is_of_the_node_goes() {
    for record in [Some(record(&["/var/lib/kubelet"])), None] {
        let known = record.is_some();
        let mut facts = facts(record);
        dir(&mut facts, "/var/lib/kubelet", KUBELET_DIR);
        let plan = plan(&facts);
        assert_eq!(
            trees(&plan),
            [
                "/var/lib/kubelet/kubeconfig",
                "/var/lib/kubelet/pki",
                "/var/lib/kubelet/pods",
                "/var/lib/kubelet/.flexnode-tmp-1-1"
            ]
        );
        let why = if known { "it was there before the node" } else { "nothing says that the agent made it" };
        assert_eq!(kept(&plan), [format!("/var/lib/kubelet: {why}")]);
    }
}

#[test]
fn directories_of_other_programs_stay_when_they_were_there_or_nobody_knows() {
    let shared =
        ["/opt/cni/bin", "/etc/cni/net.d", "/var/lib/cni", "/var/lib/containerd", "/etc/containerd", "/opt/containerd"];
    for record in [Some(record(&shared)), None] {
        let mut facts = facts(record);
        for path in shared {
            dir(&mut facts, path, &["theirs"]);
        }
        let plan = plan(&facts);
        assert_eq!(trees(&plan), [""; 0]);
        assert_eq!(plan.kept.len(), shared.len());
    }
}

/// C083: kubelet's directory is a file system of its own.
#[test]
fn a_mount_at_a_directory_is_kept_and_emptied() {
    let mut facts = facts(Some(record(&[])));
    dir(&mut facts, "/var/lib/kubelet", KUBELET_DIR);
    facts.mounts = vec!["/".into(), "/var/lib/kubelet".into(), "/var/lib/kubelet/pods/a/v".into()];
    let plan = plan(&facts);
    assert_eq!(plan.of(Stage::Mounts).collect::<Vec<_>>(), [&Removal::Unmount("/var/lib/kubelet/pods/a/v".into())]);
    assert!(trees(&plan).contains(&"in /var/lib/kubelet".to_owned()), "{:?}", trees(&plan));
    assert!(kept(&plan)[0].contains("a file system that the agent did not mount"));
    dir(&mut facts, "/var/lib/kubelet", &[]);
    assert_eq!(trees(&super::super::plan::plan(&facts)), [""; 0]);
}

#[test]
fn a_link_to_a_directory_is_not_removed_but_what_is_of_the_node_in_it_is() {
    let mut facts = facts(Some(record(&["/var/lib/kubelet"])));
    dir(&mut facts, "/var/lib/kubelet", KUBELET_DIR);
    let place = facts.places.get_mut(Path::new("/var/lib/kubelet")).unwrap();
    place.kind = Some(FileKind::Link);
    place.real = Some("/data/kubelet".into());
    facts.mounts = vec!["/".into(), "/data".into(), "/data/kubelet/pods/a/v".into(), "/var/lib/kubelet/x".into()];
    let found = plan(&facts);
    assert_eq!(found.of(Stage::Mounts).collect::<Vec<_>>(), [&Removal::Unmount("/data/kubelet/pods/a/v".into())]);
    assert_eq!(
        trees(&found),
        [
            "/data/kubelet/kubeconfig",
            "/data/kubelet/pki",
            "/data/kubelet/pods around [\"/data/kubelet/pods/a/v\"]",
            "/data/kubelet/.flexnode-tmp-1-1"
        ]
    );
    // A link to a top directory is a mistake.
    facts.places.get_mut(Path::new("/var/lib/kubelet")).unwrap().real = Some("/data".into());
    assert_eq!(
        trees(&plan(&facts)).iter().filter(|path| !path.contains("kubeconfig") && !path.contains("pki")).count(),
        0
    );
}

/// C086: volumes that are mounted below pods.
#[test]
fn mounts_below_are_unmounted_from_the_last_to_the_first_and_spared_while_they_are_there() {
    let mut with_before = record(&[]);
    with_before.existed.as_mut().unwrap().mounts.insert("/var/lib/kubelet/data".into());
    let mut facts = facts(Some(with_before));
    dir(&mut facts, "/var/lib/kubelet", KUBELET_DIR);
    let csi = "/var/lib/kubelet/plugins/kubernetes.io/csi/x/globalmount";
    facts.mounts = ["/", "/var/lib/kubelet/data", csi, csi, "/var/lib/kubelet-other/m", "/var/lib/kubelet/pods/a"]
        .map(PathBuf::from)
        .to_vec();
    let plan = plan(&facts);
    let unmounts: Vec<String> = plan.of(Stage::Mounts).map(ToString::to_string).collect();
    assert_eq!(
        unmounts,
        ["the mount /var/lib/kubelet/pods/a".into(), format!("the mount {csi}"), format!("the mount {csi}")]
    );
    let whole = plan.removals.iter().find_map(|removal| match removal {
        Removal::Tree { path, spare } if path == Path::new("/var/lib/kubelet") => Some(spare),
        _ => None,
    });
    assert_eq!(whole.unwrap().len(), 3);
    assert!(kept(&plan).contains(&"/var/lib/kubelet/data: it was mounted before the node".to_owned()));
}

#[test]
fn images_and_program_follow_the_options() {
    let mut facts = facts(Some(record(&["/opt"])));
    dir(&mut facts, "/var/lib/containerd", &["io.containerd.content.v1.content/"]);
    dir(&mut facts, "/opt/unbounded/agent/bin", &["aks-flex-node"]);
    dir(&mut facts, "/opt/unbounded/agent/lib", &["aks-flex-node/"]);
    dir(&mut facts, "/opt/unbounded/agent", &["bin/", "lib/"]);
    dir(&mut facts, "/opt/unbounded", &["agent/"]);
    let program = PathBuf::from("/opt/unbounded/agent/bin/aks-flex-node");
    facts.files.insert(program.clone(), FileKind::Link);
    facts.files.insert("/opt/unbounded/agent/lib/aks-flex-node".into(), FileKind::Dir);
    facts.options.keep_images = true;
    assert_eq!(
        trees(&plan(&facts)),
        [
            "/opt/unbounded/agent/bin/aks-flex-node as a regular file",
            "/opt/unbounded/agent/lib/aks-flex-node",
            "/opt/unbounded/agent/lib/"
        ]
    );
    assert_eq!(plan(&facts).kept.len(), 2);
    facts.options.keep_images = false;
    facts.options.remove_agent = true;
    assert_eq!(
        trees(&plan(&facts)),
        [
            "/var/lib/containerd",
            "/opt/unbounded/agent/bin/aks-flex-node",
            "/opt/unbounded/agent/lib/aks-flex-node",
            "/opt/unbounded/agent/bin/",
            "/opt/unbounded/agent/lib/",
            "/opt/unbounded/agent/",
            "/opt/unbounded/"
        ]
    );
    // A host root that is a link to /usr/local is not ours to remove.
    facts.host_root = "/usr/local".into();
    facts.files = [("/usr/local/bin/aks-flex-node".into(), FileKind::File)].into();
    let place = facts.places.get_mut(Path::new(HOST_ROOT)).unwrap();
    (place.kind, place.real) = (Some(FileKind::Link), Some("/usr/local".into()));
    facts.places.remove(Path::new("/opt/unbounded/agent/bin"));
    facts.places.remove(Path::new("/opt/unbounded/agent/lib"));
    assert_eq!(trees(&plan(&facts)), ["/var/lib/containerd", "/usr/local/bin/aks-flex-node"]);
}

#[test]
fn only_the_agents_files_beside_the_configuration_go() {
    let mut facts = facts(None);
    let names =
        ["config.json", "config.json.bak", "daemon-state.json", "daemon-state.json.sha256", "daemon-credentials/"];
    dir(&mut facts, "/etc/aks-flex-node", &names);
    assert_eq!(
        trees(&plan(&facts)),
        [
            "/etc/aks-flex-node/daemon-credentials",
            "/etc/aks-flex-node/daemon-state.json",
            "/etc/aks-flex-node/daemon-state.json.sha256"
        ]
    );
}

#[test]
fn logs_of_pods_are_known_by_their_form() {
    let uid = "0f4b6c1e-9a3d-4a57-8b0e-5d2f7c6e1a90";
    assert!(is_pod_log(&format!("kube-system_coredns-abc_{uid}")));
    assert!(is_pod_log("default_static_0123456789abcdef0123456789abcdef"));
    for name in ["mine", "a_b_c", "a_b", &format!("a_b_c_{uid}"), &format!("_b_{uid}")] {
        assert!(!is_pod_log(name), "{name}");
    }
    let mut facts = facts(None);
    dir(&mut facts, "/var/log/pods", &[&format!("default_a_{uid}/"), "fluentd/", &format!("default_b_{uid}")]);
    dir(&mut facts, "/var/log/containers", &["a_default_c-1.log@", "positions.db", "x.log"]);
    assert_eq!(
        trees(&plan(&facts)),
        [format!("/var/log/pods/default_a_{uid}"), "/var/log/containers/a_default_c-1.log".into()]
    );
}

#[test]
fn settings_go_back_unless_somebody_changed_them_since() {
    let mut record = record(&[]);
    for (key, before) in [
        ("kernel.panic", "0"),
        ("vm.overcommit_memory", "0"),
        ("net.ipv4.ip_forward", "0"),
        ("net.ipv4.conf.all.accept_redirects", "1"),
        ("vm.panic_on_oom", "0"),
    ] {
        record.sysctls.insert(key.into(), before.into());
    }
    record.swaps = vec![
        SwapBefore { path: "/swap.img".into(), priority: -2 },
        SwapBefore { path: "/dev/sdb".into(), priority: 5 },
        SwapBefore { path: "/dev/zram0".into(), priority: 100 },
    ];
    record.keep_file(sysctls::SYSCTL_FILE, None);
    record.keep_file("/etc/modules-load.d/aks-flex-node.conf", Some(b"overlay\n"));
    record.modules.insert("br_netfilter".into());
    let mut facts = facts(Some(record));
    for (key, now) in [
        ("kernel.panic", "10"),
        ("vm.overcommit_memory", "2"),
        ("net.ipv4.ip_forward", "1"),
        ("net.ipv4.conf.all.accept_redirects", "0"),
        ("vm.panic_on_oom", "0"),
    ] {
        facts.sysctls.insert(key.into(), now.into());
    }
    facts.swaps.insert("/dev/sdb".into());
    facts.swap_paths = ["/dev/sdb".to_owned(), "/swap.img".to_owned()].into();
    facts.fstab = Some(format!("/dev/vda / ext4 defaults 0 1\n{}/swap.img none swap sw 0 0\n", fstab::MARKER));
    facts.masked.insert("dev-zram0.swap".into());
    facts.disabled.insert("swap.service".into());
    let ours = sysctls::render(&sysctls::SETTINGS).into_bytes();
    facts.setup_files.insert(sysctls::SYSCTL_FILE.into(), Some(ours.clone()));
    facts.setup_files.insert("/etc/modules-load.d/aks-flex-node.conf".into(), Some(ours));
    dir(&mut facts, "/etc/sysctl.d", &["99-aks-flex-node.conf"]);
    let found = plan(&facts);
    let restored = "/dev/vda / ext4 defaults 0 1\n/swap.img none swap sw 0 0\n";
    assert_eq!(
        found.of(Stage::Settings).cloned().collect::<Vec<_>>(),
        [
            Removal::Restore("/etc/modules-load.d/aks-flex-node.conf".into(), b"overlay\n".to_vec()),
            Removal::Restore(swap::FSTAB.into(), restored.as_bytes().to_vec()),
            Removal::Unmask("dev-zram0.swap".into()),
            Removal::Enable("swap.service".into()),
            Removal::Sysctl("net.ipv4.ip_forward".into(), "0".into()),
            Removal::Sysctl("kernel.panic".into(), "0".into()),
            Removal::Sysctl("net.ipv4.conf.all.accept_redirects".into(), "1".into()),
            Removal::SwapOn("/swap.img".into(), -2),
        ]
    );
    assert_eq!(trees(&found), [sysctls::SYSCTL_FILE, "/etc/sysctl.d/"]);
    let kept = kept(&found);
    assert!(kept[0].starts_with("the kernel setting vm.overcommit_memory = 2: somebody changed it"), "{kept:?}");
    assert!(kept[1].starts_with("swap off on /dev/zram0"), "{kept:?}");
    assert!(kept[2].starts_with("the kernel module br_netfilter"), "{kept:?}");
}

#[test]
fn files_that_somebody_wrote_over_stay() {
    let mut record = record(&[]);
    record.keep_file(sysctls::SYSCTL_FILE, None);
    let mut facts = facts(Some(record));
    facts.setup_files.insert(sysctls::SYSCTL_FILE.into(), Some(b"vm.swappiness = 1\n".to_vec()));
    assert_eq!(plan(&facts).removals, []);
    assert_eq!(plan(&facts).kept.len(), 1);
    // Without a record, a file of our name with our first line is ours.
    facts.record = None;
    assert_eq!(plan(&facts), Plan::default());
    facts.setup_files.insert(sysctls::SYSCTL_FILE.into(), Some(sysctls::render([]).into_bytes()));
    assert_eq!(trees(&plan(&facts)), [sysctls::SYSCTL_FILE]);
}

#[test]
fn of_the_networks_that_came_after_only_those_of_the_pods_alone_go() {
    let networks = "/var/lib/cni/networks";
    let before = ["/var/lib/cni", networks, "/var/lib/cni/networks/podman"];
    let mut facts = facts(Some(record(&before)));
    dir(&mut facts, "/var/lib/cni", &["networks/"]);
    dir(&mut facts, networks, &["podman/", "ours/", "shared/", "later/"]);
    for network in ["podman", "ours", "shared"] {
        facts.evidence.files.insert(format!("{networks}/{network}/10.0.0.2").into());
    }
    facts.evidence.foreign_networks.insert(format!("{networks}/shared").into());
    assert_eq!(trees(&plan(&facts)), [format!("{networks}/ours")]);
    // Without a record nobody knows which came after.
    facts.record = None;
    assert!(trees(&plan(&facts)).is_empty());
}

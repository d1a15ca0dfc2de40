use super::*;
use crate::backend::{Grants, SlotRef};
use flexnode_host::Fs;
use flexnode_host::testing::{MemFs, Tree};

fn step_error(error: &Error) -> String {
    whole(error)
}

/// The error of the backend behind a failed step.
fn cause(error: &Error) -> &Error {
    match error {
        Error::Failed(failure) => failure.error.source.as_deref().unwrap().downcast_ref().unwrap(),
        other => other,
    }
}

fn difference(before: &Tree, fs: &MemFs) -> Vec<String> {
    before.difference(&fs.tree_with_stamps())
}

#[tokio::test]
async fn prepare_installs_the_version_writes_units_and_does_not_activate() {
    let node = Node::new();
    let root = node.backend.prepare(&spec("v1")).await.unwrap();
    assert_eq!(
        (root.slot(), root.path(Path::new("/usr/local/bin/kubelet")).to_str().unwrap()),
        ("v1", "/opt/unbounded/node/v1/bin/kubelet")
    );
    assert_eq!(node.text("/opt/unbounded/node/v1/bin/kubelet"), "v1");
    assert!(node.fake.fs.exists(format!("{UNITS}/unbounded-kubelet.service")));
    assert!(node.fake.fs.exists(format!("{UNITS}/unbounded-kubelet.service.d/00-path.conf")));
    assert!(node.fake.fs.exists("/opt/unbounded/node/v1/etc/manifest.json"));
    assert_eq!(node.current(), None);
    assert!(!node.calls().iter().any(|call| call.starts_with("start")), "{:?}", node.calls());
}

#[tokio::test]
async fn prepare_links_the_configuration_paths_through_current() {
    let node = Node::new();
    node.backend.prepare(&spec("v1")).await.unwrap();
    let link = |path: &str| node.fake.fs.read_link(Path::new(path)).unwrap();
    assert_eq!(link("/var/lib/kubelet/config.yaml"), Path::new("/opt/unbounded/node/current/etc/kubelet/config.yaml"));
    assert_eq!(link(CONTAINERD_CONFIG_PATH), Path::new("/opt/unbounded/node/current/etc/containerd/config.toml"));
    node.backend.activate("v1").await.unwrap();
    assert_eq!(node.fake.fs.stat(Path::new(CONTAINERD_CONFIG_PATH)).unwrap().unwrap().size, 2);
}

#[tokio::test]
async fn a_foreign_configuration_file_or_link_is_refused_by_name_before_any_change() {
    for path in [CONTAINERD_CONFIG_PATH, DEFAULT_KUBELET_CONFIG_PATH] {
        for foreign_link in [false, true] {
            let node = Node::new();
            if foreign_link {
                node.fake.fs.put_link("/srv/theirs", path);
            } else {
                node.fake.fs.put(path, "theirs", 0o644);
            }
            let before = node.fake.fs.tree_with_stamps();
            let error = node.backend.prepare(&spec("v1")).await.unwrap_err();
            assert!(matches!(cause(&error), Error::Layout(LayoutError::ForeignLink { .. })));
            assert!(step_error(&error).contains(path), "{}", step_error(&error));
            assert_eq!(difference(&before, &node.fake.fs), Vec::<String>::new());
            assert_eq!(node.calls(), Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn preparing_again_changes_nothing_and_does_not_install_again() {
    let node = Node::new();
    node.backend.prepare(&spec("v1")).await.unwrap();
    let before = node.fake.fs.tree_with_stamps();
    node.fake.systemd.clear_calls();
    let mut again = node.backend.clone();
    again.install = Install::new(|_, _| async { Err(StepError::new("it was installed again")) });
    again.prepare(&spec("v1")).await.unwrap();
    again.prepare_version(&spec("v1")).await.unwrap();
    assert_eq!(difference(&before, &node.fake.fs), Vec::<String>::new());
    assert_eq!(node.calls(), Vec::<String>::new(), "no reload");
}

#[tokio::test]
async fn prepare_version_does_not_touch_the_units() {
    let node = Node::new().running("v1").await;
    let units = |node: &Node| Tree::read(&*node.fake.fs, Path::new("/etc"), true).unwrap();
    let before = units(&node);
    let mut next = node.backend.clone();
    next.units.local_dns = true;
    next.prepare_version(&spec("v2")).await.unwrap();
    assert_eq!(before.difference(&units(&node)), Vec::<String>::new());
    assert_eq!(node.calls(), Vec::<String>::new());
    assert_eq!(node.text("/opt/unbounded/node/v2/bin/kubelet"), "v2");
    node.assert_runs("v1");
}

#[tokio::test]
async fn prepare_version_writes_below_the_version_only() {
    let node = Node::new().running("v1").await;
    node.fake.fs.clear_log();
    node.backend.prepare_version(&spec("v2")).await.unwrap();
    for (op, path) in node.fake.fs.log() {
        // A directory gets its name when it is on the device.
        let text = path.to_string_lossy();
        let inside =
            ["v2", ".flexnode-tmp-"].iter().any(|name| text.starts_with(&format!("/opt/unbounded/node/{name}")));
        assert!(inside || op.syncs(), "{op:?} {}", path.display());
    }
}

#[tokio::test]
async fn an_unset_installer_installs_nothing() {
    let mut node = Node::new();
    node.backend.install = Install::default();
    node.backend.prepare(&spec("v1")).await.unwrap();
    assert_eq!(node.fake.fs.read_dir(Path::new("/opt/unbounded/node/v1/bin")).unwrap(), []);
    assert_eq!(node.backend.activate("v1").await.unwrap(), None);
}

#[tokio::test]
async fn the_installer_runs_after_the_version_directory_exists_and_before_the_units_are_written() {
    let mut node = Node::new();
    let (diary, fs) = (Diary::default(), node.fake.fs.clone());
    let seen = diary.clone();
    node.backend.install = Install::new(move |_, root| {
        seen.note(format!("directory {}", fs.exists(root.dir().join("bin"))));
        seen.note(format!("units {}", fs.exists("/etc/systemd/system/unbounded-kubelet.service")));
        async { Ok(Outcome::Unchanged) }
    });
    node.backend.prepare(&spec("v1")).await.unwrap();
    assert_eq!(diary.lines(), ["directory true", "units false"]);
}

/// C037: a run that failed half way is taken for done, because one program has the right version.
#[tokio::test]
async fn a_failed_installation_is_begun_anew() {
    let mut node = Node::new();
    let right = node.backend.install.clone();
    let fs = node.fake.fs.clone();
    node.backend.install = Install::new(move |_, root| {
        fs.put(root.dir().join("bin/half"), "half", 0o755);
        async { Err(StepError::new("no space left on device")) }
    });
    let error = node.backend.prepare_version(&spec("v1")).await.unwrap_err();
    assert!(step_error(&error).contains("no space left"), "{}", step_error(&error));
    assert!(!node.fake.fs.exists("/opt/unbounded/node/v1"), "half of it is of no use");
    node.backend.install = right;
    node.backend.prepare_version(&spec("v1")).await.unwrap();
    manifest::verify(&*node.fake.fs, &node.backend.layout, "v1", Level::Content).unwrap();
    assert!(!node.fake.fs.exists("/opt/unbounded/node/v1/bin/half"), "what the failed one left");
}

#[tokio::test]
async fn an_incomplete_version_is_begun_anew_unless_it_is_active() {
    let node = Node::new().running("v1").await;
    node.fake.fs.take("/opt/unbounded/node/v1/etc/manifest.json");
    let error = node.backend.prepare_version(&spec("v1")).await.unwrap_err();
    assert!(matches!(cause(&error), Error::Slot(SlotError::Incomplete { .. })));
    assert!(step_error(&error).contains("slots repair"));
    node.fake.fs.put("/opt/unbounded/node/v0/bin/kubelet", "old", 0o755);
    node.backend.prepare_version(&spec("v0")).await.unwrap();
    assert_ne!(node.text("/opt/unbounded/node/v0/bin/kubelet"), "old");
    manifest::verify(&*node.fake.fs, &node.backend.layout, "v0", Level::Content).unwrap();
    node.assert_runs("v1");
}

#[tokio::test]
async fn a_damaged_version_is_an_error_that_names_the_repair() {
    let node = Node::new();
    node.backend.prepare(&spec("v1")).await.unwrap();
    node.fake.fs.put("/opt/unbounded/node/v1/bin/kubelet", "x1", 0o755);
    let error = node.backend.prepare(&spec("v1")).await.unwrap_err();
    assert!(matches!(cause(&error), Error::Slot(SlotError::Damaged { .. })));
    assert!(step_error(&error).contains("slots repair"));
    assert_eq!(node.text("/opt/unbounded/node/v1/bin/kubelet"), "x1", "it is not written again");
}

#[tokio::test]
async fn bad_version_names_are_refused() {
    let node = Node::new();
    let before = node.fake.fs.tree_with_stamps();
    for bad in ["", "..", "a/b", "current", ".flexnode-tmp-x"] {
        assert!(node.backend.prepare(&spec(bad)).await.is_err(), "{bad:?}");
        assert!(node.backend.activate(bad).await.is_err(), "{bad:?}");
    }
    assert_eq!(difference(&before, &node.fake.fs), Vec::<String>::new());
}

#[tokio::test]
async fn granted_paths_must_exist_below_the_host_root() {
    let mut node = Node::new();
    let grants = Grants { devices: vec!["/dev/fuse".into()], host_paths: vec!["/srv/data".into()], nvidia: false };
    let granted = NodeSpec { grants, ..spec("v1") };
    let error = node.backend.prepare(&granted).await.unwrap_err();
    let text = step_error(&error);
    assert!(text.contains("/dev/fuse") && text.contains("/srv/data"), "{text}");
    assert!(!node.fake.fs.exists("/opt/unbounded/node"), "nothing was made");
    node.backend.host_root = "/tree".into();
    node.fake.fs.put_special("/tree/dev/fuse", 0o666).put_dir("/tree/srv/data", 0o755);
    node.backend.prepare(&granted).await.unwrap();
}

#[tokio::test]
async fn nvidia_grants_need_the_gpu_host_paths_and_an_empty_list_checks_nothing() {
    let mut node = Node::new();
    let granted = NodeSpec { grants: Grants { nvidia: true, ..Grants::default() }, ..spec("v1") };
    node.backend.gpu_host_paths = vec!["/usr/bin/nvidia-ctk".into()];
    let error = node.backend.prepare(&granted).await.unwrap_err();
    assert!(step_error(&error).contains("/usr/bin/nvidia-ctk"), "{}", step_error(&error));
    node.backend.prepare(&spec("v1")).await.unwrap();
    node.backend.gpu_host_paths.clear();
    node.backend.prepare(&granted).await.unwrap();
}

#[tokio::test]
async fn prepare_stops_a_stale_local_dns_unit_before_its_file_goes() {
    let mut node = Node::new();
    node.backend.units.local_dns = true;
    node.fake.fs.put(
        format!("{UNITS}/unbounded-localdns-network.service"),
        "[Service]\nType=oneshot\nExecStart=/bin/net\n",
        0o644,
    );
    node.fake.fs.put("/bin/net", "", 0o755);
    let mut node = node.running("v1").await;
    assert!(node.active(UNIT_LOCAL_DNS));
    node.backend.stop().await.unwrap();
    node.fake.systemd.set_active(UNIT_LOCAL_DNS, "active", "running");
    let (diary, fs) = (Diary::default(), node.fake.fs.clone());
    let seen = diary.clone();
    node.fake.systemd.hook(flexnode_host::testing::Verb::Stop, UNIT_LOCAL_DNS, move || {
        seen.note(format!("file {}", fs.exists("/etc/systemd/system/unbounded-localdns.service")));
    });
    node.fake.systemd.clear_calls();
    node.backend.units.local_dns = false;
    node.backend.prepare(&spec("v2")).await.unwrap();
    assert_eq!(diary.lines(), ["file true"]);
    assert_eq!(node.calls(), ["stop unbounded-localdns.service", "disable unbounded-localdns.service", "reload"]);
    assert!(!node.fake.fs.exists(format!("{UNITS}/unbounded-localdns.service")));
    assert!(!node.fake.fs.exists(format!("{UNITS}/unbounded-kubelet.service.d/05-localdns.conf")));
    assert!(!node.active(UNIT_LOCAL_DNS));
}

#[tokio::test]
async fn a_reload_that_a_crash_left_out_is_made_up_for() {
    let node = Node::new();
    node.backend.prepare(&spec("v1")).await.unwrap();
    node.state(UNIT_KUBELET);
    // Another process wrote a drop-in of ours and was killed before its reload.
    node.fake.fs.put(format!("{UNITS}/unbounded-kubelet.service.d/00-path.conf"), "[Service]\n", 0o644);
    node.fake.systemd.clear_calls();
    node.backend.prepare(&spec("v1")).await.unwrap();
    assert_eq!(node.calls(), ["reload"]);
    assert!(!node.state(UNIT_KUBELET).need_reload);
    node.fake.systemd.clear_calls();
    node.backend.prepare(&spec("v1")).await.unwrap();
    assert_eq!(node.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn activate_returns_the_version_that_it_replaced() {
    let node = Node::new();
    for version in ["v1", "v2"] {
        node.backend.prepare_version(&spec(version)).await.unwrap();
    }
    assert_eq!(node.backend.activate("v1").await.unwrap(), None);
    assert_eq!(node.backend.activate("v2").await.unwrap().as_deref(), Some("v1"));
    assert_eq!(node.backend.activate("v2").await.unwrap().as_deref(), Some("v2"));
    assert_eq!(node.current().as_deref(), Some("v2"));
}

#[tokio::test]
async fn activating_what_is_not_installed_or_not_complete_fails_and_leaves_the_link() {
    let node = Node::new();
    node.backend.prepare_version(&spec("v1")).await.unwrap();
    node.backend.activate("v1").await.unwrap();
    assert!(matches!(cause(&node.backend.activate("v2").await.unwrap_err()), Error::Slot(SlotError::Absent { .. })));
    node.backend.prepare_version(&spec("v2")).await.unwrap();
    node.fake.fs.take("/opt/unbounded/node/v2/bin/containerd");
    assert!(matches!(cause(&node.backend.activate("v2").await.unwrap_err()), Error::Slot(SlotError::Damaged { .. })));
    assert_eq!(node.current().as_deref(), Some("v1"));
}

#[tokio::test]
async fn prepare_survives_a_kill_at_every_change() {
    for changes in (0..).step_by(3) {
        let node = Node::new();
        node.fake.fs.crash_after(changes);
        let _ = node.backend.prepare(&spec("v1")).await;
        let crashed = node.fake.fs.crashed();
        node.fake.fs.revive();
        // The next process.
        node.backend.prepare(&spec("v1")).await.unwrap_or_else(|e| panic!("after {changes}: {}", whole(&e)));
        node.backend.activate("v1").await.unwrap();
        node.backend.start().await.unwrap();
        node.assert_runs("v1");
        let temporary = |path: &&std::path::PathBuf| path.to_string_lossy().contains(".flexnode-tmp-");
        let tree = node.fake.fs.tree();
        assert_eq!(
            tree.0.keys().filter(temporary).collect::<Vec<_>>(),
            Vec::<&std::path::PathBuf>::new(),
            "after {changes}"
        );
        if !crashed {
            return;
        }
    }
}

use super::*;
use crate::{InstallError, Installer, resolved_goal};
use flexnode_artifacts::bundle::{BundleRequest, Versions, pack};
use flexnode_artifacts::{Bundle, Resolved, Trust, Wanted};
use flexnode_host::Fs as _;
use flexnode_host::testing::{FakeClock, FakeCommands, MemFs};
use flexnode_isolation::none::{Layout, Root};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn root() -> Root {
    Root { layout: Layout::new("/opt/unbounded/node"), version: "1.36.3-0a0b0c0d".into(), host_root: "".into() }
}

fn program(text: &str) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(18, 0);
    bytes.extend([62, 0]);
    bytes.extend(text.as_bytes());
    bytes
}

/// A bundle as `aks-flex-node bundle` makes it.
async fn bundle() -> (MemFs, Resolved) {
    let fs = MemFs::new();
    fs.put("/d/kubelet", program("kubelet"), 0o755).put("/d/runc", program("runc"), 0o755);
    for name in ["containerd", "containerd-shim-runc-v2", "ctr"] {
        fs.put(format!("/d/containerd/{name}"), program(name), 0o755);
    }
    for name in ["loopback", "host-local", "bridge"] {
        fs.put(format!("/d/cni/{name}"), program(name), 0o755);
    }
    fs.put_dir("/srv", 0o755);
    let version = |text: &str| Some(text.to_owned());
    let request = BundleRequest {
        dir: "/srv/bundle".into(),
        arch: "amd64".into(),
        kubelet: Some("/d/kubelet".into()),
        containerd: Some("/d/containerd".into()),
        runc: Some("/d/runc".into()),
        cni: Some("/d/cni".into()),
        versions: Versions {
            kubernetes: version("1.36.3"),
            containerd: version("2.1.9"),
            runc: version("1.3.6"),
            cni: version("1.9.1"),
            crictl: None,
        },
        ..BundleRequest::default()
    };
    pack(&fs, &FakeCommands::new(Arc::new(FakeClock::new())), &request).await.unwrap();
    let bundle = Bundle::open(Arc::new(fs.clone()), Path::new("/srv/bundle"), Trust::root()).unwrap();
    let wanted = Wanted { kubernetes: "1.36.3".into(), arch: "amd64".into(), ..Wanted::default() };
    let resolved = bundle.resolve(&wanted).unwrap();
    (fs, resolved)
}

fn installer(fs: &MemFs, resolved: &Resolved) -> Installer {
    let mut open = goal("2.1.9", CgroupLayout::V2);
    open.containerd_version = None;
    let goal = resolved_goal(open, resolved);
    Installer::new(Arc::new(fs.clone()), resolved.artifacts.clone(), goal, facts(), BIN)
}

#[tokio::test]
async fn a_slot_gets_programs_and_configuration() {
    let (fs, resolved) = bundle().await;
    let files = installer(&fs, &resolved).install_in_background(Box::new(root())).await.unwrap();
    let slot = "/opt/unbounded/node/1.36.3-0a0b0c0d";
    let names: Vec<_> = files.iter().map(|f| f.path.to_str().unwrap().strip_prefix(slot).unwrap()).collect();
    assert_eq!(
        names,
        [
            "/bin/containerd",
            "/bin/containerd-shim-runc-v2",
            "/bin/ctr",
            "/bin/kubelet",
            "/bin/runc",
            "/cni/bridge",
            "/cni/host-local",
            "/cni/loopback",
            "/etc/containerd/config.toml",
            "/etc/goal.json",
            "/etc/kubelet/config.yaml",
            "/etc/kubelet/env",
        ]
    );
    for file in &files {
        let stat = fs.lstat(&file.path).unwrap().unwrap();
        let bytes = fs.read(&file.path, 1 << 20).unwrap().unwrap();
        assert_eq!((stat.mode, stat.size), (file.mode, file.size));
        assert_eq!(flexnode_host::durable::sha256_hex(&bytes), file.sha256);
    }
    let goal: Value = serde_json::from_str(&fs.text(format!("{slot}/etc/goal.json"))).unwrap();
    assert_eq!(goal["containerdVersion"], "2.1.9");
    assert_eq!(goal["artifacts"].as_object().unwrap().len(), 4);
}

#[tokio::test]
async fn what_cannot_be_rendered_is_known_before_anything_is_unpacked() {
    let (fs, mut resolved) = bundle().await;
    resolved.containerd = "1.6.0".into();
    let error = installer(&fs, &resolved).install(&root(), &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, InstallError::Containerd(_)), "{error:?}");
    assert!(!fs.exists("/opt/unbounded"));
}

#[tokio::test]
async fn an_installation_that_nobody_waits_for_stops() {
    let (fs, resolved) = bundle().await;
    let stop = AtomicBool::new(true);
    let error = installer(&fs, &resolved).install(&root(), &stop).unwrap_err();
    assert!(matches!(error, InstallError::Artifact(flexnode_artifacts::ArtifactError::Stopped)), "{error:?}");
}

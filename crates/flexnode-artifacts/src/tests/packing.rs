use super::*;
use crate::ArtifactError;
use crate::bundle::{BundleReport, BundleRequest, Versions, pack};
use flexnode_host::{Command, Commands, Fs as _, HostError, Output};
use std::path::PathBuf;
use std::sync::Mutex;

/// Answers `--version` by the content of the program that is asked.
#[derive(Debug)]
struct Asked {
    fs: MemFs,
    programs: Mutex<Vec<PathBuf>>,
}

#[async_trait::async_trait]
impl Commands for Asked {
    async fn run(&self, command: &Command) -> Result<Output, HostError> {
        assert_eq!(command.args, ["--version"]);
        self.programs.lock().unwrap().push(command.program.clone());
        let stat = self.fs.lstat(&command.program).unwrap().unwrap();
        assert_eq!(stat.mode & 0o111, 0o111, "a program is asked only when it can run");
        let bytes = self.fs.read(&command.program, 1 << 20).unwrap().unwrap();
        let answer: &[u8] = match &bytes[20..] {
            b"kubelet" => b"Kubernetes v1.36.3\n",
            b"containerd" => b"containerd github.com/containerd/containerd/v2 2.1.9+unknown \n",
            b"runc" => b"runc version 1.3.6+ds1\ncommit: x\n",
            b"loopback" => b"CNI loopback plugin v1.9.1\n",
            _ => b"usage\n",
        };
        Ok(Output { code: Some(0), stdout: answer.to_vec(), stderr: Vec::new() })
    }
    fn look_path(&self, _: &str) -> Option<PathBuf> {
        None
    }
}

fn run(fs: &MemFs, request: &BundleRequest) -> Result<BundleReport, ArtifactError> {
    let commands = Asked { fs: fs.clone(), programs: Mutex::default() };
    let future = std::pin::pin!(pack(fs, &commands, request));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.poll(&mut context) {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => panic!("the fake answers at once"),
    }
}

fn image() -> Vec<u8> {
    let index = r#"{"manifests":[{"annotations":{"io.containerd.image.name":"a.b/pause:1"}}]}"#;
    tar(&[("index.json", index.into(), 0o644)])
}

/// What a person downloaded.
fn downloads() -> (MemFs, BundleRequest) {
    let fs = MemFs::new();
    fs.put("/d/kubelet", program("kubelet"), 0o644)
        .put("/d/containerd-2.1.9-linux-amd64.tar.gz", gzip(&containerd_tar()), 0o644)
        .put("/d/runc.amd64", program("runc"), 0o644)
        .put("/d/cni-plugins-linux-amd64-v1.9.1.tgz", gzip(&cni_tar()), 0o644)
        .put("/d/pause.tar", image(), 0o600)
        .put_dir("/srv", 0o755);
    let request = BundleRequest {
        dir: DIR.into(),
        arch: "amd64".into(),
        kubelet: Some("/d/kubelet".into()),
        containerd: Some("/d/containerd-2.1.9-linux-amd64.tar.gz".into()),
        runc: Some("/d/runc.amd64".into()),
        cni: Some("/d/cni-plugins-linux-amd64-v1.9.1.tgz".into()),
        images: vec!["/d/pause.tar".into()],
        ..BundleRequest::default()
    };
    (fs, request)
}

#[test]
fn release_files_become_a_bundle_that_resolves() {
    let (fs, request) = downloads();
    let report = run(&fs, &request).unwrap();
    assert!(report.missing.is_empty(), "{report:?}");
    assert_eq!(report.images, ["a.b/pause:1"]);
    assert_eq!(report.written.len(), 5);
    let resolved = resolve(&fs);
    assert!(resolved.artifacts.iter().all(|a| a.verified));
    assert_eq!(resolved.artifacts.len(), 5);
    let manifest: Value = serde_json::from_str(&fs.text(at("manifest.json"))).unwrap();
    assert_eq!(manifest["schemaVersion"], 1);
    assert_eq!(manifest["versions"]["kubernetes"], "v1.36.3");
    assert_eq!(manifest["versions"]["containerd"], "2.1.9");
    assert_eq!(manifest["digests"].as_object().unwrap().len(), 5);
    let sidecar = format!("{}  kubelet\n", Digest::of(&program("kubelet")));
    assert_eq!(fs.text(at(&format!("{KUBELET}.sha256"))), sidecar);
    let temporary = |path: &&PathBuf| path.to_string_lossy().contains(flexnode_host::durable::TEMP_PREFIX);
    assert_eq!(fs.tree().0.keys().find(temporary), None);
}

#[test]
fn a_second_run_changes_nothing() {
    let (fs, request) = downloads();
    run(&fs, &request).unwrap();
    // The directory's own time moves with the temporary files; content, modes and inodes of the bundle do not.
    let files = |fs: &MemFs| [KUBELET, CONTAINERD, RUNC, CNI, "manifest.json"].map(|p| fs.lstat(&at(p)).unwrap());
    let before = files(&fs);
    let report = run(&fs, &request).unwrap();
    assert_eq!((report.written.len(), report.unchanged.len()), (0, 5));
    assert_eq!(files(&fs), before);
}

#[test]
fn what_is_missing_is_named_with_its_file_name_and_can_be_added() {
    let (fs, request) = downloads();
    let first = BundleRequest { containerd: None, cni: None, images: vec![], ..request.clone() };
    let report = run(&fs, &first).unwrap();
    assert_eq!(
        report.missing,
        [
            "containerd is missing: give --containerd containerd-VERSION-linux-amd64.tar.gz",
            "cni is missing: give --cni cni-plugins-linux-amd64-vVERSION.tgz",
        ]
    );
    assert!(report.notes.iter().any(|note| note.contains("pause")), "{report:?}");
    let second = BundleRequest { kubelet: None, runc: None, ..request };
    let report = run(&fs, &second).unwrap();
    assert!(report.missing.is_empty(), "{report:?}");
    assert_eq!(resolve(&fs).artifacts.len(), 5);
}

#[test]
fn programs_in_directories_and_plain_archives_are_packed() {
    let (fs, request) = downloads();
    for (name, text) in
        [("containerd", "containerd"), ("ctr", "ctr"), ("containerd-shim-runc-v2", "shim"), ("bash", "no")]
    {
        fs.put(format!("/usr/bin/{name}"), program(text), 0o755);
    }
    fs.put("/d/plugins.tar", cni_tar(), 0o644);
    fs.put("/d/node.tar.gz", gzip(&tar(&[("kubernetes/node/bin/kubelet", program("kubelet"), 0o755)])), 0o644);
    let request = BundleRequest {
        containerd: Some("/usr/bin".into()),
        cni: Some("/d/plugins.tar".into()),
        kubelet: Some("/d/node.tar.gz".into()),
        ..request
    };
    let report = run(&fs, &request).unwrap();
    assert!(report.missing.is_empty(), "{report:?}");
    let files = crate::install(&fs, &resolve(&fs).artifacts, &slot(), &false.into()).unwrap();
    assert_eq!(files.len(), 8, "{files:?}");
    assert!(!fs.exists("/slot/bin/bash"));
    assert_eq!(run(&fs, &request).unwrap().written, Vec::<String>::new(), "the same programs give the same archive");
}

#[test]
fn an_image_archive_with_two_names_serves_both() {
    let (fs, request) = downloads();
    let saved = r#"[{"RepoTags":["pause:1"]},{"RepoTags":["a.b/web:2"]}]"#;
    fs.put("/d/two.tar.gz", gzip(&tar(&[("manifest.json", saved.into(), 0o644)])), 0o644);
    let request = BundleRequest { images: vec!["/d/two.tar.gz".into()], ..request };
    assert_eq!(run(&fs, &request).unwrap().images, ["a.b/web:2", "docker.io/library/pause:1"]);
    assert_eq!(resolve(&fs).images().count(), 2);
}

#[test]
fn what_cannot_be_packed_is_told_with_the_way_out() {
    let arm = {
        let mut bytes = program("kubelet");
        bytes[18] = 183;
        bytes
    };
    let cases: [(&str, Vec<u8>, &str); 4] = [
        ("/d/kubelet", arm, "it is for arm64, the bundle is for amd64"),
        ("/d/kubelet", b"<html>".to_vec(), "neither a Linux program nor an archive"),
        ("/d/kubelet", program("silent"), "give --kubernetes-version"),
        ("/d/pause.tar", tar(&[("index.json", b"{}".to_vec(), 0o644)]), "names no image"),
    ];
    for (path, bytes, wanted) in cases {
        let (fs, request) = downloads();
        fs.put(path, bytes, 0o644);
        let text = told(&run(&fs, &request).unwrap_err());
        assert!(text.contains(wanted) && text.contains(path), "{text}");
        assert!(!fs.exists(at("manifest.json")));
    }
    let (fs, request) = downloads();
    let request = BundleRequest { kubelet: Some("/d/none".into()), ..request };
    assert!(told(&run(&fs, &request).unwrap_err()).contains("it is not there"));
}

#[test]
fn a_version_that_is_told_wins_and_one_in_a_name_saves_asking() {
    let (fs, mut request) = downloads();
    fs.put("/d/kubelet", program("silent"), 0o644);
    request.versions = Versions { kubernetes: Some("v1.37.0".into()), ..Versions::default() };
    run(&fs, &request).unwrap();
    assert!(fs.exists(at("kubernetes/v1.37.0/bin/linux/amd64/kubelet")));
    request.versions.kubernetes = Some("../x".into());
    assert!(told(&run(&fs, &request).unwrap_err()).contains("no version"));
    request.containerd = Some("/d/containerd-2.1.9-linux-arm64.tar.gz".into());
    request.versions.kubernetes = Some("1.37.0".into());
    fs.put("/d/containerd-2.1.9-linux-arm64.tar.gz", "x", 0o644);
    assert!(told(&run(&fs, &request).unwrap_err()).contains("it is for arm64"));
}

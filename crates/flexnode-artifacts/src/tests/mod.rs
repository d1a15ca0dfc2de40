//! Tests over a file system in memory: a whole bundle, hostile ones, and failures at every point.

mod hostile;
mod installing;
mod packing;
mod resolving;

use crate::{Bundle, Destinations, Digest, Resolved, Trust, Wanted};
use flate2::Compression;
use flate2::write::GzEncoder;
use flexnode_host::testing::MemFs;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

pub(super) const DIR: &str = "/srv/bundle";
pub(super) const KUBELET: &str = "kubernetes/v1.36.3/bin/linux/amd64/kubelet";
pub(super) const CONTAINERD: &str = "containerd/v2.1.9/containerd-2.1.9-linux-amd64.tar.gz";
pub(super) const RUNC: &str = "runc/v1.3.6/runc.amd64";
pub(super) const CNI: &str = "cni/v1.9.1/cni-plugins-linux-amd64-v1.9.1.tgz";
pub(super) const IMAGE: &str = "container-images/amd64/a.b_pause_1-";

/// A program for amd64 as far as anybody looks: an ELF header and a text.
pub(super) fn program(text: &str) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(18, 0);
    bytes.extend([62, 0]);
    bytes.extend(text.as_bytes());
    bytes
}

/// An archive with members (name, content, mode).
pub(super) fn tar(members: &[(&str, Vec<u8>, u32)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, content, mode) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(*mode);
        tar.append_data(&mut header, name, content.as_slice()).unwrap();
    }
    tar.into_inner().unwrap()
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

pub(super) fn containerd_tar() -> Vec<u8> {
    tar(&[
        ("bin/containerd", program("containerd"), 0o755),
        ("bin/containerd-shim-runc-v2", program("shim"), 0o755),
        ("bin/ctr", program("ctr"), 0o755),
        ("LICENSE", b"text".to_vec(), 0o644),
    ])
}

pub(super) fn cni_tar() -> Vec<u8> {
    let large = "x".repeat(700_000);
    tar(&[
        ("./loopback", program("loopback"), 0o755),
        ("./host-local", program("host-local"), 0o755),
        ("./bridge", program(&large), 0o755),
        ("./README.md", b"text".to_vec(), 0o644),
    ])
}

pub(super) fn wanted() -> Wanted {
    Wanted { kubernetes: "v1.36.3".into(), arch: "amd64".into(), ..Wanted::default() }
}

/// A complete bundle: digests in the manifest, or beside the file where the layout has that.
pub(super) fn bundle() -> MemFs {
    let fs = MemFs::new();
    let files = [
        (KUBELET, program("kubelet")),
        (CONTAINERD, gzip(&containerd_tar())),
        (RUNC, program("runc")),
        (CNI, gzip(&cni_tar())),
    ];
    let mut digests = serde_json::Map::new();
    for (path, bytes) in files {
        if path == KUBELET {
            fs.put(at(&format!("{path}.sha256")), format!("{}  kubelet\n", Digest::of(&bytes)), 0o644);
        } else {
            digests.insert(path.into(), Digest::of(&bytes).to_string().into());
        }
        fs.put(at(path), bytes, 0o644);
    }
    let image = crate::image_path("a.b/pause:1", "amd64").unwrap();
    let bytes = b"image".to_vec();
    fs.put(at(&format!("{image}.sha256")), Digest::of(&bytes).to_string(), 0o644);
    fs.put(at(&image), bytes, 0o644);
    put_manifest(&fs, &manifest(&digests));
    fs
}

pub(super) fn manifest(digests: &serde_json::Map<String, Value>) -> Value {
    json!({
        "schemaVersion": 1,
        "versions": {"kubernetes": "v1.36.3", "containerd": "2.1.9", "runc": "1.3.6", "cni": "1.9.1"},
        "containerImages": ["a.b/pause:1"],
        "digests": digests,
    })
}

pub(super) fn put_manifest(fs: &MemFs, manifest: &Value) {
    fs.put(at("manifest.json"), manifest.to_string(), 0o644);
}

/// Changes the manifest.
pub(super) fn edit(fs: &MemFs, change: impl FnOnce(&mut Value)) {
    let mut manifest = serde_json::from_str(&fs.text(at("manifest.json"))).unwrap();
    change(&mut manifest);
    put_manifest(fs, &manifest);
}

pub(super) fn at(path: &str) -> std::path::PathBuf {
    Path::new(DIR).join(path)
}

pub(super) fn open(fs: &MemFs) -> Result<Bundle, crate::ArtifactError> {
    Bundle::open(Arc::new(fs.clone()), Path::new(DIR), Trust::root())
}

pub(super) fn resolve(fs: &MemFs) -> Resolved {
    open(fs).unwrap().resolve(&wanted()).unwrap()
}

pub(super) fn slot() -> Destinations {
    Destinations { bin: "/slot/bin".into(), cni: "/slot/cni".into() }
}

/// An error with its causes, as a person sees it.
pub(super) fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

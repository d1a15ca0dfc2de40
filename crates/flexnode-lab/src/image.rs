//! Container images: OCI archives (image-spec 1.0, image layout) with one layer around a static busybox.

use crate::cache::hex;
use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use tar::{Builder, EntryType, Header};

/// The sandbox image.
pub const PAUSE: &str = "flexnode.invalid/lab/pause:1";
/// An image whose container answers [`WEB_ANSWER`] over HTTP on port 80.
pub const WEB: &str = "flexnode.invalid/lab/web:1";
/// What the web image answers.
pub const WEB_ANSWER: &str = "flexnode-lab\n";

const APPLETS: [&str; 16] = [
    "sh", "sleep", "ls", "cat", "nslookup", "wget", "httpd", "hostname", "ip", "echo", "touch", "mkdir", "ps", "kill",
    "id", "env",
];
const MEDIA: &str = "application/vnd.oci.image.";

/// Writes the archive of [`PAUSE`].
pub fn write_pause(busybox: &Path, to: &Path) -> Result<()> {
    write(busybox, PAUSE, &["/bin/sleep", "infinity"], to)
}

/// Writes the archive of [`WEB`].
pub fn write_web(busybox: &Path, to: &Path) -> Result<()> {
    // The first process of a container ignores SIGTERM unless it asks for it; a pod would take its whole grace to end.
    write(busybox, WEB, &["/bin/sh", "-c", "trap 'exit 0' TERM; httpd -f -p 80 -h /www & wait"], to)
}

/// Writes the archive of an image that runs `command`; for `ctr images import` and for an offline bundle.
pub fn write(busybox: &Path, name: &str, command: &[&str], to: &Path) -> Result<()> {
    let busybox = fs::read(busybox).with_context(|| format!("cannot read {}", busybox.display()))?;
    let layer = root_layer(&busybox)?;
    let mut packed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::fast());
    packed.write_all(&layer)?;
    let packed = packed.finish()?;
    let config = json!({
        "architecture": architecture(), "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
    });
    let config = config.to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": format!("{MEDIA}manifest.v1+json"),
        "config": descriptor("config.v1+json", &config), "layers": [descriptor("layer.v1.tar+gzip", &packed)],
    });
    let manifest = manifest.to_string().into_bytes();
    let mut entry = descriptor("manifest.v1+json", &manifest);
    entry["annotations"] = json!({"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name});
    let index = json!({"schemaVersion": 2, "manifests": [entry]}).to_string();
    let mut archive = Builder::new(Vec::new());
    add(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
    add(&mut archive, "index.json", index.as_bytes(), 0o644)?;
    for blob in [&config, &manifest, &packed] {
        add(&mut archive, &format!("blobs/{}", digest(blob).replace(':', "/")), blob, 0o644)?;
    }
    fs::write(to, archive.into_inner()?).with_context(|| format!("cannot write {}", to.display()))
}

fn root_layer(busybox: &[u8]) -> Result<Vec<u8>> {
    let mut layer = Builder::new(Vec::new());
    for name in ["bin", "tmp", "etc", "www"] {
        let mut header = header(EntryType::Directory, 0, 0o755);
        layer.append_data(&mut header, name, std::io::empty())?;
    }
    add(&mut layer, "bin/busybox", busybox, 0o755)?;
    add(&mut layer, "www/index.html", WEB_ANSWER.as_bytes(), 0o644)?;
    for name in APPLETS {
        let mut header = header(EntryType::Symlink, 0, 0o777);
        layer.append_link(&mut header, format!("bin/{name}"), "busybox")?;
    }
    Ok(layer.into_inner()?)
}

fn header(kind: EntryType, size: usize, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size as u64);
    header.set_mode(mode);
    header.set_mtime(0);
    header
}

fn add(archive: &mut Builder<Vec<u8>>, name: &str, bytes: &[u8], mode: u32) -> Result<()> {
    archive.append_data(&mut header(EntryType::Regular, bytes.len(), mode), name, bytes)?;
    Ok(())
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": format!("{MEDIA}{kind}"), "digest": digest(bytes), "size": bytes.len()})
}

/// This machine's architecture as images and releases name it.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::{PAUSE, digest, write_pause};
    use serde_json::Value;
    use std::collections::BTreeMap;
    use std::io::Read as _;

    #[test]
    fn every_blob_has_the_name_that_its_bytes_give() {
        let folder = tempfile::tempdir().unwrap();
        let (busybox, image) = (folder.path().join("busybox"), folder.path().join("image.tar"));
        std::fs::write(&busybox, "not really").unwrap();
        write_pause(&busybox, &image).unwrap();
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(std::fs::File::open(&image).unwrap()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.insert(entry.path().unwrap().to_str().unwrap().to_owned(), bytes);
        }
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], PAUSE);
        let blobs: Vec<_> =
            files.iter().filter_map(|(name, bytes)| Some((name.strip_prefix("blobs/")?, bytes))).collect();
        assert_eq!(blobs.len(), 3);
        for (name, bytes) in blobs {
            assert_eq!(name.replace('/', ":"), digest(bytes));
        }
    }
}

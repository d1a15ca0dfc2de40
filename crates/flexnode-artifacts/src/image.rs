//! Which images an archive holds: OCI layouts and what `docker save` writes.

use crate::error::ArtifactError;
use crate::tarball::{self, Limits};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

/// Largest index that is read.
const MAX_INDEX: u64 = 4 << 20;
/// The full reference, as containerd and newer docker programs write it.
const FULL_NAME: &str = "io.containerd.image.name";
/// The reference or only its tag (OCI image specification, annotations).
const REF_NAME: &str = "org.opencontainers.image.ref.name";

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Saved {
    #[serde(rename = "RepoTags", default)]
    tags: Option<Vec<String>>,
}

/// The references of the images in `archive`, as `ctr images import` will name them, sorted. Reads `reader` to its end.
pub(crate) fn references(reader: &mut dyn Read, archive: &Path) -> Result<Vec<String>, ArtifactError> {
    let (mut index, mut saved) = (None, None);
    tarball::walk(reader, archive, Limits::IMAGES, &mut |member, bytes| {
        let place = match member.name.as_str() {
            "index.json" => &mut index,
            "manifest.json" => &mut saved,
            _ => return Ok(()),
        };
        let mut text = Vec::new();
        let read = bytes.take(MAX_INDEX + 1).read_to_end(&mut text);
        if read.map_or(true, |n| n as u64 > MAX_INDEX) {
            return Err(ArtifactError::archive(archive, format!("its {} cannot be read or is too large", member.name)));
        }
        *place = Some(text);
        Ok(())
    })?;
    let mut found = BTreeSet::new();
    if let Some(text) = index {
        let index: Index = json(&text, archive, "index.json")?;
        for annotations in index.manifests.into_iter().map(|m| m.annotations) {
            let partial = annotations.get(REF_NAME).filter(|name| name.contains(['/', ':', '@']));
            found.extend(annotations.get(FULL_NAME).or(partial).cloned());
        }
    }
    if found.is_empty()
        && let Some(text) = saved
    {
        let saved: Vec<Saved> = json(&text, archive, "manifest.json")?;
        found.extend(saved.into_iter().filter_map(|image| image.tags).flatten().map(|tag| full_reference(&tag)));
    }
    Ok(found.into_iter().collect())
}

fn json<'a, T: Deserialize<'a>>(text: &'a [u8], archive: &Path, name: &str) -> Result<T, ArtifactError> {
    serde_json::from_slice(text).map_err(|e| ArtifactError::Archive {
        path: archive.to_path_buf(),
        reason: format!("its {name} is not that of an image archive"),
        source: Some(e.into()),
    })
}

/// A short name in full, by docker's rules: `pause:1` is `docker.io/library/pause:1`.
pub(crate) fn full_reference(name: &str) -> String {
    let (first, rest) = name.split_once('/').unwrap_or(("", name));
    let has_registry = first.contains(['.', ':']) || first == "localhost";
    let mut full = match (has_registry, first) {
        (true, _) => name.to_owned(),
        (false, "") => format!("docker.io/library/{rest}"),
        (false, _) => format!("docker.io/{name}"),
    };
    let last = full.rsplit('/').next().unwrap_or_default();
    if !last.contains([':', '@']) {
        full.push_str(":latest");
    }
    full
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(files: &[(&str, &str)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, text) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap()
    }

    fn read(files: &[(&str, &str)]) -> Result<Vec<String>, ArtifactError> {
        references(&mut archive(files).as_slice(), Path::new("/x.tar"))
    }

    #[test]
    fn short_names_are_completed_as_docker_does() {
        let cases = [
            ("pause:1", "docker.io/library/pause:1"),
            ("pause", "docker.io/library/pause:latest"),
            ("lab/pause:1", "docker.io/lab/pause:1"),
            ("localhost/pause", "localhost/pause:latest"),
            ("localhost:5000/pause", "localhost:5000/pause:latest"),
            ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
            ("a.b/c@sha256:00", "a.b/c@sha256:00"),
        ];
        for (short, full) in cases {
            assert_eq!(full_reference(short), full);
        }
    }

    #[test]
    fn an_oci_layout_names_its_images() {
        let index = r#"{"schemaVersion":2,"manifests":[
            {"annotations":{"io.containerd.image.name":"docker.io/lab/pause:1","org.opencontainers.image.ref.name":"1"}},
            {"annotations":{"org.opencontainers.image.ref.name":"registry.k8s.io/pause:3.10"}},
            {"annotations":{"org.opencontainers.image.ref.name":"latest"}}, {}]}"#;
        let files = [("oci-layout", "{}"), ("index.json", index), ("blobs/sha256/00", "layer")];
        assert_eq!(read(&files).unwrap(), ["docker.io/lab/pause:1", "registry.k8s.io/pause:3.10"]);
    }

    #[test]
    fn a_saved_docker_image_names_its_tags() {
        let saved = r#"[{"Config":"x","RepoTags":["pause:1","a.b/c:2"]},{"RepoTags":null}]"#;
        assert_eq!(read(&[("manifest.json", saved)]).unwrap(), ["a.b/c:2", "docker.io/library/pause:1"]);
    }

    #[test]
    fn an_archive_without_names_has_none_and_garbage_is_refused() {
        assert_eq!(read(&[("etc/passwd", "")]).unwrap(), Vec::<String>::new());
        assert!(read(&[("index.json", "[")]).is_err());
        assert!(references(&mut &b"no archive"[..], Path::new("/x")).is_err());
    }
}

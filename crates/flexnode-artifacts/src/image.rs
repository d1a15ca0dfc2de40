//! Which images an archive holds: OCI layouts and what `docker save` writes.
//!
//! A reference may be moved to another content. What tells the contents apart is the digest of an image's configuration,
//! which runtimes call the image's identifier.

use crate::error::ArtifactError;
use crate::tarball::{self, Limits};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

/// Largest index that is read.
const MAX_INDEX: u64 = 4 << 20;
/// Largest blob that may be a manifest; registries take no larger ones than 4 MiB.
const MAX_BLOB: u64 = 4 << 20;
/// Bytes of all such blobs of an archive.
const MAX_BLOBS: u64 = 64 << 20;
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
    digest: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Descriptor {
    /// The reference that `ctr images import` gives it.
    fn reference(&self) -> Option<&str> {
        let partial = self.annotations.get(REF_NAME).filter(|name| name.contains(['/', ':', '@']));
        self.annotations.get(FULL_NAME).or(partial).map(String::as_str)
    }
}

/// A manifest, or an index of manifests for several platforms (OCI image specification).
#[derive(Deserialize)]
struct Manifest {
    config: Option<Descriptor>,
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Saved {
    #[serde(rename = "Config", default)]
    config: String,
    #[serde(rename = "RepoTags", default)]
    tags: Option<Vec<String>>,
}

/// The small files of an archive that say what is in it.
#[derive(Default)]
struct Contents {
    index: Option<Vec<u8>>,
    saved: Option<Vec<u8>>,
    /// Blobs that may be manifests, by their hexadecimal digest.
    blobs: BTreeMap<String, Vec<u8>>,
}

impl Contents {
    /// Reads `reader` to its end. Blobs are kept when `manifests` are wanted and they look like them.
    fn read(reader: &mut dyn Read, archive: &Path, manifests: bool) -> Result<Self, ArtifactError> {
        let mut contents = Contents::default();
        let mut room = MAX_BLOBS;
        tarball::walk(reader, archive, Limits::IMAGES, &mut |member, bytes| {
            let place = match member.name.as_str() {
                "index.json" => &mut contents.index,
                "manifest.json" => &mut contents.saved,
                name => {
                    if let Some(hex) = name.strip_prefix("blobs/sha256/").filter(|_| manifests)
                        && let Some(blob) = small_json(bytes, room)
                    {
                        room -= blob.len() as u64;
                        contents.blobs.insert(hex.to_owned(), blob);
                    }
                    return Ok(());
                }
            };
            let mut text = Vec::new();
            let read = bytes.take(MAX_INDEX + 1).read_to_end(&mut text);
            if read.map_or(true, |n| n as u64 > MAX_INDEX) {
                let reason = format!("its {} cannot be read or is too large", member.name);
                return Err(ArtifactError::archive(archive, reason));
            }
            *place = Some(text);
            Ok(())
        })?;
        Ok(contents)
    }

    fn index(&self, archive: &Path) -> Result<Vec<Descriptor>, ArtifactError> {
        let index: Option<Index> = self.index.as_deref().map(|text| json(text, archive, "index.json")).transpose()?;
        Ok(index.map(|index| index.manifests).unwrap_or_default())
    }

    fn saved(&self, archive: &Path) -> Result<Vec<Saved>, ArtifactError> {
        Ok(self.saved.as_deref().map(|text| json(text, archive, "manifest.json")).transpose()?.unwrap_or_default())
    }

    /// The configurations that a descriptor leads to: one for each platform.
    fn configs(&self, digest: &str, depth: u8, found: &mut BTreeSet<String>) {
        let blob = digest.strip_prefix("sha256:").and_then(|hex| self.blobs.get(hex));
        let Some(manifest) = blob.and_then(|blob| serde_json::from_slice::<Manifest>(blob).ok()) else { return };
        found.extend(manifest.config.map(|config| config.digest));
        // An index of indexes is as deep as anything goes.
        for inner in manifest.manifests.iter().filter(|_| depth < 3) {
            self.configs(&inner.digest, depth + 1, found);
        }
    }
}

/// The bytes of a blob that is JSON and small; layers are neither.
fn small_json(bytes: &mut dyn Read, room: u64) -> Option<Vec<u8>> {
    let limit = MAX_BLOB.min(room);
    let mut blob = vec![0];
    bytes.read_exact(&mut blob).ok().filter(|()| blob[0] == b'{')?;
    let read = bytes.take(limit).read_to_end(&mut blob).ok()?;
    ((read as u64) < limit).then_some(blob)
}

/// The references of the images in `archive`, as `ctr images import` will name them, sorted. Reads `reader` to its end.
pub(crate) fn references(reader: &mut dyn Read, archive: &Path) -> Result<Vec<String>, ArtifactError> {
    let contents = Contents::read(reader, archive, false)?;
    let index = contents.index(archive)?;
    let mut found: BTreeSet<String> = index.iter().filter_map(|entry| entry.reference().map(str::to_owned)).collect();
    if found.is_empty() {
        let tags = contents.saved(archive)?.into_iter().filter_map(|image| image.tags).flatten();
        found.extend(tags.map(|tag| full_reference(&tag)));
    }
    Ok(found.into_iter().collect())
}

/// The identifiers (`sha256:...`) that the image `reference` of the archive may have in a runtime's store: one for each
/// platform that the archive has it for. None when the archive does not tell. Reads `reader` to its end.
pub(crate) fn identifiers(
    reader: &mut dyn Read,
    archive: &Path,
    reference: &str,
) -> Result<BTreeSet<String>, ArtifactError> {
    let contents = Contents::read(reader, archive, true)?;
    let mut found = BTreeSet::new();
    for entry in contents.index(archive)?.iter().filter(|entry| entry.reference() == Some(reference)) {
        contents.configs(&entry.digest, 0, &mut found);
    }
    if found.is_empty() {
        let is_it = |image: &Saved| image.tags.iter().flatten().any(|tag| full_reference(tag) == reference);
        // `HEX.json`, or `blobs/sha256/HEX` of newer programs.
        let hex = |config: &str| {
            let name = config.rsplit('/').next().unwrap_or(config);
            let name = name.strip_suffix(".json").unwrap_or(name);
            (name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit())).then(|| format!("sha256:{name}"))
        };
        found.extend(
            contents.saved(archive)?.iter().filter(|image| is_it(image)).filter_map(|image| hex(&image.config)),
        );
    }
    Ok(found)
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

    fn ids(files: &[(&str, &str)], reference: &str) -> Vec<String> {
        let found = identifiers(&mut archive(files).as_slice(), Path::new("/x.tar"), reference).unwrap();
        found.into_iter().collect()
    }

    #[test]
    fn an_image_is_told_by_its_configuration_for_each_platform() {
        let index = r#"{"manifests":[
            {"digest":"sha256:aa","annotations":{"io.containerd.image.name":"a.b/c:1"}},
            {"digest":"sha256:ff","annotations":{"io.containerd.image.name":"a.b/other:1"}}]}"#;
        let files = [
            (
                "blobs/sha256/aa",
                r#"{"manifests":[{"digest":"sha256:bb"},{"digest":"sha256:cc"},{"digest":"sha256:dd"}]}"#,
            ),
            ("blobs/sha256/bb", r#"{"config":{"digest":"sha256:01"},"layers":[]}"#),
            ("blobs/sha256/cc", r#"{"config":{"digest":"sha256:02"}}"#),
            ("blobs/sha256/dd", "a layer"),
            ("blobs/sha256/ff", r#"{"config":{"digest":"sha256:03"}}"#),
            ("index.json", index),
        ];
        assert_eq!(ids(&files, "a.b/c:1"), ["sha256:01", "sha256:02"]);
        assert_eq!(ids(&files, "a.b/other:1"), ["sha256:03"]);
        assert_eq!(ids(&files, "a.b/none:1"), [""; 0]);
        // An index that leads to itself.
        let loops = [("blobs/sha256/aa", r#"{"manifests":[{"digest":"sha256:aa"}]}"#), ("index.json", index)];
        assert_eq!(ids(&loops, "a.b/c:1"), [""; 0]);
    }

    #[test]
    fn a_saved_docker_image_is_told_by_the_name_of_its_configuration() {
        let hex = "ab".repeat(32);
        for config in [format!("{hex}.json"), format!("blobs/sha256/{hex}")] {
            let saved = format!(r#"[{{"Config":"{config}","RepoTags":["pause:1"]}}]"#);
            let files = [("manifest.json", saved.as_str())];
            assert_eq!(ids(&files, "docker.io/library/pause:1"), [format!("sha256:{hex}")]);
            assert_eq!(ids(&files, "docker.io/library/pause:2"), [""; 0]);
        }
    }
}

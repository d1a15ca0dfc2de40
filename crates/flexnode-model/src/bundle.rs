//! `manifest.json` of an offline bundle: what is in it, and with which digests.

use crate::document::{self, DocumentError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Versions of the components in a bundle, with `v` or without, as the bundle has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleVersions {
    /// Kubernetes; with `v` in bundles of the original tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// containerd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containerd: Option<String>,
    /// runc.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runc: Option<String>,
    /// CNI plugins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cni: Option<String>,
    /// crictl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crictl: Option<String>,
}

/// The manifest of a bundle. Keys that are not known (versions of other components) are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleManifest {
    /// Format: 1. A manifest with 0 or without this key counts as 1.
    #[serde(default)]
    pub schema_version: u32,
    /// Versions of what is in it.
    #[serde(default)]
    pub versions: BundleVersions,
    /// References of the images whose archives are in it; after reading without blanks around, each once, sorted.
    #[serde(default, deserialize_with = "null_as_default")]
    pub container_images: Vec<String>,
    /// SHA-256 (64 hex digits) of files in the bundle, by their path. An addition of ours: bundles of the original tools
    /// do not have it.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub digests: BTreeMap<String, String>,
}

/// Go writes an empty list as null.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

impl BundleManifest {
    /// The format that is written.
    pub const VERSION: u32 = 1;
    const KIND: &'static str = "bundle manifest";

    /// Reads a manifest. Digests that are no 64 hex digits are an error; they come in lower case.
    pub fn decode(bytes: &[u8]) -> Result<Self, DocumentError> {
        let mut manifest: Self = document::from_value(document::parse(bytes, Self::KIND)?, Self::KIND)?;
        if manifest.schema_version > Self::VERSION {
            let found = manifest.schema_version.to_string();
            return Err(DocumentError::Version { kind: Self::KIND, found, known: Self::VERSION });
        }
        manifest.schema_version = Self::VERSION;
        let images = &mut manifest.container_images;
        for image in images.iter_mut() {
            *image = image.trim().to_owned();
        }
        images.retain(|image| !image.is_empty());
        images.sort_unstable();
        images.dedup();
        for (path, digest) in &mut manifest.digests {
            if digest.len() != 64 || !digest.bytes().all(|b| b.is_ascii_hexdigit()) {
                let source = serde::de::Error::custom("a digest is no SHA-256 in 64 hex digits");
                return Err(DocumentError::Shape { kind: Self::KIND, at: format!("digests.{path}"), source });
            }
            digest.make_ascii_lowercase();
        }
        Ok(manifest)
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        document::encode(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_of_the_original_tools_is_read() {
        let bytes = br#"{"schemaVersion": 0, "versions": {"kubernetes": "v1.36.3", "coredns": "1.12.3"},
            "containerImages": [" b:1", "a:1", "b:1 ", ""]}"#;
        let manifest = BundleManifest::decode(bytes).unwrap();
        assert_eq!(manifest.schema_version, 1);
        assert_eq!(manifest.container_images, ["a:1", "b:1"]);
        assert_eq!(manifest.versions.kubernetes.as_deref(), Some("v1.36.3"));
        assert_eq!(BundleManifest::decode(br#"{"containerImages": null}"#).unwrap().container_images, [""; 0]);
    }

    #[test]
    fn another_version_or_shape_is_refused() {
        assert!(matches!(BundleManifest::decode(br#"{"schemaVersion": 2}"#), Err(DocumentError::Version { .. })));
        assert!(matches!(BundleManifest::decode(b""), Err(DocumentError::Empty { .. })));
        let Err(DocumentError::Shape { at, .. }) = BundleManifest::decode(br#"{"versions": {"runc": 5}}"#) else {
            panic!()
        };
        assert_eq!(at, "versions.runc");
        let Err(DocumentError::Shape { at, .. }) = BundleManifest::decode(br#"{"digests": {"a/b": "0"}}"#) else {
            panic!()
        };
        assert_eq!(at, "digests.a/b");
    }

    #[test]
    fn digests_come_in_lower_case() {
        let text = format!(r#"{{"digests": {{"a": "{}"}}}}"#, "AB".repeat(32));
        assert_eq!(BundleManifest::decode(text.as_bytes()).unwrap().digests["a"], "ab".repeat(32));
    }
}

//! Artifacts: from a source that is not trusted byte by byte to programs in a slot, verified on the way.
//!
//! The way of the data: [`Bundle::open`] reads the manifest of an offline bundle and refuses one that others than root
//! could change; [`Bundle::resolve`] says which files a machine needs, with their digests; [`install`] copies and
//! unpacks them in one pass, hashing, and gives final names only to what matched; [`Bundle::verified_image`] checks an
//! image archive before it is imported. [`bundle::pack`] is the other end: it makes a bundle from release files.
//!
//! What is read from a source never decides where something is written: destinations are roles and checked file names
//! below directories that the caller gives. All effects go through [`flexnode_host::Fs`].

pub mod bundle;
mod digest;
mod error;
mod image;
mod install;
mod names;
mod resolve;
mod source;
mod stage;
mod tarball;
#[cfg(test)]
mod tests;
mod trust;

pub use digest::{Digest, DigestError, parse_sidecar};
pub use error::ArtifactError;
pub use install::{Destinations, InstalledFile, install};
pub use names::{ARCHITECTURES, Role, clean_version, image_path, version_in_answer};
pub use resolve::{Artifact, Resolved, VerifiedImage, Wanted};
pub use source::Bundle;
pub use trust::Trust;

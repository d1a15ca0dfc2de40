//! The container runtime as kubelet sees it: the few calls of the CRI (runtime.v1) that the agent needs.
//!
//! Upgrade and reset end the pods through it ([`end_all_sandboxes`]), readiness asks for the runtime's conditions, and
//! the import of images is checked by it. Starting pods is kubelet's work and is not here.

mod end;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
mod socket;
mod wire;

pub use end::{EndReport, Remaining, SandboxEnd, end_all_sandboxes};
pub use socket::CriSocket;

use crate::HostError;
use async_trait::async_trait;
use std::fmt::Debug;
use std::time::Duration;

/// Where containerd listens (`/run/containerd/containerd.sock` on every Kubernetes node with containerd).
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// A limit for calls that only read. containerd answers them from memory.
pub const READ_DEADLINE: Duration = Duration::from_secs(5);

/// What the runtime says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// `containerd`.
    pub name: String,
    /// The runtime's version as it prints it: `v2.1.9` or `1.7.24~ds1`.
    pub version: String,
    /// Version of the CRI that it speaks: `v1`.
    pub api_version: String,
}

/// The two conditions that kubelet builds the Node's readiness on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeStatus {
    /// `RuntimeReady`: containers can be made.
    pub runtime_ready: bool,
    /// `NetworkReady`: the network plugin is there and initialised.
    pub network_ready: bool,
    /// Reason and message of each condition that is not true, in the runtime's words.
    pub reasons: Vec<String>,
}

/// State of a pod sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxState {
    /// Its pause process runs.
    Ready,
    /// It was stopped or died.
    NotReady,
}

/// A pod sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// The runtime's identifier.
    pub id: String,
    /// Name of the pod.
    pub name: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// UID of the pod.
    pub uid: String,
    /// Whether it runs.
    pub state: SandboxState,
    /// When it was made.
    pub created: jiff::Timestamp,
}

impl Sandbox {
    /// `namespace/name`, for a person.
    pub fn pod(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// An image in the runtime's store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Its identifier: `sha256:...` of the configuration.
    pub id: String,
    /// Names with a tag.
    pub tags: Vec<String>,
    /// Names with a digest.
    pub digests: Vec<String>,
    /// Size in bytes.
    pub size: u64,
    /// Whether image collection leaves it alone.
    pub pinned: bool,
}

/// A container runtime. Every call ends within `deadline`, with [`HostError::Deadline`] when it has to.
///
/// A runtime that does not listen is [`HostError::Absent`]; an answer other than success is [`HostError::Failed`].
#[async_trait]
pub trait Cri: Send + Sync + Debug {
    /// `RuntimeService/Version`.
    async fn version(&self, deadline: Duration) -> Result<RuntimeVersion, HostError>;
    /// `RuntimeService/Status`.
    async fn status(&self, deadline: Duration) -> Result<RuntimeStatus, HostError>;
    /// `RuntimeService/ListPodSandbox`, without a filter.
    async fn list_sandboxes(&self, deadline: Duration) -> Result<Vec<Sandbox>, HostError>;
    /// `RuntimeService/StopPodSandbox`: ends the pod's containers at once and takes its network away. One that is stopped
    /// or not there is a success.
    async fn stop_sandbox(&self, id: &str, deadline: Duration) -> Result<(), HostError>;
    /// `RuntimeService/RemovePodSandbox`: removes it with its containers. One that is not there is a success.
    async fn remove_sandbox(&self, id: &str, deadline: Duration) -> Result<(), HostError>;
    /// `ImageService/ListImages`, without a filter.
    async fn list_images(&self, deadline: Duration) -> Result<Vec<Image>, HostError>;
    /// `ImageService/ImageStatus` of a name with tag or digest; `None` when the store does not have it.
    async fn image_status(&self, reference: &str, deadline: Duration) -> Result<Option<Image>, HostError>;
    /// `ImageService/PullImage` of a name with tag or digest, with the credentials that the runtime has itself.
    async fn pull_image(&self, reference: &str, deadline: Duration) -> Result<(), HostError>;
}

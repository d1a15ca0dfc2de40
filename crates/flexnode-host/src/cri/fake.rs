//! A container runtime in memory, for tests of what uses [`Cri`].

use super::{Cri, Image, RuntimeStatus, RuntimeVersion, Sandbox, SandboxState};
use crate::HostError;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What goes wrong with one sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Stopping it never returns.
    Hang,
    /// Stopping it is refused with this text.
    Refuse(&'static str),
    /// Stopping it is confirmed and not done.
    Lie,
}

#[derive(Debug)]
struct State {
    running: bool,
    status: RuntimeStatus,
    version: RuntimeVersion,
    sandboxes: BTreeMap<String, Sandbox>,
    images: Vec<Image>,
    registry: Vec<String>,
    trouble: BTreeMap<String, Trouble>,
}

/// A runtime in memory: healthy, with the pods and images that the test gives it.
#[derive(Debug)]
pub struct FakeCri {
    state: Mutex<State>,
}

impl Default for FakeCri {
    fn default() -> Self {
        Self::with_pods(0)
    }
}

impl FakeCri {
    /// A runtime with running pods `default/pod-0`, `default/pod-1`, ...; their identifiers are their names.
    pub fn with_pods(count: usize) -> Self {
        let pod = |n: usize| Sandbox {
            id: format!("pod-{n}"),
            name: format!("pod-{n}"),
            namespace: "default".into(),
            uid: format!("00000000-0000-0000-0000-{n:012}"),
            state: SandboxState::Ready,
            created: jiff::Timestamp::UNIX_EPOCH,
        };
        let version = RuntimeVersion { name: "containerd".into(), version: "v2.1.9".into(), api_version: "v1".into() };
        Self {
            state: Mutex::new(State {
                running: true,
                status: RuntimeStatus { runtime_ready: true, network_ready: true, reasons: Vec::new() },
                version,
                sandboxes: (0..count).map(|n| (format!("pod-{n}"), pod(n))).collect(),
                images: Vec::new(),
                registry: Vec::new(),
                trouble: BTreeMap::new(),
            }),
        }
    }

    /// Whether it listens at all.
    pub fn set_running(&self, running: bool) {
        self.state().running = running;
    }
    /// What `status` answers.
    pub fn set_status(&self, status: RuntimeStatus) {
        self.state().status = status;
    }
    /// What `version` answers.
    pub fn set_version(&self, version: RuntimeVersion) {
        self.state().version = version;
    }
    /// Adds or replaces a sandbox.
    pub fn add_sandbox(&self, sandbox: Sandbox) {
        self.state().sandboxes.insert(sandbox.id.clone(), sandbox);
    }
    /// Adds an image.
    pub fn add_image(&self, image: Image) {
        self.state().images.push(image);
    }
    /// An image that can be pulled; any other cannot.
    pub fn add_to_registry(&self, name: &str) {
        self.state().registry.push(name.to_owned());
    }
    /// Forgets all images.
    pub fn clear_images(&self) {
        self.state().images.clear();
    }
    /// Makes one sandbox difficult.
    pub fn trouble(&self, id: &str, trouble: Trouble) {
        self.state().trouble.insert(id.to_owned(), trouble);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answering(&self) -> Result<MutexGuard<'_, State>, HostError> {
        let state = self.state();
        if !state.running {
            return Err(HostError::Absent { what: "a container runtime that listens at the fake socket".into() });
        }
        Ok(state)
    }
}

#[async_trait]
impl Cri for FakeCri {
    async fn version(&self, _: Duration) -> Result<RuntimeVersion, HostError> {
        Ok(self.answering()?.version.clone())
    }

    async fn status(&self, _: Duration) -> Result<RuntimeStatus, HostError> {
        Ok(self.answering()?.status.clone())
    }

    async fn list_sandboxes(&self, _: Duration) -> Result<Vec<Sandbox>, HostError> {
        Ok(self.answering()?.sandboxes.values().cloned().collect())
    }

    async fn stop_sandbox(&self, id: &str, deadline: Duration) -> Result<(), HostError> {
        let trouble = self.answering()?.trouble.get(id).copied();
        match trouble {
            Some(Trouble::Hang) => {
                tokio::time::sleep(deadline).await;
                return Err(HostError::Deadline { what: format!("stopping sandbox {id}"), after: deadline });
            }
            Some(Trouble::Refuse(reason)) => {
                return Err(HostError::Failed { what: format!("stop sandbox {id}"), reason: reason.into() });
            }
            Some(Trouble::Lie) => return Ok(()),
            None => {}
        }
        if let Some(sandbox) = self.answering()?.sandboxes.get_mut(id) {
            sandbox.state = SandboxState::NotReady;
        }
        Ok(())
    }

    async fn remove_sandbox(&self, id: &str, _: Duration) -> Result<(), HostError> {
        self.answering()?.sandboxes.remove(id);
        Ok(())
    }

    async fn list_images(&self, _: Duration) -> Result<Vec<Image>, HostError> {
        Ok(self.answering()?.images.clone())
    }

    async fn image_status(&self, reference: &str, _: Duration) -> Result<Option<Image>, HostError> {
        let state = self.answering()?;
        let named = |i: &&Image| i.id == reference || i.tags.iter().chain(&i.digests).any(|name| name == reference);
        Ok(state.images.iter().find(named).cloned())
    }

    async fn pull_image(&self, reference: &str, _: Duration) -> Result<(), HostError> {
        let mut state = self.answering()?;
        if !state.registry.iter().any(|name| name == reference) {
            let what = format!("pull the image {reference}");
            return Err(HostError::Failed { what, reason: "no registry has it".into() });
        }
        state.images.push(Image { id: reference.to_owned(), tags: vec![reference.to_owned()], ..Image::default() });
        Ok(())
    }
}

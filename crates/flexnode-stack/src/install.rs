//! All that goes into one slot: programs and what is rendered for them.

use crate::containerd::{self, ContainerdError};
use crate::environment::{self, EncodeError};
use crate::facts::HostFacts;
use crate::kubelet;
use crate::places::{BIN, CNI_BIN, config};
use flexnode_artifacts::{Artifact, ArtifactError, Destinations, InstalledFile, Resolved};
use flexnode_host::durable;
use flexnode_host::{Fs, FsError};
use flexnode_isolation::NodeRoot;
use flexnode_model::MachineGoal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A slot that could not be filled.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// An artifact.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// The goal does not name what it was resolved to.
    #[error("the goal does not tell the version of containerd; resolve the artifact source first")]
    Unresolved,
    /// containerd's configuration.
    #[error("cannot render containerd's configuration")]
    Containerd(#[from] ContainerdError),
    /// kubelet's arguments.
    #[error("cannot render kubelet's arguments")]
    Environment(#[from] EncodeError),
    /// A file operation.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The thread that unpacked ended without an answer.
    #[error("the installation ended without an answer")]
    Lost,
}

/// A file of the slot's configuration.
#[derive(Clone, PartialEq, Eq)]
pub struct Rendered {
    /// Name below the slot's configuration directory.
    pub name: &'static str,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its permission bits.
    pub mode: u32,
}

impl std::fmt::Debug for Rendered {
    /// Without the bytes: settings of containerd may hold credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, bytes, mode } = self;
        write!(f, "{name} ({} bytes, mode {mode:04o})", bytes.len())
    }
}

/// Everything that is rendered into a slot for `goal`. Pure: the same input gives the same bytes.
///
/// `run_bin` is where the active slot's programs are found at run time, as the node stack sees it.
pub fn render(goal: &MachineGoal, facts: &HostFacts, run_bin: &Path) -> Result<Vec<Rendered>, InstallError> {
    let containerd_version = goal.containerd_version.as_deref().ok_or(InstallError::Unresolved)?;
    // Registry credentials in node.containerd.config are for root alone.
    let secret = if goal.containerd.config.is_empty() { 0o644 } else { 0o600 };
    Ok(vec![
        Rendered { name: config::KUBELET, bytes: kubelet::config(goal, facts), mode: 0o644 },
        Rendered { name: config::KUBELET_ENV, bytes: environment::kubelet(goal)?, mode: 0o644 },
        Rendered {
            name: config::CONTAINERD,
            bytes: containerd::config(goal, containerd_version, run_bin)?,
            mode: secret,
        },
        Rendered { name: config::GOAL, bytes: goal.encode(), mode: 0o600 },
    ])
}

/// The goal with what its source turned out to hold: versions that the configuration left open, and the digest of every
/// artifact. The fingerprint is made from this.
#[must_use]
pub fn resolved_goal(mut goal: MachineGoal, resolved: &Resolved) -> MachineGoal {
    goal.kubernetes_version.clone_from(&resolved.kubernetes);
    goal.containerd_version = Some(resolved.containerd.clone());
    goal.runc_version = Some(resolved.runc.clone());
    goal.cni_version = Some(resolved.cni.clone());
    goal.artifacts = resolved.digests();
    goal
}

/// Fills slots.
#[derive(Clone, Debug)]
pub struct Installer {
    fs: Arc<dyn Fs>,
    artifacts: Vec<Artifact>,
    goal: MachineGoal,
    facts: HostFacts,
    run_bin: PathBuf,
}

impl Installer {
    /// An installer for `goal`, which must be the result of [`resolved_goal`] with these artifacts.
    pub fn new(
        fs: Arc<dyn Fs>,
        artifacts: Vec<Artifact>,
        goal: MachineGoal,
        facts: HostFacts,
        run_bin: impl Into<PathBuf>,
    ) -> Self {
        Self { fs, artifacts, goal, facts, run_bin: run_bin.into() }
    }

    /// Writes programs and configuration into the slot of `root`; gives all files with their digests. Blocks; `stop`
    /// ends it at the next chunk.
    pub fn install(&self, root: &dyn NodeRoot, stop: &AtomicBool) -> Result<Vec<InstalledFile>, InstallError> {
        // What cannot be rendered is known before a byte is unpacked.
        let rendered = render(&self.goal, &self.facts, &self.run_bin)?;
        let to = Destinations { bin: root.path(Path::new(BIN)), cni: root.path(Path::new(CNI_BIN)) };
        let mut files = flexnode_artifacts::install(self.fs.as_ref(), &self.artifacts, &to, stop)?;
        for file in &rendered {
            files.push(self.put(root, file)?);
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    /// As [`Installer::install`], in a thread of its own; dropping the future (a deadline, a cancelled command) ends the
    /// thread at its next chunk.
    pub async fn install_in_background(&self, root: Box<dyn NodeRoot>) -> Result<Vec<InstalledFile>, InstallError> {
        let (this, stop) = (self.clone(), Arc::new(AtomicBool::new(false)));
        let guard = StopOnDrop(Arc::clone(&stop));
        let task = tokio::task::spawn_blocking(move || this.install(root.as_ref(), &stop));
        let result = task.await.map_err(|_| InstallError::Lost)?;
        drop(guard);
        result
    }

    fn put(&self, root: &dyn NodeRoot, file: &Rendered) -> Result<InstalledFile, InstallError> {
        let path = root.config(file.name);
        if let Some(dir) = path.parent() {
            durable::ensure_dir(self.fs.as_ref(), dir, 0o755)?;
        }
        durable::write(self.fs.as_ref(), &path, &file.bytes, file.mode)?;
        let sha256 = durable::sha256_hex(&file.bytes);
        Ok(InstalledFile { path, sha256, size: file.bytes.len() as u64, mode: file.mode })
    }
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

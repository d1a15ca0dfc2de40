//! Files that belong to the node and not to a version: they are not switched by an upgrade and not rolled back.

use crate::environment::{self, EncodeError};
use crate::kubeconfig;
use crate::places::{BOOTSTRAP_KUBECONFIG, CLIENT_CA, CNI_CONF, KUBECONFIG, KUBELET_DIR, STATIC_PODS};
use crate::references::{self, Credentials, ReferenceError};
use flexnode_host::durable::{self, Change};
use flexnode_host::{Fs, FsError};
use flexnode_isolation::NodeRoot;
use flexnode_isolation::none::REGISTRATION_ENV_PATH;
use flexnode_model::{Join, MachineGoal};
use std::path::{Path, PathBuf};

/// A node file that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum NodeFileError {
    /// A label or taint.
    #[error("cannot write {REGISTRATION_ENV_PATH}")]
    Encode(#[from] EncodeError),
    /// kubelet's existing credentials could not be judged.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// A file operation.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFiles {
    /// Paths whose content changed.
    pub changed: Vec<PathBuf>,
    /// kubelet joins with a bootstrap token at its next start.
    pub bootstraps: bool,
}

/// The paths, as the node stack sees them, that [`write()`] makes or writes. For the record of what was there before.
pub fn paths() -> Vec<&'static str> {
    let ca_dir = "/etc/kubernetes/pki";
    vec![
        "/etc/kubernetes",
        ca_dir,
        CLIENT_CA,
        STATIC_PODS,
        KUBELET_DIR,
        BOOTSTRAP_KUBECONFIG,
        "/etc/cni",
        CNI_CONF,
        "/etc/unbounded",
        "/etc/unbounded/kubelet",
        REGISTRATION_ENV_PATH,
    ]
}

/// Writes CA, bootstrap kubeconfig and registration file, and makes the directories that kubelet's configuration names.
/// A second call with the same input changes nothing.
///
/// The bootstrap kubeconfig is written only where kubelet has no complete credentials of its own: tokens live a day.
/// A kubeconfig of kubelet's that names missing files is removed then, so that it bootstraps again.
pub fn write(fs: &dyn Fs, root: &dyn NodeRoot, goal: &MachineGoal, join: &Join) -> Result<NodeFiles, NodeFileError> {
    let mut files = NodeFiles { changed: Vec::new(), bootstraps: false };
    let place = |in_node: &str| root.path(Path::new(in_node));
    durable::ensure_dir(fs, &place(KUBELET_DIR), 0o750)?;
    durable::ensure_dir(fs, &place(STATIC_PODS), 0o700)?;
    durable::ensure_dir(fs, &place(CNI_CONF), 0o755)?;
    files.put(fs, &place(CLIENT_CA), goal.ca_pem.as_bytes(), 0o644)?;
    files.put(fs, &place(REGISTRATION_ENV_PATH), &environment::registration(join)?, 0o644)?;
    let own = references::credentials(fs, root)?;
    if let Credentials::Own { .. } = own {
        return Ok(files);
    }
    files.bootstraps = true;
    if let Some(token) = &join.token {
        let bytes = kubeconfig::bootstrap(&goal.api_server, &goal.ca_pem, token);
        files.put(fs, &place(BOOTSTRAP_KUBECONFIG), &bytes, 0o600)?;
    }
    if let Credentials::Dangling { missing } = own {
        let kubeconfig = place(KUBECONFIG);
        tracing::warn!(?missing, "kubelet's kubeconfig names files that are gone; it bootstraps again");
        durable::remove_file(fs, &kubeconfig)?;
        files.changed.push(kubeconfig);
    }
    Ok(files)
}

impl NodeFiles {
    fn put(&mut self, fs: &dyn Fs, path: &Path, bytes: &[u8], mode: u32) -> Result<(), FsError> {
        if let Some(dir) = path.parent() {
            durable::ensure_dir(fs, dir, 0o755)?;
        }
        if durable::write(fs, path, bytes, mode)? == Change::Made {
            self.changed.push(path.to_path_buf());
        }
        Ok(())
    }
}

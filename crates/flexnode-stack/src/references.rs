//! Files that kubelet needs to find when it starts, looked for before it does.

use crate::kubeconfig::{self, KubeconfigError};
use crate::places::{BOOTSTRAP_KUBECONFIG, KUBECONFIG};
use flexnode_host::{FileKind, Fs, FsError};
use flexnode_isolation::NodeRoot;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Largest file of kubelet's that is read.
const LIMIT: u64 = 4 << 20;

/// Keys of a KubeletConfiguration whose files must exist. Directories that kubelet makes by itself are not among them.
const FILES: [&str; 4] = ["/authentication/x509/clientCAFile", "/tlsCertFile", "/tlsPrivateKeyFile", "/resolvConf"];
/// Keys whose directories must exist.
const DIRECTORIES: [&str; 1] = ["/staticPodPath"];

/// What kubelet could join with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// Its own kubeconfig, and every file that it names is there. Whether the certificate is still valid is not judged
    /// here.
    Own {
        /// API servers that it names.
        servers: Vec<String>,
        /// Certificates and keys that it names.
        files: Vec<PathBuf>,
    },
    /// Its own kubeconfig names files that are gone (a dangling `kubelet-client-current.pem`): it has to bootstrap again.
    Dangling {
        /// What is missing.
        missing: Vec<PathBuf>,
    },
    /// None of its own; a bootstrap token is needed.
    None,
}

/// A file that kubelet would look for in vain, or that it cannot use.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// Named and not there.
    #[error("{key} of the kubelet configuration names {}, which is not there", path.display())]
    Missing {
        /// The key, or the file that names it.
        key: String,
        /// What it names, as kubelet sees it.
        path: PathBuf,
    },
    /// Named, but something else.
    #[error("{key} of the kubelet configuration names {}, which is a {found}", path.display())]
    Kind {
        /// The key.
        key: String,
        /// What it names.
        path: PathBuf,
        /// What is there.
        found: FileKind,
    },
    /// The configuration itself.
    #[error("the kubelet configuration {} is missing or no JSON", path.display())]
    Configuration {
        /// Where it should be.
        path: PathBuf,
    },
    /// Neither its own credentials nor a bootstrap kubeconfig.
    #[error(
        "kubelet has nothing to join with: {KUBECONFIG} is {own} and {BOOTSTRAP_KUBECONFIG} is missing; give azure.bootstrapToken.token"
    )]
    NoCredentials {
        /// `missing` or `incomplete`.
        own: &'static str,
    },
    /// A kubeconfig that cannot be read.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// A file operation.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// What kubelet has to join with, following every file that its kubeconfig names.
pub fn credentials(fs: &dyn Fs, root: &dyn NodeRoot) -> Result<Credentials, ReferenceError> {
    let in_node = Path::new(KUBECONFIG);
    let Some(bytes) = fs.read(&root.path(in_node), LIMIT)? else { return Ok(Credentials::None) };
    if bytes.is_empty() {
        return Ok(Credentials::None);
    }
    let contents = kubeconfig::contents(in_node, &bytes)?;
    let mut missing = Vec::new();
    for file in &contents.files {
        if fs.stat(&root.path(file))?.is_none_or(|stat| stat.size == 0) {
            missing.push(file.clone());
        }
    }
    Ok(if missing.is_empty() {
        Credentials::Own { servers: contents.servers, files: contents.files }
    } else {
        Credentials::Dangling { missing }
    })
}

/// Checks that kubelet will find what its configuration in this slot names, and something to join with. To be called
/// after the host's files are written, before the start.
pub fn check(fs: &dyn Fs, root: &dyn NodeRoot) -> Result<(), ReferenceError> {
    let path = root.config(crate::places::config::KUBELET);
    let unreadable = || ReferenceError::Configuration { path: path.clone() };
    let bytes = fs.read(&path, LIMIT)?.ok_or_else(unreadable)?;
    let config: Value = serde_json::from_slice(&bytes).map_err(|_| unreadable())?;
    for (pointer, kind) in FILES.map(|f| (f, FileKind::File)).into_iter().chain(DIRECTORIES.map(|d| (d, FileKind::Dir)))
    {
        let Some(named) = config.pointer(pointer).and_then(Value::as_str).filter(|named| !named.is_empty()) else {
            continue;
        };
        let key = pointer.trim_start_matches('/').replace('/', ".");
        match fs.stat(&root.path(Path::new(named)))? {
            Some(stat) if stat.kind == kind => {}
            Some(stat) => return Err(ReferenceError::Kind { key, path: named.into(), found: stat.kind }),
            None => return Err(ReferenceError::Missing { key, path: named.into() }),
        }
    }
    let own = match credentials(fs, root)? {
        Credentials::Own { .. } => return Ok(()),
        Credentials::Dangling { .. } => "incomplete",
        Credentials::None => "missing",
    };
    let bootstrap = Path::new(BOOTSTRAP_KUBECONFIG);
    let Some(bytes) = fs.read(&root.path(bootstrap), LIMIT)? else {
        return Err(ReferenceError::NoCredentials { own });
    };
    for file in kubeconfig::contents(bootstrap, &bytes)?.files {
        if fs.stat(&root.path(&file))?.is_none() {
            return Err(ReferenceError::Missing { key: BOOTSTRAP_KUBECONFIG.into(), path: file });
        }
    }
    Ok(())
}

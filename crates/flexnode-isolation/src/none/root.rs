//! Where the files of one installed version are.

use super::layout::Layout;
use crate::backend::{NodeRoot, SlotRef};
use std::path::{Path, PathBuf};

/// Installer directories that resolve into the version directory.
const MAPPED: [(&str, &str); 3] =
    [("/usr/local/bin", "bin"), ("/usr/local/libexec", "libexec"), ("/opt/cni/bin", "cni")];

/// The node root of one installed version.
///
/// Every path is the identity mapping, which is the same-path contract for `/etc/containerd`, `/var/lib/kubelet`, `/etc/cni`
/// and the rest, except the installers' bin, libexec and CNI plugin directories, which resolve into the version directory.
/// That lets the installers of the nspawn root file system place binaries in `<base>/<version>/bin` unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The arrangement that the version belongs to.
    pub layout: Layout,
    /// The version.
    pub version: String,
    /// Prefixes the identity-mapped paths. Empty is the real host; tests and offline tooling point it at a directory tree.
    pub host_root: PathBuf,
}

impl Root {
    /// The version's own directory.
    pub fn dir(&self) -> PathBuf {
        self.layout.version_dir(&self.version)
    }
}

impl SlotRef for Root {
    /// The version: here a slot is a version directory.
    fn slot(&self) -> &str {
        &self.version
    }
}

impl NodeRoot for Root {
    fn path(&self, in_node: &Path) -> PathBuf {
        for (prefix, dir) in MAPPED {
            if let Ok(rest) = in_node.strip_prefix(prefix) {
                let mapped = self.dir().join(dir);
                // Joining an empty rest would add a slash at the end.
                return if rest.as_os_str().is_empty() { mapped } else { mapped.join(rest) };
            }
        }
        prefixed(&self.host_root, in_node)
    }

    fn config(&self, name: &str) -> PathBuf {
        self.dir().join("etc").join(name)
    }
}

/// `path` below `root`; `path` itself when `root` is empty.
pub(crate) fn prefixed(root: &Path, path: &Path) -> PathBuf {
    if root.as_os_str().is_empty() { path.to_path_buf() } else { root.join(path.strip_prefix("/").unwrap_or(path)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(host_root: &str) -> Root {
        Root { layout: Layout::new("/base"), version: "1.2.3-abcd".into(), host_root: host_root.into() }
    }

    fn path(root: &Root, in_node: &str) -> String {
        root.path(Path::new(in_node)).to_str().unwrap().to_owned()
    }

    #[test]
    fn installer_directories_resolve_into_the_version_directory() {
        let root = root("");
        assert_eq!(path(&root, "/usr/local/bin/kubelet"), "/base/1.2.3-abcd/bin/kubelet");
        assert_eq!(path(&root, "/usr/local/libexec/a/b"), "/base/1.2.3-abcd/libexec/a/b");
        assert_eq!(path(&root, "/opt/cni/bin/bridge"), "/base/1.2.3-abcd/cni/bridge");
        assert_eq!(path(&root, "/opt/cni/bin"), "/base/1.2.3-abcd/cni");
    }

    #[test]
    fn every_other_path_is_the_identity() {
        let root = root("");
        for same in
            ["/etc/containerd/config.toml", "/var/lib/kubelet", "/etc/cni/net.d", "/usr/local/binary", "/opt/cni", "/"]
        {
            assert_eq!(path(&root, same), same);
        }
    }

    #[test]
    fn the_host_root_prefixes_only_identity_mapped_paths() {
        let root = root("/tree");
        assert_eq!(path(&root, "/etc/cni"), "/tree/etc/cni");
        assert_eq!(path(&root, "/usr/local/bin/runc"), "/base/1.2.3-abcd/bin/runc");
    }

    #[test]
    fn the_slot_is_the_version_and_holds_its_configuration() {
        let root = root("/tree");
        assert_eq!(root.slot(), "1.2.3-abcd");
        assert_eq!(root.config("kubelet/config.yaml"), Path::new("/base/1.2.3-abcd/etc/kubelet/config.yaml"));
    }
}

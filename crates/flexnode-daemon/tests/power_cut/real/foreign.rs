//! What belongs to others on the recorded machine: it has to be there, unchanged, in every state and after every recovery.

use flexnode_host::testing::MemFs;
use flexnode_host::{FileKind, Fs as _};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Where others have things that the agent could touch.
const ROOTS: [&str; 7] =
    ["/etc", "/opt", "/root", "/home", "/usr/local", "/var/lib/other", "/var/lib/kubelet/of-a-person"];

/// What the agent, kubelet and containerd may make there; everything below it too.
const OWN: [&str; 16] = [
    "/opt/unbounded/node",
    "/opt/unbounded/agent",
    "/etc/unbounded/containerd",
    "/etc/unbounded/kubelet",
    "/etc/kubernetes",
    "/etc/sysctl.d/99-aks-flex-node.conf",
    "/etc/modules-load.d/aks-flex-node.conf",
    "/etc/aks-flex-node/daemon-state.json",
    "/etc/aks-flex-node/daemon-state.json.sha256",
    "/etc/aks-flex-node/daemon-credentials",
    "/etc/aks-flex-node/agent-upgrade-signal.json",
    "/opt/cni/bin",
    // containerd makes it for plugins that are installed later.
    "/opt/containerd",
    "/etc/systemd/system/unbounded-containerd.service.d",
    "/etc/systemd/system/unbounded-kubelet.service.d",
    "/etc/systemd/system/multi-user.target.wants",
];

/// A line for each path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreign(BTreeMap<PathBuf, String>);

impl Foreign {
    /// Of a host that is no node yet: all of it belongs to others.
    pub fn of(fs: &MemFs) -> Self {
        let mut lines = BTreeMap::new();
        for root in ROOTS.map(Path::new) {
            walk(fs, root, &mut |path, line| _ = lines.insert(path.to_owned(), line));
        }
        Self(lines)
    }

    /// What is different now: one line for each path.
    pub fn changes(&self, fs: &MemFs) -> Vec<String> {
        let mut left = self.0.clone();
        let mut changes = Vec::new();
        for root in ROOTS.map(Path::new) {
            walk(fs, root, &mut |path, line| match left.remove(path) {
                Some(before) if before == line => {}
                Some(before) => changes.push(format!("~ {}: {before}, now {line}", path.display())),
                None if is_own(path) => {}
                None => changes.push(format!("+ {}: {line}", path.display())),
            });
        }
        changes.extend(left.into_iter().map(|(path, line)| format!("- {}: {line}", path.display())));
        changes
    }

    /// What of the agent's is there, beside its program and its directories.
    pub fn left(&self, fs: &MemFs) -> Vec<String> {
        let mut left = Vec::new();
        let roots = ["/etc", "/opt", "/root", "/usr/local", "/var/lib/aks-flex-node", "/var/lib/kubelet"];
        for root in roots.map(Path::new) {
            walk(fs, root, &mut |path, line| {
                let stays = path.starts_with("/opt/unbounded/agent") || self.0.contains_key(path);
                if !stays && !line.starts_with(DIR) {
                    left.push(format!("{} is left: {line}", path.display()));
                }
            });
        }
        left
    }
}

const DIR: &str = "directory";

fn is_own(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unit = path.starts_with("/etc/systemd/system")
        && ["unbounded-", "aks-flex-node-"].iter().any(|own| name.starts_with(own));
    OWN.iter().any(|own| path.starts_with(own)) || unit || name.starts_with(flexnode_host::durable::TEMP_PREFIX)
}

fn walk(fs: &MemFs, path: &Path, each: &mut dyn FnMut(&Path, String)) {
    let Ok(Some(stat)) = fs.lstat(path) else { return };
    let mut line = format!("{} {:o} {}:{}", kind(stat.kind), stat.mode, stat.uid, stat.gid);
    match stat.kind {
        FileKind::Dir => {
            each(path, line);
            // What lies in there is looked at by the manifest, and is never another's.
            if path == Path::new("/opt/unbounded/node") {
                return;
            }
            for entry in fs.read_dir(path).unwrap_or_default() {
                walk(fs, &path.join(entry.name), each);
            }
            return;
        }
        FileKind::File => {
            let bytes = fs.read(path, 1 << 30).ok().flatten().unwrap_or_default();
            let _ = write!(line, " {} bytes {:x?}", bytes.len(), &Sha256::digest(&bytes)[..8]);
        }
        FileKind::Link => {
            let _ = write!(line, " -> {}", fs.read_link(path).unwrap_or_default().display());
        }
        FileKind::Other => {}
    }
    each(path, line);
}

fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Dir => DIR,
        FileKind::Link => "link",
        FileKind::Other => "other",
    }
}

#[test]
fn what_others_own_is_told_from_what_the_agent_made() {
    let fs = MemFs::new();
    fs.put("/etc/hosts", "a", 0o644).put("/opt/cni/bin/theirs", "x", 0o755).put_dir("/etc/systemd/system", 0o755);
    fs.put("/etc/systemd/system/unbounded-kubelet.service.d/99-person.conf", "x", 0o644);
    fs.put("/opt/unbounded/of-a-person", "x", 0o644);
    let foreign = Foreign::of(&fs);
    fs.put("/opt/unbounded/node/1/bin/kubelet", "x", 0o755).put_link("1", "/opt/unbounded/node/current");
    fs.put("/etc/systemd/system/unbounded-kubelet.service", "x", 0o644).put_link("/x", "/opt/cni/bin/bridge");
    fs.put("/etc/systemd/system/unbounded-kubelet.service.d/00-path.conf", "x", 0o644);
    fs.put("/etc/kubernetes/pki/ca.crt", "x", 0o644);
    assert_eq!(foreign.changes(&fs), [""; 0]);
    let left = foreign.left(&fs).join("\n");
    for own in ["00-path.conf", "unbounded-kubelet.service", "/opt/cni/bin/bridge", "/etc/kubernetes/pki/ca.crt"] {
        assert!(left.contains(own), "{own}: {left}");
    }
    fs.put("/etc/hosts", "b", 0o644).take("/opt/cni/bin/theirs").put("/etc/new", "x", 0o644);
    fs.put("/etc/systemd/system/unbounded-kubelet.service.d/99-person.conf", "y", 0o644);
    let changes = foreign.changes(&fs);
    assert_eq!(changes.len(), 4, "{changes:#?}");
    for (sign, path) in [("~", "/etc/hosts"), ("-", "/opt/cni/bin/theirs"), ("+", "/etc/new"), ("~", "/etc/systemd")] {
        assert!(changes.iter().any(|line| line.starts_with(&format!("{sign} {path}"))), "{path}: {changes:#?}");
    }
}

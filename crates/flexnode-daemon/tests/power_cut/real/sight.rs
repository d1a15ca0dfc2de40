//! What the crash suite's checker sees of a host of fakes.

use crate::real::foreign::Foreign;
use crate::world::World;
use flexnode_host::{FileKind, Fs as _, Processes as _};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use system_tests::checker::Sight;

const NODE: &str = "/opt/unbounded/node";
const PLUGINS: &str = "/opt/cni/bin";
const UNITS: [&str; 4] =
    ["unbounded-containerd", "unbounded-kubelet", "unbounded-localdns", "unbounded-kubelet-launch-check"];

/// A host after its recovery.
pub struct Recovered<'a> {
    pub world: &'a World,
    pub foreign: &'a Foreign,
}

impl Recovered<'_> {
    fn link(&self, path: &str) -> String {
        let target = self.world.fake.fs.read_link(Path::new(path)).unwrap_or_default();
        target.to_string_lossy().into_owned()
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let entries = self.world.fake.fs.read_dir(Path::new(dir)).unwrap_or_default();
        entries.into_iter().map(|entry| entry.name.to_string_lossy().into_owned()).collect()
    }

    fn unit(&self, name: &str) -> String {
        let id = format!("{name}.service");
        let state = self.world.fake.systemd.state(&id);
        let reload = if state.need_reload { "yes" } else { "no" };
        format!(
            "Id={id} LoadState={} ActiveState={} SubState={} UnitFileState={} NeedDaemonReload={reload} MainPID={}",
            state.load, state.active, state.sub, state.enabled, state.main_pid
        )
    }

    fn main(&self, name: &str) -> Option<String> {
        let pid = self.world.fake.systemd.state(&format!("unbounded-{name}.service")).main_pid;
        let process = self.world.fake.processes.get(pid).ok()??;
        let program = self.world.fake.fs.stat(Path::new(&format!("{NODE}/current/bin/{name}"))).ok()?;
        let id = |id: (u64, u64)| format!("{}:{}", id.0, id.1);
        let wanted = program.map(|stat| id((stat.dev, stat.ino))).unwrap_or_default();
        Some(format!("{name} {} {wanted}", process.exe_id.map(id).unwrap_or_default()))
    }

    fn temporary(&self) -> Vec<String> {
        let mut found = Vec::new();
        for root in ["/opt", "/etc", "/var/lib/aks-flex-node", "/usr/local", "/root", "/var/lib/kubelet"] {
            self.sweep(Path::new(root), &mut found);
        }
        found
    }

    /// A version that is not complete is removed as a whole when it is wanted again, whatever lies in it.
    fn is_begun(&self, dir: &Path) -> bool {
        dir.parent() == Some(Path::new(NODE)) && !self.world.fake.fs.exists(dir.join("etc/manifest.json"))
    }

    fn sweep(&self, dir: &Path, found: &mut Vec<String>) {
        if self.is_begun(dir) {
            return;
        }
        for entry in self.world.fake.fs.read_dir(dir).unwrap_or_default() {
            let path = dir.join(&entry.name);
            if entry.name.to_string_lossy().starts_with(flexnode_host::durable::TEMP_PREFIX) {
                found.push(path.display().to_string());
            }
            if entry.kind == FileKind::Dir {
                self.sweep(&path, found);
            }
        }
    }

    fn plugins(&self) -> Vec<String> {
        let fs = &self.world.fake.fs;
        let line = |name: String| {
            let path = format!("{PLUGINS}/{name}");
            let is_link = fs.lstat(Path::new(&path)).ok()??.kind == FileKind::Link;
            let there = fs.stat(Path::new(&path)).ok().flatten().map_or("", |_| "there");
            is_link.then(|| format!("{path} {} {there}", self.link(&path)))
        };
        self.names(PLUGINS).into_iter().filter_map(line).collect()
    }

    fn collect(&self, dir: &Path, into: &str, files: &mut BTreeMap<String, (u64, String)>) {
        let fs = &self.world.fake.fs;
        for entry in fs.read_dir(dir).unwrap_or_default() {
            let (path, name) = (dir.join(&entry.name), format!("{into}{}", entry.name.to_string_lossy()));
            match entry.kind {
                FileKind::Dir => self.collect(&path, &format!("{name}/"), files),
                FileKind::File => {
                    let bytes = fs.read(&path, 1 << 30).ok().flatten().unwrap_or_default();
                    let mode = fs.lstat(&path).ok().flatten().map_or(0, |stat| stat.mode);
                    let digest = Sha256::digest(&bytes).iter().fold(String::new(), |mut text, byte| {
                        let _ = write!(text, "{byte:02x}");
                        text
                    });
                    files.insert(name, (u64::from(mode), digest));
                }
                _ => {}
            }
        }
    }
}

impl Sight for Recovered<'_> {
    fn look(&self) -> BTreeMap<String, Vec<String>> {
        let fake = &self.world.fake;
        let processes = fake.processes.list().unwrap_or_default();
        let running = processes.iter().map(|process| process.exe.display().to_string());
        let healthy = fake.systemd.state("unbounded-kubelet.service").is_active();
        let links = ["/etc/unbounded/containerd/config.toml", "/var/lib/kubelet/config.yaml"];
        let parts = [
            ("current", vec![self.link(&format!("{NODE}/current"))]),
            ("entries", self.names(NODE)),
            ("units", UNITS.map(|unit| self.unit(unit)).to_vec()),
            ("mains", ["containerd", "kubelet"].iter().filter_map(|name| self.main(name)).collect()),
            ("running", running.filter(|exe| exe.starts_with(NODE)).collect()),
            ("healthz", vec![if healthy { "ok".to_owned() } else { String::new() }]),
            // Nobody else is here.
            ("lock", vec!["0".to_owned()]),
            ("temporary", self.temporary()),
            ("links", links.iter().map(|path| format!("{path} {}", self.link(path))).collect()),
            ("plugins", self.plugins()),
            ("foreign", self.foreign.changes(&fake.fs)),
        ];
        parts.into_iter().map(|(name, lines)| (name.to_owned(), lines)).collect()
    }

    fn json(&self, path: &str) -> Value {
        let bytes = self.world.fake.fs.read(Path::new(path), 1 << 24).ok().flatten().unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or(Value::Null)
    }

    fn files_of(&self, dir: &str) -> BTreeMap<String, (u64, String)> {
        let mut files = BTreeMap::new();
        self.collect(Path::new(dir), "", &mut files);
        files
    }

    /// The cluster of the fakes says what it is told; machines that are booted show it.
    fn not_ready(&self, _: &str) -> Option<String> {
        None
    }
}

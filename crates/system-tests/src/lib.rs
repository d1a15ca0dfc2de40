//! What only a real systemd host, a real containerd and kubelet and a real API server can show (rungs 3 and 4).
//!
//! The tests meet the agent as its users do: as a program in a host, by its arguments, exit codes, output and effects.
//! This library is what they share: [`Cluster`], a control plane with hosts, and [`Node`], a host that the agent works on.
#![allow(clippy::unwrap_used, reason = "a fixture that cannot be made is a failed test")]

pub mod checker;
pub mod crash;
pub mod pods;
pub mod points;

use flexnode_lab::host::{Options, Share};
use flexnode_lab::packages::Suite;
use flexnode_lab::{ControlPlane, Host, Lab, Output, agent_binary, control_plane, kubernetes, node};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// Where a host has the agent's program before it is installed.
pub const AGENT: &str = "/root/aks-flex-node";
/// Where a host has its configuration.
pub const CONFIG: &str = "/etc/aks-flex-node/config.json";
/// Where a host sees the bundle of a version.
pub const BUNDLE: &str = "/srv/bundle";
/// How long a node may take to become Ready on a busy machine.
pub const READY: Duration = Duration::from_secs(120);
/// How often states are looked at.
pub const SOON: Duration = Duration::from_millis(100);

/// The version of a node: Kubernetes and the suite of its containerd and runc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// Of Kubernetes.
    pub kubernetes: &'static str,
    /// Of containerd and runc.
    pub suite: Suite,
}

/// Kubernetes 1.36.3 with containerd 2.1.
pub const NEW: Version = Version { kubernetes: kubernetes::NEW, suite: Suite::Forky };
/// Kubernetes 1.36.2 with containerd 1.7.
pub const OLD: Version = Version { kubernetes: kubernetes::OLD, suite: Suite::Trixie };

/// The agent's program, static; with fail points when `fail_points` says so.
pub fn agent(fail_points: bool) -> PathBuf {
    static BUILT: OnceLock<Mutex<BTreeMap<bool, PathBuf>>> = OnceLock::new();
    let mut built = BUILT.get_or_init(Mutex::default).lock().unwrap();
    let features: &[&str] = if fail_points { &["failpoints"] } else { &[] };
    built.entry(fail_points).or_insert_with(|| agent_binary(features).unwrap()).clone()
}

/// The offline bundle of a version, packed by the agent's own command, once per test program.
pub fn bundle(version: Version) -> PathBuf {
    static PACKED: OnceLock<Mutex<BTreeMap<String, PathBuf>>> = OnceLock::new();
    let mut packed = PACKED.get_or_init(Mutex::default).lock().unwrap();
    let name = format!("{}-{}", version.kubernetes, version.suite.name());
    let pack = || node::bundle(&agent(false), version.kubernetes, version.suite).unwrap();
    packed.entry(name).or_insert_with(pack).clone()
}

/// A bundle like that of [`NEW`] in which the given programs are others: what is given is added by the agent's own command
/// to a copy. It goes with `folder`.
pub fn changed_bundle(folder: &Path, name: &str, arguments: &[&str]) -> PathBuf {
    let dir = folder.join(name);
    let run = |program: &Path, words: &[&str]| {
        let output = std::process::Command::new(program).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let (from, to) = (bundle(NEW), dir.to_string_lossy().into_owned());
    run(Path::new("cp"), &["-al", &from.to_string_lossy(), &to]);
    run(&agent(false), &[&["bundle", &to], arguments].concat());
    dir
}

/// A lab with a control plane.
#[derive(Debug)]
pub struct Cluster {
    /// etcd, API server, controller manager, scheduler. Dropped before the lab.
    pub control_plane: ControlPlane,
    /// Its network and folder.
    pub lab: Lab,
}

impl Cluster {
    /// With the usual options.
    pub fn new() -> Self {
        Self::with(&control_plane::Options::default())
    }

    /// With options.
    pub fn with(options: &control_plane::Options) -> Self {
        let lab = Lab::new().unwrap();
        let control_plane = ControlPlane::new(&lab, options).unwrap();
        Self { control_plane, lab }
    }

    /// A host with the agent's program, the bundle of [`NEW`] at [`BUNDLE`], the network plugin's configuration in place
    /// as the cluster's add-on would put it, and a configuration for this cluster.
    pub fn node(&self, name: &str) -> Node<'_> {
        self.node_with(name, &[(NEW, BUNDLE)], false)
    }

    /// A host that sees these bundles, with a program that has fail points or none.
    pub fn node_with(&self, name: &str, bundles: &[(Version, &str)], fail_points: bool) -> Node<'_> {
        let shares = bundles.iter().map(|(version, at)| Share { from: bundle(*version), to: PathBuf::from(at) });
        self.node_of(name, shares.collect(), fail_points)
    }

    /// A host that sees these directories, as [`Cluster::node_with`].
    pub fn node_of(&self, name: &str, shares: Vec<Share>, fail_points: bool) -> Node<'_> {
        let host = Host::with(&self.lab, name, Options { shares }).unwrap();
        host.copy_in(&agent(fail_points), AGENT, 0o755).unwrap();
        host.put("/etc/cni/net.d/10-lab.conflist", host.network_plugin_config(), 0o644).unwrap();
        let node = Node { host, cluster: self };
        node.configure(&node.config());
        node
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self::new()
    }
}

/// A host that the agent works on.
#[derive(Debug)]
pub struct Node<'a> {
    /// The host.
    pub host: Host,
    /// What it joins.
    pub cluster: &'a Cluster,
}

impl Node<'_> {
    /// A configuration for this host and cluster.
    pub fn config(&self) -> Value {
        self.config_of(NEW, BUNDLE)
    }

    /// A configuration of a version whose bundle the host sees at `source`.
    pub fn config_of(&self, version: Version, source: &str) -> Value {
        node::config(&self.cluster.control_plane, &self.host, version.kubernetes, version.suite, source).unwrap()
    }

    /// Writes the configuration, readable by root only.
    pub fn configure(&self, config: &Value) {
        self.host.put(CONFIG, serde_json::to_vec_pretty(config).unwrap(), 0o600).unwrap();
    }

    /// Runs the agent in the host.
    pub fn agent(&self, words: &[&str]) -> Output {
        self.host.exec(&[&[AGENT], words].concat()).unwrap()
    }

    /// Runs the agent with a variable of the environment.
    pub fn agent_env(&self, variable: &str, words: &[&str]) -> Output {
        self.host.exec(&[&["env", variable, AGENT], words].concat()).unwrap()
    }

    /// `start`, which has to succeed.
    #[track_caller]
    pub fn start(&self) -> Output {
        let output = self.agent(&["start"]);
        assert_eq!(output.code, 0, "start: {}\n{}\n{}", output.stdout, output.stderr, self.evidence());
        output
    }

    /// `reset --yes`, which has to succeed.
    #[track_caller]
    pub fn reset(&self) -> Output {
        let output = self.agent(&["reset", "--yes"]);
        assert_eq!(output.code, 0, "reset: {}\n{}", output.stdout, output.stderr);
        output
    }

    /// Runs the agent with variables of the environment.
    pub fn agent_with(&self, variables: &[&str], words: &[&str]) -> Output {
        self.host.exec(&[&["env"], variables, &[AGENT], words].concat()).unwrap()
    }

    /// The name of the active slot.
    pub fn active_slot(&self) -> String {
        let link = self.host.sh("readlink /opt/unbounded/node/current").unwrap().success().unwrap().stdout;
        link.trim().to_owned()
    }

    /// The Kubernetes version of the active slot.
    pub fn active(&self) -> String {
        self.active_slot().split('-').next().unwrap_or_default().to_owned()
    }

    /// The Node object; `None` when there is none.
    pub fn object(&self) -> Option<Value> {
        self.cluster.control_plane.get(&["node", self.host.name()]).ok()
    }

    /// Whether the API server calls the Node Ready.
    pub fn is_ready(&self) -> bool {
        let Some(node) = self.object() else { return false };
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
    }

    /// Waits until the API server calls the Node Ready.
    #[track_caller]
    pub fn wait_ready(&self) {
        if let Err(error) = self.cluster.control_plane.wait_ready(self.host.name(), READY) {
            panic!("{error:#}\n{}", self.evidence());
        }
    }

    /// The main PIDs of the node's units.
    pub fn main_pids(&self) -> Vec<String> {
        let units = ["unbounded-containerd.service", "unbounded-kubelet.service", "aks-flex-node-agent.service"];
        units.map(|unit| self.host.exec(&["systemctl", "show", "-P", "MainPID", unit]).unwrap().stdout).to_vec()
    }

    /// For the message of a failed test: the units and the ends of their logs.
    pub fn evidence(&self) -> String {
        let script = "systemctl --no-pager --failed; systemctl --no-pager -n 0 status 'unbounded-*' 'aks-flex-node-*'; \
            journalctl --no-pager -n 60 -o cat -u 'unbounded-*' -u 'aks-flex-node-*'";
        self.host.sh(script).map_or_else(|e| format!("{e:#}"), |o| o.stdout)
    }
}

/// Whether the long suites run too.
pub fn all() -> bool {
    std::env::var("FLEXNODE_TEST_ALL").is_ok_and(|v| v == "1")
}

/// Whether a file of the outer machine contains a text.
pub fn contains(path: &Path, text: &str) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.windows(text.len()).any(|w| w == text.as_bytes()))
}

/// Says something that is to be seen although the test succeeds, and in the last lines of `cargo xtask test`.
pub fn report(line: &str) {
    use std::io::Write as _;
    // Past the capture of the test harness, which shows only what failed.
    let _ = writeln!(std::io::stderr(), "{line}");
    if let Some(path) = std::env::var_os("FLEXNODE_REPORT")
        && let Ok(mut file) = std::fs::File::options().create(true).append(true).open(path)
    {
        let _ = writeln!(file, "{line}");
    }
}

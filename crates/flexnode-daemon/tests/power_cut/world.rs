//! A host of fakes on a disk that may have lost its power: what runs on it does what the real programs do.

use async_trait::async_trait;
use flexnode_daemon::daemon;
use flexnode_daemon::operations::{NodeContext, SeeNode};
use flexnode_daemon::resume::AgentResume;
use flexnode_daemon::service::SERVICE_UNIT_NAME;
use flexnode_daemon::start::{Cluster, Connect, Prepared, StartContext, Wait};
pub use flexnode_daemon::testing::CONFIG;
use flexnode_daemon::testing::{self, Free, PROGRAM, SANDBOX_IMAGE};
use flexnode_host::cri::Image;
use flexnode_host::cri::fake::FakeCri;
use flexnode_host::probe::{FakeProbe, KUBELET_HEALTHZ};
use flexnode_host::testing::{FakeHost, MemFs, Verb};
use flexnode_host::{FileKind, Fs, Host, SwapArea};
use flexnode_isolation::none::UNIT_KUBELET;
use flexnode_kube::{ApiProblem, ApiServerFacts, ApiServerProbe, JoinProblem, Names, ReadyOutcome, WaitReady};
use flexnode_ops::{Cancel, Silent};
use flexnode_stack::places;
use flexnode_status::node::{NodeView, ReadyCondition};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

pub const OLD: &str = "1.36.2";
pub const NEW: &str = "1.36.3";
const FSTAB: &str = "/etc/fstab";
const SWAP: &str = "/swap.img";

/// What others own, on every host of these tests. None of it may ever change.
pub const FOREIGN: [&str; 7] = [
    CONFIG,
    "/srv",
    "/etc/hosts",
    "/etc/cni/net.d/87-podman.conflist",
    "/etc/systemd/system/theirs.service",
    "/opt/cni/bin/theirs",
    "/var/lib/theirs",
];

/// A cluster in which the Node is Ready, with a new heartbeat at each look, and has the version of the active slot.
#[derive(Debug)]
struct TheCluster {
    fs: Arc<MemFs>,
    beats: AtomicI64,
}

impl TheCluster {
    fn node(&self) -> NodeView {
        // Later than whatever the fakes' clock says.
        let second = 4_000_000_000 + self.beats.fetch_add(1, Ordering::Relaxed);
        let current = self.fs.read_link(Path::new("/opt/unbounded/node/current")).unwrap_or_default();
        let version = current.to_string_lossy().split('-').next().unwrap_or_default().to_owned();
        NodeView {
            name: "n1".into(),
            ready: Some(ReadyCondition {
                status: Some(true),
                heartbeat: jiff::Timestamp::from_second(second).ok(),
                ..ReadyCondition::default()
            }),
            kubelet_version: format!("v{version}"),
            ..NodeView::default()
        }
    }
}

#[derive(Clone, Debug)]
struct Shared(Arc<TheCluster>);

#[async_trait]
impl Cluster for Shared {
    async fn preflight(&self, _: &ApiServerProbe, _: Duration) -> Result<ApiServerFacts, JoinProblem> {
        Ok(ApiServerFacts { version: None, peer: ([10, 0, 0, 1], 6443).into(), clock_skew: None })
    }
    async fn node(&self, _: Duration) -> Result<Option<NodeView>, ApiProblem> {
        Ok(Some(self.0.node()))
    }
    async fn wait_ready(&self, _: &WaitReady, _: &(dyn for<'t> Fn(&'t str) + Send + Sync)) -> ReadyOutcome {
        ReadyOutcome::Ready(Box::new(self.0.node()))
    }
    async fn patch_labels(&self, _: &BTreeMap<String, Option<String>>, _: Duration) -> Result<(), ApiProblem> {
        Ok(())
    }
    async fn dns(&self, _: Duration) -> Result<Option<Vec<IpAddr>>, ApiProblem> {
        Ok(None)
    }
    async fn request_advice(&self, _: Duration) -> Option<String> {
        None
    }
}

impl Connect for Shared {
    fn connect(&self, _: &Host, _: &Names, _: &Prepared) -> Arc<dyn Cluster> {
        Arc::new(self.clone())
    }
}

#[async_trait]
impl SeeNode for Shared {
    async fn see(&self, _: &str, _: Duration) -> Result<Option<NodeView>, ApiProblem> {
        Ok(Some(self.0.node()))
    }
}

/// The configuration for a version, with a label.
pub fn config(kubernetes: &str, label: &str) -> String {
    let mut config = testing::config(kubernetes, &format!("/srv/{kubernetes}"));
    config["node"]["labels"] = json!({"a.example/x": label});
    config.to_string()
}

/// A host that was never a node, with things of others on it, and bundles of both versions.
pub async fn pristine() -> MemFs {
    let fake = FakeHost::new();
    let fs = &fake.fs;
    testing::plain(fs);
    fs.put_dir("/etc/sysctl.d", 0o755).put_dir("/etc/modules-load.d", 0o755);
    fs.put(CONFIG, config(OLD, "1"), 0o600);
    fs.put(FSTAB, format!("{SWAP} none swap sw 0 0\n"), 0o644).put(SWAP, "", 0o600);
    fs.put("/etc/hosts", "127.0.0.1 localhost\n", 0o644).put("/var/lib/theirs/data", "precious", 0o600);
    let podman = r#"{"name": "podman", "plugins": [{"type": "bridge", "bridge": "cni-podman0"}]}"#;
    fs.put("/opt/cni/bin/theirs", "x", 0o755).put("/etc/cni/net.d/87-podman.conflist", podman, 0o644);
    fs.put("/etc/systemd/system/theirs.service", "[Service]\nExecStart=/bin/true\n", 0o644);
    for kubernetes in [OLD, NEW] {
        testing::pack_bundle(&fake, &format!("/srv/{kubernetes}"), kubernetes).await;
    }
    fake.fs.settle().fork()
}

/// A host that was switched on.
pub struct World {
    pub fake: FakeHost,
    pub cri: Arc<FakeCri>,
    pub node: NodeContext,
}

impl World {
    /// Switches a host with this disk on: the units that are enabled start.
    pub fn boot(disk: MemFs) -> Self {
        let fake = FakeHost::booted(disk);
        let cluster = Shared(Arc::new(TheCluster { fs: fake.fs.clone(), beats: AtomicI64::new(0) }));
        answers(&fake);
        let cri = Arc::new(FakeCri::with_pods(1));
        cri.add_image(Image { id: "sha256:0".into(), tags: vec![SANDBOX_IMAGE.into()], ..Image::default() });
        let start = StartContext {
            host: fake.host(),
            locks: Arc::new(Free),
            cri: cri.clone(),
            probe: Arc::new(FakeProbe::answering(KUBELET_HEALTHZ, 200, "ok")),
            names: Names::system(),
            connect: Arc::new(cluster.clone()),
            config: CONFIG.into(),
            program: PROGRAM.into(),
            owner: "command",
            wait: Wait::Ready,
            timeout: Duration::from_secs(60),
        };
        let node = NodeContext { start, node: Arc::new(cluster), probation: Duration::ZERO };
        fake.systemd.reboot();
        if fake.systemd.state(UNIT_KUBELET).is_active() {
            joins(fake.fs.as_ref());
        }
        Self { fake, cri, node }
    }

    /// Whether the agent's daemon was started at boot.
    pub fn has_agent(&self) -> bool {
        self.fake.systemd.state(SERVICE_UNIT_NAME).is_active()
    }

    /// What the agent's daemon mends, until there is nothing that it would take up. It tries the same a few times.
    pub async fn daemon(&self) {
        let host = self.fake.host();
        let resume = AgentResume { start: self.node.start.clone(), observer: Arc::new(Silent) };
        for _ in 0..3 {
            if daemon::recover(&host, &Free, &resume, &Cancel::new()).await {
                return;
            }
        }
    }
}

/// What programs say and do on such a host.
fn answers(fake: &FakeHost) {
    testing::programs(fake);
    for verb in [Verb::Start, Verb::Restart] {
        let fs = fake.fs.clone();
        fake.systemd.hook(verb, UNIT_KUBELET, move || joins(fs.as_ref()));
    }
    let fstab = fake.fs.text(FSTAB);
    let swaps = fstab.lines().any(|line| line.starts_with(SWAP));
    fake.kernel.change(|kernel| {
        kernel.boot_id = format!("boot-{}", fake.fs.fingerprint());
        if swaps {
            kernel.swaps = vec![SwapArea { path: SWAP.into(), kind: "file".into(), bytes: 1 << 30, priority: -2 }];
        }
    });
}

/// kubelet joins where it has not, or where a power cut took its files; it syncs nothing.
fn joins(fs: &MemFs) {
    let mut files = testing::kubelet_files();
    // The cluster is the one of the configuration, whichever that is.
    if let Some(joined) = kubeconfig(fs) {
        files.iter_mut().filter(|(path, _)| *path == places::KUBECONFIG).for_each(|(_, text)| text.clone_from(&joined));
    }
    let is_there = |path: &str, text: &str| {
        fs.lstat(Path::new(path)).ok().flatten().is_some_and(|stat| stat.kind == FileKind::File)
            && fs.text(path) == text
    };
    if files.iter().all(|(path, text)| is_there(path, text)) {
        return;
    }
    // Without its certificate it needs the token.
    let certified = files.iter().any(|(path, text)| *path == testing::CERTIFICATE && is_there(path, text));
    if !certified && !fs.exists(places::BOOTSTRAP_KUBECONFIG) {
        return;
    }
    let pki = Path::new("/var/lib/kubelet/pki");
    if !fs.exists(pki) {
        let _ = fs.mkdir(pki, 0o700);
    }
    for (path, text) in files {
        let path = Path::new(path);
        let _ = fs.unlink(path);
        // A process that was killed or a disk that is full ends here, as kubelet would.
        let Ok(mut file) = fs.create(path, 0o600) else { return };
        if file.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

/// What kubelet writes after it has joined the cluster of the configuration.
fn kubeconfig(fs: &MemFs) -> Option<String> {
    let config: Value = serde_json::from_slice(&fs.read(Path::new(CONFIG), 1 << 20).ok()??).ok()?;
    let kubelet = &config["node"]["kubelet"];
    let (server, ca) = (kubelet["clusterFQDN"].as_str()?, kubelet["caCertData"].as_str()?);
    let pem = testing::CERTIFICATE;
    Some(format!(
        "clusters:\n- name: c\n  cluster: {{server: 'https://{server}', certificate-authority-data: {ca}}}\n\
         users:\n- name: u\n  user: {{client-certificate: {pem}, client-key: {pem}}}\n\
         contexts:\n- name: x\n  context: {{cluster: c, user: u}}\ncurrent-context: x\n"
    ))
}

//! A host of fakes on a disk that may have lost its power: what runs on it does what the real programs do.

use async_trait::async_trait;
use base64::Engine as _;
use flexnode_artifacts::bundle::{BundleRequest, Versions, pack};
use flexnode_daemon::daemon;
use flexnode_daemon::lock::{Held, LockFailure, Locks};
use flexnode_daemon::operations::{NodeContext, SeeNode};
use flexnode_daemon::resume::AgentResume;
use flexnode_daemon::service::SERVICE_UNIT_NAME;
use flexnode_daemon::start::{Cluster, Connect, Prepared, StartContext, Wait};
use flexnode_host::cri::Image;
use flexnode_host::cri::fake::FakeCri;
use flexnode_host::probe::{FakeProbe, KUBELET_HEALTHZ};
use flexnode_host::testing::{FakeHost, MemFs, Verb};
use flexnode_host::{FileKind, Fs, Host, Output, SwapArea};
use flexnode_isolation::none::UNIT_KUBELET;
use flexnode_kube::{ApiProblem, ApiServerFacts, ApiServerProbe, JoinProblem, Names, ReadyOutcome, WaitReady};
use flexnode_ops::{Cancel, Silent};
use flexnode_stack::places;
use flexnode_status::node::{NodeView, ReadyCondition};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

pub const CONFIG: &str = "/etc/aks-flex-node/config.json";
pub const PROGRAM: &str = "/root/aks-flex-node";
pub const OLD: &str = "1.36.2";
pub const NEW: &str = "1.36.3";
const SANDBOX_IMAGE: &str = "pause.example/pause:1";
const FSTAB: &str = "/etc/fstab";
const SWAP: &str = "/swap.img";
const CERTIFICATE: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
pub const CPU_STATE: &str = "/var/lib/kubelet/cpu_manager_state";

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

/// A CA and a client certificate of it, made once: making keys takes time.
static PKI: LazyLock<(String, String)> = LazyLock::new(|| {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "kubernetes");
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.use_authority_key_identifier_extension = true;
    params.distinguished_name.push(DnType::CommonName, "system:node:n1");
    let key = KeyPair::generate().unwrap();
    (pem, format!("{}{}", params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem()))
});

#[derive(Debug)]
pub struct Free;

impl Held for Free {}

#[async_trait]
impl Locks for Free {
    fn acquire(&self, _: &str) -> Result<Box<dyn Held>, LockFailure> {
        Ok(Box::new(Free))
    }
    async fn free(&self) -> Result<(), LockFailure> {
        Ok(())
    }
}

/// A cluster in which the Node is Ready, with a new heartbeat at each look, and has the version of the active slot.
#[derive(Debug)]
struct TheCluster {
    fs: Arc<MemFs>,
    beats: AtomicI64,
}

impl TheCluster {
    fn node(&self) -> NodeView {
        let second = 1_767_225_600 + self.beats.fetch_add(1, Ordering::Relaxed);
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
    let ca = base64::engine::general_purpose::STANDARD.encode(&PKI.0);
    json!({
        "azure": {"bootstrapToken": {"token": "abcdef.0123456789abcdef"}},
        "agent": {"nodeName": "n1"},
        "components": {"kubernetes": kubernetes, "sandboxImage": SANDBOX_IMAGE},
        "networking": {"dnsServiceIP": "10.96.0.10"},
        "bootstrap": {"offlineArtifacts": {"source": format!("/srv/{kubernetes}")}},
        "node": {
            "labels": {"a.example/x": label},
            "kubelet": {"clusterFQDN": "10.0.0.1:6443", "caCertData": ca},
        },
    })
    .to_string()
}

/// The head of a program for x86-64 (elf(5)), which the packer looks at, and a text that tells it from others.
fn elf(text: &str) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0".to_vec();
    bytes.resize(64, 0);
    bytes.extend(text.bytes());
    bytes
}

/// Packs a bundle of this version.
async fn bundle(fake: &FakeHost, kubernetes: &str) {
    let files = ["kubelet", "kubectl", "runc", "crictl", "ctrd/containerd", "ctrd/ctr", "ctrd/containerd-shim-runc-v2"];
    for file in files.into_iter().chain(["cni/bridge", "cni/host-local", "cni/loopback", "cni/portmap"]) {
        fake.fs.put(format!("/in/{file}"), elf(&format!("{file} with {kubernetes}")), 0o755);
    }
    let version = |text: &str| Some(text.to_string());
    let request = BundleRequest {
        dir: format!("/srv/{kubernetes}").into(),
        arch: "amd64".into(),
        kubelet: Some("/in/kubelet".into()),
        kubectl: Some("/in/kubectl".into()),
        kube_proxy: None,
        containerd: Some("/in/ctrd".into()),
        runc: Some("/in/runc".into()),
        cni: Some("/in/cni".into()),
        crictl: Some("/in/crictl".into()),
        images: Vec::new(),
        versions: Versions {
            kubernetes: version(kubernetes),
            containerd: version("2.1.9"),
            runc: version("1.3.6"),
            cni: version("1.9.1"),
            crictl: version("1.36.0"),
        },
    };
    pack(fake.fs.as_ref(), fake.commands.as_ref(), &request).await.unwrap();
    fake.fs.take("/in");
}

/// A host that was never a node, with things of others on it, and bundles of both versions.
pub async fn pristine() -> MemFs {
    let fake = FakeHost::new();
    let fs = &fake.fs;
    fs.put("/proc/self/status", "Uid:\t0\t0\t0\t0\n", 0o444).put_dir("/run/systemd/system", 0o755);
    fs.put("/etc/resolv.conf", "nameserver 10.0.0.2\n", 0o644).set_free_bytes(100 << 30);
    fs.put_dir("/etc/sysctl.d", 0o755).put_dir("/etc/modules-load.d", 0o755);
    fs.put(CONFIG, config(OLD, "1"), 0o600).put(PROGRAM, "agent", 0o755);
    fs.put(FSTAB, format!("{SWAP} none swap sw 0 0\n"), 0o644).put(SWAP, "", 0o600);
    fs.put("/etc/hosts", "127.0.0.1 localhost\n", 0o644).put("/var/lib/theirs/data", "precious", 0o600);
    let podman = r#"{"name": "podman", "plugins": [{"type": "bridge", "bridge": "cni-podman0"}]}"#;
    fs.put("/opt/cni/bin/theirs", "x", 0o755).put("/etc/cni/net.d/87-podman.conflist", podman, 0o644);
    fs.put("/etc/systemd/system/theirs.service", "[Service]\nExecStart=/bin/true\n", 0o644);
    for kubernetes in [OLD, NEW] {
        bundle(&fake, kubernetes).await;
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
    let dump = fake.fs.clone();
    fake.commands.answer_with("containerd", &["--config"], move |command| {
        let stdout = dump.read(Path::new(&command.args[1]), 1 << 20)?.unwrap_or_default();
        Ok(Output { code: Some(0), stdout, stderr: Vec::new() })
    });
    fake.commands.answer(".flexnode-tmp-aks-flex-node", &["version"], "1\n");
    fake.commands.answer_with("kubelet", &["--version"], |command| {
        let slot = command.program.ancestors().nth(2).and_then(Path::file_name).unwrap_or_default();
        let version = slot.to_string_lossy().split('-').next().unwrap_or_default().to_owned();
        Ok(Output { code: Some(0), stdout: format!("Kubernetes v{version}\n").into_bytes(), stderr: Vec::new() })
    });
    fake.commands.answer("ctr", &[], "");
    for verb in [Verb::Start, Verb::Restart] {
        let fs = fake.fs.clone();
        fake.systemd.hook(verb, UNIT_KUBELET, move || joins(fs.as_ref()));
    }
    // Far from both ends of the certificate's life.
    fake.clock.set_wall("2026-01-01T00:00:00Z".parse().unwrap());
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
    let kubeconfig = format!(
        "clusters:\n- name: c\n  cluster: {{server: 'https://10.0.0.1:6443', certificate-authority-data: {}}}\n\
         users:\n- name: u\n  user: {{client-certificate: {CERTIFICATE}, client-key: {CERTIFICATE}}}\n\
         contexts:\n- name: x\n  context: {{cluster: c, user: u}}\ncurrent-context: x\n",
        base64::engine::general_purpose::STANDARD.encode(&PKI.0)
    );
    let files = [(CERTIFICATE, PKI.1.as_str()), (places::KUBECONFIG, &kubeconfig), (CPU_STATE, "{}")];
    let is_there = |path: &str, text: &str| {
        fs.lstat(Path::new(path)).ok().flatten().is_some_and(|stat| stat.kind == FileKind::File)
            && fs.text(path) == text
    };
    if files.iter().all(|(path, text)| is_there(path, text)) {
        return;
    }
    // Without its certificate it needs the token.
    if !is_there(CERTIFICATE, &PKI.1) && !fs.exists(places::BOOTSTRAP_KUBECONFIG) {
        return;
    }
    let pki = PathBuf::from("/var/lib/kubelet/pki");
    if !fs.exists(&pki) {
        let _ = fs.mkdir(&pki, 0o700);
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

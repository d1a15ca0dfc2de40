//! What the tests of whole operations share: a bundle that the real packer made, a configuration for it, and programs of a
//! host of fakes that do what theirs do.
//!
//! # Panics
//! Everything here: a fixture that cannot be made is a failed test.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a fixture that cannot be made is a failed test")]

use crate::lock::{Held, LockFailure, Locks};
use async_trait::async_trait;
use base64::Engine as _;
use flexnode_artifacts::bundle::{BundleRequest, Versions, pack};
use flexnode_host::testing::{FakeHost, MemFs};
use flexnode_host::{Fs as _, Output};
use flexnode_model::{CgroupLayout, ContainerdGoal, Isolation, KubeletGoal, MachineGoal};
use flexnode_stack::places;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::LazyLock;

/// The configuration of these hosts.
pub const CONFIG: &str = "/etc/aks-flex-node/config.json";
/// The agent's program before it is installed.
pub const PROGRAM: &str = "/root/aks-flex-node";
/// The image of pod sandboxes in the configuration.
pub const SANDBOX_IMAGE: &str = "pause.example/pause:1";
/// kubelet's client certificate, where kubelet has it.
pub const CERTIFICATE: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
/// kubelet's record of processors.
pub const CPU_STATE: &str = "/var/lib/kubelet/cpu_manager_state";
/// Versions of what comes with every bundle.
const CONTAINERD: &str = "2.1.9";
const RUNC: &str = "1.3.6";

/// A CA and a client certificate of it with its key, made once: making keys takes time.
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

/// A lock that is always free.
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

/// A configuration of the Node n1 for a Kubernetes version whose bundle is at `source`.
pub fn config(kubernetes: &str, source: &str) -> Value {
    let ca = base64::engine::general_purpose::STANDARD.encode(&PKI.0);
    json!({
        "azure": {"bootstrapToken": {"token": "abcdef.0123456789abcdef"}},
        "agent": {"nodeName": "n1"},
        "components": {"kubernetes": kubernetes, "sandboxImage": SANDBOX_IMAGE},
        "networking": {"dnsServiceIP": "10.96.0.10"},
        "bootstrap": {"offlineArtifacts": {"source": source}},
        "node": {"kubelet": {"clusterFQDN": "10.0.0.1:6443", "caCertData": ca}},
    })
}

/// The head of a program for x86-64 (elf(5)), which the packer looks at, and a text that tells it from others.
pub fn elf(text: &str) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0".to_vec();
    bytes.resize(64, 0);
    bytes.extend(text.bytes());
    bytes
}

/// Packs the bundle of a Kubernetes version at `dir`, in the place of one that was there. All its programs differ from those
/// of other versions.
pub async fn pack_bundle(fake: &FakeHost, dir: &str, kubernetes: &str) {
    if fake.fs.exists(dir) {
        fake.fs.take(dir);
    }
    let files = ["kubelet", "kubectl", "runc", "crictl", "ctrd/containerd", "ctrd/ctr", "ctrd/containerd-shim-runc-v2"];
    for file in files.into_iter().chain(["cni/bridge", "cni/host-local", "cni/loopback", "cni/portmap"]) {
        fake.fs.put(format!("/in/{file}"), elf(&format!("{file} with {kubernetes}")), 0o755);
    }
    let version = |text: &str| Some(text.to_string());
    let request = BundleRequest {
        dir: dir.into(),
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
            containerd: version(CONTAINERD),
            runc: version(RUNC),
            cni: version("1.9.1"),
            crictl: version("1.36.0"),
        },
    };
    pack(fake.fs.as_ref(), fake.commands.as_ref(), &request).await.unwrap();
    fake.fs.take("/in");
}

/// A host on which an agent can start: root, systemd, a resolver, space, the agent's program.
pub fn plain(fs: &MemFs) {
    fs.put("/proc/self/status", "Uid:\t0\t0\t0\t0\n", 0o444).put_dir("/run/systemd/system", 0o755);
    fs.put("/etc/resolv.conf", "nameserver 10.0.0.2\n", 0o644).set_free_bytes(100 << 30);
    fs.put(PROGRAM, "agent", 0o755);
}

/// Lets the programs of a slot say and do what theirs do. The version of kubelet is that of its slot.
pub fn programs(fake: &FakeHost) {
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
    let told = format!("containerd github.com/containerd/containerd/v2 v{CONTAINERD} 1a2b3c4d\n");
    fake.commands.answer("containerd", &["--version"], &told);
    fake.commands.answer("runc", &["--version"], &format!("runc version {RUNC}\nspec: 1.2.1\n"));
    fake.commands.answer("ctr", &[], "");
    // Far from both ends of the certificate's life.
    fake.clock.set_wall("2026-01-01T00:00:00Z".parse().unwrap());
}

/// The files of a kubelet that has joined, each with its content; mode 0600.
pub fn kubelet_files() -> [(&'static str, String); 3] {
    let kubeconfig = format!(
        "clusters:\n- name: c\n  cluster: {{server: 'https://10.0.0.1:6443', certificate-authority-data: {}}}\n\
         users:\n- name: u\n  user: {{client-certificate: {CERTIFICATE}, client-key: {CERTIFICATE}}}\n\
         contexts:\n- name: x\n  context: {{cluster: c, user: u}}\ncurrent-context: x\n",
        base64::engine::general_purpose::STANDARD.encode(&PKI.0)
    );
    [(CERTIFICATE, PKI.1.clone()), (places::KUBECONFIG, kubeconfig), (CPU_STATE, "{}".to_owned())]
}

/// The goal of the Node n1 with everything as it is by default.
pub fn goal(kubernetes: &str) -> MachineGoal {
    MachineGoal {
        version: MachineGoal::VERSION,
        isolation: Isolation::None,
        node_name: "n1".into(),
        node_ips: Vec::new(),
        api_server: "https://10.0.0.1:6443".into(),
        ca_pem: "ca".into(),
        dns_service_ips: vec![[10, 96, 0, 10].into()],
        kubernetes_version: kubernetes.into(),
        containerd_version: None,
        runc_version: None,
        cni_version: None,
        kubelet: KubeletGoal {
            max_pods: 110,
            system_reserved: [].into(),
            kube_reserved: [].into(),
            image_gc_high_threshold: 85,
            image_gc_low_threshold: 80,
            verbosity: 2,
            config: serde_json::Map::new(),
        },
        containerd: ContainerdGoal { sandbox_image: "pause:1".into(), config: serde_json::Map::new() },
        cgroups: CgroupLayout::V2,
        artifacts: [].into(),
    }
}

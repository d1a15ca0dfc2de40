//! The directories and files that a node uses, and whose they are.

/// How a directory is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The agent's alone: it goes whole.
    Own,
    /// The agent's by its name, with other things of the agent below it: it goes when it is empty.
    OwnWhenEmpty,
    /// The node's programs share it. It goes whole when it was not there before the node; otherwise, and when nobody knows,
    /// only the entries of these names go (`*` at the end: what begins so).
    Shared(&'static [&'static str]),
    /// Other programs may have been the first to use it: it goes whole when it was not there before, otherwise it stays.
    Whole,
    /// A directory of the system: it goes when it was not there before and is empty.
    WhenEmpty,
    /// containerd's content: like [`Policy::Whole`], unless the images are kept.
    Images,
    /// Only these entries go.
    Entries(&'static [&'static str]),
    /// Reservations of addresses, a directory for each network: those of the pods' networks that were not there before go.
    Networks,
    /// Log directories of pods.
    PodLogs,
    /// Links to the logs of containers.
    ContainerLogs,
}

/// A directory and its policy.
#[derive(Clone, Copy, Debug)]
pub struct PlacePolicy {
    /// The path.
    pub path: &'static str,
    /// How it is treated.
    pub policy: Policy,
}

const fn place(path: &'static str, policy: Policy) -> PlacePolicy {
    PlacePolicy { path, policy }
}

/// All directories. What is in a directory stands before it, so that it is empty when its turn comes.
pub const PLACES: &[PlacePolicy] = &[
    place("/run/aks-flex-node", Policy::Own),
    place("/var/lib/kubelet", Policy::Shared(KUBELET)),
    place("/run/containerd", Policy::Shared(CONTAINERD_STATE)),
    // containerd 2 listens there for plugins of the node resource interface.
    place("/run/nri", Policy::Shared(&["nri.sock"])),
    place("/var/lib/containerd", Policy::Images),
    place("/opt/containerd", Policy::Whole),
    place("/etc/containerd/certs.d", Policy::Whole),
    place("/etc/containerd", Policy::Whole),
    place("/var/lib/cni/results", Policy::WhenEmpty),
    place("/var/lib/cni/networks", Policy::Networks),
    place("/var/lib/cni", Policy::Whole),
    place("/etc/cni/net.d", Policy::Whole),
    place("/etc/cni", Policy::Whole),
    place("/opt/cni/bin", Policy::Whole),
    place("/opt/cni", Policy::Whole),
    place("/etc/kubernetes/manifests", Policy::Whole),
    place("/etc/kubernetes/pki", Policy::Shared(&["apiserver-client-ca.crt", TEMP])),
    place("/etc/kubernetes/volumeplugins", Policy::Whole),
    place("/etc/kubernetes", Policy::Whole),
    place("/usr/libexec/kubernetes", Policy::Whole),
    place("/var/log/pods", Policy::PodLogs),
    place("/var/log/containers", Policy::ContainerLogs),
    place("/var/log/aks-flex-node", Policy::Whole),
    place("/run/netns", Policy::WhenEmpty),
    place("/etc/unbounded/containerd", Policy::Own),
    place("/etc/unbounded/kubelet", Policy::Own),
    place("/etc/unbounded", Policy::OwnWhenEmpty),
    place("/etc/modules-load.d", Policy::WhenEmpty),
    place("/etc/sysctl.d", Policy::WhenEmpty),
    place("/etc/aks-flex-node", Policy::Entries(STATE)),
    place("/var/lib/aks-flex-node", Policy::Entries(ARTIFACTS)),
    place("/opt/unbounded/agent/bin", Policy::OwnWhenEmpty),
    place("/opt/unbounded/agent/lib", Policy::OwnWhenEmpty),
    place("/opt/unbounded/agent", Policy::OwnWhenEmpty),
    place("/opt/unbounded", Policy::OwnWhenEmpty),
];

/// Credentials: they go first, and whatever else fails.
pub const CREDENTIALS: &[&str] = &[
    "/var/lib/kubelet/kubeconfig",
    "/var/lib/kubelet/bootstrap-kubeconfig",
    "/var/lib/kubelet/pki",
    "/etc/aks-flex-node/daemon-credentials",
];

/// Single files of the agent's names that are looked for besides.
pub const FILES: &[&str] = &["/etc/systemd/system/aks-flex-node-agent-recovery.service"];

/// The programs of the agent's own upgrades, below R.
pub const AGENT_SLOTS: &str = "lib/aks-flex-node";

/// How names of unfinished files begin.
const TEMP: &str = ".flexnode-tmp-*";

/// What kubelet keeps in its directory (kubernetes: pkg/kubelet), and what the agent writes there. `seccomp` is not in it:
/// profiles are put there by people.
const KUBELET: &[&str] = &[
    "allocated_pods_state",
    "actuated_pods_state",
    "bootstrap-kubeconfig",
    "checkpoints",
    "cpu_manager_state",
    "device-plugins",
    "dra_manager_state",
    "image_manager",
    "kubeconfig",
    "memory_manager_state",
    "pki",
    "plugins",
    "plugins_registry",
    "pod-resources",
    "pod_status_manager_state",
    "pods",
    "usernamespaces",
    TEMP,
];

/// What containerd keeps at run time.
const CONTAINERD_STATE: &[&str] =
    &["containerd.sock", "containerd.sock.ttrpc", "debug.sock", "fifo", "io.containerd.*", "runc", "s", TEMP];

/// What the agent writes beside the user's config.json.
const STATE: &[&str] = &[
    "agent-upgrade-signal.json",
    "daemon-credentials",
    "daemon-state.json",
    "daemon-state.json.sha256",
    "host-root-agents",
    TEMP,
];

/// The artifact store. Journal and record go last, by themselves.
const ARTIFACTS: &[&str] = &["artifacts", TEMP];

/// Names of links that network plugins of a node make: `cni0` of the bridge plugin, `cbr0` of its Kubernetes
/// configuration, and those of the unbounded network.
pub const LINKS: &[&str] = &["cni0", "cbr0", "geneve0", "vxlan0", "ipip0", "unbounded0", "kube-ipvs0", "flannel.1"];

/// Whether `name` is one of `patterns`, in which a `*` at one end stands for anything.
pub fn matches(patterns: &[&str], name: &str) -> bool {
    patterns.iter().any(|pattern| match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
        (Some(prefix), _) => name.starts_with(prefix),
        (None, Some(suffix)) => name.ends_with(suffix),
        (None, None) => *pattern == name,
    })
}

/// Whether a directory in /var/log/pods is a pod's: NAMESPACE_NAME_UID.
pub fn is_pod_log(name: &str) -> bool {
    let parts: Vec<&str> = name.split('_').collect();
    matches!(parts.as_slice(), [namespace, pod, uid] if !namespace.is_empty() && !pod.is_empty()
        && uid.len() >= 32 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'))
}

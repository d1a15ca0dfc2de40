//! The KubeletConfiguration (kubelet.config.k8s.io/v1beta1).
//!
//! Everything that kubelet takes from its file is here and not in flags. Three layers: the baseline of this agent family,
//! the goal's `node.kubelet.config`, and what the agent owns. Written as JSON, which is YAML too: no value can be taken
//! for another type.

use crate::facts::HostFacts;
use crate::merge::merge;
use crate::places::{CLIENT_CA, CONTAINERD_SOCKET, STATIC_PODS, VOLUME_PLUGINS};
use flexnode_model::{CgroupLayout, MachineGoal};
use serde_json::{Map, Value, json};

/// From this minor version of Kubernetes 1 on kubelet refuses cgroup v1 unless it is told.
const REFUSES_CGROUP_V1: u32 = 35;

/// Suites with forward secrecy and authenticated encryption. The two RSA key exchange suites of older baselines are left
/// out: kubelet warns of them at each start, and every client of a supported Kubernetes speaks one of these.
const CIPHER_SUITES: [&str; 6] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// The file's bytes for this goal.
///
/// # Panics
/// Never: a JSON value of text keys can always be written.
pub fn config(goal: &MachineGoal, facts: &HostFacts) -> Vec<u8> {
    let mut config = baseline(goal, facts);
    merge(&mut config, &goal.kubelet.config);
    merge(&mut config, &owned(goal));
    let mut bytes = serde_json::to_vec_pretty(&config).expect("a JSON value can be written");
    bytes.push(b'\n');
    bytes
}

/// Whether kubelet has to be told to run on cgroup v1; worth a warning to a person, since a later version will not.
pub fn tolerates_cgroup_v1(goal: &MachineGoal) -> bool {
    goal.cgroups == CgroupLayout::V1 && minor(&goal.kubernetes_version).is_none_or(|minor| minor >= REFUSES_CGROUP_V1)
}

/// The minor version of `1.MINOR.PATCH`.
fn minor(version: &str) -> Option<u32> {
    version.trim_start_matches('v').split('.').nth(1)?.parse().ok()
}

/// What holds unless a person says otherwise.
fn baseline(goal: &MachineGoal, facts: &HostFacts) -> Map<String, Value> {
    let value = json!({
        "address": if goal.node_ips.iter().any(std::net::IpAddr::is_ipv6) { "::" } else { "0.0.0.0" },
        "cgroupsPerQOS": true,
        "clusterDomain": "cluster.local",
        "enforceNodeAllocatable": ["pods"],
        "eventRecordQPS": 0,
        "nodeStatusUpdateFrequency": "10s",
        "podPidsLimit": -1,
        "protectKernelDefaults": true,
        "readOnlyPort": 0,
        "resolvConf": facts.resolv_conf,
        "runtimeRequestTimeout": "15m",
        "staticPodPath": STATIC_PODS,
        "streamingConnectionIdleTimeout": "4h",
        "tlsCipherSuites": CIPHER_SUITES,
        "volumePluginDir": VOLUME_PLUGINS,
    });
    object(value)
}

/// What a person cannot say otherwise: the rest of the node depends on it.
fn owned(goal: &MachineGoal) -> Map<String, Value> {
    let kubelet = &goal.kubelet;
    let driver = match goal.cgroups {
        CgroupLayout::V1 => "cgroupfs",
        CgroupLayout::V2 => "systemd",
    };
    let mut value = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": CLIENT_CA},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": driver,
        "clusterDNS": goal.dns_service_ips,
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "imageGCHighThresholdPercent": kubelet.image_gc_high_threshold,
        "imageGCLowThresholdPercent": kubelet.image_gc_low_threshold,
        "kubeReserved": kubelet.kube_reserved,
        "logging": {"verbosity": kubelet.verbosity},
        "maxPods": kubelet.max_pods,
        "rotateCertificates": true,
        "systemReserved": kubelet.system_reserved,
    });
    if tolerates_cgroup_v1(goal) {
        value["failCgroupV1"] = false.into();
    }
    object(value)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

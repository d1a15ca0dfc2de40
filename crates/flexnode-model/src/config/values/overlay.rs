//! `node.kubelet.config` and `node.containerd.config`: settings that a person merges over ours, without those that the
//! agent has to own.

use super::Fault;
use serde_json::{Map, Value};

/// Keys of a KubeletConfiguration that are the agent's, and what to do instead.
const KUBELET: &[(&[&str], &str)] = &[
    (&["apiVersion"], "remove it"),
    (&["kind"], "remove it"),
    (&["clusterDNS"], "set networking.dnsServiceIP"),
    (&["containerRuntimeEndpoint"], "remove it"),
    (&["imageServiceEndpoint"], "remove it"),
    (&["authentication"], "remove it"),
    (&["authorization", "mode"], "remove it"),
    (&["registerWithTaints"], "set node.taints"),
    (&["registerNode"], "remove it"),
    (&["rotateCertificates"], "remove it"),
    (&["cgroupDriver"], "remove it, it follows the host's control groups"),
    (&["healthzPort"], "remove it, the agent looks there whether kubelet is well"),
    (&["healthzBindAddress"], "remove it, the agent looks there whether kubelet is well"),
    (&["maxPods"], "set node.maxPods"),
    (&["systemReserved"], "set node.kubelet.systemReserved"),
    (&["kubeReserved"], "set node.kubelet.kubeReserved"),
    (&["imageGCHighThresholdPercent"], "set node.kubelet.imageGCHighThreshold"),
    (&["imageGCLowThresholdPercent"], "set node.kubelet.imageGCLowThreshold"),
    (&["logging", "verbosity"], "set node.kubelet.verbosity"),
];

/// Settings of containerd that are the agent's.
const CONTAINERD: &[(&[&str], &str)] = &[
    (&["version"], "remove it, it follows the version of containerd"),
    (&["root"], "remove it"),
    (&["state"], "remove it"),
    (&["imports"], "write the settings themselves"),
    (&["grpc", "address"], "remove it"),
    (&["plugins", "io.containerd.cri.v1.images", "pinned_images", "sandbox"], "set components.sandboxImage"),
    (&["plugins", "io.containerd.grpc.v1.cri", "sandbox_image"], "set components.sandboxImage"),
];

/// What is wrong with `node.kubelet.config`: path below it, and the fault.
pub fn kubelet(config: &Map<String, Value>) -> Vec<(String, Fault)> {
    owned(config, KUBELET)
}

/// What is wrong with `node.containerd.config`: path below it, and the fault. TOML has no null and no number beyond
/// 64 bits with a sign.
pub fn containerd(config: &Map<String, Value>) -> Vec<(String, Fault)> {
    let mut faults = owned(config, CONTAINERD);
    for (key, value) in config {
        not_in_toml(&crate::config::json::join("", key), value, &mut faults);
    }
    faults
}

fn owned(config: &Map<String, Value>, keys: &[(&[&str], &str)]) -> Vec<(String, Fault)> {
    let mut faults = Vec::new();
    for (path, fix) in keys {
        // kubelet reads its keys whatever their case; so two spellings are one key here.
        let found = path.split_first().and_then(|(first, rest)| {
            let (name, value) = entry(config, first)?;
            rest.iter().try_fold((name.to_owned(), value), |(path, value), key| {
                let (name, value) = entry(value.as_object()?, key)?;
                Some((crate::config::json::join(&path, name), value))
            })
        });
        if let Some((path, _)) = found {
            faults.push((path, Fault::new("the agent sets this itself", *fix)));
        }
    }
    faults
}

fn entry<'a>(map: &'a Map<String, Value>, key: &str) -> Option<(&'a str, &'a Value)> {
    map.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(name, value)| (name.as_str(), value))
}

fn not_in_toml(path: &str, value: &Value, faults: &mut Vec<(String, Fault)>) {
    match value {
        Value::Null => faults.push((path.into(), Fault::new("null has no place in containerd's file", "remove it"))),
        Value::Number(n) if n.is_u64() && n.as_i64().is_none() => {
            faults.push((path.into(), Fault::new("the number is too large", "write at most 9223372036854775807")));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| not_in_toml(&format!("{path}[{i}]"), item, faults));
        }
        Value::Object(map) => {
            map.iter().for_each(|(key, item)| not_in_toml(&crate::config::json::join(path, key), item, faults));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn paths(faults: Vec<(String, Fault)>) -> Vec<String> {
        faults.into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn keys_that_the_agent_owns_are_refused() {
        let config = json!({
            "clusterdns": ["10.0.0.1"], "authorization": {"mode": "AlwaysAllow", "webhook": {}}, "authentication": {},
            "logging": {"format": "json"}, "maxPods": 5, "podPidsLimit": 100
        });
        let found = paths(kubelet(config.as_object().unwrap()));
        assert_eq!(found, ["clusterdns", "authentication", "authorization.mode", "maxPods"]);
        assert!(kubelet(json!({"authorization": 5, "logging": null}).as_object().unwrap()).is_empty());
    }

    #[test]
    fn containerd_gets_only_what_toml_can_say() {
        let config = json!({
            "version": 3, "plugins": {"io.containerd.grpc.v1.cri": {"sandbox_image": "a", "x": [null, 1]}},
            "oom_score": 18_446_744_073_709_551_615_u64
        });
        let found = paths(containerd(config.as_object().unwrap()));
        assert_eq!(
            found,
            [
                "version",
                "plugins[\"io.containerd.grpc.v1.cri\"].sandbox_image",
                "oom_score",
                "plugins[\"io.containerd.grpc.v1.cri\"].x[0]"
            ]
        );
    }
}

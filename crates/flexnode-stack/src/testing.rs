//! Goals for tests.

use flexnode_model::{CgroupLayout, ContainerdGoal, Isolation, Join, KubeletGoal, MachineGoal, Secret};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

pub(crate) fn object(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

pub(crate) fn goal(containerd: &str, cgroups: CgroupLayout) -> MachineGoal {
    MachineGoal {
        version: 1,
        isolation: Isolation::None,
        node_name: "node-1.example".into(),
        node_ips: vec!["10.1.2.3".parse().unwrap()],
        api_server: "https://api.example:6443".into(),
        ca_pem: "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".into(),
        dns_service_ips: vec!["10.96.0.10".parse().unwrap()],
        kubernetes_version: "1.36.3".into(),
        containerd_version: Some(containerd.into()),
        runc_version: Some("1.3.6".into()),
        cni_version: Some("1.9.1".into()),
        kubelet: KubeletGoal {
            max_pods: 110,
            system_reserved: BTreeMap::from([("cpu".into(), "0".into()), ("memory".into(), "0".into())]),
            kube_reserved: BTreeMap::from([("cpu".into(), "100m".into()), ("memory".into(), "1Gi".into())]),
            image_gc_high_threshold: 85,
            image_gc_low_threshold: 80,
            verbosity: 2,
            config: Map::new(),
        },
        containerd: ContainerdGoal { sandbox_image: "registry.example/pause:3.10".into(), config: Map::new() },
        cgroups,
        artifacts: BTreeMap::new(),
    }
}

pub(crate) fn join() -> Join {
    Join {
        token: Some(Secret::new("abcdef.0123456789abcdef")),
        labels: BTreeMap::from([("b".into(), String::new()), ("a.example/zone".into(), "z1".into())]),
        taints: vec!["dedicated=gpu:NoSchedule".into(), "a:NoExecute".into()],
        source: "/srv/bundle".into(),
        allow_unverified: vec![],
    }
}

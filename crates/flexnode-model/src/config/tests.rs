use super::*;
use crate::{CgroupLayout, Isolation};
use serde_json::{Value, json};

const CA: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BTUNBUUU9Ci0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K";

fn facts() -> HostFacts {
    HostFacts {
        host_name: "PHost01".into(),
        memory_bytes: 16 << 30,
        cpus: 4,
        cgroups: CgroupLayout::V2,
        arch: "amd64".into(),
    }
}

fn minimal() -> Value {
    json!({
        "azure": {"bootstrapToken": {"token": "abcdef.0123456789abcdef"}},
        "components": {"kubernetes": "v1.36.3"},
        "bootstrap": {"offlineArtifacts": {"source": "/srv/{{.KubernetesVersionNoV}}"}},
        "node": {"kubelet": {"clusterFQDN": "api.example.com:6443", "caCertData": CA}}
    })
}

/// The minimal configuration with one value put at `path`.
fn with(path: &str, value: Value) -> Vec<u8> {
    let mut document = minimal();
    let mut at = &mut document;
    for key in path.split('.') {
        at = &mut at[key];
    }
    *at = value;
    document.to_string().into_bytes()
}

fn load(bytes: &[u8]) -> Result<(MachineGoal, Join, Vec<String>), Vec<String>> {
    match Config::load(bytes, &facts()) {
        Ok((_, goal, join, warnings)) => Ok((goal, join, warnings.iter().map(ToString::to_string).collect())),
        Err(errors) => Err(errors.problems().iter().map(ToString::to_string).collect()),
    }
}

/// The one problem of a configuration.
fn problem(bytes: &[u8]) -> String {
    let problems = load(bytes).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems.into_iter().next().unwrap()
}

#[test]
fn a_small_configuration_gets_every_default() {
    let (goal, join, warnings) = load(minimal().to_string().as_bytes()).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&goal).unwrap());
    assert_eq!(join.source.to_str(), Some("/srv/1.36.3"));
    assert_eq!(join.token.as_ref().unwrap().expose(), "abcdef.0123456789abcdef");
    assert_eq!(join.labels["kubernetes.azure.com/managed"], "false");
    assert_eq!(join.labels["unbounded-cloud.io/machine"], "phost01");
    assert_eq!(warnings, ["agent.nodeName: the host name \"PHost01\" is written \"phost01\" for the Node"]);
}

#[test]
fn every_supported_key_reaches_the_goal() {
    let document = json!({
        "azure": {"bootstrapToken": {"token": " abcdef.0123456789abcdef\n"}},
        "agent": {"nodeName": "n1", "logLevel": " Debug "},
        "components": {"kubernetes": "1.36.3", "containerd": "v2.1.9", "runc": "1.3.6", "sandboxImage": "r.example/pause:1"},
        "networking": {"dnsServiceIP": "fd00::a,10.96.0.10", "cniVersion": "1.9.1"},
        "bootstrap": {"offlineArtifacts": {"source": "file:///srv/b/"}, "allowUnverified": ["runc/v1.3.6/runc.amd64"]},
        "node": {
            "isolation": "none", "maxPods": 50, "labels": {"a.b/c": "d"}, "taints": ["k=v:NoSchedule", "k:NoExecute"],
            "kubelet": {
                "clusterFQDN": "https://[fd00::1]:6443/", "caCertData": CA, "nodeIP": "fd00::5,10.0.0.5", "verbosity": 4,
                "imageGCHighThreshold": 70, "imageGCLowThreshold": 60, "systemReserved": {"memory": "1Gi"},
                "kubeReserved": {"cpu": "200m", "pid": "100"}, "config": {"failSwapOn": false}
            },
            "containerd": {"config": {"oom_score": -999}}
        }
    });
    let (config, goal, join, warnings) = Config::load(document.to_string().as_bytes(), &facts()).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&goal).unwrap());
    assert_eq!(warnings, []);
    assert_eq!(config.log_level(), LogLevel::Debug);
    assert_eq!(config.node.isolation, Some(Isolation::None));
    assert_eq!(join.taints, ["k=v:NoSchedule", "k:NoExecute"]);
    assert_eq!(join.labels["a.b/c"], "d");
    assert_eq!(join.allow_unverified, ["runc/v1.3.6/runc.amd64"]);
    assert_eq!(join.token.unwrap().expose(), "abcdef.0123456789abcdef");
}

#[test]
fn all_problems_are_told_in_one_run_and_missing_keys_first() {
    let document = json!({
        "apiVerstion": "v1",
        "agent": {"nodeName": "a_b"},
        "components": {"kubernetes": 1.36},
        "node": {"maxPods": "110", "kubelt": {}, "labels": {"node-role.kubernetes.io/worker": ""}, "taints": ["x", 5]},
        "azure": {"bootstrapToken": {"token": "hunter2hunter2hunter2"}}
    });
    let problems = load(document.to_string().as_bytes()).unwrap_err();
    insta::assert_snapshot!(problems.join("\n"));
}

#[test]
fn the_misspelling_of_a_required_key_is_told_with_what_is_missing() {
    let mut document = minimal();
    let fqdn = document["node"]["kubelet"].as_object_mut().unwrap().remove("clusterFQDN").unwrap();
    document["node"]["kubelet"]["clusterFQND"] = fqdn;
    let problems = load(document.to_string().as_bytes()).unwrap_err();
    assert_eq!(
        problems,
        [
            "node.kubelet.clusterFQDN: it is missing; write the API server, as host:port",
            "node.kubelet.clusterFQND: this key is not known; did you mean node.kubelet.clusterFQDN?"
        ]
    );
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_accepted() {
    let text = serde_json::to_string_pretty(&minimal()).unwrap().replace('\n', "\r\n");
    let plain = load(minimal().to_string().as_bytes()).unwrap().0;
    assert_eq!(load(format!("\u{feff}{text}\r\n").as_bytes()).unwrap().0, plain);
}

#[test]
fn bytes_that_are_no_json_are_named() {
    for (bytes, words) in [
        (&b""[..], "the file is empty"),
        (b"\xef\xbb\xbf \r\n", "the file is empty"),
        (b"\x1f\x8b\x08\x00", "gzip data begins at line 1, column 1; unpack the file"),
        (b"\xff\xfe{\0}\0", "UTF-16"),
        (b"{\r\n \"a\": \"\xe4\"}", "byte 0xe4 at line 2, column 8 is not UTF-8"),
        ("{\n \u{a0}\"a\": 1}".as_bytes(), "a no-break space (U+00A0) at line 2, column 2"),
        ("{\u{201c}a\": 1}".as_bytes(), "a typographic quote (U+201C) at line 1, column 2"),
        ("{\"ä\u{201d}: 1}".as_bytes(), "a typographic quote (U+201D) at line 1, column 4"),
        (b"{'a': 1}", "a quote that JSON does not know (U+0027) at line 1, column 2"),
        (b"agent:\n  nodeName: x\n", "this is no JSON object"),
        (b"[]", "the document is no object"),
        (b"{} {}", "a second document begins at line 1, column 4"),
        (b"{\"agent\": {", "the file ends too early"),
        (b"{\n  // note\n}", "a comment at line 2, column 3"),
        (b"{\n  \"agent\": {},\n}", "it is no JSON at line 3, column 1: trailing comma"),
    ] {
        let found = load(bytes).unwrap_err();
        assert!(found[0].contains(words), "{:?}: {found:#?}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn keys_that_are_there_twice_are_refused_with_their_path() {
    let text = minimal().to_string().replacen("\"kubelet\":{", "\"kubelet\":{\"caCertData\":\"x\",", 1);
    assert_eq!(problem(text.as_bytes()), "node.kubelet.caCertData: the key is there twice; keep one of them");
    let text =
        minimal().to_string().replacen("\"components\"", "\"node\":{\"taints\":[{\"a\":1,\"a\":2}]},\"components\"", 1);
    let found = load(text.as_bytes()).unwrap_err();
    assert!(found.contains(&"node.taints[0].a: the key is there twice; keep one of them".into()), "{found:#?}");
    assert!(found.contains(&"node: the key is there twice; keep one of them".into()), "{found:#?}");
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_one() {
    for (path, fix) in [
        ("agent.NODENAME", "did you mean agent.nodeName?"),
        ("node.kubelet.nodeIp", "did you mean node.kubelet.nodeIP?"),
        ("node.nodeIP", "did you mean node.kubelet.nodeIP?"),
        ("nodes", "did you mean node?"),
        ("hostroutng", "did you mean hostRouting?"),
        ("zzzzzz", "remove it; known here are: agent, azure,"),
        ("bootstrap.offlineArtifacts.src", "did you mean bootstrap.offlineArtifacts.source?"),
    ] {
        let found = problem(&with(path, json!({})));
        assert!(found.starts_with(&format!("{path}: this key is not known; {fix}")), "{path}: {found}");
    }
}

#[test]
fn wrong_types_are_refused_with_their_path() {
    for (path, value, words) in [
        ("agent", json!("x"), "agent: a text was found; write an object, {...}"),
        ("agent.nodeName", json!(5), "agent.nodeName: a number was found; write a text in quotes"),
        (
            "node.maxPods",
            json!(1.5),
            "node.maxPods: a number with a fraction was found; write a whole number from 0 to 1000",
        ),
        ("node.maxPods", json!(1001), "node.maxPods: 1001 is out of range; write a whole number from 0 to 1000"),
        ("node.kubelet.verbosity", json!(-1), "node.kubelet.verbosity: -1 is out of range"),
        ("node.labels", json!({"a": 1}), "node.labels.a: a number was found; write a text in quotes"),
        ("node.labels", json!({"a": null}), "node.labels.a: null was found; write a text in quotes"),
        ("node.taints", json!(["a:NoExecute", true]), "node.taints[1]: true or false was found"),
        (
            "node.isolation",
            json!("docker"),
            "node.isolation: \"docker\" is none of its values; write one of: none, nspawn",
        ),
        ("node.kubelet.config", json!([]), "node.kubelet.config: a list was found; write an object, {...}"),
    ] {
        let found = problem(&with(path, value));
        assert!(found.starts_with(words), "{found}");
    }
}

#[test]
fn null_means_not_set() {
    let (goal, ..) = load(&with("node.maxPods", Value::Null)).unwrap();
    assert_eq!(goal.kubelet.max_pods, 110);
    assert!(load(&with("agent", Value::Null)).is_ok());
    assert!(problem(&with("agnt", Value::Null)).contains("did you mean agent?"));
}

#[test]
fn keys_of_the_original_that_are_not_supported_yet_warn() {
    for key in keys::LATER {
        let (_, _, warnings) =
            load(&with(key, json!({"anything": {"below": 1}}))).unwrap_or_else(|e| panic!("{key}: {e:#?}"));
        assert!(warnings.contains(&format!("{key}: this key is not supported yet and does nothing")), "{warnings:?}");
    }
}

#[test]
fn old_keys_are_read_and_the_new_one_is_told() {
    let mut document = minimal();
    document["components"] = Value::Null;
    document["kubernetes"] = json!({"version": "1.35.4"});
    document["node"]["kubelet"]["dnsServiceIP"] = json!("10.1.0.10");
    document["node"]["kubelet"]["serverURL"] = json!("https://other:443");
    let (goal, _, warnings) = load(document.to_string().as_bytes()).unwrap();
    assert_eq!(goal.kubernetes_version, "1.35.4");
    assert_eq!(goal.dns_service_ips, ["10.1.0.10".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(goal.api_server, "https://api.example.com:6443");
    assert!(
        warnings[0].starts_with("kubernetes.version: this old key is read as components.kubernetes"),
        "{warnings:?}"
    );
    assert!(warnings[2].contains("is ignored because node.kubelet.clusterFQDN is set"), "{warnings:?}");
    assert!(problem(&with("kubernetes", json!({"vrsion": 1}))).starts_with("kubernetes: this key is not known"));
}

#[test]
fn values_are_checked_where_they_stand() {
    for (path, value, words) in [
        ("agent.nodeName", json!("Node_1"), "write \"node-1\""),
        ("agent.logLevel", json!("loud"), "write debug, info, warning or error"),
        ("agent.metricsListen", json!("127.0.0.1"), "write a loopback address with a port"),
        ("agent.metricsListen", json!("0.0.0.0:9464"), "write a loopback address with a port"),
        ("components.kubernetes", json!("1.36"), "write all of it, 1.36.0"),
        ("components.sandboxImage", json!("pause"), "neither tag nor digest"),
        ("networking.dnsServiceIP", json!("dns"), "no IP address"),
        ("node.kubelet.clusterFQDN", json!("http://a"), "the scheme is \"http\""),
        ("node.kubelet.caCertData", json!("eHg="), "no certificate"),
        ("node.kubelet.nodeIP", json!("127.0.0.1"), "cannot be the address of a node"),
        ("node.kubelet.imageGCLowThreshold", json!(85), "the low threshold 85 is not below the high threshold 85"),
        ("node.kubelet.imageGCHighThreshold", json!(80), "imageGCHighThreshold: the low threshold 80"),
        ("node.kubelet.kubeReserved", json!({"gpu": "1"}), "node.kubelet.kubeReserved.gpu: kubelet cannot reserve"),
        ("node.kubelet.kubeReserved", json!({"memory": "16Gi"}), "it is all that the host has"),
        ("node.kubelet.systemReserved", json!({"cpu": "4 cores"}), "node.kubelet.systemReserved.cpu: "),
        (
            "node.kubelet.config",
            json!({"clusterDNS": []}),
            "node.kubelet.config.clusterDNS: the agent sets this itself",
        ),
        ("node.labels", json!({"a.kubernetes.io/x": "y"}), "node.labels[\"a.kubernetes.io/x\"]: kubelet may not set"),
        (
            "node.taints",
            json!(["a=b:NoExecute", "a:NoExecute"]),
            "node.taints[1]: \"a\" with this effect is there twice",
        ),
        ("node.containerd", json!({"config": {"a": [null]}}), "node.containerd.config.a[0]: null"),
        ("node.isolation", json!("nspawn"), "not supported yet"),
        ("bootstrap.offlineArtifacts.source", json!("oci://r/a:b"), "not supported yet"),
        ("bootstrap.allowUnverified", json!(["/etc/passwd"]), "bootstrap.allowUnverified[0]: "),
    ] {
        let found = problem(&with(path, value));
        assert!(found.contains(words), "{path}: {found}");
    }
}

#[test]
fn labels_that_the_agent_owns_are_forced() {
    let labels = json!({"kubernetes.azure.com/managed": "true", "unbounded-cloud.io/machine": "x"});
    let (_, join, warnings) = load(&with("node.labels", labels)).unwrap();
    assert_eq!(join.labels["kubernetes.azure.com/managed"], "false");
    assert_eq!(join.labels["unbounded-cloud.io/machine"], "phost01");
    assert_eq!(warnings.iter().filter(|w| w.contains("the agent sets this label")).count(), 2);
}

#[test]
fn a_host_that_cannot_register_is_refused_before_anything_else() {
    let facts = HostFacts { host_name: "worker_1".into(), ..facts() };
    let errors = Config::load(minimal().to_string().as_bytes(), &facts).unwrap_err();
    assert!(errors.to_string().contains("set agent.nodeName, for example to \"worker-1\""), "{errors}");
}

#[test]
fn a_family_that_the_dns_service_has_not_is_told() {
    let (_, _, warnings) = load(&with("node.kubelet.nodeIP", json!("fd00::5"))).unwrap();
    assert!(warnings.iter().any(|w| w.starts_with("networking.dnsServiceIP: 10.0.0.10 is of another family")));
}

#[test]
fn no_secret_is_ever_shown() {
    let secret = "s3cr3ts3cr3ts3cr3t";
    for path in ["azure.bootstrapToken.token", "azure.servicePrincipal.clientSecret", "azure.bootstrapToken", "azure"] {
        let bytes = with(path, json!(secret));
        match Config::parse(&bytes) {
            Ok((config, warnings)) => assert!(!format!("{config:?} {warnings:?}").contains(secret)),
            Err(errors) => assert!(!format!("{errors} {errors:?}").contains(secret), "{errors}"),
        }
    }
    let (config, goal, join, _) = Config::load(minimal().to_string().as_bytes(), &facts()).unwrap();
    assert!(!format!("{config:?} {goal:?} {join:?}").contains("0123456789abcdef"));
}

#[test]
fn the_goal_is_the_same_however_the_file_is_written() {
    let (goal, ..) = load(minimal().to_string().as_bytes()).unwrap();
    let (other, ..) = load(&with("node.kubelet.clusterFQDN", json!("https://API.example.com:6443/"))).unwrap();
    assert_eq!(goal.fingerprint(), other.fingerprint());
    assert_eq!(goal.slot().unwrap().as_str(), format!("1.36.3-{}", goal.fingerprint()));
    // Labels, taints, token and source are not part of it.
    let (other, ..) = load(&with("node.labels", json!({"a": "b"}))).unwrap();
    assert_eq!(goal.fingerprint(), other.fingerprint());
}

#[test]
fn differences_are_told_by_configuration_key() {
    let (goal, ..) = load(minimal().to_string().as_bytes()).unwrap();
    let mut other = goal.clone();
    assert_eq!(goal.differences(&other), []);
    other.kubelet.max_pods = 50;
    other.kubernetes_version = "1.37.0".into();
    other.ca_pem = "-----BEGIN CERTIFICATE-----\nother\n".into();
    other.containerd_version = Some("2.1.9".into());
    other.node_ips = vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
    other.artifacts.insert("runc/v1.3.6/runc.amd64".into(), "00ff".into());
    let auth = json!({"registry": {"auth": {"password": "hunter2"}}});
    other.containerd.config = auth.as_object().unwrap().clone();
    let shown: Vec<_> = goal.differences(&other).iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(shown.join("\n"));
    assert!(!shown.concat().contains("hunter2"));
    assert_ne!(goal.fingerprint(), other.fingerprint());
}

#[test]
fn what_only_follows_from_another_setting_is_no_difference_of_its_own() {
    let read = |value: &Value| Config::load(value.to_string().as_bytes(), &facts()).unwrap();
    let paths = |config: &Config, applied: &MachineGoal, told: &MachineGoal| -> Vec<(String, bool)> {
        let found = config.differences(&facts(), applied, told);
        found.into_iter().map(|difference| (difference.path.clone(), difference.is_editable())).collect()
    };
    let (config, told, ..) = read(&minimal());
    // More pods reserve more memory: only the pods are told.
    let mut value = minimal();
    value["node"]["maxPods"] = 200.into();
    let (_, applied, ..) = read(&value);
    assert_ne!(applied.kubelet.kube_reserved, told.kubelet.kube_reserved);
    assert_eq!(paths(&config, &applied, &told), [("node.maxPods".to_owned(), true)]);
    // What was reserved by name is a line of its own, and stays one when the file tells another amount.
    value["node"]["kubelet"]["kubeReserved"] = json!({"memory": "3Gi"});
    let (with, applied, ..) = read(&value);
    let both = [("node.kubelet.kubeReserved.memory".to_owned(), true), ("node.maxPods".to_owned(), true)];
    assert_eq!(paths(&config, &applied, &told), both);
    assert_eq!(paths(&with, &told, &applied), both);
    // What a source holds follows from the version that is gone to.
    let mut applied = told.clone();
    applied.kubernetes_version = "1.37.0".into();
    applied.containerd_version = Some("2.1.9".into());
    applied.artifacts.insert("kubernetes/v1.37.0/bin/linux/amd64/kubelet".into(), "00ff".into());
    assert_eq!(paths(&config, &applied, &told), [("components.kubernetes".to_owned(), true)]);
    let applied = MachineGoal { kubernetes_version: told.kubernetes_version.clone(), ..applied };
    let source = [("artifacts.kubernetes/v1.37.0/bin/linux/amd64/kubelet", false), ("components.containerd", true)];
    assert_eq!(paths(&config, &applied, &told), source.map(|(path, editable)| (path.to_owned(), editable)));
    // The host itself has changed.
    let mut applied = told.clone();
    applied.kubelet.kube_reserved.insert("memory".into(), "1Mi".into());
    assert_eq!(paths(&config, &applied, &told), [("node.kubelet.kubeReserved.memory".to_owned(), true)]);
    let applied = MachineGoal { cgroups: crate::CgroupLayout::V1, ..told.clone() };
    assert_eq!(paths(&config, &applied, &told), [("cgroups".to_owned(), false)]);
    assert_eq!(paths(&config, &told, &told), []);
}

#[test]
fn the_schema_describes_every_key() {
    fn bare(path: &str, schema: &Value, out: &mut Vec<String>) {
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            let full = json::join(path, key);
            if property["description"].as_str().is_none_or(str::is_empty) {
                out.push(full.clone());
            }
            bare(&full, property, out);
        }
    }
    let mut out = Vec::new();
    bare("", &config_schema(), &mut out);
    assert_eq!(out, Vec::<String>::new());
    assert_eq!(config_schema()["properties"]["node"]["properties"]["maxPods"]["maximum"], 1000);
}

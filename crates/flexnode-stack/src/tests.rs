//! Golden files of everything that is rendered, and whole installations over a file system in memory.

mod installing;
mod node;

use crate::testing::{goal, join, object};
use crate::{HostFacts, containerd, kubelet, places, render};
use flexnode_model::{CgroupLayout, MachineGoal};
use serde_json::{Value, json};
use std::path::Path;

const BIN: &str = "/opt/unbounded/node/current/bin";

fn facts() -> HostFacts {
    HostFacts { resolv_conf: places::RESOLV_CONF.into() }
}

fn rendered(goal: &MachineGoal, name: &str) -> String {
    let files = render(goal, &facts(), Path::new(BIN)).unwrap();
    String::from_utf8(files.into_iter().find(|file| file.name == name).unwrap().bytes).unwrap()
}

fn kubelet_config(goal: &MachineGoal) -> Value {
    serde_json::from_str(&rendered(goal, "kubelet/config.yaml")).unwrap()
}

#[test]
fn kubelet_on_cgroup_v2() {
    insta::assert_snapshot!(rendered(&goal("2.1.9", CgroupLayout::V2), "kubelet/config.yaml"));
}

#[test]
fn kubelet_on_cgroup_v1_with_settings_of_a_person() {
    let mut goal = goal("2.1.9", CgroupLayout::V1);
    goal.node_ips.push("fd00::3".parse().unwrap());
    goal.dns_service_ips.push("fd00::a".parse().unwrap());
    goal.kubelet.config = object(&json!({
        "podpidslimit": 4096, "authentication": {"anonymous": {"enabled": true}}, "cgroupDriver": "other",
        "evictionHard": {"memory.available": "200Mi"}, "clusterDNS": ["1.1.1.1"], "streamingConnectionIdleTimeout": null,
    }));
    insta::assert_snapshot!(rendered(&goal, "kubelet/config.yaml"));
}

#[test]
fn the_arguments_of_kubelet() {
    let mut goal = goal("2.1.9", CgroupLayout::V2);
    insta::assert_snapshot!(rendered(&goal, "kubelet/env"));
    goal.node_ips.push("fd00::3".parse().unwrap());
    assert!(rendered(&goal, "kubelet/env").contains("--node-ip=10.1.2.3,fd00::3"));
    goal.node_ips.clear();
    assert!(!rendered(&goal, "kubelet/env").contains("--node-ip"));
}

#[test]
fn the_registration_file() {
    let bytes = crate::environment::registration(&join()).unwrap();
    insta::assert_snapshot!(String::from_utf8(bytes).unwrap());
}

#[test]
fn containerd_2_on_cgroup_v2() {
    insta::assert_snapshot!(rendered(&goal("2.1.9", CgroupLayout::V2), "containerd/config.toml"));
}

#[test]
fn containerd_2_on_cgroup_v1_with_settings_of_a_person() {
    let mut goal = goal("2.2.0-rc.1", CgroupLayout::V1);
    goal.containerd.config = object(&json!({
        "version": 2, "root": "/elsewhere",
        "plugins": {
            "io.containerd.cri.v1.runtime": {"restrict_oom_score_adj": true},
            "io.containerd.cri.v1.images": {"max_concurrent_downloads": 3},
        },
    }));
    insta::assert_snapshot!(rendered(&goal, "containerd/config.toml"));
}

#[test]
fn containerd_1_7_on_cgroup_v2() {
    insta::assert_snapshot!(rendered(&goal("1.7.24", CgroupLayout::V2), "containerd/config.toml"));
}

#[test]
fn containerd_1_7_on_cgroup_v1() {
    insta::assert_snapshot!(rendered(&goal("1.7.24", CgroupLayout::V1), "containerd/config.toml"));
}

#[test]
fn the_first_containerd_2_has_one_directory_of_plugins() {
    let text = rendered(&goal("2.0.4", CgroupLayout::V2), "containerd/config.toml");
    assert!(text.contains("bin_dir = \"/opt/cni/bin\"") && text.contains("version = 3"), "{text}");
    assert!(text.contains("max_concurrent_downloads = 6") && !text.contains("transfer"), "{text}");
}

#[test]
fn a_containerd_that_is_not_known_is_refused() {
    for version in ["1.6.36", "3.0.0", "0", "", "latest"] {
        let error = render(&goal(version, CgroupLayout::V2), &facts(), Path::new(BIN)).unwrap_err();
        assert!(format!("{error:?}").contains("Version"), "{error:?}");
    }
    let mut goal = goal("2.1.9", CgroupLayout::V2);
    goal.containerd_version = None;
    assert!(render(&goal, &facts(), Path::new(BIN)).is_err());
}

#[test]
fn cgroup_v1_is_tolerated_only_where_kubelet_would_refuse_it() {
    for (layout, version, told) in [
        (CgroupLayout::V1, "1.35.0", true),
        (CgroupLayout::V1, "1.36.3", true),
        (CgroupLayout::V1, "1.34.9", false),
        (CgroupLayout::V2, "1.36.3", false),
    ] {
        let mut goal = goal("2.1.9", layout);
        goal.kubernetes_version = version.into();
        assert_eq!(kubelet_config(&goal).get("failCgroupV1"), told.then_some(&Value::Bool(false)), "{version}");
        assert_eq!(kubelet::tolerates_cgroup_v1(&goal), told);
    }
}

#[test]
fn both_programs_are_told_the_same_cgroup_driver() {
    for layout in [CgroupLayout::V1, CgroupLayout::V2] {
        for version in ["1.7.24", "2.0.4", "2.1.9"] {
            let goal = goal(version, layout);
            let systemd = kubelet_config(&goal)["cgroupDriver"] == "systemd";
            let text = rendered(&goal, "containerd/config.toml");
            assert_eq!(text.matches(&format!("SystemdCgroup = {systemd}")).count(), 2, "{text}");
            assert_eq!(text.matches("SystemdCgroup").count(), 2, "{text}");
        }
    }
}

#[test]
fn the_same_goal_gives_the_same_bytes() {
    let goal = goal("2.1.9", CgroupLayout::V2);
    let render = || render(&goal, &facts(), Path::new(BIN)).unwrap();
    assert_eq!(render(), render());
}

#[test]
fn credentials_of_registries_are_for_root_alone() {
    let mode = |goal: &MachineGoal| {
        let files = render(goal, &facts(), Path::new(BIN)).unwrap();
        files.iter().map(|file| (file.name, file.mode)).collect::<Vec<_>>()
    };
    let mut goal = goal("2.1.9", CgroupLayout::V2);
    assert_eq!(mode(&goal)[2..], [("containerd/config.toml", 0o644), ("goal.json", 0o600)]);
    goal.containerd.config = object(&json!({"plugins": {"x": {"password": "sesame"}}}));
    assert_eq!(mode(&goal)[2], ("containerd/config.toml", 0o600));
    let shown = format!("{:?}", render(&goal, &facts(), Path::new(BIN)).unwrap());
    assert!(!shown.contains("sesame"), "{shown}");
}

#[test]
fn a_setting_that_containerd_ignored_is_found() {
    let given = b"version = 3\n[plugins.'a.b'.x]\nright = 1\nwrong = true\ntime = '30m'\nlist = ['a']\nnumber = 2\n[metrics]\nadress = 'y'";
    let dump =
        b"version = 3\n[plugins.'a.b'.x]\nright = 1\nwrong = false\ntime = '30m0s'\nlist = ['a']\nnumber = 2.0\n[metrics]\naddress = 'y'";
    assert_eq!(containerd::ignored(given, dump).unwrap(), ["metrics.adress", "plugins.'a.b'.x.wrong"]);
    assert_eq!(containerd::ignored(dump, dump).unwrap(), [""; 0]);
    assert_eq!(containerd::ignored(given, b"").unwrap().len(), 7);
    assert!(containerd::ignored(given, b"panic: x").is_err());
}

/// The answers of real programs (`containerd --config FILE config dump`) to what is rendered here.
#[test]
fn real_containerds_understand_every_setting() {
    for (version, dump) in [
        ("1.7.24", include_str!("tests/fixtures/containerd-1.7.24.dump.toml")),
        ("2.1.9", include_str!("tests/fixtures/containerd-2.1.9.dump.toml")),
    ] {
        let mut goal = goal(version, CgroupLayout::V2);
        let text = rendered(&goal, "containerd/config.toml");
        assert_eq!(containerd::ignored(text.as_bytes(), dump.as_bytes()).unwrap(), [""; 0], "{version}");
        // The other generation's places, and another driver than the one that was asked for, are found.
        let other = if version == "2.1.9" { "1.7.24" } else { "2.1.9" };
        goal.containerd_version = Some(other.into());
        goal.cgroups = CgroupLayout::V1;
        let text = rendered(&goal, "containerd/config.toml");
        let ignored = containerd::ignored(text.as_bytes(), dump.as_bytes()).unwrap();
        for part in ["SystemdCgroup", "conf_dir", "sandbox", "config_path", "version"] {
            assert!(ignored.iter().any(|path| path.contains(part)), "{part} is not in {ignored:?}");
        }
    }
}

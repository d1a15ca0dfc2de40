use super::*;
use flexnode_host::durable::Refusal;
use flexnode_host::testing::{MemFs, Op};

const DIR: &str = "/etc/systemd/system";

fn spec() -> UnitSpec {
    UnitSpec::of(&Layout::default())
}

fn host() -> MemFs {
    let fs = MemFs::new();
    fs.put_dir(DIR, 0o755);
    fs
}

fn text(bytes: Result<Vec<u8>, UnitError>) -> String {
    String::from_utf8(bytes.unwrap()).unwrap()
}

#[test]
fn the_containerd_unit() {
    let expected = "\
# Written by aks-flex-node; changes are lost. Use a drop-in of your own instead.

[Unit]
Description=containerd of this Kubernetes node
After=network.target local-fs.target
# Its own back-off is enough; without this a few quick failures would end it for good.
StartLimitIntervalSec=0

[Service]
Type=notify
# It may be built in, or there may be no modules at all: no reason not to start.
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/opt/unbounded/node/current/bin/containerd --config /etc/unbounded/containerd/config.toml
# Containers live on while containerd is replaced.
Delegate=yes
KillMode=process
Restart=always
RestartSec=1
RestartSteps=10
RestartMaxDelaySec=60
LimitNPROC=infinity
LimitCORE=infinity
LimitNOFILE=infinity
TasksMax=infinity
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
";
    assert_eq!(text(render_containerd(&spec())), expected);
}

#[test]
fn the_kubelet_unit_orders_after_and_wants_the_agents_containerd() {
    let expected = "\
# Written by aks-flex-node; changes are lost. Use a drop-in of your own instead.

[Unit]
Description=kubelet of this Kubernetes node
After=network-online.target unbounded-containerd.service
Wants=network-online.target unbounded-containerd.service
# Its own back-off is enough; without this a few quick failures would end it for good.
StartLimitIntervalSec=0

[Service]
Type=exec
EnvironmentFile=/opt/unbounded/node/current/etc/kubelet/env
# Labels and taints to register with, if there are any.
EnvironmentFile=-/etc/unbounded/kubelet/registration.env
ExecStart=/opt/unbounded/node/current/bin/kubelet --config=/var/lib/kubelet/config.yaml $KUBELET_NODE_CONFIG_ARGS \
$KUBELET_KUBECONFIG_ARGS $KUBELET_REGISTRATION_ARGS
# How kubelet ends on SIGTERM.
SuccessExitStatus=143
# Mount helpers that it started serve pods that live on.
KillMode=process
Restart=always
RestartSec=1
RestartSteps=10
RestartMaxDelaySec=60

[Install]
WantedBy=multi-user.target
";
    let unit = text(render_kubelet(&spec()));
    assert_eq!(unit, expected);
    assert!(!unit.contains(" containerd.service"), "the distribution's containerd");
}

#[test]
fn the_local_dns_unit_runs_the_supervisor_as_a_dynamic_user() {
    let expected = "\
# Written by aks-flex-node; changes are lost. Use a drop-in of your own instead.

[Unit]
Description=LocalDNS of this Kubernetes node
Requires=unbounded-localdns-network.service
Wants=network-online.target
After=network-online.target unbounded-localdns-network.service
StartLimitIntervalSec=0

[Service]
# The supervisor says READY when CoreDNS answers, and keeps the watchdog while it does.
Type=notify
NotifyAccess=all
ExecStart=/opt/unbounded/node/current/libexec/localdns-supervisor
WatchdogSec=60
Restart=on-failure
RestartSec=2
KillMode=mixed
TimeoutStartSec=90
TimeoutStopSec=30
Slice=localdns.slice
DynamicUser=yes
AmbientCapabilities=CAP_NET_BIND_SERVICE
CapabilityBoundingSet=CAP_NET_BIND_SERVICE
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=yes

[Install]
WantedBy=multi-user.target
";
    assert_eq!(text(render_local_dns(&spec().local_dns_supervisor())), expected);
}

#[test]
fn the_launch_check_is_a_oneshot_whose_refusal_is_final_and_which_only_kubelet_pulls_in() {
    let expected = "\
# Written by aks-flex-node; changes are lost. Use a drop-in of your own instead.

[Unit]
Description=launch check of this allocation host
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=/opt/unbounded/agent/bin/aks-flex-node launch-check --node %H
TimeoutStartSec=120
Restart=on-failure
RestartMode=direct
RestartSec=5
# A final refusal.
RestartPreventExitStatus=77
";
    let unit = text(render_kubelet_launch_check("/opt/unbounded/agent/bin/aks-flex-node launch-check --node %H"));
    assert_eq!(unit, expected);
    assert!(!unit.contains("[Install]") && !unit.contains("RemainAfterExit"));
    assert!(render_kubelet_launch_check("/bin/true\nExecStartPost=/bin/evil").is_err());
}

#[test]
fn paths_of_the_spec_are_used_and_encoded() {
    let spec = UnitSpec {
        bin_dir: "/srv/my node/50%/bin".into(),
        kubelet_config_path: Some("/srv/kubelet config.yaml".into()),
        containerd_config_path: Some("/srv/containerd.toml".into()),
        ..spec()
    };
    let kubelet = text(render_kubelet(&spec));
    assert!(kubelet.contains("\nExecStart=\"/srv/my node/50%%/bin/kubelet\" \"--config=/srv/kubelet config.yaml\" $"));
    assert!(kubelet.contains("\nEnvironmentFile=/srv/my node/50%%/etc/kubelet/env\n"));
    let containerd = text(render_containerd(&spec));
    assert!(containerd.contains("\nExecStart=\"/srv/my node/50%%/bin/containerd\" --config /srv/containerd.toml\n"));
    for bad in ["/a\nExecStart=/bin/evil", "/a$b", "relative"] {
        let spec = UnitSpec { bin_dir: bad.into(), ..spec.clone() };
        assert!(matches!(render_kubelet(&spec), Err(UnitError::Render { unit: UNIT_KUBELET, .. })), "{bad}");
        assert!(matches!(render_containerd(&spec), Err(UnitError::Render { unit: UNIT_CONTAINERD, .. })), "{bad}");
    }
}

#[test]
fn unit_bytes_are_the_same_for_all_versions() {
    // Nothing of a version is in them: every path goes through the link.
    let unit = text(render_kubelet(&spec())) + &text(render_containerd(&spec()));
    assert!(unit.contains("/opt/unbounded/node/current/") && !unit.contains("/opt/unbounded/node/1"));
}

#[test]
fn write_units_writes_both_and_returns_their_paths() {
    let fs = host();
    let written = write_units(&fs, Path::new(DIR), &spec()).unwrap();
    let paths = ["unbounded-containerd.service", "unbounded-kubelet.service"].map(|unit| Path::new(DIR).join(unit));
    assert_eq!(written.paths, paths);
    assert_eq!(written.changed, paths);
    for path in paths {
        assert_eq!(fs.lstat(&path).unwrap().unwrap().mode, 0o644);
    }
}

/// C038 and C047: a file that is seen half written, or that comes from a place with another label.
#[test]
fn unit_writes_are_atomic() {
    for changes in 0.. {
        let fs = host();
        fs.put("/etc/systemd/system/unbounded-kubelet.service", "old", 0o644);
        fs.crash_after(changes);
        let _ = write_units(&fs, Path::new(DIR), &spec());
        let crashed = fs.crashed();
        fs.revive();
        let kubelet = fs.text("/etc/systemd/system/unbounded-kubelet.service");
        assert!(kubelet == "old" || kubelet == text(render_kubelet(&spec())), "half a unit after {changes}");
        if !crashed {
            break;
        }
    }
}

#[test]
fn units_whose_bytes_are_right_are_not_touched() {
    let fs = host();
    write_units(&fs, Path::new(DIR), &spec()).unwrap();
    fs.put("/etc/systemd/system/unbounded-kubelet.service", "changed by hand", 0o644);
    fs.clear_log();
    let written = write_units(&fs, Path::new(DIR), &spec()).unwrap();
    assert_eq!(written.changed, [Path::new("/etc/systemd/system/unbounded-kubelet.service")]);
    let renamed: Vec<_> = fs.log().into_iter().filter(|(op, _)| *op == Op::Rename).collect();
    assert_eq!(renamed.len(), 1, "{renamed:?}");
}

#[test]
fn a_bad_value_changes_nothing() {
    let fs = host();
    let bad = UnitSpec { kubelet_config_path: Some("/a\nb".into()), ..spec() };
    assert!(write_units(&fs, Path::new(DIR), &bad).is_err());
    assert_eq!(fs.changes(), 0);
}

#[test]
fn a_unit_that_a_person_masked_is_refused() {
    let fs = host();
    fs.put_link("/dev/null", "/etc/systemd/system/unbounded-containerd.service");
    let Err(UnitError::Fs(error)) = write_units(&fs, Path::new(DIR), &spec()) else { panic!("it was replaced") };
    assert!(matches!(Refusal::of(&error), Some(Refusal::NotAFile(_))));
}

#[test]
fn the_spec_survives_its_json() {
    let spec = UnitSpec {
        local_dns: true,
        gpu_setup: vec![vec!["/bin/a".into(), "b c".into()]],
        launch_check_command: Some("/bin/check".into()),
        kubelet_config_path: Some("/k".into()),
        containerd_config_path: Some("/c".into()),
        ..spec()
    };
    let json = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<UnitSpec>(&json).unwrap(), spec);
    assert!(serde_json::from_str::<UnitSpec>(r#"{"binDir":"/b","localDnsX":true}"#).is_err(), "an unknown key");
}

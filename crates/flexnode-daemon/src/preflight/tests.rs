//! All checks together, on a host of fakes.

use super::*;
use flexnode_host::testing::FakeHost;

const CONFIG: &str = "/etc/aks-flex-node/config.json";

fn fit() -> FakeHost {
    let fake = FakeHost::new();
    fake.fs.put("/proc/self/status", "Name:\tx\nUid:\t0\t0\t0\t0\n", 0o444);
    fake.fs.put_dir("/run/systemd/system", 0o755).put_dir("/etc/aks-flex-node", 0o755);
    fake.fs.put(CONFIG, "{}", 0o600).set_free_bytes(100 << 30);
    fake
}

pub(super) fn goal() -> flexnode_model::MachineGoal {
    let sample = include_str!("../../../flexnode-model/tests/samples/machine-goal-1.json");
    flexnode_model::MachineGoal::decode(sample.as_bytes()).unwrap()
}

fn input() -> Input {
    Input {
        config: CONFIG.into(),
        api_server: "https://10.0.0.1:6443".into(),
        ca_pem: String::new(),
        ports: ports::of(&goal()),
        keep_swap: false,
        runs: false,
    }
}

async fn found(fake: &FakeHost) -> Vec<Finding> {
    run(&fake.host(), &input()).await.into_iter().filter(|f| f.severity != Severity::Ok).collect()
}

/// The one finding that is not well.
async fn one(fake: &FakeHost) -> Finding {
    let all = found(fake).await;
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().unwrap()
}

#[tokio::test]
async fn a_fit_host_has_no_finding_and_is_not_changed() {
    let fake = fit();
    let before = fake.fs.tree_with_stamps();
    assert_eq!(found(&fake).await, []);
    assert_eq!(fake.fs.tree_with_stamps(), before);
    assert!(fake.kernel.log().is_empty() && fake.systemd.calls().is_empty() && fake.commands.log().is_empty());
}

#[tokio::test]
async fn who_is_not_root_is_told() {
    let fake = fit();
    fake.fs.put("/proc/self/status", "Uid:\t1000\t1000\t1000\t1000\n", 0o444);
    let finding = one(&fake).await;
    assert_eq!((finding.name, finding.severity), ("is-privileged-user", Severity::Error));
}

#[tokio::test]
async fn a_host_without_systemd_or_cgroups_is_refused() {
    let fake = fit();
    fake.fs.take("/run/systemd/system");
    fake.cgroups.set_version(None);
    let names: Vec<_> = errors(&found(&fake).await).iter().map(|f| f.name).collect();
    assert_eq!(names, ["systemd", "cgroups"]);
}

/// C019: our own unit is masked. C020: a foreign mask does not matter.
#[tokio::test]
async fn masked_units_of_ours_are_named_and_foreign_masks_are_not() {
    let fake = fit();
    fake.fs.put_link("/dev/null", "/etc/systemd/system/kubelet.service");
    assert_eq!(found(&fake).await, []);
    fake.fs.put_link("/dev/null", "/etc/systemd/system/unbounded-kubelet.service");
    let finding = one(&fake).await;
    assert_eq!(finding.hint.as_deref(), Some("systemctl unmask unbounded-kubelet.service"));
}

#[tokio::test]
async fn another_kubelet_is_named() {
    let fake = fit();
    fake.fs.put("/usr/lib/systemd/system/kubelet.service", "[Service]\n", 0o644).put("/usr/bin/kubelet", "", 0o755);
    let texts: Vec<String> = errors(&found(&fake).await).iter().map(|f| f.message.clone()).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].contains("/usr/lib/systemd/system/kubelet.service") && texts[1].contains("/usr/bin/kubelet"));
}

#[tokio::test]
async fn a_configuration_that_others_can_read_is_refused_with_the_chmod() {
    let fake = fit();
    fake.fs.put(CONFIG, "{}", 0o644);
    assert_eq!(one(&fake).await.hint.as_deref(), Some("chmod 0600 /etc/aks-flex-node/config.json"));
    fake.fs.put(CONFIG, "{}", 0o600).put_dir("/etc/aks-flex-node", 0o777);
    assert!(one(&fake).await.hint.unwrap().contains("chmod go-w /etc/aks-flex-node"));
}

/// C010: firewalld is asked for through its unit, and stopped is as good as absent.
#[tokio::test]
async fn an_active_firewalld_is_a_warning_and_a_stopped_one_is_none() {
    let fake = fit();
    fake.fs.put("/usr/lib/systemd/system/firewalld.service", "[Service]\nExecStart=/usr/sbin/firewalld\n", 0o644);
    assert_eq!(found(&fake).await, []);
    fake.systemd.set_active("firewalld.service", "active", "running");
    let finding = one(&fake).await;
    assert_eq!((finding.name, finding.severity), ("firewall", Severity::Warning));
    assert!(fake.commands.log().is_empty(), "firewall-cmd is not run");
}

#[tokio::test]
#[cfg(target_endian = "little")]
async fn a_port_of_kubelet_that_is_taken_is_named() {
    let fake = fit();
    fake.fs.put("/proc/net/tcp", "head\n 0: 00000000:280A 00000000:0000 0A 0:0 0:0 0 0 1\n", 0o444);
    assert!(one(&fake).await.message.contains("10250"));
    // Where our own kubelet runs it is its own.
    let found = run(&fake.host(), &Input { runs: true, ..input() }).await;
    assert!(errors(&found).is_empty());
}

#[tokio::test]
async fn a_full_or_noexec_or_read_only_disk_is_refused() {
    let fake = fit();
    fake.fs.set_free_bytes(1 << 30);
    let all = errors(&found(&fake).await);
    assert!(all.iter().all(|f| f.name == "disk-space") && all.len() == 2, "{all:?}");
    fake.fs.set_free_bytes(5 << 30);
    assert!(found(&fake).await.iter().all(|f| f.severity == Severity::Warning));
    let fake = fit();
    let mut mount = flexnode_host::testing::mount_point("/opt", "ext4", "/dev/vdb");
    mount.no_exec = true;
    fake.mounts.put(mount);
    let all = errors(&found(&fake).await);
    assert!(!all.is_empty() && all.iter().all(|f| f.message.contains("/opt is mounted noexec")), "{all:?}");
    let fake = fit();
    fake.fs.set_read_only("/etc", true);
    let all = errors(&found(&fake).await);
    assert!(!all.is_empty() && all.iter().all(|f| f.target.starts_with("/etc")), "{all:?}");
}

#[tokio::test]
async fn swap_and_static_pods_are_warnings() {
    let fake = fit();
    fake.kernel.change(|kernel| {
        kernel.swaps = vec![flexnode_host::SwapArea { path: "/s".into(), kind: "file".into(), bytes: 1, priority: 0 }];
    });
    fake.fs.put("/etc/kubernetes/manifests/etcd.yaml", "", 0o600);
    let names: Vec<_> = found(&fake).await.iter().map(|f| (f.name, f.severity)).collect();
    assert_eq!(names, [("swap-active", Severity::Warning), ("static-pods", Severity::Warning)]);
}

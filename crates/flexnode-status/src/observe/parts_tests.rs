use super::*;
use flexnode_host::SpaceLeft;
use flexnode_host::space::FakeSpace;
use flexnode_host::testing::MemFs;

const LIMIT: Duration = Duration::from_secs(5);

fn left(device: u64, free: u64) -> SpaceLeft {
    SpaceLeft { device, total_bytes: 1000, free_bytes: free, total_inodes: 100, free_inodes: 50 }
}

#[tokio::test]
async fn each_file_system_is_told_once_and_one_that_fails_is_unknown() {
    let fake = Arc::new(FakeSpace::default());
    fake.set("/var/lib/kubelet", Ok(left(1, 500)));
    fake.set("/var/lib/containerd", Ok(left(1, 500)));
    fake.set("/run", Ok(left(2, 10)));
    fake.set("/var/log", Err("it is stale"));
    let space: Arc<dyn Space> = fake;
    let found = disks(&space, LIMIT).await;
    let paths: Vec<&str> = found.iter().map(|disk| disk.path.as_str()).collect();
    assert_eq!(paths, ["/var/lib/kubelet", "/var/log", "/run"]);
    assert!(matches!(&found[1].space, Reading::Unknown(reason) if reason.contains("stale")));
    assert!(
        found[2].space.known().unwrap().is_short_of_bytes() && !found[0].space.known().unwrap().is_short_of_bytes()
    );
}

#[test]
fn the_network_plugins_configuration_and_its_programs() {
    let fs = MemFs::new();
    assert_eq!(cni(&fs).unwrap(), Cni::default(), "no directory");
    fs.put_dir("/etc/cni/net.d", 0o755).put_dir("/opt/cni/bin", 0o755).put("/etc/cni/net.d/README", "", 0o644);
    assert_eq!(cni(&fs).unwrap(), Cni::default(), "no configuration");
    fs.put("/etc/cni/net.d/10-x.conflist", r#"{"plugins": [{"type": "bridge"}, {"type": "portmap"}]}"#, 0o644);
    fs.put("/etc/cni/net.d/20-y.conf", r#"{"type": "other"}"#, 0o644).put("/opt/cni/bin/bridge", "", 0o755);
    let found = cni(&fs).unwrap();
    assert_eq!(found.configuration.as_deref(), Some("/etc/cni/net.d/10-x.conflist"));
    assert_eq!(found.missing_programs, ["portmap"]);
    fs.put("/etc/cni/net.d/10-x.conflist", "{", 0o644);
    assert!(cni(&fs).unwrap_err().contains("10-x.conflist is no JSON"));
}

#[test]
fn a_reboot_is_asked_for_by_the_distribution() {
    let fs = MemFs::new();
    fs.put_dir("/run", 0o755);
    assert_eq!(reboot(&fs).unwrap(), PendingReboot::default());
    fs.put("/run/reboot-required", "", 0o644).put("/run/reboot-required.pkgs", "linux-image\nlibc6\nlibc6\n", 0o644);
    assert_eq!(
        reboot(&fs).unwrap(),
        PendingReboot { needed: true, packages: vec!["libc6".into(), "linux-image".into()] }
    );
}

/// C115: a checkpoint with `{"a":1}` in it.
#[test]
fn damaged_state_of_kubelet_is_recognised() {
    let fs = MemFs::new();
    fs.put_dir("/var/lib/kubelet/device-plugins", 0o755);
    assert_eq!(damaged_kubelet_state(&fs), Vec::<PathBuf>::new());
    let base = Path::new("/var/lib/kubelet");
    fs.put(base.join("cpu_manager_state"), r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#, 0o600);
    fs.put(base.join("device-plugins/kubelet_internal_checkpoint"), r#"{"Data":{},"Checksum":1}"#, 0o600);
    assert_eq!(damaged_kubelet_state(&fs), Vec::<PathBuf>::new());
    fs.put(base.join("pod_status_manager_state"), r#"{"a":1}"#, 0o600).put(
        base.join("allocated_pods_state"),
        "",
        0o600,
    );
    fs.put(base.join("memory_manager_state"), "[1]", 0o600).put(base.join("other"), "x", 0o600);
    let names: Vec<PathBuf> = ["memory_manager_state", "allocated_pods_state", "pod_status_manager_state"]
        .iter()
        .map(|name| base.join(name))
        .collect();
    assert_eq!(damaged_kubelet_state(&fs), names);
}

#[test]
fn memory_of_a_process() {
    let fs = MemFs::new();
    fs.put("/proc/7/statm", "1000 25 3 4 0 6 0\n", 0o444).put("/proc/8/statm", "nonsense", 0o444);
    assert_eq!((resident(&fs, 7), resident(&fs, 8), resident(&fs, 9)), (Some(25 * PAGE), None, None));
}

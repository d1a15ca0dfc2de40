use super::*;
use flexnode_host::testing::mount_point;

fn findings(node: &Node) -> Vec<String> {
    let found = node.backend.host.detect_unmanaged(&node.fake.host(), Path::new(DEFAULT_BASE)).unwrap();
    found.iter().map(ToString::to_string).collect()
}

/// A host on which preflight passes.
fn clean() -> Node {
    let node = Node::new();
    node.fake.fs.put_dir("/sys/fs/cgroup", 0o755);
    node
}

#[test]
fn the_default_host_is_the_real_one() {
    let host = HostFs::default();
    let texts = |paths: &[std::path::PathBuf]| paths.iter().map(|p| p.to_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(
        texts(&host.unit_dirs),
        ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"]
    );
    assert_eq!(texts(&host.bin_dirs), ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]);
    assert_eq!((host.proc.as_path(), host.cgroup.as_path()), (Path::new("/proc"), Path::new("/sys/fs/cgroup")));
}

#[test]
fn a_clean_host_has_no_findings() {
    assert_eq!(findings(&clean()), Vec::<String>::new());
}

#[test]
fn unit_binary_and_process_are_each_a_finding() {
    let node = clean();
    node.fake.fs.put("/usr/lib/systemd/system/containerd.service", "[Service]\n", 0o644);
    node.fake.fs.put("/usr/bin/containerd", "elf", 0o755).put("/usr/local/bin/kubelet", "elf", 0o755);
    let process = node.fake.processes.spawn("/usr/bin/containerd", &["containerd"], "system.slice/x");
    assert_eq!(
        findings(&node),
        [
            "unit /usr/lib/systemd/system/containerd.service".to_owned(),
            "program /usr/local/bin/kubelet".to_owned(),
            "program /usr/bin/containerd".to_owned(),
            format!("process {} (/usr/bin/containerd)", process.pid),
        ]
    );
}

#[test]
fn a_masked_unit_is_no_finding() {
    let node = clean();
    node.fake.fs.put_link("/dev/null", "/etc/systemd/system/kubelet.service");
    assert_eq!(findings(&node), Vec::<String>::new());
    // What it hides cannot run either.
    node.fake.fs.put("/usr/lib/systemd/system/kubelet.service", "[Service]\n", 0o644);
    assert_eq!(findings(&node), Vec::<String>::new());
    // A mask that the next boot forgets hides nothing.
    let node = clean();
    node.fake.fs.put_link("/dev/null", "/run/systemd/system/kubelet.service");
    assert_eq!(findings(&node), Vec::<String>::new());
    node.fake.fs.put("/usr/lib/systemd/system/kubelet.service", "[Service]\n", 0o644);
    assert_eq!(findings(&node).len(), 1);
}

#[test]
fn two_names_of_one_directory_are_one_finding() {
    let node = clean();
    node.fake.fs.put_link("usr/lib", "/lib").put_link("usr/bin", "/bin").put_link("usr/bin", "/sbin");
    node.fake.fs.put("/usr/lib/systemd/system/kubelet.service", "[Service]\n", 0o644);
    node.fake.fs.put("/usr/bin/kubelet", "elf", 0o755);
    assert_eq!(findings(&node), ["unit /usr/lib/systemd/system/kubelet.service", "program /usr/bin/kubelet"]);
}

#[test]
fn what_cannot_be_executed_is_no_finding() {
    let node = clean();
    node.fake.fs.put("/usr/bin/kubelet", "notes", 0o644).put_dir("/usr/bin/containerd", 0o755);
    assert_eq!(findings(&node), Vec::<String>::new());
}

#[tokio::test]
async fn binaries_and_processes_below_the_base_are_no_findings() {
    let node = clean().running("v1").await;
    node.fake.fs.put_link("/opt/unbounded/node/current/bin/kubelet", "/usr/local/bin/kubelet");
    assert_eq!(findings(&node), Vec::<String>::new());
    // Also not after their files were replaced.
    let pid = node.state(UNIT_KUBELET).main_pid;
    node.fake.processes.update(pid, |p| p.exe = "/opt/unbounded/node/v0/bin/kubelet (deleted)".into());
    assert_eq!(findings(&node), Vec::<String>::new());
}

#[test]
fn a_process_whose_program_was_removed_is_a_finding() {
    let node = clean();
    node.fake.fs.put("/usr/bin/kubelet", "elf", 0o755);
    let process = node.fake.processes.spawn("/usr/bin/kubelet", &["kubelet"], "system.slice/x");
    node.fake.fs.take("/usr/bin/kubelet");
    node.fake.processes.update(process.pid, |p| p.exe = "/usr/bin/kubelet (deleted)".into());
    assert_eq!(findings(&node), [format!("process {} (/usr/bin/kubelet)", process.pid)]);
}

#[test]
fn a_kubelet_in_a_container_is_no_finding_unless_it_runs_the_hosts_file() {
    let node = clean();
    node.fake.fs.put("/srv/kubelet", "elf", 0o755);
    let process = node.fake.processes.spawn("/srv/kubelet", &["kubelet"], "machine.slice/x");
    node.fake.processes.update(process.pid, |p| p.mount_ns += 1);
    assert_eq!(findings(&node).len(), 1, "the host's file");
    node.fake.processes.update(process.pid, |p| p.exe_id = Some((77, 77)));
    assert_eq!(findings(&node), Vec::<String>::new());
}

#[test]
fn an_empty_proc_skips_the_search_for_processes() {
    let mut node = clean();
    node.fake.fs.put("/srv/kubelet", "elf", 0o755);
    node.fake.processes.spawn("/srv/kubelet", &["kubelet"], "system.slice/x");
    assert_eq!(findings(&node).len(), 1);
    node.backend.host.proc = "".into();
    assert_eq!(findings(&node), Vec::<String>::new());
}

#[test]
fn directories_can_be_replaced() {
    let mut node = clean();
    node.fake.fs.put("/tree/units/kubelet.service", "[Service]\n", 0o644).put("/tree/bin/containerd", "elf", 0o755);
    node.backend.host.unit_dirs = vec!["/tree/units".into()];
    node.backend.host.bin_dirs = vec!["/tree/bin".into()];
    assert_eq!(findings(&node), ["unit /tree/units/kubelet.service", "program /tree/bin/containerd"]);
}

#[test]
fn check_writable_names_every_path_that_cannot_be_written() {
    let node = clean();
    let fs = &*node.fake.fs;
    check_writable(fs, &["/etc", "/var"]).unwrap();
    fs.set_read_only("/etc", true);
    let error = check_writable(fs, &["/etc", "/var", "/etc/systemd"]).unwrap_err();
    let PreflightError::NotWritable(paths) = &error else { panic!("{error}") };
    assert_eq!(paths, &[Path::new("/etc"), Path::new("/etc/systemd")]);
    assert!(check_writable::<&str>(fs, &[]).is_ok());
}

#[test]
fn a_path_that_does_not_exist_is_judged_by_its_nearest_existing_parent() {
    let node = clean();
    let fs = &*node.fake.fs;
    check_writable(fs, &["/opt/unbounded/node/x/y"]).unwrap();
    fs.set_read_only("/opt", true);
    let error = check_writable(fs, &["/opt/unbounded/node/x/y"]).unwrap_err();
    assert!(error.to_string().contains("/opt/unbounded/node/x/y"), "{error}");
}

#[test]
fn preflight_passes_on_a_clean_host_and_changes_nothing() {
    let node = clean();
    let before = node.fake.fs.tree_with_stamps();
    node.backend.preflight().unwrap();
    assert_eq!(before.difference(&node.fake.fs.tree_with_stamps()), Vec::<String>::new());
    assert_eq!(node.fake.fs.changes(), 0);
    assert_eq!((node.calls(), node.fake.commands.lines()), (vec![], vec![]));
}

#[test]
fn preflight_is_static_then_ownership() {
    let node = clean();
    node.fake.fs.put("/usr/bin/kubelet", "elf", 0o755);
    assert!(matches!(node.backend.preflight().unwrap_err(), PreflightError::Unmanaged(_)));
    node.fake.fs.set_read_only("/etc", true);
    assert!(matches!(node.backend.preflight().unwrap_err(), PreflightError::NotWritable(_)));
    node.fake.fs.take("/usr/bin/kubelet");
    assert!(matches!(node.backend.preflight().unwrap_err(), PreflightError::NotWritable(_)));
}

#[tokio::test]
async fn the_static_preflight_is_right_on_a_host_that_is_a_running_node() {
    let node = clean().running("v1").await;
    node.fake.fs.put("/usr/bin/kubelet", "elf", 0o755);
    node.backend.preflight_static().unwrap();
    let error = node.backend.preflight_ownership().unwrap_err();
    assert!(error.to_string().contains("/usr/bin/kubelet"), "{error}");
}

#[test]
fn the_cgroup_file_system_is_checked_and_an_empty_path_skips_it() {
    let mut node = clean();
    node.fake.cgroups.set_version(None);
    assert!(matches!(node.backend.preflight_static().unwrap_err(), PreflightError::NoCgroups(_)));
    node.backend.host.cgroup = "".into();
    node.backend.preflight_static().unwrap();
    let node = clean();
    node.fake.fs.take("/sys/fs/cgroup");
    assert!(matches!(node.backend.preflight_static().unwrap_err(), PreflightError::NoCgroups(_)));
}

#[test]
fn commands_are_checked_only_when_look_path_is_set() {
    let mut node = clean();
    node.backend.preflight_static().unwrap();
    node.backend.look_path = LookPath::of(&node.fake.host());
    let error = node.backend.preflight_static().unwrap_err();
    let PreflightError::MissingCommands(missing) = &error else { panic!("{error}") };
    assert_eq!(missing, &node.backend.requirements().commands);
    for command in missing {
        node.fake.commands.on_path(command, format!("/usr/bin/{command}"));
    }
    node.backend.preflight_static().unwrap();
    node.backend.look_path = LookPath::new(|name| (name != "mount").then(|| "/bin/x".into()));
    assert!(node.backend.preflight_static().unwrap_err().to_string().contains("mount"));
}

/// C017: an installer that needs /usr where that is read-only.
#[test]
fn etc_the_base_and_var_must_be_writable_and_usr_need_not_be() {
    let node = clean();
    node.fake.fs.set_read_only("/usr", true);
    node.backend.preflight_static().unwrap();
    for path in ["/etc", "/opt", "/var"] {
        let node = clean();
        node.fake.fs.set_read_only(path, true);
        assert!(matches!(node.backend.preflight_static().unwrap_err(), PreflightError::NotWritable(_)), "{path}");
    }
    let needs = node.backend.requirements();
    let paths: Vec<&str> = needs.writable_paths.iter().map(|p| p.to_str().unwrap()).collect();
    assert_eq!(paths, ["/etc", "/opt/unbounded/node", "/var"]);
    assert!(needs.cgroups && !needs.commands.is_empty());
}

#[test]
fn check_paths_replace_the_required_ones() {
    let mut node = clean();
    node.fake.fs.set_read_only("/etc", true).put_dir("/tree", 0o755);
    node.backend.check_paths = vec!["/tree".into()];
    node.backend.preflight_static().unwrap();
    node.fake.fs.set_read_only("/tree", true);
    assert!(node.backend.preflight_static().unwrap_err().to_string().contains("/tree"));
}

#[test]
fn several_reasons_are_told_together() {
    let node = clean();
    node.fake.cgroups.set_version(None);
    node.fake.fs.set_read_only("/etc", true);
    let text = node.backend.preflight_static().unwrap_err().to_string();
    assert!(text.contains("cgroup") && text.contains("/etc"), "{text}");
}

/// C013: a program that nothing can execute, though it is root's and 0755.
#[test]
fn a_base_on_a_noexec_mount_is_refused() {
    let node = clean();
    let mut mount = mount_point("/opt", "ext4", "/dev/sdb1");
    mount.no_exec = true;
    node.fake.mounts.put(mount);
    let error = node.backend.preflight_static().unwrap_err();
    assert!(matches!(&error, PreflightError::NoExec { .. }), "{error}");
    // Another mount over it counts.
    node.fake.mounts.put(mount_point("/opt", "ext4", "/dev/sdc1"));
    node.backend.preflight_static().unwrap();
}

#[test]
fn the_mode_is_constant() {
    assert_eq!(Node::new().backend.mode(), crate::backend::Mode::None);
}

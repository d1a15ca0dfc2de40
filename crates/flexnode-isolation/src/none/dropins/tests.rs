use super::*;
use crate::none::layout::Layout;
use crate::none::units::write_units;
use flexnode_host::testing::MemFs;

const DIR: &str = "/etc/systemd/system";

fn dir() -> &'static Path {
    Path::new(DIR)
}

fn host() -> MemFs {
    let fs = MemFs::new();
    fs.put_dir(DIR, 0o755);
    fs
}

fn plain() -> UnitSpec {
    UnitSpec::of(&Layout::default())
}

fn full() -> UnitSpec {
    UnitSpec {
        local_dns: true,
        gpu_setup: vec![vec!["/usr/bin/nvidia-ctk".into(), "cdi".into(), "generate".into()]],
        launch_check_command: Some("/opt/check --node %H".into()),
        ..plain()
    }
}

fn below(fs: &MemFs) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs.read_dir(dir()).unwrap() {
        let name = entry.name.to_str().unwrap().to_owned();
        if entry.kind == FileKind::Dir {
            for file in fs.read_dir(&dir().join(&name)).unwrap() {
                names.push(format!("{name}/{}", file.name.to_str().unwrap()));
            }
        } else {
            names.push(name);
        }
    }
    names
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_drop_in_directory_is_beside_the_unit() {
    assert_eq!(drop_in_dir(dir(), UNIT_KUBELET), Path::new("/etc/systemd/system/unbounded-kubelet.service.d"));
}

#[test]
fn the_path_drop_in_puts_the_bin_directory_first() {
    let expected = "\
# Written by aks-flex-node; changes are lost. Use a drop-in of your own instead.

[Service]
Environment=\"PATH=/opt/unbounded/node/current/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"
";
    assert_eq!(text(render_path_drop_in(&plain().bin_dir).unwrap()), expected);
    assert!(render_path_drop_in(Path::new("/a\nb")).is_err());
}

#[test]
fn the_local_dns_drop_in_orders_and_requires() {
    let expected = "\
# Written by aks-flex-node; changes are lost. Use a drop-in of your own instead.

[Unit]
Requires=unbounded-localdns.service
After=unbounded-localdns.service
";
    assert_eq!(text(render_local_dns_drop_in()), expected);
}

#[test]
fn the_launch_check_drop_in_orders_and_requires() {
    let expected = "\
# Written by aks-flex-node; changes are lost. Use a drop-in of your own instead.

[Unit]
Requires=unbounded-kubelet-launch-check.service
After=unbounded-kubelet-launch-check.service
";
    assert_eq!(text(render_kubelet_launch_check_drop_in()), expected);
}

#[test]
fn the_gpu_drop_in_runs_each_command_before_containerd_and_a_failure_fails_the_start() {
    let commands: Vec<Vec<String>> =
        vec![vec!["/usr/bin/nvidia-ctk".into(), "a b".into(), "100%".into()], vec!["/bin/second".into(), "$x".into()]];
    let expected = "\
# Written by aks-flex-node; changes are lost. Use a drop-in of your own instead.

[Service]
ExecStartPre=/usr/bin/nvidia-ctk \"a b\" \"100%%\"
ExecStartPre=/bin/second \"$$x\"
";
    // No `-` before the program: a failure is one.
    assert_eq!(text(render_gpu_setup_drop_in(&commands).unwrap()), expected);
    assert!(render_gpu_setup_drop_in(&[vec!["nvidia-ctk".into()]]).is_err(), "a name without a path");
    assert!(render_gpu_setup_drop_in(&[vec![]]).is_err());
}

#[test]
fn a_plain_node_gets_the_path_drop_in_for_every_unit_and_nothing_else() {
    let fs = host();
    let written = write_drop_ins(&fs, dir(), &plain()).unwrap();
    assert_eq!(below(&fs), ["unbounded-containerd.service.d/00-path.conf", "unbounded-kubelet.service.d/00-path.conf"]);
    assert_eq!(written.paths.len(), 2);
    assert_eq!(written.paths, written.changed);
}

#[test]
fn a_full_node_gets_every_drop_in_and_the_local_dns_and_launch_check_units() {
    let fs = host();
    let written = write_drop_ins(&fs, dir(), &full()).unwrap();
    let expected = [
        "unbounded-containerd.service.d/00-path.conf",
        "unbounded-containerd.service.d/05-localdns.conf",
        "unbounded-containerd.service.d/10-gpu-setup.conf",
        "unbounded-kubelet-launch-check.service",
        "unbounded-kubelet-launch-check.service.d/00-path.conf",
        "unbounded-kubelet.service.d/00-path.conf",
        "unbounded-kubelet.service.d/05-localdns.conf",
        "unbounded-kubelet.service.d/10-launch-check.conf",
        "unbounded-localdns.service",
        "unbounded-localdns.service.d/00-path.conf",
    ];
    assert_eq!(below(&fs), expected);
    let mut paths: Vec<String> =
        written.paths.iter().map(|path| path.strip_prefix(DIR).unwrap().to_str().unwrap().to_owned()).collect();
    paths.sort();
    assert_eq!(paths, expected);
}

#[test]
fn the_network_unit_is_never_written() {
    let fs = host();
    write_units(&fs, dir(), &full()).unwrap();
    write_drop_ins(&fs, dir(), &full()).unwrap();
    assert!(!fs.exists("/etc/systemd/system/unbounded-localdns-network.service"));
}

#[test]
fn a_second_writing_touches_nothing() {
    let fs = host();
    write_drop_ins(&fs, dir(), &full()).unwrap();
    let before = fs.tree_with_stamps();
    let written = write_drop_ins(&fs, dir(), &full()).unwrap();
    assert!(!written.is_changed());
    assert_eq!(written.paths.len(), 10);
    assert_eq!(before.difference(&fs.tree_with_stamps()), Vec::<String>::new());
}

#[test]
fn a_bad_value_is_refused_before_anything_is_written() {
    let fs = host();
    let bad = UnitSpec { gpu_setup: vec![vec!["/bin/a".into(), "b\nc".into()]], ..full() };
    assert!(write_drop_ins(&fs, dir(), &bad).is_err());
    assert_eq!(below(&fs), Vec::<String>::new());
}

#[test]
fn what_another_spec_wanted_is_removed_and_nothing_else() {
    let fs = host();
    write_units(&fs, dir(), &full()).unwrap();
    write_drop_ins(&fs, dir(), &full()).unwrap();
    fs.put("/etc/systemd/system/unbounded-kubelet.service.d/90-mine.conf", "[Service]\n", 0o644);
    fs.put("/etc/systemd/system/unbounded-localdns.service.d/90-mine.conf", "[Service]\n", 0o644);
    fs.put("/etc/systemd/system/unbounded-localdns-network.service", "[Unit]\n", 0o644);
    fs.put("/etc/systemd/system/kubelet.service", "[Unit]\n", 0o644);
    let removed = remove_stale(&fs, dir(), &plain()).unwrap();
    assert_eq!(
        below(&fs),
        [
            "kubelet.service",
            "unbounded-containerd.service",
            "unbounded-containerd.service.d/00-path.conf",
            "unbounded-kubelet.service",
            "unbounded-kubelet.service.d/00-path.conf",
            "unbounded-kubelet.service.d/90-mine.conf",
            "unbounded-localdns-network.service",
            "unbounded-localdns.service.d/90-mine.conf",
        ]
    );
    assert_eq!(removed.changed.len(), 8);
    assert!(!remove_stale(&fs, dir(), &plain()).unwrap().is_changed());
}

#[test]
fn a_dependent_loses_its_drop_in_before_the_unit_that_it_requires_goes() {
    // Killed at any change, no unit of ours requires one that is not there: the node boots.
    for changes in 0.. {
        let fs = host();
        write_units(&fs, dir(), &full()).unwrap();
        write_drop_ins(&fs, dir(), &full()).unwrap();
        fs.crash_after(changes);
        let _ = remove_stale(&fs, dir(), &plain());
        let crashed = fs.crashed();
        fs.revive();
        for (drop_in, unit) in [
            ("unbounded-kubelet.service.d/05-localdns.conf", "unbounded-localdns.service"),
            ("unbounded-containerd.service.d/05-localdns.conf", "unbounded-localdns.service"),
            ("unbounded-kubelet.service.d/10-launch-check.conf", "unbounded-kubelet-launch-check.service"),
        ] {
            assert!(!fs.exists(dir().join(drop_in)) || fs.exists(dir().join(unit)), "{unit} after {changes}");
        }
        if !crashed {
            break;
        }
    }
}

#[test]
fn removing_all_leaves_only_what_is_not_ours() {
    let fs = host();
    write_units(&fs, dir(), &full()).unwrap();
    write_drop_ins(&fs, dir(), &full()).unwrap();
    fs.put("/etc/systemd/system/unbounded-kubelet.service.d/90-mine.conf", "[Service]\n", 0o644);
    remove_all(&fs, dir()).unwrap();
    assert_eq!(below(&fs), ["unbounded-kubelet.service.d/90-mine.conf"]);
    assert!(!remove_all(&fs, dir()).unwrap().is_changed());
}

/// C035: temporary files of killed runs pile up.
#[test]
fn temporary_files_of_a_crash_are_swept() {
    let fs = host();
    write_drop_ins(&fs, dir(), &plain()).unwrap();
    fs.put("/etc/systemd/system/.flexnode-tmp-1-1", "half", 0o644);
    fs.put("/etc/systemd/system/unbounded-kubelet.service.d/.flexnode-tmp-1-2", "half", 0o644);
    sweep(&fs, dir()).unwrap();
    assert_eq!(below(&fs), ["unbounded-containerd.service.d/00-path.conf", "unbounded-kubelet.service.d/00-path.conf"]);
}

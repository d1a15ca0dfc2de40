use super::*;
use flexnode_host::testing::{MemFs, Op};
use std::path::Path;

fn layout() -> Layout {
    Layout::new("/base")
}

fn host(plugins: &[&str]) -> MemFs {
    let fs = MemFs::new();
    fs.put_dir("/opt", 0o755).put_dir("/base/v1/cni", 0o755);
    for plugin in plugins {
        fs.put(format!("/base/v1/cni/{plugin}"), "elf", 0o755);
    }
    fs
}

fn link_v1(fs: &MemFs) -> Linked {
    link(fs, &layout(), Path::new(""), "v1").unwrap()
}

fn target(fs: &MemFs, name: &str) -> PathBuf {
    fs.read_link(&Path::new(HOST_CNI_BIN_DIR).join(name)).unwrap()
}

#[test]
fn every_plugin_is_linked_through_the_current_link() {
    let fs = host(&["bridge", "loopback"]);
    assert_eq!(link_v1(&fs).made.len(), 2);
    assert_eq!(target(&fs, "bridge"), Path::new("/base/current/cni/bridge"));
    assert_eq!(target(&fs, "loopback"), Path::new("/base/current/cni/loopback"));
    assert_eq!(fs.lstat(Path::new(HOST_CNI_BIN_DIR)).unwrap().unwrap().mode, 0o755);
}

#[test]
fn linking_again_changes_nothing() {
    let fs = host(&["bridge"]);
    link_v1(&fs);
    let before = fs.tree_with_stamps();
    assert_eq!(link_v1(&fs), Linked::default());
    assert_eq!(before.difference(&fs.tree_with_stamps()), Vec::<String>::new());
}

#[test]
fn foreign_files_and_foreign_links_are_left_alone() {
    let fs = host(&["bridge", "host-local", "loopback", "portmap"]);
    fs.put("/opt/cni/bin/bridge", "theirs", 0o755);
    fs.put_link("/usr/lib/cni/host-local", "/opt/cni/bin/host-local");
    fs.put_link("/base/../elsewhere/loopback", "/opt/cni/bin/loopback");
    let linked = link_v1(&fs);
    assert_eq!(linked.made, [Path::new("/opt/cni/bin/portmap")]);
    assert_eq!(linked.foreign.len(), 3);
    assert_eq!(fs.text("/opt/cni/bin/bridge"), "theirs");
    assert_eq!(target(&fs, "host-local"), Path::new("/usr/lib/cni/host-local"));
    assert_eq!(target(&fs, "loopback"), Path::new("/base/../elsewhere/loopback"));
}

#[test]
fn a_name_that_is_taken_between_two_runs_is_left_alone() {
    let fs = host(&["bridge"]);
    link_v1(&fs);
    fs.take("/opt/cni/bin/bridge").put("/opt/cni/bin/bridge", "an add-on's", 0o755);
    assert_eq!(link_v1(&fs).foreign, [Path::new("/opt/cni/bin/bridge")]);
    assert_eq!(fs.text("/opt/cni/bin/bridge"), "an add-on's");
}

#[test]
fn a_link_of_ours_that_leads_elsewhere_below_the_base_is_turned() {
    let fs = host(&["bridge"]);
    fs.put_link("/base/v0/cni/bridge", "/opt/cni/bin/bridge");
    assert_eq!(link_v1(&fs).made.len(), 1);
    assert_eq!(target(&fs, "bridge"), Path::new("/base/current/cni/bridge"));
}

#[test]
fn links_to_plugins_that_the_version_lacks_go() {
    let fs = host(&["bridge"]);
    fs.put_link("/base/current/cni/old", "/opt/cni/bin/old").put("/opt/cni/bin/cilium-cni", "theirs", 0o755);
    assert_eq!(link_v1(&fs).removed, [Path::new("/opt/cni/bin/old")]);
    assert!(!fs.exists("/opt/cni/bin/old") && fs.exists("/opt/cni/bin/cilium-cni"));
}

#[test]
fn a_version_without_plugins_makes_no_directory() {
    let fs = host(&[]);
    assert_eq!(link_v1(&fs), Linked::default());
    assert!(!fs.exists("/opt/cni"));
}

#[test]
fn unlinking_removes_our_links_and_nothing_else() {
    let fs = host(&["bridge", "loopback"]);
    link_v1(&fs);
    fs.put("/opt/cni/bin/cilium-cni", "theirs", 0o755).put_link("/usr/lib/cni/x", "/opt/cni/bin/x");
    assert_eq!(unlink(&fs, &layout(), Path::new("")).unwrap(), Change::Made);
    let left: Vec<_> = fs.read_dir(Path::new(HOST_CNI_BIN_DIR)).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(left, ["cilium-cni", "x"]);
    assert_eq!(unlink(&fs, &layout(), Path::new("")).unwrap(), Change::None);
}

#[test]
fn unlinking_removes_the_directory_when_that_leaves_it_empty() {
    let fs = host(&["bridge"]);
    link_v1(&fs);
    unlink(&fs, &layout(), Path::new("")).unwrap();
    assert!(!fs.exists(HOST_CNI_BIN_DIR));
    // One that was empty before is not ours.
    let fs = host(&[]);
    fs.put_dir(HOST_CNI_BIN_DIR, 0o755);
    unlink(&fs, &layout(), Path::new("")).unwrap();
    assert!(fs.exists(HOST_CNI_BIN_DIR));
    assert!(fs.log().iter().all(|(op, _)| *op != Op::Rmdir));
    assert_eq!(unlink(&MemFs::new(), &layout(), Path::new("")).unwrap(), Change::None);
}

#[test]
fn the_host_root_holds_the_plugin_directory() {
    let fs = host(&["bridge"]);
    link(&fs, &layout(), Path::new("/tree"), "v1").unwrap();
    assert!(fs.exists("/tree/opt/cni/bin/bridge") && !fs.exists("/opt/cni"));
}

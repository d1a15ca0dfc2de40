use super::*;
use flexnode_host::testing::{Cut, MemFs, Op};

fn layout() -> Layout {
    Layout::new("/base")
}

fn with_versions(versions: &[&str]) -> MemFs {
    let fs = MemFs::new();
    for version in versions {
        layout().ensure(&fs, version).unwrap();
    }
    fs.clear_log();
    fs
}

#[test]
fn an_empty_base_means_the_default() {
    assert_eq!(Layout::default().base_dir(), Path::new("/opt/unbounded/node"));
    assert_eq!(Layout::new("").base_dir(), Path::new("/opt/unbounded/node"));
    assert_eq!(Layout::new("").version_dir("v"), Path::new("/opt/unbounded/node/v"));
}

#[test]
fn paths_go_through_the_current_link() {
    assert_eq!(layout().current_link(), Path::new("/base/current"));
    assert_eq!(layout().bin_dir(), Path::new("/base/current/bin"));
    assert_eq!(layout().cni_bin_dir(), Path::new("/base/current/cni"));
    assert_eq!(layout().version_dir("1.2.3"), Path::new("/base/1.2.3"));
}

#[test]
fn current_is_nothing_before_anything_is_active() {
    assert_eq!(layout().current(&MemFs::new()).unwrap(), None);
    assert_eq!(layout().current(&with_versions(&["a"])).unwrap(), None);
}

#[test]
fn current_is_the_version_that_the_link_selects() {
    let fs = with_versions(&["a"]);
    layout().flip(&fs, "a").unwrap();
    assert_eq!(layout().current(&fs).unwrap().as_deref(), Some("a"));
    // A person may have made it absolute.
    let fs = MemFs::new();
    fs.put_link("/base/b", "/base/current");
    assert_eq!(layout().current(&fs).unwrap().as_deref(), Some("b"));
}

#[test]
fn a_foreign_current_is_refused() {
    for target in ["/elsewhere/a", "../a", ".", "/base", "/base/a/b"] {
        let fs = MemFs::new();
        fs.put_link(target, "/base/current");
        let error = layout().current(&fs).unwrap_err();
        assert!(matches!(error, LayoutError::ForeignLink { .. }), "{target}: {error}");
    }
    let fs = MemFs::new();
    fs.put_dir("/base/current", 0o755);
    assert!(matches!(layout().current(&fs).unwrap_err(), LayoutError::ForeignLink { .. }));
}

#[test]
fn ensure_makes_base_version_and_bin_0755_and_returns_the_version_directory() {
    let fs = MemFs::new();
    fs.put_dir("/base/a/bin", 0o700);
    fs.put_dir("/base/a", 0o750);
    fs.put_dir("/base", 0o750);
    assert_eq!(layout().ensure(&fs, "a").unwrap(), Path::new("/base/a"));
    for dir in ["/base", "/base/a", "/base/a/bin"] {
        assert_eq!(fs.lstat(Path::new(dir)).unwrap().unwrap().mode, 0o755, "{dir}");
    }
}

#[test]
fn ensure_is_idempotent() {
    let fs = with_versions(&["a"]);
    fs.put("/base/a/bin/kubelet", "elf", 0o755);
    let before = fs.tree_with_stamps();
    layout().ensure(&fs, "a").unwrap();
    assert_eq!(before.difference(&fs.tree_with_stamps()), Vec::<String>::new());
}

#[test]
fn a_base_that_is_a_link_is_refused() {
    let fs = MemFs::new();
    fs.put_dir("/data/a", 0o755).put_link("/data", "/base");
    assert!(matches!(layout().ensure(&fs, "a").unwrap_err(), LayoutError::BaseNotDir { .. }));
    assert!(matches!(layout().remove_all(&fs).unwrap_err(), LayoutError::BaseNotDir { .. }));
    assert!(fs.exists("/data/a"));
}

#[test]
fn flip_returns_what_it_replaced() {
    let fs = with_versions(&["a", "b"]);
    assert_eq!(layout().flip(&fs, "a").unwrap(), None);
    assert_eq!(layout().flip(&fs, "b").unwrap().as_deref(), Some("a"));
    assert_eq!(layout().flip(&fs, "b").unwrap().as_deref(), Some("b"));
    assert_eq!(fs.read_link(Path::new("/base/current")).unwrap(), Path::new("b"));
}

#[test]
fn flip_refuses_a_version_that_is_not_installed_and_leaves_the_link() {
    let fs = with_versions(&["a"]);
    layout().flip(&fs, "a").unwrap();
    fs.put("/base/file", "", 0o644);
    for missing in ["b", "file"] {
        assert!(matches!(layout().flip(&fs, missing).unwrap_err(), LayoutError::NotInstalled { .. }));
    }
    assert_eq!(layout().current(&fs).unwrap().as_deref(), Some("a"));
}

#[test]
fn flip_is_atomic_there_is_no_moment_without_a_link() {
    // Killed after any number of changes, the link selects the old version or the new one.
    let mut ended = false;
    for changes in 0..50 {
        let fs = with_versions(&["a", "b"]);
        layout().flip(&fs, "a").unwrap();
        fs.crash_after(changes);
        let done = layout().flip(&fs, "b").is_ok();
        let crashed = fs.crashed();
        fs.revive();
        let now = layout().current(&fs).unwrap().unwrap();
        assert!(now == "a" || now == "b", "{now}");
        assert!(!done || now == "b");
        layout().flip(&fs, "b").unwrap();
        assert_eq!(layout().current(&fs).unwrap().as_deref(), Some("b"));
        if !crashed {
            ended = true;
            break;
        }
    }
    assert!(ended, "the flip needs more changes than were tried");
    let fs = with_versions(&["a", "b"]);
    layout().flip(&fs, "a").unwrap();
    fs.clear_log();
    layout().flip(&fs, "b").unwrap();
    let removed = fs.log().into_iter().any(|(op, path)| op == Op::Unlink && path == Path::new("/base/current"));
    assert!(!removed, "the old link was removed before the new one had its name");
}

#[test]
fn a_flip_survives_a_power_cut() {
    let fs = with_versions(&["a", "b"]);
    layout().flip(&fs, "a").unwrap();
    layout().flip(&fs, "b").unwrap();
    for cut in [Cut::Lazy, Cut::Eager] {
        let after = fs.after_power_cut(cut);
        assert_eq!(layout().current(&after).unwrap().as_deref(), Some("b"));
        assert!(layout().is_installed(&after, "b").unwrap());
    }
}

#[test]
fn versions_are_sorted_and_exclude_link_and_temporary_names() {
    let fs = with_versions(&["1.9.0", "1.10.0"]);
    fs.put_dir("/base/.flexnode-tmp-removed-1.8.0", 0o755).put("/base/notes.txt", "", 0o644);
    layout().flip(&fs, "1.9.0").unwrap();
    assert_eq!(layout().versions(&fs).unwrap(), ["1.10.0", "1.9.0"]);
    assert_eq!(layout().versions(&MemFs::new()).unwrap(), Vec::<String>::new());
}

#[test]
fn remove_refuses_the_active_version_with_the_typed_error() {
    let fs = with_versions(&["a", "b"]);
    layout().flip(&fs, "a").unwrap();
    let error = layout().remove(&fs, "a").unwrap_err();
    assert!(matches!(&error, LayoutError::VersionActive { version } if version == "a"), "{error}");
    assert_eq!(error.to_string(), "version a is active");
    assert!(fs.exists("/base/a/bin"));
    assert_eq!(layout().remove(&fs, "b").unwrap(), Change::Made);
    assert_eq!(layout().versions(&fs).unwrap(), ["a"]);
    assert_eq!(layout().remove(&fs, "b").unwrap(), Change::None);
}

#[test]
fn a_crash_in_remove_never_leaves_half_a_version_under_its_name() {
    for changes in 0.. {
        let fs = with_versions(&["a"]);
        fs.put("/base/a/bin/kubelet", "elf", 0o755).put("/base/a/etc/manifest.json", "{}", 0o644);
        fs.crash_after(changes);
        let _ = layout().remove(&fs, "a");
        let crashed = fs.crashed();
        fs.revive();
        if layout().is_installed(&fs, "a").unwrap() {
            assert!(fs.exists("/base/a/bin/kubelet") && fs.exists("/base/a/etc/manifest.json"), "after {changes}");
        }
        layout().remove(&fs, "a").unwrap();
        layout().sweep(&fs).unwrap();
        assert_eq!(fs.read_dir(Path::new("/base")).unwrap(), []);
        if !crashed {
            break;
        }
    }
}

#[test]
fn remove_all_deletes_the_base_active_version_included() {
    let fs = with_versions(&["a"]);
    layout().flip(&fs, "a").unwrap();
    fs.put("/outside", "kept", 0o644).put_link("/outside", "/base/a/bin/link");
    assert_eq!(layout().remove_all(&fs).unwrap(), Change::Made);
    assert!(!fs.exists("/base"));
    assert_eq!(fs.text("/outside"), "kept");
    assert_eq!(layout().remove_all(&fs).unwrap(), Change::None);
}

#[test]
fn remove_all_stops_at_a_mount() {
    let fs = with_versions(&["a"]);
    fs.put("/base/a/mnt/data", "theirs", 0o644).mount("/base/a/mnt", 7);
    fs.put("/base/a/mnt/data", "theirs", 0o644);
    assert!(layout().remove_all(&fs).is_err());
    assert_eq!(fs.text("/base/a/mnt/data"), "theirs");
}

#[test]
fn a_version_is_one_safe_path_component() {
    let fs = with_versions(&["a"]);
    layout().flip(&fs, "a").unwrap();
    let before = fs.tree_with_stamps();
    for bad in ["", ".", "..", "../x", "a/b", "/abs", "current", ".flexnode-tmp-1", "a\0", "a\n"] {
        assert!(matches!(layout().ensure(&fs, bad).unwrap_err(), LayoutError::Name(_)), "ensure {bad:?}");
        assert!(matches!(layout().flip(&fs, bad).unwrap_err(), LayoutError::Name(_)), "flip {bad:?}");
        assert!(matches!(layout().remove(&fs, bad).unwrap_err(), LayoutError::Name(_)), "remove {bad:?}");
    }
    assert_eq!(before.difference(&fs.tree_with_stamps()), Vec::<String>::new());
}

#[test]
fn mkdir_traversable_makes_what_it_creates_0755_and_leaves_parents_that_existed() {
    let fs = MemFs::new();
    fs.put_dir("/opt", 0o750);
    assert_eq!(mkdir_traversable(&fs, Path::new("/opt/a/b")).unwrap(), Change::Made);
    let mode = |path: &str| fs.lstat(Path::new(path)).unwrap().unwrap().mode;
    assert_eq!((mode("/opt"), mode("/opt/a"), mode("/opt/a/b")), (0o750, 0o755, 0o755));
    // The directory itself is made 0755 also when it was there.
    fs.put_dir("/opt/a/b", 0o700);
    assert_eq!(mkdir_traversable(&fs, Path::new("/opt/a/b")).unwrap(), Change::Made);
    assert_eq!(mode("/opt/a/b"), 0o755);
    assert_eq!(mkdir_traversable(&fs, Path::new("/opt/a/b")).unwrap(), Change::None);
}

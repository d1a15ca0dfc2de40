//! The file system in memory keeps what every [`crate::Fs`] keeps; faults, crashes and power cuts do what they say.

use super::*;
use crate::durable::{self, Change};
use crate::testing::fs_suite;

const TARGET: &str = "/etc/f";

#[test]
fn the_suite_of_every_file_system() {
    fs_suite::run(MemFs::new);
}

#[test]
fn a_tree_that_is_filled_in_has_modes_owners_and_links_and_is_on_the_disk() {
    let (fs, bytes) = (MemFs::new(), Arc::new(b"text".to_vec()));
    fs.fill("/d", Given::Dir, 0o700, (1, 2)).fill("/d/f", Given::File(bytes), 0o4755, (3, 4));
    fs.fill("/l", Given::Link("d/f".into()), 0o777, (0, 0)).fill("/d/s", Given::Other, 0o600, (0, 0)).settle();
    let of = |path: &str| {
        let stat = fs.lstat(Path::new(path)).unwrap().unwrap();
        (stat.kind, stat.mode, stat.uid, stat.gid)
    };
    assert_eq!(of("/d"), (crate::FileKind::Dir, 0o700, 1, 2));
    assert_eq!(of("/d/f"), (crate::FileKind::File, 0o4755, 3, 4));
    assert_eq!(of("/d/s").0, crate::FileKind::Other);
    assert_eq!(fs.text("/l"), "text");
    assert_eq!(fs.after_power_cut(Cut::Lazy).tree(), fs.tree());
}

#[test]
fn a_mount_is_never_crossed() {
    for device in [0, 7] {
        let fs = MemFs::new();
        fs.put("/t/volume/data", "kept", 0o644).put("/t/f", "", 0o644).mount("/t/volume", device);
        let error = durable::remove_tree(&fs, Path::new("/t")).unwrap_err();
        assert_eq!(durable::Refusal::of(&error), Some(&durable::Refusal::Mounted), "device {device}");
        assert_eq!(error.path, Path::new("/t/volume"));
        let error = durable::remove_tree(&fs, Path::new("/t/volume")).unwrap_err();
        assert_eq!(durable::Refusal::of(&error), Some(&durable::Refusal::Mounted), "its root, device {device}");
        assert_eq!(fs.text("/t/volume/data"), "kept");
        assert_eq!(durable::remove_contents(&fs, Path::new("/t/volume")).unwrap(), Change::Made);
        fs.unmount("/t/volume");
        durable::remove_tree(&fs, Path::new("/t")).unwrap();
        assert!(!fs.exists("/t"));
    }
}

/// C014 and C046: a label is lost, or is the temporary file's, when a file is replaced by a rename.
#[test]
fn owner_and_label_of_a_replaced_file_are_kept() {
    let fs = MemFs::new();
    fs.set_labeler(|path| path.starts_with("/etc").then(|| b"etc_t".to_vec()));
    fs.put(TARGET, "old", 0o644);
    fs.chown(Path::new(TARGET), 7, 8).unwrap();
    fs.set_xattr(Path::new(TARGET), durable::SELINUX_LABEL, b"special_t").unwrap();
    durable::write(&fs, Path::new(TARGET), b"new", 0o4755).unwrap();
    let stat = fs.lstat(Path::new(TARGET)).unwrap().unwrap();
    assert_eq!((stat.uid, stat.gid, stat.mode), (7, 8, 0o4755));
    assert_eq!(fs.get_xattr(Path::new(TARGET), durable::SELINUX_LABEL).unwrap().unwrap(), b"special_t");
    durable::write(&fs, Path::new("/etc/new"), b"new", 0o644).unwrap();
    assert_eq!(fs.get_xattr(Path::new("/etc/new"), durable::SELINUX_LABEL).unwrap().unwrap(), b"etc_t");
}

#[test]
fn a_failed_write_leaves_the_old_file_and_no_temporary_one() {
    for op in [Op::Create, Op::Write, Op::SyncFile, Op::Rename, Op::Chown] {
        let fs = MemFs::new();
        fs.put(TARGET, "old", 0o600);
        fs.chown(Path::new(TARGET), 7, 8).unwrap();
        let before = fs.tree();
        fs.fault(Fault::new(Errno::NOSPC).on(op));
        let error = durable::write(&fs, Path::new(TARGET), b"new", 0o600).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{op:?}");
        assert_eq!(fs.revive().tree(), before, "{op:?}");
    }
}

#[test]
fn a_fault_passes_and_ends_as_told() {
    let fs = MemFs::new();
    fs.put_dir("/d", 0o755).fault(Fault::new(Errno::IO).on(Op::Mkdir).below("/d").after(1).times(1));
    let results: Vec<bool> =
        ["/d/1", "/x", "/d/2", "/d/3"].iter().map(|path| fs.mkdir(Path::new(path), 0o755).is_ok()).collect();
    assert_eq!(results, [true, true, false, true]);
    assert_eq!((fs.changes(), fs.log().len()), (3, 3));
}

type Operation = fn(&MemFs) -> Result<(), FsError>;

/// The operations whose crash states are looked at.
fn operations() -> Vec<(&'static str, Operation)> {
    vec![
        ("write", |fs| durable::write(fs, Path::new(TARGET), b"new", 0o600).map(drop)),
        ("copy", |fs| durable::copy_hashed(fs, &mut &b"new"[..], Path::new(TARGET), 0o600, None).map(drop)),
        ("link", |fs| durable::replace_link(fs, Path::new("v2"), Path::new("/etc/current")).map(drop)),
        ("dir", |fs| durable::ensure_dir(fs, Path::new("/etc/a/b/c"), 0o700).map(drop)),
        ("remove file", |fs| durable::remove_file(fs, Path::new(TARGET)).map(drop)),
        ("remove tree", |fs| durable::remove_tree(fs, Path::new("/tree")).map(drop)),
        ("rename", |fs| durable::rename(fs, Path::new("/tree/f"), Path::new("/etc/g"))),
    ]
}

fn start() -> MemFs {
    let fs = MemFs::new();
    fs.put(TARGET, "old", 0o600).put_link("v1", "/etc/current").put("/tree/f", "", 0o644).put("/tree/d/f", "", 0o644);
    fs
}

/// The tree without temporary names, as somebody sees it who sweeps.
fn seen(fs: &MemFs) -> Tree {
    for dir in ["/etc", "/etc/a", "/etc/a/b"] {
        durable::sweep(fs, Path::new(dir)).unwrap();
    }
    fs.tree()
}

#[test]
fn a_file_or_link_is_old_or_new_and_whole_whenever_the_power_goes() {
    for (name, operation) in operations().into_iter().filter(|(name, _)| ["write", "copy", "link"].contains(name)) {
        let done = start();
        operation(&done).unwrap();
        let allowed = [seen(&start()), seen(&done)];
        for crash in 0..done.log().len() {
            let fs = start();
            fs.crash_after(crash);
            assert!(operation(&fs).is_err() && fs.crashed(), "{name}, crash after {crash}");
            fs.revive();
            for after in [fs.after_power_cut(Cut::Lazy), fs.after_power_cut(Cut::Eager), fs.fork()] {
                let now = seen(&after);
                assert!(allowed.contains(&now), "{name}, crash after {crash}: {:#?}", allowed[0].difference(&now));
            }
        }
    }
}

#[test]
fn what_is_done_stays_done() {
    for (name, operation) in operations() {
        let done = start();
        operation(&done).unwrap();
        for cut in [Cut::Lazy, Cut::Eager] {
            assert_eq!(done.after_power_cut(cut).tree(), done.tree(), "{name} {cut:?}");
        }
    }
}

/// Leaves out one sync, and looks for a way to notice it: a power cut at the end; a power cut on the way and a second
/// run; a second run after a killed one, and then a power cut.
#[test]
fn every_sync_is_needed() {
    for (name, operation) in operations() {
        let done = start();
        operation(&done).unwrap();
        let wanted = seen(&done);
        let wrong = |fs: &MemFs| [Cut::Lazy, Cut::Eager].iter().any(|cut| seen(&fs.after_power_cut(*cut)) != wanted);
        let at_the_end = |nth| {
            let fs = start();
            fs.leave_out_sync(nth);
            operation(&fs).unwrap();
            wrong(&fs)
        };
        let on_the_way = |nth, crash| {
            let fs = start();
            fs.leave_out_sync(nth).crash_after(crash);
            let _ = operation(&fs);
            fs.revive();
            [Cut::Lazy, Cut::Eager].iter().any(|cut| {
                let again = fs.after_power_cut(*cut);
                name != "rename" && (operation(&again).is_err() || seen(&again) != wanted)
            })
        };
        let in_the_second_run = |nth, crash| {
            let fs = start();
            fs.crash_after(crash);
            let _ = operation(&fs);
            fs.revive().leave_out_sync(nth);
            name != "rename" && operation(&fs).is_ok() && wrong(&fs)
        };
        for nth in 0..done.syncs() {
            let noticed = at_the_end(nth)
                || (0..done.log().len()).any(|crash| on_the_way(nth, crash) || in_the_second_run(nth, crash));
            assert!(noticed, "{name}: sync {nth} can be left out of {:?}", done.log());
        }
    }
}

#[test]
fn a_second_run_makes_durable_what_a_killed_one_left() {
    for (name, operation) in operations().into_iter().filter(|(name, _)| *name != "rename") {
        let done = start();
        operation(&done).unwrap();
        for crash in 0..done.log().len() {
            let fs = start();
            fs.crash_after(crash);
            operation(&fs).unwrap_err();
            fs.revive();
            operation(&fs).unwrap();
            for cut in [Cut::Lazy, Cut::Eager] {
                let after = seen(&fs.after_power_cut(cut));
                assert_eq!(
                    done.tree().difference(&after),
                    Vec::<String>::new(),
                    "{name}, crash after {crash}, {cut:?}"
                );
            }
        }
    }
}

#[test]
fn a_second_run_changes_nothing() {
    for (name, operation) in operations().into_iter().filter(|(name, _)| !["rename", "copy"].contains(name)) {
        let fs = start();
        operation(&fs).unwrap();
        let (before, changes) = (fs.tree_with_stamps(), fs.changes());
        operation(&fs).unwrap();
        assert_eq!((fs.tree_with_stamps(), fs.changes()), (before, changes), "{name}");
    }
}

use super::*;
use crate::{ArtifactError, InstalledFile, install};
use flexnode_host::Fs as _;
use flexnode_host::testing::{Cut, Fault, Op};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

fn run(fs: &MemFs) -> Result<Vec<InstalledFile>, ArtifactError> {
    install(fs, &resolve(fs).artifacts, &slot(), &AtomicBool::new(false))
}

/// Final names in the slot with their content; panics on a temporary one.
fn programs(fs: &MemFs) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for dir in ["/slot/bin", "/slot/cni"] {
        for entry in fs.read_dir(Path::new(dir)).unwrap_or_default() {
            let path = Path::new(dir).join(&entry.name);
            let bytes = fs.read(&path, 1 << 30).unwrap().unwrap();
            found.insert(path.to_str().unwrap().to_owned(), bytes);
        }
    }
    found
}

fn expected() -> BTreeMap<String, Vec<u8>> {
    [
        ("/slot/bin/kubelet", program("kubelet")),
        ("/slot/bin/containerd", program("containerd")),
        ("/slot/bin/containerd-shim-runc-v2", program("shim")),
        ("/slot/bin/ctr", program("ctr")),
        ("/slot/bin/runc", program("runc")),
        ("/slot/cni/loopback", program("loopback")),
        ("/slot/cni/host-local", program("host-local")),
        ("/slot/cni/bridge", program(&"x".repeat(700_000))),
    ]
    .map(|(path, bytes)| (path.to_owned(), bytes))
    .into()
}

#[test]
fn every_program_lies_in_the_slot_with_its_mode_and_digest() {
    let fs = bundle();
    let files = run(&fs).unwrap();
    assert_eq!(programs(&fs), expected());
    for file in &files {
        let bytes = &expected()[file.path.to_str().unwrap()];
        assert_eq!((file.sha256.as_str(), file.size), (Digest::of(bytes).to_string().as_str(), bytes.len() as u64));
        assert_eq!((file.mode, fs.lstat(&file.path).unwrap().unwrap().mode), (0o755, 0o755));
    }
    assert_eq!(files.len(), expected().len());
    assert_eq!(fs.lstat(Path::new("/slot/cni")).unwrap().unwrap().mode, 0o755);
}

#[test]
fn plain_archives_are_unpacked_like_gzipped_ones() {
    let fs = bundle();
    for (path, bytes) in [(CONTAINERD, containerd_tar()), (CNI, cni_tar())] {
        edit(&fs, |manifest| manifest["digests"][path] = Digest::of(&bytes).to_string().into());
        fs.put(at(path), bytes, 0o644);
    }
    run(&fs).unwrap();
    assert_eq!(programs(&fs), expected());
}

#[test]
fn a_wrong_digest_leaves_nothing_and_the_right_one_then_works() {
    for path in [KUBELET, CONTAINERD, RUNC, CNI] {
        let fs = bundle();
        let bytes = fs.read(&at(path), 1 << 30).unwrap().unwrap();
        fs.take(at(&format!("{path}.sha256")));
        edit(&fs, |manifest| manifest["digests"][path] = Digest::of(b"other").to_string().into());
        let error = run(&fs).unwrap_err();
        let text = told(&error);
        assert!(matches!(error, ArtifactError::WrongDigest { .. }) && text.contains(path), "{path}: {text}");
        assert!(programs(&fs).is_empty(), "{path}: {:?}", programs(&fs).keys());
        edit(&fs, |manifest| manifest["digests"][path] = Digest::of(&bytes).to_string().into());
        run(&fs).unwrap();
        assert_eq!(programs(&fs), expected());
    }
}

#[test]
fn a_failed_installation_keeps_what_was_there() {
    let fs = bundle();
    run(&fs).unwrap();
    let before = programs(&fs);
    fs.put(at(RUNC), program("other"), 0o644);
    run(&fs).unwrap_err();
    assert_eq!(programs(&fs), before);
}

#[test]
fn a_full_disk_is_told_and_cleaned_up() {
    for path in ["/slot/bin", "/slot/cni"] {
        for pass in [0, 1, 3] {
            let fs = bundle();
            fs.fault(Fault::new(rustix_errno()).on(Op::Write).below(path).after(pass));
            let error = run(&fs).unwrap_err();
            assert!(matches!(error, ArtifactError::DiskFull { .. }), "{error:?}");
            assert!(error.to_string().contains("is full"), "{error}");
            assert!(programs(&fs).is_empty());
            fs.revive();
            run(&fs).unwrap();
            assert_eq!(programs(&fs), expected());
        }
    }
}

fn rustix_errno() -> rustix::io::Errno {
    rustix::io::Errno::NOSPC
}

#[test]
fn too_little_space_is_seen_before_anything_is_written() {
    let fs = bundle();
    fs.set_free_bytes(100);
    assert!(matches!(run(&fs).unwrap_err(), ArtifactError::NoSpace { free: 100, .. }));
    assert!(programs(&fs).is_empty());
}

#[test]
fn a_kill_at_any_change_is_repaired_by_running_again() {
    let whole = bundle();
    run(&whole).unwrap();
    let steps = whole.changes() + whole.syncs();
    assert!(steps > 20);
    for after in 0..steps {
        let fs = bundle();
        let artifacts = resolve(&fs).artifacts;
        fs.crash_after(after);
        install(&fs, &artifacts, &slot(), &AtomicBool::new(false)).unwrap_err();
        fs.revive();
        for (path, bytes) in programs(&fs) {
            let temporary = path.contains(flexnode_host::durable::TEMP_PREFIX);
            assert!(temporary || bytes == expected()[&path], "{path} is incomplete after {after} changes");
        }
        run(&fs).unwrap();
        assert_eq!(programs(&fs), expected(), "after {after} changes");
    }
}

#[test]
fn after_a_power_cut_names_stand_for_whole_files() {
    let fs = bundle();
    run(&fs).unwrap();
    let after = fs.after_power_cut(Cut::Eager);
    assert_eq!(programs(&after), expected(), "all is on the device when it returns");
    let steps = fs.changes() + fs.syncs();
    for step in 0..steps {
        let fs = bundle();
        let artifacts = resolve(&fs).artifacts;
        fs.crash_after(step);
        install(&fs, &artifacts, &slot(), &AtomicBool::new(false)).unwrap_err();
        fs.revive();
        for (path, bytes) in programs(&fs.after_power_cut(Cut::Eager)) {
            let temporary = path.contains(flexnode_host::durable::TEMP_PREFIX);
            assert!(temporary || bytes == expected()[&path], "{path} is half a file after {step} changes");
        }
    }
}

#[test]
fn what_is_no_file_is_not_replaced() {
    for spoil in ["/slot/bin/ctr", "/slot/cni/loopback", "/slot/bin/kubelet"] {
        let fs = bundle();
        fs.put_link("/etc/shadow", spoil);
        assert!(told(&run(&fs).unwrap_err()).contains(spoil));
        assert_eq!(fs.read_link(Path::new(spoil)).unwrap(), Path::new("/etc/shadow"));
        assert_eq!(programs_but(&fs, spoil), 0);
    }
}

fn programs_but(fs: &MemFs, link: &str) -> usize {
    fs.take(link);
    programs(fs).len()
}

#[test]
fn a_caller_can_stop_it() {
    let fs = bundle();
    let error = install(&fs, &resolve(&fs).artifacts, &slot(), &AtomicBool::new(true)).unwrap_err();
    assert!(matches!(error, ArtifactError::Stopped));
    assert!(programs(&fs).is_empty());
}

#[test]
fn an_unreadable_source_is_blamed() {
    let fs = bundle();
    let resolved = resolve(&fs);
    fs.take(at(RUNC));
    let error = install(&fs, &resolved.artifacts, &slot(), &AtomicBool::new(false)).unwrap_err();
    assert!(told(&error).contains(RUNC), "{error}");
    assert!(programs(&fs).is_empty());
}

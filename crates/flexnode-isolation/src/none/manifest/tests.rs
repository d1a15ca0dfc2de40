use super::*;
use flexnode_host::testing::MemFs;

fn layout() -> Layout {
    Layout::new("/base")
}

fn sealed() -> MemFs {
    let fs = MemFs::new();
    fs.put("/base/v1/bin/kubelet", "elf", 0o755).put("/base/v1/etc/kubelet/config.yaml", "kind: X\n", 0o644);
    fs.put_link("loopback", "/base/v1/cni/lo");
    seal(&fs, &layout(), "v1", "1a2b3c4d", &UnitSpec::default(), &Known::default()).unwrap();
    fs
}

fn check(fs: &MemFs, level: Level) -> Result<Manifest, SlotError> {
    verify(fs, &layout(), "v1", level)
}

#[test]
fn a_manifest_names_every_other_file_with_digest_size_and_mode() {
    let fs = sealed();
    let manifest = check(&fs, Level::Content).unwrap();
    let names: Vec<&str> = manifest.files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "bin/kubelet",
            "etc/kubelet/config.yaml",
            "etc/units/spec.json",
            "etc/units/unbounded-containerd.service",
            "etc/units/unbounded-kubelet.service",
        ]
    );
    let kubelet = &manifest.files["bin/kubelet"];
    assert_eq!((kubelet.size, kubelet.mode), (3, 0o755));
    assert_eq!(kubelet.sha256, durable::sha256_hex(b"elf"));
    assert_eq!(manifest.links["cni/lo"], "loopback");
    assert_eq!((manifest.slot.as_str(), manifest.goal.as_str(), manifest.version), ("v1", "1a2b3c4d", 1));
}

#[test]
fn the_manifest_is_written_last() {
    let fs = MemFs::new();
    fs.put("/base/v1/bin/kubelet", "elf", 0o755).put_dir("/base/v1/etc", 0o755);
    for changes in 0.. {
        let fs = fs.fork();
        fs.crash_after(changes);
        let done = seal(&fs, &layout(), "v1", "", &UnitSpec::default(), &Known::default()).is_ok();
        let crashed = fs.crashed();
        fs.revive();
        if fs.exists("/base/v1/etc/manifest.json") {
            check(&fs, Level::Content).unwrap();
        } else {
            assert!(!done);
            assert!(matches!(check(&fs, Level::Shape), Err(SlotError::Incomplete { .. })));
        }
        if !crashed {
            break;
        }
    }
}

#[test]
fn what_is_not_there_is_told_apart() {
    let fs = MemFs::new();
    assert!(matches!(check(&fs, Level::Shape), Err(SlotError::Absent { .. })));
    fs.put_dir("/base/v1", 0o755);
    assert!(matches!(check(&fs, Level::Shape), Err(SlotError::Incomplete { .. })));
    fs.put("/base/v1/etc/manifest.json", "{", 0o644);
    assert!(matches!(check(&fs, Level::Shape), Err(SlotError::Manifest { .. })));
    fs.put("/base/v1/etc/manifest.json", r#"{"version":9}"#, 0o644);
    assert!(matches!(check(&fs, Level::Shape), Err(SlotError::Manifest { .. })));
    assert!(matches!(verify(&fs, &layout(), "../v1", Level::Shape), Err(SlotError::Name(_))));
}

#[test]
fn damage_is_found_and_the_error_names_the_repair() {
    type Harm<'a> = (&'a str, &'a dyn Fn(&MemFs));
    let harm: [Harm; 5] = [
        ("is missing", &|fs| {
            fs.take("/base/v1/bin/kubelet");
        }),
        ("has 4 bytes", &|fs| {
            fs.put("/base/v1/bin/kubelet", "elf!", 0o755);
        }),
        ("has mode 644", &|fs| {
            fs.put("/base/v1/bin/kubelet", "elf", 0o644);
        }),
        ("is a symbolic link", &|fs| {
            fs.take("/base/v1/bin/kubelet").put_link("/bin/sh", "/base/v1/bin/kubelet");
        }),
        ("is not the link", &|fs| {
            fs.take("/base/v1/cni/lo");
        }),
    ];
    for (problem, harm) in harm {
        let fs = sealed();
        harm(&fs);
        let error = check(&fs, Level::Shape).unwrap_err();
        assert!(matches!(error, SlotError::Damaged { .. }));
        let text = error.to_string();
        assert!(text.contains(problem) && text.contains("slots repair"), "{text}");
    }
}

#[test]
fn another_content_of_the_same_size_is_found_by_the_closer_look_only() {
    let fs = sealed();
    fs.put("/base/v1/bin/kubelet", "ELF", 0o755);
    check(&fs, Level::Shape).unwrap();
    assert!(matches!(check(&fs, Level::Content), Err(SlotError::Damaged { .. })));
}

#[test]
fn a_manifest_that_climbs_out_of_its_version_is_refused() {
    let fs = sealed();
    let manifest = fs.text("/base/v1/etc/manifest.json").replace("bin/kubelet", "../v2/kubelet");
    fs.put("/base/v1/etc/manifest.json", manifest, 0o644);
    assert!(matches!(check(&fs, Level::Shape), Err(SlotError::Damaged { .. })));
}

#[test]
fn the_units_of_a_version_are_recorded() {
    let fs = MemFs::new();
    fs.put_dir("/base/v1/etc", 0o755);
    let spec = UnitSpec { local_dns: true, ..UnitSpec::default() };
    seal(&fs, &layout(), "v1", "", &spec, &Known::default()).unwrap();
    assert_eq!(recorded_units(&fs, &layout(), "v1").unwrap(), Some(spec.clone()));
    assert_eq!(fs.text("/base/v1/etc/units/unbounded-kubelet.service").as_bytes(), render_kubelet(&spec).unwrap());
    assert_eq!(recorded_units(&fs, &layout(), "v2").unwrap(), None);
    fs.put("/base/v1/etc/units/spec.json", "{", 0o644);
    assert!(matches!(recorded_units(&fs, &layout(), "v1"), Err(UnitError::Record { .. })));
}

#[test]
fn what_no_version_has_is_refused() {
    let fs = MemFs::new();
    fs.put_dir("/base/v1/etc", 0o755).put_special("/base/v1/bin/pipe", 0o644);
    assert!(matches!(
        seal(&fs, &layout(), "v1", "", &UnitSpec::default(), &Known::default()),
        Err(SlotError::Damaged { .. })
    ));
}

/// The digest of a file that was written just now is taken over, and read again when the file is another one since.
#[test]
fn what_the_installer_hashed_is_not_read_again() {
    let written = |path: &str, size| WrittenFile { path: path.into(), sha256: "as told".into(), size };
    let slot = || {
        let fs = MemFs::new();
        fs.put("/base/v1/bin/kubelet", "elf", 0o755)
            .put("/base/v1/bin/runc", "elf", 0o755)
            .put_dir("/base/v1/etc", 0o755);
        fs
    };
    let sealed = |fs: &MemFs, known: &Known| {
        let manifest = seal(fs, &layout(), "v1", "", &UnitSpec::default(), known).unwrap();
        manifest.files["bin/kubelet"].sha256.clone()
    };
    let fs = slot();
    // One file that is not there, and one that has not the size that was written.
    let told =
        vec![written("/base/v1/bin/kubelet", 3), written("/base/v1/bin/gone", 1), written("/base/v1/bin/runc", 4)];
    let known = Known::of(&fs, told).unwrap();
    assert_eq!(known.0.len(), 1);
    assert_eq!(sealed(&fs, &known), "as told");
    let fs = slot();
    let known = Known::of(&fs, vec![written("/base/v1/bin/kubelet", 3)]).unwrap();
    fs.put("/base/v1/bin/kubelet", "ELF", 0o755);
    assert_eq!(sealed(&fs, &known), durable::sha256_hex(b"ELF"));
}

use super::*;
use crate::{ArtifactError, install};
use flexnode_host::Fs as _;
use std::sync::atomic::AtomicBool;

/// Installs a bundle whose containerd archive has these bytes and the right digest for them.
fn with_containerd(bytes: Vec<u8>) -> (MemFs, Result<Vec<crate::InstalledFile>, ArtifactError>) {
    let fs = bundle();
    edit(&fs, |manifest| manifest["digests"][CONTAINERD] = Digest::of(&bytes).to_string().into());
    fs.put(at(CONTAINERD), bytes, 0o644);
    let resolved = resolve(&fs);
    let result = install(&fs, &resolved.artifacts, &slot(), &AtomicBool::new(false));
    (fs, result)
}

fn refused(bytes: Vec<u8>) -> String {
    let (fs, result) = with_containerd(bytes);
    assert!(fs.read_dir(Path::new("/slot/bin")).unwrap().is_empty(), "nothing has a name");
    assert!(fs.read_dir(Path::new("/slot/cni")).unwrap().is_empty(), "nothing has a name");
    told(&result.unwrap_err())
}

/// Appends a member whose header the library would not write.
fn with_member(change: impl FnOnce(&mut tar::Header)) -> Vec<u8> {
    let mut archive = containerd_tar();
    archive.truncate(archive.len() - 1024);
    let mut header = tar::Header::new_ustar();
    header.set_size(0);
    header.set_mode(0o755);
    header.set_path("bin/containerd-more").unwrap();
    change(&mut header);
    header.set_cksum();
    archive.extend(header.as_bytes());
    archive.extend([0; 1024]);
    archive
}

fn named(name: &[u8]) -> Vec<u8> {
    with_member(|header| {
        let field = &mut header.as_old_mut().name;
        field.fill(0);
        field[..name.len()].copy_from_slice(name);
    })
}

#[test]
fn names_that_lead_out_are_refused() {
    for name in [
        &b"/etc/passwd"[..],
        b"../containerd",
        b"bin/../../x",
        b"bin//ctr",
        b"bin/./ctr",
        b"a\nb",
        b"bin/\xff",
        b"a\\b",
    ] {
        let text = refused(named(name));
        assert!(text.contains("leads out of it"), "{name:?}: {text}");
    }
}

#[test]
fn links_and_devices_are_refused() {
    use tar::EntryType::{Block, Char, Fifo, Link, Symlink};
    for kind in [Symlink, Link, Char, Block, Fifo] {
        let archive = with_member(|header| {
            header.set_entry_type(kind);
            header.set_link_name("/etc/shadow").unwrap();
        });
        let text = refused(archive);
        assert!(text.contains("neither a file nor a directory"), "{kind:?}: {text}");
    }
}

#[test]
fn a_member_that_occurs_twice_is_refused() {
    assert!(refused(named(b"bin/ctr")).contains("twice"));
    assert!(refused(named(b"./bin/ctr")).contains("twice"));
    // Two names for one destination.
    assert!(refused(named(b"ctr")).contains("two artifacts"));
}

#[test]
fn sizes_that_no_release_has_are_refused() {
    let text = refused(with_member(|header| header.set_size(3 << 30)));
    assert!(text.contains("larger than 1024 MiB"), "{text}");
    let many: Vec<_> = (0..1100).map(|i| (format!("doc/{i}"), Vec::new(), 0o644)).collect();
    let many: Vec<_> = many.iter().map(|(name, bytes, mode)| (name.as_str(), bytes.clone(), *mode)).collect();
    assert!(refused(tar(&many)).contains("more than 1000 entries"));
}

#[test]
fn extension_headers_are_bounded_and_cannot_change_sizes() {
    let extension = |kind: u8, body: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_path("x").unwrap();
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_size(body.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes.extend(containerd_tar());
        bytes
    };
    assert!(refused(extension(b'L', &vec![b'a'; 1 << 20])).contains("64 KiB"));
    assert!(refused(extension(b'x', b"11 size=12\n")).contains("no release archive"));
    assert!(refused(extension(b'x', b"25 GNU.sparse.realsize=1\n")).contains("no release archive"));
    assert!(refused(extension(b'x', b"20 path=../../etc/x\n")).contains("leads out"));
    assert!(refused(extension(b'L', b"/etc/x\0")).contains("leads out"));
    assert!(refused(extension(b'x', b"no record")).contains("damaged"));
    // What ordinary programs write is fine.
    with_containerd(extension(b'x', b"27 mtime=1700000000.123456\n")).1.unwrap();
    with_containerd(extension(b'g', b"16 comment=1234\n")).1.unwrap();
    with_containerd(extension(b'L', b"bin/containerd\0")).1.unwrap();
}

#[test]
fn archives_that_are_cut_or_damaged_are_refused() {
    let whole = gzip(&containerd_tar());
    for cut in [0, 1, 10, 100, whole.len() / 2, whole.len() - 1] {
        let text = refused(whole[..cut].to_vec());
        assert!(text.contains("damaged or cut off") || text.contains("no tar archive"), "{cut}: {text}");
    }
    let plain = containerd_tar();
    for cut in [300, 600, 1500] {
        assert!(!refused(plain[..cut].to_vec()).is_empty());
    }
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x55;
    assert!(refused(flipped).contains("containerd-2.1.9"));
}

#[test]
fn an_archive_without_its_programs_is_refused() {
    let text = refused(tar(&[("bin/containerd", program("x"), 0o755)]));
    assert!(text.contains("it has no containerd-shim-runc-v2, no ctr"), "{text}");
    assert!(refused(b"<html>404</html>".to_vec()).contains("no tar archive"));
}

#[test]
fn a_bundle_that_others_can_change_is_refused_with_the_command() {
    type Break = fn(&MemFs);
    let cases: [(Break, &str); 7] = [
        (|fs| fs.chmod(Path::new(DIR), 0o775).unwrap(), "chmod -R go-w /srv/bundle"),
        (|fs| fs.chown(Path::new(DIR), 1000, 1000).unwrap(), "chown -R root:root /srv/bundle"),
        (|fs| fs.chmod(Path::new("/srv"), 0o777).unwrap(), "chmod go-w /srv"),
        (|fs| fs.chmod(&at("manifest.json"), 0o666).unwrap(), "chmod -R go-w /srv/bundle"),
        (|fs| fs.chown(&at(RUNC), 1000, 0).unwrap(), "chown -R root:root /srv/bundle/runc/v1.3.6/runc.amd64"),
        (|fs| fs.chmod(&at("cni/v1.9.1"), 0o757).unwrap(), "chmod -R go-w /srv/bundle"),
        (|fs| _ = fs.take(at(RUNC)).put_link("/etc/shadow", at(RUNC)), "put the regular file itself there"),
    ];
    for (spoil, mend) in cases {
        let fs = bundle();
        spoil(&fs);
        let error = open(&fs).and_then(|bundle| bundle.resolve(&wanted())).unwrap_err();
        let text = told(&error);
        assert!(matches!(error, ArtifactError::Untrusted { .. }) && text.contains(mend), "{mend}: {text}");
    }
}

#[test]
fn a_sticky_directory_above_and_a_link_of_root_to_the_bundle_are_fine() {
    let fs = bundle();
    fs.chmod(Path::new("/srv"), 0o1777).unwrap();
    fs.put_link("/srv/bundle", "/etc/bundle");
    let found = Bundle::open(Arc::new(fs.clone()), Path::new("/etc/bundle"), Trust::root()).unwrap();
    assert_eq!(found.dir(), Path::new(DIR));
}

#[test]
fn another_owner_is_trusted_only_where_that_was_said() {
    let fs = bundle();
    fs.chown(&at("manifest.json"), 1000, 1000).unwrap();
    assert!(open(&fs).is_err());
    Bundle::open(Arc::new(fs.clone()), Path::new(DIR), Trust::owner(1000)).unwrap();
}

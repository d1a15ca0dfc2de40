//! What holds for every [`Fs`]: run on [`super::MemFs`] and on the real one over a temporary directory.
#![allow(clippy::unwrap_used, reason = "test code: a failed unwrap is a failed test")]

use crate::durable::{self, Change, Refusal, TEMP_PREFIX};
use crate::{FileKind, Fs, FsError};
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Runs every case, each on a fresh, empty file system that `make` gives.
pub fn run<F: Fs>(make: impl Fn() -> F) {
    for (name, case) in CASES {
        println!("case {name}");
        case(&make());
    }
}

type Case = fn(&dyn Fs);

/// The cases by name.
pub const CASES: &[(&str, Case)] = &[
    ("create gives exactly the mode", create_gives_the_mode),
    ("create refuses what exists", create_refuses_what_exists),
    ("a final link is followed only where it is said", final_links),
    ("links stay below the root", links_stay_below_the_root),
    ("read is bounded", read_is_bounded),
    ("rename replaces", rename_replaces),
    ("removal tells files and directories apart", removal),
    ("chmod refuses links", chmod_refuses_links),
    ("attributes", attributes),
    ("nothing below a file", nothing_below_a_file),
    ("durable write", durable_write),
    ("durable write refuses links and directories", durable_write_refuses),
    ("copy with digest", copy_with_digest),
    ("replace link", replace_link),
    ("ensure directory", ensure_dir),
    ("remove file", remove_file),
    ("remove tree", remove_tree),
    ("remove a tree that is too deep for one path", remove_deep_tree),
    ("remove contents", remove_contents),
    ("sweep", sweep),
];

fn p(path: &str) -> &Path {
    Path::new(path)
}

fn put(fs: &dyn Fs, path: &str, text: &str) {
    fs.create(p(path), 0o644).unwrap().write_all(text.as_bytes()).unwrap();
}

fn text(fs: &dyn Fs, path: &str) -> String {
    String::from_utf8(fs.read(p(path), 1 << 20).unwrap().unwrap()).unwrap()
}

fn names(fs: &dyn Fs, dir: &str) -> Vec<String> {
    fs.read_dir(p(dir)).unwrap().into_iter().map(|e| e.name.into_string().unwrap()).collect()
}

fn kind<T>(result: Result<T, FsError>) -> ErrorKind {
    result.err().expect("an error").kind()
}

fn refusal<T: std::fmt::Debug>(result: Result<T, FsError>) -> Refusal {
    let error = result.unwrap_err();
    Refusal::of(&error).unwrap_or_else(|| panic!("not a refusal: {error}: {}", error.source)).clone()
}

fn create_gives_the_mode(fs: &dyn Fs) {
    for mode in [0o600, 0o666, 0o4755, 0o777, 0o400] {
        let path = format!("/f{mode:o}");
        fs.create(p(&path), mode).unwrap();
        let stat = fs.lstat(p(&path)).unwrap().unwrap();
        assert_eq!((stat.kind, stat.mode, stat.size), (FileKind::File, mode, 0), "{path}");
        let path = format!("/d{mode:o}");
        fs.mkdir(p(&path), mode).unwrap();
        let stat = fs.lstat(p(&path)).unwrap().unwrap();
        assert_eq!((stat.kind, stat.mode), (FileKind::Dir, mode), "{path}");
    }
}

fn create_refuses_what_exists(fs: &dyn Fs) {
    put(fs, "/f", "old");
    fs.symlink(p("nowhere"), p("/dangling")).unwrap();
    for path in ["/f", "/dangling"] {
        assert_eq!(kind(fs.create(p(path), 0o644).map(drop)), ErrorKind::AlreadyExists, "{path}");
        assert_eq!(kind(fs.mkdir(p(path), 0o755)), ErrorKind::AlreadyExists, "{path}");
        assert_eq!(kind(fs.symlink(p("x"), p(path))), ErrorKind::AlreadyExists, "{path}");
    }
    assert_eq!(text(fs, "/f"), "old");
    assert_eq!(kind(fs.create(p("/no/f"), 0o644).map(drop)), ErrorKind::NotFound);
}

fn final_links(fs: &dyn Fs) {
    fs.mkdir(p("/d"), 0o755).unwrap();
    put(fs, "/d/f", "text");
    fs.symlink(p("d"), p("/to-dir")).unwrap();
    fs.symlink(p("/d/f"), p("/to-file")).unwrap();
    fs.symlink(p("gone"), p("/dangling")).unwrap();
    fs.symlink(p("loop"), p("/loop")).unwrap();

    assert_eq!(fs.lstat(p("/to-dir")).unwrap().unwrap().kind, FileKind::Link);
    assert_eq!(fs.stat(p("/to-dir")).unwrap().unwrap().kind, FileKind::Dir);
    assert_eq!(fs.read_link(p("/to-dir")).unwrap(), p("d"));
    assert_eq!(text(fs, "/to-file"), "text");
    assert_eq!(text(fs, "/to-dir/f"), "text");
    assert_eq!(fs.stat(p("/dangling")).unwrap(), None);
    assert!(fs.stat(p("/loop")).is_err());
    assert_eq!(fs.canonicalize(p("/to-dir/../to-dir/f")).unwrap(), p("/d/f"));
    assert_eq!(fs.canonicalize(p("/")).unwrap(), p("/"));
    assert_eq!(kind(fs.canonicalize(p("/dangling"))), ErrorKind::NotFound);
    assert_eq!(kind(fs.read_dir(p("/to-dir"))), ErrorKind::NotADirectory);
    fs.sync_dir(p("/to-dir")).unwrap();
    assert!(fs.sync_file(p("/to-file")).is_err());
    assert!(fs.read_link(p("/d/f")).is_err());
    let entries: Vec<_> = fs.read_dir(p("/")).unwrap().into_iter().map(|e| (e.name, e.kind)).collect();
    let link = FileKind::Link;
    let want = [("d", FileKind::Dir), ("dangling", link), ("loop", link), ("to-dir", link), ("to-file", link)];
    assert_eq!(entries, want.map(|(name, kind)| (name.into(), kind)));
}

fn links_stay_below_the_root(fs: &dyn Fs) {
    fs.mkdir(p("/etc"), 0o755).unwrap();
    put(fs, "/etc/passwd", "ours");
    fs.symlink(p("/etc/passwd"), p("/absolute")).unwrap();
    fs.symlink(p("../../../../../../etc/passwd"), p("/relative")).unwrap();
    fs.symlink(p("../../.."), p("/etc/up")).unwrap();
    for path in ["/absolute", "/relative", "/etc/up/etc/passwd", "/../../etc/passwd"] {
        assert_eq!(text(fs, path), "ours", "{path}");
        assert_eq!(fs.canonicalize(p(path)).unwrap(), p("/etc/passwd"), "{path}");
    }
}

fn read_is_bounded(fs: &dyn Fs) {
    put(fs, "/f", "12345");
    assert_eq!(fs.read(p("/f"), 5).unwrap().unwrap(), b"12345");
    assert_eq!(kind(fs.read(p("/f"), 4)), ErrorKind::FileTooLarge);
    assert_eq!(fs.read(p("/absent"), 4).unwrap(), None);
}

fn rename_replaces(fs: &dyn Fs) {
    put(fs, "/a", "new");
    put(fs, "/b", "old");
    fs.rename(p("/a"), p("/b")).unwrap();
    assert_eq!((text(fs, "/b").as_str(), names(fs, "/")), ("new", vec!["b".to_owned()]));
    fs.mkdir(p("/d"), 0o755).unwrap();
    put(fs, "/d/f", "");
    fs.mkdir(p("/e"), 0o755).unwrap();
    assert_eq!(kind(fs.rename(p("/b"), p("/d"))), ErrorKind::IsADirectory);
    assert_eq!(kind(fs.rename(p("/d"), p("/b"))), ErrorKind::NotADirectory);
    assert_eq!(kind(fs.rename(p("/e"), p("/d"))), ErrorKind::DirectoryNotEmpty);
    assert_eq!(kind(fs.rename(p("/d"), p("/d/inside"))), ErrorKind::InvalidInput);
    assert_eq!(kind(fs.rename(p("/gone"), p("/x"))), ErrorKind::NotFound);
    fs.rename(p("/d"), p("/e")).unwrap();
    assert_eq!(names(fs, "/e"), ["f"]);
}

fn removal(fs: &dyn Fs) {
    fs.mkdir(p("/d"), 0o755).unwrap();
    put(fs, "/d/f", "");
    fs.symlink(p("d"), p("/link")).unwrap();
    assert_eq!(kind(fs.unlink(p("/d"))), ErrorKind::IsADirectory);
    assert_eq!(kind(fs.rmdir(p("/d"))), ErrorKind::DirectoryNotEmpty);
    assert_eq!(kind(fs.rmdir(p("/link"))), ErrorKind::NotADirectory);
    fs.unlink(p("/link")).unwrap();
    fs.unlink(p("/d/f")).unwrap();
    fs.rmdir(p("/d")).unwrap();
    assert!(names(fs, "/").is_empty());
    assert_eq!(kind(fs.unlink(p("/d/f"))), ErrorKind::NotFound);
}

fn chmod_refuses_links(fs: &dyn Fs) {
    put(fs, "/f", "");
    fs.symlink(p("f"), p("/link")).unwrap();
    fs.chmod(p("/f"), 0o640).unwrap();
    assert!(fs.chmod(p("/link"), 0o777).is_err());
    assert_eq!(fs.stat(p("/f")).unwrap().unwrap().mode, 0o640);
    let stat = fs.lstat(p("/f")).unwrap().unwrap();
    fs.chown(p("/link"), stat.uid, stat.gid).unwrap();
}

fn attributes(fs: &dyn Fs) {
    put(fs, "/f", "");
    assert_eq!(fs.get_xattr(p("/f"), "user.flexnode").unwrap(), None);
    fs.set_xattr(p("/f"), "user.flexnode", b"one").unwrap();
    fs.set_xattr(p("/f"), "user.flexnode", b"second").unwrap();
    assert_eq!(fs.get_xattr(p("/f"), "user.flexnode").unwrap().unwrap(), b"second");
    fs.symlink(p("f"), p("/link")).unwrap();
    assert_eq!(fs.get_xattr(p("/link"), "user.flexnode").unwrap(), None, "of the link itself");
    assert!(fs.writable(p("/f")).unwrap());
    assert!(fs.free_bytes(p("/")).unwrap() > 0);
    assert_eq!(kind(fs.get_xattr(p("/gone"), "user.flexnode")), ErrorKind::NotFound);
    assert_eq!(kind(fs.writable(p("/gone"))), ErrorKind::NotFound);
}

fn nothing_below_a_file(fs: &dyn Fs) {
    put(fs, "/f", "");
    assert_eq!(fs.lstat(p("/f/below")).unwrap(), None);
    assert_eq!(fs.stat(p("/f/below")).unwrap(), None);
    assert_eq!(kind(fs.create(p("/f/below"), 0o644).map(drop)), ErrorKind::NotADirectory);
}

fn durable_write(fs: &dyn Fs) {
    let before = |fs: &dyn Fs| fs.lstat(p("/f")).unwrap().unwrap();
    assert_eq!(durable::write(fs, p("/f"), b"one", 0o600).unwrap(), Change::Made);
    let first = before(fs);
    assert_eq!(durable::write(fs, p("/f"), b"one", 0o600).unwrap(), Change::None);
    assert_eq!(before(fs), first, "untouched");
    assert_eq!(durable::write(fs, p("/f"), b"two", 0o600).unwrap(), Change::Made);
    assert_eq!((text(fs, "/f").as_str(), before(fs).mode), ("two", 0o600));
    assert_eq!(durable::write(fs, p("/f"), b"two", 0o644).unwrap(), Change::Made);
    assert_eq!((text(fs, "/f").as_str(), before(fs).mode), ("two", 0o644));
    assert_eq!(names(fs, "/"), ["f"]);
    assert_eq!(kind(durable::write(fs, p("/gone/f"), b"", 0o644)), ErrorKind::NotFound);
    assert_eq!(refusal(durable::write(fs, p("relative"), b"", 0o644)), Refusal::BadPath);
}

fn durable_write_refuses(fs: &dyn Fs) {
    put(fs, "/target", "kept");
    fs.symlink(p("target"), p("/link")).unwrap();
    fs.mkdir(p("/dir"), 0o755).unwrap();
    assert_eq!(refusal(durable::write(fs, p("/link"), b"x", 0o644)), Refusal::NotAFile(FileKind::Link));
    assert_eq!(refusal(durable::write(fs, p("/dir"), b"x", 0o644)), Refusal::NotAFile(FileKind::Dir));
    let copied = durable::copy_hashed(fs, &mut &b"x"[..], p("/link"), 0o644, None);
    assert_eq!(refusal(copied), Refusal::NotAFile(FileKind::Link));
    assert_eq!(text(fs, "/target"), "kept");
    assert_eq!(names(fs, "/"), ["dir", "link", "target"]);
}

fn copy_with_digest(fs: &dyn Fs) {
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let copy =
        |text: &str, expected: Option<&str>| durable::copy_hashed(fs, &mut text.as_bytes(), p("/f"), 0o755, expected);
    assert_eq!(copy("abc", None).unwrap(), ABC);
    assert_eq!(copy("abc", Some(&ABC.to_uppercase())).unwrap(), ABC);
    let found = durable::sha256_hex(b"other");
    let wrong = Refusal::WrongDigest { expected: ABC.to_owned(), found };
    assert_eq!(refusal(copy("other", Some(ABC))), wrong);
    assert_eq!((text(fs, "/f").as_str(), names(fs, "/")), ("abc", vec!["f".to_owned()]));
    assert_eq!(fs.lstat(p("/f")).unwrap().unwrap().mode, 0o755);
    let long = vec![7; 300_000];
    let digest = durable::copy_hashed(fs, &mut &long[..], p("/long"), 0o644, None).unwrap();
    assert_eq!(digest, durable::sha256_hex(&long));
    assert_eq!(fs.read(p("/long"), 1 << 20).unwrap().unwrap(), long);
}

fn replace_link(fs: &dyn Fs) {
    assert_eq!(durable::replace_link(fs, p("v1"), p("/current")).unwrap(), Change::Made);
    assert_eq!(durable::replace_link(fs, p("v1"), p("/current")).unwrap(), Change::None);
    assert_eq!(durable::replace_link(fs, p("v2"), p("/current")).unwrap(), Change::Made);
    assert_eq!(fs.read_link(p("/current")).unwrap(), p("v2"));
    put(fs, "/file", "kept");
    fs.mkdir(p("/dir"), 0o755).unwrap();
    assert_eq!(refusal(durable::replace_link(fs, p("v"), p("/file"))), Refusal::NotALink(FileKind::File));
    assert_eq!(refusal(durable::replace_link(fs, p("v"), p("/dir"))), Refusal::NotALink(FileKind::Dir));
    assert_eq!(names(fs, "/"), ["current", "dir", "file"]);
}

fn ensure_dir(fs: &dyn Fs) {
    let mode = |path| fs.lstat(p(path)).unwrap().unwrap().mode;
    assert_eq!(durable::ensure_dir(fs, p("/a/b/c"), 0o700).unwrap(), Change::Made);
    assert_eq!((mode("/a"), mode("/a/b"), mode("/a/b/c")), (0o755, 0o755, 0o700));
    assert_eq!(durable::ensure_dir(fs, p("/a/b/c"), 0o755).unwrap(), Change::None);
    assert_eq!(mode("/a/b/c"), 0o700);
    fs.symlink(p("a"), p("/link")).unwrap();
    assert_eq!(durable::ensure_dir(fs, p("/link/b/d"), 0o750).unwrap(), Change::Made);
    assert_eq!(mode("/a/b/d"), 0o750);
    assert_eq!(durable::ensure_dir(fs, p("/link"), 0o750).unwrap(), Change::None);
    put(fs, "/file", "");
    fs.symlink(p("gone"), p("/dangling")).unwrap();
    assert_eq!(refusal(durable::ensure_dir(fs, p("/file"), 0o755)), Refusal::NotADir(FileKind::File));
    assert_eq!(refusal(durable::ensure_dir(fs, p("/file/below"), 0o755)), Refusal::NotADir(FileKind::File));
    assert_eq!(refusal(durable::ensure_dir(fs, p("/dangling/x"), 0o755)), Refusal::NotADir(FileKind::Link));
    assert_eq!(durable::ensure_dir(fs, p("/"), 0o700).unwrap(), Change::None);
}

fn remove_file(fs: &dyn Fs) {
    fs.mkdir(p("/d"), 0o755).unwrap();
    put(fs, "/d/f", "");
    fs.symlink(p("d"), p("/link")).unwrap();
    assert_eq!(durable::remove_file(fs, p("/d/f")).unwrap(), Change::Made);
    assert_eq!(durable::remove_file(fs, p("/d/f")).unwrap(), Change::None);
    assert_eq!(durable::remove_file(fs, p("/gone/f")).unwrap(), Change::None);
    assert_eq!(durable::remove_file(fs, p("/link")).unwrap(), Change::Made);
    assert_eq!(refusal(durable::remove_file(fs, p("/d"))), Refusal::IsADir);
    assert_eq!(names(fs, "/"), ["d"]);
}

fn remove_tree(fs: &dyn Fs) {
    for dir in ["/t", "/t/a", "/t/a/b", "/t/empty", "/outside"] {
        fs.mkdir(p(dir), 0o755).unwrap();
    }
    for file in ["/t/f", "/t/a/f", "/t/a/b/f", "/outside/f"] {
        put(fs, file, "kept");
    }
    fs.symlink(p("/outside"), p("/t/a/out")).unwrap();
    fs.symlink(p("../outside/f"), p("/t/out")).unwrap();
    fs.symlink(p("t"), p("/to-t")).unwrap();
    assert_eq!(durable::remove_tree(fs, p("/to-t")).unwrap(), Change::Made);
    assert_eq!(names(fs, "/t/a"), ["b", "f", "out"], "a link to a tree is not the tree");
    assert_eq!(durable::remove_tree(fs, p("/t")).unwrap(), Change::Made);
    assert_eq!(durable::remove_tree(fs, p("/t")).unwrap(), Change::None);
    assert_eq!(durable::remove_tree(fs, p("/gone/t")).unwrap(), Change::None);
    assert_eq!(durable::remove_tree(fs, p("/outside/f")).unwrap(), Change::Made);
    assert_eq!(refusal(durable::remove_tree(fs, p("/"))), Refusal::BadPath);
    assert_eq!(names(fs, "/"), ["outside"]);
}

fn remove_deep_tree(fs: &dyn Fs) {
    // Built from its end: 30 levels of 200 bytes each, twice what one path can name.
    let name = "n".repeat(200);
    fs.mkdir(p("/t"), 0o755).unwrap();
    put(fs, "/t/bottom", "");
    for _ in 0..30 {
        fs.mkdir(p("/up"), 0o755).unwrap();
        fs.rename(p("/t"), &p("/up").join(&name)).unwrap();
        fs.rename(p("/up"), p("/t")).unwrap();
    }
    put(fs, "/t/top", "");
    assert_eq!(durable::remove_tree(fs, p("/t")).unwrap(), Change::Made);
    assert!(names(fs, "/").is_empty());
}

fn remove_contents(fs: &dyn Fs) {
    fs.mkdir(p("/t"), 0o700).unwrap();
    fs.mkdir(p("/t/d"), 0o755).unwrap();
    put(fs, "/t/d/f", "");
    fs.symlink(p("t"), p("/link")).unwrap();
    assert_eq!(refusal(durable::remove_contents(fs, p("/link"))), Refusal::NotADir(FileKind::Link));
    assert_eq!(durable::remove_contents(fs, p("/t")).unwrap(), Change::Made);
    assert_eq!(durable::remove_contents(fs, p("/t")).unwrap(), Change::None);
    assert_eq!(durable::remove_contents(fs, p("/gone")).unwrap(), Change::None);
    assert!(names(fs, "/t").is_empty());
}

fn sweep(fs: &dyn Fs) {
    let temp = |n: u8| format!("/d/{TEMP_PREFIX}{n}");
    fs.mkdir(p("/d"), 0o755).unwrap();
    put(fs, &temp(1), "");
    fs.symlink(p("/d/kept"), p(&temp(2))).unwrap();
    fs.mkdir(p(&temp(3)), 0o755).unwrap();
    put(fs, &format!("{}/f", temp(3)), "");
    put(fs, "/d/kept", "");
    fs.mkdir(p("/d/sub"), 0o755).unwrap();
    put(fs, &format!("/d/sub/{TEMP_PREFIX}4"), "");
    assert_eq!(durable::sweep(fs, p("/d")).unwrap(), [temp(1), temp(2), temp(3)].map(std::path::PathBuf::from));
    assert_eq!(durable::sweep(fs, p("/d")).unwrap(), Vec::<std::path::PathBuf>::new());
    assert_eq!(durable::sweep(fs, p("/gone")).unwrap(), Vec::<std::path::PathBuf>::new());
    assert_eq!((names(fs, "/d"), names(fs, "/d/sub").len()), (vec!["kept".to_owned(), "sub".to_owned()], 1));
}

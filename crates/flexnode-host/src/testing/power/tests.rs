//! The rules of the model one by one; every durable change on it, cut anywhere; and the control: no sync of the durable
//! changes can be left out without a fault being found.

use super::*;
use crate::durable::{self, Change};
use crate::testing::{MemFs, Tree};
use crate::{Fs, FsError};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

fn p(path: &str) -> &Path {
    Path::new(path)
}

/// All that may be left of what `run` does, as the contents of `path` (`None`: it is not there).
fn outcomes(start: &MemFs, path: &str, run: impl Fn(&MemFs)) -> BTreeSet<Option<Vec<u8>>> {
    let fs = start.fork();
    fs.record();
    run(&fs);
    let history = fs.recorded();
    let last = history.moments() - 1;
    let contents = |seed| {
        let left = history.cut(last, &mut Doubts::of_cut(Cut::Seed(seed)));
        left.exists(path).then(|| left.read(p(path), 1 << 20).unwrap().unwrap())
    };
    (0..2000).map(contents).collect()
}

/// A file with this text.
macro_rules! some {
    ($text:literal) => {
        Some($text.as_bytes().to_vec())
    };
}

#[test]
fn an_unsynced_file_is_absent_empty_cut_off_zero_stale_or_whole() {
    let found = outcomes(&MemFs::new(), "/f", |fs| {
        fs.create(p("/f"), 0o644).unwrap().write_all(b"abcd").unwrap();
    });
    let stale = |n| Some(vec![0xa5; n]);
    let zero = |n| Some(vec![0; n]);
    let all = [None, some!(""), some!("ab"), some!("abcd"), zero(2), zero(4), stale(2), stale(4)];
    assert_eq!(found, all.into_iter().collect());
}

#[test]
fn blocks_of_one_file_are_written_or_not_each_on_its_own() {
    let found = outcomes(&MemFs::new(), "/f", |fs| {
        fs.create(p("/f"), 0o644).unwrap().write_all(&[7; 8192]).unwrap();
    });
    let whole: BTreeSet<(u8, u8)> =
        found.iter().flatten().filter(|c| c.len() == 8192).map(|c| (c[0], c[5000])).collect();
    assert_eq!(whole.len(), 9, "{whole:?}");
}

#[test]
fn a_sync_of_the_file_keeps_its_content_and_not_its_name() {
    let found = outcomes(&MemFs::new(), "/f", |fs| {
        let mut file = fs.create(p("/f"), 0o600).unwrap();
        file.write_all(b"abcd").unwrap();
        file.sync().unwrap();
    });
    assert_eq!(found, [None, some!("abcd")].into());
    // What was synced is not damaged by what comes behind it.
    let found = outcomes(&MemFs::new(), "/f", |fs| {
        let mut file = fs.create(p("/f"), 0o600).unwrap();
        file.write_all(b"ab").unwrap();
        file.sync().unwrap();
        fs.sync_dir(p("/")).unwrap();
        file.write_all(b"cd").unwrap();
    });
    assert!(found.iter().flatten().all(|content| content.starts_with(b"ab")), "{found:?}");
    assert!(found.contains(&some!("ab\0\0")) && found.contains(&some!("ab")) && found.contains(&some!("abcd")));
}

#[test]
fn a_sync_of_the_directory_keeps_its_names_and_not_the_content_behind_them() {
    let found = outcomes(&MemFs::new(), "/f", |fs| {
        fs.create(p("/f"), 0o600).unwrap().write_all(b"abcd").unwrap();
        fs.sync_dir(p("/")).unwrap();
    });
    assert!(!found.contains(&None) && found.contains(&some!("")) && found.contains(&some!("abcd")));
}

#[test]
fn a_rename_is_whole_may_be_lost_and_may_come_before_the_content() {
    let start = MemFs::new();
    start.put("/f", "old", 0o600);
    let run = |fs: &MemFs| {
        fs.create(p("/t"), 0o600).unwrap().write_all(b"new").unwrap();
        fs.rename(p("/t"), p("/f")).unwrap();
    };
    let found = outcomes(&start, "/f", run);
    assert!(found.contains(&some!("old")) && found.contains(&some!("new")) && found.contains(&some!("")));
    assert!(!found.contains(&None), "one of the two has the name at every moment");
    // The rename alone: never two names, never none.
    let start = MemFs::new();
    start.put("/t", "x", 0o600);
    start.record();
    start.rename(p("/t"), p("/f")).unwrap();
    let history = start.recorded();
    for seed in 0..100 {
        let left = history.cut(1, &mut Doubts::of_cut(Cut::Seed(seed)));
        assert_ne!(left.exists("/t"), left.exists("/f"));
    }
}

#[test]
fn a_rename_between_directories_may_leave_both_names_and_none_when_only_the_old_one_is_synced() {
    let start = MemFs::new();
    start.put("/a/f", "x", 0o600).put_dir("/b", 0o755);
    let names = |sync: &[&str]| -> BTreeSet<(bool, bool)> {
        let fs = start.fork();
        fs.record();
        fs.rename(p("/a/f"), p("/b/f")).unwrap();
        for dir in sync {
            fs.sync_dir(p(dir)).unwrap();
        }
        let history = fs.recorded();
        let cut = |seed| history.cut(history.moments() - 1, &mut Doubts::of_cut(Cut::Seed(seed)));
        (0..200).map(cut).map(|left| (left.exists("/a/f"), left.exists("/b/f"))).collect()
    };
    assert_eq!(names(&[]), [(true, false), (true, true), (false, true)].into());
    assert_eq!(names(&["/b"]), [(true, true), (false, true)].into());
    assert_eq!(names(&["/a"]), [(false, false), (false, true)].into());
    assert_eq!(names(&["/b", "/a"]), [(false, true)].into());
}

#[test]
fn names_are_kept_or_dropped_each_on_its_own_and_in_any_order() {
    let start = MemFs::new();
    start.put("/a", "", 0o600).put("/b", "", 0o600);
    start.record();
    for path in ["/a", "/b"] {
        start.unlink(p(path)).unwrap();
    }
    start.symlink(p("x"), p("/c")).unwrap();
    let history = start.recorded();
    let there = |seed| {
        let left = history.cut(3, &mut Doubts::of_cut(Cut::Seed(seed)));
        ["/a", "/b", "/c"].map(|path| left.exists(path))
    };
    let found: BTreeSet<[bool; 3]> = (0..500).map(there).collect();
    assert_eq!(found.len(), 8);
}

#[test]
fn mode_and_owner_are_old_or_new_until_the_inode_is_synced() {
    let start = MemFs::new();
    start.put("/f", "x", 0o644);
    let modes = |sync: bool| -> BTreeSet<u32> {
        let fs = start.fork();
        fs.chmod(p("/f"), 0o600).unwrap();
        if sync {
            fs.sync_file(p("/f")).unwrap();
        }
        let cut = |seed| fs.after_power_cut(Cut::Seed(seed)).lstat(p("/f")).unwrap().unwrap().mode;
        (0..50).map(cut).collect()
    };
    assert_eq!((modes(false), modes(true)), ([0o644, 0o600].into(), [0o600].into()));
}

#[test]
fn a_seed_repeats_and_answers_can_be_given_one_by_one() {
    let fs = MemFs::new();
    fs.record();
    for name in ["/a", "/b", "/c"] {
        fs.create(p(name), 0o600).unwrap().write_all(&[1; 5000]).unwrap();
    }
    let history = fs.recorded();
    let last = history.moments() - 1;
    for seed in 0..50 {
        let mut doubts = Doubts::of_cut(Cut::Seed(seed));
        let left = history.cut(last, &mut doubts);
        assert_eq!(left.tree(), history.cut(last, &mut Doubts::of_cut(Cut::Seed(seed))).tree());
        let given = history.cut(last, &mut Doubts::given(doubts.answers()));
        assert_eq!(left.tree(), given.tree());
        let told = history.tell(last, doubts.answers());
        assert_eq!(told.len(), history.moments() + doubts.answers().len(), "{told:#?}");
    }
    assert_eq!(history.cut(last, &mut Doubts::given(&[])).tree(), fs.tree(), "no answers: all is there");
}

/// A durable change, what it is run on, and what may be seen when the power goes in it.
struct Work {
    name: &'static str,
    run: fn(&MemFs) -> Result<(), FsError>,
    /// Whether it can be run again.
    again: bool,
    /// Only the trees before and after it may be seen, but for temporary names.
    atomic: bool,
}

const TARGET: &str = "/etc/f";

fn start() -> MemFs {
    let fs = MemFs::new();
    // What is in /etc has a label of its own, and gets the policy's with every new name.
    fs.set_labeler(|path| path.starts_with("/etc").then(|| b"etc_t".to_vec())).relabel_renamed();
    fs.put(TARGET, "old", 0o600).put_link("v1", "/etc/current").put_dir("/usr", 0o755);
    for file in ["/tree/f", "/tree/d/f", "/content/f", "/content/d/f", "/usr/.flexnode-tmp-1-1", "/usr/kept"] {
        fs.put(file, "x", 0o644);
    }
    fs.set_xattr(p(TARGET), durable::SELINUX_LABEL, b"special_t").unwrap();
    fs.sync_file(p(TARGET)).unwrap();
    fs.clear_log();
    fs
}

fn works() -> Vec<Work> {
    let work = |name, run: fn(&MemFs) -> Result<(), FsError>, again, atomic| Work { name, run, again, atomic };
    vec![
        work("write", |fs| durable::write(fs, p(TARGET), b"new content", 0o640).map(drop), true, true),
        work("write a new file", |fs| durable::write(fs, p("/etc/new"), b"new", 0o600).map(drop), true, true),
        work(
            "write what another program wrote and did not sync",
            |fs| {
                if !fs.exists("/etc/theirs") {
                    let mut file = fs.create(p("/etc/theirs"), 0o600)?;
                    file.write_all(b"same").map_err(|e| FsError::new("write", p("/etc/theirs"), e))?;
                }
                durable::write(fs, p("/etc/theirs"), b"same", 0o600).map(drop)
            },
            true,
            false,
        ),
        work("copy", |fs| durable::copy_hashed(fs, &mut &[3; 9000][..], p(TARGET), 0o640, None).map(drop), true, true),
        work("link", |fs| durable::replace_link(fs, p("v2"), p("/etc/current")).map(drop), true, true),
        work("make directories", |fs| durable::ensure_dir(fs, p("/etc/a/b/c"), 0o700).map(drop), true, false),
        work("remove a file", |fs| durable::remove_file(fs, p(TARGET)).map(drop), true, true),
        work("remove a tree", |fs| durable::remove_tree(fs, p("/tree")).map(drop), true, false),
        work("remove content", |fs| durable::remove_contents(fs, p("/content")).map(drop), true, false),
        // A later run that finds nothing to sweep syncs nothing: a temporary name that comes back is swept again.
        work("sweep", |fs| durable::sweep(fs, p("/usr")).map(drop), false, false),
        work(
            "a link of another program",
            |fs| {
                let path = p("/etc/wants/unit");
                if !fs.exists("/etc/wants") {
                    fs.mkdir(p("/etc/wants"), 0o755)?;
                    fs.sync_dir(p("/etc/wants"))?;
                    fs.symlink(p("../unit"), path)?;
                }
                durable::sync_name(fs, path)
            },
            false,
            false,
        ),
        work("rename", |fs| durable::rename(fs, p("/tree/f"), p("/tree/g")), false, true),
        work("rename to another directory", |fs| durable::rename(fs, p("/tree/f"), p("/content/g")), false, false),
    ]
}

/// Without temporary names, as somebody sees it who sweeps; those of /usr are the subject of a work.
fn seen(fs: &MemFs) -> Tree {
    let fs = fs.fork();
    for dir in ["/etc", "/etc/a", "/etc/a/b"] {
        durable::sweep(&fs, p(dir)).unwrap();
    }
    fs.tree()
}

/// Between the rename and the label that is given back, a file has the policy's: no content is mixed up by that.
fn unlabelled(tree: &Tree) -> Tree {
    let mut tree = tree.clone();
    tree.0.values_mut().for_each(|node| node.label = None);
    tree
}

/// One case: the work is killed or not, cut off or not, and run again; then the power goes.
fn case(work: &Work, seed: u64, left_out: Option<&'static str>) -> Result<(), String> {
    let mut chance = Seed::new(seed);
    let fresh = |fs: &MemFs| {
        if let Some(site) = left_out {
            fs.leave_out_site(site);
        }
    };
    let done = start();
    (work.run)(&done).map_err(|e| e.to_string())?;
    let (old, new) = (seen(&start()), seen(&done));
    let told = |what: &str, history: &History, moment: usize, doubts: &Doubts, now: &Tree| {
        let lines = history.tell(moment, doubts.answers()).join("\n  ");
        format!("{}, seed {seed}: {what}\n  {lines}\n{:#?}", work.name, new.difference(now))
    };
    let mut fs = start();
    for attempt in 0..3 {
        fresh(&fs);
        // A process that was killed leaves the page cache as it is: the next one must not take it for the disk.
        if work.again && attempt < 2 && chance.below(3) == 0 {
            fs.crash_after(usize::try_from(chance.below(done.log().len() as u64)).unwrap_or(0));
            let _ = (work.run)(&fs);
            fs.revive();
            continue;
        }
        fs.record();
        let result = (work.run)(&fs);
        let history = fs.recorded();
        result.map_err(|e| format!("{}, seed {seed}, run {attempt}: {e}: {}", work.name, e.source))?;
        let last = history.moments() - 1;
        let whole = chance.below(2) == 0;
        let moment = if whole { last } else { usize::try_from(chance.below(history.moments() as u64)).unwrap_or(0) };
        let mut doubts = Doubts::of_cut(Cut::Seed(chance.next_number()));
        let left = history.cut(moment, &mut doubts);
        let now = seen(&left);
        // A run that ended between the rename and the label that is given back has forgotten which label that was.
        let same = if attempt == 0 { now == new } else { unlabelled(&now) == unlabelled(&new) };
        if moment == last && !same {
            return Err(told("it was done and is not", &history, moment, &doubts, &now));
        }
        if work.atomic && ![&old, &new].map(unlabelled).contains(&unlabelled(&now)) {
            return Err(told("it is neither old nor new", &history, moment, &doubts, &now));
        }
        if moment == last || !work.again {
            return Ok(());
        }
        fs = left;
    }
    Ok(())
}

/// The first of `cuts` cases that fails, over all works in turn.
fn search(cuts: u64, left_out: Option<&'static str>) -> Option<(u64, String)> {
    let works = works();
    (0..cuts).find_map(|seed| {
        let work = &works[usize::try_from(seed).unwrap_or(0) % works.len()];
        case(work, seed, left_out).err().map(|why| (seed, why))
    })
}

/// How often, and from which seed on: more than a plain test run does is asked for by `cargo xtask torture --model`.
fn cuts() -> u64 {
    std::env::var("FLEXNODE_CUTS").ok().and_then(|cuts| cuts.parse().ok()).unwrap_or(4_000)
}

#[test]
fn every_durable_change_is_old_or_new_and_what_is_done_stays_done() {
    if let Some((_, why)) = search(cuts(), None) {
        panic!("{why}");
    }
}

/// The control: without any one sync the same search finds a fault within a thousand cuts.
#[test]
fn with_any_one_sync_left_out_a_fault_is_found_within_a_thousand_cuts() {
    let mut needed = BTreeMap::new();
    for site in durable::sites() {
        needed.insert(site, search(1000, Some(site)).map(|(seed, _)| seed));
    }
    let unnoticed: Vec<_> = needed.iter().filter(|(_, seed)| seed.is_none()).collect();
    assert!(unnoticed.is_empty(), "nothing is found without {unnoticed:?}; found: {needed:#?}");
    println!("without this sync a fault is found at case: {needed:#?}");
}

#[test]
fn a_second_run_of_a_change_that_is_on_the_device_writes_nothing() {
    let fs = start();
    durable::write(&fs, p(TARGET), b"new", 0o640).unwrap();
    let left = fs.after_power_cut(Cut::Lazy);
    assert_eq!(durable::write(&left, p(TARGET), b"new", 0o640).unwrap(), Change::None);
}

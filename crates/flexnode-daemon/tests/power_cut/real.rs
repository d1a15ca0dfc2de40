//! The same question to real disks: the guest's disk was recorded while a node started, was upgraded, went back, restarted
//! and was reset, with the real containerd and kubelet ([`flexnode_lab::machine::recording`]). A case, which is a number,
//! is a moment of it and which of the writes that no flush had confirmed are there.
//!
//! Each is checked without booting: its file system, what a reader finds, then the agent's own recovery on that tree with
//! the fake systemd, then this suite's checker and the crash suite's. Some are booted and have to become Ready.
//!
//! `FLEXNODE_STATES` is how many, `FLEXNODE_SEED` the first case, `FLEXNODE_BOOT` how many are booted, `FLEXNODE_RESULTS`
//! the file in which results add up, `FLEXNODE_LEAVE_OUT_SYNC` a sync that the recorded agent leaves out, `FLEXNODE_AGENT` a
//! program with fail points that is recorded instead of one that is built for it.

mod boot;
mod foreign;
mod judge;
mod sight;
mod tree;

use crate::{block_on, number, setting};
use flexnode_lab::machine::cut::Disk;
use flexnode_lab::machine::disk::{Mounted, unmount_below};
use flexnode_lab::machine::recording::{Life, Recording};
use flexnode_lab::machine::results::{self, Run};
use flexnode_lab::{agent_binary, cache, interrupt};
use foreign::Foreign;
use judge::{Case, Judge, Verdict, Wrong};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;
use tree::Reader;

/// What `cargo xtask test` has time for.
const STATES: u64 = 36;
/// Settings of lab builds: an emulated machine needs more than the product's deadlines, and no recording the whole probation.
const SETTINGS: [&str; 2] = ["FLEXNODE_PROBATION=2", "FLEXNODE_GATE_LIMIT=600"];
/// The variable with which an agent that has fail points leaves a sync out.
const LEAVE_OUT: &str = "FLEXNODE_LEAVE_OUT_SYNC";

/// What the states of a run were.
#[derive(Debug, Default)]
struct Tally {
    ended: BTreeMap<(String, Verdict), u64>,
    neither: Vec<(u64, String)>,
    foreign: Vec<(u64, String)>,
    kept: u64,
    lost: u64,
}

impl Tally {
    fn states(&self) -> u64 {
        self.ended.values().sum::<u64>() + (self.neither.len() + self.foreign.len()) as u64
    }

    fn of(&self, verdict: Verdict) -> u64 {
        self.ended.iter().filter(|((_, v), _)| *v == verdict).map(|(_, count)| count).sum()
    }

    fn add(&mut self, other: Tally) {
        for (key, count) in other.ended {
            *self.ended.entry(key).or_default() += count;
        }
        self.neither.extend(other.neither);
        self.foreign.extend(other.foreign);
        self.kept += other.kept;
        self.lost += other.lost;
    }
}

/// A directory for images and mounts, outside of the checkout; what a killed run left in it is taken away first.
struct Work {
    folder: PathBuf,
    _lock: std::fs::File,
}

impl Work {
    fn new() -> Self {
        let folder = cache::dir().unwrap().join("torture");
        let lock = cache::lock(&folder.with_extension("lock"), "another process that tortures disks").unwrap();
        unmount_below(&folder).unwrap();
        cache::remove_tree(&folder).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        Self { folder, _lock: lock }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Err(error) = unmount_below(&self.folder).and_then(|()| cache::remove_tree(&self.folder)) {
            eprintln!("{error:#}");
        }
    }
}

/// A recording, and what is needed to judge a state of it.
struct Torture {
    agent: PathBuf,
    variables: Vec<String>,
    recording: Recording,
    judge: Judge,
    work: Work,
}

impl Torture {
    fn new(more: &[&str]) -> Self {
        interrupt::install().unwrap();
        flexnode_lab::prerequisites::ensure_machine().unwrap();
        let agent = setting("FLEXNODE_AGENT").map_or_else(|| agent_binary(&["failpoints"]).unwrap(), PathBuf::from);
        let variables = [&SETTINGS, more].concat();
        let life = Life { agent: &agent, prepare: system_tests::checker::FOREIGN, variables: &variables };
        let recording = Recording::get(life).unwrap();
        let work = Work::new();
        // Before the first operation, all that others own was synced.
        let image = work.folder.join("reference.img");
        recording.copy_disk(&image).unwrap();
        let mut disk = Disk::open(&image, &recording.log()).unwrap();
        disk.cut(disk.moment_of(recording.parts[0].from), 0).unwrap();
        let mounted = Mounted::new(&image, &work.folder.join("undo"), &work.folder.join("reference")).unwrap().unwrap();
        let mut reader = Reader::default();
        let foreign = Foreign::of(&reader.read(mounted.at()).unwrap());
        let programs = tree::programs(mounted.at()).unwrap();
        mounted.undo().unwrap();
        std::fs::remove_file(&image).unwrap();
        let bundle = recording.bundle(&agent).unwrap();
        let judge = Judge::new(&recording, foreign, programs, &agent, &bundle);
        let variables = variables.iter().map(|variable| (*variable).to_owned()).collect();
        Self { agent, variables, recording, judge, work }
    }

    fn variables(&self) -> Vec<&str> {
        self.variables.iter().map(String::as_str).collect()
    }

    /// The cases, in the order of their moments.
    fn cases(&self, disk: &Disk, first: u64, states: u64) -> Vec<Case> {
        let mut cases: Vec<Case> =
            (0..states).map(|n| Case::new(&self.recording, disk, first.wrapping_add(n))).collect();
        cases.sort_by_key(|case| case.moment);
        cases
    }

    /// Makes and judges these cases, which are in the order of their moments.
    fn work(&self, worker: usize, cases: &[Case], tally: &mut Tally) -> anyhow::Result<()> {
        let folder = self.work.folder.join(format!("worker-{worker}"));
        std::fs::create_dir_all(&folder)?;
        let (image, undo, at) = (folder.join("disk.img"), folder.join("undo"), folder.join("mount"));
        self.recording.copy_disk(&image)?;
        let mut disk = Disk::open(&image, &self.recording.log())?;
        let mut reader = Reader::default();
        for case in cases {
            interrupt::check()?;
            let made = disk.cut(case.moment, case.number)?;
            tally.kept += made.kept;
            tally.lost += made.lost;
            let seen = match Mounted::new(&image, &undo, &at)? {
                Ok(mounted) => {
                    let seen = reader.read(mounted.at()).and_then(|fs| Ok((fs, tree::programs(mounted.at())?)));
                    mounted.undo()?;
                    seen.map_err(|error| format!("the tree cannot be read: {error}"))
                }
                Err(broken) => Err(broken.0),
            };
            disk.undo()?;
            let judged = match seen {
                Ok((fs, programs)) => block_on(self.judge.judge(case, fs, &programs, &mut reader)),
                Err(why) => Err(Wrong::Neither(why)),
            };
            match judged {
                Ok(verdict) => *tally.ended.entry((case.operation.clone(), verdict)).or_default() += 1,
                Err(Wrong::Neither(why)) => tally.neither.push((case.number, format!("{case}: {why}"))),
                Err(Wrong::Foreign(why)) => tally.foreign.push((case.number, format!("{case}: {why}"))),
            }
            // Enough to look at.
            if tally.neither.len() + tally.foreign.len() >= 5 {
                break;
            }
        }
        Ok(())
    }

    fn run(&self, first: u64, states: u64) -> Tally {
        let disk = Disk::open(&self.recording.disk(), &self.recording.log());
        let cases = self.cases(&disk.unwrap(), first, states);
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(cases.len().max(1));
        let all = Mutex::new(Tally::default());
        std::thread::scope(|scope| {
            for worker in 0..workers {
                let mine: Vec<Case> = cases.iter().skip(worker).step_by(workers).cloned().collect();
                let all = &all;
                scope.spawn(move || {
                    let mut tally = Tally::default();
                    let ended = self.work(worker, &mine, &mut tally);
                    all.lock().unwrap().add(tally);
                    ended.unwrap();
                });
            }
        });
        all.into_inner().unwrap()
    }
}

fn tell(tally: &Tally, seconds: u64) {
    for ((operation, verdict), count) in &tally.ended {
        println!("  {operation}: {count} ended as {verdict:?}");
    }
    println!("  of the blocks that no flush had confirmed, {} were there and {} were lost", tally.kept, tally.lost);
    for (_, text) in tally.neither.iter().chain(&tally.foreign) {
        println!("\n{text}");
    }
    println!("{} states in {seconds} s", tally.states());
}

#[test]
#[ignore = "needs root, QEMU and some minutes for a recording; `cargo xtask torture --states` runs it"]
fn a_real_disk_after_a_power_cut_has_the_old_version_or_the_new_one() {
    let (first, states, boots) =
        (number("FLEXNODE_SEED", 1), number("FLEXNODE_STATES", STATES), number("FLEXNODE_BOOT", 0));
    let torture = Torture::new(&[]);
    let began = Instant::now();
    let tally = torture.run(first, states);
    tell(&tally, began.elapsed().as_secs());
    let (booted, ready) = boot::sample(&torture, first, states, boots);
    let run = Run {
        recording: torture.recording.name(),
        seed: first,
        states: tally.states(),
        old: tally.of(Verdict::Old),
        new: tally.of(Verdict::New),
        gone: tally.of(Verdict::Gone),
        neither: tally.neither.len() as u64,
        foreign: tally.foreign.len() as u64,
        booted,
        ready,
        seconds: began.elapsed().as_secs(),
    };
    system_tests::report(&format!("power cuts on a recorded disk: {run}"));
    if let Some(file) = setting("FLEXNODE_RESULTS") {
        println!("in all: {}", results::add(Path::new(&file), &run).unwrap());
    }
    assert_eq!((run.neither, run.foreign), (0, 0), "states without a version, and with changes of what others own");
    assert_eq!(run.ready, run.booted, "some did not become Ready");
}

#[test]
#[ignore = "needs root, QEMU and some minutes for a recording"]
fn a_recorded_agent_that_leaves_a_sync_out_is_caught() {
    let (first, states) = (number("FLEXNODE_SEED", 1), number("FLEXNODE_STATES", 1000));
    let site = setting(LEAVE_OUT).unwrap_or_else(|| "all".to_owned());
    let torture = Torture::new(&[&format!("{LEAVE_OUT}={site}")]);
    let began = Instant::now();
    let tally = torture.run(first, states);
    tell(&tally, began.elapsed().as_secs());
    let caught = tally.neither.len();
    system_tests::report(&format!(
        "power cuts on the disk of an agent without its syncs ({site}): {caught} of {} states, seed {first}, are neither version",
        tally.states()
    ));
    assert!(caught > 0, "syncs were left out, and nothing was found in {states} states");
}

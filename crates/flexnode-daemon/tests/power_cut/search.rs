//! The search: a case is a number; the same number is the same case.

use crate::check::{self, Verdict};
use crate::scenario::{Action, Recorded, SCENARIOS};
use crate::world::{self, CONFIG, World};
use flexnode_host::testing::MemFs;
use flexnode_host::testing::power::{Cut, Doubts, Seed};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What a run of many cases found.
#[derive(Debug, Default)]
pub struct Tally {
    pub cuts: u64,
    /// Power cuts while the agent was mending what an earlier one left.
    pub again: u64,
    /// Disks that were different from one another, and so were booted and mended.
    pub disks: u64,
    pub verdicts: BTreeMap<(&'static str, Verdict), u64>,
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.cuts += other.cuts;
        self.again += other.again;
        self.disks += other.disks;
        for (key, count) in other.verdicts {
            *self.verdicts.entry(key).or_default() += count;
        }
    }
}

/// A case that failed.
#[derive(Debug)]
pub struct Failure {
    pub seed: u64,
    pub text: String,
}

/// All scenarios, recorded, and what is known of disks already.
#[derive(Debug)]
pub struct Search {
    pristine: MemFs,
    recorded: Vec<Recorded>,
    /// What became of a disk: the same disk ends the same way.
    known: Mutex<HashMap<Known, Verdict>>,
}

/// Which scenario, whether it was over, how it is gone on, and the disk.
type Known = (usize, bool, bool, u64);

/// Where one cut is.
#[derive(Clone, Debug)]
struct At {
    moment: usize,
    answers: Vec<u32>,
}

impl Search {
    /// Records every scenario whose name contains `only`.
    pub async fn new(only: &str) -> Self {
        let pristine = world::pristine().await;
        let mut recorded = Vec::new();
        for scenario in SCENARIOS.iter().filter(|scenario| scenario.name.contains(only)) {
            recorded.push(Recorded::new(&pristine, scenario).await);
        }
        assert!(!recorded.is_empty(), "no scenario is named {only}");
        Self { pristine, recorded, known: Mutex::default() }
    }

    /// What was recorded, a line for each.
    pub fn told(&self) -> Vec<String> {
        self.recorded.iter().map(|r| format!("{}: {} moments", r.scenario.name, r.history.moments())).collect()
    }

    /// Runs one case.
    pub async fn case(&self, seed: u64, tally: &mut Tally) -> Result<(), Failure> {
        let mut chance = Seed::new(seed);
        let index = below(&mut chance, self.recorded.len());
        let recorded = &self.recorded[index];
        let moments = recorded.history.moments();
        // One in sixteen right after the operation said that it is done.
        let moment = if chance.below(16) == 0 { moments - 1 } else { below(&mut chance, moments) };
        let mut doubts = Doubts::of_cut(Cut::Seed(chance.next_number()));
        let disk = recorded.history.cut(moment, &mut doubts);
        let at = At { moment, answers: doubts.answers().to_vec() };
        tally.cuts += 1;
        let again = chance.below(4) == 0;
        let twice = (chance.below(32) == 0).then(|| chance.next_number());
        match self.judge(index, &at, disk, again, twice, tally).await {
            Ok(verdict) => {
                *tally.verdicts.entry((recorded.scenario.name, verdict)).or_default() += 1;
                Ok(())
            }
            Err(why) => Err(Failure { seed, text: self.smallest(index, at, again, twice, why).await }),
        }
    }

    /// Boots the disk, lets the agent mend it and looks. `again`: the command is given once more. `twice`: the power goes
    /// again while the agent is at it.
    async fn judge(
        &self,
        index: usize,
        at: &At,
        disk: MemFs,
        again: bool,
        twice: Option<u64>,
        tally: &mut Tally,
    ) -> Result<Verdict, String> {
        let recorded = &self.recorded[index];
        let done = at.moment + 1 == recorded.history.moments();
        let key = (index, done, again, disk.fingerprint());
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        if let (Some(verdict), None) = (known, twice) {
            return Ok(verdict);
        }
        tally.disks += 1;
        check::readers(recorded.scenario.action, &disk)?;
        let failed = check::failed(&disk);
        let (verdict, disk) = self.mend(index, done, disk, again && twice.is_none(), failed.as_deref(), twice).await?;
        let Some(twice) = twice else {
            self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key, verdict);
            return Ok(verdict);
        };
        tally.cuts += 1;
        tally.again += 1;
        let second = |why: String| format!("after a second power cut (seed {twice}): {why}");
        check::readers(recorded.scenario.action, &disk).map_err(second)?;
        let failed = check::failed(&disk);
        let (verdict, _) = self.mend(index, done, disk, again, failed.as_deref(), None).await.map_err(second)?;
        Ok(verdict)
    }

    /// The life of a host after a power cut. Gives back what runs, and with `twice` a disk that lost its power on the way.
    async fn mend(
        &self,
        index: usize,
        done: bool,
        disk: MemFs,
        again: bool,
        failed: Option<&str>,
        twice: Option<u64>,
    ) -> Result<(Verdict, MemFs), String> {
        let recorded = &self.recorded[index];
        let action = recorded.scenario.action;
        if twice.is_some() {
            disk.record();
        }
        let world = World::boot(disk);
        check::booted(action, &world)?;
        let before = &recorded.before;
        if world.has_agent() {
            world.daemon().await;
        }
        let mut ran = Ok(());
        let finishes = match action {
            // A start, a reset and a removal are finished by the person who began them.
            Action::Start | Action::Reset | Action::Destroy => !done,
            _ => again && !done,
        };
        if finishes {
            ran = action.run(&world, Some(&recorded.old)).await;
        }
        let cut = twice.map(|seed| {
            let history = world.fake.fs.recorded();
            let mut chance = Seed::new(seed);
            let moment = below(&mut chance, history.moments());
            history.cut(moment, &mut Doubts::of_cut(Cut::Seed(chance.next_number())))
        });
        let left = cut.unwrap_or_default();
        check::foreign(before, &world.fake.fs)?;
        if let Some(goal) = failed {
            check::remembered(&world, goal)?;
        }
        if action == Action::Upgrade {
            check::innocent(&world)?;
        }
        let verdict = match action {
            Action::Reset => {
                ran?;
                check::gone(&self.as_configured(before), &world)?;
                Verdict::Gone
            }
            Action::Destroy => {
                ran?;
                check::destroyed(&world)?;
                Verdict::Gone
            }
            _ => {
                let verdict = check::node((&recorded.old, &recorded.new), &world)?;
                Self::expected(action, done, finishes, &ran, verdict)?;
                verdict
            }
        };
        Ok((verdict, left))
    }

    /// The host as it was before it became a node, with the configuration that the person has now.
    fn as_configured(&self, before: &MemFs) -> MemFs {
        let fs = self.pristine.fork();
        fs.put(CONFIG, before.text(CONFIG), 0o600);
        fs
    }

    /// What may run after this.
    fn expected(
        action: Action,
        done: bool,
        again: bool,
        ran: &Result<(), String>,
        verdict: Verdict,
    ) -> Result<(), String> {
        let ended = done || again;
        let allowed: &[Verdict] = match action {
            Action::Upgrade if ended => &[Verdict::New],
            Action::Rollback if ended => &[Verdict::Old],
            // Whatever kept kubelet from coming up once may be over.
            Action::UpgradeThatFails if again => &[Verdict::Old, Verdict::New],
            Action::Upgrade | Action::Rollback => &[Verdict::Old, Verdict::New],
            Action::Stop if ended => &[Verdict::Stopped],
            Action::Stop | Action::StartNode if !ended => &[Verdict::Old, Verdict::Stopped],
            Action::Prune => &[Verdict::New],
            _ => &[Verdict::Old],
        };
        if !allowed.contains(&verdict) {
            return Err(format!("{verdict:?} runs, not one of {allowed:?}"));
        }
        match (action, ran) {
            // It fails again, or is refused because it has failed; the old version runs, which was looked at.
            (Action::UpgradeThatFails, Err(_)) | (_, Ok(())) => Ok(()),
            (_, Err(why)) => Err(format!("it cannot be run again: {why}")),
        }
    }

    /// Makes a case that failed as small as it gets: an earlier moment, and less lost.
    async fn smallest(&self, index: usize, mut at: At, again: bool, twice: Option<u64>, mut why: String) -> String {
        let recorded = &self.recorded[index];
        let mut scratch = Tally::default();
        let mut tried = 0;
        'earlier: for moment in (0..at.moment).filter(|moment| recorded.history.doubts(*moment) > 0) {
            for cut in [Cut::Lazy, Cut::Eager, Cut::Seed(1), Cut::Seed(2)] {
                tried += 1;
                let mut doubts = Doubts::of_cut(cut);
                let disk = recorded.history.cut(moment, &mut doubts);
                let new = At { moment, answers: doubts.answers().to_vec() };
                if let Err(now) = Box::pin(self.judge(index, &new, disk, again, twice, &mut scratch)).await {
                    (at, why) = (new, now);
                    break 'earlier;
                }
                if tried > 300 {
                    break 'earlier;
                }
            }
        }
        for answer in 0..at.answers.len() {
            if at.answers[answer] == 0 {
                continue;
            }
            let mut less = at.clone();
            less.answers[answer] = 0;
            let disk = recorded.history.cut(less.moment, &mut Doubts::given(&less.answers));
            if let Err(now) = Box::pin(self.judge(index, &less, disk, again, twice, &mut scratch)).await {
                (at, why) = (less, now);
            }
        }
        let told = recorded.history.tell(at.moment, &at.answers).join("\n  ");
        format!("{}: {why}\nthe smallest history:\n  {told}", recorded.scenario.name)
    }
}

fn below(chance: &mut Seed, end: usize) -> usize {
    usize::try_from(chance.below(end as u64)).unwrap_or(0)
}

/// Runs the cases from `first` on with a thread per processor, until all are done or some failed.
pub fn run(search: &Search, first: u64, cuts: u64, most: usize) -> (Tally, Vec<Failure>) {
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let found = Mutex::new((Tally::default(), Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let mut tally = Tally::default();
                while done.load(Ordering::Relaxed) < cuts
                    && found.lock().unwrap_or_else(PoisonError::into_inner).1.len() < most
                {
                    let before = tally.cuts;
                    let seed = first.wrapping_add(next.fetch_add(1, Ordering::Relaxed));
                    let failed = runtime.block_on(search.case(seed, &mut tally)).err();
                    done.fetch_add(tally.cuts - before, Ordering::Relaxed);
                    found.lock().unwrap_or_else(PoisonError::into_inner).1.extend(failed);
                }
                found.lock().unwrap_or_else(PoisonError::into_inner).0.add(tally);
            });
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

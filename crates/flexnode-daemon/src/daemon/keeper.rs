//! The loop: look, judge, write, decide, do one thing, wait.

mod act;
mod tell;

use super::cluster::{ClusterClock, Member};
use super::decide::{Action, KEPT, Memory, UnitIs, unit_is};
use super::mend::Acted;
use super::schedule::{Schedule, Subject, WRITE};
use super::sources::Hints;
use super::{DaemonContext, tell};
use crate::metrics::Shared;
use crate::records;
use flexnode_isolation::none::DEFAULT_BASE;
use flexnode_kube::ApiProblem;
use flexnode_model::Snapshot;
use flexnode_model::snapshot::Mended;
use flexnode_status::collector::to_published;
use flexnode_status::file::has_place;
use flexnode_status::observe::{Fact, Known, Part, Seams, Witnesses, ask};
use flexnode_status::report::{Context, report};
use flexnode_status::{Configured, FsSlots, Observation, Recorded, load_snapshot_from_file, publish_snapshot};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use sd_notify::NotifyState;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// At the start, looks that have not ended are not waited for longer than this before the first writing.
const FIRST_LOOK: Duration = Duration::from_secs(3);
/// After something could not be done because somebody else was faster.
const MAKE_ROOM: Duration = Duration::from_secs(2);
/// What the agent mended that is kept.
const KEPT_MENDED: usize = 8;
/// The limit of telling the cluster.
const SAY: Duration = Duration::from_secs(10);

/// The daemon's state. Everything in it belongs to one task.
pub struct Keeper<'a> {
    context: &'a DaemonContext,
    hints: Arc<Hints>,
    shared: Arc<Shared>,
    members: watch::Sender<Option<Member>>,
    member: Option<Member>,
    began: Duration,
    schedule: Schedule,
    asked: FuturesUnordered<BoxFuture<'a, (Part, Fact)>>,
    asking: BTreeSet<Part>,
    again: BTreeSet<Part>,
    seen: Observation,
    recorded: Recorded,
    configured: Option<Known<Configured>>,
    units: BTreeMap<&'static str, (UnitIs, Duration)>,
    memory: Memory,
    mended: Vec<Mended>,
    acting: Option<(Action, BoxFuture<'a, Acted>)>,
    act_from: Duration,
    saying: Option<BoxFuture<'a, Result<usize, ApiProblem>>>,
    say_from: Duration,
    differs: Option<Duration>,
    has_said: bool,
    last: Option<Snapshot>,
    written: Option<(Duration, Snapshot)>,
    write_failed: String,
    told: String,
}

impl std::fmt::Debug for Keeper<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl<'a> Keeper<'a> {
    /// Nothing was looked at yet.
    pub fn new(
        context: &'a DaemonContext,
        hints: Arc<Hints>,
        shared: Arc<Shared>,
        members: watch::Sender<Option<Member>>,
    ) -> Self {
        let now = context.host.clock.monotonic();
        // What the daemon before this one knew: since when it is so, what was mended.
        let last = load_snapshot_from_file(&context.status_file).ok().flatten();
        Self {
            context,
            hints,
            shared,
            members,
            member: None,
            began: now,
            schedule: Schedule::new(now),
            asked: FuturesUnordered::new(),
            asking: BTreeSet::new(),
            again: BTreeSet::new(),
            seen: Observation::blank(context.host.clock.now()),
            recorded: Recorded::default(),
            configured: None,
            units: BTreeMap::new(),
            memory: Memory::default(),
            mended: last.as_ref().map(|last| last.mended.clone()).unwrap_or_default(),
            acting: None,
            act_from: now,
            saying: None,
            say_from: now,
            differs: None,
            has_said: false,
            last,
            written: None,
            write_failed: String::new(),
            told: String::new(),
        }
    }

    /// Runs until the end is asked for. An operation that runs then hears it itself, and ends at its next boundary.
    pub async fn run(&mut self) {
        loop {
            self.look();
            let next = self.judge();
            let now = self.now();
            tokio::select! {
                biased;
                () = self.context.cancel.requested() => break,
                Some((part, fact)) = self.asked.next(), if !self.asked.is_empty() => self.learn(part, fact),
                acted = done(self.acting.as_mut().map(|(_, acting)| acting)) => self.acted(acted),
                said = done(self.saying.as_mut()) => self.said(said),
                () = self.hints.told() => {}
                () = self.context.host.clock.sleep(next.saturating_sub(now)) => {}
            }
        }
        if let Some((action, acting)) = self.acting.take()
            && action != Action::AwaitLock
        {
            acting.await;
        }
    }

    fn now(&self) -> Duration {
        self.context.host.clock.monotonic()
    }

    /// Begins every look that is due.
    fn look(&mut self) {
        let now = self.now();
        for subject in self.hints.take() {
            self.schedule.hint(subject, now);
        }
        for subject in self.schedule.due(now) {
            match subject {
                Subject::Records => self.look_at_records(),
                Subject::Configuration => {
                    self.configured = records::configured(&self.context.host, &self.context.config);
                }
                // At once: what processes run is told by it, and it waits for nobody.
                Subject::Part(Part::Slots) => {
                    self.shared.looked(Part::Slots);
                    let slots = self.seams().witnesses.slots.view();
                    self.learn(Part::Slots, Fact::Slots(slots));
                }
                Subject::Part(part) => self.ask(part),
            }
            self.schedule.looked(subject, self.is_ill(subject), now);
        }
    }

    fn is_ill(&self, subject: Subject) -> bool {
        match subject {
            // Who lets the lock go tells nobody.
            Subject::Records => self.hints.is_blind() || self.recorded.holder.is_some(),
            Subject::Part(Part::Healthz | Part::KubeletState) => self.seen.healthz.is_err() && self.is_up(KEPT[2]),
            Subject::Part(Part::Runtime) => {
                !self.seen.runtime.as_ref().is_ok_and(|runtime| runtime.runtime_ready) && self.is_up(KEPT[0])
            }
            _ => false,
        }
    }

    fn is_up(&self, unit: &str) -> bool {
        self.units.get(unit).is_some_and(|(is, _)| !matches!(is, UnitIs::NotThere | UnitIs::Off | UnitIs::Stopped))
    }

    fn look_at_records(&mut self) {
        self.recorded = records::recorded(&self.context.host, self.context.locks.as_ref());
        let name = self.recorded.node_name.clone();
        if name.as_deref() != self.member.as_ref().map(|member| member.name.as_str()) {
            self.member = name.map(|name| {
                let cluster = self.context.clusters.of(&name);
                Member { name, cluster, followed: Arc::default() }
            });
            self.shared.set_cluster(self.member.as_ref().map(|member| member.cluster.clone()));
            self.members.send_replace(self.member.clone());
        }
    }

    fn ask(&mut self, part: Part) {
        if !self.asking.insert(part) {
            // A change that came while the answer was under way may not be in it.
            self.again.insert(part);
            return;
        }
        self.shared.looked(part);
        let seams = self.seams();
        // What a question needs of what is known, and no more.
        let mut base = Observation::blank(self.seen.at);
        if matches!(part, Part::Units | Part::Programs | Part::Versions) {
            base.slots.clone_from(&self.seen.slots);
            base.units.clone_from(&self.seen.units);
        }
        self.asked.push(Box::pin(async move { (part, ask(&seams, part, &base, false).await) }));
    }

    fn seams(&self) -> Seams {
        let context = self.context;
        let member = self.member.as_ref();
        let witnesses = Witnesses {
            probe: context.probe.clone(),
            cri: context.cri.clone(),
            slots: Arc::new(FsSlots::new(context.host.fs.clone(), DEFAULT_BASE)),
            space: context.space.clone(),
            node: member.map(|member| member.followed.clone() as _),
            certificates: Some(context.certificates.clone()),
            skew: member.map(|member| Arc::new(ClusterClock(member.cluster.clone())) as _),
        };
        Seams::new(&context.host, witnesses)
    }

    /// Takes an answer in.
    fn learn(&mut self, part: Part, fact: Fact) {
        self.asking.remove(&part);
        let slots = self.seen.slots.clone();
        self.seen.take(fact);
        self.seen.at = self.context.host.clock.now();
        let now = self.now();
        if self.is_ill(Subject::Part(part)) {
            self.schedule.found_ill(Subject::Part(part), now);
        }
        if self.again.remove(&part) {
            self.schedule.hint(Subject::Part(part), now);
        }
        if part == Part::Slots && self.seen.slots != slots {
            // Which slot a process runs, and what is recorded of it.
            self.hints.add([Part::Programs, Part::Versions].map(Subject::Part));
        }
        if part == Part::Units {
            for unit in KEPT {
                let is = self.seen.unit(unit).map_or(UnitIs::Unknown, |view| unit_is(view, self.seen.at));
                let entry = self.units.entry(unit).or_insert((is, now));
                if entry.0 != is {
                    *entry = (is, now);
                }
            }
        }
    }

    /// Judges, writes, tells, decides. Gives when to go on at the latest.
    fn judge(&mut self) -> Duration {
        let now = self.now();
        let mut next = self.schedule.next();
        if !self.asking.is_empty() && self.written.is_none() && now < self.began + FIRST_LOOK {
            return next.min(self.began + FIRST_LOOK);
        }
        self.seen.at = self.context.host.clock.now();
        let snapshot = self.snapshot(now);
        if snapshot.summary != self.told {
            self.told.clone_from(&snapshot.summary);
            tracing::info!(reason = snapshot.reason.map_or("", |reason| reason.as_str()), "{}", snapshot.summary);
            tell(&[NotifyState::Status(&snapshot.summary)]);
        }
        next = next.min(self.write(&snapshot, now));
        next = next.min(self.say(&snapshot, now));
        self.last = Some(snapshot);
        next.min(self.decide(now))
    }

    fn snapshot(&self, now: Duration) -> Snapshot {
        let recorded = Recorded { configured: self.configured.clone(), is_agent: true, ..self.recorded.clone() };
        let left = self.units.iter().filter_map(|(unit, (is, _))| self.memory.left(unit, *is, now)).collect();
        let context = Context {
            agent_version: self.context.agent_version.clone(),
            recorded,
            before: self.last.clone(),
            mended: self.mended.clone(),
            notes: left,
        };
        report(&self.seen, &context)
    }

    /// Writes the file when something changed or it is time. Gives when it is time again.
    fn write(&mut self, snapshot: &Snapshot, now: Duration) -> Duration {
        if let Some((at, written)) = &self.written
            && now < *at + WRITE
            && written.says_the_same(snapshot)
        {
            return *at + WRITE;
        }
        if self.written.is_some() && !has_place(&self.context.status_file) {
            // A reset has taken the agent's directory away; the daemon leaves nothing behind it.
            self.shared.publish(snapshot);
            self.written = Some((now, snapshot.clone()));
            return now + WRITE;
        }
        let status = to_published(&self.seen, snapshot);
        match publish_snapshot(&self.context.status_file, &status, snapshot, self.seen.began) {
            Ok(()) => {
                self.write_failed.clear();
                self.shared.wrote(true);
            }
            Err(error) => {
                let line = flexnode_ops::report::line(&error);
                if line != self.write_failed {
                    tracing::error!(error = line, "the status file could not be written");
                    self.write_failed = line;
                }
                self.shared.wrote(false);
            }
        }
        // A mark that comes from now on is newer than what this writing knew, and stays for one more.
        self.seen.began = snapshot.at;
        self.shared.publish(snapshot);
        self.written = Some((now, snapshot.clone()));
        now + WRITE
    }
}

/// The end of a future that may not be there.
async fn done<T>(future: Option<&mut BoxFuture<'_, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

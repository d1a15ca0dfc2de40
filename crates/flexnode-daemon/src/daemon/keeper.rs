//! The loop: look, judge, write, decide, do one thing, wait.

use super::cluster::{ClusterClock, Member};
use super::decide::{Action, KEPT, Memory, Observed, UnitIs, decide, unit_is};
use super::mend::{self, Acted};
use super::schedule::{Schedule, Subject, WRITE};
use super::sources::Hints;
use super::{DaemonContext, cluster, say, take_up, tell};
use crate::metrics::Shared;
use crate::records;
use flexnode_isolation::none::DEFAULT_BASE;
use flexnode_kube::ApiProblem;
use flexnode_model::Snapshot;
use flexnode_model::snapshot::{Mended, NodeView};
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
/// The limit of the last word: the service's end does not wait for an API server.
const FAREWELL: Duration = Duration::from_secs(1);

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

    /// Tells the cluster what it does not know yet. Gives when to try again.
    fn say(&mut self, snapshot: &Snapshot, now: Duration) -> Duration {
        let (Some(member), Ok(Some(node))) = (&self.member, &self.seen.node) else {
            self.differs = None;
            return Duration::MAX;
        };
        if self.saying.is_some() {
            return Duration::MAX;
        }
        let missing = say::missing(&say::wanted(snapshot), node);
        if missing.is_empty() {
            self.differs = None;
            return Duration::MAX;
        }
        let from = (*self.differs.get_or_insert(now) + say::LASTS).max(self.say_from);
        if now < from {
            return from;
        }
        self.say_from = now + say::APART;
        let (cluster, node, at) = (member.cluster.clone(), node.clone(), snapshot.at);
        self.saying = Some(Box::pin(async move { send(cluster.as_ref(), &missing, &node, at).await }));
        Duration::MAX
    }

    fn said(&mut self, said: Result<usize, ApiProblem>) {
        self.saying = None;
        match said {
            Ok(events) => {
                self.has_said = true;
                self.shared.told(events);
            }
            Err(error) => tracing::debug!(%error, "the cluster could not be told of a change"),
        }
        // The watch brings the Node as it is now; until then the difference is the old one.
        self.differs = None;
    }

    /// Decides and begins to act. Gives when to decide again.
    fn decide(&mut self, now: Duration) -> Duration {
        if self.acting.is_some() {
            return Duration::MAX;
        }
        if now < self.act_from {
            return self.act_from;
        }
        let observed = Observed {
            now,
            units: self.units.clone(),
            kubelet_healthy: self.seen.healthz.is_ok(),
            damaged_state: self.seen.damaged_state.len(),
            busy: self.recorded.holder.is_some(),
            open: self.recorded.open().is_some(),
            interrupted: self.recorded.last.as_ref().is_some_and(flexnode_model::JournalRecord::is_interrupted),
        };
        self.memory.forget(&observed);
        let whole = self.seen.slots.as_ref().is_ok_and(|s| s.current.as_ref().is_some_and(|c| c.problem.is_none()));
        let (action, again) = decide(&observed, mend::goal(&self.recorded, whole), &self.memory);
        let context = self.context;
        let acting: BoxFuture<'a, Acted> = match action {
            Action::Wait => return again.map_or(Duration::MAX, |wait| now + wait),
            Action::AwaitLock => Box::pin(async move {
                match context.locks.free().await {
                    Ok(()) => Acted::Freed,
                    Err(error) => {
                        tracing::warn!(error, "the host's lock cannot be looked at");
                        Acted::NotDone
                    }
                }
            }),
            Action::TakeUp => {
                Box::pin(take_up(&context.host, context.locks.as_ref(), context.resume.as_ref(), &context.cancel))
            }
            Action::Start { .. } | Action::SetAside => Box::pin(mend::act(context, action)),
        };
        self.acting = Some((action, acting));
        now
    }

    fn acted(&mut self, acted: Acted) {
        self.acting = None;
        let now = self.now();
        let mended = match acted {
            Acted::NotDone => {
                self.act_from = now + MAKE_ROOM;
                None
            }
            Acted::Freed => None,
            Acted::Resumed(ok) => {
                self.memory.resumed(ok, now);
                self.shared.resumed(ok);
                None
            }
            Acted::Started(unit, reason, mended) => {
                self.memory.started(unit, reason, now);
                // What was seen before the start says nothing any more.
                self.units.insert(unit, (UnitIs::Changing, now));
                Some(mended)
            }
            Acted::SetAside(mended) => {
                self.memory.set_aside(now);
                Some(mended)
            }
        };
        if let Some(mended) = mended {
            self.shared.mended(mended.reason);
            self.mended.push(mended);
            let surplus = self.mended.len().saturating_sub(KEPT_MENDED);
            self.mended.drain(..surplus);
        }
        // What was true before is not any more. The records are looked at before anything else is decided.
        self.look_at_records();
        self.hints.add([Part::Slots, Part::Units, Part::Healthz, Part::Runtime, Part::KubeletState].map(Subject::Part));
        self.hints.add([Subject::Configuration]);
        self.act_from = self.act_from.max(now + super::schedule::GATHER * 5);
    }

    /// The last word to the cluster. What it does not hear in time it does not hear.
    pub async fn say_farewell(&mut self) {
        self.saying = None;
        let (Some(member), Ok(Some(node)), Some(last)) = (&self.member, &self.seen.node, &self.last) else { return };
        let farewell = say::missing(&[say::farewell(last)], node);
        // A node that is gone or was never told anything needs no last word.
        if !farewell.is_empty() && (self.has_said || !node.own_conditions.is_empty()) {
            let now = self.context.host.clock.now();
            let said = member.cluster.set_conditions(&farewell, now, FAREWELL);
            let _ = tokio::time::timeout(FAREWELL, said).await;
        }
    }
}

/// Writes conditions, then the events of those that changed. Gives the number of events.
async fn send(
    cluster: &dyn cluster::Cluster,
    conditions: &[flexnode_kube::OwnCondition],
    node: &NodeView,
    at: jiff::Timestamp,
) -> Result<usize, ApiProblem> {
    cluster.set_conditions(conditions, at, SAY).await?;
    let mut events = 0;
    for condition in conditions.iter().filter(|condition| say::is_event(condition, node)) {
        cluster.event(condition, at, SAY).await?;
        events += 1;
    }
    Ok(events)
}

/// The end of a future that may not be there.
async fn done<T>(future: Option<&mut BoxFuture<'_, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

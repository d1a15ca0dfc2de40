//! A host on which the whole loop runs, with fakes around it.

use super::super::cluster::Cluster;
use super::super::*;
use crate::lock::LockFailure;
use crate::state::StateStore;
use flexnode_host::cri::fake::FakeCri;
use flexnode_host::probe::{FakeAnswer, FakeProbe, HttpAnswer, KUBELET_HEALTHZ};
use flexnode_host::space::FakeSpace;
use flexnode_host::testing::FakeHost;
use flexnode_host::{Clock as _, HostError};
use flexnode_kube::watch::Told;
use flexnode_kube::{ApiProblem, OwnCondition};
use flexnode_model::snapshot::{Certificate, ClockSkew, NodeView, Snapshot};
use flexnode_model::state::Extension;
use flexnode_model::{HostRecord, State};
use flexnode_ops::{Engine, Operation, Outcome, Recovery, Silent, Step};
use flexnode_status::load_snapshot_from_file;
use flexnode_status::observe::{UNIT_CONTAINERD, UNIT_KUBELET};
use jiff::Timestamp;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct Token(Arc<AtomicUsize>);
impl Held for Token {}
impl Drop for Token {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug, Default)]
pub(super) struct FakeLocks {
    pub(super) held: Arc<AtomicUsize>,
    pub(super) taken: AtomicUsize,
    pub(super) by_another: AtomicBool,
    pub(super) freed: Notify,
}

#[async_trait]
impl Locks for FakeLocks {
    fn acquire(&self, _: &str) -> Result<Box<dyn Held>, LockFailure> {
        if self.by_another.load(Ordering::SeqCst) {
            return Err("another holds it".into());
        }
        assert_eq!(self.held.fetch_add(1, Ordering::SeqCst), 0, "it is held already");
        self.taken.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Token(self.held.clone())))
    }
    async fn free(&self) -> Result<(), LockFailure> {
        while self.by_another.load(Ordering::SeqCst) {
            self.freed.notified().await;
        }
        Ok(())
    }
    fn holder(&self) -> Option<u32> {
        self.by_another.load(Ordering::SeqCst).then_some(4711)
    }
}

/// Runs the operation to its end, as often as it is asked; fails while it is told.
#[derive(Debug)]
pub(super) struct FakeResume {
    host: Host,
    pub(super) failures: AtomicUsize,
    pub(super) held: Arc<AtomicUsize>,
    pub(super) seen: Mutex<Vec<String>>,
}

#[async_trait]
impl Resume for FakeResume {
    async fn resume(&self, record: &JournalRecord, _: &Cancel, lock: Box<dyn Held>) -> Result<(), ResumeFailure> {
        assert_eq!(self.held.load(Ordering::SeqCst), 1, "the lock is held while the operation runs");
        self.seen.lock().unwrap().push(record.operation.clone());
        if self.failures.load(Ordering::SeqCst) > 0 {
            self.failures.fetch_sub(1, Ordering::SeqCst);
            return Err("the configuration cannot be read".into());
        }
        let engine = Engine::new(&self.host, "daemon", Cancel::new())?;
        assert!(engine.run(&operation(false), Arc::new(Silent)).await?.is_done());
        drop(lock);
        Ok(())
    }
    async fn unreadable(&self, _: Box<dyn Held>) -> Result<(), ResumeFailure> {
        assert_eq!(self.held.load(Ordering::SeqCst), 1, "the lock is held meanwhile");
        self.seen.lock().unwrap().push("unreadable".into());
        Ok(())
    }
}

pub(super) fn operation(fail: bool) -> Operation {
    let step = Step::new("one", "do it", Duration::from_secs(5), move |_| async move {
        if fail { Err(flexnode_ops::StepError::new("no")) } else { Ok(Outcome::Unchanged) }
    });
    Operation {
        kind: "start",
        goal: String::new(),
        from: None,
        to: None,
        steps: vec![step],
        recovery: Recovery::Resume,
    }
}

/// Tells when the test says so.
#[derive(Debug, Default)]
pub(super) struct FakeWatches(pub(super) Notify);

#[async_trait]
impl UnitWatch for FakeWatches {
    async fn watch(&self, _: &[&str], tell: &(dyn Fn() + Send + Sync)) -> HostError {
        loop {
            tell();
            self.0.notified().await;
        }
    }
}

#[async_trait]
impl FileWatch for FakeWatches {
    async fn watch(&self, _: &[PathBuf], _: &(dyn for<'p> Fn(&'p Path) + Send + Sync)) -> HostError {
        std::future::pending().await
    }
}

/// A cluster that keeps what it is told.
#[derive(Debug)]
pub(super) struct FakeCluster {
    pub(super) node: Mutex<Told>,
    pub(super) changed: Notify,
    pub(super) said: Mutex<Vec<String>>,
    pub(super) refuses: AtomicBool,
}

#[async_trait]
impl Cluster for FakeCluster {
    async fn watch(&self, _: &Notify, tell: &(dyn Fn(Told) + Send + Sync)) -> Infallible {
        loop {
            tell(self.node.lock().unwrap().clone());
            self.changed.notified().await;
        }
    }
    async fn set_conditions(&self, of: &[OwnCondition], _: Timestamp, _: Duration) -> Result<(), ApiProblem> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err(ApiProblem::Forbidden("no".into()));
        }
        if let Ok(Some(node)) = &mut *self.node.lock().unwrap() {
            for condition in of {
                self.said.lock().unwrap().push(format!(
                    "{}={} {}",
                    condition.kind,
                    condition.status_word(),
                    condition.reason
                ));
                let value = (condition.status_word().to_owned(), condition.reason.clone());
                node.own_conditions.insert(condition.kind.into(), value);
            }
        }
        self.changed.notify_one();
        Ok(())
    }
    async fn event(&self, of: &OwnCondition, _: Timestamp, _: Duration) -> Result<(), ApiProblem> {
        self.said.lock().unwrap().push(format!("event {}", of.reason));
        Ok(())
    }
    fn skew(&self, now: Timestamp) -> Result<ClockSkew, String> {
        Ok(ClockSkew { seconds: 0, measured: now })
    }
    fn requests(&self) -> u64 {
        7
    }
}

#[derive(Debug)]
pub(super) struct OneCluster(Arc<FakeCluster>);
impl Clusters for OneCluster {
    fn of(&self, node: &str) -> Arc<dyn Cluster> {
        assert_eq!(node, "node-1");
        self.0.clone()
    }
}

#[derive(Debug)]
pub(super) struct NoCertificates;
impl Certificates for NoCertificates {
    fn view(&self) -> Result<Vec<Certificate>, String> {
        Ok(Vec::new())
    }
}

pub(super) struct Place {
    pub(super) fake: FakeHost,
    pub(super) locks: Arc<FakeLocks>,
    pub(super) resume: Arc<FakeResume>,
    pub(super) cluster: Arc<FakeCluster>,
    pub(super) probe: Arc<FakeProbe>,
    pub(super) watches: Arc<FakeWatches>,
    pub(super) context: DaemonContext,
    _temp: tempfile::TempDir,
}

pub(super) const GOAL: &[u8] = include_bytes!("../../../../flexnode-model/tests/samples/machine-goal-1.json");

pub(super) fn ready() -> NodeView {
    flexnode_status::node::example(Some(true), "KubeletReady", "")
}

impl Place {
    /// A host that nothing was done to.
    pub(super) fn bare() -> Self {
        let fake = FakeHost::new();
        let temp = tempfile::tempdir().unwrap();
        let locks = Arc::new(FakeLocks::default());
        let resume = Arc::new(FakeResume {
            host: fake.host(),
            failures: AtomicUsize::new(0),
            held: locks.held.clone(),
            seen: Mutex::default(),
        });
        let cluster = Arc::new(FakeCluster {
            node: Mutex::new(Ok(Some(ready()))),
            changed: Notify::new(),
            said: Mutex::default(),
            refuses: AtomicBool::new(false),
        });
        let (probe, watches) = (Arc::new(FakeProbe::default()), Arc::new(FakeWatches::default()));
        let context = DaemonContext {
            host: fake.host(),
            locks: locks.clone(),
            resume: resume.clone(),
            cancel: Cancel::new(),
            agent_version: "0.1.0".into(),
            config: crate::config_file::CONFIG_PATH.into(),
            status_file: temp.path().join("run/status.json"),
            probe: probe.clone(),
            cri: Arc::new(FakeCri::default()),
            space: Arc::new(FakeSpace::default()),
            certificates: Arc::new(NoCertificates),
            units: watches.clone(),
            files: watches.clone(),
            clusters: Arc::new(OneCluster(cluster.clone())),
            metrics: metrics::Listen::default(),
        };
        Self { fake, locks, resume, cluster, probe, watches, context, _temp: temp }
    }

    /// A node that runs.
    pub(super) async fn node() -> Self {
        let this = Self::bare();
        let fs = &this.fake.fs;
        let slot = "/opt/unbounded/node/1.36.3-aa";
        fs.put_dir(format!("{slot}/etc"), 0o755).put_dir(format!("{slot}/bin"), 0o755);
        let goal = String::from_utf8_lossy(GOAL).replace("\"edge-1\"", "\"node-1\"");
        fs.put(format!("{slot}/etc/goal.json"), goal, 0o600).put(format!("{slot}/etc/manifest.json"), "{}", 0o644);
        fs.put_link("1.36.3-aa", "/opt/unbounded/node/current");
        for (unit, program) in [(UNIT_CONTAINERD, "containerd"), (UNIT_KUBELET, "kubelet")] {
            fs.put(format!("{slot}/bin/{program}"), program, 0o755);
            let text = format!(
                "[Service]\nExecStart=/opt/unbounded/node/current/bin/{program}\n[Install]\nWantedBy=multi-user.target\n"
            );
            fs.put(format!("/etc/systemd/system/{unit}"), text, 0o644);
        }
        let text = "[Service]\nExecStart=/usr/lib/systemd/systemd\n[Install]\nWantedBy=multi-user.target\n";
        fs.put(crate::service::SERVICE_UNIT_PATH, text, 0o644);
        let systemd = &this.context.host.systemd;
        systemd.reload().await.unwrap();
        for unit in [UNIT_CONTAINERD, UNIT_KUBELET, crate::service::SERVICE_UNIT_NAME] {
            systemd.enable(unit).await.unwrap();
            systemd.start(unit, Duration::from_secs(5)).await.unwrap();
        }
        systemd.reload().await.unwrap();
        this.fake.systemd.clear_calls();
        this.record(|_| ());
        let record = HostRecord { node_name: Some("node-1".into()), ..HostRecord::new(Timestamp::UNIX_EPOCH) };
        fs.put_dir("/var/lib/aks-flex-node", 0o755).put(crate::record::RECORD_PATH, record.encode(), 0o600);
        this.healthy(true);
        this
    }

    pub(super) fn record(&self, change: impl FnOnce(&mut Extension)) {
        let mut own = Extension { goal: "aa".into(), active_slot: Some("1.36.3-aa".into()), ..Extension::default() };
        change(&mut own);
        let state = State { applied_kubernetes_version: "1.36.3".into(), flexnode: Some(own), ..State::default() };
        StateStore::new(self.fake.fs.clone()).save(&state).unwrap();
    }

    pub(super) fn healthy(&self, healthy: bool) {
        let answer = HttpAnswer { status: if healthy { 200 } else { 500 }, body: "ok".into() };
        self.probe.set(KUBELET_HEALTHZ, FakeAnswer::Answer(answer));
    }

    /// Runs the daemon until what it wrote fulfils `until`, then ends it. Gives the last snapshot.
    pub(super) async fn until(&self, what: &str, until: impl Fn(&Snapshot) -> bool) -> Snapshot {
        self.meanwhile(what, async |last: &mut dyn FnMut() -> Option<Snapshot>| last().is_some_and(|s| until(&s))).await
    }

    pub(super) async fn meanwhile(
        &self,
        what: &str,
        mut done: impl AsyncFnMut(&mut dyn FnMut() -> Option<Snapshot>) -> bool,
    ) -> Snapshot {
        let mut context = self.context.clone();
        context.cancel = Cancel::new();
        let file = context.status_file.clone();
        let begin = self.fake.clock.monotonic();
        let watch = async {
            let mut last = || load_snapshot_from_file(&file).ok().flatten();
            while !done(&mut last).await {
                let waited = self.fake.clock.monotonic().saturating_sub(begin);
                assert!(waited < Duration::from_hours(3), "waited for {what}: {:#?}", last());
                tokio::task::yield_now().await;
            }
            context.cancel.request();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = run(&context) => {}
            () = watch => {}
        }
        load_snapshot_from_file(&file).unwrap().unwrap()
    }

    pub(super) fn starts(&self) -> Vec<String> {
        self.fake
            .systemd
            .calls()
            .into_iter()
            .filter(|call| call.starts_with("start") || call.starts_with("restart"))
            .collect()
    }

    pub(super) fn kill(&self, unit: &str) {
        let pid = self.fake.systemd.state(unit).main_pid;
        self.fake.systemd.set_active(unit, "failed", "failed");
        self.fake.processes.end(pid);
    }
}

/// Leaves the record of a start that was killed in its first step.
pub(super) async fn interrupt(fake: &FakeHost) {
    let engine = Engine::new(&fake.host(), "command", Cancel::new()).unwrap();
    let hangs = Step::new("one", "do it", Duration::from_mins(5), |_| std::future::pending());
    let operation = Operation { steps: vec![hangs], ..operation(false) };
    let run = engine.run(&operation, Arc::new(Silent));
    // Dropping it is what a kill is: the record stays as it was written last.
    assert!(tokio::time::timeout(Duration::from_millis(10), run).await.is_err());
    assert!(engine.journal().interrupted().unwrap().is_some());
}

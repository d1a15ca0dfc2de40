//! Upgrade, rollback and the rest on a host of fakes, by the real steps of the backend.

mod commands;
mod full_disk;
mod interrupted;
mod prepared;
mod upgrade;

use super::lifecycle::Lifecycle;
use super::upgrade::{BY_PERSON, of_installed};
use super::*;
use crate::start::{Cluster, Connect, Prepared, Wait};
use flexnode_host::cri::Image;
use flexnode_host::cri::fake::FakeCri;
use flexnode_host::durable;
use flexnode_host::probe::{FakeAnswer, FakeProbe, HttpAnswer, KUBELET_HEALTHZ};
use flexnode_host::testing::{FakeHost, Script, Verb};
use flexnode_isolation::NodeRoot as _;
use flexnode_isolation::NodeSpec;
use flexnode_isolation::none::{Install, UNIT_CONTAINERD, UNIT_KUBELET};
use flexnode_ops::Silent;
use flexnode_status::node::ReadyCondition;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

pub(super) use crate::testing::{Free, goal};

/// No operation on a running node asks the cluster for more than the Node.
#[derive(Debug)]
struct NoCluster;

impl Connect for NoCluster {
    fn connect(&self, _: &Host, _: &Names, _: &Prepared) -> Arc<dyn Cluster> {
        unreachable!("the cluster is not asked")
    }
}

/// An API server that is away, or shows a Node that is Ready with a kubelet of a version and a new heartbeat each time.
#[derive(Debug, Default)]
struct Witness {
    ready: Mutex<Option<String>>,
    beats: AtomicI64,
}

#[async_trait]
impl SeeNode for Witness {
    async fn see(&self, _: &str, _: Duration) -> Result<Option<NodeView>, ApiProblem> {
        let ready = self.ready.lock().unwrap().clone();
        let version = ready.ok_or_else(|| ApiProblem::Connection("refused".into()))?;
        let beat = self.beats.fetch_add(1, Ordering::SeqCst);
        // Later than whatever the fakes' clock says.
        let heartbeat = Some(jiff::Timestamp::from_second(4_000_000_000 + beat).unwrap());
        let ready = ReadyCondition { status: Some(true), heartbeat, ..ReadyCondition::default() };
        Ok(Some(NodeView { ready: Some(ready), kubelet_version: format!("v{version}"), ..NodeView::default() }))
    }
}

struct World {
    fake: FakeHost,
    probe: Arc<FakeProbe>,
    cri: Arc<FakeCri>,
    api: Arc<Witness>,
    context: NodeContext,
    old: String,
    new: String,
}

const KUBELET_STATE: &str = "/var/lib/kubelet/cpu_manager_state";

/// `old` runs, `new` is installed.
async fn world() -> World {
    let fake = FakeHost::new();
    let probe = Arc::new(FakeProbe::answering(KUBELET_HEALTHZ, 200, "ok"));
    let cri = Arc::new(FakeCri::with_pods(2));
    cri.add_image(Image { tags: vec!["pause:1".into()], ..Image::default() });
    let start = StartContext {
        host: fake.host(),
        locks: Arc::new(Free),
        cri: cri.clone(),
        probe: probe.clone(),
        names: Names::system(),
        connect: Arc::new(NoCluster),
        config: "/etc/aks-flex-node/config.json".into(),
        program: "/root/aks-flex-node".into(),
        owner: "command",
        wait: Wait::Joined,
        timeout: Duration::ZERO,
    };
    let api = Arc::new(Witness::default());
    let context = NodeContext { start, node: api.clone(), probation: PROBATION };
    fake.fs.put(KUBELET_STATE, "old", 0o600).put_dir("/etc/aks-flex-node", 0o755);
    for version in ["1.36.2", "1.36.3"] {
        let slot = goal(version).slot().unwrap().to_string();
        let program = format!("/opt/unbounded/node/{slot}/bin/kubelet");
        fake.commands.answer(&program, &["--version"], &format!("Kubernetes v{version}\n"));
    }
    fake.commands.answer("ctr", &[], "");
    let (old, new) = (install(&fake, &context, "1.36.2").await, install(&fake, &context, "1.36.3").await);
    let backend = context.backend();
    backend.activate(&old).await.unwrap();
    backend.start().await.unwrap();
    StateStore::new(fake.fs.clone()).save(&State::seeded(&goal("1.36.2")).unwrap()).unwrap();
    fake.systemd.clear_calls();
    World { fake, probe, cri, api, context, old, new }
}

async fn install(fake: &FakeHost, context: &NodeContext, version: &str) -> String {
    let goal = goal(version);
    let slot = goal.slot().unwrap().to_string();
    let (fs, goal, wanted) = (fake.fs.clone(), goal.encode(), slot.clone());
    let mut backend = context.backend();
    backend.install = Install::new(move |_, root| {
        let (fs, goal, wanted) = (fs.clone(), goal.clone(), wanted.clone());
        async move {
            let programs = ["kubelet", "containerd", "containerd-shim-runc-v2", "runc", "ctr"];
            let programs = programs
                .map(|name| (root.path(&Path::new(places::BIN).join(name)), wanted.clone().into_bytes(), 0o755));
            let files = ["kubelet/config.yaml", "kubelet/env", "containerd/config.toml"];
            let files = files.map(|name| (root.config(name), wanted.clone().into_bytes(), 0o644));
            let goal = (root.config("goal.json"), goal, 0o600);
            for (path, bytes, mode) in programs.into_iter().chain(files).chain([goal]) {
                durable::ensure_dir(fs.as_ref(), path.parent().unwrap(), 0o755).unwrap();
                durable::write(fs.as_ref(), &path, &bytes, mode).unwrap();
            }
            Ok(Outcome::Changed(String::new()))
        }
    });
    backend.prepare(&NodeSpec { slot: slot.clone(), ..NodeSpec::default() }).await.unwrap();
    slot
}

impl World {
    fn extension(&self) -> Extension {
        self.context.state().unwrap().1
    }

    fn current(&self) -> String {
        self.context.backend().current().unwrap().unwrap()
    }

    async fn assert_runs(&self, slot: &str) {
        assert_eq!(self.current(), slot);
        let status = self.context.backend().status().await.unwrap();
        assert!(status.running, "{status:?}");
        assert_eq!(self.extension().active_slot.as_deref(), Some(slot));
    }

    /// The upgrade from its check on, as it is run when all is prepared.
    async fn upgrade(&self) -> Report {
        let operation = self.upgrading();
        execute(&self.context, &operation, Arc::new(Silent), Cancel::new(), Box::new(Free)).await.unwrap().0
    }

    fn upgrading(&self) -> Operation {
        of_installed(&self.context, &self.old, &self.new, &goal("1.36.3").fingerprint())
    }

    /// Takes up what is interrupted; what was said.
    async fn recover(&self) -> Option<String> {
        let engine = Engine::new(self.context.host(), "daemon", Cancel::new()).unwrap();
        let record = engine.journal().interrupted().unwrap()?;
        let (operation, mode) = recover::operation(&self.context, &record).unwrap();
        let (observer, lock) = (Arc::new(Silent), Box::new(Free));
        Some(recover::run(&self.context, &record, (&operation, mode), observer, Cancel::new(), lock).await.unwrap())
    }

    /// Why the new goal is not tried again.
    fn failure(&self) -> Option<String> {
        let (state, _) = self.context.state().unwrap();
        state.failure_of(&goal("1.36.3").fingerprint()).map(|failed| failed.reason.clone())
    }

    fn text(&self, path: &str) -> String {
        self.fake.fs.text(path)
    }
}

fn rolled_back(report: Report) -> String {
    match report.outcome {
        RunOutcome::RolledBack { step, rollback_errors, .. } => {
            assert!(rollback_errors.is_empty(), "{rollback_errors:?}");
            step
        }
        other => panic!("it was not rolled back: {other:?}"),
    }
}

//! Upgrade, rollback and the rest on a host of fakes, by the real steps of the backend.

use super::lifecycle::Lifecycle;
use super::upgrade::BY_PERSON;
use super::*;
use crate::lock::LockFailure;
use crate::lock::Locks;
use crate::start::{Cluster, Connect, Prepared, Wait};
use flexnode_host::cri::fake::FakeCri;
use flexnode_host::durable;
use flexnode_host::probe::{FakeAnswer, FakeProbe, HttpAnswer, KUBELET_HEALTHZ};
use flexnode_host::testing::{FakeHost, Script, Verb};
use flexnode_isolation::NodeRoot as _;
use flexnode_isolation::NodeSpec;
use flexnode_isolation::none::Install;
use flexnode_model::{CgroupLayout, ContainerdGoal, Isolation, KubeletGoal};
use flexnode_ops::{RunOutcome, Silent};
use std::sync::Mutex;

pub(super) fn goal(kubernetes: &str) -> MachineGoal {
    MachineGoal {
        version: MachineGoal::VERSION,
        isolation: Isolation::None,
        node_name: "n1".into(),
        node_ips: Vec::new(),
        api_server: "https://10.0.0.1:6443".into(),
        ca_pem: "ca".into(),
        dns_service_ips: vec![[10, 96, 0, 10].into()],
        kubernetes_version: kubernetes.into(),
        containerd_version: None,
        runc_version: None,
        cni_version: None,
        kubelet: KubeletGoal {
            max_pods: 110,
            system_reserved: [].into(),
            kube_reserved: [].into(),
            image_gc_high_threshold: 85,
            image_gc_low_threshold: 80,
            verbosity: 2,
            config: serde_json::Map::new(),
        },
        containerd: ContainerdGoal { sandbox_image: "pause:1".into(), config: serde_json::Map::new() },
        cgroups: CgroupLayout::V2,
        artifacts: [].into(),
    }
}

#[derive(Debug)]
struct Free;

impl Held for Free {}

#[async_trait]
impl Locks for Free {
    fn acquire(&self, _: &str) -> Result<Box<dyn Held>, LockFailure> {
        Ok(Box::new(Free))
    }
    async fn free(&self) -> Result<(), LockFailure> {
        Ok(())
    }
}

/// No operation on a running node asks the cluster for more than the Node.
#[derive(Debug)]
struct NoCluster;

impl Connect for NoCluster {
    fn connect(&self, _: &Host, _: &Names, _: &Prepared) -> Arc<dyn Cluster> {
        unreachable!("the cluster is not asked")
    }
}

/// An API server that is away, or shows a Node whose kubelet is the active one.
#[derive(Debug)]
struct Witness(Mutex<Option<ApiProblem>>);

#[async_trait]
impl SeeNode for Witness {
    async fn see(&self, _: &str, _: Duration) -> Result<Option<NodeView>, ApiProblem> {
        let problem = self.0.lock().unwrap().clone();
        Err(problem.unwrap_or(ApiProblem::Connection("refused".into())))
    }
}

struct World {
    fake: FakeHost,
    probe: Arc<FakeProbe>,
    context: NodeContext,
    old: String,
    new: String,
}

const KUBELET_STATE: &str = "/var/lib/kubelet/cpu_manager_state";

/// `old` runs, `new` is installed.
async fn world() -> World {
    let fake = FakeHost::new();
    let probe = Arc::new(FakeProbe::answering(KUBELET_HEALTHZ, 200, "ok"));
    let start = StartContext {
        host: fake.host(),
        locks: Arc::new(Free),
        cri: Arc::new(FakeCri::with_pods(2)),
        probe: probe.clone(),
        names: Names::system(),
        connect: Arc::new(NoCluster),
        config: "/etc/aks-flex-node/config.json".into(),
        program: "/root/aks-flex-node".into(),
        owner: "command",
        wait: Wait::Joined,
        timeout: Duration::ZERO,
    };
    let node = Arc::new(Witness(Mutex::default()));
    let context = NodeContext { start, node, probation: PROBATION };
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
    World { fake, probe, context, old, new }
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
        let operation = upgrade::recovery(&self.context, &self.old, &self.new, "goal");
        execute(&self.context, &operation, Arc::new(Silent), Cancel::new(), Box::new(Free)).await.unwrap()
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

#[tokio::test]
async fn an_upgrade_ends_the_pods_and_records_what_runs() {
    let world = world().await;
    let report = world.upgrade().await;
    assert!(report.is_done(), "{report:?}");
    world.assert_runs(&world.new).await;
    assert_eq!(world.extension().previous_slot, Some(world.old.clone()));
    assert_eq!(state_files::load(world.fake.fs.as_ref()).unwrap(), None, "what was kept goes when it is confirmed");
    let tried = world.fake.commands.lines();
    assert!(tried.iter().any(|line| line.contains("--namespace aks-flex-node-ready run --rm")), "{tried:?}");
    // The API server is away: local signals decide, after a minute.
    assert!(world.fake.clock.slept() >= ready::SILENCE);
}

#[tokio::test]
async fn whatever_fails_in_the_new_version_the_old_one_runs_again_with_its_state_files() {
    type Break = fn(&World);
    let breaks: [(&str, Break); 5] = [
        ("start-kubelet", |w| _ = w.fake.systemd.script(Verb::Start, UNIT_KUBELET, Script::exit(1))),
        ("start-containerd", |w| _ = w.fake.systemd.script(Verb::Start, UNIT_CONTAINERD, Script::exit(1))),
        ("wait-ready", |w| {
            _ = w.fake.commands.exit_once(
                "ctr",
                &["--address", places::CONTAINERD_SOCKET, "--namespace", "aks-flex-node-ready", "run"],
                1,
                "",
                "runc failed",
            );
        }),
        ("wait-ready", |w| {
            _ = w.fake.commands.answer(
                &format!("/opt/unbounded/node/{}/bin/kubelet", w.new),
                &["--version"],
                "Kubernetes v1.35.0",
            );
        }),
        ("wait-ready", |w| {
            // It answers when it was started, and is not well later; the old one is.
            let (probe, fs) = (w.probe.clone(), w.fake.fs.clone());
            let new = w.new.clone();
            w.fake.commands.answer_with("ctr", &[], move |_| {
                let turned = fs.read_link(Path::new("/opt/unbounded/node/current")).unwrap() == Path::new(&new);
                let answer = if turned { (500, "sick") } else { (200, "ok") };
                probe.set(KUBELET_HEALTHZ, FakeAnswer::Answer(HttpAnswer { status: answer.0, body: answer.1.into() }));
                Ok(flexnode_host::Output { code: Some(0), ..flexnode_host::Output::default() })
            });
            let probe = w.probe.clone();
            w.fake.systemd.hook(Verb::Start, UNIT_KUBELET, move || {
                probe.set(KUBELET_HEALTHZ, FakeAnswer::Answer(HttpAnswer { status: 200, body: "ok".into() }));
            });
        }),
    ];
    for (n, (step, broken)) in breaks.into_iter().enumerate() {
        let world = world().await;
        let fs = world.fake.fs.clone();
        world.fake.systemd.hook(Verb::Start, UNIT_CONTAINERD, move || _ = fs.put(KUBELET_STATE, "new", 0o600));
        broken(&world);
        let report = world.upgrade().await;
        assert_eq!(rolled_back(report), step, "break {n}");
        world.assert_runs(&world.old).await;
        let evidence = world.text(evidence::path(&world.new).to_str().unwrap());
        assert!(evidence.contains(UNIT_KUBELET) && evidence.contains("healthz"), "{evidence}");
        assert_eq!(world.fake.fs.lstat(&evidence::path(&world.new)).unwrap().unwrap().mode, 0o600);
    }
}

#[tokio::test]
async fn kubelets_files_are_those_of_the_old_version_when_it_starts_again() {
    let world = world().await;
    let (fs, seen) = (world.fake.fs.clone(), Arc::new(Mutex::new(Vec::new())));
    let diary = seen.clone();
    world.fake.systemd.hook(Verb::Start, UNIT_KUBELET, move || {
        diary.lock().unwrap().push(fs.text(KUBELET_STATE));
        fs.put(KUBELET_STATE, "new", 0o600);
    });
    world.fake.commands.exit(
        "ctr",
        &["--address", places::CONTAINERD_SOCKET, "--namespace", "aks-flex-node-ready", "run"],
        1,
        "",
        "no",
    );
    let report = world.upgrade().await;
    // The container cannot be made by the old version either: it runs, and that is said.
    assert!(
        matches!(&report.outcome, RunOutcome::RolledBack { rollback_errors, .. } if rollback_errors.len() == 1),
        "{report:?}"
    );
    world.assert_runs(&world.old).await;
    assert_eq!(*seen.lock().unwrap(), ["old", "old"]);
}

#[tokio::test]
async fn an_old_containerd_that_does_not_come_up_gets_its_databases_back() {
    const DATABASE: &str = "/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db";
    let world = world().await;
    world.fake.fs.put(DATABASE, "1.7", 0o644);
    let fs = world.fake.fs.clone();
    world.fake.systemd.hook(Verb::Start, UNIT_CONTAINERD, move || {
        if fs.text(DATABASE) == "1.7"
            && fs.read_link(Path::new("/opt/unbounded/node/current")).unwrap().to_str().unwrap().contains("1.36.3")
        {
            fs.put(DATABASE, "2.1", 0o644);
        }
    });
    world.fake.systemd.script(Verb::Start, UNIT_KUBELET, Script::exit(1));
    let systemd = world.fake.systemd.clone();
    // The first stop of the failed stack comes right before the old containerd's first try.
    let once = Mutex::new(Some(()));
    world.fake.systemd.hook(Verb::Stop, UNIT_CONTAINERD, {
        let fs = world.fake.fs.clone();
        move || {
            if fs.text(DATABASE) == "2.1" && once.lock().unwrap().take().is_some() {
                systemd.script(Verb::Start, UNIT_CONTAINERD, Script::exit(1));
            }
        }
    });
    assert_eq!(rolled_back(world.upgrade().await), "start-kubelet");
    world.assert_runs(&world.old).await;
    assert_eq!(world.text(DATABASE), "1.7");
}

#[tokio::test]
async fn a_person_goes_back_and_the_goal_that_was_left_is_remembered() {
    let world = world().await;
    assert!(world.upgrade().await.is_done());
    let report = rollback::run(&world.context, None, Arc::new(Silent), Cancel::new()).await.unwrap();
    assert_eq!((report.from.as_str(), report.to.as_str()), (world.new.as_str(), world.old.as_str()));
    world.assert_runs(&world.old).await;
    let (state, extension) = world.context.state().unwrap();
    assert_eq!(state.failure_of(&goal("1.36.3").fingerprint()).unwrap().reason, BY_PERSON);
    assert_eq!(extension.previous_slot, Some(world.new.clone()));
    // The same again changes nothing but the journal.
    let tree = || {
        let copy = world.fake.fs.fork();
        copy.take("/var/lib/aks-flex-node/journal").put_dir("/var/lib/aks-flex-node/journal", 0o755);
        copy
    };
    let before = tree();
    world.fake.systemd.clear_calls();
    let again = rollback::run(&world.context, Some(&world.old), Arc::new(Silent), Cancel::new()).await.unwrap();
    assert!(!again.changed);
    assert_eq!(world.fake.systemd.calls(), Vec::<String>::new());
    let differences = before.tree_with_stamps().difference(&tree().tree_with_stamps());
    let of_journal = |line: &&String| {
        line.contains("/var/lib/aks-flex-node directory") || line.contains("/var/lib/aks-flex-node/journal directory")
    };
    assert!(differences.iter().all(|line| of_journal(&line)), "{differences:?}");
}

#[tokio::test]
async fn an_upgrade_that_was_interrupted_is_undone_or_given_up_by_where_it_stood() {
    for (step, sentence) in [
        ("import-images", "given up"),
        ("look-at-node", "given up"),
        ("stop", "was undone"),
        ("flip", "was undone"),
        ("start-kubelet", "was undone"),
        ("save-state", "was undone"),
    ] {
        let world = world().await;
        let whole = upgrade::recovery(&world.context, &world.old, &world.new, "goal");
        let mut left = whole.clone();
        let at = left.steps.iter().position(|s| s.name == step).unwrap();
        let reached = Arc::new(tokio::sync::Notify::new());
        let tells = reached.clone();
        left.steps[at] = flexnode_ops::Step::new(whole.steps[at].name, "hang", SHORT, move |_| {
            tells.notify_one();
            std::future::pending()
        });
        let engine = Engine::new(world.context.host(), "command", Cancel::new()).unwrap();
        tokio::select! {
            ended = engine.run(&left, Arc::new(Silent)) => panic!("{step}: it ended: {ended:?}"),
            // Dropping the run is what a kill is.
            () = reached.notified() => {}
        }
        let record = engine.journal().interrupted().unwrap().unwrap();
        assert_eq!(record.step, step);
        let operation = recover::operation(&world.context, &record).unwrap();
        let said =
            recover::run(&world.context, &record, &operation, Arc::new(Silent), Cancel::new(), Box::new(Free)).await;
        let said = said.unwrap();
        assert!(said.contains(sentence), "{step}: {said}");
        world.assert_runs(&world.old).await;
        assert!(engine.journal().open().unwrap().is_none());
        assert!(world.extension().failed_goals.is_empty(), "a kill is no failure of the goal");
    }
}

#[tokio::test]
async fn a_stop_is_recorded_and_a_start_takes_it_back() {
    let world = world().await;
    let run = |which| lifecycle::run(&world.context, which, Arc::new(Silent), Cancel::new());
    assert!(run(Lifecycle::Stop).await.unwrap());
    assert!(world.extension().stopped_by_person);
    for unit in [UNIT_CONTAINERD, UNIT_KUBELET] {
        let state = world.fake.systemd.state(unit);
        assert!(!state.is_active() && state.enabled != "enabled", "{unit}: {state:?}");
    }
    world.fake.systemd.clear_calls();
    assert!(!run(Lifecycle::Stop).await.unwrap(), "a second stop changes nothing");
    assert_eq!(world.fake.systemd.calls(), Vec::<String>::new());
    assert!(run(Lifecycle::Start).await.unwrap());
    assert!(!world.extension().stopped_by_person);
    world.assert_runs(&world.old).await;
    world.fake.systemd.clear_calls();
    assert!(!run(Lifecycle::Start).await.unwrap(), "a second start changes nothing");
    assert_eq!(world.fake.systemd.calls(), Vec::<String>::new());
    let before = world.fake.systemd.state(UNIT_KUBELET).main_pid;
    assert!(run(Lifecycle::Restart).await.unwrap());
    assert_ne!(world.fake.systemd.state(UNIT_KUBELET).main_pid, before);
}

#[tokio::test]
async fn slots_are_told_and_what_may_go_goes() {
    let world = world().await;
    let slots = slots::list(&world.context).unwrap();
    let told: Vec<_> = slots.iter().map(|s| (s.name.as_str(), s.active, s.in_use, s.complete)).collect();
    assert_eq!(told, [(world.old.as_str(), true, true, true), (world.new.as_str(), false, false, true)]);
    assert_eq!(slots::prune(&world.context).unwrap(), Vec::<String>::new(), "one more is kept");
    world.fake.fs.put_dir("/opt/unbounded/node/1.35.0-00000000/bin", 0o755);
    assert_eq!(slots::prune(&world.context).unwrap(), ["1.35.0-00000000"]);
}

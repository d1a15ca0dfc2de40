//! A whole start on a host of fakes: the real steps, the real installer, a bundle that the real packer made.

use super::*;
use crate::service::SERVICE_UNIT_NAME;
use crate::testing;
pub(crate) use crate::testing::{CONFIG, Free, PROGRAM};
use async_trait::async_trait;
use flexnode_host::Fs as _;
use flexnode_host::cri::fake::FakeCri;
use flexnode_host::probe::{FakeAnswer, FakeProbe, HttpAnswer, KUBELET_HEALTHZ};
use flexnode_host::testing::{FakeHost, Script, Tree, Verb};
use flexnode_isolation::none::UNIT_CONTAINERD;
use flexnode_kube::{ApiProblem, ApiServerFacts, ApiServerProbe, JoinProblem};
use flexnode_ops::Silent;
use flexnode_status::node::ReadyCondition;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex;

pub(crate) const BUNDLE: &str = "/srv/bundle";

/// A cluster in which the Node is what the test says.
#[derive(Debug, Default)]
pub(crate) struct FakeCluster {
    refuses: Mutex<Option<JoinProblem>>,
    tokens: Mutex<Vec<bool>>,
    node: Mutex<NodeView>,
}

#[async_trait]
impl Cluster for Arc<FakeCluster> {
    async fn preflight(&self, probe: &ApiServerProbe, _: Duration) -> Result<ApiServerFacts, JoinProblem> {
        self.tokens.lock().unwrap().push(probe.token.is_some());
        match self.refuses.lock().unwrap().clone() {
            Some(problem) => Err(problem),
            None => Ok(ApiServerFacts { version: None, peer: ([10, 0, 0, 1], 6443).into(), clock_skew: None }),
        }
    }
    async fn node(&self, _: Duration) -> Result<Option<NodeView>, ApiProblem> {
        Ok(Some(self.node.lock().unwrap().clone()))
    }
    async fn wait_ready(&self, _: &WaitReady, _: &(dyn for<'t> Fn(&'t str) + Send + Sync)) -> ReadyOutcome {
        let node = self.node.lock().unwrap().clone();
        if node.is_ready() {
            return ReadyOutcome::Ready(Box::new(node));
        }
        ReadyOutcome::TimedOut { last: Some(Box::new(node)), why: "kubelet is not well".into() }
    }
    async fn patch_labels(&self, changes: &BTreeMap<String, Option<String>>, _: Duration) -> Result<(), ApiProblem> {
        let labels = &mut self.node.lock().unwrap().labels;
        for (key, value) in changes {
            match value {
                Some(value) => drop(labels.insert(key.clone(), value.clone())),
                None => drop(labels.remove(key)),
            }
        }
        Ok(())
    }
    async fn dns(&self, _: Duration) -> Result<Option<Vec<IpAddr>>, ApiProblem> {
        Ok(Some(vec![[10, 96, 0, 10].into()]))
    }
    async fn request_advice(&self, _: Duration) -> Option<String> {
        Some("the request csr-1 waits for approval: kubectl certificate approve csr-1".into())
    }
}

impl Connect for Arc<FakeCluster> {
    fn connect(&self, _: &Host, _: &Names, prepared: &Prepared) -> Arc<dyn Cluster> {
        let mut node = self.node.lock().unwrap();
        if node.name.is_empty() {
            *node = NodeView {
                name: prepared.goal.node_name.clone(),
                ready: Some(ReadyCondition { status: Some(true), ..ReadyCondition::default() }),
                labels: prepared.join.labels.clone(),
                ..NodeView::default()
            };
        }
        drop(node);
        Arc::new(self.clone())
    }
}

/// A host with a configuration, a bundle, and programs that do what theirs do.
pub(crate) struct World {
    pub(crate) fake: FakeHost,
    cluster: Arc<FakeCluster>,
    pub(crate) context: StartContext,
}

pub(crate) fn config(labels: &serde_json::Value, max_pods: u32) -> String {
    let mut config = testing::config("1.36.3", BUNDLE);
    config["node"]["labels"] = labels.clone();
    config["node"]["maxPods"] = max_pods.into();
    config.to_string()
}

/// Packs the bundle of a Kubernetes version, in the place of the one that was there.
pub(crate) async fn pack_bundle(fake: &FakeHost, kubernetes: &str) {
    testing::pack_bundle(fake, BUNDLE, kubernetes).await;
}

pub(crate) async fn world() -> World {
    let fake = FakeHost::new();
    testing::plain(&fake.fs);
    fake.fs.put(CONFIG, config(&json!({"a.example/x": "1"}), 110), 0o600);
    pack_bundle(&fake, "1.36.3").await;
    testing::programs(&fake);
    let joins = fake.fs.clone();
    fake.systemd.hook(Verb::Start, UNIT_KUBELET, move || {
        for (path, text) in testing::kubelet_files() {
            joins.put(path, text, 0o600);
        }
    });
    let cluster = Arc::new(FakeCluster::default());
    let context = StartContext {
        host: fake.host(),
        locks: Arc::new(Free),
        cri: Arc::new(FakeCri::default()),
        probe: Arc::new(FakeProbe::answering(KUBELET_HEALTHZ, 200, "ok")),
        names: Names::system(),
        connect: Arc::new(cluster.clone()),
        config: CONFIG.into(),
        program: PROGRAM.into(),
        owner: "command",
        wait: Wait::Ready,
        timeout: Duration::from_secs(60),
    };
    World { fake, cluster, context }
}

impl World {
    pub(crate) async fn start(&self) -> Result<StartReport, StartError> {
        run(&self.context, Arc::new(Silent), Cancel::new()).await
    }

    /// All files but the journal, which tells of the runs themselves.
    pub(crate) fn tree(&self, stamps: bool) -> Tree {
        let mut tree = if stamps { self.fake.fs.tree_with_stamps() } else { self.fake.fs.tree() };
        tree.0.retain(|path, _| !path.starts_with("/var/lib/aks-flex-node/journal"));
        tree
    }
}

#[tokio::test]
async fn a_plain_host_becomes_a_node_and_the_second_start_touches_nothing() {
    let world = world().await;
    let report = world.start().await.unwrap();
    assert!(report.changed && report.view.unwrap().is_ready());
    assert!(report.warnings.iter().all(|w| !w.contains("DNS")), "{:?}", report.warnings);
    for unit in [UNIT_CONTAINERD, UNIT_KUBELET, SERVICE_UNIT_NAME] {
        let state = world.fake.systemd.state(unit);
        assert!(state.is_active() && state.enabled == "enabled", "{unit}: {state:?}");
    }
    let state = StateStore::new(world.fake.fs.clone()).load().unwrap().unwrap();
    assert_eq!((state.applied_kubernetes_version.as_str(), state.active_machine.as_str()), ("1.36.3", ""));
    assert_eq!(state.flexnode.unwrap().active_slot, Some(report.slot));
    assert!(Journal::new(world.fake.fs.clone()).open().unwrap().is_none());
    let (tree, calls, kernel) = (world.tree(true), world.fake.systemd.calls(), world.fake.kernel.log());
    let again = world.start().await.unwrap();
    assert!(!again.changed);
    assert_eq!(tree.difference(&world.tree(true)), Vec::<String>::new());
    assert_eq!((world.fake.systemd.calls(), world.fake.kernel.log()), (calls, kernel));
    assert_eq!(*world.cluster.tokens.lock().unwrap(), [true, false], "a node that has joined needs no token");
}

/// Secrets are in files of root alone, and in no argument.
#[tokio::test]
async fn the_token_is_in_no_argument_and_in_no_file_that_others_read() {
    let world = world().await;
    world.start().await.unwrap();
    let secret = "0123456789abcdef";
    assert!(world.fake.commands.lines().iter().all(|line| !line.contains(secret)));
    let mut holders = 0;
    let mut dirs = vec![PathBuf::from("/")];
    while let Some(dir) = dirs.pop() {
        for entry in world.fake.fs.read_dir(&dir).unwrap() {
            let path = dir.join(entry.name);
            match entry.kind {
                flexnode_host::FileKind::Dir => dirs.push(path),
                flexnode_host::FileKind::File if world.fake.fs.text(&path).contains(secret) => {
                    holders += 1;
                    assert_eq!(world.fake.fs.lstat(&path).unwrap().unwrap().mode & 0o077, 0, "{}", path.display());
                }
                _ => {}
            }
        }
    }
    assert_eq!(holders, 2, "the configuration and the bootstrap kubeconfig");
}

#[tokio::test]
async fn a_refusal_before_the_first_change_leaves_no_trace() {
    let world = world().await;
    let before = world.tree(true);
    *world.cluster.refuses.lock().unwrap() = Some(JoinProblem::TokenRefused { server: "10.0.0.1:6443".into() });
    let error = world.start().await.unwrap_err();
    assert!(matches!(&error, StartError::Step { step, .. } if step == "check-api-server"), "{error}");
    assert!(error.hint().unwrap().contains("kubeadm token create"));
    assert_eq!(before.difference(&world.tree(true)), Vec::<String>::new());
    world.fake.fs.put_link("/dev/null", "/etc/systemd/system/unbounded-kubelet.service");
    let error = world.start().await.unwrap_err();
    assert!(matches!(&error, StartError::Step { step, .. } if step == "check-host"), "{error}");
    assert!(!world.fake.fs.exists("/var/lib/aks-flex-node"), "no record, no journal");
    assert!(world.fake.systemd.calls().is_empty() && world.fake.kernel.log().is_empty());
}

#[tokio::test]
async fn another_goal_is_told_and_changes_nothing_and_labels_are_patched() {
    let world = world().await;
    world.start().await.unwrap();
    world.fake.fs.put(CONFIG, config(&json!({"a.example/x": "1"}), 50), 0o600);
    let before = world.tree(true);
    let error = world.start().await.unwrap_err();
    let StartError::Differs { differences } = &error else { panic!("{error}") };
    assert!(differences.iter().any(|d| d.to_string() == "node.maxPods: 110 -> 50"), "{differences:?}");
    assert!(error.hint().unwrap().contains("aks-flex-node upgrade"));
    assert_eq!(before.difference(&world.tree(true)), Vec::<String>::new());
    world.fake.fs.put(CONFIG, config(&json!({"b.example/y": "2"}), 110), 0o600);
    world.fake.systemd.clear_calls();
    let report = world.start().await.unwrap();
    assert_eq!(report.labels, ["a.example/x", "b.example/y"]);
    assert_eq!(world.fake.systemd.calls(), Vec::<String>::new(), "nothing restarts for a label");
}

#[tokio::test]
async fn without_the_source_the_recorded_digests_serve() {
    let world = world().await;
    world.start().await.unwrap();
    world.fake.fs.take(BUNDLE);
    let report = world.start().await.unwrap();
    assert!(!report.changed && report.warnings.iter().any(|w| w.contains(BUNDLE)), "{:?}", report.warnings);
}

#[tokio::test]
async fn what_was_stopped_or_removed_is_mended() {
    let world = world().await;
    world.start().await.unwrap();
    world.fake.fs.take("/opt/cni/bin/bridge").put("/etc/sysctl.d/99-aks-flex-node.conf", "", 0o644);
    world.fake.host().systemd.stop(UNIT_CONTAINERD, Duration::from_secs(5)).await.unwrap();
    assert!(world.start().await.unwrap().changed);
    assert!(world.fake.fs.exists("/opt/cni/bin/bridge") && world.fake.systemd.state(UNIT_CONTAINERD).is_active());
}

#[tokio::test]
async fn state_that_is_corrupt_stops_it() {
    let world = world().await;
    world.start().await.unwrap();
    world.fake.fs.put(crate::state::STATE_PATH, "{}", 0o600);
    let error = world.start().await.unwrap_err();
    assert!(matches!(error, StartError::State(_)) && error.hint().unwrap().contains("aks-flex-node reset"));
}

#[tokio::test]
async fn a_kubelet_that_does_not_stay_up_is_told_at_once() {
    let mut world = world().await;
    let probe = FakeProbe::default();
    probe.set(KUBELET_HEALTHZ, FakeAnswer::Answer(HttpAnswer { status: 500, body: "not yet".into() }));
    world.context.probe = Arc::new(probe);
    let fails = Script::Fail { result: "exit-code".into(), exit_status: 1 };
    world.fake.systemd.script(Verb::Start, UNIT_KUBELET, fails);
    let error = world.start().await.unwrap_err();
    assert!(matches!(&error, StartError::Step { step, .. } if step == "start-kubelet"), "{error}");
    let record = Journal::new(world.fake.fs.clone()).open().unwrap().unwrap();
    assert_eq!(record.failed_step.as_deref(), Some("start-kubelet"));
    // Running it again continues.
    world.context.probe = Arc::new(FakeProbe::answering(KUBELET_HEALTHZ, 200, "ok"));
    assert!(world.start().await.unwrap().changed);
}

/// C080: health comes late, and each start begins kubelet anew.
#[tokio::test]
async fn a_start_that_waits_for_health_is_gone_on_with_by_the_next_one() {
    let mut world = world().await;
    let probe = Arc::new(FakeProbe::default());
    probe.set(KUBELET_HEALTHZ, FakeAnswer::Answer(HttpAnswer { status: 500, body: "not yet".into() }));
    world.context.probe = probe.clone();
    for _ in 0..2 {
        let error = world.start().await.unwrap_err();
        assert!(matches!(&error, StartError::Step { step, .. } if step == "start-kubelet"), "{error}");
    }
    probe.set(KUBELET_HEALTHZ, FakeAnswer::Answer(HttpAnswer { status: 200, body: "ok".into() }));
    assert!(world.start().await.unwrap().changed);
    let calls = world.fake.systemd.calls();
    let of_kubelet: Vec<_> =
        calls.iter().filter(|call| call.ends_with(UNIT_KUBELET) && call.contains("start")).collect();
    assert_eq!(of_kubelet, [&format!("start {UNIT_KUBELET}")]);
}

/// C022 and the token: a certificate that has expired needs the token again.
#[tokio::test]
async fn an_expired_certificate_needs_the_token_again() {
    let world = world().await;
    world.start().await.unwrap();
    world.fake.fs.take(places::BOOTSTRAP_KUBECONFIG);
    world.fake.clock.set_wall("4200-01-01T00:00:00Z".parse().unwrap());
    let error = world.start().await.unwrap_err();
    assert!(matches!(&error, StartError::Step { step, .. } if step == "wait-kubelet"), "{error}");
    assert!(error.hint().unwrap().contains("kubectl certificate approve csr-1"), "{:?}", error.hint());
    assert!(world.fake.fs.text(places::BOOTSTRAP_KUBECONFIG).contains("abcdef.0123456789abcdef"));
    assert_eq!(world.cluster.tokens.lock().unwrap().last(), Some(&true));
}

#[tokio::test]
async fn a_node_that_is_not_ready_in_time_is_an_error_of_its_own() {
    let world = world().await;
    world.start().await.unwrap();
    world.cluster.node.lock().unwrap().ready = None;
    let error = world.start().await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotReady);
    assert!(error.to_string().contains("kubelet is not well"), "{error}");
}

/// A kill at any change is finished by running it again, and the host ends as one on which nothing went wrong.
#[tokio::test]
async fn a_crash_at_any_change_is_finished_by_the_next_start() {
    let calm = world().await;
    calm.start().await.unwrap();
    let wanted = calm.tree(false);
    for after in (0..).step_by(5) {
        let world = world().await;
        world.fake.fs.crash_after(after);
        let first = world.start().await;
        world.fake.fs.revive();
        if first.is_ok() {
            assert!(after > 150, "only {after} changes were interrupted");
            return;
        }
        let done =
            world.start().await.unwrap_or_else(|e| panic!("after {after} changes: {}", flexnode_ops::report::line(&e)));
        assert!(done.view.unwrap().is_ready());
        let left = wanted.difference(&world.tree(false));
        assert!(left.is_empty(), "after {after} changes: {left:#?}");
        assert!(!world.start().await.unwrap().changed);
    }
}

#[tokio::test]
async fn the_steps_are_a_sound_operation_that_looks_first() {
    let world = world().await;
    let planned = plan(&world.context).await.unwrap();
    planned.operation.check().unwrap();
    let steps = &planned.operation.steps;
    let looks = steps.iter().take_while(|step| step.read_only).count();
    assert_eq!(looks, 3);
    assert!(steps[looks..].iter().all(|step| !step.takes_down), "a first start takes no node down");
    let at = |name: &str| steps.iter().position(|step| step.name == name).unwrap();
    for pair in
        ["record-host", "sysctls", "install", "flip", "start-containerd", "import-images", "start-kubelet"].windows(2)
    {
        assert!(at(pair[0]) < at(pair[1]), "{pair:?}");
    }
    assert!(at("wait-kubelet") < at("save-state") && at("save-state") < at("install-service"));
}

#[test]
fn an_unfinished_operation_of_another_kind_comes_first() {
    use flexnode_model::journal::{Subject, Writer};
    let by = Writer { boot_id: "b".into(), pid: 1, owner: "command".into() };
    let open = |kind: &str| {
        let subject = Subject { operation: kind.into(), ..Subject::default() };
        let mut record = flexnode_ops::JournalRecord::open("1", subject, &by, jiff::Timestamp::UNIX_EPOCH);
        record.enter("flip", jiff::Timestamp::UNIX_EPOCH);
        record
    };
    let goal = |pods| {
        let fake = FakeHost::new();
        let facts = host_facts(&fake.host()).unwrap();
        let text = config(&json!({}), pods);
        flexnode_model::config::Config::load(text.as_bytes(), &facts).unwrap().1
    };
    let (same, other) = (goal(110), goal(50));
    for kind in ["reset", "upgrade"] {
        let open = open(kind);
        let wanted = Decision::Unfinished { operation: kind.into(), step: "flip".into(), interrupted: true };
        for applied in [None, Some(&same), Some(&other)] {
            assert_eq!(decide::decide(Observed { applied, open: Some(&open) }, &same), wanted);
        }
    }
    let start = open("start");
    for open in [None, Some(&start)] {
        assert_eq!(decide::decide(Observed { applied: None, open }, &same), Decision::Run);
        assert_eq!(decide::decide(Observed { applied: Some(&same), open }, &same), Decision::Run);
        let differs = decide::decide(Observed { applied: Some(&other), open }, &same);
        assert!(matches!(differs, Decision::Differs(d) if !d.is_empty()));
    }
}

/// C007 and C008: what turns swap on outside of fstab and units does so at the next boot again.
#[tokio::test]
async fn swap_that_came_back_is_turned_off_when_the_daemon_starts() {
    let world = world().await;
    let host = world.fake.host();
    let area = flexnode_host::SwapArea { path: "/dev/sda5".into(), kind: "partition".into(), bytes: 1, priority: -2 };
    let on = || world.fake.kernel.change(|kernel| kernel.swaps = vec![area.clone()]);
    on();
    assert_eq!(crate::swap_watch::mend(&host, &Free).await.unwrap(), None, "a host that is no node keeps its swap");
    world.start().await.unwrap();
    assert_eq!(crate::swap_watch::mend(&host, &Free).await.unwrap(), None);
    on();
    let text = crate::swap_watch::mend(&host, &Free).await.unwrap().unwrap();
    assert!(text.contains("swap off on /dev/sda5") && text.contains("initramfs"), "{text}");
    assert!(world.fake.kernel.state().swaps.is_empty());
}

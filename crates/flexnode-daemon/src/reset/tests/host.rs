//! Whole resets on a host in memory.

use crate::host_setup::{Before, Recorder, fstab, sysctls};
use crate::record::{HostRecorder, RECORD_PATH};
use crate::reset::cluster::Nodes;
use crate::reset::evidence::EVIDENCE_PATH;
use crate::reset::{Options, ResetContext, ResetReport, operation};
use crate::service::SERVICE_UNIT_PATH;
use flexnode_host::Fs;
use flexnode_host::cri::Cri;
use flexnode_host::cri::fake::{FakeCri, Trouble};
use flexnode_host::testing::{FakeHost, Script, Tree, Verb};
use flexnode_host::{Kernel, Network, Systemd};
use flexnode_isolation::none::{UNIT_CONTAINERD, UNIT_KUBELET};
use flexnode_kube::NodeMachine;
use flexnode_kube::api::ApiProblem;
use flexnode_ops::{Outcome, StepContext};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CONFIG: &str = "/etc/aks-flex-node/config.json";
const NS: &str = "cni-0f4b6c1e-9a3d-4a57-8b0e-5d2f7c6e1a90";

/// A host with another container program on it, before it becomes a node.
fn pristine() -> FakeHost {
    let fake = FakeHost::new();
    fake.fs.put_dir("/etc/sysctl.d", 0o755).put_dir("/etc/modules-load.d", 0o755);
    fake.fs.put(CONFIG, "{}", 0o600).put("/etc/fstab", "/swap.img none swap sw 0 0\n", 0o644);
    let podman = r#"{"name": "podman", "plugins": [{"type": "bridge", "bridge": "cni-podman0"}]}"#;
    fake.fs.put("/opt/cni/bin/theirs", "x", 0o755).put("/etc/cni/net.d/87-podman.conflist", podman, 0o644);
    fake.fs.put("/etc/systemd/system/theirs.service", "[Service]\nExecStart=/bin/true\n", 0o644);
    fake.network.add_link("cni0", "bridge", &["10.88.0.1"]).add_namespace("netns-theirs");
    fake
}

/// The same host as a node with a pod.
async fn joined() -> (FakeHost, Arc<FakeCri>) {
    let fake = pristine();
    let recorder = HostRecorder::new(&fake.host(), Path::new(CONFIG), "n1");
    recorder.record_host(&fake.host()).await.unwrap();
    let before = Before {
        sysctls: [("net.ipv4.ip_forward".to_owned(), "0".to_owned())].into(),
        files: vec![(sysctls::SYSCTL_FILE, None)],
        fstab: true,
        ..Before::default()
    };
    recorder.record(&before).unwrap();
    fake.kernel.set_sysctl("net.ipv4.ip_forward", "1").unwrap();
    let fs = &fake.fs;
    fs.put(sysctls::SYSCTL_FILE, sysctls::render(&sysctls::SETTINGS), 0o644);
    fs.put("/etc/fstab", format!("{}/swap.img none swap sw 0 0\n", fstab::MARKER), 0o644);
    fs.put("/opt/unbounded/node/1.36.3-1a2b3c4d/bin/kubelet", "x", 0o755);
    fs.put_link("1.36.3-1a2b3c4d", "/opt/unbounded/node/current");
    fs.put_link("/opt/unbounded/node/current/cni/bridge", "/opt/cni/bin/bridge");
    fs.put("/opt/unbounded/agent/bin/aks-flex-node", "x", 0o755);
    fs.put("/var/lib/kubelet/pki/kubelet-client-current.pem", "key", 0o600);
    fs.put("/var/lib/kubelet/kubeconfig", "{}", 0o600).put("/var/lib/kubelet/pods/u/etc-hosts", "x", 0o644);
    fs.put("/etc/kubernetes/pki/apiserver-client-ca.crt", "x", 0o644);
    fs.put("/etc/unbounded/kubelet/registration.env", "x", 0o644);
    fs.put("/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/pod-0000000000/x", "x", 0o644);
    fs.put("/run/containerd/containerd.sock", "", 0o660);
    fs.put("/etc/aks-flex-node/daemon-state.json", "damaged", 0o600);
    let result = format!(
        r#"{{"containerId": "pod-0000000000", "netns": "/var/run/netns/{NS}", "result": {{"interfaces": [
            {{"name": "cni0"}}, {{"name": "veth1"}}, {{"name": "eth0", "sandbox": "/var/run/netns/{NS}"}}]}}}}"#
    );
    fs.put("/etc/cni/net.d/10-node.conflist", r#"{"plugins": [{"type": "bridge", "bridge": "br-node"}]}"#, 0o644);
    fs.put("/var/lib/cni/results/n-pod-0000000000-eth0", result, 0o600);
    fake.mounts.mount("/var/lib/kubelet/pods/u/volumes/v", "tmpfs", "tmpfs");
    // Made by podman after the node: nothing of ours.
    fake.network.add_link("cni-podman0", "bridge", &[]).add_link("br-node", "bridge", &[]);
    fake.network.add_link("veth1", "veth", &[]).add_namespace(NS).add_rule("ip/filter", ":KUBE-FIREWALL - [0:0]");
    (fake, Arc::new(FakeCri::with_pods(1)))
}

fn context(fake: &FakeHost, cri: &Arc<FakeCri>) -> ResetContext {
    ResetContext::new(fake.host(), cri.clone(), Options::default())
}

/// Runs the steps as the engine does: up to the first failure.
async fn run(context: &ResetContext) -> (bool, Result<ResetReport, String>) {
    let mut changed = false;
    for step in operation(context).steps {
        match step.run(StepContext::silent()).await {
            Ok(outcome) => changed |= outcome != Outcome::Unchanged,
            Err(e) => return (changed, Err(format!("{}: {e}", step.name))),
        }
    }
    (changed, Ok(context.report()))
}

/// The whole host, but for what is allowed to stay.
fn tree(fake: &FakeHost) -> Tree {
    let mut tree = Tree::read(fake.fs.as_ref(), Path::new("/"), false).unwrap();
    let stays = |path: &Path| path.starts_with("/opt/unbounded") || path == Path::new("/var/lib/aks-flex-node");
    tree.0.retain(|path, _| !stays(path));
    tree
}

async fn links(fake: &FakeHost) -> Vec<String> {
    fake.network.links().await.unwrap().into_iter().map(|link| link.name).collect()
}

#[tokio::test]
async fn the_host_is_as_it_was() {
    let (fake, cri) = joined().await;
    let (changed, report) = run(&context(&fake, &cri)).await;
    let report = report.unwrap();
    assert!(changed);
    assert_eq!(tree(&pristine()).difference(&tree(&fake)), [""; 0]);
    assert_eq!(fake.fs.text("/opt/unbounded/agent/bin/aks-flex-node"), "x");
    assert_eq!(links(&fake).await, ["lo", "eth0", "cni0", "cni-podman0"]);
    assert_eq!(fake.network.namespaces().unwrap(), ["netns-theirs"]);
    assert_eq!(fake.network.rules().await.unwrap(), []);
    assert_eq!(fake.kernel.state().sysctls["net.ipv4.ip_forward"], "0");
    assert_eq!(report.left, []);
    assert_eq!(report.delete_node_command().as_deref(), Some("kubectl delete node n1"));
    let kept: Vec<&str> = report.kept.iter().map(|kept| kept.what.as_str()).collect();
    for what in [CONFIG, "the network link cni0", "/opt/cni", "/opt/unbounded/agent/bin/aks-flex-node"] {
        assert!(kept.contains(&what), "{what}: {kept:?}");
    }
}

#[tokio::test]
async fn a_second_reset_changes_nothing() {
    let (fake, cri) = joined().await;
    run(&context(&fake, &cri)).await.1.unwrap();
    let before = fake.fs.tree_with_stamps();
    fake.systemd.clear_calls();
    let (changed, report) = run(&context(&fake, &cri)).await;
    report.unwrap();
    assert!(!changed);
    assert_eq!(before.difference(&fake.fs.tree_with_stamps()), [""; 0]);
    assert_eq!(fake.systemd.calls(), [""; 0]);
}

#[tokio::test]
async fn a_host_that_was_never_a_node_is_not_touched() {
    let fake = pristine();
    let before = fake.fs.tree_with_stamps();
    let (changed, report) = run(&context(&fake, &Arc::new(FakeCri::with_pods(0)))).await;
    assert_eq!(report.unwrap().left, []);
    assert!(!changed);
    assert_eq!(before.difference(&fake.fs.tree_with_stamps()), [""; 0]);
    assert_eq!(fake.network.removed(), [""; 0]);
}

/// C085: a first reset that failed took away what the second one needs.
#[tokio::test]
async fn a_reset_that_was_cut_short_after_any_step_is_finished_by_the_next() {
    let (fake, cri) = joined().await;
    let names: Vec<&str> = operation(&context(&fake, &cri)).steps.iter().map(|step| step.name).collect();
    for (cut, name) in names.iter().enumerate() {
        let (fake, cri) = joined().await;
        let first = context(&fake, &cri);
        for step in operation(&first).steps.into_iter().take(cut) {
            step.run(StepContext::silent()).await.unwrap();
        }
        let (_, report) = run(&context(&fake, &cri)).await;
        assert_eq!(report.unwrap().left, [], "cut before {name}");
        assert_eq!(tree(&pristine()).difference(&tree(&fake)), [""; 0], "cut before {name}");
        assert_eq!(fake.network.namespaces().unwrap(), ["netns-theirs"], "cut before {name}");
        assert_eq!(links(&fake).await, ["lo", "eth0", "cni0", "cni-podman0"], "cut before {name}");
    }
}

#[tokio::test]
async fn without_a_record_what_is_known_of_the_node_goes() {
    let (fake, cri) = joined().await;
    fake.fs.take(RECORD_PATH);
    let (_, report) = run(&context(&fake, &cri)).await;
    let report = report.unwrap();
    for path in [
        "/var/lib/kubelet/pki",
        "/var/lib/kubelet/kubeconfig",
        "/var/lib/kubelet/pods",
        "/opt/unbounded/node",
        "/etc/kubernetes/pki/apiserver-client-ca.crt",
        "/etc/aks-flex-node/daemon-state.json",
        sysctls::SYSCTL_FILE,
        "/opt/cni/bin/bridge",
        "/run/containerd/containerd.sock",
        EVIDENCE_PATH,
    ] {
        assert!(!fake.fs.exists(path), "{path}");
    }
    assert_eq!(fake.fs.text("/etc/fstab"), "/swap.img none swap sw 0 0\n");
    assert_eq!(fake.network.namespaces().unwrap(), ["netns-theirs"]);
    let kept: Vec<&str> = report.kept.iter().map(|kept| kept.what.as_str()).collect();
    for what in ["/var/lib/containerd", "the chain KUBE-FIREWALL in ip/filter"] {
        assert!(kept.contains(&what), "{what}: {kept:?}");
    }
}

/// C094: what was recorded is corrupt, and a reset is refused.
#[tokio::test]
async fn a_record_that_makes_no_sense_does_not_stop_it() {
    let (fake, cri) = joined().await;
    fake.fs.put(RECORD_PATH, "{\"version\": 1", 0o600);
    let report = run(&context(&fake, &cri)).await.1.unwrap();
    let told = |note: &String| note.starts_with("reset goes on without the record: ");
    assert!(report.notes.iter().any(told), "{:?}", report.notes);
    assert!(!fake.fs.exists(RECORD_PATH) && !fake.fs.exists("/var/lib/kubelet/pki"));
}

/// C082 and C088: an unmount fails, and what is on the volume is deleted all the same.
#[tokio::test]
async fn what_is_behind_a_mount_that_stays_is_not_deleted_and_the_reset_fails() {
    let (fake, cri) = joined().await;
    let volume = "/var/lib/kubelet/pods/u/volumes/v";
    fake.fs.put(format!("{volume}/data"), "precious", 0o644);
    fake.mounts.refuse(volume);
    let context = context(&fake, &cri);
    let error = run(&context).await.1.unwrap_err();
    assert!(error.starts_with("check: ") && error.contains("operation not permitted"), "{error}");
    assert_eq!(fake.fs.text(format!("{volume}/data")), "precious");
    // All the rest went, the credentials first of all; the record stays for the next run.
    assert!(!fake.fs.exists("/var/lib/kubelet/pki") && !fake.fs.exists("/var/lib/kubelet/pods/u/etc-hosts"));
    assert!(fake.fs.exists(RECORD_PATH));
    assert!(context.report().left.iter().any(|left| left.what.contains(volume)));
    assert_eq!(fake.network.namespaces().unwrap(), ["netns-theirs"]);
}

/// C089: a mount that never answers.
#[tokio::test(start_paused = true)]
async fn a_dead_mount_and_a_pod_that_does_not_end_take_no_longer_than_their_limits() {
    let (fake, cri) = joined().await;
    fake.mounts.hang("/var/lib/kubelet/pods/u/volumes/v");
    cri.trouble("pod-0", Trouble::Hang);
    let begin = tokio::time::Instant::now();
    let report = run(&context(&fake, &cri)).await.1.unwrap();
    assert!(begin.elapsed() < Duration::from_mins(2));
    assert_eq!(report.left, []);
}

/// Units of the node, with containerd running or not.
async fn with_units(fake: &FakeHost, containerd_runs: bool) {
    fake.systemd.lenient();
    for unit in [UNIT_CONTAINERD, UNIT_KUBELET] {
        let text = "[Service]\nExecStart=/bin/sh\n[Install]\nWantedBy=multi-user.target\n";
        fake.fs.put(Path::new("/etc/systemd/system").join(unit), text, 0o644);
        fake.systemd.enable(unit).await.unwrap();
    }
    fake.systemd.reload().await.unwrap();
    fake.systemd.start(UNIT_KUBELET, Duration::from_secs(1)).await.unwrap();
    if containerd_runs {
        fake.systemd.start(UNIT_CONTAINERD, Duration::from_secs(1)).await.unwrap();
    }
    fake.systemd.clear_calls();
}

#[tokio::test]
async fn pods_end_through_the_runtime_after_kubelet_was_stopped() {
    for runs in [true, false] {
        let (fake, cri) = joined().await;
        with_units(&fake, runs).await;
        let report = run(&context(&fake, &cri)).await.1.unwrap();
        assert!(cri.list_sandboxes(Duration::from_secs(1)).await.unwrap().is_empty());
        let calls = fake.systemd.calls();
        let at = |call: &str| calls.iter().position(|c| c == call);
        let (kubelet, containerd) = (at(&format!("stop {UNIT_KUBELET}")), at(&format!("stop {UNIT_CONTAINERD}")));
        assert!(kubelet.is_some() && kubelet < containerd, "{calls:?}");
        // It is started for the pods where it does not run, and only there.
        assert_eq!(at(&format!("start {UNIT_CONTAINERD}")).is_some(), !runs, "{calls:?}");
        assert_eq!(report.notes, [""; 0]);
        assert_eq!(tree(&pristine()).difference(&tree(&fake)), [""; 0]);
    }
}

#[tokio::test]
async fn a_runtime_that_does_not_answer_is_told_and_the_rest_goes() {
    let (fake, cri) = joined().await;
    with_units(&fake, true).await;
    cri.set_running(false);
    let report = run(&context(&fake, &cri)).await.1.unwrap();
    assert!(report.notes[0].starts_with("containerd did not list the pods"), "{:?}", report.notes);
    assert_eq!(tree(&pristine()).difference(&tree(&fake)), [""; 0]);
}

#[tokio::test]
async fn kubelet_that_cannot_be_stopped_does_not_keep_its_credentials() {
    let (fake, cri) = joined().await;
    with_units(&fake, true).await;
    fake.systemd.script_always(Verb::Stop, UNIT_KUBELET, Script::Refuse("job failed".into()));
    let error = run(&context(&fake, &cri)).await.1.unwrap_err();
    assert!(error.contains("stop kubelet"), "{error}");
    assert!(!fake.fs.exists("/var/lib/kubelet/pki") && !fake.fs.exists("/var/lib/kubelet/kubeconfig"));
}

#[tokio::test]
async fn the_service_goes_with_the_first_boot_unit() {
    let (fake, cri) = joined().await;
    let unit = "[Service]\nExecStart=/bin/sh\n[Install]\nWantedBy=multi-user.target\n";
    fake.fs.put(SERVICE_UNIT_PATH, unit, 0o644).put(crate::service::FIRST_BOOT_UNIT_PATH, unit, 0o644);
    run(&context(&fake, &cri)).await.1.unwrap();
    assert_eq!(tree(&pristine()).difference(&tree(&fake)), [""; 0]);
}

#[tokio::test]
async fn the_program_goes_when_it_is_asked_for() {
    let (fake, cri) = joined().await;
    let context = ResetContext::new(fake.host(), cri, Options { remove_agent: true, keep_images: true });
    run(&context).await.1.unwrap();
    assert!(!fake.fs.exists("/opt/unbounded"));
    assert!(fake.fs.exists("/var/lib/containerd"));
}

#[tokio::test]
async fn a_program_of_the_slots_becomes_a_regular_file() {
    let (fake, cri) = joined().await;
    let program = "/opt/unbounded/agent/bin/aks-flex-node";
    fake.fs.take(program).put("/opt/unbounded/agent/lib/aks-flex-node/aks-flex-node-blue", "program", 0o755);
    fake.fs.put_link("aks-flex-node-blue", "/opt/unbounded/agent/lib/aks-flex-node/aks-flex-node-current");
    fake.fs.put_link("../lib/aks-flex-node/aks-flex-node-current", program);
    run(&context(&fake, &cri)).await.1.unwrap();
    let stat = fake.fs.lstat(Path::new(program)).unwrap().unwrap();
    assert_eq!((stat.kind, stat.mode), (flexnode_host::FileKind::File, 0o755));
    assert_eq!(fake.fs.text(program), "program");
    assert!(!fake.fs.exists("/opt/unbounded/agent/lib"));
}

/// systemd reads its units again once for all that went, and once more only where it makes units of what was put back.
#[tokio::test]
async fn systemd_reloads_once_for_the_units_and_once_for_the_settings() {
    let (fake, cri) = joined().await;
    with_units(&fake, true).await;
    let unit = "[Service]\nExecStart=/bin/sh\n[Install]\nWantedBy=multi-user.target\n";
    fake.fs.put(SERVICE_UNIT_PATH, unit, 0o644);
    fake.systemd.reload().await.unwrap();
    fake.systemd.start(crate::service::SERVICE_UNIT_NAME, Duration::from_secs(1)).await.unwrap();
    fake.fs.put("/etc/fstab", "/swap.img none swap sw 0 0\n", 0o644);
    fake.systemd.clear_calls();
    run(&context(&fake, &cri)).await.1.unwrap();
    let reloads = |fake: &FakeHost| fake.systemd.calls().iter().filter(|call| *call == "reload").count();
    assert_eq!(reloads(&fake), 1, "{:?}", fake.systemd.calls());
    let service = fake.systemd.unit(crate::service::SERVICE_UNIT_NAME).await.unwrap();
    assert_eq!(service.load, "not-found");

    let (fake, cri) = joined().await;
    run(&context(&fake, &cri)).await.1.unwrap();
    assert_eq!(reloads(&fake), 1, "the swap line of /etc/fstab is a unit of systemd's");
}

/// A cluster with one Node.
#[derive(Debug)]
struct OneNode {
    node: Mutex<Option<NodeMachine>>,
    refuses: bool,
}

#[async_trait::async_trait]
impl Nodes for OneNode {
    async fn machine(&self, node: &str, _: Duration) -> Result<Option<NodeMachine>, ApiProblem> {
        assert_eq!(node, "n1");
        Ok(self.node.lock().unwrap().clone())
    }
    async fn delete(&self, _: &str, uid: &str, _: Duration) -> Result<(), ApiProblem> {
        assert_eq!(uid, "u-1");
        if self.refuses {
            return Err(ApiProblem::Forbidden("nodes \"n1\" is forbidden".into()));
        }
        self.node.lock().unwrap().take();
        Ok(())
    }
}

fn one_node(machine_id: &str, refuses: bool) -> Arc<OneNode> {
    let node = NodeMachine { uid: "u-1".into(), machine_id: machine_id.into() };
    Arc::new(OneNode { node: Mutex::new(Some(node)), refuses })
}

#[tokio::test]
async fn with_a_credential_that_may_the_node_is_deleted_after_kubelet_has_ended() {
    let (fake, cri) = joined().await;
    fake.fs.put("/etc/machine-id", "abc\n", 0o444);
    let nodes = one_node("abc", false);
    let context = context(&fake, &cri).deleting(nodes.clone());
    let names: Vec<&str> = operation(&context).steps.iter().map(|step| step.name).collect();
    let at = |name| names.iter().position(|step| *step == name).unwrap();
    assert!(at("stop-kubelet") < at("delete-node") && at("delete-node") < at("remove-record"));
    let report = run(&context).await.1.unwrap();
    assert!(report.node_deleted && nodes.node.lock().unwrap().is_none());
    assert_eq!(report.delete_node_command(), None);
}

#[tokio::test]
async fn the_node_of_another_machine_or_a_refusal_is_left_and_told() {
    for (machine, refuses, told) in [("another", false, "another machine"), ("abc", true, "forbidden")] {
        let (fake, cri) = joined().await;
        fake.fs.put("/etc/machine-id", "abc\n", 0o444);
        let nodes = one_node(machine, refuses);
        let context = context(&fake, &cri).deleting(nodes.clone());
        let error = run(&context).await.1.unwrap_err();
        assert!(error.contains("the Node n1 in the cluster"), "{error}");
        assert!(context.report().left[0].why.contains(told), "{:?}", context.report().left);
        assert!(nodes.node.lock().unwrap().is_some());
        // The name is still known to the next run.
        assert!(fake.fs.exists(RECORD_PATH));
        assert_eq!(context.report().delete_node_command().as_deref(), Some("kubectl delete node n1"));
    }
}

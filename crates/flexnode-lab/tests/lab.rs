//! The lab brings up what it says, and leaves nothing.

#![expect(clippy::unwrap_used, reason = "these are tests; the lint knows only functions that are marked as such")]

use flexnode_lab::process::Process;
use flexnode_lab::run::Stream;
use flexnode_lab::{ControlPlane, Host, Lab, control_plane, interrupt, lab, poll, snapshot};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_millis(20);

/// What a lab could leave on the outer machine.
struct Traces {
    namespaces: Vec<PathBuf>,
    groups: Vec<PathBuf>,
    processes: Vec<Process>,
    folder: PathBuf,
}

impl Traces {
    fn of(lab: &Lab, hosts: &[&Host]) -> Self {
        let names = hosts.iter().map(|host| host.namespace()).chain([lab.namespace()]);
        let namespaces: Vec<PathBuf> = names.map(|name| Path::new("/run/netns").join(name)).collect();
        let groups: Vec<PathBuf> = hosts.iter().flat_map(|host| host.cgroups()).collect();
        let processes = processes_of(&namespaces);
        assert!(namespaces.iter().chain(&groups).all(|path| path.exists()));
        Self { namespaces, groups, processes, folder: lab.folder().to_owned() }
    }

    fn assert_gone(&self) {
        let left: Vec<&PathBuf> =
            self.namespaces.iter().chain(&self.groups).chain([&self.folder]).filter(|path| path.exists()).collect();
        assert!(left.is_empty(), "left: {left:?}");
        assert!(self.processes.iter().all(|process| !process.alive()), "a process is left");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let folder = self.folder.to_str().unwrap();
        let names: Vec<&str> = self.namespaces.iter().map(|path| path.to_str().unwrap()).collect();
        let left: Vec<&str> = mounts
            .lines()
            .filter(|line| line.contains(folder) || names.iter().any(|name| line.contains(name)))
            .collect();
        assert!(left.is_empty(), "mounts are left: {left:?}");
    }
}

/// All processes whose network namespace is one of these.
fn processes_of(namespaces: &[PathBuf]) -> Vec<Process> {
    let wanted: BTreeSet<u64> = namespaces.iter().map(|path| inode(path)).collect();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let path = format!("/proc/{pid}/ns/net");
        std::fs::metadata(path).is_ok_and(|meta| wanted.contains(&std::os::unix::fs::MetadataExt::ino(&meta)))
    })
    .filter_map(Process::find)
    .collect()
}

fn inode(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap())
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn a_control_plane_and_two_hosts() {
    let lab = Lab::new().unwrap();
    let started = Instant::now();
    let control_plane = ControlPlane::new(&lab, &control_plane::Options::default()).unwrap();
    eprintln!("control plane: {:.1} s", started.elapsed().as_secs_f32());
    let started = Instant::now();
    let (one, two) = (Host::new(&lab, "one").unwrap(), Host::new(&lab, "two").unwrap());
    eprintln!("two hosts: {:.1} s", started.elapsed().as_secs_f32());

    let version = control_plane.kubectl(&["version"]).unwrap().success().unwrap();
    assert!(version.stdout.contains("Server Version: v1.36.3"), "{}", version.stdout);
    assert_eq!(control_plane.get(&["nodes"]).unwrap()["items"].as_array().unwrap().len(), 0);
    let token = control_plane.add_token(&control_plane::Token::default()).unwrap();
    let seen = lab.in_network(|| std::net::TcpStream::connect(control_plane.address()).map(|_| ())).unwrap();
    assert!(seen.is_ok(), "{seen:?}");

    assert_ne!(one.address(), two.address());
    assert_eq!(one.exec(&["hostname"]).unwrap().stdout, "one\n");
    assert_eq!(one.exec(&["systemctl", "is-system-running"]).unwrap().stdout, "running\n");
    one.sh(&format!("timeout 5 bash -c '</dev/tcp/{}/22' || [ $? = 1 ]", two.address())).unwrap().success().unwrap();
    two.sh(&format!("timeout 5 bash -c '</dev/tcp/{}/6443'", lab.gateway())).unwrap().success().unwrap();
    one.put("/etc/some/file", "text", 0o640).unwrap();
    assert_eq!(one.read("/etc/some/file").unwrap(), "text");
    assert_eq!(one.exec(&["stat", "-c", "%a %U", "/etc/some/file"]).unwrap().stdout, "640 root\n");
    assert!(two.read("/etc/some/file").is_err());
    assert_eq!(std::fs::read_to_string(one.path("/etc/some/file")).unwrap(), "text");

    // Settings of the kernel are the host's own, and commands are in a group of the host.
    let outside = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap();
    one.sh("echo 2 >/proc/sys/vm/overcommit_memory").unwrap().success().unwrap();
    assert_eq!(one.read("/proc/sys/vm/overcommit_memory").unwrap(), "2\n");
    assert_eq!(two.read("/proc/sys/vm/overcommit_memory").unwrap(), outside);
    assert_eq!(std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap(), outside);
    let groups = one.read("/proc/self/cgroup").unwrap();
    assert!(groups.lines().all(|line| line.ends_with(":/lab")), "{groups}");
    one.sh("mkdir /sys/fs/cgroup/memory/kubepods && rmdir /sys/fs/cgroup/memory/kubepods").unwrap().success().unwrap();

    assert!(token.len() == 23);
    let traces = Traces::of(&lab, &[&one, &two]);
    assert!(traces.processes.len() > 8);
    drop(control_plane);
    drop((one, two));
    drop(lab);
    traces.assert_gone();
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn commands_stream_and_can_be_killed() {
    let lab = Lab::new().unwrap();
    let host = Host::new(&lab, "host").unwrap();
    let mut seen = Vec::new();
    let output = host.exec_streaming(&["sh", "-c", "echo out; echo err >&2; exit 7"], |stream, bytes| {
        seen.push((stream, bytes.to_vec()));
    });
    assert_eq!(output.unwrap().code, 7);
    assert!(seen.contains(&(Stream::Stderr, b"err\n".to_vec())));

    let running = host.spawn(&["sh", "-c", "echo $$ >/run/its-pid; exec sleep 600"]).unwrap();
    let pid = poll(Duration::from_secs(10), SOON, "the command's pid", || {
        Ok(Some(host.read("/run/its-pid")?.trim().to_owned()).filter(|pid| !pid.is_empty()))
    })
    .unwrap();
    let process = running.process().unwrap();
    assert_eq!(
        std::fs::read_link(format!("/proc/{}/ns/pid", process.pid)).unwrap(),
        std::fs::read_link(format!("/proc/{}/ns/pid", host.leader().pid)).unwrap()
    );
    assert_eq!(running.kill().unwrap().code, 137);
    assert_ne!(host.exec(&["test", "-e", &format!("/proc/{pid}")]).unwrap().code, 0);
    assert!(!process.alive());
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn a_panic_leaves_nothing() {
    let traces = std::sync::Mutex::new(None);
    let result = std::panic::catch_unwind(|| {
        let lab = Lab::new().unwrap();
        let host = Host::new(&lab, "host").unwrap();
        // Something that ignores being asked, in a namespace and a mount of its own, as a pod has them.
        host.sh(
            "ip netns add pod; mount -t tmpfs x /mnt; systemd-run --unit=stubborn sh -c 'trap \"\" TERM; sleep 600'",
        )
        .unwrap()
        .success()
        .unwrap();
        *traces.lock().unwrap() = Some(Traces::of(&lab, &[&host]));
        panic!("on purpose");
    });
    assert!(result.is_err());
    traces.into_inner().unwrap().unwrap().assert_gone();
}

/// Run by the next tests in a process of its own.
#[test]
#[ignore = "is run by the tests that kill it"]
fn a_lab_that_will_be_killed() {
    let Some(file) = std::env::var_os("FLEXNODE_LAB_TEST_FILE").map(PathBuf::from) else { return };
    interrupt::install().unwrap();
    let lab = Lab::new().unwrap();
    let control_plane = ControlPlane::new(&lab, &control_plane::Options::default()).unwrap();
    let host = Host::new(&lab, "host").unwrap();
    let traces = Traces::of(&lab, &[&host]);
    let mut lines = vec![lab.folder().display().to_string()];
    lines.extend(traces.namespaces.iter().chain(&traces.groups).map(|path| path.display().to_string()));
    lines.extend(traces.processes.iter().map(|process| format!("{} {}", process.pid, process.start)));
    std::fs::write(file.with_extension("new"), lines.join("\n")).unwrap();
    std::fs::rename(file.with_extension("new"), &file).unwrap();
    control_plane.wait_ready("a-node-that-never-comes", Duration::from_secs(600)).unwrap();
}

/// A process with a lab in it, and the traces of that.
fn lab_of_another_process() -> (Child, Traces) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("traces");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_lab_that_will_be_killed", "--ignored"]).env("FLEXNODE_LAB_TEST_FILE", &file);
    // Interrupted, it fails as it should; its words would only confuse.
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let read = || Ok(Some(std::fs::read_to_string(&file)?));
    let lines = poll(Duration::from_secs(300), SOON, "the other process's lab", read).unwrap();
    let (paths, numbers): (Vec<&str>, Vec<&str>) = lines.lines().partition(|line| line.starts_with('/'));
    let (namespaces, rest): (Vec<PathBuf>, Vec<PathBuf>) =
        paths.iter().map(PathBuf::from).partition(|path| path.starts_with("/run/netns"));
    let processes = numbers.iter().map(|line| {
        let (pid, start) = line.split_once(' ').unwrap();
        Process { pid: pid.parse().unwrap(), start: start.parse().unwrap() }
    });
    let processes: Vec<Process> = processes.collect();
    assert!(processes.len() > 8, "etcd, the API server and the host's processes");
    (child, Traces { processes, namespaces, groups: rest[1..].to_vec(), folder: rest[0].clone() })
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn what_a_killed_lab_left_is_swept() {
    let (mut child, traces) = lab_of_another_process();
    child.kill().unwrap();
    child.wait().unwrap();
    // Another test that starts may sweep it at the same time.
    poll(Duration::from_secs(60), SOON, "the sweep", || {
        lab::sweep()?;
        Ok((!traces.folder.exists()).then_some(()))
    })
    .unwrap();
    traces.assert_gone();
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn an_interrupted_lab_cleans_up() {
    let (mut child, traces) = lab_of_another_process();
    let process = Process::find(child.id().cast_signed()).unwrap();
    process.signal(rustix::process::Signal::INT).unwrap();
    assert!(!child.wait().unwrap().success());
    traces.assert_gone();
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn a_kept_lab_stays_until_it_is_released() {
    let lab = Lab::new().unwrap();
    let control_plane = ControlPlane::new(&lab, &control_plane::Options::default()).unwrap();
    lab.keep().unwrap();
    drop(control_plane);
    drop(Host::new(&lab, "host").unwrap());
    lab::sweep().unwrap();
    let (control_plane, host) = (ControlPlane::open(&lab).unwrap(), Host::open(&lab, "host").unwrap());
    assert_eq!(host.exec(&["hostname"]).unwrap().stdout, "host\n");
    drop((control_plane, host));
    let (control_plane, host) = (ControlPlane::open(&lab).unwrap(), Host::open(&lab, "host").unwrap());
    assert_eq!(control_plane.kubectl(&["get", "nodes"]).unwrap().code, 0);
    assert_eq!(control_plane.token().unwrap().len(), 23);
    let traces = Traces::of(&lab, &[&host]);
    lab.release().unwrap();
    drop((control_plane, host, lab));
    traces.assert_gone();
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn a_snapshot_sees_every_kind_of_change() {
    let lab = Lab::new().unwrap();
    let host = Host::new(&lab, "host").unwrap();
    let before = host.snapshot().unwrap();
    let started = Instant::now();
    let again = host.snapshot().unwrap();
    eprintln!("snapshot of {} things: {:.1} s", again.things.len(), started.elapsed().as_secs_f32());
    assert_eq!(snapshot::diff(&before, &again), Vec::<String>::new(), "looking changes nothing");
    host.sh(
        "set -e; echo more >>/etc/hosts; touch /etc/new; chmod 600 /etc/fstab; rm /etc/debian_version; mount -t tmpfs x /mnt
        systemd-run --unit=extra sleep 600; ip link add cni0 type bridge; ip netns add pod; nft add table ip lab
        iptables -N SOME; echo 2 >/proc/sys/kernel/panic; mkdir /sys/fs/cgroup/memory/kubepods; ip route add 10.9.0.0/16 dev eth0",
    )
    .unwrap()
    .success()
    .unwrap();
    let lines = snapshot::diff(&before, &host.snapshot().unwrap());
    for expected in [
        "~ file /etc/hosts:",
        "+ file /etc/new: file of 0 bytes",
        "~ file /etc/fstab:",
        "- file /etc/debian_version:",
        "+ mount /mnt: tmpfs",
        "+ unit extra.service: loaded active running",
        "+ process /usr/bin/sleep 600",
        "+ cgroup memory /kubepods",
        "+ link cni0: bridge",
        "+ netns pod",
        "+ nft table ip lab",
        "+ nft table ip filter / chain SOME",
        "~ setting kernel/panic:",
        "+ route 10.9.0.0/16 dev eth0",
    ] {
        assert!(lines.iter().any(|line| line.starts_with(expected)), "no {expected:?} in {lines:#?}");
    }
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn a_host_boots_again_on_its_tree() {
    let lab = Lab::new().unwrap();
    let mut host = Host::new(&lab, "host").unwrap();
    for hard in [false, true] {
        host.sh("date +%N >/root/stays; touch /run/goes; sync").unwrap().success().unwrap();
        let (written, boot) = (host.read("/root/stays").unwrap(), host.leader().clone());
        host.reboot(hard).unwrap();
        assert!(!boot.alive());
        assert_eq!(host.read("/root/stays").unwrap(), written);
        assert!(host.read("/run/goes").is_err());
        host.sh(&format!("timeout 5 ip route get {}", lab.gateway())).unwrap().success().unwrap();
    }
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn requests_can_be_left_pending_and_programs_stopped() {
    let lab = Lab::new().unwrap();
    let options = control_plane::Options { manual_approval: true, ..control_plane::Options::default() };
    let control_plane = ControlPlane::new(&lab, &options).unwrap();
    assert_eq!(control_plane.pending_requests().unwrap(), Vec::<String>::new());
    let folder = tempfile::tempdir().unwrap();
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-new",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "key",
        "-out",
        "csr",
        "-subj",
        "/O=system:nodes/CN=system:node:n",
    ]);
    assert!(openssl.current_dir(folder.path()).output().unwrap().status.success());
    let request = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        std::fs::read(folder.path().join("csr")).unwrap(),
    );
    let object = serde_json::json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "n"},
        "spec": {"request": request, "signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": ["digital signature", "client auth"]},
    });
    // Not as administrator: what that may ask for is approved.
    let who =
        ["--as=system:bootstrap:abcdef", "--as-group=system:bootstrappers:lab", "--as-group=system:authenticated"];
    let words: Vec<&str> = ["create", "-f", "-"].into_iter().chain(who).collect();
    control_plane.kubectl_with(&words, object.to_string().as_bytes()).unwrap().success().unwrap();
    assert_eq!(control_plane.pending_requests().unwrap(), ["n"]);
    control_plane.approve("n").unwrap();
    assert_eq!(control_plane.pending_requests().unwrap(), Vec::<String>::new());

    control_plane.stop(control_plane::Program::ApiServer).unwrap();
    assert_ne!(control_plane.kubectl(&["get", "nodes"]).unwrap().code, 0);
    control_plane.start(control_plane::Program::ApiServer).unwrap();
    assert_eq!(control_plane.kubectl(&["get", "nodes"]).unwrap().code, 0);
}

//! What needs PID 1, root and real programs: run in a host of the lab.
//!
//! Build with `cargo test -p flexnode-isolation --features testing --test system --no-run`, copy the program into a host and
//! run it there with `--ignored --test-threads=1`. The conformance suite takes kubelet, containerd,
//! containerd-shim-runc-v2 and runc from the directory that FLEXNODE_TEST_PROGRAMS names.

#![expect(clippy::unwrap_used, reason = "these are tests; the lint knows only functions that are marked as such")]

use async_trait::async_trait;
use flexnode_host::{Command, Host, durable};
use flexnode_isolation::conformance::{CHECKS, Slot, Subject};
use flexnode_isolation::none::encode::{self, Word};
use flexnode_isolation::none::{
    Backend, Hook, Install, LAUNCH_CHECK_REFUSED, Layout, UNIT_CONTAINERD, UNIT_KUBELET, UNIT_KUBELET_LAUNCH_CHECK,
    UNIT_LOCAL_DNS, UnitSpec, Written, drop_in_dir, remove_all, write_drop_ins, write_units,
};
use flexnode_isolation::{Error, NodeRoot, NodeSpec, SlotRef};
use flexnode_ops::{Outcome, StepError};
use std::path::{Path, PathBuf};
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);
const UNIT_DIR: &str = "/etc/systemd/system";
const TEST_UNIT: &str = "flexnode-test-encode.service";

/// Values in which something means something to systemd.
const NASTY: [&str; 16] = [
    "plain",
    "",
    "two words",
    " space around ",
    r#"say "hi""#,
    "it's",
    "100%",
    "%n %% %H",
    "$HOME and ${HOME} and $$",
    r"back\slash and \x41 and \n",
    ";",
    "a;b",
    "#hash",
    "=x=",
    "--flag=v w",
    "ä ö €",
];

fn write(host: &Host, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>, mode: u32) {
    durable::ensure_dir(&*host.fs, path.as_ref().parent().unwrap(), 0o755).unwrap();
    durable::write(&*host.fs, path.as_ref(), bytes.as_ref(), mode).unwrap();
}

/// Loads a oneshot of these lines, runs it, and gives back what it wrote.
async fn run_unit(host: &Host, service: &str) -> Vec<u8> {
    let out = "/run/flexnode-test-encode.out";
    let text = format!("[Service]\nType=oneshot\nStandardOutput=truncate:{out}\n{service}");
    write(host, Path::new(UNIT_DIR).join(TEST_UNIT), text, 0o644);
    host.systemd.reload().await.unwrap();
    host.systemd.start(TEST_UNIT, WAIT).await.unwrap();
    host.fs.read(Path::new(out), 1 << 20).unwrap().unwrap()
}

fn joined<S: AsRef<str>>(words: &[S]) -> Vec<u8> {
    words.iter().flat_map(|word| [word.as_ref().as_bytes(), b"\0"].concat()).collect()
}

#[tokio::test]
#[ignore = "needs a systemd host"]
async fn every_argument_reaches_the_program_as_it_was() {
    let host = Host::real();
    let argv: Vec<&str> = ["/usr/bin/printf", r"%s\0"].into_iter().chain(NASTY).collect();
    let line = encode::command_line_of(&argv).unwrap();
    assert_eq!(run_unit(&host, &format!("ExecStart={line}\n")).await, joined(&NASTY));
    // And systemd shows it as it is compared after a start.
    let loaded: Vec<String> = argv.iter().map(|word| Word::literal(*word).loaded()).collect();
    assert_eq!(host.systemd.unit(TEST_UNIT).await.unwrap().exec_start, loaded);
}

#[tokio::test]
#[ignore = "needs a systemd host"]
async fn a_program_in_a_path_with_blanks_and_percent_signs_is_found() {
    let host = Host::real();
    let program = "/run/flexnode test/50%/a #=;ä/echo";
    write(&host, program, "#!/bin/sh\nprintf '%s' \"$1\"\n", 0o755);
    let line = encode::command_line_of(&[program, "x y"]).unwrap();
    assert_eq!(run_unit(&host, &format!("ExecStart={line}\n")).await, b"x y");
}

#[tokio::test]
#[ignore = "needs a systemd host"]
async fn every_environment_value_reaches_the_program_as_it_was() {
    let host = Host::real();
    let lines = NASTY.iter().enumerate().map(|(i, value)| {
        let entry = encode::environment(&format!("NASTY_{i:02}"), value).unwrap();
        format!("Environment={entry}")
    });
    let service = lines.collect::<Vec<_>>().join("\n");
    let out = run_unit(&host, &format!("{service}\nExecStart=/usr/bin/env -0\n")).await;
    for (i, value) in NASTY.iter().enumerate() {
        let wanted = format!("NASTY_{i:02}={value}");
        assert!(out.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()), "{wanted}");
    }
}

#[tokio::test]
#[ignore = "needs a systemd host"]
async fn variables_are_split_into_words_and_an_empty_or_missing_one_is_none() {
    let host = Host::real();
    let file = Path::new("/run/flexnode test/50%/the env");
    write(&host, file, "FULL=\"--node-ip=10.0.0.1 --hostname-override=n1\"\nEMPTY=\"\"\n", 0o644);
    let words = [
        Word::literal("/usr/bin/printf"),
        Word::literal(r"%s\0"),
        Word::Variable("FULL"),
        Word::Variable("EMPTY"),
        Word::Variable("MISSING"),
    ];
    let (line, path) = (encode::command_line(&words).unwrap(), encode::path(file).unwrap());
    let out = run_unit(&host, &format!("EnvironmentFile={path}\nExecStart={line}\n")).await;
    assert_eq!(out, joined(&["--node-ip=10.0.0.1", "--hostname-override=n1"]));
}

fn spec() -> UnitSpec {
    UnitSpec::of(&Layout::default())
}

fn write_all(host: &Host, spec: &UnitSpec) -> Vec<Written> {
    let dir = Path::new(UNIT_DIR);
    vec![write_units(&*host.fs, dir, spec).unwrap(), write_drop_ins(&*host.fs, dir, spec).unwrap()]
}

/// Stops and removes what a test made.
async fn clean(host: &Host) {
    for unit in [UNIT_KUBELET, UNIT_KUBELET_LAUNCH_CHECK, UNIT_CONTAINERD, UNIT_LOCAL_DNS] {
        host.systemd.stop(unit, WAIT).await.unwrap();
        host.systemd.reset_failed(unit).await.unwrap();
        durable::remove_tree(&*host.fs, &drop_in_dir(Path::new(UNIT_DIR), unit)).unwrap();
    }
    remove_all(&*host.fs, Path::new(UNIT_DIR)).unwrap();
    durable::remove_tree(&*host.fs, Path::new("/opt/unbounded")).unwrap();
    host.systemd.reload().await.unwrap();
}

#[tokio::test]
#[ignore = "needs a systemd host"]
async fn systemd_loads_every_unit_as_it_was_meant() {
    let host = Host::real();
    clean(&host).await;
    let spec = UnitSpec {
        local_dns: true,
        gpu_setup: vec![vec!["/usr/bin/true".into(), "a b".into()]],
        launch_check_command: Some("/usr/bin/true --node %H".into()),
        ..spec()
    };
    write_all(&host, &spec);
    host.systemd.reload().await.unwrap();
    for unit in [UNIT_CONTAINERD, UNIT_KUBELET, UNIT_LOCAL_DNS] {
        let state = host.systemd.unit(unit).await.unwrap();
        let meant: Vec<String> = spec.command(unit).unwrap().iter().map(Word::loaded).collect();
        assert_eq!((state.load.as_str(), state.exec_start, state.need_reload), ("loaded", meant, false), "{unit}");
        let path = "PATH=/opt/unbounded/node/current/bin:";
        assert!(state.environment.iter().any(|entry| entry.starts_with(path)), "{unit} {:?}", state.environment);
    }
    // Nothing in them is unknown to this systemd.
    let names = [UNIT_CONTAINERD, UNIT_KUBELET, UNIT_LOCAL_DNS, UNIT_KUBELET_LAUNCH_CHECK];
    let output =
        host.commands.run(&Command::new("systemd-analyze", ["verify"].into_iter().chain(names))).await.unwrap();
    let complaints = String::from_utf8(output.stderr).unwrap();
    for line in complaints.lines() {
        let expected = ["is not executable", "Failed to create", "unbounded-localdns-network.service"];
        assert!(expected.iter().any(|text| line.contains(text)), "{line}");
    }
    clean(&host).await;
}

/// Stand-ins: one that notifies and stays, one that stays.
async fn stand_ins(host: &Host) {
    clean(host).await;
    let bin = Path::new("/opt/unbounded/node/v1/bin");
    let notifies = "#!/bin/sh\nexec systemd-notify --ready --exec ';' sleep infinity\n";
    write(host, bin.join("containerd"), notifies, 0o755);
    write(host, bin.join("kubelet"), "#!/bin/sh\nexec sleep infinity\n", 0o755);
    write(host, "/opt/unbounded/node/v1/etc/kubelet/env", "", 0o644);
    durable::replace_link(&*host.fs, Path::new("v1"), Path::new("/opt/unbounded/node/current")).unwrap();
}

#[tokio::test]
#[ignore = "needs a systemd host"]
async fn a_final_refusal_of_the_launch_check_fails_kubelets_start_and_does_not_loop() {
    let host = Host::real();
    stand_ins(&host).await;
    let check = "/run/flexnode-test-check";
    let counting = |end: &str| format!("#!/bin/sh\necho x >> /run/flexnode-test-checks\n{end}\n");
    let runs = || host.fs.read(Path::new("/run/flexnode-test-checks"), 1 << 10).unwrap().unwrap_or_default().len() / 2;
    durable::remove_file(&*host.fs, Path::new("/run/flexnode-test-checks")).unwrap();
    write(&host, check, counting(&format!("exit {LAUNCH_CHECK_REFUSED}")), 0o755);
    write_all(&host, &UnitSpec { launch_check_command: Some(check.into()), ..spec() });
    host.systemd.reload().await.unwrap();
    assert!(host.systemd.start(UNIT_KUBELET, WAIT).await.is_err());
    let state = host.systemd.unit(UNIT_KUBELET).await.unwrap();
    assert_eq!((state.active.as_str(), state.restarts, runs()), ("inactive", 0, 1));
    assert_eq!(host.systemd.unit(UNIT_KUBELET_LAUNCH_CHECK).await.unwrap().exit_status, LAUNCH_CHECK_REFUSED);
    // A failure that is not final is tried again while kubelet's start waits.
    write(&host, check, counting("[ $(wc -l < /run/flexnode-test-checks) -gt 2 ]"), 0o755);
    host.systemd.reset_failed(UNIT_KUBELET_LAUNCH_CHECK).await.unwrap();
    host.systemd.start(UNIT_KUBELET, WAIT).await.unwrap();
    assert!(host.systemd.unit(UNIT_KUBELET).await.unwrap().is_active());
    let before = runs();
    assert_eq!(before, 3);
    // It runs before every start.
    host.systemd.restart(UNIT_KUBELET, WAIT).await.unwrap();
    assert_eq!(runs(), before + 1);
    clean(&host).await;
}

#[tokio::test]
#[ignore = "needs a systemd host"]
async fn a_gpu_setup_that_fails_fails_containerds_start_and_is_tried_again() {
    let host = Host::real();
    stand_ins(&host).await;
    let mark = "/run/flexnode-test-driver";
    durable::remove_file(&*host.fs, Path::new(mark)).unwrap();
    let setup = vec![vec!["/usr/bin/test".into(), "-e".into(), mark.into()]];
    write_all(&host, &UnitSpec { gpu_setup: setup, ..spec() });
    host.systemd.reload().await.unwrap();
    assert!(host.systemd.start(UNIT_CONTAINERD, WAIT).await.is_err());
    write(&host, mark, "", 0o644);
    let active = flexnode_host::poll(&*host.clock, Duration::from_millis(100), WAIT, || async {
        let state = host.systemd.unit(UNIT_CONTAINERD).await?;
        Ok::<_, flexnode_host::HostError>(state.is_active().then_some(()))
    });
    assert!(active.await.unwrap().is_some(), "Restart= did not try again");
    clean(&host).await;
}

/// The backend with real programs.
struct Real {
    backend: Backend,
    host: Host,
}

impl Real {
    fn new() -> Self {
        let host = Host::real();
        let mut backend = Backend::new_default(host.clone(), tracing::Span::none());
        let programs = PathBuf::from(std::env::var_os("FLEXNODE_TEST_PROGRAMS").expect("FLEXNODE_TEST_PROGRAMS"));
        let fs = host.fs.clone();
        backend.install = Install::new(move |_, root| {
            let (fs, programs) = (fs.clone(), programs.clone());
            async move {
                let put = || -> Result<(), flexnode_host::FsError> {
                    for name in ["kubelet", "containerd", "containerd-shim-runc-v2", "runc"] {
                        let to = root.path(&Path::new("/usr/local/bin").join(name));
                        let mut from = fs.open(&programs.join(name))?;
                        durable::copy_hashed(&*fs, &mut *from, &to, 0o755, None)?;
                    }
                    for (name, text) in [
                        ("kubelet/config.yaml", KUBELET_CONFIG),
                        ("kubelet/env", "KUBELET_NODE_CONFIG_ARGS=\"--hostname-override=conformance\"\n"),
                        ("containerd/config.toml", "version = 2\n"),
                    ] {
                        let path = root.config(name);
                        durable::ensure_dir(&*fs, path.parent().unwrap(), 0o755)?;
                        durable::write(&*fs, &path, text.as_bytes(), 0o644)?;
                    }
                    Ok(())
                };
                put().map_err(|e| StepError::caused("the programs could not be installed", e))?;
                Ok(Outcome::Changed(root.slot().to_owned()))
            }
        });
        Self { backend, host }
    }
}

/// A kubelet without a cluster: it runs static pods only.
const KUBELET_CONFIG: &str = "\
kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
";

#[async_trait]
impl Subject for Real {
    fn backend(&self) -> &dyn flexnode_isolation::Backend {
        &self.backend
    }
    fn host(&self) -> &Host {
        &self.host
    }
    fn spec(&self, which: Slot) -> NodeSpec {
        let slot = if which == Slot::One { "1.0.0-aaaaaaaa" } else { "1.0.1-bbbbbbbb" };
        NodeSpec { slot: slot.into(), ..NodeSpec::default() }
    }
    fn units(&self) -> Vec<String> {
        [UNIT_CONTAINERD, UNIT_KUBELET].map(String::from).to_vec()
    }
    fn watched(&self) -> Vec<PathBuf> {
        ["/etc/systemd", "/etc/unbounded", "/opt/unbounded", "/opt/cni"].map(PathBuf::from).to_vec()
    }
    async fn break_start(&self, unit: &str, broken: bool) {
        let drop_in = drop_in_dir(Path::new(UNIT_DIR), unit).join("99-broken.conf");
        if broken {
            write(&self.host, &drop_in, "[Service]\nRestart=no\nExecStartPre=/bin/false\n", 0o644);
        } else {
            durable::remove_file(&*self.host.fs, &drop_in).unwrap();
        }
        self.host.systemd.reload().await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs a systemd host"]
async fn the_backend_conforms_on_a_real_host() {
    let subject = Real::new();
    clean(&subject.host).await;
    for check in CHECKS {
        let began = std::time::Instant::now();
        let verdict = check.run(&subject).await;
        println!("{:7.3} s {}", began.elapsed().as_secs_f32(), check.name);
        assert_eq!(verdict, Ok(()), "{}", check.name);
    }
}

#[tokio::test]
#[ignore = "needs a systemd host"]
async fn an_upgrade_switches_and_a_failed_one_returns() {
    let subject = Real::new();
    clean(&subject.host).await;
    let (backend, one, two) = (&subject.backend, subject.spec(Slot::One), subject.spec(Slot::Two));
    let runs = |slot: &NodeSpec| {
        let wanted = format!("/opt/unbounded/node/{}/bin/", slot.slot);
        let all = subject.host.processes.list().unwrap();
        ["kubelet", "containerd"].iter().all(|name| all.iter().any(|p| p.exe == Path::new(&wanted).join(name)))
    };
    backend.prepare(&one).await.unwrap();
    backend.activate(&one).await.unwrap();
    backend.start().await.unwrap();
    backend.prepare_version(&two).await.unwrap();
    assert!(runs(&one));
    let began = std::time::Instant::now();
    backend.upgrade(&two, Hook::default()).await.unwrap();
    println!("upgrade in {:.3} s", began.elapsed().as_secs_f32());
    assert!(runs(&two) && !runs(&one));
    let not_ready = Hook::new(WAIT, |_| async { Err(StepError::new("not ready")) });
    let Err(Error::RolledBack(error)) = backend.upgrade(&one, not_ready).await else {
        panic!("it was not rolled back")
    };
    assert!(error.rollback.is_empty(), "{error}");
    assert!(runs(&two) && !runs(&one));
    assert_eq!(backend.current().unwrap().as_deref(), Some(two.slot.as_str()));
    // The next upgrade to what runs does nothing.
    let pid = subject.host.systemd.unit(UNIT_KUBELET).await.unwrap().main_pid;
    backend.upgrade(&two, Hook::default()).await.unwrap();
    assert_eq!(subject.host.systemd.unit(UNIT_KUBELET).await.unwrap().main_pid, pid);
    backend.rollback(&one.slot).await.unwrap();
    assert!(runs(&one));
    backend.destroy().await.unwrap();
    assert!(!runs(&one) && !runs(&two));
}

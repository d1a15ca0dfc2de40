//! Every step of the backend's operations, crashed, failed and hung on a host with a real systemd, between two versions
//! whose units differ: LocalDNS, GPU setup and the launch check come and go.
//!
//! It runs in a host of the lab, with `--ignored` and `FLEXNODE_TEST_HOST=1`. The program is everything itself: without
//! arguments of its own it leads; with `do` or `recover` it is the process that a point ends, or the one that comes after;
//! named kubelet or containerd it stands in for them, so that the processes of a version run that version's files.
//!
//! `FLEXNODE_SEED` chooses which points run besides the crashes before each step, `FLEXNODE_TEST_ALL=1` runs all.

#![expect(clippy::unwrap_used, reason = "this is a test; the lint knows only functions that are marked as such")]

use flexnode_host::{Host, durable};
use flexnode_isolation::NodeSpec;
use flexnode_isolation::none::{
    Backend, Install, Layout, Level, RollbackUnits, UNIT_CONTAINERD, UNIT_KUBELET, UNIT_LOCAL_DNS, UnitSpec,
    UpgradeRequest, manifest, write_drop_ins, write_units,
};
use flexnode_ops::{Cancel, Engine, Mode, Operation, Outcome, PlanLine, Recovery, Resolution, RunOutcome, Silent};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The version with everything, and the one with nothing.
const FULL: &str = "1.0.0-aaaaaaaa";
const PLAIN: &str = "1.0.1-bbbbbbbb";
const UNIT_DIR: &str = "/etc/systemd/system";
const NETWORK_UNIT: &str = "unbounded-localdns-network.service";
/// What a person added to a unit of ours, which nobody else may touch.
const PERSONS: &str = "/etc/systemd/system/unbounded-kubelet.service.d/99-person.conf";
const OPERATIONS: [&str; 5] = ["upgrade", "rollback", "restart", "stop", "start-node"];
const KILLED: i32 = 9;
/// More failures than these say nothing new.
const ENOUGH: usize = 5;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    match Path::new(&words[0]).file_name().and_then(|name| name.to_str()) {
        Some("kubelet") => stand_in(false),
        Some("containerd") => stand_in(true),
        _ => {}
    }
    match words.get(1).map(String::as_str) {
        Some("do") => return block_on(run(&words[2])),
        Some("recover") => return block_on(recover()),
        Some("--list") => {
            println!("every_point_between_versions_with_other_units: test\n\n1 test, 0 benchmarks");
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    if !words.iter().any(|word| word == "--ignored") || std::env::var_os("FLEXNODE_TEST_HOST").is_none() {
        println!("test every_point_between_versions_with_other_units ... ignored, needs a systemd host to itself");
        return ExitCode::SUCCESS;
    }
    let failures = lead();
    for failure in &failures {
        println!("{failure}\n");
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Says that it is ready, as sd_notify(3) does, and stays.
fn stand_in(notifies: bool) -> ! {
    if notifies {
        let path = std::env::var_os("NOTIFY_SOCKET").unwrap();
        UnixDatagram::unbound().unwrap().send_to(b"READY=1", path).unwrap();
    }
    loop {
        std::thread::park();
    }
}

fn units_of(slot: &str) -> UnitSpec {
    let plain = UnitSpec::of(&Layout::default());
    if slot != FULL {
        return plain;
    }
    UnitSpec {
        local_dns: true,
        gpu_setup: vec![vec!["/usr/bin/true".into(), "a b".into()]],
        launch_check_command: Some("/usr/bin/true --node %H".into()),
        ..plain
    }
}

/// A backend that goes to `slot`, with a journal.
fn backend(slot: &str) -> Backend {
    let host = Host::real();
    let mut backend = Backend::new_default(host.clone(), tracing::Span::none());
    backend.units = units_of(slot);
    backend.rollback_units = RollbackUnits::Recorded;
    backend.engine = Some(Engine::new(&host, "command", Cancel::new()).unwrap());
    let full = slot == FULL;
    backend.install = Install::new(move |_, root| {
        let fs = host.fs.clone();
        async move {
            let own = std::env::current_exe().unwrap();
            for name in ["kubelet", "containerd"] {
                let to = flexnode_isolation::NodeRoot::path(&root, &Path::new("/usr/local/bin").join(name));
                durable::copy_hashed(&*fs, &mut *fs.open(&own).unwrap(), &to, 0o755, None).unwrap();
            }
            let mut files =
                vec![("kubelet/env", ""), ("kubelet/config.yaml", "{}\n"), ("containerd/config.toml", "\n")];
            files.push(if full { ("full", "yes\n") } else { ("plain", "yes\n") });
            for (name, text) in files {
                put(&flexnode_isolation::NodeRoot::config(&root, name), text, 0o644);
            }
            if full {
                let supervisor = "#!/bin/sh\nexec systemd-notify --ready --exec ';' sleep infinity\n";
                let dir = Path::new("/opt/unbounded/node").join(FULL).join("libexec");
                put(&dir.join("localdns-supervisor"), supervisor, 0o755);
            }
            Ok(Outcome::Changed(String::new()))
        }
    });
    backend
}

fn put(path: &Path, text: &str, mode: u32) {
    let host = Host::real();
    durable::ensure_dir(&*host.fs, path.parent().unwrap(), 0o755).unwrap();
    durable::write(&*host.fs, path, text.as_bytes(), mode).unwrap();
}

/// The operation of a kind between two versions, as the backend gives it.
fn operation(kind: &str, from: &str, to: &str) -> Operation {
    let backend = backend(to);
    let of =
        |kind, steps| Operation { kind, goal: String::new(), from: None, to: None, steps, recovery: Recovery::Resume };
    match kind {
        // The second to the version that is active: it puts units and links right.
        "upgrade" | "settle" => backend.upgrade_operation(&UpgradeRequest {
            from: from.into(),
            to: to.into(),
            goal: String::new(),
            wait_ready: flexnode_isolation::none::Hook::default(),
            rollback: true,
        }),
        "rollback" => Operation { from: Some(from.into()), ..backend.rollback_operation(to) },
        "restart" => of("restart", backend.restart_steps()),
        "start-node" => of("start-node", backend.start_steps()),
        "stop" => of("stop", [backend.stop_steps(), backend.disable_steps()].concat()),
        other => panic!("{other} is no operation of this suite"),
    }
}

fn other(slot: &str) -> &'static str {
    if slot == FULL { PLAIN } else { FULL }
}

fn current() -> String {
    backend(PLAIN).current().unwrap().unwrap()
}

/// The versions that an operation of a kind goes between now.
fn ends(kind: &str) -> (String, String) {
    let from = current();
    let to = if ["upgrade", "rollback"].contains(&kind) { other(&from).to_owned() } else { from.clone() };
    (from, to)
}

/// Exit code 0: done. 1: it failed. 7: it was rolled back. 8: the way back had failures of its own.
async fn run(kind: &str) -> ExitCode {
    let (from, to) = ends(kind);
    let engine = Engine::new(&Host::real(), "command", Cancel::new()).unwrap();
    let mode = Mode { supersede: kind == "start-node", ..Mode::default() };
    told(engine.run_with(&operation(kind, &from, &to), Arc::new(Silent), mode).await.unwrap().outcome)
}

/// Finishes what the journal says is open, as a new start of the agent does.
async fn recover() -> ExitCode {
    let engine = Engine::new(&Host::real(), "daemon", Cancel::new()).unwrap();
    let Some(record) = engine.journal().open().unwrap() else { return ExitCode::SUCCESS };
    let now = current();
    let (from, to) = (record.from.clone().unwrap_or(now.clone()), record.to.clone().unwrap_or(now));
    let operation = operation(&record.operation, &from, &to);
    told(engine.recover(&record, &operation, Arc::new(Silent), Mode::default()).await.unwrap().outcome)
}

fn told(outcome: RunOutcome) -> ExitCode {
    let text = format!("{outcome:?}");
    match outcome {
        RunOutcome::Done { .. } | RunOutcome::Discarded { .. } => ExitCode::SUCCESS,
        RunOutcome::RolledBack { rollback_errors, .. } if rollback_errors.is_empty() => {
            println!("{text}");
            ExitCode::from(7)
        }
        RunOutcome::RolledBack { .. } => {
            println!("{text}");
            ExitCode::from(8)
        }
        _ => {
            println!("{text}");
            ExitCode::FAILURE
        }
    }
}

/// A place, and what happens there.
struct Point {
    kind: &'static str,
    text: String,
    basic: bool,
    crashes: bool,
}

fn points(kind: &'static str) -> Vec<Point> {
    let (from, to) = ends(kind);
    let lines = flexnode_ops::plan(&operation(kind, &from, &to));
    let back = |line: &&PlanLine| !line.rollback && line.after_crash == Resolution::RollBack;
    let beginnings: Vec<&PlanLine> = lines.iter().filter(back).collect();
    let mut points = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        for side in ["before", "after"] {
            for action in ["crash", "error", "hang"] {
                let step = &line.step;
                let text = if line.rollback {
                    let first = &beginnings[(index + points.len()) % beginnings.len()].step;
                    format!("{kind}/{first}/before=error;{kind}.rollback/{step}/{side}={action}")
                } else {
                    format!("{kind}/{step}/{side}={action}")
                };
                let crashes = action == "crash";
                points.push(Point { kind, text, basic: crashes && side == "before", crashes });
            }
        }
    }
    points
}

/// Runs this program as another process, and gives how it ended and what it said.
fn this(words: &[&str], points: &str) -> (Option<i32>, String) {
    use std::os::unix::process::ExitStatusExt as _;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(words).env("FLEXNODE_FAILPOINT", points).env("FLEXNODE_HANG_LIMIT", "0.3");
    let output = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code().or_else(|| output.status.signal().map(|signal| -signal)), said)
}

fn must(words: &[&str]) {
    let (code, said) = this(words, "");
    assert_eq!(code, Some(0), "{words:?}: {said}");
}

fn lead() -> Vec<String> {
    prepare();
    let seed: usize = std::env::var("FLEXNODE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let all = std::env::var("FLEXNODE_TEST_ALL").is_ok_and(|value| value == "1");
    let every: Vec<Point> = OPERATIONS.into_iter().flat_map(points).collect();
    let of = every.len();
    let chosen =
        every.into_iter().enumerate().filter(|(index, point)| all || point.basic || (index + seed).is_multiple_of(5));
    let chosen: Vec<Point> = chosen.map(|(_, point)| point).collect();
    println!("crash suite, units that come and go: seed {seed}, {} of {of} points", chosen.len());
    let began = Instant::now();
    let mut failures = Vec::new();
    for point in &chosen {
        if let Err(problem) = meet(point) {
            failures.push(format!("{}: {problem}", point.text));
            if failures.len() == ENOUGH {
                break;
            }
            clean();
            prepare();
        }
    }
    println!("{} points in {:.1} s, {} failures", chosen.len(), began.elapsed().as_secs_f32(), failures.len());
    clean();
    failures
}

/// Both versions installed, the full one active and running.
fn prepare() {
    clean();
    let dir = Path::new(UNIT_DIR);
    put(&dir.join(NETWORK_UNIT), "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/true\n", 0o644);
    put(Path::new(PERSONS), "[Service]\nEnvironment=OF_A_PERSON=1\n", 0o644);
    block_on(async {
        let spec = |slot: &str| NodeSpec { slot: slot.into(), ..NodeSpec::default() };
        backend(PLAIN).prepare_version(&spec(PLAIN)).await.unwrap();
        backend(FULL).prepare(&spec(FULL)).await.unwrap();
        backend(FULL).activate(FULL).await.unwrap();
        backend(FULL).start().await.unwrap();
    });
    assert_eq!(problems(), Vec::<String>::new(), "before any point");
}

fn clean() {
    let host = Host::real();
    block_on(async {
        backend(FULL).destroy().await.unwrap();
        for (path, unit) in
            [(PERSONS, None), ("/etc/systemd/system/unbounded-localdns-network.service", Some(NETWORK_UNIT))]
        {
            if let Some(unit) = unit {
                host.systemd.stop(unit, Duration::from_secs(30)).await.unwrap();
            }
            if Path::new(path).exists() {
                durable::remove_file(&*host.fs, Path::new(path)).unwrap();
            }
        }
        host.systemd.reload().await.unwrap();
    });
}

fn meet(point: &Point) -> Result<(), String> {
    let runs = Host::real();
    let active = block_on(runs.systemd.unit(UNIT_KUBELET)).unwrap().is_active();
    match (point.kind, active) {
        ("start-node", true) => must(&["do", "stop"]),
        ("start-node", false) | (_, true) => {}
        (_, false) => must(&["do", "start-node"]),
    }
    let (code, said) = this(&["do", point.kind], &point.text);
    if point.crashes != (code == Some(-KILLED)) {
        return Err(format!("it ended with {code:?}: {said}"));
    }
    let (ended, recovered) = this(&["recover"], "");
    // What stopped, or failed to stop, is started again by a person; the checker does not ask which it was. Where the way
    // back had failures of its own nobody tries again, until a person asks for the version that is active.
    let (again, said_again) = match point.kind {
        "stop" | "start-node" | "restart" => this(&["do", "start-node"], ""),
        _ if [code, ended].contains(&Some(8)) => this(&["do", "settle"], ""),
        _ => (Some(0), String::new()),
    };
    let problems = problems();
    if again == Some(0) && problems.is_empty() {
        return Ok(());
    }
    Err(format!("{}\n{said}\n{recovered}\n{said_again}", problems.join("\n  ")))
}

/// All that is wrong with the host. It knows which versions there are, and nothing of what was done.
fn problems() -> Vec<String> {
    let host = Host::real();
    let mut problems = Vec::new();
    let slot = current();
    let layout = Layout::default();
    if let Err(error) = manifest::verify(&*host.fs, &layout, &slot, Level::Content) {
        problems.push(error.to_string());
    }
    problems.extend(differing_units(&slot));
    let spec = units_of(&slot);
    for unit in [UNIT_LOCAL_DNS, UNIT_CONTAINERD, UNIT_KUBELET] {
        let state = block_on(host.systemd.unit(unit)).unwrap();
        let wanted = unit != UNIT_LOCAL_DNS || spec.local_dns;
        let is = (state.active.as_str(), state.enabled == "enabled", state.need_reload);
        if wanted && is != ("active", true, false) || !wanted && (state.is_active() || state.is_loaded()) {
            problems.push(format!("{unit}: {state:?}"));
        }
        let program = Path::new("/opt/unbounded/node").join(&slot).join("bin").join(match unit {
            UNIT_KUBELET => "kubelet",
            _ => "containerd",
        });
        if wanted && unit != UNIT_LOCAL_DNS {
            let exe = std::fs::read_link(format!("/proc/{}/exe", state.main_pid)).unwrap_or_default();
            if exe != program {
                problems.push(format!("{unit} runs {}, not {}", exe.display(), program.display()));
            }
        }
    }
    for (link, file) in [
        ("/etc/unbounded/containerd/config.toml", "containerd/config.toml"),
        ("/var/lib/kubelet/config.yaml", "kubelet/config.yaml"),
    ] {
        let seen = std::fs::canonicalize(link).unwrap_or_default();
        let wanted = Path::new("/opt/unbounded/node").join(&slot).join("etc").join(file);
        if seen != wanted {
            problems.push(format!("{link} leads to {}", seen.display()));
        }
    }
    let engine = Engine::new(&host, "checker", Cancel::new()).unwrap();
    if let Some(open) = engine.journal().interrupted().unwrap() {
        problems.push(format!("{} is interrupted at {}", open.operation, open.step));
    }
    if !Path::new(PERSONS).exists() {
        problems.push(format!("{PERSONS} is gone"));
    }
    let left =
        Command::new("find").args(["/etc", "/opt", "/var/lib/aks-flex-node", "-name", ".flexnode-tmp-*"]).output();
    problems.extend(String::from_utf8_lossy(&left.unwrap().stdout).lines().map(|path| format!("{path} is left over")));
    problems
}

/// The files of the node's units on disk against those that the active version has.
fn differing_units(slot: &str) -> Vec<String> {
    let place = PathBuf::from("/run/flexnode-test-units");
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir(&place).unwrap();
    let host = Host::real();
    let spec = units_of(slot);
    write_units(&*host.fs, &place, &spec).unwrap();
    write_drop_ins(&*host.fs, &place, &spec).unwrap();
    let meant = files_below(&place);
    let mut there = files_below(Path::new(UNIT_DIR));
    there.retain(|name, _| name.starts_with("unbounded-") && name != NETWORK_UNIT && !PERSONS.ends_with(name.as_str()));
    let names: BTreeSet<&String> = meant.keys().chain(there.keys()).collect();
    let differs = names.into_iter().filter(|name| meant.get(*name) != there.get(*name));
    differs.map(|name| format!("{slot} is active, and {UNIT_DIR}/{name} is not its own")).collect()
}

fn files_below(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(at) = left.pop() {
        for entry in std::fs::read_dir(&at).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && !entry.file_name().to_string_lossy().ends_with(".wants") {
                left.push(entry.path());
            } else if kind.is_file() {
                let name = entry.path().strip_prefix(dir).unwrap().to_string_lossy().into_owned();
                files.insert(name, std::fs::read(entry.path()).unwrap());
            }
        }
    }
    files
}

//! `cargo xtask demo`: the main job, for real, from a fresh host to a Ready node, through an upgrade and one that fails, and
//! back.

use anyhow::{Context as _, Result, bail, ensure};
use flexnode_lab::host::{Options, Share};
use flexnode_lab::packages::Suite;
use flexnode_lab::{
    ControlPlane, Host, Lab, Output, agent_binary, artifacts, control_plane, image, interrupt, kubernetes, node, poll,
    prerequisites, run, snapshot,
};
use serde_json::json;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Arguments of `cargo xtask demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Keep the lab and the node, to look into them
    #[arg(long)]
    keep: bool,
}

const AGENT: &str = "/root/aks-flex-node";
const CONFIG: &str = "/etc/aks-flex-node/config.json";
const HOST: &str = "demo";
/// The version that is started with, the one that is upgraded to, and one that does not come up: Kubernetes, the suite of
/// containerd and runc, and where the host sees the bundle.
const OLD: (&str, Suite, &str) = (kubernetes::OLD, Suite::Trixie, "/srv/old");
const NEW: (&str, Suite, &str) = (kubernetes::NEW, Suite::Forky, "/srv/new");
const BAD: (&str, Suite, &str) = ("1.36.9", Suite::Forky, "/srv/bad");
const LIMIT: Duration = Duration::from_secs(120);
const SOON: Duration = Duration::from_millis(100);
/// Exit code of an upgrade that went back.
const ROLLED_BACK: i32 = 7;

/// The seconds of each step, printed when they are known and as a table at the end.
struct Timeline {
    rows: Vec<(String, Duration)>,
}

impl Timeline {
    fn step<T>(&mut self, what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        interrupt::check()?;
        println!("\n==> {what}");
        let begin = Instant::now();
        let value = work().with_context(|| what.to_owned())?;
        let took = begin.elapsed();
        println!("    {:.1} s", took.as_secs_f32());
        self.rows.push((what.to_owned(), took));
        Ok(value)
    }

    /// A time within the step before.
    fn part(&mut self, what: &str, took: Duration) {
        self.rows.push((format!("    {what}"), took));
    }

    fn print(&self) {
        println!("\nTimeline");
        for (what, took) in &self.rows {
            println!("  {:>7.1} s  {what}", took.as_secs_f32());
        }
    }
}

/// Shows the main job. Whatever happens, all that it made goes, unless it is to be kept.
///
/// # Errors
/// When a step fails; what it said is printed before.
pub fn run(args: &Args) -> Result<ExitCode> {
    interrupt::install()?;
    let mut timeline = Timeline { rows: Vec::new() };
    let mut kept = false;
    let shown = show(args, &mut timeline, &mut kept);
    timeline.print();
    // Also after a failure: it is what a person wants to look into.
    if kept {
        println!("\nThe lab is kept. Look into it:");
        for line in LOOK {
            println!("  cargo xtask lab {}", line.replace("HOST", HOST).replace("AGENT", AGENT));
        }
    } else {
        println!("\nAll that the demo made is removed. Keep the lab with: cargo xtask demo --keep");
    }
    shown.map(|()| ExitCode::SUCCESS)
}

/// What a person types to look into a lab that was kept, and to end it.
const LOOK: [&str; 5] = [
    "kubectl get nodes,pods -A -o wide",
    "exec HOST AGENT status",
    "exec HOST journalctl -u unbounded-kubelet",
    "exec HOST AGENT reset --yes",
    "down          # ends and removes all of it",
];

fn show(args: &Args, timeline: &mut Timeline, kept: &mut bool) -> Result<()> {
    timeline.step("set up this machine for the lab", prerequisites::ensure)?;
    let agent = timeline.step("build the agent", || agent_binary(&[]))?;
    timeline.step("make Kubernetes, containerd, runc and the CNI plugins, two versions of each", || {
        artifacts::artifacts(OLD.0, OLD.1)?;
        artifacts::artifacts(NEW.0, NEW.1).map(|_| ())
    })?;
    let bundles = timeline.step("pack the offline bundles: two versions, and one that cannot come up", || {
        let old = node::bundle(&agent, OLD.0, OLD.1)?;
        let new = node::bundle(&agent, NEW.0, NEW.1)?;
        let bad = node::broken_bundle(&agent, BAD.0, NEW.0, BAD.1)?;
        Ok([(old, OLD.2), (new, NEW.2), (bad, BAD.2)])
    })?;
    let lab = Lab::new()?;
    let control_plane =
        timeline.step("bring up the control plane", || ControlPlane::new(&lab, &control_plane::Options::default()))?;
    let host = timeline.step("boot a systemd host", || {
        let shares = bundles.map(|(from, to)| Share { from, to: PathBuf::from(to) }).to_vec();
        let host = Host::with(&lab, HOST, Options { shares })?;
        host.copy_in(&agent, AGENT, 0o755)?;
        host.put("/etc/cni/net.d/10-lab.conflist", host.network_plugin_config(), 0o644)?;
        configure(&control_plane, &host, OLD)?;
        Ok(host)
    })?;
    if args.keep {
        lab.keep()?;
        *kept = true;
    }
    let before = look(&host)?;
    timeline.step("aks-flex-node start: from a plain host to a Ready node", || agent_in(&host, &["start"], 0))?;
    timeline.step("run a pod that answers over its pod IP", || {
        pod(&control_plane)?;
        answers(&lab, &control_plane)
    })?;
    upgrades(timeline, &lab, &control_plane, &host)?;
    timeline.step("aks-flex-node status", || agent_in(&host, &["status"], 0))?;
    if args.keep {
        return Ok(());
    }
    timeline.step("aks-flex-node reset --yes", || agent_in(&host, &["reset", "--yes", "--remove-agent"], 0))?;
    // Of the configuration the demo made three; the host had the first.
    configure(&control_plane, &host, OLD)?;
    timeline.step("the host is as it was", || same(&before, &look(&host)?))
}

/// Forth under a running pod, then to a version that does not come up, which comes back by itself.
fn upgrades(timeline: &mut Timeline, lab: &Lab, control_plane: &ControlPlane, host: &Host) -> Result<()> {
    configure(control_plane, host, NEW)?;
    let what = format!("aks-flex-node upgrade: from Kubernetes {} to {}, containerd 1.7 to 2.1", OLD.0, NEW.0);
    let output = timeline.step(&what, || agent_in(host, &["upgrade"], 0))?;
    timeline.part("the node was down", down(&output)?);
    timeline.step("the pod answers again", || answers(lab, control_plane))?;

    configure(control_plane, host, BAD)?;
    let what = "aks-flex-node upgrade: to a kubelet that does not start; it comes back by itself";
    let output = timeline.step(what, || agent_in(host, &["upgrade"], ROLLED_BACK))?;
    timeline.part("the node was down", down(&output)?);
    timeline.step("the pod answers again, on the version from before", || {
        answers(lab, control_plane)?;
        let version = control_plane.get(&["node", HOST])?["status"]["nodeInfo"]["kubeletVersion"].clone();
        ensure!(version == format!("v{}", NEW.0), "kubelet is of version {version}");
        Ok(())
    })?;
    // What was not good is not what the machine is meant to be.
    configure(control_plane, host, NEW)?;
    timeline.step("aks-flex-node slots list", || agent_in(host, &["slots", "list"], 0)).map(|_| ())
}

fn configure(control_plane: &ControlPlane, host: &Host, (version, suite, at): (&str, Suite, &str)) -> Result<()> {
    let config = node::config(control_plane, host, version, suite, at)?;
    host.put(CONFIG, serde_json::to_vec_pretty(&config)?, 0o600)
}

/// How long the node was down, as the agent says it.
fn down(output: &Output) -> Result<Duration> {
    let said = format!("{}{}", output.stdout, output.stderr);
    let seconds = said.split("was down for ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let seconds = seconds.and_then(|text| text.parse().ok()).context("the agent does not say how long it was down")?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Runs the agent in the host and shows what it says while it runs.
fn agent_in(host: &Host, words: &[&str], code: i32) -> Result<Output> {
    println!("    # aks-flex-node {}", words.join(" "));
    let mut out = std::io::stdout();
    let output = host.exec_streaming(&[&[AGENT], words].concat(), |_, bytes| {
        // A closed terminal is no reason to leave the lab behind.
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    })?;
    ensure!(output.code == code, "aks-flex-node {} ended with code {}", words.join(" "), output.code);
    Ok(output)
}

fn pod(control_plane: &ControlPlane) -> Result<()> {
    poll(LIMIT, SOON, "the default service account", || Ok(control_plane.get(&["serviceaccount", "default"]).ok()))?;
    control_plane.apply(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"nodeName": HOST, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
            "containers": [{"name": "web", "image": image::WEB, "imagePullPolicy": "Never"}]},
    }))
}

/// Waits until the pod answers at its address, which is another one after its sandbox was ended.
fn answers(lab: &Lab, control_plane: &ControlPlane) -> Result<()> {
    let (address, answer) = poll(LIMIT, SOON, "the pod's answer", || {
        let pod = control_plane.get(&["pod", "web"])?;
        let running = pod["status"]["phase"] == "Running";
        let Some(address) = pod["status"]["podIP"].as_str().filter(|_| running) else { return Ok(None) };
        Ok(ask(lab, address).ok().map(|answer| (address.to_owned(), answer)))
    })?;
    ensure!(answer.ends_with(image::WEB_ANSWER), "the pod answered {answer:?}");
    let table = run::must(control_plane.kubectl_command().args(["get", "nodes,pods", "-o", "wide"]), LIMIT)?;
    println!("    {}", table.trim_end().replace('\n', "\n    "));
    println!("    http://{address}/ answers {:?}", image::WEB_ANSWER.trim_end());
    Ok(())
}

fn ask(lab: &Lab, address: &str) -> Result<String> {
    use std::io::Read as _;
    let target = format!("{address}:80");
    let answer = lab.in_network(move || -> std::io::Result<String> {
        let address = target.parse().map_err(std::io::Error::other)?;
        let mut stream = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    })?;
    Ok(answer?)
}

fn look(host: &Host) -> Result<snapshot::Snapshot> {
    host.snapshot_with(&snapshot::Options { times: false, ..Default::default() })
}

/// What may differ: systemd's own state, the lock's file, which nobody may remove, and a target that says that the network
/// is there, which kubelet's unit asked for.
const KNOWN: [&str; 4] =
    ["file /var/lib/systemd/", "file /var/log/wtmp:", "file /run/aks-flex-node.lock:", "unit network-online.target:"];

fn same(before: &snapshot::Snapshot, after: &snapshot::Snapshot) -> Result<()> {
    let own = |line: &String| !KNOWN.iter().any(|known| line.contains(known));
    let lines: Vec<String> = snapshot::diff(before, after).into_iter().filter(own).collect();
    if lines.is_empty() {
        println!(
            "    compared: {} files, mounts, units, processes, cgroups, network objects and settings",
            before.things.len()
        );
        return Ok(());
    }
    bail!("reset left something:\n{}", lines.join("\n"))
}

//! `cargo xtask demo`: the main job, for real, from a fresh host to a Ready node and back.

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
const BUNDLE: &str = "/srv/bundle";
const HOST: &str = "demo";

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
    let shown = show(args, &mut timeline);
    timeline.print();
    shown?;
    if !args.keep {
        println!("\nAll that the demo made is removed. Keep the lab with: cargo xtask demo --keep");
    }
    Ok(ExitCode::SUCCESS)
}

fn show(args: &Args, timeline: &mut Timeline) -> Result<()> {
    timeline.step("set up this machine for the lab", prerequisites::ensure)?;
    let agent = timeline.step("build the agent", || agent_binary(&[]))?;
    timeline.step("make Kubernetes, containerd, runc and the CNI plugins", || {
        artifacts::artifacts(kubernetes::NEW, Suite::Forky).map(|_| ())
    })?;
    let bundle = timeline.step("pack the offline bundle", || node::bundle(&agent, kubernetes::NEW, Suite::Forky))?;
    let lab = Lab::new()?;
    let control_plane =
        timeline.step("bring up the control plane", || ControlPlane::new(&lab, &control_plane::Options::default()))?;
    let host = timeline.step("boot a systemd host", || {
        let shares = vec![Share { from: bundle, to: PathBuf::from(BUNDLE) }];
        let host = Host::with(&lab, HOST, Options { shares })?;
        host.copy_in(&agent, AGENT, 0o755)?;
        host.put("/etc/cni/net.d/10-lab.conflist", host.network_plugin_config(), 0o644)?;
        let config = node::config(&control_plane, &host, kubernetes::NEW, Suite::Forky, BUNDLE)?;
        host.put("/etc/aks-flex-node/config.json", serde_json::to_vec_pretty(&config)?, 0o600)?;
        Ok(host)
    })?;
    if args.keep {
        lab.keep()?;
    }
    let before = look(&host)?;
    timeline.step("aks-flex-node start: from a plain host to a Ready node", || agent_in(&host, &["start"], 0))?;
    timeline.step("run a pod that answers over its pod IP", || pod(&lab, &control_plane))?;
    timeline.step("aks-flex-node status", || agent_in(&host, &["status"], 0))?;
    if args.keep {
        println!("\nThe node is kept. Look into it:\n  cargo xtask lab kubectl get nodes,pods -A -o wide");
        println!(
            "  cargo xtask lab exec {HOST} {AGENT} status\n  cargo xtask lab exec {HOST} journalctl -u unbounded-kubelet\n  cargo xtask lab exec {HOST} {AGENT} reset --yes\n  cargo xtask lab down"
        );
        return Ok(());
    }
    timeline.step("aks-flex-node reset --yes", || agent_in(&host, &["reset", "--yes", "--remove-agent"], 0))?;
    timeline.step("the host is as it was", || same(&before, &look(&host)?))
}

/// Runs the agent in the host and shows what it says while it runs.
fn agent_in(host: &Host, words: &[&str], code: i32) -> Result<()> {
    println!("    # aks-flex-node {}", words.join(" "));
    let mut out = std::io::stdout();
    let output: Output = host.exec_streaming(&[&[AGENT], words].concat(), |_, bytes| {
        // A closed terminal is no reason to leave the lab behind.
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    })?;
    ensure!(output.code == code, "aks-flex-node {} ended with code {}", words.join(" "), output.code);
    Ok(())
}

fn pod(lab: &Lab, control_plane: &ControlPlane) -> Result<()> {
    let limit = Duration::from_secs(120);
    poll(limit, Duration::from_millis(100), "the default service account", || {
        Ok(control_plane.get(&["serviceaccount", "default"]).ok())
    })?;
    control_plane.apply(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"nodeName": HOST, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
            "containers": [{"name": "web", "image": image::WEB, "imagePullPolicy": "Never"}]},
    }))?;
    let address = poll(limit, Duration::from_millis(100), "the pod's address", || {
        let pod = control_plane.get(&["pod", "web"])?;
        let running = pod["status"]["phase"] == "Running";
        Ok(pod["status"]["podIP"].as_str().filter(|_| running).map(str::to_owned))
    })?;
    let answer = poll(limit, Duration::from_millis(100), "the pod's answer", || ask(lab, &address).map(Some))?;
    ensure!(answer.ends_with(image::WEB_ANSWER), "the pod answered {answer:?}");
    println!(
        "    {}",
        run::must(control_plane.kubectl_command().args(["get", "nodes,pods", "-o", "wide"]), limit)?
            .trim_end()
            .replace('\n', "\n    ")
    );
    println!("    http://{address}/ answers {:?}", image::WEB_ANSWER.trim_end());
    Ok(())
}

fn ask(lab: &Lab, address: &str) -> Result<String> {
    use std::io::Read as _;
    let target = format!("{address}:80");
    let answer = lab.in_network(move || -> std::io::Result<String> {
        let mut stream = std::net::TcpStream::connect(target)?;
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

//! The daemon of an idle node that is Ready: what it costs, and how soon a change is in its file.
//!
//! The costs are counted by the kernel over some minutes; system calls are counted by strace(1) in a span of their own, as
//! counting them costs.

use super::{Measure, milliseconds};
use anyhow::{Context as _, Result, ensure};
use flexnode_lab::host::{Options, Share};
use flexnode_lab::packages::Suite;
use flexnode_lab::{ControlPlane, Host, Lab, control_plane, kubernetes, node, poll, prerequisites};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const AGENT: &str = "/root/aks-flex-node";
const BUNDLE: &str = "/srv/bundle";
const STATUS: &str = "/run/aks-flex-node/status.json";
const SOON: Duration = Duration::from_millis(100);
/// Until everything that begins with a start is over.
const SETTLE: Duration = Duration::from_secs(30);
/// The span over which costs are counted.
const SPAN: Duration = Duration::from_secs(180);
/// The span over which system calls are counted.
const TRACED: Duration = Duration::from_secs(60);

/// Measures on a fresh node.
pub fn measure(agent: &Path, changes: usize) -> Result<Vec<Measure>> {
    prerequisites::ensure()?;
    let bundle = node::bundle(agent, kubernetes::NEW, Suite::Forky)?;
    let lab = Lab::new()?;
    let control_plane = ControlPlane::new(&lab, &control_plane::Options::default())?;
    let shares = vec![Share { from: bundle, to: PathBuf::from(BUNDLE) }];
    let host = Host::with(&lab, "idle", Options { shares })?;
    host.copy_in(agent, AGENT, 0o755)?;
    host.put("/etc/cni/net.d/10-lab.conflist", host.network_plugin_config(), 0o644)?;
    let config = node::config(&control_plane, &host, kubernetes::NEW, Suite::Forky, BUNDLE)?;
    host.put("/etc/aks-flex-node/config.json", serde_json::to_vec_pretty(&config)?, 0o600)?;
    host.exec(&[AGENT, "start"])?.success().context("start")?;
    poll(Duration::from_secs(60), SOON, "the daemon to call the node healthy", || {
        Ok((status(&host)?["flexnode"]["verdict"] == "healthy").then_some(()))
    })?;
    let mut measures = idle(&host)?;
    measures.push(reaction(&host, changes)?);
    Ok(measures)
}

fn status(host: &Host) -> Result<serde_json::Value> {
    Ok(serde_json::from_slice(&std::fs::read(host.path(STATUS))?)?)
}

/// The daemon's process, as the outer machine numbers it.
fn process(host: &Host) -> Result<PathBuf> {
    let inner = host.exec(&["systemctl", "show", "-P", "MainPID", "aks-flex-node-agent.service"])?.success()?.stdout;
    let wanted = format!("\t{}", inner.trim());
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let text = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let pids = text.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        let is_agent = text.starts_with("Name:\taks-flex-node");
        if is_agent && pids.ends_with(&wanted) && pids.split_whitespace().count() > 1 {
            return Ok(entry.path());
        }
    }
    anyhow::bail!("the daemon's process is not to be found")
}

/// What the kernel counted of a process.
struct Counted {
    at: Instant,
    /// Time on a processor in nanoseconds, to the scheduler's precision: ticks would be a guess.
    cpu: u64,
    switches: u64,
    threads: u64,
    resident_kb: u64,
    anonymous_kb: u64,
    requests: u64,
}

impl Counted {
    fn now(host: &Host, process: &Path) -> Result<Self> {
        let status = std::fs::read_to_string(process.join("status"))?;
        let (mut switches, mut cpu) = (0, 0);
        for task in std::fs::read_dir(process.join("task"))?.flatten() {
            switches += field(&std::fs::read_to_string(task.path().join("status"))?, "voluntary_ctxt_switches");
            let schedstat = std::fs::read_to_string(task.path().join("schedstat"))?;
            cpu += schedstat.split(' ').next().context("schedstat")?.parse::<u64>()?;
        }
        let metrics = host.exec(&[AGENT, "metrics"])?.success()?.stdout;
        let requests = metrics.lines().find_map(|line| line.strip_prefix("flexnode_api_requests_total "));
        Ok(Self {
            at: Instant::now(),
            cpu,
            switches,
            threads: field(&status, "Threads"),
            resident_kb: field(&status, "VmRSS"),
            anonymous_kb: field(&status, "RssAnon"),
            requests: requests.context("the number of requests")?.trim_end_matches(".0").parse()?,
        })
    }
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn wait(time: Duration, what: &str) -> Result<()> {
    let begin = Instant::now();
    poll(time + Duration::from_secs(30), SOON * 5, what, || Ok((begin.elapsed() >= time).then_some(())))
}

fn idle(host: &Host) -> Result<Vec<Measure>> {
    let process = process(host)?;
    wait(SETTLE, "the node to be idle")?;
    let before = Counted::now(host, &process)?;
    wait(SPAN, "an idle daemon")?;
    let after = Counted::now(host, &process)?;
    ensure!(after.cpu >= before.cpu, "another process");
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    let rate = |now: u64, then: u64, per: f64| number(now - then) / seconds * per;
    // The asking for metrics itself is in it, once.
    let cpu = rate(after.cpu, before.cpu, 1e-7);
    let mut measures = vec![
        Measure::absolute("daemon: resident memory, idle", number(after.resident_kb) / 1000.0, "MB", 12.0),
        Measure::absolute("daemon: of it anonymous", number(after.anonymous_kb) / 1000.0, "MB", 3.0),
        Measure::absolute("daemon: share of a core, idle", cpu, "%", 0.02),
        Measure::absolute("daemon: threads", number(after.threads), "", 4.0),
        Measure::absolute("daemon: wake-ups", rate(after.switches, before.switches, 60.0), "a minute", 60.0),
        Measure::absolute(
            "daemon: requests to the API server",
            rate(after.requests, before.requests, 3600.0),
            "an hour",
            60.0,
        ),
    ];
    if let Some((calls, programs)) = traced(&process)? {
        measures.push(Measure::absolute("daemon: system calls", calls, "a minute", 1500.0));
        measures.push(Measure::absolute("daemon: programs run", programs, "a minute", 0.0));
    }
    Ok(measures)
}

#[allow(clippy::cast_precision_loss, reason = "counts of minutes are small")]
fn number(value: u64) -> f64 {
    value as f64
}

/// System calls and programs run in a minute; `None` without strace.
fn traced(process: &Path) -> Result<Option<(f64, f64)>> {
    let pid = process.file_name().and_then(|name| name.to_str()).context("a process")?;
    let seconds = TRACED.as_secs().to_string();
    let mut command = Command::new("timeout");
    command.args(["-s", "INT", &seconds, "strace", "-f", "-c", "-U", "calls,name", "-p", pid]);
    let Ok(output) = command.output() else { return Ok(None) };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let count = |name: &str| {
        let line = text.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
        line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok())
    };
    let minutes = TRACED.as_secs_f64() / 60.0;
    Ok(count("total").map(|total| (total / minutes, count("execve").unwrap_or(0.0) / minutes)))
}

/// From the end of kubelet's process to the file that says so.
fn reaction(host: &Host, changes: usize) -> Result<Measure> {
    let mut times = Vec::new();
    for _ in 0..changes.max(3) {
        let pid = poll(Duration::from_secs(120), SOON, "a node that is healthy", || {
            let status = status(host)?;
            let units = status["flexnode"]["units"].as_array().cloned().unwrap_or_default();
            let kubelet = units.iter().find(|unit| unit["unit"] == "unbounded-kubelet.service").cloned();
            let pid = kubelet.and_then(|unit| unit["mainPid"].as_u64());
            Ok(pid
                .filter(|_| status["kubeletRunning"] == true && status["flexnode"]["kubeletHealthy"]["known"] == true))
        })?;
        host.kill(u32::try_from(pid)?)?;
        let begin = Instant::now();
        poll(Duration::from_secs(30), Duration::from_millis(2), "the change in the file", || {
            let status = status(host)?;
            let units = status["flexnode"]["units"].as_array().cloned().unwrap_or_default();
            let kubelet = units.iter().find(|unit| unit["unit"] == "unbounded-kubelet.service").cloned();
            Ok((kubelet.context("kubelet's unit")?["mainPid"].as_u64() != Some(pid)).then_some(()))
        })?;
        times.push(milliseconds(begin.elapsed()));
    }
    Ok(Measure::absolute("daemon: from the end of kubelet to the file", super::median(times), "ms", 1000.0))
}

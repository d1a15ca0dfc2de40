//! How long a node is down in an upgrade and in a rollback, against the bare sequence of commands on the same host.
//!
//! Both are seen by the same watch over kubelet's health, and begin at the first stop: the agent's by the event of its step,
//! the bare one's by the clock right before `systemctl stop`. A rollback begins when its failure is known.

use super::healthz::{self, back_after};
use super::{Measure, node_of};
use anyhow::{Context as _, Result, ensure};
use flexnode_lab::packages::Suite;
use flexnode_lab::{ControlPlane, Host, Lab, control_plane, image, kubernetes, node, poll};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

const AGENT: &str = node_of::AGENT;
const LIMIT: Duration = Duration::from_secs(180);
const SOON: Duration = Duration::from_millis(100);
/// Where the host has the configurations of the two versions and of one that does not come up.
const CONFIGS: [&str; 3] = ["/root/old.json", "/root/new.json", "/root/bad.json"];
const PODS: usize = 10;
/// The suite is one, so that a link's flip is all that differs.
const SUITE: Suite = Suite::Forky;

/// Measures the groups that are wanted, `pairs` of each, and tells each figure when it is known: the whole takes a quarter
/// of an hour.
pub fn measure(
    agent: &Path,
    pairs: usize,
    wanted: &dyn Fn(&str) -> bool,
    tell: &mut dyn FnMut(Measure) -> Result<()>,
) -> Result<()> {
    let lab = Lab::new()?;
    let control_plane = ControlPlane::new(&lab, &control_plane::Options::default())?;
    let host = joined(&lab, &control_plane, agent)?;
    let bed = Bed { control_plane: &control_plane, host: &host };
    for pods in [0, PODS] {
        bed.run_pods(pods)?;
        for group in ["upgrade", "rollback"].into_iter().filter(|group| wanted(group)) {
            let mut times = Vec::new();
            for n in 1..=pairs {
                let what = format!("{group} {n} of {pairs} with {pods} pods");
                let (agent, bare) =
                    if group == "upgrade" { bed.upgrade(pods) } else { bed.rollback(pods) }.context(what.clone())?;
                eprintln!("{what}: {agent:.0} ms against {bare:.0} ms");
                times.push((agent, bare));
            }
            tell(Measure::paired(&name(group, pods), &times, "ms", 1.10))?;
        }
    }
    Ok(())
}

fn name(what: &str, pods: usize) -> String {
    let when = if what == "upgrade" { "first stop" } else { "known failure" };
    let pods = if pods == 0 { "without pods".to_owned() } else { format!("with {pods} pods") };
    format!("{what}: node down from the {when} to healthz, {pods}")
}

/// A node of the old version with both bundles and three configurations.
fn joined(lab: &Lab, control_plane: &ControlPlane, agent: &Path) -> Result<Host> {
    let host = node_of::host(lab, "downtime", agent, &[(kubernetes::OLD, "/srv/old"), (kubernetes::NEW, "/srv/new")])?;
    let config = |version, source| node::config(control_plane, &host, version, SUITE, source);
    let (old, new) = (config(kubernetes::OLD, "/srv/old")?, config(kubernetes::NEW, "/srv/new")?);
    let mut bad = new.clone();
    // kubelet ends at once over a gate that it does not know.
    bad["node"]["kubelet"]["config"] = json!({"featureGates": {"NoSuchGateOfKubelet": true}});
    for (path, config) in CONFIGS.iter().zip([&old, &new, &bad]) {
        host.put(path, serde_json::to_vec_pretty(config)?, 0o600)?;
    }
    host.put("/etc/aks-flex-node/config.json", serde_json::to_vec_pretty(&old)?, 0o600)?;
    host.exec(&[AGENT, "start"])?.success()?;
    Ok(host)
}

struct Bed<'a> {
    control_plane: &'a ControlPlane,
    host: &'a Host,
}

impl Bed<'_> {
    fn run_pods(&self, count: usize) -> Result<()> {
        poll(LIMIT, SOON, "the default service account", || {
            Ok(self.control_plane.get(&["serviceaccount", "default"]).ok())
        })?;
        for n in 0..count {
            self.control_plane.apply(&json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("web-{n}"), "namespace": "default"},
                "spec": {
                    "nodeName": self.host.name(), "terminationGracePeriodSeconds": 1,
                    "automountServiceAccountToken": false, "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "web", "image": image::WEB, "imagePullPolicy": "Never"}],
                },
            }))?;
        }
        self.settle(count)
    }

    /// Waits until the node and all its pods run again, as the runtime tells it.
    fn settle(&self, pods: usize) -> Result<()> {
        let script = "c=/opt/unbounded/node/current/bin/crictl; export CONTAINER_RUNTIME_ENDPOINT=unix:///run/containerd/containerd.sock; \
            echo $($c pods -q --state ready | wc -l) $($c ps -q --state running | wc -l)";
        let wanted = format!("{pods} {pods}");
        poll(LIMIT, SOON, "the pods to run", || Ok((self.host.sh(script)?.stdout.trim() == wanted).then_some(())))?;
        self.control_plane.wait_ready(self.host.name(), LIMIT)
    }

    fn slot(&self) -> Result<String> {
        Ok(self.host.sh("readlink /opt/unbounded/node/current")?.success()?.stdout.trim().to_owned())
    }

    /// One upgrade by the agent, and the bare sequence back and forth.
    fn upgrade(&self, pods: usize) -> Result<(f64, f64)> {
        let from = self.slot()?;
        let config = if from.starts_with(kubernetes::OLD) { CONFIGS[1] } else { CONFIGS[0] };
        let words = [AGENT, "upgrade", "--yes", "--retry", "--output", "json", "--to-config", config];
        let (output, looks) = healthz::during(self.host, || self.host.exec(&words))?;
        let output = output.success()?;
        let began = event(&output.stdout, "stepStarted", |event| event["step"] == "stop")?;
        let agent = back_after(began, &looks)?;
        eprintln!("{}", steps(&output.stdout, began));
        let to = self.slot()?;
        ensure!(from != to, "the upgrade changed no version");
        self.settle(pods)?;
        let back = self.bare(&from, pods)?;
        let forth = self.bare(&to, pods)?;
        Ok((agent, f64::midpoint(back, forth)))
    }

    /// From the version that runs to one that does not come up and back, by the agent and by hand.
    fn rollback(&self, pods: usize) -> Result<(f64, f64)> {
        let good = self.slot()?;
        let words = [AGENT, "upgrade", "--yes", "--retry", "--output", "json", "--to-config", CONFIGS[2]];
        let (output, looks) = healthz::during(self.host, || self.host.exec(&words))?;
        ensure!(output.code == 7, "the upgrade was to be rolled back: {} {}", output.stdout, output.stderr);
        let known = event(&output.stdout, "rollbackStarted", |_| true)?;
        let agent = back_after(known, &looks)?;
        eprintln!("{}", steps(&output.stdout, known));
        ensure!(self.slot()? == good, "the rollback did not return to {good}");
        let bad = text(&output.stdout, "operationStarted", "to")?;
        self.settle(pods)?;
        // The same failure by hand: kubelet crash-loops when the way back begins.
        let fail = format!(
            "cd /opt/unbounded/node && systemctl stop unbounded-kubelet && {} systemctl stop unbounded-containerd && \
             ln -s {bad} current.bare && mv -T current.bare current && systemctl start unbounded-containerd && \
             systemctl start --no-block unbounded-kubelet && \
             until [ $(systemctl show -P NRestarts unbounded-kubelet) -ge 3 ]; do sleep 0.1; done",
            end_sandboxes(pods)
        );
        self.host.sh(&fail)?.success()?;
        let bare = self.bare(&good, 0)?;
        self.settle(pods)?;
        Ok((agent, bare))
    }

    /// Stop both, end the sandboxes in between, flip, start both, until healthz answers; in milliseconds.
    fn bare(&self, slot: &str, pods: usize) -> Result<f64> {
        let script = format!(
            "cd /opt/unbounded/node && date +%s.%N && systemctl stop unbounded-kubelet && {} \
             systemctl stop unbounded-containerd && ln -s {slot} current.bare && mv -T current.bare current && \
             systemctl start unbounded-containerd unbounded-kubelet && \
             until busybox wget -qO- http://127.0.0.1:10248/healthz 2>/dev/null | grep -q ok; do sleep 0.01; done",
            end_sandboxes(pods)
        );
        let (output, looks) = healthz::during(self.host, || self.host.sh(&script))?;
        let began: f64 = output.success()?.stdout.trim().parse().context("date")?;
        let took = back_after(began * 1000.0, &looks)?;
        self.settle(pods)?;
        Ok(took)
    }
}

/// `crictl stopp` for each sandbox, in parallel.
fn end_sandboxes(pods: usize) -> &'static str {
    if pods == 0 {
        return "";
    }
    "{ c=$PWD/current/bin/crictl; e=unix:///run/containerd/containerd.sock; \
     for s in $($c -r $e pods -q --state ready); do $c -r $e stopp $s >/dev/null & done; wait; } &&"
}

fn events(lines: &str) -> impl Iterator<Item = Value> {
    lines.lines().filter_map(|line| serde_json::from_str(line).ok())
}

/// Each event of a step from a moment on, with the milliseconds since then: where the time goes.
fn steps(lines: &str, from: f64) -> String {
    let mut out = String::from("   ");
    for event in events(lines) {
        let time: Option<jiff::Timestamp> = event["time"].as_str().and_then(|text| text.parse().ok());
        let after = time.map_or(-1.0, |time| time.as_duration().as_secs_f64() * 1000.0 - from);
        if let Some(step) = event["step"].as_str().filter(|_| after >= 0.0) {
            let kind = event["event"].as_str().unwrap_or_default();
            // Writing to a string does not fail.
            let _ = write!(out, " {step} {kind} {after:.0},");
        }
    }
    out
}

/// When the first such event was, in milliseconds since the epoch.
fn event(lines: &str, kind: &str, fits: impl Fn(&Value) -> bool) -> Result<f64> {
    let found = events(lines).find(|event| event["event"] == kind && fits(event));
    let found = found.with_context(|| format!("the agent told no event {kind}"))?;
    let time: jiff::Timestamp = found["time"].as_str().unwrap_or_default().parse()?;
    Ok(time.as_duration().as_secs_f64() * 1000.0)
}

fn text(lines: &str, kind: &str, key: &str) -> Result<String> {
    let found =
        events(lines).find_map(|event| Some(event[key].as_str().filter(|_| event["event"] == kind)?.to_owned()));
    found.with_context(|| format!("the agent told no event {kind} with {key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_by_kind_and_step() {
        let lines = "{\"time\":\"1970-01-01T00:00:01.5Z\",\"event\":\"stepStarted\",\"step\":\"check\"}\n\
            words\n{\"time\":\"1970-01-01T00:00:02.25Z\",\"event\":\"stepStarted\",\"step\":\"stop\",\"to\":\"x\"}\n";
        let at = event(lines, "stepStarted", |event| event["step"] == "stop").unwrap();
        assert!((at - 2250.0).abs() < 0.001);
        assert!(event(lines, "rollbackStarted", |_| true).is_err());
        assert_eq!(text(lines, "stepStarted", "to").unwrap(), "x");
    }
}

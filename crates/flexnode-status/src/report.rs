//! What `aks-flex-node status` shows: a verdict, what deviates, and the rest.

use crate::collector::{containerd_version, kubelet_version};
use crate::node::NodeView;
use crate::observe::{Known, Observation, UNIT_AGENT, UNIT_CONTAINERD, UNIT_KUBELET, UNIT_LOCAL_DNS, UnitView};
use flexnode_host::UnitState;
use jiff::Timestamp;
use serde::Serialize;

/// How the node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// All is as it should be.
    Healthy,
    /// It is a node, and something deviates.
    Degraded,
    /// This host is not a node.
    NotANode,
}

impl Verdict {
    /// The exit code of `status`: 0, 3 or 4.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Healthy => 0,
            Verdict::Degraded => 3,
            Verdict::NotANode => 4,
        }
    }
}

/// One unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnitReport {
    /// Its name.
    pub unit: String,
    /// `active`, `failed`, ...; `unknown` when systemd did not answer.
    pub active: String,
    /// `running`, `dead`, ...
    pub sub: String,
    /// `enabled`, `disabled`, `masked`, ...
    pub enabled: String,
    /// Since when it is in this state.
    pub since: Option<Timestamp>,
    /// For how many seconds.
    pub seconds: Option<i64>,
    /// Automatic restarts.
    pub restarts: u32,
    /// PID of the main process.
    pub main_pid: Option<u32>,
    /// The slot whose program it runs.
    pub slot: Option<String>,
    /// Version of that program, where it is known.
    pub version: Option<String>,
}

/// The whole report. Its JSON is an interface: fields are added, never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// Format of this document: 1.
    pub version: u32,
    /// How the node is.
    pub verdict: Verdict,
    /// The verdict in one line.
    pub summary: String,
    /// What deviates, the most important first.
    pub deviations: Vec<String>,
    /// What is worth knowing and no deviation.
    pub notes: Vec<String>,
    /// When this was seen.
    pub at: Timestamp,
    /// Version of this program.
    pub agent_version: String,
    /// Name of the Node, where it is known.
    pub node_name: Option<String>,
    /// Kubernetes version that runs.
    pub kubernetes_version: Option<String>,
    /// containerd version that runs.
    pub containerd_version: Option<String>,
    /// runc version.
    pub runc_version: Option<String>,
    /// The active slot.
    pub slot: Option<String>,
    /// The other slots: what a rollback can return to.
    pub previous_slots: Vec<String>,
    /// `true`, `false`, or `null` when it is not known.
    pub ready: Option<bool>,
    /// The Node as the cluster has it.
    pub node: Option<NodeView>,
    /// The units.
    pub units: Vec<UnitReport>,
}

/// What the caller knows beside what is seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Version of this program.
    pub agent_version: String,
    /// Name of the Node.
    pub node_name: Option<String>,
    /// Deviations of its own, which come first: stopped by a person, an operation that was interrupted.
    pub deviations: Vec<String>,
    /// Whether the agent's service belongs to this host: only then its absence is a deviation.
    pub agent_expected: bool,
}

/// Judges what was seen. Pure.
pub fn report(seen: &Observation, context: &Context) -> NodeReport {
    let deviations = deviations(seen, context);
    let verdict = match (is_node(seen), deviations.is_empty()) {
        (false, _) => Verdict::NotANode,
        (true, true) => Verdict::Healthy,
        (true, false) => Verdict::Degraded,
    };
    let slots = seen.slots.as_ref().ok();
    let node = seen.node.as_ref().ok().and_then(Option::as_ref);
    let mut report = NodeReport {
        version: 1,
        verdict,
        summary: String::new(),
        notes: notes(seen),
        at: seen.at,
        agent_version: context.agent_version.clone(),
        node_name: context.node_name.clone().or_else(|| node.map(|n| n.name.clone())),
        kubernetes_version: kubelet_version(seen),
        containerd_version: containerd_version(seen),
        runc_version: seen.runc_version.clone().ok(),
        slot: slots.and_then(|s| s.current.as_ref()).map(|s| s.name.clone()),
        previous_slots: slots.map(|s| s.others.iter().map(|o| o.name.clone()).collect()).unwrap_or_default(),
        ready: node.and_then(|n| n.ready.as_ref()).and_then(|r| r.status),
        node: node.cloned(),
        units: units(seen),
        deviations,
    };
    report.summary = summary(&report);
    report
}

/// Anything of the stack on this host makes it a node: a slot that is active, or a unit that is installed.
fn is_node(seen: &Observation) -> bool {
    let slot = match &seen.slots {
        Ok(slots) => slots.current.is_some(),
        // Something is there, and cannot be read.
        Err(_) => true,
    };
    let installed = |name: &str| match seen.unit(name).map(|u| &u.state) {
        Some(Ok(state)) => state.load != "not-found",
        _ => false,
    };
    slot || installed(UNIT_KUBELET) || installed(UNIT_CONTAINERD)
}

fn summary(report: &NodeReport) -> String {
    let name = report.node_name.as_deref().unwrap_or("this node");
    match report.verdict {
        Verdict::NotANode => "this host is not a node: nothing of the agent's stack is installed".into(),
        Verdict::Healthy => {
            let version = report.kubernetes_version.as_deref().unwrap_or("of an unknown version");
            format!("{name} is Ready: Kubernetes {version}")
        }
        Verdict::Degraded => {
            let first = report.deviations.first().map_or("", String::as_str);
            let more = match report.deviations.len() {
                0 | 1 => String::new(),
                n => format!(" (and {} more)", n - 1),
            };
            format!("{name} is degraded: {first}{more}")
        }
    }
}

fn deviations(seen: &Observation, context: &Context) -> Vec<String> {
    let mut found = context.deviations.clone();
    match &seen.slots {
        Err(e) => found.push(format!("the version directories cannot be read: {e}")),
        Ok(slots) => match &slots.current {
            None => found.push("no version is active".into()),
            Some(slot) => found.extend(slot.problem.as_ref().map(|p| format!("version {}: {p}", slot.name))),
        },
    }
    for unit in [UNIT_CONTAINERD, UNIT_KUBELET] {
        found.extend(seen.unit(unit).and_then(|view| unit_problem(unit, view, true)));
        found.extend(seen.unit(unit).and_then(|view| program_problem(unit, view, seen)));
    }
    for (unit, expected) in [(UNIT_LOCAL_DNS, false), (UNIT_AGENT, context.agent_expected)] {
        found.extend(seen.unit(unit).and_then(|view| unit_problem(unit, view, expected)));
    }
    // A unit that is down is the cause; what follows from it would only hide it.
    if seen.unit(UNIT_CONTAINERD).is_some_and(UnitView::is_active) {
        found.extend(runtime_problem(seen));
    }
    if seen.unit(UNIT_KUBELET).is_some_and(UnitView::is_active)
        && let Err(e) = &seen.healthz
    {
        found.push(format!("kubelet is not healthy: {e}"));
    }
    found.extend(node_problem(&seen.node));
    if let Some(Err(e)) = &seen.arc {
        found.push(format!("Azure Arc: {e}"));
    }
    found
}

/// What is wrong with a unit; one that need not be there may be absent.
fn unit_problem(unit: &str, view: &UnitView, expected: bool) -> Option<String> {
    let state = match &view.state {
        Ok(state) => state,
        Err(e) => return Some(format!("the state of {unit} is not known: {e}")),
    };
    match state.load.as_str() {
        "not-found" => return expected.then(|| format!("{unit} is not installed")),
        "masked" => return Some(format!("{unit} is masked: `systemctl unmask {unit}`")),
        "loaded" => {}
        other => return Some(format!("{unit} cannot be loaded ({other}): `systemctl status {unit}`")),
    }
    if !state.is_active() {
        return Some(not_active(unit, state));
    }
    if state.enabled == "disabled" {
        return Some(format!("{unit} runs and will not after a reboot: it is disabled"));
    }
    state.need_reload.then(|| format!("the files of {unit} changed and were not loaded: `systemctl daemon-reload`"))
}

fn not_active(unit: &str, state: &UnitState) -> String {
    let how = match (state.result.as_str(), state.exit_status) {
        ("" | "success", _) => String::new(),
        ("signal", signal) => format!(" (ended by signal {signal})"),
        (result, 0) => format!(" ({result})"),
        (result, status) => format!(" ({result} {status})"),
    };
    format!("{unit} is {}{how}: `journalctl -u {unit} -n 50`", state.active)
}

/// A process that does not run the active slot's program.
fn program_problem(unit: &str, view: &UnitView, seen: &Observation) -> Option<String> {
    let process = match &view.process {
        Ok(Some(process)) => process,
        Ok(None) => return None,
        Err(e) => return Some(format!("the process of {unit} cannot be read: {e}")),
    };
    let current = seen.slots.as_ref().ok()?.current.as_ref()?;
    match &view.slot {
        Some(slot) if *slot == current.name => None,
        Some(slot) => Some(format!("{unit} still runs version {slot}; {} is active", current.name)),
        None => Some(format!("{unit} runs {}, which is no program of a version", process.exe.display())),
    }
}

fn runtime_problem(seen: &Observation) -> Option<String> {
    match &seen.runtime {
        Err(e) => Some(format!("containerd does not answer: {e}")),
        Ok(status) if !status.runtime_ready => Some(format!("containerd is not ready: {}", status.reasons.join("; "))),
        // The missing network is the Node's reason too, and is told there.
        Ok(_) => None,
    }
}

fn node_problem(node: &Known<Option<NodeView>>) -> Option<String> {
    match node {
        Err(e) => Some(format!("whether the Node is Ready is not known: {e}")),
        Ok(None) => Some("the cluster has no Node of this name".into()),
        Ok(Some(node)) if node.waits_only_for_network() => Some(
            "the Node is not Ready: it waits for the cluster's network plugin (nothing in /etc/cni/net.d is usable yet)"
                .into(),
        ),
        Ok(Some(node)) => node.why_not_ready().map(|why| format!("the Node is not Ready: {why}")),
    }
}

fn notes(seen: &Observation) -> Vec<String> {
    let mut notes = Vec::new();
    if let Ok(Some(node)) = &seen.node {
        if node.unschedulable {
            notes.push("the Node is cordoned: no new pods are placed on it".into());
        }
        let reported = node.kubelet_version.trim_start_matches('v');
        if let Some(running) = kubelet_version(seen)
            && !reported.is_empty()
            && reported != running
        {
            notes.push(format!("the cluster still shows kubelet {reported}; {running} runs"));
        }
    }
    for (name, view) in &seen.units {
        if let Ok(state) = &view.state
            && state.restarts > 0
        {
            notes.push(format!("{name} was restarted {} times by systemd", state.restarts));
        }
    }
    notes
}

fn units(seen: &Observation) -> Vec<UnitReport> {
    let order = [UNIT_CONTAINERD, UNIT_KUBELET, UNIT_LOCAL_DNS, UNIT_AGENT];
    let views = order.iter().filter_map(|name| Some((*name, seen.unit(name)?)));
    let there = views.filter(|(_, view)| view.state.as_ref().map_or(true, |state| state.load != "not-found"));
    there.map(|(name, view)| unit_report(name, view, seen)).collect()
}

fn unit_report(name: &str, view: &UnitView, seen: &Observation) -> UnitReport {
    let unknown = UnitState { active: "unknown".into(), ..UnitState::default() };
    let state = view.state.as_ref().unwrap_or(&unknown);
    let micros = i64::try_from(state.since_us).ok().filter(|us| *us > 0);
    let since = micros.and_then(|us| Timestamp::from_microsecond(us).ok());
    let version = match name {
        UNIT_CONTAINERD => containerd_version(seen),
        UNIT_KUBELET => kubelet_version(seen),
        _ => None,
    };
    UnitReport {
        unit: name.to_owned(),
        active: if state.load == "masked" { "masked".into() } else { state.active.clone() },
        sub: state.sub.clone(),
        enabled: state.enabled.clone(),
        since,
        seconds: since.map(|since| seen.at.duration_since(since).as_secs().max(0)),
        restarts: state.restarts,
        main_pid: (state.main_pid != 0).then_some(state.main_pid),
        slot: view.slot.clone(),
        version,
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;

//! From what was seen and recorded to the snapshot of the node. Pure.

use crate::collector::{containerd_version, kubelet_version};
use crate::judge;
use crate::observe::{Observation, UNIT_CONTAINERD, UNIT_KUBELET, UNITS, UnitView};
use crate::recorded::Recorded;
use flexnode_host::UnitState;
use flexnode_model::snapshot::{Mended, Reading, RuntimeReport, Snapshot, UnitReport, Validity, Verdict};
use jiff::Timestamp;

/// What is known beside what is seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// Version of this program.
    pub agent_version: String,
    /// What was recorded.
    pub recorded: Recorded,
    /// The snapshot before: since when verdict and reason are what they are.
    pub before: Option<Snapshot>,
    /// What the agent mended by itself, newest last.
    pub mended: Vec<Mended>,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}

/// Judges what was seen.
pub fn report(seen: &Observation, context: &Context) -> Snapshot {
    let recorded = &context.recorded;
    let deviations = judge::deviations(seen, recorded);
    let verdict = match (is_node(seen), deviations.is_empty()) {
        (false, _) => Verdict::NotANode,
        (true, true) => Verdict::Healthy,
        (true, false) => Verdict::Degraded,
    };
    let reason = deviations.first().map(|deviation| deviation.reason);
    let slots = seen.slots.as_ref().ok();
    let node = seen.node.as_ref().ok().and_then(Option::as_ref);
    let mut snapshot = Snapshot {
        version: Snapshot::VERSION,
        verdict,
        reason,
        summary: String::new(),
        since: Some(seen.at),
        notes: notes(seen, context),
        at: seen.at,
        agent_version: context.agent_version.clone(),
        node_name: recorded.node_name.clone().or_else(|| node.map(|n| n.name.clone())),
        kubernetes_version: kubelet_version(seen),
        containerd_version: containerd_version(seen),
        runc_version: seen.runc_version.clone().ok(),
        slot: slots.and_then(|s| s.current.as_ref()).map(|s| s.name.clone()),
        previous_slot: recorded.previous_slot(),
        other_slots: slots.map(|s| s.others.iter().map(|o| o.name.clone()).collect()).unwrap_or_default(),
        stopped_by_person: recorded.is_stopped_by_person(),
        goal: recorded.goal(),
        operation: recorded.open_operation(),
        last_operation: recorded.ended_operation(),
        units: units(seen),
        kubelet_healthy: seen.healthz.clone().map(|()| true).into(),
        runtime: Reading::from(seen.runtime.clone().map(|status| RuntimeReport {
            ready: status.runtime_ready,
            network_ready: status.network_ready,
            reasons: status.reasons.iter().map(|reason| crate::lines::clean(reason)).collect(),
        })),
        cni: seen.cni.clone().into(),
        ready: node.and_then(|n| n.ready.as_ref()).and_then(|r| r.status),
        node: seen.node.clone().into(),
        certificates: seen.certificates.clone().into(),
        disks: seen.disks.clone(),
        clock: seen.clock.clone().into(),
        reboot: seen.reboot.clone().into(),
        mended: context.mended.clone(),
        deviations,
    };
    snapshot.since = since(&snapshot, context.before.as_ref());
    snapshot.summary = summary(&snapshot);
    snapshot
}

/// Since when it is so: from the snapshot before, as long as that said the same.
fn since(now: &Snapshot, before: Option<&Snapshot>) -> Option<Timestamp> {
    let same = before.filter(|b| (b.verdict, b.reason) == (now.verdict, now.reason));
    same.and_then(|before| before.since).or(now.since).filter(|since| *since <= now.at).or(now.since)
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

fn summary(snapshot: &Snapshot) -> String {
    let name = snapshot.node_name.as_deref().unwrap_or("this node");
    match snapshot.verdict {
        Verdict::NotANode => "this host is not a node: nothing of the agent's stack is installed".into(),
        Verdict::Healthy => {
            let version = snapshot.kubernetes_version.as_deref().unwrap_or("of an unknown version");
            format!("{name} is Ready: Kubernetes {version}")
        }
        Verdict::Degraded => {
            let first = snapshot.deviations.first().map_or("", |deviation| &deviation.message);
            let more = match snapshot.deviations.len() {
                0 | 1 => String::new(),
                n => format!(" (and {} more)", n - 1),
            };
            format!("{name} is degraded: {first}{more}")
        }
    }
}

fn notes(seen: &Observation, context: &Context) -> Vec<String> {
    let mut notes = context.notes.clone();
    let goal = context.recorded.goal();
    if let Some(failed) = goal.configured_failure() {
        notes.push(format!(
            "what the configuration asks for ({}) failed at {:.0} and is not tried again by itself: {}; `aks-flex-node upgrade \
             --retry` tries it again",
            failed.goal,
            failed.when,
            crate::lines::clean(&failed.reason)
        ));
    } else if !goal.differences.is_empty() {
        notes
            .push("the configuration asks for something else than what runs: `aks-flex-node upgrade` brings it".into());
    }
    if let Some(Reading::Unknown(reason)) = &goal.configured {
        notes.push(format!("whether the configuration is what runs is not known: {reason}"));
    }
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
            && state.is_active()
            && !judge::is_looping(state, seen.at)
        {
            notes.push(format!("{name} was started again by systemd {} times", state.restarts));
        }
    }
    for certificate in seen.certificates.iter().flatten() {
        if let Reading::Known(validity) = &certificate.validity
            && ends_soon(validity, seen.at)
        {
            notes.push(format!("{} ends at {:.0} and was not renewed yet", certificate.path, validity.not_after));
        }
    }
    if let Ok(cni) = &seen.cni
        && !cni.missing_programs.is_empty()
    {
        notes.push(format!(
            "/opt/cni/bin lacks {}, which the network plugin's configuration names",
            cni.missing_programs.join(", ")
        ));
    }
    if seen.reboot.as_ref().is_ok_and(|reboot| reboot.needed) {
        notes.push("the host waits for a reboot (/run/reboot-required)".into());
    }
    notes
}

/// Less than a tenth of its time is left: kubelet renews between 70 and 90 %.
fn ends_soon(validity: &Validity, now: Timestamp) -> bool {
    let whole = validity.not_after.duration_since(validity.not_before).as_secs();
    let left = validity.not_after.duration_since(now).as_secs();
    (0..whole / 10).contains(&left)
}

fn units(seen: &Observation) -> Vec<UnitReport> {
    let views = UNITS.iter().filter_map(|name| Some((*name, seen.unit(name)?)));
    let there = views.filter(|(_, view)| view.state.as_ref().map_or(true, |state| state.load != "not-found"));
    there.map(|(name, view)| unit_report(name, view, seen)).collect()
}

fn unit_report(name: &str, view: &UnitView, seen: &Observation) -> UnitReport {
    let unknown = UnitState { active: "unknown".into(), ..UnitState::default() };
    let state = view.state.as_ref().unwrap_or(&unknown);
    let micros = i64::try_from(state.since_us).ok().filter(|us| *us > 0);
    let version = match name {
        UNIT_CONTAINERD => containerd_version(seen),
        UNIT_KUBELET => kubelet_version(seen),
        _ => None,
    };
    let process = view.program.process.as_ref().ok().and_then(Option::as_ref);
    UnitReport {
        unit: name.to_owned(),
        active: if state.load == "masked" { "masked".into() } else { state.active.clone() },
        sub: state.sub.clone(),
        enabled: state.enabled.clone(),
        since: micros.and_then(|us| Timestamp::from_microsecond(us).ok()),
        restarts: state.restarts,
        main_pid: (state.main_pid != 0).then_some(state.main_pid),
        executable: process.map(|process| process.exe.display().to_string()),
        resident_bytes: view.program.resident,
        slot: view.program.slot.clone(),
        version,
        last_lines: view.last_lines.clone(),
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;

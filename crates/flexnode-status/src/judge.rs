//! What deviates from how a node should be. Pure; the order is that of importance: what a person did, what the agent could
//! not finish, causes before what follows from them.

use crate::observe::{Known, Observation, UNIT_AGENT, UNIT_CONTAINERD, UNIT_KUBELET, UNIT_LOCAL_DNS, UnitView};
use crate::recorded::Recorded;
use crate::render::span;
use flexnode_host::UnitState;
use flexnode_model::snapshot::{Certificate, Deviation, NodeView, Reading, Reason};
use jiff::Timestamp;

/// A clock that is off by more than this many seconds makes certificates and leases fail sooner or later.
pub const MOST_SKEW: i64 = 30;
/// A unit that systemd started again so often, and that does not stay up, ends again and again.
pub const LOOPING: u32 = 3;
/// A unit that was started again stays up when it is active for so many seconds: longer than the longest pause between two
/// starts of the node's units.
pub const STAYS_UP: i64 = 90;
/// On a large disk a tenth is still enough for versions, images and logs; kubelet's own condition tells of its limits.
const ENOUGH: u64 = 10 << 30;
/// A start or stop that takes more seconds than this is no change any more.
const CHANGING: i64 = 60;

/// Everything that deviates.
pub(crate) fn deviations(seen: &Observation, recorded: &Recorded) -> Vec<Deviation> {
    let mut found = records(recorded);
    let (stopped, works) = (recorded.is_stopped_by_person(), recorded.holder.is_some() && recorded.open().is_some());
    found.extend(slots(seen));
    // A person stopped the node, or an operation has it in hands: that its units do not run is what is meant.
    if !stopped && !works {
        found.extend(node_units(seen));
    }
    let starts = |view: &UnitView| view.state.as_ref().is_ok_and(|state| state.active == "activating");
    if let Some(view) = seen.unit(UNIT_AGENT).filter(|view| !(recorded.is_agent && starts(view))) {
        found.extend(unit(UNIT_AGENT, view, recorded.agent_expected, seen.at));
    }
    let certificates = certificates(seen);
    let node = if stopped || works { None } else { node(seen) };
    found.extend(certificates);
    found.extend(node);
    if let Some(Err(e)) = &seen.arc {
        found.push(Deviation::new(Reason::ArcNotConnected, format!("Azure Arc: {e}")));
    }
    found.extend(disks(seen));
    found.extend(clock(seen));
    found
}

fn records(recorded: &Recorded) -> Vec<Deviation> {
    let mut found = Vec::new();
    if recorded.is_stopped_by_person() {
        let message = "the node was stopped by a person; `aks-flex-node start-node` starts it";
        found.push(Deviation::new(Reason::StoppedByPerson, message));
    }
    found.extend(recorded.problems.iter().map(|p| Deviation::new(Reason::RecordsUnreadable, p.clone())));
    let Some(record) = recorded.open() else { return found };
    let operation = &record.operation;
    found.push(match (recorded.holder, &record.failed_step) {
        (Some(pid), _) => Deviation::new(
            Reason::OperationInProgress,
            format!("{operation} runs (PID {pid}) and is at step {}", record.step),
        ),
        (None, Some(step)) if !record.is_interrupted() => {
            let error = record.error.as_deref().map(crate::lines::clean).unwrap_or_default();
            Deviation::new(
                Reason::OperationFailed,
                format!("{operation} failed at step {step}: {error}; run aks-flex-node {operation} again to go on"),
            )
        }
        (None, _) => Deviation::new(
            Reason::OperationInterrupted,
            format!(
                "{operation} was interrupted at step {}; the agent's service or running it again goes on",
                record.step
            ),
        ),
    });
    found
}

fn slots(seen: &Observation) -> Option<Deviation> {
    match &seen.slots {
        Err(e) => {
            Some(Deviation::new(Reason::VersionsUnreadable, format!("the version directories cannot be read: {e}")))
        }
        Ok(slots) => match &slots.current {
            None => Some(Deviation::new(Reason::NoActiveVersion, "no version is active")),
            Some(slot) => slot.problem.as_ref().map(|problem| {
                let mend = format!("`aks-flex-node slots repair {}` mends it", slot.name);
                Deviation::new(Reason::VersionDamaged, format!("version {}: {problem}; {mend}", slot.name))
            }),
        },
    }
}

fn node_units(seen: &Observation) -> Vec<Deviation> {
    let mut found = Vec::new();
    for (name, expected) in [(UNIT_CONTAINERD, true), (UNIT_LOCAL_DNS, false), (UNIT_KUBELET, true)] {
        let Some(view) = seen.unit(name) else { continue };
        found.extend(unit(name, view, expected, seen.at));
        if expected {
            found.extend(program(name, view, seen));
        }
    }
    let active = |name: &str| seen.unit(name).is_some_and(UnitView::is_active);
    // kubelet reads them once, at its start: a damaged file matters when it does not come up.
    let restarts = seen.unit(UNIT_KUBELET).and_then(|view| view.state.as_ref().ok()).map_or(0, |state| state.restarts);
    if seen.healthz.is_err() && (restarts > 0 || !active(UNIT_KUBELET)) {
        found.extend(seen.damaged_state.iter().map(|path| {
            let message = format!("kubelet cannot read {}; move it away and start kubelet again", path.display());
            Deviation::new(Reason::KubeletStateDamaged, message)
        }));
    }
    // A unit that is down is the cause; what follows from it would only hide it.
    if active(UNIT_CONTAINERD) {
        found.extend(runtime(seen));
    }
    if active(UNIT_KUBELET)
        && let Err(e) = &seen.healthz
    {
        found.push(Deviation::new(Reason::KubeletUnhealthy, format!("kubelet is not healthy: {e}")));
    }
    found
}

/// What is wrong with a unit; one that need not be there may be absent.
fn unit(unit: &str, view: &UnitView, expected: bool, now: Timestamp) -> Option<Deviation> {
    let say = |reason, message: String| Some(Deviation::new(reason, message));
    let state = match &view.state {
        Ok(state) => state,
        Err(e) => return say(Reason::UnitUnknown, format!("the state of {unit} is not known: {e}")),
    };
    // C067: one that nobody wants at boot is left over, or a person's; whether it failed is no matter of the node.
    if !expected && state.enabled != "enabled" {
        return None;
    }
    match state.load.as_str() {
        "not-found" => return say(Reason::UnitNotInstalled, format!("{unit} is not installed")),
        "masked" => return say(Reason::UnitMasked, format!("{unit} is masked: `systemctl unmask {unit}`")),
        "loaded" => {}
        other => {
            let message = format!("{unit} cannot be loaded ({other}): `systemctl status {unit}`");
            return say(Reason::UnitNotLoaded, message);
        }
    }
    if is_looping(state, now) {
        let message = format!(
            "{unit} ends again and again: systemd started it again {} times{}: `journalctl -u {unit} -n 50`",
            state.restarts,
            how_it_ended(state)
        );
        return say(Reason::UnitCrashLoops, message);
    }
    if !state.is_active() {
        return Some(not_active(unit, state, now));
    }
    if state.enabled == "disabled" {
        let message =
            format!("{unit} runs and will not after a reboot, because it is disabled: `systemctl enable {unit}`");
        return say(Reason::UnitDisabled, message);
    }
    state.need_reload.then(|| {
        let message = format!("the files of {unit} changed and were not loaded: `systemctl daemon-reload`");
        Deviation::new(Reason::UnitNotReloaded, message)
    })
}

/// Seconds since the unit entered its state.
fn seconds_in_state(state: &UnitState, now: Timestamp) -> Option<i64> {
    let since = i64::try_from(state.since_us).ok().filter(|us| *us > 0)?;
    Some(now.duration_since(Timestamp::from_microsecond(since).ok()?).as_secs())
}

/// Whether the program of a unit ends again and again. A main PID that is 0 while the unit "is starting" says nothing by
/// itself; how often systemd started it again does.
pub fn is_looping(state: &UnitState, now: Timestamp) -> bool {
    let settled = state.is_active() && seconds_in_state(state, now).is_none_or(|s| !(0..STAYS_UP).contains(&s));
    let meant = matches!(state.active.as_str(), "inactive" | "deactivating");
    state.restarts >= LOOPING && !settled && !meant
}

fn how_it_ended(state: &UnitState) -> String {
    match (state.result.as_str(), state.exit_status) {
        ("" | "success", _) => String::new(),
        ("signal", signal) => format!(" (ended by signal {signal})"),
        (result, 0) => format!(" ({result})"),
        (result, status) => format!(" ({result} {status})"),
    }
}

fn not_active(unit: &str, state: &UnitState, now: Timestamp) -> Deviation {
    let how = how_it_ended(state);
    let seconds = seconds_in_state(state, now).unwrap_or(0);
    let log = format!("`journalctl -u {unit} -n 50`");
    match state.active.as_str() {
        "activating" | "deactivating" | "reloading" if state.sub == "auto-restart" || seconds <= CHANGING => {
            Deviation::new(Reason::UnitChanging, format!("{unit} is {} ({}){how}", state.active, state.sub))
        }
        "activating" | "deactivating" => {
            let message = format!("{unit} is {} for {} now{how}: {log}", state.active, span(seconds));
            Deviation::new(Reason::UnitStopped, message)
        }
        "failed" => Deviation::new(Reason::UnitFailed, format!("{unit} is failed{how}: {log}")),
        active => {
            let boot =
                if state.enabled == "disabled" { ", and disabled: it does not start at boot either" } else { "" };
            Deviation::new(Reason::UnitStopped, format!("{unit} is {active}{how}{boot}: {log}"))
        }
    }
}

/// A process that does not run the active slot's program.
fn program(unit: &str, view: &UnitView, seen: &Observation) -> Option<Deviation> {
    let process = match &view.program.process {
        // One that is just ending has no program any more.
        Ok(Some(process)) if process.exe_id.is_none() => return None,
        Ok(Some(process)) => process,
        Ok(None) => return None,
        Err(e) => {
            return Some(Deviation::new(Reason::UnitUnknown, format!("the process of {unit} cannot be read: {e}")));
        }
    };
    let current = seen.slots.as_ref().ok()?.current.as_ref()?;
    let restart = "`aks-flex-node restart` starts the active one";
    match &view.program.slot {
        Some(slot) if *slot == current.name => None,
        Some(slot) => {
            let message = format!("{unit} still runs version {slot}; {} is active; {restart}", current.name);
            Some(Deviation::new(Reason::OtherVersionRuns, message))
        }
        None => {
            let message = format!("{unit} runs {}, which is no program of a version", process.exe.display());
            Some(Deviation::new(Reason::ForeignProgram, message))
        }
    }
}

fn runtime(seen: &Observation) -> Option<Deviation> {
    match &seen.runtime {
        Err(e) => Some(Deviation::new(Reason::RuntimeSilent, format!("containerd does not answer: {e}"))),
        Ok(status) if !status.runtime_ready => {
            let reasons: Vec<String> = status.reasons.iter().map(|reason| crate::lines::clean(reason)).collect();
            let message = format!("containerd is not ready: {}", reasons.join("; "));
            Some(Deviation::new(Reason::RuntimeNotReady, message))
        }
        // The missing network is the Node's reason too, and is told there.
        Ok(_) => None,
    }
}

/// The name by which a certificate is called in sentences.
fn called(certificate: &Certificate) -> &str {
    match certificate.name.as_str() {
        "kubeletClient" => "kubelet's client certificate",
        "kubeletServing" => "kubelet's serving certificate",
        "clusterCa" => "the cluster's CA",
        other => other,
    }
}

fn certificates(seen: &Observation) -> Vec<Deviation> {
    let judge = |certificate: &Certificate| {
        let (name, path) = (called(certificate), &certificate.path);
        let mend = match certificate.name.as_str() {
            "kubeletClient" => {
                "put a new bootstrap token into the configuration, remove the file and run `aks-flex-node restart`"
            }
            "clusterCa" => "renew it in the cluster, then reset and join again",
            _ => "kubelet makes a new one when it starts: `aks-flex-node restart`",
        };
        match &certificate.validity {
            Reading::Unknown(reason) => {
                let message = format!("{name} cannot be used: {reason}; with a bootstrap token kubelet gets a new one");
                Some(Deviation::new(Reason::CredentialsMissing, message))
            }
            Reading::Known(validity) if seen.at > validity.not_after => {
                let message = format!("{name} in {path} expired at {:.0}: {mend}", validity.not_after);
                Some(Deviation::new(Reason::CertificateExpired, message))
            }
            Reading::Known(validity) if seen.at < validity.not_before => {
                let seconds = validity.not_before.duration_since(seen.at).as_secs();
                let message = format!(
                    "{name} in {path} is not valid before another {}: is this host's clock wrong?",
                    span(seconds)
                );
                Some(Deviation::new(Reason::CertificateNotYetValid, message))
            }
            Reading::Known(_) => None,
        }
    };
    seen.certificates.iter().flatten().filter_map(judge).collect()
}

fn node(seen: &Observation) -> Option<Deviation> {
    match &seen.node {
        Err(e) => Some(Deviation::new(Reason::NodeUnknown, format!("whether the Node is Ready is not known: {e}"))),
        Ok(None) => Some(Deviation::new(Reason::NodeMissing, missing(&seen.certificates, seen.at))),
        Ok(Some(node)) if node.waits_only_for_network() => Some(Deviation::new(
            Reason::NetworkPluginMissing,
            "the Node is not Ready: it waits for the cluster's network plugin (nothing in /etc/cni/net.d is usable yet)",
        )),
        Ok(Some(node)) => not_ready(node),
    }
}

fn not_ready(node: &NodeView) -> Option<Deviation> {
    let why = crate::lines::clean(&node.why_not_ready()?);
    Some(Deviation::new(Reason::NodeNotReady, format!("the Node is not Ready: {why}")))
}

/// A Node that was deleted: kubelet registers a new one when it starts and can still prove who it is.
fn missing(certificates: &Known<Vec<Certificate>>, now: Timestamp) -> String {
    let client = certificates.iter().flatten().find(|certificate| certificate.name == "kubeletClient");
    let good = client.is_some_and(|certificate| certificate.validity.known().is_some_and(|v| now <= v.not_after));
    let mend = if good {
        "kubelet's certificate is still good: `aks-flex-node restart` registers the node again"
    } else {
        "kubelet has no certificate that is good, so a new bootstrap token is needed in the configuration"
    };
    format!("the cluster has no Node of this name, it may have been deleted; {mend}")
}

fn disks(seen: &Observation) -> Vec<Deviation> {
    let mut found = Vec::new();
    for disk in &seen.disks {
        let Reading::Known(space) = &disk.space else { continue };
        if space.is_short_of_bytes() && space.free_bytes < ENOUGH {
            let (free, total) = (space.free_bytes >> 20, space.total_bytes >> 20);
            let message = format!("the file system of {} is nearly full: {free} of {total} MiB are free", disk.path);
            found.push(Deviation::new(Reason::DiskPressure, message));
        }
        if space.is_short_of_inodes() {
            let message = format!(
                "the file system of {} has few inodes left: {} of {} are free",
                disk.path, space.free_inodes, space.total_inodes
            );
            found.push(Deviation::new(Reason::InodePressure, message));
        }
    }
    found
}

fn clock(seen: &Observation) -> Option<Deviation> {
    let skew = seen.clock.as_ref().ok().filter(|skew| skew.seconds.abs() > MOST_SKEW)?;
    let side = if skew.seconds > 0 { "ahead of" } else { "behind" };
    let message = format!(
        "the clock of this host is {} {side} the API server's: set it, and start a time service (`timedatectl`)",
        span(skew.seconds.abs())
    );
    Some(Deviation::new(Reason::ClockSkew, message))
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;

//! The contract's collector: from what is seen to the snapshot that other programs read.

use crate::bootstrap::{BootstrapReason, UNKNOWN, bootstrap_reason};
use crate::file::{StatusFileError, load_status_from_file, publish_status};
use crate::observe::{Known, Observation, Seams, UNIT_CONTAINERD, UNIT_KUBELET, UnitView, observe};
use crate::slots::{SlotFacts, SlotsView};
use crate::{ArcStatus, LastUpdatedBy, LastUpdatedReason, NodeStatus, get_status_file_path};
use flexnode_model::Snapshot;
use std::path::PathBuf;

/// What the collector has to know of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectorConfig {
    /// Azure Arc is enabled and a machine name is set: the node is only whole when it is connected.
    pub arc: bool,
}

/// Collects system and node status (`Collector`).
#[derive(Clone, Debug)]
pub struct Collector {
    config: CollectorConfig,
    seams: Seams,
    agent_version: String,
    file: PathBuf,
}

impl Collector {
    /// A collector that reads and writes the status file of this process (`NewCollector`).
    pub fn new(config: CollectorConfig, seams: Seams, agent_version: impl Into<String>) -> Self {
        Self::with_file(config, seams, agent_version, get_status_file_path())
    }

    /// With another status file.
    pub fn with_file(
        config: CollectorConfig,
        seams: Seams,
        agent_version: impl Into<String>,
        file: impl Into<PathBuf>,
    ) -> Self {
        Self { config, seams, agent_version: agent_version.into(), file: file.into() }
    }

    /// Everything that can be seen now.
    pub async fn observe(&self) -> Observation {
        observe(&self.seams, self.config.arc).await
    }

    /// A snapshot of now (`CollectStatus`). It never fails: what could not be found out is `unknown` in it. Who collects it
    /// and why is the caller's to fill in; nothing is written.
    pub async fn collect_status(&self) -> NodeStatus {
        to_status(&self.observe().await, &self.agent_version)
    }

    /// Collects a snapshot and writes it as the periodic loop does. Gives back what was seen.
    pub async fn publish(&self) -> Result<Observation, StatusFileError> {
        let seen = self.observe().await;
        let status = NodeStatus {
            last_updated_by: LastUpdatedBy::StatusCollectionLoop,
            last_updated_reason: LastUpdatedReason::PeriodicStatusLoop,
            ..to_status(&seen, &self.agent_version)
        };
        publish_status(&self.file, &status, seen.began)?;
        Ok(seen)
    }

    /// Whether the status file says that the node has to be set up, again or for the first time (`NeedsBootstrap`). It is a
    /// report: nothing is changed on it.
    pub fn needs_bootstrap(&self) -> bool {
        self.bootstrap_reason().is_some()
    }

    /// The same with the reason.
    pub fn bootstrap_reason(&self) -> Option<BootstrapReason> {
        let now = self.seams.clock.now();
        bootstrap_reason(&load_status_from_file(&self.file), self.config.arc, now)
    }
}

/// The contract's fields of a snapshot, as the periodic loop writes them.
pub fn to_published(seen: &Observation, snapshot: &Snapshot) -> NodeStatus {
    NodeStatus {
        last_updated: Some(snapshot.at),
        last_updated_by: LastUpdatedBy::StatusCollectionLoop,
        last_updated_reason: LastUpdatedReason::PeriodicStatusLoop,
        ..to_status(seen, &snapshot.agent_version)
    }
}

/// The snapshot of what was seen. `unknown` and `Unknown` stand for what is not known: never an older value.
pub fn to_status(seen: &Observation, agent_version: &str) -> NodeStatus {
    let or_unknown = |version: Option<String>| version.unwrap_or_else(|| UNKNOWN.to_owned());
    let running = |unit: &str| seen.unit(unit).is_some_and(UnitView::is_active);
    NodeStatus {
        kubelet_version: or_unknown(kubelet_version(seen)),
        runc_version: or_unknown(seen.runc_version.clone().ok()),
        containerd_version: or_unknown(containerd_version(seen)),
        kubelet_running: running(UNIT_KUBELET),
        kubelet_ready: ready_word(seen).to_owned(),
        containerd_running: running(UNIT_CONTAINERD),
        arc_status: match &seen.arc {
            Some(Ok(status)) => status.clone(),
            _ => ArcStatus::default(),
        },
        last_updated: Some(seen.at),
        last_updated_by: LastUpdatedBy::Unspecified,
        last_updated_reason: LastUpdatedReason::Unspecified,
        agent_version: agent_version.to_owned(),
    }
}

fn ready_word(seen: &Observation) -> &'static str {
    let condition = match &seen.node {
        Ok(Some(node)) => node.ready.as_ref().and_then(|ready| ready.status),
        _ => None,
    };
    match condition {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    }
}

/// Kubelet's version: what the slot records whose program runs; of the active slot while it does not run.
pub(crate) fn kubelet_version(seen: &Observation) -> Option<String> {
    slot_of(seen, UNIT_KUBELET)?.kubelet_version.clone()
}

/// As kubelet's; where the slot does not record it, what the running containerd says of itself.
pub(crate) fn containerd_version(seen: &Observation) -> Option<String> {
    let slot = slot_of(seen, UNIT_CONTAINERD)?;
    slot.containerd_version.clone().or_else(|| {
        let version = seen.runtime_version.as_ref().ok().filter(|v| !v.version.is_empty())?;
        // Builds add to it: `2.1.9+unknown`, `1.7.24~ds1`.
        let plain = version.version.trim_start_matches('v');
        Some(plain.split(['+', '~']).next().unwrap_or(plain).to_owned())
    })
}

/// The slot that a unit's version comes from. A process that runs no slot's program has no version that we know.
fn slot_of<'a>(seen: &'a Observation, unit: &str) -> Option<&'a SlotFacts> {
    let slots: &SlotsView = known(&seen.slots)?;
    let view = seen.unit(unit)?;
    match (&view.program.process, &view.program.slot) {
        (Ok(None), _) => slots.current.as_ref(),
        (_, Some(name)) => slots.current.iter().chain(&slots.others).find(|slot| &slot.name == name),
        _ => None,
    }
}

fn known<T>(value: &Known<T>) -> Option<&T> {
    value.as_ref().ok()
}

#[cfg(test)]
#[path = "collector_tests.rs"]
mod tests;

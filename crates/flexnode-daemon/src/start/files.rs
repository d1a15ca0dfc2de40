//! Files that belong to the node and not to a version, and what is recorded of the host.

use super::steps::Parts;
use crate::api::{self, Credential};
use crate::leftovers;
use crate::state::{StateStore, StateStoreError};
use flexnode_host::durable;
use flexnode_ops::{Outcome, StepError};
use flexnode_stack::{kubeconfig, node_files, places, references};
use std::path::Path;

/// Writes the CA, the registration and, where kubelet has no valid certificate, the bootstrap kubeconfig; then looks that
/// kubelet will find every file that its configuration names.
pub fn write(parts: &Parts) -> Result<Outcome, StepError> {
    let fs = parts.host.fs.as_ref();
    let root = parts.backend().root(parts.prepared.slot.as_str());
    let (goal, join) = (&parts.prepared.goal, &parts.prepared.join);
    let written = node_files::write(fs, &root, goal, join)
        .map_err(|e| StepError::caused("the node's files could not be written", e))?;
    let mut changed = written.changed;
    // kubelet goes back to the bootstrap kubeconfig also when its certificate has expired.
    let credential = api::credential(fs, parts.host.clock.now());
    if let (false, Credential::Token(_), Some(token)) = (written.bootstraps, credential, &join.token) {
        let path = Path::new(places::BOOTSTRAP_KUBECONFIG);
        let bytes = kubeconfig::bootstrap(&goal.api_server, &goal.ca_pem, token);
        let change = durable::write(fs, path, &bytes, 0o600)
            .map_err(|e| StepError::caused("the bootstrap kubeconfig could not be written", e))?;
        if change.made() {
            changed.push(path.into());
        }
    }
    references::check(fs, &root).map_err(|e| StepError::caused("kubelet would not find what it needs", e))?;
    if changed.is_empty() {
        return Ok(Outcome::Unchanged);
    }
    let names: Vec<String> = changed.iter().map(|path| path.display().to_string()).collect();
    Ok(Outcome::Changed(names.join(", ")))
}

/// Records how the host was before the first change, once, and removes what a run that was killed left under temporary
/// names of ours.
pub async fn record_host(parts: &Parts) -> Result<Outcome, StepError> {
    let recorded = parts.recorder.record_host(&parts.host).await?;
    let swept = leftovers::sweep(parts.host.fs.as_ref())
        .map_err(|e| StepError::caused("left-over temporary files cannot be removed", e))?;
    Ok(if swept > 0 { Outcome::Changed(format!("{swept} left-over temporary files removed")) } else { recorded })
}

/// Records durably what is applied.
pub fn save_state(parts: &Parts) -> Result<Outcome, StepError> {
    let store = StateStore::new(parts.host.fs.clone());
    let failed = |e: StateStoreError| StepError::caused("the applied state cannot be recorded", e);
    let before = store.load().map_err(failed)?.unwrap_or_default();
    let next = before
        .applied(&parts.prepared.goal)
        .map_err(|e| StepError::caused("the applied state cannot be recorded", e))?;
    let change = store.save(&next).map_err(failed)?;
    Ok(if change.made() {
        Outcome::Changed(format!("goal {}", parts.prepared.fingerprint))
    } else {
        Outcome::Unchanged
    })
}

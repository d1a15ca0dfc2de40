//! Whether the configuration file says what is applied. It does not after an upgrade to a version or to another file.

use super::NodeContext;
use crate::start::written_differences;
use flexnode_host::Host;
use flexnode_model::{Difference, MachineGoal};
use std::path::Path;

/// The settings of the configuration file that say something else than `applied`, each from what is written to what runs:
/// the lines to edit. `None`: the file cannot be read.
pub async fn edits(host: &Host, config: &Path, applied: &MachineGoal) -> Option<Vec<Difference>> {
    let (host, config, applied) = (host.clone(), config.to_path_buf(), applied.clone());
    let work = move || {
        let differences = written_differences(&host, &config, &applied).ok()?;
        Some(differences.into_iter().filter(Difference::is_editable).map(Difference::reversed).collect())
    };
    tokio::task::spawn_blocking(work).await.ok().flatten()
}

/// As [`edits`], for the goal that the recorded state says is applied. `None` also on a host that is no node.
pub async fn edits_of_node(context: &NodeContext) -> Option<Vec<Difference>> {
    let slot = context.state().ok()?.1.active_slot?;
    edits(context.host(), &context.start.config, &context.goal_of(&slot).ok()?).await
}

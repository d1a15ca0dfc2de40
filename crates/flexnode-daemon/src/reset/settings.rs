//! The host's own settings: back to what they were, unless somebody changed them since.

use super::facts::Facts;
use super::plan::{Kept, Plan, Removal};
use crate::host_setup::{fstab, swap, sysctls};
use std::path::{Path, PathBuf};

/// How the files begin that the agent writes into directories of the system.
const HEADER: &str = "# Written by aks-flex-node.";

/// Writing it makes the kernel write others.
const FORWARD: &str = "net.ipv4.ip_forward";

/// Adds the settings' part to `plan`.
pub(super) fn plan(facts: &Facts, plan: &mut Plan) {
    files(facts, plan);
    if let Some(restored) = facts.fstab.as_deref().and_then(fstab::restore_swap) {
        plan.removals.push(Removal::Restore(swap::FSTAB.into(), restored.into_bytes()));
    }
    plan.removals.extend(facts.masked.iter().cloned().map(Removal::Unmask));
    plan.removals.extend(facts.disabled.iter().cloned().map(Removal::Enable));
    let Some(record) = &facts.record else { return };
    kernel(facts, plan);
    for area in record.swaps.iter().filter(|area| !facts.swaps.contains(&area.path)) {
        if facts.swap_paths.contains(&area.path) {
            plan.removals.push(Removal::SwapOn(area.path.clone(), area.priority));
        } else {
            let why = "it is not there now; what makes it at boot will do so again";
            plan.kept.push(Kept::new(format!("swap off on {}", area.path), why));
        }
    }
    for module in &record.modules {
        let why = "another program may use it by now; it is gone after a reboot";
        plan.kept.push(Kept::new(format!("the kernel module {module}"), why));
    }
}

fn files(facts: &Facts, plan: &mut Plan) {
    for (path, content) in &facts.setup_files {
        let Some(content) = content else { continue };
        let name = path.to_string_lossy();
        let before = facts.record.as_ref().and_then(|record| record.file(&name));
        if before.as_ref().is_some_and(|before| before.as_ref() == Some(content)) {
            continue;
        }
        if !content.starts_with(HEADER.as_bytes()) {
            if before.is_some() {
                plan.kept.push(Kept::new(name, "somebody changed it since"));
            }
            continue;
        }
        match before.flatten() {
            Some(before) => plan.removals.push(Removal::Restore(path.clone(), before)),
            None => plan.removals.push(Removal::Tree { path: path.clone(), spare: Vec::new() }),
        }
    }
    empty_parents(facts, plan);
}

/// A directory of the system that the agent had to make goes when the file was all that was in it.
fn empty_parents(facts: &Facts, plan: &mut Plan) {
    for dir in ["/etc/modules-load.d", "/etc/sysctl.d"].map(PathBuf::from) {
        let new = facts.record.as_ref().and_then(|record| record.existed(&dir.to_string_lossy())) == Some(false);
        let Some(place) = facts.places.get(&dir) else { continue };
        let gone = |name: &Path| plan.removals.iter().any(|r| matches!(r, Removal::Tree { path, .. } if path == name));
        let planned = plan.removals.contains(&Removal::IfEmpty(dir.clone()));
        if new && place.kind.is_some() && !planned && place.entries.iter().all(|e| gone(&dir.join(&e.name))) {
            plan.removals.push(Removal::IfEmpty(dir));
        }
    }
}

/// Settings that are still as the agent set them. Those that the kernel changed along come last: writing the others
/// changes them again.
fn kernel(facts: &Facts, plan: &mut Plan) {
    let Some(record) = &facts.record else { return };
    let set = |key: &str| sysctls::SETTINGS.iter().find(|setting| setting.key == key);
    let mut late = Vec::new();
    let (first, others): (Vec<_>, Vec<_>) = record.sysctls.iter().partition(|(key, _)| *key == FORWARD);
    for (key, before) in first.into_iter().chain(others) {
        let Some(now) = facts.sysctls.get(key) else { continue };
        if sysctls::normal(now) == sysctls::normal(before) {
            continue;
        }
        let removal = Removal::Sysctl(key.clone(), before.clone());
        match set(key) {
            Some(setting) if sysctls::normal(now) != setting.value => {
                plan.kept.push(Kept::new(format!("the kernel setting {key} = {now}"), "somebody changed it since"));
            }
            Some(_) => plan.removals.push(removal),
            None => late.push(removal),
        }
    }
    plan.removals.extend(late);
}

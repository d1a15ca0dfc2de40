//! What the properties of a unit say. No I/O.

use super::bus::Properties;
use crate::UnitState;
use std::path::PathBuf;
use zbus::{Array, OwnedObjectPath, OwnedVariant, Variant};

fn get<T: TryFrom<OwnedVariant>>(all: &Properties, name: &str) -> Option<T> {
    T::try_from(all.get(name)?.try_clone().ok()?).ok()
}

fn text(all: &Properties, name: &str) -> String {
    get(all, name).unwrap_or_default()
}

/// When the unit entered the active state that it is in.
fn since(all: &Properties, active: &str) -> u64 {
    let name = match active {
        "active" | "reloading" | "refreshing" => "ActiveEnterTimestamp",
        "activating" => "InactiveExitTimestamp",
        "deactivating" => "ActiveExitTimestamp",
        _ => "InactiveEnterTimestamp",
    };
    get(all, name).unwrap_or(0)
}

/// argv of the first entry of ExecStart, an array of (path, argv, ignore failure, ...).
fn exec_start(all: &Properties) -> Vec<String> {
    let Some(Variant::Array(commands)) = all.get("ExecStart").map(|value| &**value) else { return Vec::new() };
    let Some(Variant::Structure(first)) = commands.inner().first() else { return Vec::new() };
    match first.fields().get(1) {
        Some(Variant::Array(argv)) => strings(argv),
        _ => Vec::new(),
    }
}

fn strings(array: &Array<'_>) -> Vec<String> {
    let string = |value: &Variant<'_>| match value {
        Variant::Str(text) => Some(text.to_string()),
        _ => None,
    };
    array.inner().iter().filter_map(string).collect()
}

/// The unit's job, of type (number, path); number 0 says that there is none.
pub(super) fn job(all: &Properties) -> Option<OwnedObjectPath> {
    let (number, path): (u32, OwnedObjectPath) = get(all, "Job")?;
    (number != 0).then_some(path)
}

/// The state of a unit from its general properties and those of its type. `enabled` is not among them.
pub(super) fn state(general: &Properties, service: &Properties) -> UnitState {
    let active = text(general, "ActiveState");
    let drop_ins: Vec<String> = get(general, "DropInPaths").unwrap_or_default();
    UnitState {
        load: text(general, "LoadState"),
        since_us: since(general, &active),
        active,
        sub: text(general, "SubState"),
        enabled: String::new(),
        fragment: PathBuf::from(text(general, "FragmentPath")),
        drop_ins: drop_ins.into_iter().map(PathBuf::from).collect(),
        need_reload: get(general, "NeedDaemonReload").unwrap_or(false),
        main_pid: get(service, "MainPID").unwrap_or(0),
        restarts: get(service, "NRestarts").unwrap_or(0),
        result: text(service, "Result"),
        exit_status: get(service, "ExecMainStatus").unwrap_or(0),
        exec_start: exec_start(service),
        environment: get(service, "Environment").unwrap_or_default(),
        control_group: text(service, "ControlGroup"),
    }
}

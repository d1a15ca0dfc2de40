//! containerd's configuration file, and the check that containerd understood it.
//!
//! The same setting lies at different places in configuration version 2 (containerd 1.7) and 3 (2.x), and a wrong place
//! is ignored without a word. So the places are one table per generation, and what was rendered is read back from
//! `containerd config dump` before containerd is started with it.

use crate::merge::merge;
use crate::places::{CNI_BIN, CNI_CONF, CONTAINERD_ROOT, CONTAINERD_SOCKET, CONTAINERD_STATE, REGISTRY_CONFIG};
use flexnode_model::{CgroupLayout, MachineGoal};
use serde_json::{Map, Value, json};
use std::path::Path;

/// A configuration that cannot be rendered or was not understood.
#[derive(Debug, thiserror::Error)]
pub enum ContainerdError {
    /// We do not know where settings lie for it.
    #[error("containerd {version} is not supported; 1.7 and 2.x are")]
    Version {
        /// As the source names it.
        version: String,
    },
    /// TOML has no form for what a person gave.
    #[error("node.containerd.config cannot be written as TOML")]
    Toml(#[from] toml::ser::Error),
    /// What `containerd config dump` printed, or our own file, is no TOML.
    #[error("{what} is no TOML")]
    Unreadable {
        /// Which of the two.
        what: &'static str,
        /// The cause, with the place.
        #[source]
        source: Box<toml::de::Error>,
    },
}

/// Where settings lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generation {
    /// Configuration version 2.
    V1,
    /// Configuration version 3, one directory of CNI plugins.
    V20,
    /// Configuration version 3, a list of directories of CNI plugins.
    V21,
}

impl Generation {
    fn of(version: &str) -> Result<Self, ContainerdError> {
        let mut numbers = version.trim_start_matches('v').split('.').map(|n| n.parse::<u32>().ok());
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(1), Some(7..)) => Ok(Self::V1),
            (Some(2), Some(0)) => Ok(Self::V20),
            (Some(2), Some(_)) => Ok(Self::V21),
            _ => Err(ContainerdError::Version { version: version.to_owned() }),
        }
    }

    /// The plugin sections of what we set, at their places.
    fn plugins(self, sandbox_image: &str, runtime: &Value) -> Value {
        let registry = json!({"config_path": REGISTRY_CONFIG});
        let mut cni = json!({"conf_dir": CNI_CONF});
        match self {
            Self::V1 | Self::V20 => cni["bin_dir"] = CNI_BIN.into(),
            Self::V21 => cni["bin_dirs"] = json!([CNI_BIN]),
        }
        match self {
            Self::V1 => json!({
                "io.containerd.grpc.v1.cri": {
                    "sandbox_image": sandbox_image,
                    "image_pull_progress_timeout": PULL_PROGRESS,
                    "max_concurrent_downloads": DOWNLOADS,
                    "registry": registry,
                    "containerd": runtime,
                    "cni": cni,
                },
            }),
            Self::V20 | Self::V21 => {
                let mut plugins = json!({
                    "io.containerd.cri.v1.images": {
                        "pinned_images": {"sandbox": sandbox_image},
                        "image_pull_progress_timeout": PULL_PROGRESS,
                        "registry": registry,
                    },
                    "io.containerd.cri.v1.runtime": {"containerd": runtime, "cni": cni},
                });
                // From 2.1 on pulls go through the transfer service; the setting of the images plugin would send CRI
                // back to its old way of pulling.
                let puller = if self == Self::V20 { "io.containerd.cri.v1.images" } else { TRANSFER };
                plugins[puller]["max_concurrent_downloads"] = DOWNLOADS.into();
                plugins
            }
        }
    }
}

/// A pull that made no progress for so long is given up; large layers on slow disks need more than the default.
const PULL_PROGRESS: &str = "30m0s";
const TRANSFER: &str = "io.containerd.transfer.v1.local";
/// Layers that are fetched at a time.
const DOWNLOADS: u32 = 6;
/// Where metrics are served, as monitoring of this agent family expects. `node.containerd.config` may say another.
const METRICS: &str = "0.0.0.0:10257";
const HEADER: &str = "# Written by aks-flex-node; changes are lost. Use node.containerd.config.\n";

/// The file's bytes for this goal and containerd `version`.
///
/// `bin_dir` is where runc is found at run time, as the stack sees it. It should be a path that stays the same when
/// another slot becomes the active one: containerd keeps it with each container.
pub fn config(goal: &MachineGoal, version: &str, bin_dir: &Path) -> Result<Vec<u8>, ContainerdError> {
    let generation = Generation::of(version)?;
    let mut config = rendered(goal, generation, bin_dir);
    merge_exactly(&mut config, &goal.containerd.config);
    // The model refused these in node.containerd.config; they are set last all the same.
    merge(&mut config, &owned(generation));
    let text = toml::to_string_pretty(&config)?;
    Ok(format!("{HEADER}{text}").into_bytes())
}

fn rendered(goal: &MachineGoal, generation: Generation, bin_dir: &Path) -> Map<String, Value> {
    let runc = json!({
        "runtime_type": "io.containerd.runc.v2",
        "options": {
            "BinaryName": bin_dir.join("runc"),
            "NoNewKeyring": true,
            // The driver that kubelet is told too; two different ones would fight over the same groups.
            "SystemdCgroup": goal.cgroups == CgroupLayout::V2,
        },
    });
    // `untrusted` is a name that pods of older clusters ask for; it is the same runtime.
    let runtime = json!({"default_runtime_name": "runc", "runtimes": {"runc": runc, "untrusted": runc}});
    let value = json!({
        "oom_score": 0,
        "metrics": {"address": METRICS},
        "plugins": generation.plugins(&goal.containerd.sandbox_image, &runtime),
    });
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Nothing of a distribution's containerd comes in: no imports, our own places.
fn owned(generation: Generation) -> Map<String, Value> {
    let version = if generation == Generation::V1 { 2 } else { 3 };
    let value = json!({
        "version": version,
        "root": CONTAINERD_ROOT,
        "state": CONTAINERD_STATE,
        "grpc": {"address": CONTAINERD_SOCKET},
    });
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// As [`merge`], but keys of containerd are compared letter by letter: `SystemdCgroup` is no other key's spelling.
fn merge_exactly(base: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(Value::Object(base)), Value::Object(over)) => merge_exactly(base, over),
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Which settings of the file `rendered` are not in what `containerd config dump` printed for it, with another value or
/// not at all: containerd ignores them, since the key or its place is wrong. Dotted paths, sorted.
pub fn ignored(rendered: &[u8], dump: &[u8]) -> Result<Vec<String>, ContainerdError> {
    let rendered = parse(rendered, "containerd/config.toml")?;
    let dump = parse(dump, "the answer of `containerd config dump`")?;
    let mut missing = Vec::new();
    compare("", &rendered, Some(&dump), &mut missing);
    missing.sort();
    Ok(missing)
}

/// The arguments of containerd that print the configuration that it would run with.
pub fn dump_arguments(config: &Path) -> Vec<String> {
    vec!["--config".into(), config.display().to_string(), "config".into(), "dump".into()]
}

fn parse(bytes: &[u8], what: &'static str) -> Result<toml::Value, ContainerdError> {
    let text = String::from_utf8_lossy(bytes);
    let table = text.parse::<toml::Table>();
    table.map(toml::Value::Table).map_err(|e| ContainerdError::Unreadable { what, source: Box::new(e) })
}

fn compare(path: &str, given: &toml::Value, found: Option<&toml::Value>, missing: &mut Vec<String>) {
    match given {
        toml::Value::Table(table) if !table.is_empty() => {
            for (key, given) in table {
                let plain = key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
                let key_text = if plain { key.clone() } else { format!("'{key}'") };
                let path = if path.is_empty() { key_text } else { format!("{path}.{key_text}") };
                compare(&path, given, found.and_then(|found| found.get(key)), missing);
            }
        }
        given if found.is_some_and(|found| same(given, found)) => {}
        _ => missing.push(path.to_owned()),
    }
}

/// Numbers compare by value whatever their TOML type; durations are texts and are printed in one normal form, so `30m` and
/// `30m0s` are the same.
fn same(given: &toml::Value, found: &toml::Value) -> bool {
    use toml::Value::{Array, Float, Integer, String, Table};
    match (given, found) {
        (String(a), String(b)) => a == b || duration(a).is_some_and(|a| duration(b) == Some(a)),
        #[expect(clippy::cast_precision_loss, reason = "settings are far below 2^53")]
        (Integer(a), Float(b)) | (Float(b), Integer(a)) => (*a as f64 - b).abs() < f64::EPSILON,
        (Array(a), Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Table(a), Table(b)) => a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b))),
        (a, b) => a == b,
    }
}

/// Nanoseconds of a text in Go's form of durations (`1h30m0.5s`).
fn duration(text: &str) -> Option<i128> {
    let mut rest = text.strip_prefix('-').unwrap_or(text);
    let mut total: i128 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let units: [(&str, i128); 7] = [
            ("ns", 1),
            ("us", 1_000),
            ("µs", 1_000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
            ("m", 60_000_000_000),
            ("h", 3_600_000_000_000),
        ];
        let (unit, scale) = units.iter().find(|(unit, _)| tail.starts_with(unit))?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        total = total.checked_add(whole.parse::<i128>().ok()?.checked_mul(*scale)?)?;
        if !fraction.is_empty() {
            let digits = u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 12)?;
            total = total.checked_add(fraction.parse::<i128>().ok()? * scale / 10_i128.pow(digits))?;
        }
        rest = &tail[unit.len()..];
    }
    Some(if text.starts_with('-') { -total } else { total })
}

//! What is different between two goals, for people.

use crate::{MachineGoal, canonical};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// One setting that is not the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The configuration key that leads to it where there is one, otherwise the path in the goal.
    pub path: String,
    /// The value before; `not set` when there was none.
    pub from: String,
    /// The value now; `not set` when there is none.
    pub to: String,
}

/// The sections of the configuration file.
const SECTIONS: [&str; 6] = ["agent.", "azure.", "bootstrap.", "components.", "networking.", "node."];

impl Difference {
    /// Whether it is a key of the configuration file, which a person can edit; otherwise it comes from the host or from the
    /// artifact source.
    pub fn is_editable(&self) -> bool {
        SECTIONS.iter().any(|section| self.path.starts_with(section))
    }

    /// From what is now to what was before.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { path: self.path, from: self.to, to: self.from }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.path, self.from, self.to)
    }
}

/// Path in the goal, and the configuration key that a person knows it by.
const KEYS: &[(&str, &str)] = &[
    ("isolation", "node.isolation"),
    ("nodeName", "agent.nodeName"),
    ("nodeIps", "node.kubelet.nodeIP"),
    ("apiServer", "node.kubelet.clusterFQDN"),
    ("caPem", "node.kubelet.caCertData"),
    ("dnsServiceIps", "networking.dnsServiceIP"),
    ("kubernetesVersion", "components.kubernetes"),
    ("containerdVersion", "components.containerd"),
    ("runcVersion", "components.runc"),
    ("cniVersion", "networking.cniVersion"),
    ("kubelet.maxPods", "node.maxPods"),
    ("kubelet.imageGcHighThreshold", "node.kubelet.imageGCHighThreshold"),
    ("kubelet.imageGcLowThreshold", "node.kubelet.imageGCLowThreshold"),
    ("kubelet", "node.kubelet"),
    ("containerd.sandboxImage", "components.sandboxImage"),
    ("containerd", "node.containerd"),
];

/// Key words that mark a value which may be a secret (registry credentials in containerd's settings).
const HIDDEN: &[&str] = &["password", "secret", "token", "auth", "credential", "key"];

impl MachineGoal {
    /// All settings that differ, in a stable order; empty when the goals are the same.
    pub fn differences(&self, other: &MachineGoal) -> Vec<Difference> {
        let mut out = Vec::new();
        compare(&mut Vec::new(), Some(&to_value(self)), Some(&to_value(other)), &mut out);
        out
    }
}

fn to_value(goal: &MachineGoal) -> Value {
    serde_json::to_value(goal).expect("a goal is plain data")
}

fn compare(path: &mut Vec<String>, from: Option<&Value>, to: Option<&Value>, out: &mut Vec<Difference>) {
    if from == to {
        return;
    }
    let none = serde_json::Map::new();
    let as_map = |value: Option<&Value>| match value {
        Some(Value::Object(map)) => Some(map.clone()),
        None => Some(none.clone()),
        Some(_) => None,
    };
    match (as_map(from), as_map(to)) {
        (Some(before), Some(after)) if !before.is_empty() || !after.is_empty() => {
            let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                path.push(key.clone());
                compare(path, before.get(key), after.get(key), out);
                path.pop();
            }
        }
        _ => out.push(Difference { path: name(path), from: show(path, from), to: show(path, to) }),
    }
}

fn name(path: &[String]) -> String {
    let path = path.join(".");
    for (prefix, key) in KEYS {
        if let Some(rest) = path.strip_prefix(prefix)
            && (rest.is_empty() || rest.starts_with('.'))
        {
            return format!("{key}{rest}");
        }
    }
    path
}

fn show(path: &[String], value: Option<&Value>) -> String {
    let digest = |text: &str| format!("sha256:{}", &canonical::hex_digest(text.as_bytes())[..12]);
    match value {
        None | Some(Value::Null) => "not set".into(),
        Some(Value::Array(items)) if items.is_empty() => "not set".into(),
        Some(Value::String(pem)) if path == ["caPem"] => digest(pem),
        Some(value) if path.iter().skip(2).any(|key| is_hidden(key)) && path.get(1).is_some_and(|k| k == "config") => {
            format!("[redacted {}]", digest(&value.to_string()))
        }
        Some(Value::String(text)) if !text.is_empty() => bounded(text),
        Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
            bounded(&items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","))
        }
        Some(other) => bounded(&canonical::to_string(other)),
    }
}

fn is_hidden(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    HIDDEN.iter().any(|word| key.contains(word))
}

/// A value as it is shown: one line, at most 120 characters.
fn bounded(text: &str) -> String {
    let mut line: String = text.chars().take(120).flat_map(char::escape_debug).collect();
    if text.chars().nth(120).is_some() {
        line.push('…');
    }
    line
}

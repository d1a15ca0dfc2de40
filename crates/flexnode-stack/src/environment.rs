//! Variables for systemd's `EnvironmentFile=` that hold arguments of kubelet.
//!
//! Two grammars lie above each other: systemd unquotes the value when it reads the file, and splits it into words, with
//! quotes again, when a unit names `$VARIABLE` as an argument of its own (systemd.exec(5), systemd.service(5)). This is
//! the one encoder for both.

use flexnode_model::{Join, MachineGoal};
use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::places::{BOOTSTRAP_KUBECONFIG, CERTIFICATES, KUBECONFIG};

const HEADER: &str = "# Written by aks-flex-node; changes are lost.\n";

/// A value that no environment file can hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} cannot be an argument of kubelet: it has a newline or another control character")]
pub struct EncodeError {
    /// The value, bounded.
    pub value: String,
}

/// Arguments of kubelet that have no place in its configuration file: `kubelet/env` in the slot.
pub fn kubelet(goal: &MachineGoal) -> Result<Vec<u8>, EncodeError> {
    let mut node = vec![format!("--hostname-override={}", goal.node_name)];
    if !goal.node_ips.is_empty() {
        let ips: Vec<_> = goal.node_ips.iter().map(ToString::to_string).collect();
        node.push(format!("--node-ip={}", ips.join(",")));
    }
    let credentials = [
        format!("--kubeconfig={KUBECONFIG}"),
        format!("--bootstrap-kubeconfig={BOOTSTRAP_KUBECONFIG}"),
        format!("--cert-dir={CERTIFICATES}"),
    ];
    file(&[("KUBELET_NODE_CONFIG_ARGS", &node), ("KUBELET_KUBECONFIG_ARGS", &credentials)])
}

/// Labels and taints that kubelet registers the Node with: `/etc/unbounded/kubelet/registration.env`. kubelet takes
/// labels as a flag only.
pub fn registration(join: &Join) -> Result<Vec<u8>, EncodeError> {
    let mut arguments = Vec::new();
    if !join.labels.is_empty() {
        arguments.push(format!("--node-labels={}", pairs(&join.labels)));
    }
    if !join.taints.is_empty() {
        let mut taints = join.taints.clone();
        taints.sort();
        arguments.push(format!("--register-with-taints={}", taints.join(",")));
    }
    file(&[("KUBELET_REGISTRATION_ARGS", &arguments)])
}

fn pairs(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// An environment file with variables whose values are argument lists.
fn file(variables: &[(&str, &[String])]) -> Result<Vec<u8>, EncodeError> {
    let mut text = HEADER.to_owned();
    for (name, arguments) in variables {
        let words = arguments.iter().map(|argument| word(argument)).collect::<Result<Vec<_>, _>>()?;
        let _ = writeln!(text, "{name}={}", value(&words.join(" ")));
    }
    Ok(text.into_bytes())
}

/// One argument as a word of a variable that systemd splits.
fn word(argument: &str) -> Result<String, EncodeError> {
    if argument.chars().any(char::is_control) {
        return Err(EncodeError { value: argument.chars().take(200).collect() });
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:=,@+-%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return Ok(argument.to_owned());
    }
    Ok(quoted(argument, &['"', '\\']))
}

/// A value as it stands behind `NAME=` in the file.
fn value(text: &str) -> String {
    quoted(text, &['"', '\\', '$', '`'])
}

fn quoted(text: &str, special: &[char]) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        if special.contains(&c) {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What systemd makes of the value of a double-quoted assignment (its parser of environment files).
    fn read_value(line: &str) -> String {
        let inner = line.strip_prefix('"').and_then(|l| l.strip_suffix('"')).unwrap();
        let (mut out, mut chars) = (String::new(), inner.chars());
        while let Some(c) = chars.next() {
            match c {
                '"' => panic!("the value ends too early: {line}"),
                '\\' => match chars.next().unwrap() {
                    c @ ('"' | '\\' | '`' | '$') => out.push(c),
                    c => out.extend(['\\', c]),
                },
                c => out.push(c),
            }
        }
        out
    }

    /// How systemd splits `$VARIABLE` into arguments.
    fn split(text: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match (c, quote) {
                ('\\', q) if q != Some('\'') => word.get_or_insert_default().extend(chars.next()),
                (c, Some(q)) if c == q => quote = None,
                ('"' | '\'', None) => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                (' ' | '\t' | '\n' | '\r', None) => words.extend(word.take()),
                (c, _) => word.get_or_insert_default().push(c),
            }
        }
        words.extend(word);
        words
    }

    fn arguments(file: &[u8], name: &str) -> Vec<String> {
        let text = std::str::from_utf8(file).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap();
        split(&read_value(line))
    }

    proptest! {
        #[test]
        fn every_argument_reaches_kubelet_as_it_is(wanted in prop::collection::vec("\\PC{0,12}", 0..5)) {
            let file = file(&[("A", &wanted)]).unwrap();
            prop_assert_eq!(arguments(&file, "A"), wanted);
        }
    }

    #[test]
    fn awkward_values_survive() {
        let wanted: Vec<String> =
            ["--a=b c", "%h", "$HOME", "`id`", "\\", "\"", "'", "", "a\"b c'd\\", "#x", ";", "--l=x=y,z=1"]
                .map(str::to_owned)
                .into();
        let file = file(&[("A", &wanted)]).unwrap();
        assert_eq!(arguments(&file, "A"), wanted);
    }

    #[test]
    fn a_newline_cannot_smuggle_a_variable_in() {
        for bad in ["a\nKUBELET_NODE_CONFIG_ARGS=x", "a\0", "a\tb", "\u{7f}"] {
            assert!(file(&[("A", &[bad.to_owned()])]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn labels_and_taints_are_sorted_and_may_be_absent() {
        let mut join = crate::testing::join();
        let file = registration(&join).unwrap();
        assert_eq!(
            arguments(&file, "KUBELET_REGISTRATION_ARGS"),
            ["--node-labels=a.example/zone=z1,b=", "--register-with-taints=a:NoExecute,dedicated=gpu:NoSchedule"]
        );
        join.labels.clear();
        join.taints.clear();
        assert!(arguments(&registration(&join).unwrap(), "KUBELET_REGISTRATION_ARGS").is_empty());
    }
}

//! `daemon-state.json`: the goal that was applied last. State decides what the agent does, not discovery.
//!
//! The first five fields are those of the contract (daemon.txt, `State`). What this agent needs beyond them is under one
//! key, `flexnode`; a program that does not know it ignores it, and a file without it is read. The file next to it with
//! `.sha256` proves that all of it was written: 64 hex digits and a newline. While the data is replaced it holds two
//! lines, the digest of the new data and that of the old; either counts.

use crate::canonical::hex_digest;
use crate::document::{self, DocumentError};
use crate::{Isolation, MachineGoal, SlotNameError};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A goal that did not come up. It is not tried again until it changes or a person asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedGoal {
    /// Fingerprint of the goal.
    pub goal: String,
    /// Why, in a sentence. No secrets.
    pub reason: String,
    /// When it failed.
    pub when: Timestamp,
}

/// What this agent keeps beyond the contract's fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Extension {
    /// Format of this part: [`Extension::VERSION`].
    pub version: u32,
    /// Fingerprint of the goal that is applied; empty when none is.
    #[serde(default)]
    pub goal: String,
    /// The slot that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_slot: Option<String>,
    /// The slot that ran before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_slot: Option<String>,
    /// A person stopped the node; daemon, recovery and reboot respect it.
    #[serde(default)]
    pub stopped_by_person: bool,
    /// Goals that failed, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_goals: Vec<FailedGoal>,
    /// How the node is separated from the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
}

impl Extension {
    /// The format that is written.
    pub const VERSION: u32 = 1;
    /// Failed goals that are kept.
    pub const MOST_FAILED: usize = 8;
}

impl Default for Extension {
    fn default() -> Self {
        Self {
            version: Self::VERSION,
            goal: String::new(),
            active_slot: None,
            previous_slot: None,
            stopped_by_person: false,
            failed_goals: Vec::new(),
            isolation: None,
        }
    }
}

/// The last applied goal and the one before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Version of the settings that are applied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub applied_settings_version: String,
    /// Kubernetes version that is applied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub applied_kubernetes_version: String,
    /// Settings of the last good goal before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub previous_settings_version: String,
    /// Kubernetes version of the last good goal before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub previous_kubernetes_version: String,
    /// The nspawn machine that runs; empty where the node runs on the host itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub active_machine: String,
    /// What this agent adds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flexnode: Option<Extension>,
}

/// A state file that does not decide anything. A repave stops with this; reset does not need the state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The data is there without its checksum.
    #[error("the state has no checksum file; restore it, or reset the node and join again")]
    NoChecksum,
    /// The checksum file does not have the form of one.
    #[error("the checksum of the state is no SHA-256; restore it, or reset the node and join again")]
    BadChecksum,
    /// The data is not what was written.
    #[error("the state has the digest {found}, which its checksum file does not name; reset the node and join again")]
    Corrupt {
        /// Digest of the data.
        found: String,
    },
    /// The data is no state.
    #[error("the state is not readable")]
    Document(#[source] DocumentError),
}

impl State {
    const KIND: &'static str = "daemon state";

    /// The state right after `goal` was applied for the first time.
    pub fn seeded(goal: &MachineGoal) -> Result<Self, SlotNameError> {
        let fingerprint = goal.fingerprint();
        Ok(Self {
            applied_settings_version: fingerprint.clone(),
            applied_kubernetes_version: goal.kubernetes_version.clone(),
            flexnode: Some(Extension {
                goal: fingerprint,
                active_slot: Some(goal.slot()?.into()),
                isolation: Some(goal.isolation),
                ..Extension::default()
            }),
            ..Self::default()
        })
    }

    /// The state after `goal` was applied over what this state says: what was applied becomes the previous one. The same
    /// goal again changes nothing.
    pub fn applied(&self, goal: &MachineGoal) -> Result<Self, SlotNameError> {
        let mut next = Self::seeded(goal)?;
        let before = self.flexnode.clone().unwrap_or_default();
        let same = before.goal == goal.fingerprint();
        let Some(extension) = next.flexnode.as_mut() else { return Ok(next) };
        extension.failed_goals = before.failed_goals;
        extension.failed_goals.retain(|failed| failed.goal != extension.goal);
        next.active_machine.clone_from(&self.active_machine);
        if same {
            extension.previous_slot = before.previous_slot;
            next.previous_settings_version.clone_from(&self.previous_settings_version);
            next.previous_kubernetes_version.clone_from(&self.previous_kubernetes_version);
        } else {
            extension.previous_slot = before.active_slot;
            next.previous_settings_version.clone_from(&self.applied_settings_version);
            next.previous_kubernetes_version.clone_from(&self.applied_kubernetes_version);
        }
        Ok(next)
    }

    /// Remembers that a goal failed; the newest reason of each goal, and a bounded number of goals.
    pub fn remember_failure(&mut self, failed: FailedGoal) {
        let goals = &mut self.flexnode.get_or_insert_default().failed_goals;
        goals.retain(|known| known.goal != failed.goal);
        goals.push(failed);
        let surplus = goals.len().saturating_sub(Extension::MOST_FAILED);
        goals.drain(..surplus);
    }

    /// Why a goal is not tried again.
    pub fn failure_of(&self, fingerprint: &str) -> Option<&FailedGoal> {
        self.flexnode.as_ref()?.failed_goals.iter().find(|failed| failed.goal == fingerprint)
    }

    /// The data file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        document::encode(self)
    }

    /// Reads data and checksum file. `checksum` is `None` when there is no such file.
    ///
    /// The first word of each line of the checksum file counts, so what `sha256sum` prints is read too.
    pub fn decode(data: &[u8], checksum: Option<&[u8]>) -> Result<Self, StateError> {
        let checksum =
            std::str::from_utf8(checksum.ok_or(StateError::NoChecksum)?).map_err(|_| StateError::BadChecksum)?;
        let digests: Vec<&str> = checksum.lines().filter_map(|line| line.split_whitespace().next()).collect();
        let good = |digest: &&str| digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit());
        if digests.is_empty() || digests.len() > 2 || !digests.iter().all(good) {
            return Err(StateError::BadChecksum);
        }
        let found = hex_digest(data);
        if !digests.iter().any(|digest| digest.eq_ignore_ascii_case(&found)) {
            return Err(StateError::Corrupt { found });
        }
        let value = document::parse(data, Self::KIND).map_err(StateError::Document)?;
        if let Some(version) = value.pointer("/flexnode/version")
            && version.as_u64() != Some(u64::from(Extension::VERSION))
        {
            let found = version.to_string();
            let error = DocumentError::Version { kind: Self::KIND, found, known: Extension::VERSION };
            return Err(StateError::Document(error));
        }
        document::from_value(value, Self::KIND).map_err(StateError::Document)
    }
}

/// The checksum file of data that is not being replaced.
pub fn checksum(data: &[u8]) -> String {
    format!("{}\n", hex_digest(data))
}

/// The checksum file while `old` is replaced by `new`: whichever of them a crash leaves, it is proven.
pub fn transition(new: &[u8], old: Option<&[u8]>) -> String {
    match old.filter(|old| *old != new) {
        Some(old) => format!("{}{}", checksum(new), checksum(old)),
        None => checksum(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let mut state = State {
            applied_kubernetes_version: "1.36.3".into(),
            flexnode: Some(Extension { goal: "1a2b3c4d".into(), ..Extension::default() }),
            ..State::default()
        };
        state.remember_failure(FailedGoal { goal: "00".into(), reason: "r".into(), when: Timestamp::UNIX_EPOCH });
        state
    }

    #[test]
    fn data_and_checksum_belong_together() {
        let data = state().encode();
        assert_eq!(State::decode(&data, Some(checksum(&data).as_bytes())).unwrap(), state());
        let printed = format!("{}  daemon-state.json\n", hex_digest(&data));
        assert_eq!(State::decode(&data, Some(printed.as_bytes())).unwrap(), state());
    }

    #[test]
    fn while_it_is_replaced_both_the_old_and_the_new_data_count() {
        let (old, new) = (State::default().encode(), state().encode());
        let both = transition(&new, Some(&old));
        assert_eq!(both.lines().count(), 2);
        for data in [&old, &new] {
            assert!(State::decode(data, Some(both.as_bytes())).is_ok());
        }
        assert!(matches!(State::decode(b"{}", Some(both.as_bytes())), Err(StateError::Corrupt { .. })));
        assert_eq!(transition(&new, Some(&new)), checksum(&new));
        assert_eq!(transition(&new, None), checksum(&new));
    }

    #[test]
    fn every_flipped_byte_is_found() {
        let data = state().encode();
        let sum = checksum(&data);
        for i in 0..data.len() {
            let mut damaged = data.clone();
            damaged[i] ^= 1;
            assert!(
                matches!(State::decode(&damaged, Some(sum.as_bytes())), Err(StateError::Corrupt { .. })),
                "byte {i}"
            );
        }
        assert!(matches!(State::decode(&data, None), Err(StateError::NoChecksum)));
        for sum in ["", "\n", "abc", &"z".repeat(64), &sum.repeat(3), "\u{e4}"] {
            assert!(matches!(State::decode(&data, Some(sum.as_bytes())), Err(StateError::BadChecksum)), "{sum:?}");
        }
    }

    #[test]
    fn a_file_of_the_original_is_read_and_what_it_would_read_is_the_same() {
        let data = b"{\n  \"appliedSettingsVersion\": \"etag-2\",\n  \"appliedKubernetesVersion\": \"1.35.4\",\n  \"previousSettingsVersion\": \"etag-1\",\n  \"previousKubernetesVersion\": \"1.34.9\",\n  \"activeMachine\": \"kube1\"\n}\n";
        let state = State::decode(data, Some(checksum(data).as_bytes())).unwrap();
        assert_eq!(state.applied_settings_version, "etag-2");
        assert_eq!(state.applied_kubernetes_version, "1.35.4");
        assert_eq!(state.previous_settings_version, "etag-1");
        assert_eq!(state.previous_kubernetes_version, "1.34.9");
        assert_eq!(state.active_machine, "kube1");
        assert_eq!(state.flexnode, None);
        assert_eq!(state.encode(), data);
        // What is empty is left out, as Go's omitempty does.
        let sparse = b"{\n  \"activeMachine\": \"kube1\"\n}\n";
        assert_eq!(State::decode(sparse, Some(checksum(sparse).as_bytes())).unwrap().encode(), sparse);
    }

    #[test]
    fn another_version_of_our_part_is_refused() {
        let data = br#"{"flexnode": {"version": 2}}"#;
        let error = State::decode(data, Some(checksum(data).as_bytes())).unwrap_err();
        assert!(matches!(error, StateError::Document(DocumentError::Version { known: 1, .. })), "{error:?}");
    }

    #[test]
    fn failed_goals_are_kept_once_and_bounded() {
        let mut state = State::default();
        for i in 0..20 {
            let failed =
                FailedGoal { goal: format!("{}", i % 12), reason: format!("{i}"), when: Timestamp::UNIX_EPOCH };
            state.remember_failure(failed);
        }
        assert_eq!(state.flexnode.as_ref().unwrap().failed_goals.len(), Extension::MOST_FAILED);
        assert_eq!(state.failure_of("7").unwrap().reason, "19");
        assert_eq!(state.failure_of("0").unwrap().reason, "12");
        assert!(state.failure_of("8").is_none());
    }
}

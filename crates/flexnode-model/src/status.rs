//! The status snapshot, `status.json`, as the contract has it (status.txt). Field names, their order and the spelling of
//! the constants are those of the original, whose files other programs read.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Go's zero time. `omitempty` does not leave out a struct, so a time that was never set is written so.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$inner:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
        pub enum $name {
            /// Not said: the empty text.
            #[default]
            Unspecified,
            $($(#[$inner])* $variant,)*
            /// A word that this program does not know; kept as it is.
            Other(String),
        }

        impl $name {
            /// The word as it is written.
            pub fn as_str(&self) -> &str {
                match self {
                    Self::Unspecified => "",
                    $(Self::$variant => $text,)*
                    Self::Other(word) => word,
                }
            }
            /// Nothing is said.
            pub fn is_unspecified(&self) -> bool {
                self.as_str().is_empty()
            }
        }

        impl From<String> for $name {
            fn from(word: String) -> Self {
                match word.as_str() {
                    "" => Self::Unspecified,
                    $($text => Self::$variant,)*
                    _ => Self::Other(word),
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(Self::from)
            }
        }
    };
}

words! {
    /// Who wrote the snapshot last.
    LastUpdatedBy {
        /// The loop that collects it.
        StatusCollectionLoop = "StatusCollectionLoop",
        /// The loop that mends differences.
        DriftDetectionAndRemediation = "DriftDetectionAndRemediation",
    }
}

words! {
    /// Why it was written last.
    LastUpdatedReason {
        /// It was time. The spelling is the contract's.
        PeriodicStatusLoop = "perodicStatusLoop",
        /// The Kubernetes version is not the wanted one.
        KubernetesVersionDrift = "kubernetesVersionDrift",
    }
}

/// Azure Arc registration and connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ArcStatus {
    /// The machine is registered.
    pub registered: bool,
    /// Its agent is connected.
    pub connected: bool,
    /// Its name.
    pub machine_name: String,
    /// Its resource ID.
    #[serde(rename = "resourceId", skip_serializing_if = "String::is_empty")]
    pub resource_id: String,
    /// Its region.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub location: String,
    /// Its resource group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_group: String,
    /// When its agent was last heard of; `None` is Go's zero time.
    #[serde(with = "go_time")]
    pub last_heartbeat: Option<Timestamp>,
    /// Version of its agent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub agent_version: String,
}

/// What the node is at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeStatus {
    /// Without `v`; `unknown` when it could not be told.
    pub kubelet_version: String,
    /// As above.
    pub runc_version: String,
    /// As above.
    pub containerd_version: String,
    /// The kubelet unit is active.
    pub kubelet_running: bool,
    /// `Ready`, `NotReady` or `Unknown`.
    pub kubelet_ready: String,
    /// The containerd unit is active.
    pub containerd_running: bool,
    /// Azure Arc.
    pub arc_status: ArcStatus,
    /// When the snapshot was made; `None` is Go's zero time.
    #[serde(with = "go_time")]
    pub last_updated: Option<Timestamp>,
    /// Who made it.
    #[serde(skip_serializing_if = "LastUpdatedBy::is_unspecified")]
    pub last_updated_by: LastUpdatedBy,
    /// Why it was made.
    #[serde(skip_serializing_if = "LastUpdatedReason::is_unspecified")]
    pub last_updated_reason: LastUpdatedReason,
    /// Version of this agent.
    pub agent_version: String,
}

impl NodeStatus {
    /// Reads a snapshot.
    pub fn decode(bytes: &[u8]) -> Result<Self, crate::DocumentError> {
        let kind = "node status";
        let value = crate::document::parse(bytes, kind)?;
        // serde would take a list for the fields in their order.
        if !value.is_object() {
            let source = serde::de::Error::custom("it is no object");
            return Err(crate::DocumentError::Shape { kind, at: ".".into(), source });
        }
        crate::document::from_value(value, kind)
    }

    /// The bytes of the file: two spaces of indent, and no newline at the end, as the original writes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = crate::document::encode(self);
        bytes.pop();
        bytes
    }
}

/// RFC 3339 as Go's `time.Time` has it in JSON.
mod go_time {
    use super::{Deserialize, Deserializer, Serializer, Timestamp, ZERO_TIME};

    // serde's `with` hands over a reference to the field.
    #[allow(clippy::ref_option)]
    pub(super) fn serialize<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
        match time {
            None => serializer.serialize_str(ZERO_TIME),
            Some(time) => serializer.collect_str(time),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
        match Option::<String>::deserialize(deserializer)?.as_deref() {
            None | Some(ZERO_TIME) => Ok(None),
            Some(text) => text.parse().map(Some).map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_snapshot_is_written_as_go_writes_it() {
        let text = r#"{
  "kubeletVersion": "",
  "runcVersion": "",
  "containerdVersion": "",
  "kubeletRunning": false,
  "kubeletReady": "",
  "containerdRunning": false,
  "arcStatus": {
    "registered": false,
    "connected": false,
    "machineName": "",
    "lastHeartbeat": "0001-01-01T00:00:00Z"
  },
  "lastUpdated": "0001-01-01T00:00:00Z",
  "agentVersion": ""
}"#;
        assert_eq!(String::from_utf8(NodeStatus::default().encode()).unwrap(), text);
        assert_eq!(NodeStatus::decode(text.as_bytes()).unwrap(), NodeStatus::default());
        assert_eq!(NodeStatus::decode(b"{}").unwrap(), NodeStatus::default());
    }

    #[test]
    fn the_words_of_the_contract_keep_their_spelling() {
        assert_eq!(LastUpdatedReason::PeriodicStatusLoop.as_str(), "perodicStatusLoop");
        assert_eq!(LastUpdatedReason::KubernetesVersionDrift.as_str(), "kubernetesVersionDrift");
        assert_eq!(LastUpdatedBy::StatusCollectionLoop.as_str(), "StatusCollectionLoop");
        assert_eq!(LastUpdatedBy::DriftDetectionAndRemediation.as_str(), "DriftDetectionAndRemediation");
        assert_eq!(LastUpdatedBy::from(String::new()), LastUpdatedBy::Unspecified);
    }

    #[test]
    fn words_that_are_not_known_survive() {
        let status = NodeStatus::decode(br#"{"lastUpdatedBy": "SomebodyNew", "lastUpdatedReason": "why"}"#).unwrap();
        assert_eq!(status.last_updated_by, LastUpdatedBy::Other("SomebodyNew".into()));
        assert_eq!(NodeStatus::decode(&status.encode()).unwrap(), status);
    }

    #[test]
    fn times_of_go_with_a_zone_and_fractions_are_read() {
        let status = NodeStatus::decode(br#"{"lastUpdated": "2026-11-29T10:00:00.123456789+02:00"}"#).unwrap();
        assert_eq!(status.last_updated.unwrap().to_string(), "2026-11-29T08:00:00.123456789Z");
        assert!(NodeStatus::decode(br#"{"lastUpdated": "yesterday"}"#).is_err());
    }

    #[test]
    fn a_list_is_no_snapshot() {
        assert!(NodeStatus::decode(b"[]").is_err());
        assert!(NodeStatus::decode(b"null").is_err());
    }
}

//! The reasons of deviations: one word each, a fixed set.

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident: $sentence:literal,)*) => {
        /// Why a node is not as it should be. For programs: metrics, conditions and events carry these words and never what
        /// other programs say.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
            /// A reason that this program does not know.
            #[serde(other)]
            Other,
        }

        impl Reason {
            /// All that this program knows.
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)*];

            /// The word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Reason::$name => stringify!($name),)*
                    Reason::Other => "Other",
                }
            }

            /// A sentence that is the same on every node: for the cluster, where no other program's words may go.
            pub fn sentence(self) -> &'static str {
                match self {
                    $(Reason::$name => $sentence,)*
                    Reason::Other => "something is not as it should be; see aks-flex-node status on the node",
                }
            }
        }
    };
}

reasons! {
    /// A person stopped the node.
    StoppedByPerson: "a person stopped the node; aks-flex-node start-node starts it",
    /// What the agent recorded cannot be read.
    RecordsUnreadable: "what the agent recorded on this node cannot be read",
    /// An operation runs now.
    OperationInProgress: "an operation of the agent runs",
    /// An operation was interrupted and has not been finished.
    OperationInterrupted: "an operation of the agent was interrupted and is not finished yet",
    /// An operation failed and keeps its record.
    OperationFailed: "an operation of the agent failed",
    /// The version directories cannot be read.
    VersionsUnreadable: "the version directories cannot be read",
    /// No version is active.
    NoActiveVersion: "no version is active",
    /// The active version is not whole.
    VersionDamaged: "the active version is not whole",
    /// systemd did not tell the state of a unit.
    UnitUnknown: "the state of a unit of the node is not known",
    /// A unit of the node is not installed.
    UnitNotInstalled: "a unit of the node is not installed",
    /// A unit of the node is masked.
    UnitMasked: "a unit of the node is masked",
    /// A unit of the node cannot be loaded.
    UnitNotLoaded: "a unit of the node cannot be loaded by systemd",
    /// A unit of the node failed.
    UnitFailed: "a unit of the node failed",
    /// A unit of the node ends again and again.
    UnitCrashLoops: "the program of a unit of the node ends again and again",
    /// A unit of the node does not run.
    UnitStopped: "a unit of the node does not run",
    /// A unit of the node starts or ends at this moment.
    UnitChanging: "a unit of the node is starting or ending",
    /// A unit runs, and will not after a reboot.
    UnitDisabled: "a unit of the node will not start after a reboot",
    /// The files of a unit changed and were not loaded.
    UnitNotReloaded: "the files of a unit changed and systemd did not load them",
    /// A unit runs a program of another version than the active one.
    OtherVersionRuns: "a unit of the node runs another version than the active one",
    /// A unit runs a program that is none of a version's.
    ForeignProgram: "a unit of the node runs a program that belongs to no version",
    /// A state file of kubelet is damaged, so that it does not start.
    KubeletStateDamaged: "a state file of kubelet is damaged",
    /// containerd does not answer.
    RuntimeSilent: "containerd does not answer",
    /// containerd says that it is not ready.
    RuntimeNotReady: "containerd is not ready",
    /// kubelet does not say that it is healthy.
    KubeletUnhealthy: "kubelet does not say that it is healthy",
    /// kubelet's client certificate is over.
    CertificateExpired: "a certificate of the node has expired",
    /// A certificate's time has not begun by this host's clock.
    CertificateNotYetValid: "a certificate of the node is not valid yet by this host's clock",
    /// kubelet's kubeconfig names credentials that are not there.
    CredentialsMissing: "credentials that kubelet's kubeconfig names are not there",
    /// The cluster has no Node of this name.
    NodeMissing: "the cluster has no Node of this name",
    /// The Node only waits for the network plugin.
    NetworkPluginMissing: "the Node waits for the cluster's network plugin",
    /// The Node is not Ready.
    NodeNotReady: "the Node is not Ready",
    /// Whether the Node is Ready could not be found out.
    NodeUnknown: "whether the Node is Ready is not known on the node itself",
    /// Azure Arc is configured and not connected.
    ArcNotConnected: "Azure Arc is not connected",
    /// A file system has little space left.
    DiskPressure: "a file system of the node has little space left",
    /// A file system has few inodes left.
    InodePressure: "a file system of the node has few inodes left",
    /// The host's clock is wrong.
    ClockSkew: "the host's clock differs from the API server's",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_its_name_and_unknown_ones_are_read() {
        for reason in Reason::ALL {
            let json = serde_json::to_string(reason).unwrap();
            assert_eq!(json, format!("\"{}\"", reason.as_str()));
            assert_eq!(serde_json::from_str::<Reason>(&json).unwrap(), *reason);
            // A condition's reason (Kubernetes API conventions) is such a word.
            assert!(reason.as_str().chars().all(|c| c.is_ascii_alphanumeric()) && !reason.sentence().is_empty());
        }
        assert_eq!(serde_json::from_str::<Reason>("\"SomethingNew\"").unwrap(), Reason::Other);
    }
}

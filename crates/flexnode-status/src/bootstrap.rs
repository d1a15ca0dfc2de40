//! Whether the status file says that the node has to be set up (again).

use crate::NodeStatus;
use crate::file::StatusFileError;
use jiff::{SignedDuration, Timestamp};

/// A snapshot that is older says nothing about now.
pub const STALE_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// What a version is called that could not be told.
pub const UNKNOWN: &str = "unknown";

/// Why the node needs to be set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootstrapReason {
    /// There is no snapshot, or it cannot be read or trusted.
    NoSnapshot(String),
    /// Kubelet does not run.
    KubeletNotRunning,
    /// Azure Arc is configured, and the machine is not connected.
    ArcNotConnected,
    /// The snapshot is older than [`STALE_AFTER`].
    Stale,
    /// Kubelet's version is not known.
    KubeletVersionUnknown,
    /// runc's version is not known.
    RuncVersionUnknown,
}

/// The first reason by which the node needs to be set up; `None`: it does not.
///
/// The rules and their order are those of the original: kubelet's readiness, containerd and its version play no part, and
/// a snapshot from the future counts as fresh.
pub fn bootstrap_reason(
    snapshot: &Result<NodeStatus, StatusFileError>,
    arc_required: bool,
    now: Timestamp,
) -> Option<BootstrapReason> {
    let status = match snapshot {
        Ok(status) => status,
        Err(e) => return Some(BootstrapReason::NoSnapshot(e.to_string())),
    };
    let unknown = |version: &str| version.is_empty() || version == UNKNOWN;
    let stale = status.last_updated.is_none_or(|updated| now.duration_since(updated) > STALE_AFTER);
    if !status.kubelet_running {
        Some(BootstrapReason::KubeletNotRunning)
    } else if arc_required && !status.arc_status.connected {
        Some(BootstrapReason::ArcNotConnected)
    } else if stale {
        Some(BootstrapReason::Stale)
    } else if unknown(&status.kubelet_version) {
        Some(BootstrapReason::KubeletVersionUnknown)
    } else if unknown(&status.runc_version) {
        Some(BootstrapReason::RuncVersionUnknown)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-30T12:00:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    fn good() -> NodeStatus {
        NodeStatus {
            kubelet_version: "1.36.3".into(),
            runc_version: "1.3.6".into(),
            kubelet_running: true,
            last_updated: Some(now()),
            ..NodeStatus::default()
        }
    }

    fn reason(status: NodeStatus, arc: bool) -> Option<BootstrapReason> {
        bootstrap_reason(&Ok(status), arc, now())
    }

    #[test]
    fn a_good_snapshot_needs_nothing() {
        assert_eq!(reason(good(), false), None);
        // These play no part.
        let status = NodeStatus { kubelet_ready: "NotReady".into(), containerd_running: false, ..good() };
        assert_eq!(reason(status, false), None);
    }

    #[test]
    fn each_rule_alone() {
        let absent = Err(StatusFileError::EmptyPath);
        assert!(matches!(bootstrap_reason(&absent, false, now()), Some(BootstrapReason::NoSnapshot(_))));
        let cases = [
            (NodeStatus { kubelet_running: false, ..good() }, BootstrapReason::KubeletNotRunning),
            (NodeStatus { last_updated: None, ..good() }, BootstrapReason::Stale),
            (NodeStatus { kubelet_version: String::new(), ..good() }, BootstrapReason::KubeletVersionUnknown),
            (NodeStatus { kubelet_version: "unknown".into(), ..good() }, BootstrapReason::KubeletVersionUnknown),
            (NodeStatus { runc_version: String::new(), ..good() }, BootstrapReason::RuncVersionUnknown),
            (NodeStatus { runc_version: "unknown".into(), ..good() }, BootstrapReason::RuncVersionUnknown),
        ];
        for (status, expected) in cases {
            assert_eq!(reason(status, false), Some(expected));
        }
    }

    #[test]
    fn five_minutes_are_not_stale_and_a_moment_more_is() {
        let at = |text: &str| NodeStatus { last_updated: Some(text.parse().unwrap()), ..good() };
        assert_eq!(reason(at("2026-11-30T11:55:00Z"), false), None);
        assert_eq!(reason(at("2026-11-30T11:54:59.999999999Z"), false), Some(BootstrapReason::Stale));
        assert_eq!(reason(at("2027-01-01T00:00:00Z"), false), None, "a future time is fine");
    }

    #[test]
    fn arc_counts_only_where_it_is_configured() {
        assert_eq!(reason(good(), true), Some(BootstrapReason::ArcNotConnected));
        let mut connected = good();
        connected.arc_status.connected = true;
        assert_eq!(reason(connected, true), None);
    }

    #[test]
    fn the_first_rule_that_matches_is_told() {
        let status = NodeStatus { kubelet_running: false, ..NodeStatus::default() };
        assert_eq!(reason(status, true), Some(BootstrapReason::KubeletNotRunning));
        let status = NodeStatus { kubelet_running: true, ..NodeStatus::default() };
        assert_eq!(reason(status.clone(), true), Some(BootstrapReason::ArcNotConnected));
        assert_eq!(reason(status, false), Some(BootstrapReason::Stale));
    }
}

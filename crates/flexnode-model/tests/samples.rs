//! A sample of every format's versions: each is read, and written again byte for byte. A sample is never changed; a new
//! version gets a new file, and the old one stays readable.

use flexnode_model::config::{Config, HostFacts};
use flexnode_model::journal::{Answer, Ending, JournalRecord, Phase};
use flexnode_model::record::HostRecord;
use flexnode_model::snapshot::{Reading, Reason, Snapshot, Verdict};
use flexnode_model::state::{State, checksum};
use flexnode_model::status::{LastUpdatedReason, NodeStatus};
use flexnode_model::{BundleManifest, CgroupLayout, MachineGoal};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("samples are text")
}

#[test]
fn journal_record_1() {
    let sample = include_bytes!("samples/journal-record-1.json");
    let record = JournalRecord::decode(sample).unwrap();
    assert_eq!((record.phase, record.outcome), (Phase::Closed, Some(Ending::RolledBack)));
    assert_eq!(record.failed_step.as_deref(), Some("wait-ready"));
    assert_eq!((record.answer, record.interrupted), (None, false));
    assert_eq!(text(&record.encode()), text(sample));
}

#[test]
fn journal_record_2() {
    let sample = include_bytes!("samples/journal-record-2.json");
    let record = JournalRecord::decode(sample).unwrap();
    assert_eq!((record.phase, record.answer, record.interrupted), (Phase::RollingBack, Some(Answer::RollBack), true));
    assert_eq!(text(&record.encode()), text(sample));
}

#[test]
fn machine_goal_1() {
    let sample = include_bytes!("samples/machine-goal-1.json");
    let goal = MachineGoal::decode(sample).unwrap();
    assert_eq!(text(&goal.encode()), text(sample));
    // A host would be upgraded by another program if this changed.
    assert_eq!(goal.slot().unwrap().as_str(), "1.36.3-7d6faed3");
}

#[test]
fn daemon_state_1() {
    let sample = include_bytes!("samples/daemon-state-1.json");
    let sum = include_bytes!("samples/daemon-state-1.json.sha256");
    let state = State::decode(sample, Some(sum)).unwrap();
    assert_eq!(state.flexnode.as_ref().unwrap().active_slot.as_deref(), Some("1.36.3-1a2b3c4d"));
    assert_eq!(text(&state.encode()), text(sample));
    assert_eq!(checksum(sample), text(sum));
}

#[test]
fn daemon_state_of_the_original() {
    let sample = include_bytes!("samples/daemon-state-original.json");
    let sum = include_bytes!("samples/daemon-state-original.json.sha256");
    let state = State::decode(sample, Some(sum)).unwrap();
    assert_eq!((state.active_machine.as_str(), &state.flexnode), ("kube2", &None));
    assert_eq!(text(&state.encode()), text(sample));
}

#[test]
fn bundle_manifest_1() {
    let sample = include_bytes!("samples/bundle-manifest-1.json");
    let manifest = BundleManifest::decode(sample).unwrap();
    assert_eq!(manifest.digests.len(), 2);
    assert_eq!(text(&manifest.encode()), text(sample));
}

#[test]
fn bundle_manifest_of_the_original() {
    let manifest = BundleManifest::decode(include_bytes!("samples/bundle-manifest-original.json")).unwrap();
    assert_eq!(manifest.versions.kubernetes.as_deref(), Some("v1.36.3"));
    assert!(manifest.digests.is_empty());
}

#[test]
fn host_record_1() {
    let sample = include_bytes!("samples/host-record-1.json");
    let record = HostRecord::decode(sample).unwrap();
    assert_eq!(record.existed("/opt/cni/bin"), Some(true));
    assert_eq!(record.file("/etc/sysctl.d/99-aks-flex-node.conf"), Some(Some(b"vm.swappiness = 1\n".to_vec())));
    assert_eq!(record.file("/etc/modules-load.d/aks-flex-node.conf"), Some(None));
    assert_eq!(text(&record.encode()), text(sample));
}

#[test]
fn node_status() {
    let sample = include_bytes!("samples/node-status.json");
    let status = NodeStatus::decode(sample).unwrap();
    assert_eq!(status.last_updated_reason, LastUpdatedReason::PeriodicStatusLoop);
    assert_eq!(text(&status.encode()), text(sample).trim_end());
}

#[test]
fn snapshot_1() {
    let sample = include_bytes!("samples/snapshot-1.json");
    let snapshot = Snapshot::decode(sample).unwrap();
    assert_eq!((snapshot.verdict, snapshot.reason), (Verdict::Degraded, Some(Reason::NodeNotReady)));
    assert_eq!(text(&snapshot.encode()), text(sample));
    assert_eq!(snapshot.goal.configured_failure().map(|failed| failed.goal.as_str()), Some("2b3c4d5e"));
}

#[test]
fn a_snapshot_of_another_version_is_refused_and_a_word_that_is_new_is_read() {
    let mut value: serde_json::Value = serde_json::from_slice(include_bytes!("samples/snapshot-1.json")).unwrap();
    value["reason"] = "SomethingNew".into();
    value["somethingNew"] = 1.into();
    assert_eq!(Snapshot::from_value(value.clone()).unwrap().reason, Some(Reason::Other));
    value["version"] = 2.into();
    let error = Snapshot::from_value(value).unwrap_err();
    assert!(matches!(error, flexnode_model::DocumentError::Version { known: 1, .. }), "{error}");
}

#[test]
fn what_moves_by_itself_is_no_difference() {
    let snapshot = Snapshot::decode(include_bytes!("samples/snapshot-1.json")).unwrap();
    let mut moved = snapshot.clone();
    moved.at = "2026-11-30T12:00:50Z".parse().unwrap();
    moved.units[0].resident_bytes = Some(1);
    if let Reading::Known(space) = &mut moved.disks[0].space {
        space.free_bytes -= 1000;
    }
    if let Reading::Known(Some(node)) = &mut moved.node {
        node.ready.as_mut().unwrap().heartbeat = moved.at.into();
    }
    assert!(snapshot.says_the_same(&moved));
    for change in [
        |s: &mut Snapshot| s.units[1].main_pid = Some(102),
        |s: &mut Snapshot| s.notes.clear(),
        |s: &mut Snapshot| s.kubelet_healthy = Reading::Unknown("no answer".into()),
        |s: &mut Snapshot| s.operation = None,
    ] {
        let mut changed = moved.clone();
        change(&mut changed);
        assert!(!snapshot.says_the_same(&changed));
    }
}

#[test]
fn config_1() {
    let facts = HostFacts {
        host_name: "host".into(),
        memory_bytes: 8 << 30,
        cpus: 2,
        cgroups: CgroupLayout::V2,
        arch: "amd64".into(),
    };
    let (config, warnings) = Config::parse(include_bytes!("samples/config-1.json")).unwrap();
    let (goal, join, _) = config.goal(&facts).unwrap();
    assert_eq!(warnings, []);
    assert_eq!((goal.api_server.as_str(), join.taints.len()), ("https://api.example.com:6443", 1));
    let (_, warnings) = Config::parse(include_bytes!("samples/config-original.json")).unwrap();
    assert!(warnings.iter().any(|warning| warning.path == "azure.targetCluster"), "{warnings:?}");
}

//! Go's encoding/json reads what we write and writes what we read, over generated values in both directions.
//!
//! Needs `go` on the PATH; where it is missing the tests say so and end.

#![allow(clippy::unwrap_used, reason = "clippy knows only functions marked as tests for tests")]

use flexnode_status::{ArcStatus, LastUpdatedBy, LastUpdatedReason, NodeStatus};
use jiff::Timestamp;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

struct Judge {
    _temp: tempfile::TempDir,
    program: PathBuf,
}

impl Judge {
    fn build() -> Option<Judge> {
        let found = Command::new("go").arg("version").output().is_ok_and(|o| o.status.success());
        if !found {
            println!("left out: there is no go on this machine");
            return None;
        }
        let temp = tempfile::tempdir().unwrap();
        let program = temp.path().join("judge");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go/main.go");
        let output = Command::new("go")
            .args(["build", "-o"])
            .args([&program, &source])
            .current_dir(temp.path())
            .env("GO111MODULE", "off")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Judge { _temp: temp, program })
    }

    /// The files that it writes for this input.
    fn run(&self, args: &[&str], input: &[u8]) -> Vec<String> {
        let mut child =
            Command::new(&self.program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // The program reads all of its input before it writes.
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "Go cannot read what we wrote");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Decodes by Go and encodes by Go again.
    fn echo(&self, statuses: &[NodeStatus]) -> Vec<String> {
        let files: Vec<String> = statuses.iter().map(|s| String::from_utf8(s.encode()).unwrap()).collect();
        self.run(&["echo"], format!("[{}]", files.join(",")).as_bytes())
    }
}

/// Go escapes these for HTML; JSON does not ask for it, and every reader takes both.
fn as_go_escapes(file: &str) -> String {
    let escapes =
        [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];
    // Go writes DEL as it is and the control characters in lower case; so does serde.
    escapes.iter().fold(file.to_owned(), |text, (plain, escaped)| text.replace(*plain, escaped))
}

fn time() -> impl Strategy<Value = Option<Timestamp>> {
    let nanos = prop_oneof![Just(0), Just(1), Just(120_000_000), 0..1_000_000_000_i32];
    // From year 1 after Go's zero time to the end of what both can write.
    let seconds = -62_135_596_799_i64..253_402_207_200;
    prop::option::weighted(0.8, (seconds, nanos).prop_map(|(s, n)| Timestamp::new(s, n).unwrap()))
}

fn statuses() -> impl Strategy<Value = NodeStatus> {
    let words = prop_oneof![Just(String::new()), "[a-z0-9.]{1,8}", any::<String>()];
    let by = words.clone().prop_map(LastUpdatedBy::from);
    let by = prop_oneof![
        Just(LastUpdatedBy::Unspecified),
        Just(LastUpdatedBy::StatusCollectionLoop),
        Just(LastUpdatedBy::DriftDetectionAndRemediation),
        by
    ];
    let why = words.clone().prop_map(LastUpdatedReason::from);
    let why = prop_oneof![
        Just(LastUpdatedReason::Unspecified),
        Just(LastUpdatedReason::PeriodicStatusLoop),
        Just(LastUpdatedReason::KubernetesVersionDrift),
        why
    ];
    let texts = prop::collection::vec(words, 10);
    (texts, any::<[bool; 4]>(), time(), time(), by, why).prop_map(|(texts, flags, heartbeat, updated, by, why)| {
        let mut texts = texts.into_iter();
        let mut text = || texts.next().unwrap();
        NodeStatus {
            kubelet_version: text(),
            runc_version: text(),
            containerd_version: text(),
            kubelet_running: flags[0],
            kubelet_ready: text(),
            containerd_running: flags[1],
            arc_status: ArcStatus {
                registered: flags[2],
                connected: flags[3],
                machine_name: text(),
                resource_id: text(),
                location: text(),
                resource_group: text(),
                last_heartbeat: heartbeat,
                agent_version: text(),
            },
            last_updated: updated,
            last_updated_by: by,
            last_updated_reason: why,
            agent_version: text(),
        }
    })
}

#[test]
fn go_reads_ours_and_writes_the_same_bytes() {
    let Some(judge) = Judge::build() else { return };
    let mut runner = TestRunner::deterministic();
    let mut all: Vec<NodeStatus> = (0..500).map(|_| statuses().new_tree(&mut runner).unwrap().current()).collect();
    all.push(NodeStatus::default());
    let echoed = judge.echo(&all);
    assert_eq!(echoed.len(), all.len());
    for (ours, go) in all.iter().zip(&echoed) {
        assert_eq!(as_go_escapes(&String::from_utf8(ours.encode()).unwrap()), *go);
        assert_eq!(NodeStatus::decode(go.as_bytes()).unwrap(), *ours);
    }
}

#[test]
fn we_read_what_go_writes_and_give_it_back() {
    let Some(judge) = Judge::build() else { return };
    let written = judge.run(&["generate", "500"], b"");
    let read: Vec<NodeStatus> = written.iter().map(|file| NodeStatus::decode(file.as_bytes()).unwrap()).collect();
    for (again, first) in judge.echo(&read).iter().zip(&written) {
        // Times are the same moments, written in UTC; all else is the same to the byte.
        assert_eq!(NodeStatus::decode(again.as_bytes()).unwrap(), NodeStatus::decode(first.as_bytes()).unwrap());
        let without_times = |file: &str| {
            let lines = file.lines().filter(|l| !l.contains("\"lastUpdated\"") && !l.contains("\"lastHeartbeat\""));
            lines.collect::<Vec<_>>().join("\n")
        };
        assert_eq!(without_times(again), without_times(first));
    }
    assert!(
        read.iter().any(|s| s.last_updated.is_none()) && read.iter().any(|s| s.arc_status.last_heartbeat.is_some())
    );
}

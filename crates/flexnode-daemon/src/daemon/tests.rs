//! The whole loop on fakes: units that die, records that were left, files, the cluster.

mod place;

use super::*;
use crate::state::STATE_PATH;
use flexnode_host::Clock as _;
use flexnode_host::testing::{Script, Verb};
use flexnode_kube::ApiProblem;
use flexnode_model::snapshot::{Reason, Snapshot};
use flexnode_status::observe::{UNIT_CONTAINERD, UNIT_KUBELET};
use flexnode_status::{Verdict, load_snapshot_from_file, load_status_from_file};
use place::*;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[tokio::test]
async fn a_healthy_node_is_written_in_both_forms_and_nothing_is_done_to_it() {
    let place = Place::node().await;
    let snapshot = place.until("a healthy node", |s| s.verdict == Verdict::Healthy).await;
    assert_eq!(snapshot.summary, "node-1 is Ready: Kubernetes 1.36.3");
    assert_eq!((snapshot.goal.applied.as_deref(), snapshot.clock.known().unwrap().seconds), (Some("aa"), 0));
    let status = load_status_from_file(&place.context.status_file).unwrap();
    assert!(status.kubelet_running && status.kubelet_ready == "Ready");
    assert_eq!(status.last_updated_reason.as_str(), "perodicStatusLoop");
    assert_eq!(place.starts(), Vec::<String>::new());
    assert_eq!(place.locks.taken.load(Ordering::SeqCst), 0, "the lock is not taken to look");
}

#[tokio::test]
async fn a_quiet_node_is_written_at_least_once_a_minute_and_never_looks_old() {
    let place = Place::node().await;
    let first = place.until("a healthy node", |s| s.verdict == Verdict::Healthy).await;
    let mut last = first.at;
    for _ in 0..5 {
        let next = place.until("another writing", |s| s.at > last).await;
        assert!(next.at.duration_since(last).as_secs() <= 60, "{last} {}", next.at);
        assert_eq!(next.since, first.since, "it goes on over daemons");
        last = next.at;
    }
}

#[tokio::test]
async fn a_bare_host_has_a_daemon_all_the_same() {
    let place = Place::bare();
    let snapshot = place.until("anything", |_| true).await;
    assert_eq!(snapshot.verdict, Verdict::NotANode);
    assert_eq!(place.starts(), Vec::<String>::new());
}

/// C076: stopped from outside, by systemctl or a package's script.
#[tokio::test]
async fn a_unit_that_was_stopped_is_started_once_with_its_reason_and_then_left() {
    let place = Place::node().await;
    let systemd = place.context.host.systemd.clone();
    systemd.stop(UNIT_KUBELET, Duration::from_secs(5)).await.unwrap();
    let mut stopped_again = false;
    let snapshot = place
        .meanwhile("a unit that is left", async |last| {
            let Some(snapshot) = last() else { return false };
            if !snapshot.mended.is_empty() && !stopped_again {
                stopped_again = true;
                systemd.stop(UNIT_KUBELET, Duration::from_secs(5)).await.unwrap();
                place.watches.0.notify_one();
            }
            snapshot.notes.iter().any(|note| note.contains("stopped again"))
        })
        .await;
    assert_eq!(place.starts(), [format!("start {UNIT_KUBELET}")]);
    let mended = &snapshot.mended[0];
    assert_eq!((mended.unit.as_str(), mended.reason), (UNIT_KUBELET, Reason::UnitStopped));
    assert!(mended.what.contains("somebody had stopped it"), "{}", mended.what);
    assert_eq!(snapshot.reason, Some(Reason::UnitStopped));
}

#[tokio::test]
async fn a_unit_that_failed_is_started_again_a_few_times() {
    let place = Place::node().await;
    place.fake.systemd.script_always(
        Verb::Start,
        UNIT_CONTAINERD,
        Script::Fail { result: "exit-code".into(), exit_status: 1 },
    );
    place.kill(UNIT_CONTAINERD);
    let snapshot = place.until("a unit that is left", |s| s.notes.iter().any(|note| note.contains("left alone"))).await;
    assert_eq!(place.starts(), vec![format!("start {UNIT_CONTAINERD}"); decide::MOST_STARTS]);
    assert!(snapshot.mended.iter().all(|mended| mended.what.contains("could not be started")), "{:?}", snapshot.mended);
    assert_eq!(snapshot.reason, Some(Reason::UnitFailed));
}

#[tokio::test]
async fn a_unit_that_is_masked_or_disabled_is_left_and_reported() {
    let place = Place::node().await;
    let systemd = place.context.host.systemd.clone();
    systemd.stop(UNIT_KUBELET, Duration::from_secs(5)).await.unwrap();
    systemd.disable(UNIT_KUBELET).await.unwrap();
    systemd.reload().await.unwrap();
    let begin = place.fake.clock.now();
    let later = |s: &Snapshot| s.at.duration_since(begin).as_mins() > 10;
    let snapshot = place.until("ten minutes", later).await;
    assert_eq!((snapshot.reason, place.starts().len()), (Some(Reason::UnitStopped), 0));
    assert!(snapshot.deviations[0].message.contains("disabled"), "{:?}", snapshot.deviations);
}

#[tokio::test]
async fn what_a_person_stopped_stays_stopped() {
    let place = Place::node().await;
    place.record(|own| own.stopped_by_person = true);
    place.kill(UNIT_KUBELET);
    let begin = place.fake.clock.now();
    let snapshot = place.until("ten minutes", |s| s.at.duration_since(begin).as_mins() > 10).await;
    assert_eq!((snapshot.reason, place.starts().len()), (Some(Reason::StoppedByPerson), 0));
    assert!(snapshot.summary.contains("stopped by a person"));
}

#[tokio::test]
async fn nothing_is_done_while_another_holds_the_lock_or_without_a_record() {
    let place = Place::node().await;
    place.kill(UNIT_KUBELET);
    place.locks.by_another.store(true, Ordering::SeqCst);
    let begin = place.fake.clock.now();
    place.until("ten minutes", |s| s.at.duration_since(begin).as_mins() > 10).await;
    assert_eq!(place.starts(), Vec::<String>::new());
    // A reset that has just let go has taken the state away.
    place.locks.by_another.store(false, Ordering::SeqCst);
    place.fake.fs.take(STATE_PATH);
    let begin = place.fake.clock.now();
    place.until("ten minutes", |s| s.at.duration_since(begin).as_mins() > 10).await;
    assert_eq!(place.starts(), Vec::<String>::new());
}

/// C080: it starts slowly, and whoever starts it again makes it begin anew.
#[tokio::test]
async fn a_unit_that_is_starting_or_not_yet_healthy_is_left_to_it() {
    let place = Place::node().await;
    place.healthy(false);
    for (active, sub) in [("activating", "start"), ("activating", "auto-restart"), ("active", "running")] {
        place.fake.systemd.set_active(UNIT_KUBELET, active, sub);
        let begin = place.fake.clock.now();
        let snapshot = place.until("ten minutes", |s| s.at.duration_since(begin).as_mins() > 10).await;
        assert_eq!((snapshot.verdict, place.starts()), (Verdict::Degraded, Vec::new()), "{active} ({sub})");
    }
}

/// C115, by the loop.
#[tokio::test]
async fn damaged_state_is_moved_aside_once_and_kubelet_started_again() {
    let place = Place::node().await;
    place.fake.fs.put("/var/lib/kubelet/pod_status_manager_state", r#"{"a":1}"#, 0o600);
    place.healthy(false);
    place.kill(UNIT_KUBELET);
    let snapshot = place.until("something mended", |s| !s.mended.is_empty()).await;
    assert_eq!(snapshot.mended[0].reason, Reason::KubeletStateDamaged);
    assert!(!place.fake.fs.exists("/var/lib/kubelet/pod_status_manager_state"));
    let kept = place.context.host.fs.read_dir(Path::new("/var/lib/kubelet")).unwrap();
    assert!(kept.iter().any(|e| e.name.to_string_lossy().starts_with("pod_status_manager_state.damaged-")), "{kept:?}");
    assert_eq!(place.starts()[0], format!("restart {UNIT_KUBELET}"));
}

#[tokio::test]
async fn an_interrupted_operation_is_taken_up_under_the_lock() {
    let place = Place::node().await;
    interrupt(&place.fake).await;
    place.until("its end", |s| s.last_operation.is_some()).await;
    assert_eq!(*place.resume.seen.lock().unwrap(), ["start"]);
    assert_eq!((place.locks.taken.load(Ordering::SeqCst), place.locks.held.load(Ordering::SeqCst)), (1, 0));
    assert!(Journal::new(place.fake.fs.clone()).open().unwrap().is_none());
}

/// Found on recorded disks: a cut in the write of the state, and in that of the journal's history when nothing was open.
#[tokio::test]
async fn temporary_files_that_an_interruption_left_go_unless_somebody_is_at_work() {
    const LEFT: [&str; 2] =
        ["/etc/aks-flex-node/.flexnode-tmp-873-15", "/var/lib/aks-flex-node/journal/history/.flexnode-tmp-1042-0"];
    let place = Place::node().await;
    for path in LEFT {
        place.fake.fs.put(path, "half", 0o600);
    }
    place.locks.by_another.store(true, Ordering::SeqCst);
    place.until("anything", |_| true).await;
    assert!(LEFT.iter().all(|path| place.fake.fs.exists(path)), "they may be of who holds the lock");
    place.locks.by_another.store(false, Ordering::SeqCst);
    place.until("a healthy node", |s| s.verdict == Verdict::Healthy).await;
    assert!(!LEFT.iter().any(|path| place.fake.fs.exists(path)));
    assert_eq!((place.locks.taken.load(Ordering::SeqCst), place.locks.held.load(Ordering::SeqCst)), (1, 0));
}

#[tokio::test]
async fn an_operation_of_a_command_that_lives_is_shown_and_waited_for() {
    let place = Place::node().await;
    interrupt(&place.fake).await;
    place.locks.by_another.store(true, Ordering::SeqCst);
    let mut killed = false;
    let snapshot = place
        .meanwhile("its end", async |last| {
            let Some(snapshot) = last() else { return false };
            if let Some(open) = snapshot.operation.as_ref().filter(|_| !killed) {
                assert_eq!((open.pid, open.step.as_str()), (Some(4711), "one"));
                assert_eq!(snapshot.reason, Some(Reason::OperationInProgress));
                assert!(place.resume.seen.lock().unwrap().is_empty());
                killed = true;
                place.locks.by_another.store(false, Ordering::SeqCst);
                place.locks.freed.notify_one();
            }
            snapshot.last_operation.is_some()
        })
        .await;
    assert_eq!(*place.resume.seen.lock().unwrap(), ["start"]);
    assert_eq!(snapshot.operation, None);
}

#[tokio::test]
async fn what_cannot_be_taken_up_is_tried_again_and_told() {
    let place = Place::node().await;
    interrupt(&place.fake).await;
    place.resume.failures.store(3, Ordering::SeqCst);
    let begin = place.fake.clock.monotonic();
    place.until("its end", |s| s.last_operation.is_some()).await;
    assert_eq!(place.resume.seen.lock().unwrap().len(), 4);
    let waited = place.fake.clock.monotonic().saturating_sub(begin).as_secs();
    assert!((70..90).contains(&waited), "10 + 20 + 40 s, and not {waited}");
}

#[tokio::test]
async fn a_record_that_makes_no_sense_stops_nothing_and_starts_nothing() {
    let place = Place::node().await;
    place.kill(UNIT_KUBELET);
    place.fake.fs.put_dir("/var/lib/aks-flex-node/journal", 0o700);
    place.fake.fs.put("/var/lib/aks-flex-node/journal/record.json", "{", 0o600);
    let begin = place.fake.clock.now();
    let snapshot = place.until("ten minutes", |s| s.at.duration_since(begin).as_mins() > 10).await;
    assert_eq!(snapshot.reason, Some(Reason::RecordsUnreadable));
    // Once, at its start, the node that is there is started; the loop acts on nothing.
    assert_eq!(*place.resume.seen.lock().unwrap(), ["unreadable"]);
    assert_eq!((place.starts().len(), place.locks.taken.load(Ordering::SeqCst)), (0, 1));
    assert_eq!(place.locks.held.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn the_cluster_is_told_of_transitions_and_of_nothing_else() {
    let place = Place::node().await;
    let said = || place.cluster.said.lock().unwrap().clone();
    place.meanwhile("the first word", async |_| said().len() >= 2).await;
    let first = said();
    assert_eq!(first[..2], ["FlexNodeAgentReady=True NodeHealthy", "FlexNodeUpToDate=Unknown NotKnown"], "{first:?}");
    // The daemon that ends says so, and the next one takes it back, with an event.
    assert_eq!(first[2], "FlexNodeAgentReady=Unknown AgentStopped", "{first:?}");
    place.meanwhile("it runs again", async |_| said().len() >= 5).await;
    assert_eq!(said()[3..5], ["FlexNodeAgentReady=True NodeHealthy", "event NodeHealthy"]);
    place.cluster.said.lock().unwrap().clear();
    let begin = place.fake.clock.now();
    let mut ill = false;
    let mut quiet = 0;
    place
        .meanwhile("a transition", async |last| {
            let Some(snapshot) = last() else { return false };
            if !ill && snapshot.at.duration_since(begin).as_mins() > 30 {
                // Beside what the daemon before this one left.
                quiet = said().iter().filter(|word| !word.contains("NodeHealthy")).count();
                place.cluster.said.lock().unwrap().clear();
                place.healthy(false);
                ill = true;
            }
            said().iter().any(|word| word == "event KubeletUnhealthy")
        })
        .await;
    assert_eq!(quiet, 0, "half an hour in which nothing changed");
    assert_eq!(said()[..2], ["FlexNodeAgentReady=False KubeletUnhealthy", "event KubeletUnhealthy"]);
}

#[tokio::test]
async fn a_cluster_that_refuses_or_is_away_stops_nothing() {
    let place = Place::node().await;
    place.cluster.refuses.store(true, Ordering::SeqCst);
    let snapshot = place.until("a healthy node", |s| s.verdict == Verdict::Healthy).await;
    assert_eq!(snapshot.ready, Some(true));
    *place.cluster.node.lock().unwrap() = Err(ApiProblem::Connection("refused".into()));
    place.cluster.changed.notify_one();
    let snapshot = place.until("an API server that is away", |s| s.reason == Some(Reason::NodeUnknown)).await;
    assert_eq!(snapshot.ready, None, "never an old value that looks fresh");
    // C103: a Node that was deleted is told, and nothing is done about it.
    *place.cluster.node.lock().unwrap() = Ok(None);
    place.cluster.changed.notify_one();
    place.until("no Node", |s| s.reason == Some(Reason::NodeMissing)).await;
    assert_eq!(place.starts(), Vec::<String>::new());
}

#[tokio::test]
async fn what_a_reset_removed_is_not_made_again() {
    let place = Place::node().await;
    let dir = place.context.status_file.parent().unwrap().to_path_buf();
    let begin = place.fake.clock.monotonic();
    let mut removed = false;
    let mut context = place.context.clone();
    context.cancel = Cancel::new();
    let meanwhile = async {
        while place.fake.clock.monotonic().saturating_sub(begin) < Duration::from_mins(10) {
            if !removed && load_snapshot_from_file(&context.status_file).is_ok() {
                std::fs::remove_dir_all(&dir).unwrap();
                place.healthy(false);
                removed = true;
            }
            tokio::task::yield_now().await;
        }
        context.cancel.request();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = run(&context) => {}
        () = meanwhile => {}
    }
    assert!(removed && !dir.exists());
}

#[tokio::test]
async fn it_ends_at_once_when_nothing_runs() {
    let place = Place::bare();
    place.context.cancel.request();
    run(&place.context).await;
}

use super::*;
use crate::observe::Seams;
use crate::report::{Context, report};
use crate::testing::{FakeNodeHost, client_certificate, node};
use flexnode_host::SpaceLeft;
use flexnode_host::testing::{Script, Verb};
use flexnode_model::JournalRecord;
use flexnode_model::journal::{Subject, Writer};
use flexnode_model::snapshot::{Snapshot, Verdict};
use std::time::Duration;

async fn seen(host: &FakeNodeHost, recorded: Recorded) -> Snapshot {
    report(&host.observe().await, &Context { recorded, ..Context::default() })
}

async fn reasons(host: &FakeNodeHost) -> Vec<Reason> {
    seen(host, Recorded::default()).await.deviations.iter().map(|deviation| deviation.reason).collect()
}

fn record(change: impl FnOnce(&mut JournalRecord)) -> JournalRecord {
    let by = Writer { boot_id: "b".into(), pid: 1, owner: "command".into() };
    let subject = Subject { operation: "start".into(), ..Subject::default() };
    let mut record = JournalRecord::open("1", subject, &by, Timestamp::UNIX_EPOCH);
    record.enter("import-images", Timestamp::UNIX_EPOCH);
    change(&mut record);
    record
}

#[tokio::test]
async fn what_did_not_end_is_told_first() {
    let host = FakeNodeHost::healthy().await;
    let told = async |recorded: Recorded| seen(&host, recorded).await.deviations.remove(0);
    let interrupted = told(Recorded { last: Some(record(|_| ())), ..Recorded::default() }).await;
    assert_eq!(interrupted.reason, Reason::OperationInterrupted);
    assert_eq!(
        interrupted.message,
        "start was interrupted at step import-images; the agent's service or running it again goes on"
    );
    let runs = told(Recorded { last: Some(record(|_| ())), holder: Some(42), ..Recorded::default() }).await;
    assert_eq!(runs.reason, Reason::OperationInProgress);
    assert_eq!(runs.message, "start runs (PID 42) and is at step import-images");
    let failed = record(|record| record.fail("disk full", Timestamp::UNIX_EPOCH));
    let failed = told(Recorded { last: Some(failed), ..Recorded::default() }).await;
    assert_eq!(failed.reason, Reason::OperationFailed);
    assert!(failed.message.contains("failed at step import-images: disk full; run aks-flex-node start again"));
    let problems = vec!["the state cannot be read".to_owned()];
    assert_eq!(told(Recorded { problems, ..Recorded::default() }).await.reason, Reason::RecordsUnreadable);
    let ended = record(|record| record.close(flexnode_model::journal::Ending::Done, None, Timestamp::UNIX_EPOCH));
    let healthy = seen(&host, Recorded { last: Some(ended), ..Recorded::default() }).await;
    assert_eq!((healthy.verdict, healthy.last_operation.unwrap().operation.as_str()), (Verdict::Healthy, "start"));
}

#[tokio::test]
async fn while_an_operation_runs_the_units_are_in_its_hands() {
    let host = FakeNodeHost::healthy().await;
    host.host.host().systemd.stop(UNIT_KUBELET, Duration::from_secs(5)).await.unwrap();
    let recorded = Recorded { last: Some(record(|_| ())), holder: Some(42), ..Recorded::default() };
    let snapshot = seen(&host, recorded).await;
    assert_eq!(snapshot.deviations.len(), 1, "{:?}", snapshot.deviations);
    assert_eq!(snapshot.operation.unwrap().pid, Some(42));
}

/// C155: a main PID that stays 0 is not "still starting" for ever.
#[test]
fn a_unit_that_ends_again_and_again_is_told_from_one_that_starts() {
    let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
    let state = |active: &str, sub: &str, restarts, seconds: i64| UnitState {
        load: "loaded".into(),
        active: active.into(),
        sub: sub.into(),
        enabled: "enabled".into(),
        restarts,
        since_us: u64::try_from(now.as_microsecond() - seconds * 1_000_000).unwrap(),
        result: "exit-code".into(),
        exit_status: 1,
        ..UnitState::default()
    };
    let reason = |state: UnitState| {
        let program = crate::observe::ProgramView { process: Ok(None), slot: None, resident: None };
        let view = UnitView { state: Ok(state), program, last_lines: Vec::new() };
        unit(UNIT_KUBELET, &view, true, now).map(|deviation| deviation.reason)
    };
    assert_eq!(reason(state("activating", "auto-restart", 0, 1)), Some(Reason::UnitChanging));
    assert_eq!(reason(state("activating", "auto-restart", 2, 1)), Some(Reason::UnitChanging));
    assert_eq!(reason(state("activating", "auto-restart", 3, 1)), Some(Reason::UnitCrashLoops));
    assert_eq!(reason(state("activating", "start", 9, 1)), Some(Reason::UnitCrashLoops));
    assert_eq!(reason(state("active", "running", 9, 1)), Some(Reason::UnitCrashLoops), "up for a second");
    assert_eq!(reason(state("active", "running", 9, STAYS_UP)), None, "it stays up");
    assert_eq!(reason(state("active", "running", 9, -5)), None, "the clock was set back");
    assert_eq!(reason(state("activating", "start", 0, 5)), Some(Reason::UnitChanging));
    assert_eq!(reason(state("activating", "start", 0, 61)), Some(Reason::UnitStopped), "starting for ever");
    assert_eq!(reason(state("failed", "failed", 0, 5)), Some(Reason::UnitFailed));
    assert_eq!(reason(state("inactive", "dead", 5, 5)), Some(Reason::UnitStopped), "somebody stopped it");
    let masked = UnitState { load: "masked".into(), ..state("inactive", "dead", 0, 5) };
    assert_eq!(reason(masked), Some(Reason::UnitMasked));
    let foreign = UnitState { load: "bad-setting".into(), ..state("inactive", "dead", 0, 5) };
    assert_eq!(reason(foreign), Some(Reason::UnitNotLoaded));
}

#[tokio::test]
async fn the_last_lines_of_a_failed_unit_are_kept_and_redacted() {
    let host = FakeNodeHost::healthy().await;
    let pid = host.pid(UNIT_KUBELET);
    host.host.systemd.set_active(UNIT_KUBELET, "failed", "failed");
    host.host.processes.end(pid);
    host.host.systemd.journal(UNIT_KUBELET, &["panic: token abcdef.0123456789abcdef", "goroutine 1"]);
    let snapshot = seen(&host, Recorded::default()).await;
    let unit = snapshot.units.iter().find(|unit| unit.unit == UNIT_KUBELET).unwrap();
    assert_eq!(unit.last_lines, ["panic: token (token)", "goroutine 1"]);
    assert_eq!(snapshot.reason, Some(Reason::UnitFailed));
}

/// C103 and C104.
#[tokio::test]
async fn certificates_and_a_deleted_node() {
    let host = FakeNodeHost::healthy().await;
    let set = |certificates| *host.certificates.0.lock().unwrap() = Ok(certificates);
    host.node.set(Ok(None));
    let message = seen(&host, Recorded::default()).await.deviations.remove(0).message;
    assert!(message.contains("certificate is still good") && message.contains("aks-flex-node restart"), "{message}");
    // The fakes' clock stands at 2026-01-01.
    set(vec![client_certificate("2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z")]);
    let snapshot = seen(&host, Recorded::default()).await;
    assert_eq!(snapshot.reason, Some(Reason::CertificateExpired));
    assert!(snapshot.deviations[1].message.contains("new bootstrap token is needed"), "{:?}", snapshot.deviations);

    host.node.set(Ok(Some(node(Some(true), "KubeletReady", ""))));
    set(vec![client_certificate("2026-01-01T00:02:00Z", "2027-01-01T00:00:00Z")]);
    let deviation = seen(&host, Recorded::default()).await.deviations.remove(0);
    assert_eq!(deviation.reason, Reason::CertificateNotYetValid);
    assert!(deviation.message.contains("clock"), "{}", deviation.message);
    let gone = Certificate {
        validity: Reading::Unknown("/run/pki/kubelet.pem is not there".into()),
        ..client_certificate("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z")
    };
    set(vec![gone]);
    assert_eq!(reasons(&host).await, [Reason::CredentialsMissing]);
    // Nine tenths of its time are over: worth knowing, and no deviation.
    set(vec![client_certificate("2025-01-01T00:00:00Z", "2026-01-20T00:00:00Z")]);
    let snapshot = seen(&host, Recorded::default()).await;
    assert_eq!(snapshot.verdict, Verdict::Healthy);
    assert!(snapshot.notes[0].contains("was not renewed"), "{:?}", snapshot.notes);
}

#[tokio::test]
async fn disks_and_the_clock() {
    let host = FakeNodeHost::healthy().await;
    let space = SpaceLeft { device: 1, total_bytes: 1 << 30, free_bytes: 1 << 20, total_inodes: 1000, free_inodes: 10 };
    host.space.set("/var/lib/kubelet", Ok(space));
    assert_eq!(reasons(&host).await, [Reason::DiskPressure, Reason::InodePressure]);
    host.space.set("/var/lib/kubelet", Err("stale"));
    assert_eq!(reasons(&host).await, [], "what is not known is no pressure");
    for (skew, wanted) in [(31, vec![Reason::ClockSkew]), (-31, vec![Reason::ClockSkew]), (30, vec![])] {
        *host.skew.0.lock().unwrap() = Ok(skew);
        assert_eq!(reasons(&host).await, wanted);
    }
    *host.skew.0.lock().unwrap() = Err("the API server was not heard".into());
    assert_eq!(reasons(&host).await, []);
}

/// C115.
#[tokio::test]
async fn damaged_state_of_kubelet_matters_when_it_does_not_come_up() {
    let host = FakeNodeHost::healthy().await;
    host.host.fs.put("/var/lib/kubelet/cpu_manager_state", r#"{"a":1}"#, 0o600);
    assert_eq!(reasons(&host).await, [], "kubelet runs and will write it anew");
    let pid = host.pid(UNIT_KUBELET);
    host.host.systemd.set_active(UNIT_KUBELET, "failed", "failed");
    host.host.processes.end(pid);
    host.probe.set(flexnode_host::probe::KUBELET_HEALTHZ, flexnode_host::probe::FakeAnswer::Hang);
    assert_eq!(reasons(&host).await, [Reason::UnitFailed, Reason::KubeletStateDamaged]);
}

/// C067: only what the goal wants active is judged.
#[tokio::test]
async fn a_unit_that_need_not_be_there_may_be_absent() {
    let host = FakeNodeHost::healthy().await;
    assert_eq!(reasons(&host).await, []);
    host.host.systemd.script_always(Verb::Unit, UNIT_LOCAL_DNS, Script::Refuse("no bus".into()));
    assert_eq!(reasons(&host).await, [Reason::UnitUnknown]);
}

/// C067: a unit that was disabled and has failed is left over or a person's; what the version wants to run is judged all the
/// same, however it is enabled.
#[tokio::test]
async fn a_unit_that_nobody_wants_active_is_not_judged_and_one_that_is_wanted_is() {
    let host = FakeNodeHost::healthy().await;
    let fs = &host.host.fs;
    for name in [UNIT_LOCAL_DNS, "somebody.service", "unbounded-of-a-person.service"] {
        fs.put(format!("/etc/systemd/system/{name}"), unit_text(), 0o644);
    }
    fs.put("/bin/other", "x", 0o755);
    let systemd = host.host.host().systemd;
    systemd.reload().await.unwrap();
    for (active, sub) in
        [("failed", "failed"), ("inactive", "dead"), ("activating", "auto-restart"), ("active", "running")]
    {
        for name in [UNIT_LOCAL_DNS, "somebody.service", "unbounded-of-a-person.service"] {
            host.host.systemd.set_active(name, active, sub);
        }
        assert_eq!(reasons(&host).await, [], "{active}");
    }
    // Enabled it belongs to the node.
    systemd.enable(UNIT_LOCAL_DNS).await.unwrap();
    systemd.reload().await.unwrap();
    host.host.systemd.set_active(UNIT_LOCAL_DNS, "failed", "failed");
    assert_eq!(reasons(&host).await, [Reason::UnitFailed]);
    systemd.disable(UNIT_LOCAL_DNS).await.unwrap();
    // kubelet is wanted although somebody disabled it.
    systemd.disable(UNIT_KUBELET).await.unwrap();
    systemd.reload().await.unwrap();
    let pid = host.pid(UNIT_KUBELET);
    host.host.systemd.set_active(UNIT_KUBELET, "failed", "failed");
    host.host.processes.end(pid);
    assert_eq!(reasons(&host).await, [Reason::UnitFailed]);
}

fn unit_text() -> &'static str {
    "[Service]\nExecStart=/bin/other\n[Install]\nWantedBy=multi-user.target\n"
}

/// C125: a seam that never answers costs its own deadline and nothing else.
#[tokio::test(start_paused = true)]
async fn a_witness_that_hangs_is_unknown_and_the_rest_is_known() {
    #[derive(Debug)]
    struct Hangs;
    #[async_trait::async_trait]
    impl crate::node::OwnNode for Hangs {
        async fn view(&self, _: Duration) -> Result<Option<NodeView>, crate::node::NodeUnknown> {
            std::future::pending().await
        }
    }
    let host = FakeNodeHost::healthy().await;
    let mut seams: Seams = host.seams();
    seams.witnesses.node = Some(std::sync::Arc::new(Hangs));
    let observation = crate::observe::observe(&seams, false).await;
    let snapshot = report(&observation, &Context::default());
    assert_eq!(snapshot.reason, Some(Reason::NodeUnknown));
    assert!(snapshot.deviations[0].message.contains("did not answer within 8 s"), "{:?}", snapshot.deviations);
    assert_eq!(snapshot.kubernetes_version.as_deref(), Some("1.36.3"));
}

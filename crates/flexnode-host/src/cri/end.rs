//! Ending every pod of the host, within a limit.

use super::{Cri, Sandbox, SandboxState};
use crate::HostError;
use futures_util::StreamExt as _;
use std::time::Duration;
use tokio::time::Instant;

/// Sandboxes that are worked on at once. Each takes containerd some tens of milliseconds of mostly waiting.
const AT_ONCE: usize = 32;

/// How far to go with each sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxEnd {
    /// Stop what is ready: processes end and the network goes; the runtime keeps what it knows. For an upgrade. What a sandbox
    /// left whose own process died is for whoever looks at the control groups, and for kubelet.
    Stop,
    /// Stop, then remove with containers and snapshots. For a reset.
    StopAndRemove,
}

/// A sandbox that did not end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// Which.
    pub sandbox: Sandbox,
    /// Why, in words.
    pub reason: String,
}

/// What [`end_all_sandboxes`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndReport {
    /// Those that ended.
    pub ended: Vec<Sandbox>,
    /// Those that did not, each with its reason. Empty: no pod is left.
    pub remaining: Vec<Remaining>,
}

/// Ends all pod sandboxes, many at once, in `total` at most. What remained is named in the report.
///
/// Running ones go first. At the end the runtime is asked once more, so that "ended" is what it says and not what was
/// sent. kubelet must be stopped before, or it makes new ones.
///
/// Fails only when the sandboxes cannot be listed: then nothing was done.
pub async fn end_all_sandboxes(cri: &dyn Cri, how: SandboxEnd, total: Duration) -> Result<EndReport, HostError> {
    let end = Instant::now() + total;
    let mut sandboxes = cri.list_sandboxes(total.min(super::READ_DEADLINE)).await?;
    if how == SandboxEnd::Stop {
        // One that has ended is as it is to be; stopping it again costs the runtime as much as the first time.
        sandboxes.retain(|sandbox| sandbox.state != SandboxState::NotReady);
    }
    sandboxes.sort_by_key(|s| s.state == SandboxState::NotReady);

    let mut report = EndReport::default();
    let mut results = futures_util::stream::iter(sandboxes)
        .map(|sandbox| async move {
            let result = end_one(cri, &sandbox.id, how, end).await;
            (sandbox, result)
        })
        .buffer_unordered(AT_ONCE);
    while let Some((sandbox, result)) = results.next().await {
        match result {
            Ok(()) => report.ended.push(sandbox),
            Err(e) => report.remaining.push(Remaining { sandbox, reason: e.to_string() }),
        }
    }
    verify(cri, how, end, &mut report).await;
    Ok(report)
}

async fn end_one(cri: &dyn Cri, id: &str, how: SandboxEnd, end: Instant) -> Result<(), HostError> {
    cri.stop_sandbox(id, left(end)).await?;
    match how {
        SandboxEnd::Stop => Ok(()),
        SandboxEnd::StopAndRemove => cri.remove_sandbox(id, left(end)).await,
    }
}

/// Zero when the time is over: the call then ends at once with its deadline.
fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

/// Moves what the runtime still shows from "ended" to "remaining". Without an answer the report stays as it is.
async fn verify(cri: &dyn Cri, how: SandboxEnd, end: Instant, report: &mut EndReport) {
    let Ok(now) = cri.list_sandboxes(left(end).min(super::READ_DEADLINE)).await else { return };
    for sandbox in now {
        let ended = how == SandboxEnd::Stop && sandbox.state == SandboxState::NotReady;
        if ended || report.remaining.iter().any(|r| r.sandbox.id == sandbox.id) {
            continue;
        }
        let known = report.ended.iter().position(|s| s.id == sandbox.id);
        let reason = match known {
            Some(_) => "the runtime said that it ended, and still shows it",
            None => "it was made while the others were ended",
        };
        if let Some(index) = known {
            report.ended.remove(index);
        }
        report.remaining.push(Remaining { sandbox, reason: reason.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{FakeCri, Trouble};
    use super::*;

    const TOTAL: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn stops_all_and_keeps_what_the_runtime_knows() {
        let cri = FakeCri::with_pods(100);
        let report = end_all_sandboxes(&cri, SandboxEnd::Stop, TOTAL).await.unwrap();
        assert_eq!((report.ended.len(), report.remaining.len()), (100, 0));
        let left = cri.list_sandboxes(TOTAL).await.unwrap();
        assert_eq!(left.len(), 100);
        assert!(left.iter().all(|s| s.state == SandboxState::NotReady));
    }

    #[tokio::test]
    async fn one_that_has_ended_is_not_stopped_again() {
        let cri = FakeCri::with_pods(3);
        cri.stop_sandbox("pod-1", TOTAL).await.unwrap();
        cri.trouble("pod-1", Trouble::Refuse("it has ended"));
        let report = end_all_sandboxes(&cri, SandboxEnd::Stop, TOTAL).await.unwrap();
        assert_eq!((report.ended.len(), report.remaining.len()), (2, 0), "{report:?}");
    }

    #[tokio::test]
    async fn removes_all_also_those_that_are_stopped() {
        let cri = FakeCri::with_pods(5);
        cri.stop_sandbox("pod-3", TOTAL).await.unwrap();
        let report = end_all_sandboxes(&cri, SandboxEnd::StopAndRemove, TOTAL).await.unwrap();
        assert_eq!((report.ended.len(), report.remaining.len()), (5, 0));
        assert!(cri.list_sandboxes(TOTAL).await.unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_hangs_is_named_in_time_and_the_others_end() {
        let cri = FakeCri::with_pods(40);
        cri.trouble("pod-7", Trouble::Hang);
        let begin = Instant::now();
        let report = end_all_sandboxes(&cri, SandboxEnd::StopAndRemove, TOTAL).await.unwrap();
        assert_eq!(begin.elapsed(), TOTAL);
        assert_eq!(report.ended.len(), 39);
        assert_eq!(report.remaining.len(), 1);
        assert_eq!(report.remaining[0].sandbox.pod(), "default/pod-7");
        assert!(report.remaining[0].reason.contains("did not end within 10 s"), "{report:?}");
    }

    #[tokio::test]
    async fn a_refusal_is_named_with_its_reason() {
        let cri = FakeCri::with_pods(2);
        cri.trouble("pod-1", Trouble::Refuse("cni plugin is gone"));
        let report = end_all_sandboxes(&cri, SandboxEnd::Stop, TOTAL).await.unwrap();
        assert_eq!(report.ended.len(), 1);
        assert!(report.remaining[0].reason.contains("cni plugin is gone"), "{report:?}");
    }

    #[tokio::test]
    async fn a_runtime_that_lies_is_found_out() {
        let cri = FakeCri::with_pods(2);
        cri.trouble("pod-0", Trouble::Lie);
        let report = end_all_sandboxes(&cri, SandboxEnd::Stop, TOTAL).await.unwrap();
        assert_eq!(report.ended.len(), 1);
        assert_eq!(report.remaining[0].sandbox.id, "pod-0");
    }

    #[tokio::test]
    async fn a_runtime_that_is_not_there_is_an_error() {
        let cri = FakeCri::with_pods(2);
        cri.set_running(false);
        let error = end_all_sandboxes(&cri, SandboxEnd::Stop, TOTAL).await.unwrap_err();
        assert!(matches!(error, HostError::Absent { .. }), "{error}");
    }
}

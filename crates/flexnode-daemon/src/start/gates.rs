//! What has to be true after a unit of the node was started, before the next one is.

use flexnode_host::cri::{Cri, READ_DEADLINE};
use flexnode_host::probe::{KUBELET_HEALTHZ, Probe};
use flexnode_host::{Host, HostError, UnitState};
use flexnode_isolation::none::{Hook, UNIT_CONTAINERD, UNIT_KUBELET};
use flexnode_ops::{Outcome, StepContext, StepError, failpoint};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// containerd's CRI after its start; it first looks at all containers that it finds.
pub const RUNTIME_READY: Duration = Duration::from_mins(2);
/// kubelet's health endpoint after its start.
pub const KUBELET_HEALTHY: Duration = Duration::from_mins(2);

/// Seconds instead of both, in builds with fail points only.
pub const LIMIT_SETTING: &str = "FLEXNODE_GATE_LIMIT";

/// A gate says itself that its time is over; the deadline around it comes later.
const SPARE: Duration = Duration::from_mins(1);
const EVERY: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_secs(2);
/// A program that systemd had to start so often again will not come up.
const RESTARTS: u32 = 3;

/// Who is asked.
#[derive(Clone, Copy, Debug)]
enum Gate<'a> {
    Runtime(&'a dyn Cri),
    Kubelet(&'a dyn Probe),
}

impl Gate<'_> {
    fn unit(self) -> &'static str {
        match self {
            Gate::Runtime(_) => UNIT_CONTAINERD,
            Gate::Kubelet(_) => UNIT_KUBELET,
        }
    }

    fn limit(self) -> Duration {
        failpoint::seconds(LIMIT_SETTING).unwrap_or(match self {
            Gate::Runtime(_) => RUNTIME_READY,
            Gate::Kubelet(_) => KUBELET_HEALTHY,
        })
    }

    /// Nothing when the answer is good, otherwise what it was.
    async fn ask(self) -> Result<(), String> {
        match self {
            Gate::Runtime(cri) => match cri.status(READ_DEADLINE).await {
                Ok(status) if status.runtime_ready => Ok(()),
                Ok(status) => Err(status.reasons.join("; ")),
                Err(e) => Err(e.to_string()),
            },
            Gate::Kubelet(probe) => match probe.http_get(KUBELET_HEALTHZ, LOOK).await {
                Ok(answer) if answer.is_success() => Ok(()),
                Ok(answer) => Err(format!("healthz answers {}: {}", answer.status, first_line(&answer.body))),
                Err(e) => Err(e.to_string()),
            },
        }
    }
}

/// The gates of the units as the backend takes them, by unit.
pub fn hooks(host: &Host, cri: &Arc<dyn Cri>, probe: &Arc<dyn Probe>) -> BTreeMap<String, Hook> {
    let (on, asked) = (host.clone(), cri.clone());
    let runtime = Hook::new(RUNTIME_READY + SPARE, move |cx| {
        let (host, cri) = (on.clone(), asked.clone());
        async move { runtime_ready(&host, cri.as_ref(), &cx).await.map(|()| Outcome::Unchanged) }
    });
    let (on, asked) = (host.clone(), probe.clone());
    let kubelet = Hook::new(KUBELET_HEALTHY + SPARE, move |cx| {
        let (host, probe) = (on.clone(), asked.clone());
        async move { kubelet_healthy(&host, probe.as_ref(), &cx).await.map(|()| Outcome::Unchanged) }
    });
    [(UNIT_CONTAINERD.to_owned(), runtime), (UNIT_KUBELET.to_owned(), kubelet)].into()
}

/// Waits until the container runtime answers and says that it is ready.
pub async fn runtime_ready(host: &Host, cri: &dyn Cri, cx: &StepContext) -> Result<(), StepError> {
    cx.note("waiting for containerd to answer");
    until(host, Gate::Runtime(cri)).await
}

/// Waits until kubelet says that it is healthy.
pub async fn kubelet_healthy(host: &Host, probe: &dyn Probe, cx: &StepContext) -> Result<(), StepError> {
    cx.note("waiting for kubelet to answer");
    until(host, Gate::Kubelet(probe)).await
}

/// Asks until the answer is good. A unit that systemd has given up on, or that ends again and again, will not answer any
/// more: that is said at once instead of at the end of the time.
async fn until(host: &Host, gate: Gate<'_>) -> Result<(), StepError> {
    let (unit, limit) = (gate.unit(), gate.limit());
    let end = host.clock.monotonic() + limit;
    let before = state(host, unit).await?.restarts;
    loop {
        let Err(why) = gate.ask().await else { return Ok(()) };
        let state = state(host, unit).await?;
        if state.active == "failed" || state.restarts >= before + RESTARTS {
            return Err(ended(unit, &state));
        }
        let now = host.clock.monotonic();
        if now >= end {
            let text = format!("{unit} runs but is not ready after {} s: {why}", limit.as_secs());
            return Err(StepError::new(text).hint(look(unit)));
        }
        host.clock.sleep(EVERY.min(end.saturating_sub(now))).await;
    }
}

async fn state(host: &Host, unit: &str) -> Result<UnitState, StepError> {
    let error = |e: HostError| StepError::caused(format!("systemd does not tell of {unit}"), e);
    host.systemd.unit(unit).await.map_err(error)
}

fn ended(unit: &str, state: &UnitState) -> StepError {
    let how = match (state.result.as_str(), state.exit_status) {
        ("exit-code", status) => format!("its program ended with {status}"),
        ("" | "success", _) => format!("it is {} ({})", state.active, state.sub),
        (result, _) => result.to_string(),
    };
    StepError::new(format!("{unit} does not stay up: {how}")).hint(look(unit))
}

/// Where a person looks.
pub fn look(unit: &str) -> String {
    format!("journalctl -u {} -n 50 --no-pager", unit.trim_end_matches(".service"))
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

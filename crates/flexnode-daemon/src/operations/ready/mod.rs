//! Whether a version that was just started is ready: health decides, and the API server is asked as a witness.
//!
//! The units' main processes run from the slot and stay the same for the probation, kubelet is of the version that was meant,
//! it says healthz, the runtime says ready and has the image of sandboxes, and a container of the slot's shim and runc can be
//! made. When the API server answers, the Node has to be Ready by a newer heartbeat, or NotReady for the same reason as
//! before: an upgrade may not make a node worse, it need not make it better. When it does not answer or is not well itself,
//! local signals decide.

mod judge;
mod trial;

pub use judge::{Before, NodeVerdict, Processes, Progress, Running, changed_since, decide, judge_node};

use super::NodeContext;
use crate::start::programs;
use flexnode_host::cri::READ_DEADLINE;
use flexnode_host::probe::KUBELET_HEALTHZ;
use flexnode_host::{Host, HostError, UnitState};
use flexnode_isolation::none::{UNIT_CONTAINERD, UNIT_KUBELET};
use flexnode_model::MachineGoal;
use flexnode_ops::{StepContext, StepError};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long an API server that does not answer is waited for before local signals decide.
pub const SILENCE: Duration = Duration::from_secs(60);
/// How long local signals and the Node may take to become good.
pub const PATIENCE: Duration = Duration::from_mins(3);
/// The whole wait, with time for programs that are run.
pub const DEADLINE: Duration = Duration::from_mins(6);
const EVERY: Duration = Duration::from_millis(500);
const ASK: Duration = Duration::from_secs(5);
const PULL: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(2);

/// What has to be ready.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The slot that runs.
    pub slot: String,
    /// Its Kubernetes version, without `v`.
    pub kubernetes: String,
    /// Name of the Node.
    pub node: String,
    /// The Node before the stop.
    pub before: Before,
    /// The image of pod sandboxes, which the runtime has to have; `None`: it is not looked at.
    pub sandbox_image: Option<String>,
}

impl Wanted {
    /// What a slot's goal means, with what was seen before.
    pub(super) fn of(slot: &str, goal: &MachineGoal, before: &Mutex<Before>) -> Self {
        Self {
            slot: slot.to_owned(),
            kubernetes: goal.kubernetes_version.clone(),
            node: goal.node_name.clone(),
            before: before.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            sandbox_image: Some(goal.containerd.sandbox_image.clone()),
        }
    }
}

/// Reads the Node before the stop.
pub async fn before(context: &NodeContext, node: &str) -> Before {
    match context.node.see(node, ASK).await {
        Ok(Some(view)) => Before::Seen(Box::new(view)),
        _ => Before::Unknown,
    }
}

/// Waits until the version is ready, or says why it will not be.
pub async fn wait(context: &NodeContext, wanted: &Wanted, cx: &StepContext) -> Result<(), StepError> {
    let host = context.host();
    let bin = context.layout().version_dir(&wanted.slot).join("bin");
    programs::check_kubelet(host, &bin, &wanted.kubernetes).await?;
    let first = processes(host, &bin).await?;
    let running = running(host, &wanted.kubernetes).await?;
    cx.note("making a container");
    trial::container(context, &bin).await?;
    if let Some(image) = &wanted.sandbox_image {
        sandbox_image(context, image, cx).await?;
    }
    let began = host.clock.monotonic();
    let mut said = String::new();
    loop {
        let now = processes(host, &bin).await?;
        if let Some(why) = changed_since(&first, &now) {
            return Err(StepError::new(why).hint("journalctl -u unbounded-containerd -u unbounded-kubelet -n 50"));
        }
        let local = local(context).await;
        let seen = context.node.see(&wanted.node, ASK).await;
        let node = judge_node(&wanted.before, &running, seen.as_ref().map(Option::as_ref));
        let elapsed = host.clock.monotonic().saturating_sub(began);
        match decide(context.probation, elapsed, local, node) {
            Progress::Ready => return Ok(()),
            Progress::Failed(why) => {
                return Err(StepError::new(format!(
                    "{} is not ready after {} s: {why}",
                    wanted.slot,
                    elapsed.as_secs()
                )));
            }
            Progress::Waits(what) => {
                if what != said {
                    cx.note(&what);
                    said = what;
                }
            }
        }
        host.clock.sleep(EVERY).await;
    }
}

async fn running(host: &Host, kubernetes: &str) -> Result<Running, StepError> {
    let failed = |e: HostError| StepError::caused(format!("{UNIT_KUBELET} could not be looked at"), e);
    let state = host.systemd.unit(UNIT_KUBELET).await.map_err(failed)?;
    let since = i64::try_from(state.since_us).ok().filter(|us| *us > 0);
    Ok(Running {
        kubernetes: kubernetes.to_owned(),
        boot_id: host.kernel.boot_id().unwrap_or_default(),
        since: since.and_then(|us| jiff::Timestamp::from_microsecond(us).ok()),
    })
}

/// What this machine says.
async fn local(context: &NodeContext) -> Result<(), String> {
    match context.start.probe.http_get(KUBELET_HEALTHZ, LOOK).await {
        Ok(answer) if answer.is_success() => {}
        Ok(answer) => return Err(format!("kubelet's healthz answers {}", answer.status)),
        Err(e) => return Err(e.to_string()),
    }
    match context.start.cri.status(READ_DEADLINE).await {
        Ok(status) if status.runtime_ready => Ok(()),
        Ok(status) => Err(format!("the runtime is not ready: {}", status.reasons.join("; "))),
        Err(e) => Err(e.to_string()),
    }
}

/// The processes, each of which has to run the slot's file: by device and inode, not by its path.
async fn processes(host: &Host, bin: &Path) -> Result<Processes, StepError> {
    let mut found = Vec::new();
    for (unit, program) in [(UNIT_CONTAINERD, "containerd"), (UNIT_KUBELET, "kubelet")] {
        let failed = |e: HostError| StepError::caused(format!("{unit} could not be looked at"), e);
        let state: UnitState = host.systemd.unit(unit).await.map_err(failed)?;
        if state.main_pid != 0 {
            let process = host.processes.get(state.main_pid).map_err(failed)?;
            let file = host.fs.stat(&bin.join(program)).map_err(|e| failed(e.into()))?;
            let file = file.map(|stat| (stat.dev, stat.ino));
            if let Some(process) = process.filter(|process| process.exe_id != file) {
                let text = format!("the process {} of {unit} runs {}", process.pid, process.exe.display());
                return Err(StepError::new(format!("{text}, not {}", bin.join(program).display())));
            }
        }
        found.push((unit.to_owned(), state.main_pid, state.restarts));
    }
    match found.iter().find(|(_, pid, _)| *pid == 0) {
        Some((unit, ..)) => Err(StepError::new(format!("{unit} does not run"))
            .hint(format!("journalctl -u {} -n 50 --no-pager", unit.trim_end_matches(".service")))),
        None => Ok(found),
    }
}

/// No pod starts without the image of its sandbox. Where no source brings it, the runtime has to be able to pull it.
async fn sandbox_image(context: &NodeContext, image: &str, cx: &StepContext) -> Result<(), StepError> {
    let cri = &context.start.cri;
    let failed = |e: HostError| StepError::caused(format!("the runtime does not tell whether it has {image}"), e);
    if cri.image_status(image, READ_DEADLINE).await.map_err(failed)?.is_some() {
        return Ok(());
    }
    cx.note(&format!("pulling {image}"));
    cri.pull_image(image, PULL).await.map_err(|e| {
        StepError::caused(format!("the image {image}, without which no pod starts, is not there"), e)
            .hint("bring it with the bundle (aks-flex-node bundle --image), or correct components.sandboxImage")
    })
}

//! Whether a version that was just started is ready: health decides, and the API server is asked as a witness.
//!
//! The units' main processes run from the slot and stay the same for the probation, kubelet is of the version that was meant,
//! it says healthz, the runtime says ready, and a container of the slot's shim and runc can be made. When the API server
//! answers, the Node has to be Ready by a newer heartbeat, or NotReady for the same reason as before: an upgrade may not
//! make a node worse, it need not make it better. When it does not answer or is not well itself, local signals decide.

use super::NodeContext;
use crate::agent_binary;
use flexnode_host::cri::{CONTAINERD_SOCKET, READ_DEADLINE};
use flexnode_host::probe::KUBELET_HEALTHZ;
use flexnode_host::{Command, Host, HostError, UnitState};
use flexnode_isolation::none::{UNIT_CONTAINERD, UNIT_KUBELET};
use flexnode_kube::ApiProblem;
use flexnode_ops::{StepContext, StepError};
use flexnode_status::node::NodeView;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long an API server that does not answer is waited for before local signals decide.
pub const SILENCE: Duration = Duration::from_secs(60);
/// How long local signals and the Node may take to become good.
pub const PATIENCE: Duration = Duration::from_mins(3);
/// The whole wait, with time for programs that are run.
pub const DEADLINE: Duration = Duration::from_mins(6);
const EVERY: Duration = Duration::from_millis(500);
const ASK: Duration = Duration::from_secs(5);
const RUN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_secs(2);

/// containerd's namespace of the container that is tried: kubelet does not see it.
const NAMESPACE: &str = "aks-flex-node-ready";
const CONTAINER: &str = "ready";
const ROOT: &str = "/var/lib/aks-flex-node/artifacts/ready";

/// What was known of the Node before the stop.
#[derive(Clone, Debug, PartialEq)]
pub enum Before {
    /// It was seen.
    Seen(Box<NodeView>),
    /// There was none, or it could not be seen.
    Unknown,
}

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
}

/// What the Node says of the version that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeVerdict {
    /// It is as good as it was.
    Good,
    /// Not yet, and why.
    NotYet(String),
    /// The API server says nothing about the node.
    Silent(String),
}

/// Judges the Node.
pub fn judge_node(before: &Before, kubernetes: &str, now: Result<Option<&NodeView>, &ApiProblem>) -> NodeVerdict {
    let seen = match before {
        Before::Seen(view) => Some(view),
        Before::Unknown => None,
    };
    let now = match now {
        Err(problem) if problem.is_silence() || seen.is_none() => return NodeVerdict::Silent(problem.to_string()),
        Err(problem) => return NodeVerdict::NotYet(problem.to_string()),
        Ok(None) if seen.is_none() => return NodeVerdict::Silent("there is no Node of this name".into()),
        Ok(None) => return NodeVerdict::NotYet("the Node is gone".into()),
        Ok(Some(view)) => view,
    };
    if let Some(before) = seen
        && (now.heartbeat().is_none() || now.heartbeat() == before.heartbeat())
    {
        return NodeVerdict::NotYet("kubelet has not reported since its start".into());
    }
    if now.kubelet_version.trim_start_matches('v') != kubernetes {
        return NodeVerdict::NotYet(format!("kubelet reports version {}, not {kubernetes}", now.kubelet_version));
    }
    let Some(why) = now.why_not_ready() else { return NodeVerdict::Good };
    let was_ready = seen.is_some_and(|view| view.is_ready());
    let as_before = seen.is_some_and(|before| before.why_not_ready().as_ref() == Some(&why));
    if !was_ready && (as_before || now.waits_only_for_network()) {
        return NodeVerdict::Good;
    }
    NodeVerdict::NotYet(why)
}

/// The main process of each unit, and how often systemd had to start it.
pub type Processes = Vec<(String, u32, u32)>;

/// What is wrong with the units since the first look; nothing when they are the same.
pub fn changed_since(first: &Processes, now: &Processes) -> Option<String> {
    first.iter().zip(now).find_map(|((unit, pid, restarts), (_, pid_now, restarts_now))| {
        if *pid_now == 0 {
            Some(format!("{unit} does not run any more"))
        } else if pid != pid_now || restarts != restarts_now {
            Some(format!("{unit} did not stay up: its process {pid} was replaced by {pid_now}"))
        } else {
            None
        }
    })
}

/// Whether the wait is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is ready.
    Ready,
    /// It goes on; what it waits for.
    Waits(String),
    /// It will not be ready.
    Failed(String),
}

/// Decides from what was seen after `elapsed`.
pub fn decide(probation: Duration, elapsed: Duration, local: Result<(), String>, node: NodeVerdict) -> Progress {
    let why = match (local, node) {
        (Err(why), _) | (Ok(()), NodeVerdict::NotYet(why)) => why,
        (Ok(()), NodeVerdict::Silent(why)) if elapsed < SILENCE.max(probation) => {
            return Progress::Waits(format!("the API server tells nothing: {why}"));
        }
        (Ok(()), NodeVerdict::Good | NodeVerdict::Silent(_)) if elapsed < probation => {
            return Progress::Waits("watching the processes of the new version".into());
        }
        (Ok(()), NodeVerdict::Good | NodeVerdict::Silent(_)) => return Progress::Ready,
    };
    if elapsed < PATIENCE.max(probation) { Progress::Waits(why) } else { Progress::Failed(why) }
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
    check_version(host, &bin, &wanted.kubernetes).await?;
    let first = processes(host, &bin).await?;
    cx.note("making a container");
    try_container(context, &bin).await?;
    let began = host.clock.monotonic();
    let mut said = String::new();
    loop {
        let now = processes(host, &bin).await?;
        if let Some(why) = changed_since(&first, &now) {
            return Err(StepError::new(why).hint("journalctl -u unbounded-containerd -u unbounded-kubelet -n 50"));
        }
        let local = local(context).await;
        let seen = context.node.see(&wanted.node, ASK).await;
        let node = judge_node(&wanted.before, &wanted.kubernetes, seen.as_ref().map(Option::as_ref));
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

async fn check_version(host: &Host, bin: &Path, kubernetes: &str) -> Result<(), StepError> {
    let said = run(host, bin.join("kubelet"), &["--version"]).await?;
    let version = said.split_whitespace().next_back().unwrap_or_default().trim_start_matches('v');
    if version == kubernetes {
        return Ok(());
    }
    Err(StepError::new(format!("kubelet is of version {version}, not {kubernetes}"))
        .hint("make the bundle again with the right kubelet"))
}

async fn run(host: &Host, program: PathBuf, args: &[&str]) -> Result<String, StepError> {
    let name = program.display().to_string();
    let command = Command {
        program,
        args: args.iter().map(ToString::to_string).collect(),
        env: BTreeMap::new(),
        stdin: Vec::new(),
        deadline: RUN,
        max_output: 1 << 16,
    };
    let failed = |e| StepError::caused(format!("{name} could not be run"), e);
    let output = host.commands.run(&command).await.map_err(failed)?;
    if output.code == Some(0) {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let last: String = text.lines().next_back().unwrap_or("it said nothing").chars().take(400).collect();
    Err(StepError::new(format!("{name} {} failed: {last}", args.first().unwrap_or(&""))))
}

/// Makes, starts and removes a container with the slot's shim and runc. It runs this agent's program, which needs no
/// libraries, in an empty root on the host's network.
async fn try_container(context: &NodeContext, bin: &Path) -> Result<(), StepError> {
    let host = context.host();
    let installed = agent_binary::installed_path();
    let there = host.fs.stat(&installed).ok().flatten().is_some();
    let program = if there { installed } else { context.start.program.clone() };
    let failed = |e| StepError::caused("the root of a container could not be made", e);
    flexnode_host::durable::ensure_dir(host.fs.as_ref(), Path::new(ROOT), 0o755).map_err(failed)?;
    let ctr = |args: &[&str]| {
        let base = ["--address", CONTAINERD_SOCKET, "--namespace", NAMESPACE];
        let args: Vec<String> = base.iter().chain(args).map(ToString::to_string).collect();
        let (host, program) = (host.clone(), bin.join("ctr"));
        async move { run(&host, program, &args.iter().map(String::as_str).collect::<Vec<_>>()).await }
    };
    let clean = async || {
        // What an earlier, killed try left, and what this one did. Nothing depends on its success.
        for args in
            [&["tasks", "rm", "-f", CONTAINER][..], &["containers", "rm", CONTAINER], &["namespaces", "rm", NAMESPACE]]
        {
            let _ = ctr(args).await;
        }
        let _ = host.cgroups.remove(NAMESPACE);
    };
    clean().await;
    let mount = format!("type=bind,src={},dst=/agent,options=rbind:ro", program.display());
    let runc = bin.join("runc").display().to_string();
    let made = ctr(&[
        "run",
        "--rm",
        "--net-host",
        "--runc-binary",
        &runc,
        "--mount",
        &mount,
        "--rootfs",
        ROOT,
        CONTAINER,
        "/agent",
        "version",
    ])
    .await;
    clean().await;
    made.map(|_| ()).map_err(|e| {
        StepError::caused("the new version cannot run a container", e).hint("journalctl -u unbounded-containerd -n 50")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_status::node::ReadyCondition;

    fn node(status: Option<bool>, message: &str, second: i64) -> NodeView {
        let heartbeat = Some(jiff::Timestamp::from_second(second).unwrap());
        let ready =
            ReadyCondition { status, reason: "Kubelet".into(), message: message.into(), heartbeat, since: None };
        NodeView { ready: Some(ready), kubelet_version: "v1.36.3".into(), ..NodeView::default() }
    }

    #[expect(clippy::needless_pass_by_value, reason = "calls are shorter so")]
    fn judge(before: Option<NodeView>, now: Result<Option<NodeView>, ApiProblem>) -> NodeVerdict {
        let before = before.map_or(Before::Unknown, |view| Before::Seen(Box::new(view)));
        judge_node(&before, "1.36.3", now.as_ref().map(Option::as_ref))
    }

    #[test]
    fn a_node_may_not_become_worse_and_need_not_become_better() {
        let good = |verdict| assert_eq!(verdict, NodeVerdict::Good);
        let not_yet = |verdict: NodeVerdict| assert!(matches!(verdict, NodeVerdict::NotYet(_)), "{verdict:?}");
        let (ready, sick) = (|s| node(Some(true), "", s), |s| node(Some(false), "PLEG is not healthy", s));
        good(judge(Some(ready(1)), Ok(Some(ready(2)))));
        good(judge(Some(sick(1)), Ok(Some(ready(2)))));
        good(judge(Some(sick(1)), Ok(Some(sick(2)))));
        good(judge(None, Ok(Some(ready(2)))));
        not_yet(judge(Some(ready(1)), Ok(Some(ready(1)))));
        not_yet(judge(Some(ready(1)), Ok(Some(sick(2)))));
        not_yet(judge(Some(sick(1)), Ok(Some(node(Some(false), "other", 2)))));
        not_yet(judge(None, Ok(Some(sick(2)))));
        not_yet(judge(Some(ready(1)), Ok(None)));
        let other = NodeView { kubelet_version: "v1.36.2".into(), ..ready(2) };
        not_yet(judge(Some(ready(1)), Ok(Some(other))));
    }

    #[test]
    fn trouble_of_the_api_server_is_no_verdict_on_the_node() {
        let ready = || Some(node(Some(true), "", 1));
        let silent = |verdict: NodeVerdict| assert!(matches!(verdict, NodeVerdict::Silent(_)), "{verdict:?}");
        for status in [429, 500, 503] {
            silent(judge(ready(), Err(ApiProblem::NotWell { status, message: String::new() })));
        }
        silent(judge(ready(), Err(ApiProblem::Connection("refused".into()))));
        silent(judge(None, Err(ApiProblem::Unauthorized)));
        silent(judge(None, Ok(None)));
        assert!(matches!(judge(ready(), Err(ApiProblem::Unauthorized)), NodeVerdict::NotYet(_)));
    }

    #[test]
    fn the_end_of_the_wait_is_decided_by_time_and_both_witnesses() {
        let seconds = Duration::from_secs;
        let at = |s, local: Result<(), &str>, node| decide(seconds(30), seconds(s), local.map_err(str::to_owned), node);
        let (silent, not_yet) = (|| NodeVerdict::Silent("away".into()), || NodeVerdict::NotYet("not reported".into()));
        let waits = |progress: Progress| assert!(matches!(progress, Progress::Waits(_)), "{progress:?}");
        waits(at(0, Ok(()), NodeVerdict::Good));
        waits(at(29, Ok(()), NodeVerdict::Good));
        assert_eq!(at(30, Ok(()), NodeVerdict::Good), Progress::Ready);
        waits(at(59, Ok(()), silent()));
        assert_eq!(at(60, Ok(()), silent()), Progress::Ready);
        waits(at(179, Ok(()), not_yet()));
        assert_eq!(at(180, Ok(()), not_yet()), Progress::Failed("not reported".into()));
        waits(at(60, Err("no healthz"), NodeVerdict::Good));
        assert_eq!(at(180, Err("no healthz"), silent()), Progress::Failed("no healthz".into()));
    }

    #[test]
    fn a_process_that_was_replaced_is_seen() {
        let of = |pid, restarts| vec![("a".to_owned(), 7, 0), ("b".to_owned(), pid, restarts)];
        assert_eq!(changed_since(&of(8, 0), &of(8, 0)), None);
        assert!(changed_since(&of(8, 0), &of(9, 0)).unwrap().contains("did not stay up"));
        assert!(changed_since(&of(8, 0), &of(8, 1)).is_some());
        assert!(changed_since(&of(8, 0), &of(0, 0)).unwrap().contains("does not run"));
    }
}

//! The steps of a reset, in order.

use super::apply::{apply, apply_all, chain};
use super::evidence::{self, EVIDENCE_PATH, Evidence};
use super::facts::{self, Facts};
use super::plan::{Kept, Plan, Removal, Stage, plan};
use super::{Left, ResetContext, cluster, places, traces};
use crate::host_setup::swap;
use crate::record::RecordStore;
use crate::service;
use flexnode_host::cri::{self, SandboxEnd, end_all_sandboxes};
use flexnode_host::durable::{self, Change};
use flexnode_host::{FileKind, FsError, HostError, poll};
use flexnode_isolation::none::{Backend, DEFAULT_BASE, UNIT_CONTAINERD, UNIT_KUBELET};
use flexnode_model::record::HostRecord;
use flexnode_ops::{Operation, Outcome, Recovery, Step, StepContext, StepError};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The operation's name in journal and fail points.
pub const KIND: &str = "reset";

/// Looking, and small changes to files.
const SHORT: Duration = Duration::from_mins(1);
/// The service ends at its next boundary.
const SERVICE: Duration = Duration::from_mins(12);
/// kubelet ends in a second; systemd kills it after 90.
const KUBELET: Duration = Duration::from_mins(2);
/// For containerd to answer, when it has to be started.
const RUNTIME: Duration = Duration::from_secs(20);
/// For all sandboxes together. What remains is killed later.
const SANDBOXES: Duration = Duration::from_secs(40);
/// Trees of many gigabytes.
const LONG: Duration = Duration::from_mins(15);
/// Added to the deadline of a step that must tell its end rather than be cut off.
const SLACK: Duration = Duration::from_secs(10);

/// The whole operation. Run it so that it takes the place of whatever has not ended and the journal goes with it.
pub fn operation(cx: &ResetContext) -> Operation {
    let mut steps =
        vec![
            step(cx, "stop-agent", "stop and remove the agent's service", SERVICE, |cx, _| async move {
                stop_agent(&cx).await
            }),
            step(cx, "stop-kubelet", "stop kubelet", KUBELET, |cx, _| async move { stop_kubelet(&cx).await })
                .takes_down(),
            step(cx, "remove-credentials", "remove kubelet's and the agent's credentials", SHORT, |cx, _| async move {
                Ok(remove_credentials(&cx))
            }),
            step(cx, "remove-pods", "end and remove the pods", SANDBOXES + RUNTIME * 3, |cx, note| async move {
                remove_pods(&cx, &note).await
            }),
        ];
    let backend = Backend::new_default(cx.host.clone(), tracing::Span::none());
    for inner in backend.destroy_steps() {
        let removes_units = inner.name == "remove-units";
        steps.push(embedded(cx, inner));
        if removes_units {
            // Behind the backend's own reload, which mostly did for all.
            steps.push(step(cx, "forget-units", "let systemd forget the units", SHORT, |cx, _| async move {
                let change = collect(&cx, "let systemd forget the units", service::forget(&cx.host).await);
                Ok(outcome(change.unwrap_or(Change::None), ""))
            }));
        }
    }
    for (name, title, stage) in [
        ("unmount", "unmount what pods and containerd mounted", Stage::Mounts),
        ("remove-network", "remove links, namespaces and packet filter chains", Stage::Network),
        ("remove-trees", "remove the node's directories", Stage::Trees),
        ("restore-settings", "put the host's settings back", Stage::Settings),
    ] {
        steps.push(step(cx, name, title, LONG, move |cx, note| async move { run_stage(&cx, stage, &note).await }));
    }
    if let Some(nodes) = &cx.nodes {
        let nodes = nodes.clone();
        steps.push(step(cx, "delete-node", "delete the Node from the cluster", SHORT, move |cx, _| {
            let nodes = nodes.clone();
            async move { Ok(delete_node(&cx, nodes.as_ref()).await) }
        }));
    }
    steps.push(step(cx, "check", "look that nothing is left", SHORT, |cx, _| async move { check(&cx).await }));
    steps.push(step(cx, "remove-record", "remove the record", SHORT, |cx, _| async move { remove_record(&cx) }));
    // The engine carries the goal in the journal; what a reset works for is what the person chose.
    Operation { kind: KIND, goal: cx.options.to_record(), from: None, to: None, steps, recovery: Recovery::Resume }
}

fn step<F, Fut>(cx: &ResetContext, name: &'static str, title: &str, deadline: Duration, run: F) -> Step
where
    F: Fn(ResetContext, StepContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, StepError>> + Send + 'static,
{
    let cx = cx.clone();
    Step::new(name, title, deadline, move |note| run(cx.clone(), note))
}

/// A step of the backend whose failure is kept for the end.
fn embedded(cx: &ResetContext, inner: Step) -> Step {
    let (cx, deadline) = (cx.clone(), inner.deadline);
    Step::new(inner.name, inner.title.clone(), deadline + SLACK, move |note| {
        let (cx, inner) = (cx.clone(), inner.clone());
        async move {
            let why = match tokio::time::timeout(deadline, inner.run(note)).await {
                Ok(Ok(outcome)) => return Ok(outcome),
                Ok(Err(e)) => chain(&e),
                Err(_) => format!("it did not end within {} s", deadline.as_secs()),
            };
            cx.shared().failed.push(Left { what: inner.title.clone(), why });
            Ok(Outcome::Unchanged)
        }
    })
}

fn outcome(change: Change, text: impl Into<String>) -> Outcome {
    if change.made() { Outcome::Changed(text.into()) } else { Outcome::Unchanged }
}

/// Keeps an error for the end; the change that was made, otherwise.
fn collect<T>(cx: &ResetContext, what: &str, result: Result<T, impl std::error::Error>) -> Option<T> {
    result.map_err(|e| cx.shared().failed.push(Left { what: what.to_owned(), why: chain(&e) })).ok()
}

async fn stop_agent(cx: &ResetContext) -> Result<Outcome, StepError> {
    let change = collect(cx, "remove the agent's service", service::uninstall(&cx.host, !cx.is_daemon).await);
    Ok(outcome(change.unwrap_or(Change::None), ""))
}

/// Stops it and takes it from the next boot. The unit's file goes later, with the others.
async fn stop_kubelet(cx: &ResetContext) -> Result<Outcome, StepError> {
    let systemd = cx.host.systemd.as_ref();
    let state = match systemd.unit(UNIT_KUBELET).await {
        Ok(state) => state,
        Err(e) => {
            collect::<()>(cx, "look at kubelet", Err(e));
            return Ok(Outcome::Unchanged);
        }
    };
    let runs = state.main_pid != 0 || state.is_active() || state.active == "activating";
    if runs {
        collect(cx, "stop kubelet", systemd.stop(UNIT_KUBELET, KUBELET.saturating_sub(SLACK)).await);
    }
    if state.enabled == "enabled" {
        collect(cx, "disable kubelet", systemd.disable(UNIT_KUBELET).await);
    }
    Ok(if runs { Outcome::Changed(String::new()) } else { Outcome::Unchanged })
}

/// They must not survive, whatever else fails: another cluster would find them.
fn remove_credentials(cx: &ResetContext) -> Outcome {
    let mut change = Change::None;
    for path in places::CREDENTIALS.iter().map(Path::new) {
        let removed = real(cx, path).and_then(|path| match path {
            Some(path) => durable::remove_tree(cx.host.fs.as_ref(), &path),
            None => Ok(Change::None),
        });
        // What stays is found again at the end, with this reason.
        match removed {
            Ok(made) => change = change.or(made),
            Err(e) => cx.shared().reasons.push(Left { what: path.display().to_string(), why: chain(&e) }),
        }
    }
    outcome(change, "")
}

/// Late, so that no kubelet registers it again. When it does not work it counts as left, and the record with the Node's name
/// stays for the next run.
async fn delete_node(cx: &ResetContext, nodes: &dyn cluster::Nodes) -> Outcome {
    let Some(name) = record(cx).and_then(|record| record.node_name) else {
        let note =
            "nothing tells the Node's name, so it was not deleted: kubectl get nodes, then kubectl delete node NAME";
        cx.shared().report.notes.push(note.into());
        return Outcome::Unchanged;
    };
    match cluster::delete(nodes, cx.host.fs.as_ref(), &name).await {
        Ok(deleted) => {
            cx.shared().report.node_deleted = true;
            if deleted { Outcome::Changed(name) } else { Outcome::Unchanged }
        }
        Err(e) => {
            cx.shared().failed.push(Left { what: format!("the Node {name} in the cluster"), why: chain(&e) });
            Outcome::Unchanged
        }
    }
}

/// The path with its directory's link resolved; `None` when the directory is not there.
fn real(cx: &ResetContext, path: &Path) -> Result<Option<PathBuf>, FsError> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    let fs = cx.host.fs.as_ref();
    match fs.stat(dir)? {
        Some(stat) if stat.kind == FileKind::Dir => Ok(Some(fs.canonicalize(dir)?.join(name))),
        _ => Ok(None),
    }
}

/// Through the runtime, so that networks, mounts and snapshots go with the sandboxes. containerd is started for it when
/// there are sandboxes and it does not run. What it cannot do is killed and removed by later steps.
async fn remove_pods(cx: &ResetContext, note: &StepContext) -> Result<Outcome, StepError> {
    let fs = cx.host.fs.as_ref();
    let Some(found) = collect(cx, "look for the pods' network", evidence::gather(fs, [])) else {
        return Ok(Outcome::Unchanged);
    };
    if let Err(why) = runtime(cx, &found, note).await {
        if !found.sandboxes.is_empty() {
            cx.shared().report.notes.push(format!("the pods were not removed through containerd: {why}"));
        }
        return Ok(Outcome::Unchanged);
    }
    let sandboxes = match cx.cri.list_sandboxes(cri::READ_DEADLINE).await {
        Ok(sandboxes) => sandboxes,
        Err(e) => {
            cx.shared().report.notes.push(format!("containerd did not list the pods: {}", chain(&e)));
            return Ok(Outcome::Unchanged);
        }
    };
    collect(cx, "look for the pods' network", evidence::gather(fs, sandboxes.into_iter().map(|sandbox| sandbox.id)));
    match end_all_sandboxes(cx.cri.as_ref(), SandboxEnd::StopAndRemove, SANDBOXES).await {
        Ok(report) => {
            for remaining in &report.remaining {
                let text = format!("the pod {} did not end by itself: {}", remaining.sandbox.pod(), remaining.reason);
                cx.shared().report.notes.push(text);
            }
            let ended = report.ended.len();
            Ok(if ended == 0 { Outcome::Unchanged } else { Outcome::Changed(format!("{ended} pods")) })
        }
        Err(e) => {
            cx.shared().report.notes.push(format!("containerd did not remove the pods: {}", chain(&e)));
            Ok(Outcome::Unchanged)
        }
    }
}

/// Sees that containerd answers, or says why not.
async fn runtime(cx: &ResetContext, found: &Evidence, note: &StepContext) -> Result<(), String> {
    let systemd = cx.host.systemd.as_ref();
    let state = systemd.unit(UNIT_CONTAINERD).await.map_err(|e| chain(&e))?;
    if state.is_active() {
        return Ok(());
    }
    if found.sandboxes.is_empty() || !state.is_loaded() {
        return Err("it does not run".into());
    }
    note.note("starting containerd to remove the pods");
    systemd.start(UNIT_CONTAINERD, RUNTIME).await.map_err(|e| chain(&e))?;
    let every = Duration::from_millis(50);
    let answered = poll(cx.host.clock.as_ref(), every, RUNTIME, || async {
        Ok::<_, HostError>(cx.cri.version(cri::READ_DEADLINE).await.ok())
    });
    match answered.await {
        Ok(Some(_)) => Ok(()),
        _ => Err("it was started and did not answer".into()),
    }
}

/// The record, when it can be read. Reset goes on without it.
fn record(cx: &ResetContext) -> Option<HostRecord> {
    match RecordStore::new(cx.host.fs.clone()).load() {
        Ok(record) => record,
        Err(e) => {
            let note = format!("reset goes on without the record: {}", chain(&e));
            let mut shared = cx.shared();
            if !shared.report.notes.contains(&note) {
                shared.report.notes.push(note);
            }
            None
        }
    }
}

async fn look(cx: &ResetContext, network: bool) -> Result<(Facts, Plan), StepError> {
    let evidence = evidence::load(cx.host.fs.as_ref());
    let facts = facts::observe(&cx.host, cx.options, record(cx), evidence, network)
        .await
        .map_err(|e| StepError::caused("the host cannot be looked at", e))?;
    let plan = plan(&facts);
    Ok((facts, plan))
}

async fn run_stage(cx: &ResetContext, stage: Stage, note: &StepContext) -> Result<Outcome, StepError> {
    let (_, plan) = match look(cx, stage == Stage::Network).await {
        Ok(looked) => looked,
        Err(e) => {
            collect::<()>(cx, "look at the host", Err(e));
            return Ok(Outcome::Unchanged);
        }
    };
    let end = cx.host.clock.monotonic() + LONG.saturating_sub(SHORT);
    let (mut done, mut change, mut reload) = (0_usize, Change::None, false);
    let mut removals = plan.of(stage).peekable();
    while let Some(removal) = removals.next() {
        if cx.host.clock.monotonic() > end {
            let why = "there was no time left for it".to_owned();
            cx.shared().reasons.push(Left { what: removal.to_string(), why });
            continue;
        }
        note.note(&removal.to_string());
        // What follows each other in the packet filter goes in one change.
        let mut together = vec![removal];
        if Plan::filter(removal).is_some() {
            together.extend(std::iter::from_fn(|| removals.next_if(|next| Plan::filter(next).is_some())));
        }
        let answers = match together.as_slice() {
            [one] => vec![apply(&cx.host, one).await],
            several => apply_all(&cx.host, several).await,
        };
        for (removal, answer) in together.into_iter().zip(answers) {
            match answer {
                Ok(made) => {
                    change = change.or(made);
                    done += usize::from(made.made());
                    reload |= made.made() && needs_reload(removal);
                }
                Err(e) => cx.shared().reasons.push(Left { what: removal.to_string(), why: chain(&e) }),
            }
        }
    }
    if stage == Stage::Network && done > 0 {
        change = change.or(remove_idle_tables(cx).await);
    }
    if stage == Stage::Network {
        // Told now: at the end it is only looked for again when something had to go.
        let of_network = |kept: &Kept| !kept.what.starts_with('/') && !kept.what.starts_with("the kernel");
        let mut shared = cx.shared();
        shared.network = plan.of(stage).next().is_some();
        shared.report.kept = plan.kept.iter().filter(|kept| of_network(kept)).cloned().collect();
    }
    if reload {
        collect(cx, "reload systemd", cx.host.systemd.reload().await);
    }
    Ok(outcome(change, format!("{done} things")))
}

/// Whether systemd reads what was put back: it makes units of /etc/fstab, and keeps links of units in memory.
fn needs_reload(removal: &Removal) -> bool {
    match removal {
        Removal::Unmask(_) | Removal::Enable(_) => true,
        Removal::Restore(path, _) => path == Path::new(swap::FSTAB),
        _ => false,
    }
}

/// Tables are seen to be empty only when the chains are gone. One that stays is found at the end.
async fn remove_idle_tables(cx: &ResetContext) -> Change {
    let existed = record(cx).and_then(|record| record.existed).and_then(|existed| existed.tables);
    let (Some(known), Ok(tables)) = (existed, cx.host.network.tables().await) else { return Change::None };
    let new = tables.into_iter().filter(|table| table.idle && !known.contains(&table.name));
    let removals: Vec<Removal> = new.map(|table| Removal::Table(table.name)).collect();
    let mut change = Change::None;
    for (removal, answer) in removals.iter().zip(apply_all(&cx.host, &removals.iter().collect::<Vec<_>>()).await) {
        match answer {
            Ok(made) => change = change.or(made),
            Err(e) => cx.shared().reasons.push(Left { what: removal.to_string(), why: chain(&e) }),
        }
    }
    change
}

/// Whatever would be removed now is left.
async fn check(cx: &ResetContext) -> Result<Outcome, StepError> {
    let network = cx.shared().network;
    let (facts, plan) = look(cx, network).await?;
    tell(cx, facts, plan)
}

/// The operation for a host that has nothing of a node: it looks, tells what stays, and touches nothing, not even the
/// journal. `None` where there is anything to remove or put back, or where that cannot be told.
pub async fn of_clean_host(cx: &ResetContext) -> Option<Operation> {
    if !traces::none(&cx.host).await.unwrap_or(false) {
        return None;
    }
    let (facts, plan) = look(cx, true).await.ok()?;
    if !plan.removals.is_empty() {
        return None;
    }
    let looked = Arc::new((facts, plan));
    let check = step(cx, "check", "look that nothing of a node is here", SHORT, move |cx, _| {
        let looked = looked.clone();
        async move {
            let (facts, plan) = (*looked).clone();
            tell(&cx, facts, plan)
        }
    });
    let steps = vec![check.read_only()];
    Some(Operation {
        kind: KIND,
        goal: cx.options.to_record(),
        from: None,
        to: None,
        steps,
        recovery: Recovery::Resume,
    })
}

fn tell(cx: &ResetContext, facts: Facts, plan: Plan) -> Result<Outcome, StepError> {
    let base =
        cx.host.fs.lstat(Path::new(DEFAULT_BASE)).map_err(|e| StepError::caused("the host cannot be looked at", e))?;
    let mut shared = cx.shared();
    let mut left: Vec<Left> = plan
        .removals
        .iter()
        .map(|removal| {
            let what = removal.to_string();
            let known = shared.reasons.iter().rev().find(|reason| reason.what == what);
            let why = known.map_or_else(|| "it is there again".to_owned(), |reason| reason.why.clone());
            Left { what, why }
        })
        .collect();
    if base.is_some() {
        left.push(Left { what: DEFAULT_BASE.into(), why: "it could not be removed".into() });
    }
    left.extend(std::mem::take(&mut shared.failed));
    for kept in plan.kept {
        if !shared.report.kept.contains(&kept) {
            shared.report.kept.push(kept);
        }
    }
    keep_config(&facts, &mut shared.report.kept);
    shared.report.node_name = facts.record.and_then(|record| record.node_name);
    shared.report.left.clone_from(&left);
    if left.is_empty() {
        return Ok(Outcome::Unchanged);
    }
    let lines: Vec<String> = left.iter().map(|left| format!("\n  - {}: {}", left.what, left.why)).collect();
    Err(StepError::new(format!("{} things are left:{}", left.len(), lines.concat()))
        .hint("mend what is named, then run `aks-flex-node reset` again: it goes on where it can"))
}

fn keep_config(facts: &Facts, kept: &mut Vec<Kept>) {
    let dir = Path::new("/etc/aks-flex-node");
    let Some(place) = facts.places.get(dir) else { return };
    for entry in &place.entries {
        kept.push(Kept::new(dir.join(&entry.name).display().to_string(), "it is yours"));
    }
}

fn remove_record(cx: &ResetContext) -> Result<Outcome, StepError> {
    let fs = cx.host.fs.as_ref();
    let failed = |e: FsError| StepError::caused("the record cannot be removed", e);
    let evidence = durable::remove_file(fs, Path::new(EVIDENCE_PATH)).map_err(failed)?;
    let record = RecordStore::new(cx.host.fs.clone())
        .remove()
        .map_err(|e| StepError::caused("the record cannot be removed", e))?;
    Ok(outcome(evidence.or(record), ""))
}

//! The steps of an upgrade: those that prepare while the old version runs, and the backend's upgrade with what the agent
//! plugs into it.

use super::saved;
use crate::operations::ready::{self, Before, Wanted};
use crate::operations::state_files::{self, Kept};
use crate::operations::{NodeContext, SHORT, evidence, slots};
use crate::start::{Prepared, steps};
use crate::state::StateStore;
use flexnode_isolation::NodeSpec;
use flexnode_isolation::none::{Backend, Hook, UNIT_CONTAINERD, UpgradeRequest};
use flexnode_model::MachineGoal;
use flexnode_model::journal::{Answer, Phase};
use flexnode_ops::{JournalRecord, Mode, Operation, Outcome, Recovery, Step, StepContext, StepError};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Copying databases of hundreds of megabytes on a slow disk.
const COPY: Duration = Duration::from_mins(5);
/// The steps of the agent's own before the stop, besides those that prepare a version.
const BEFORE_STOP: [&str; 6] =
    ["check-programs", "check-containerd-config", "node-files", "import-images", "forget-kept", "look-at-node"];
/// The import of images behind the start of the new containerd.
const IMPORT_MISSING: &str = "import-missing-images";
/// The backend's steps that prepare a version.
const PREPARES: [&str; 4] = ["check-version", "create-version", "install", "seal-version"];

/// The whole upgrade.
pub(super) fn operation(
    context: &NodeContext,
    prepared: &Arc<Prepared>,
    from: &str,
    applied: &MachineGoal,
    rollback: bool,
) -> Operation {
    let parts = context.start.parts(prepared, context.layout());
    let change = Change {
        from: from.to_owned(),
        to: prepared.slot.to_string(),
        goal: prepared.fingerprint.clone(),
        old: Some(applied.clone()),
        new: Some(prepared.goal.clone()),
        before: Arc::new(Mutex::new(Before::Unknown)),
    };
    let mut whole = core(context, &change, rollback);
    if change.from == change.to {
        return whole;
    }
    let mut backend = context.backend();
    backend.install = parts.backend().install;
    let spec = NodeSpec { slot: change.to.clone(), goal: prepared.fingerprint.clone(), ..NodeSpec::default() };
    let started = steps::operation(&parts, true).steps;
    let of_start = |name: &str| started.iter().find(|step| step.name == name).cloned();
    let mut first = backend.prepare_version_steps(&spec);
    first.extend(of_start("check-programs"));
    first.extend(of_start("check-containerd-config"));
    first.extend(of_start("node-files"));
    if let Some(import) = of_start("import-images") {
        first.push(while_containerd_runs(context, &import));
        // A node that was stopped, or an image that was collected in between.
        let deadline = import.deadline;
        let again = Step::new(IMPORT_MISSING, "import what the runtime lacks", deadline, move |cx| import.run(cx));
        if let Some(at) = whole.steps.iter().position(|step| step.name == "start-kubelet") {
            whole.steps.insert(at, again);
        }
    }
    let fs = context.host().fs.clone();
    first.push(Step::new("forget-kept", "make room for the state files of the old version", SHORT, move |_| {
        let fs = fs.clone();
        async move {
            state_files::forget(fs.as_ref())
                .map_err(|e| StepError::caused("what an earlier upgrade kept could not be removed", e))?;
            state_files::check_room(fs.as_ref()).map_err(|e| {
                StepError::caused("the state files of the old version could not be kept", e)
                    .hint("free space there, then run it again")
            })?;
            Ok(Outcome::Unchanged)
        }
    }));
    first.push(look_at_node(context, &prepared.goal.node_name, &change.before));
    whole.prepend(first)
}

/// Reads the Node right before the stop.
pub(in crate::operations) fn look_at_node(context: &NodeContext, node: &str, before: &Arc<Mutex<Before>>) -> Step {
    let (context, node, before) = (context.clone(), node.to_owned(), before.clone());
    Step::new("look-at-node", "see how the Node is before the stop", SHORT, move |_| {
        let (context, node, before) = (context.clone(), node.clone(), before.clone());
        async move {
            let seen = ready::before(&context, &node).await;
            *before.lock().unwrap_or_else(PoisonError::into_inner) = seen;
            Ok(Outcome::Unchanged)
        }
    })
    .read_only()
}

fn while_containerd_runs(context: &NodeContext, import: &Step) -> Step {
    let (systemd, inner) = (context.host().systemd.clone(), import.clone());
    Step::new(import.name, import.title.clone(), import.deadline, move |cx| {
        let (systemd, inner) = (systemd.clone(), inner.clone());
        async move {
            match systemd.unit(UNIT_CONTAINERD).await {
                Ok(state) if !state.is_active() => Ok(Outcome::Unchanged),
                _ => inner.run(cx).await,
            }
        }
    })
}

/// From one version to another, with what is known of both.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) from: String,
    pub(super) to: String,
    /// Fingerprint of what is gone to.
    pub(super) goal: String,
    pub(super) old: Option<MachineGoal>,
    pub(super) new: Option<MachineGoal>,
    before: Arc<Mutex<Before>>,
}

impl Change {
    /// An interrupted one, from its record and what the slots say.
    fn of_record(context: &NodeContext, from: &str, to: &str, goal: &str) -> Self {
        Self {
            from: from.to_owned(),
            to: to.to_owned(),
            goal: goal.to_owned(),
            old: context.goal_of(from).ok(),
            new: context.goal_of(to).ok(),
            before: Arc::new(Mutex::new(Before::Unknown)),
        }
    }
}

/// The backend's upgrade with what the agent plugs in, from its check of both versions on.
fn core(context: &NodeContext, change: &Change, rollback: bool) -> Operation {
    let backend = plugged(context, change);
    let switches = change.from != change.to;
    let wait_ready = if switches { wait_hook(context, change, true) } else { Hook::default() };
    let request = UpgradeRequest {
        from: change.from.clone(),
        to: change.to.clone(),
        goal: change.goal.clone(),
        wait_ready,
        rollback,
    };
    let mut whole = backend.upgrade_operation(&request);
    whole.steps.push(saved::new(context, change));
    if switches {
        whole.steps.push(slots::prune_step(context));
    }
    if let Recovery::RollBack { steps, .. } = &mut whole.recovery {
        for step in steps.iter_mut().filter(|step| step.name == "start-containerd") {
            *step = or_on_old_databases(context, &backend, change, step);
        }
        let (look, keep) = evidence::steps(context, &change.to);
        steps.insert(0, look);
        steps.push(keep);
        steps.push(saved::old(context, change));
        let hook = wait_hook(context, change, false);
        let deadline = hook.deadline();
        steps.push(Step::new("wait-ready", "wait until the old version is ready", deadline, move |cx| {
            let hook = hook.clone();
            async move { hook.call(cx).await }
        }));
    }
    whole
}

fn plugged(context: &NodeContext, change: &Change) -> Backend {
    let mut backend = context.backend();
    backend.before_upgrade_start = hook(context, change, COPY, |context, change, _| async move {
        let fs = context.host().fs.clone();
        let state = StateStore::new(fs.clone()).load().ok().flatten();
        let work = move || {
            let failed = |e| StepError::caused("the state files of the old version could not be kept", e);
            state_files::keep(fs.as_ref(), &change.from, &change.to, state).map_err(failed)?;
            if let (Some(old), Some(new)) = (&change.old, &change.new) {
                state_files::remove_stale(fs.as_ref(), state_files::stale(old, new))
                    .map_err(|e| StepError::caused("kubelet's state files could not be removed", e))?;
            }
            Ok(Outcome::Changed("state files of kubelet and containerd kept".into()))
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| Err(StepError::caused("the copying was ended", e)))
    });
    backend.before_rollback_start = hook(context, change, COPY, |context, change, _| async move {
        let fs = context.host().fs.as_ref();
        let failed = |e| StepError::caused("kubelet's state files could not be put back", e);
        let restored = match kept_for(&context, &change).map_err(failed)? {
            Some(kept) => state_files::restore_kubelet(fs, kept).map_err(failed)?.made(),
            None => false,
        };
        Ok(if restored { Outcome::Changed("kubelet's state files".into()) } else { Outcome::Unchanged })
    });
    backend
}

pub(super) fn kept_for(context: &NodeContext, change: &Change) -> Result<Option<Kept>, state_files::KeepError> {
    let kept = state_files::load(context.host().fs.as_ref())?;
    Ok(kept.filter(|kept| kept.from == change.from && kept.to == change.to))
}

fn hook<F, Fut>(context: &NodeContext, change: &Change, deadline: Duration, run: F) -> Hook
where
    F: Fn(NodeContext, Change, StepContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, StepError>> + Send + 'static,
{
    let (context, change) = (context.clone(), change.clone());
    Hook::new(deadline, move |cx| run(context.clone(), change.clone(), cx))
}

/// Readiness of the new version, or of the old one after the way back.
fn wait_hook(context: &NodeContext, change: &Change, new: bool) -> Hook {
    hook(context, change, ready::DEADLINE, move |context, change, cx| async move {
        let (slot, goal) = if new { (&change.to, &change.new) } else { (&change.from, &change.old) };
        let known = goal.clone().or_else(|| context.goal_of(slot).ok());
        let Some(known) = known else { return Ok(Outcome::Unchanged) };
        let mut wanted = Wanted::of(slot, &known, &change.before);
        if !new {
            // It had come up with what it found then.
            wanted.sandbox_image = None;
        }
        ready::wait(&context, &wanted, &cx).await?;
        Ok(Outcome::Unchanged)
    })
}

/// Starts containerd on the way back; when it does not come up on what the other version left, once more on the databases
/// that were kept.
fn or_on_old_databases(context: &NodeContext, backend: &Backend, change: &Change, start: &Step) -> Step {
    let (context, change, inner, backend) = (context.clone(), change.clone(), start.clone(), backend.clone());
    let deadline = start.deadline * 2 + COPY;
    Step::new(start.name, start.title.clone(), deadline, move |cx| {
        let (context, change, inner, backend) = (context.clone(), change.clone(), inner.clone(), backend.clone());
        async move {
            let error = match inner.run(cx.clone()).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            let at_home = backend.current().ok().flatten().as_ref() == Some(&change.from);
            let Some(kept) = kept_for(&context, &change).ok().flatten().filter(|_| at_home) else { return Err(error) };
            cx.note("containerd does not come up on what the other version left; its databases are put back");
            let stopped = context.host().systemd.stop(UNIT_CONTAINERD, SHORT).await;
            stopped.map_err(|e| StepError::caused("containerd could not be stopped", e))?;
            state_files::restore_containerd(context.host().fs.as_ref(), &kept)
                .map_err(|e| StepError::caused("containerd's databases could not be put back", e))?;
            inner.run(cx).await?;
            Ok(Outcome::Changed("started on the databases from before the upgrade".into()))
        }
    })
}

/// The operation of an interrupted record, and how it is taken up.
///
/// Where the new version was only not confirmed, it is watched, and confirmed or rolled back. That is tried once: when it
/// is interrupted too, the old version is returned to. Whoever went without a way back only goes on.
pub(in crate::operations) fn recovery(
    context: &NodeContext,
    record: &JournalRecord,
    (from, to): (&str, &str),
) -> (Operation, Mode) {
    let rollback = record.answer != Some(Answer::Forward);
    let whole = core(context, &Change::of_record(context, from, to, &record.goal), rollback);
    if from == to {
        return (whole, Mode::default());
    }
    let turned = context.backend().current().ok().flatten().as_deref() == Some(to);
    // Behind the record of what is applied it was confirmed.
    let confirmed = place(&whole, &record.step) > place(&whole, "save-state");
    let may_go_on = record.phase == Phase::Running && (record.attempt == 1 || !rollback || confirmed);
    if turned && may_go_on && only_starts(&whole, &record.step) {
        return (going_on(whole), Mode { forward: true, ..Mode::default() });
    }
    // The steps before the stop are there by name: a record that stands at one of them is closed, nothing is done.
    let names = PREPARES.into_iter().chain(BEFORE_STOP);
    let stand = names.map(|name| Step::new(name, name, SHORT, |_| async { Ok(Outcome::Unchanged) }));
    (whole.prepend(stand.collect()), Mode::default())
}

/// Whether all that was left to do at `step` is starting the new version and seeing that it is well.
fn only_starts(whole: &Operation, step: &str) -> bool {
    step == IMPORT_MISSING || place(whole, step) > place(whole, "before-upgrade-start")
}

fn place(whole: &Operation, step: &str) -> Option<usize> {
    whole.steps.iter().position(|known| known.name == step)
}

/// Links and units are put right, what does not run is started, and then it is judged. What was kept of the old version
/// stays as it is.
fn going_on(mut whole: Operation) -> Operation {
    let at = whole.steps.iter().position(|step| step.name == "write-units").unwrap_or(0);
    whole.steps.drain(..at);
    whole.steps.retain(|step| step.name != "before-upgrade-start");
    if let (Recovery::RollBack { since, .. } | Recovery::Forward { since }, Some(first)) =
        (&mut whole.recovery, whole.steps.first())
    {
        *since = first.name;
    }
    whole
}

/// The upgrade of versions that are installed already, from its check on.
#[cfg(test)]
pub(in crate::operations) fn of_installed(context: &NodeContext, from: &str, to: &str, goal: &str) -> Operation {
    core(context, &Change::of_record(context, from, to, goal), true)
}

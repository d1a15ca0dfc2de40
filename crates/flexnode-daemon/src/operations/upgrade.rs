//! Upgrade: from the goal that is applied to another one, and back by itself when the new one does not come up.
//!
//! Everything that can be done while the old version runs is done before the stop. The rest is the backend's upgrade.

use super::error::outcome;
use super::ready::{self, Before, Wanted};
use super::state_files::{self, Kept};
use super::{NodeContext, OperationError, SHORT, change_state, evidence, execute, lock};
use crate::config_file;
use crate::lock::Held;
use crate::record::HostRecorder;
use crate::start::{Parts, Prepared, Source, StartError, host_facts, prepare, steps};
use crate::state::StateStore;
use flexnode_artifacts::{Bundle, Trust, Wanted as WantedArtifacts};
use flexnode_host::Host;
use flexnode_isolation::NodeSpec;
use flexnode_isolation::none::run::kind;
use flexnode_isolation::none::{Backend, Hook, UNIT_CONTAINERD, UpgradeRequest};
use flexnode_model::config::Config;
use flexnode_model::state::FailedGoal;
use flexnode_model::{MachineGoal, State};
use flexnode_ops::{Cancel, Observer, Operation, Outcome, Recovery, RunOutcome, Step, StepContext, StepError, report};
use std::cmp::Ordering;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The reason that is recorded when a person goes back from a goal that had come up.
pub const BY_PERSON: &str = "a person went back from it";
/// Copying databases of hundreds of megabytes on a slow disk.
const COPY: Duration = Duration::from_mins(5);
/// The longest reason that is recorded.
const REASON: usize = 600;

/// The steps of the agent's own before the stop, besides those that prepare a version.
const BEFORE_STOP: [&str; 5] =
    ["check-containerd-config", "node-files", "import-images", "forget-kept", "look-at-node"];
/// The backend's steps that prepare a version.
const PREPARES: [&str; 4] = ["check-version", "create-version", "install", "seal-version"];

/// What is gone to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// What a configuration file says.
    Config(PathBuf),
    /// The applied goal with another Kubernetes version, without `v`. The source is the configuration's.
    Version(String),
}

/// How a person wants it.
#[derive(Clone, Debug)]
pub struct UpgradeOptions {
    /// What is gone to.
    pub target: Target,
    /// What has to be confirmed is.
    pub yes: bool,
    /// A goal that failed is tried again.
    pub retry: bool,
    /// A failure goes back.
    pub rollback: bool,
}

/// What is to be said before an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is run.
    Go,
    /// A person has to say yes to this.
    Confirm(String),
    /// It is not run: why, and what to do.
    Refuse(String, String),
}

/// Decides from what is applied, what is wanted, and what failed before.
pub fn decide(applied: &MachineGoal, goal: &MachineGoal, state: &State, retry: bool) -> Decision {
    let joins = [
        ("the API server", applied.api_server != goal.api_server),
        ("the cluster's CA", applied.ca_pem != goal.ca_pem),
        ("the name of the Node", applied.node_name != goal.node_name),
        ("the isolation", applied.isolation != goal.isolation),
    ];
    if let Some((what, _)) = joins.into_iter().find(|(_, differs)| *differs) {
        let text = format!("{what} is another one than the node has joined with, which no upgrade changes");
        return Decision::Refuse(text, "aks-flex-node reset, then aks-flex-node start".into());
    }
    let fingerprint = goal.fingerprint();
    if fingerprint == applied.fingerprint() {
        return Decision::Go;
    }
    match state.failure_of(&fingerprint) {
        Some(_) if retry => return Decision::Go,
        Some(failed) if failed.reason == BY_PERSON => {
            return Decision::Confirm(format!("a person went back from this goal at {}. Go to it again?", failed.when));
        }
        Some(failed) => {
            let text = format!("this goal failed at {} and is not tried again: {}", failed.when, failed.reason);
            return Decision::Refuse(text, "aks-flex-node upgrade --retry, or change the configuration".into());
        }
        None => {}
    }
    let (old, new) = (&applied.kubernetes_version, &goal.kubernetes_version);
    if compare(new, old) == Ordering::Less {
        return Decision::Confirm(format!("this goes back from Kubernetes {old} to {new}. Go on?"));
    }
    Decision::Go
}

/// Compares versions number by number; a pre-release is older than its release.
fn compare(a: &str, b: &str) -> Ordering {
    let parts = |text: &str| {
        let (numbers, rest) = text.split_once('-').map_or((text, None), |(n, rest)| (n, Some(rest.to_owned())));
        let numbers: Vec<u64> = numbers.split('.').map(|part| part.parse().unwrap_or(0)).collect();
        (numbers, rest)
    };
    let ((a, a_pre), (b, b_pre)) = (parts(a), parts(b));
    a.cmp(&b).then_with(|| match (a_pre, b_pre) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => a.cmp(&b),
    })
}

/// What an upgrade would do.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The version that runs.
    pub from: String,
    /// The goal and all that belongs to it.
    pub prepared: Arc<Prepared>,
    /// Whether it may be run.
    pub decision: Decision,
    /// The steps.
    pub operation: Operation,
}

/// How an upgrade ended well.
#[derive(Clone, Debug)]
pub struct UpgradeReport {
    /// The version before.
    pub from: String,
    /// The version that runs.
    pub to: String,
    /// Whether anything on the host was changed.
    pub changed: bool,
    /// What may not be as meant.
    pub warnings: Vec<String>,
    /// The configuration file does not say what runs now: the lines to edit.
    pub edits: Vec<String>,
}

/// Reads everything and decides. Changes nothing.
pub async fn plan(context: &NodeContext, options: &UpgradeOptions) -> Result<Planned, OperationError> {
    let (state, _) = context.state()?;
    let from = context.backend().current().map_err(flexnode_isolation::Error::from)?;
    let from = from.ok_or(OperationError::NotANode)?;
    let applied = context.goal_of(&from)?;
    let (host, old, target) = (context.host().clone(), applied.clone(), options.target.clone());
    let config = context.start.config.clone();
    let prepared = tokio::task::spawn_blocking(move || match target {
        Target::Config(path) => prepare(&host, &path, Some(&old)),
        Target::Version(version) => prepare_version(&host, &config, &old, &version),
    })
    .await
    .map_err(|e| OperationError::State(Box::new(e)))??;
    let decision = decide(&applied, &prepared.goal, &state, options.retry);
    let prepared = Arc::new(prepared);
    let operation = operation(context, &prepared, &from, &applied, options.rollback);
    Ok(Planned { from, prepared, decision, operation })
}

/// The applied goal with another Kubernetes version.
fn prepare_version(
    host: &Host,
    config_path: &std::path::Path,
    applied: &MachineGoal,
    version: &str,
) -> Result<Prepared, StartError> {
    let bytes = config_file::read(host.fs.as_ref(), config_path)?;
    let facts = host_facts(host).map_err(StartError::Host)?;
    let loaded = Config::load(&bytes, &facts);
    let (config, _, join, _) = loaded.map_err(|source| StartError::Config { path: config_path.into(), source })?;
    let mut goal = applied.clone();
    version.trim_start_matches('v').clone_into(&mut goal.kubernetes_version);
    let bundle = Bundle::open(host.fs.clone(), &join.source, Trust::root()).map_err(StartError::Source)?;
    let wanted = WantedArtifacts {
        kubernetes: goal.kubernetes_version.clone(),
        containerd: goal.containerd_version.clone(),
        runc: goal.runc_version.clone(),
        cni: goal.cni_version.clone(),
        arch: facts.arch,
        allow_unverified: join.allow_unverified.clone(),
    };
    let resolved = bundle.resolve(&wanted).map_err(StartError::Source)?;
    goal = flexnode_stack::resolved_goal(goal, &resolved);
    let (fingerprint, slot) = (goal.fingerprint(), goal.slot().map_err(StartError::Slot)?);
    let (warnings, source) = (resolved.notes.clone(), Some(Source { bundle, resolved }));
    Ok(Prepared { config, goal, join, source, fingerprint, slot, warnings })
}

/// The whole upgrade.
fn operation(
    context: &NodeContext,
    prepared: &Arc<Prepared>,
    from: &str,
    applied: &MachineGoal,
    rollback: bool,
) -> Operation {
    let host = context.host();
    let parts = Parts {
        host: host.clone(),
        cri: context.start.cri.clone(),
        probe: context.start.probe.clone(),
        cluster: context.start.connect.connect(host, &context.start.names, prepared),
        prepared: prepared.clone(),
        config: context.start.config.clone(),
        program: context.start.program.clone(),
        recorder: Arc::new(HostRecorder::new(host, &context.start.config, &prepared.goal.node_name)),
        layout: context.layout(),
    };
    let change = Change {
        from: from.to_owned(),
        to: prepared.slot.to_string(),
        old: Some(applied.clone()),
        new: Some(prepared.goal.clone()),
        before: Arc::new(Mutex::new(Before::Unknown)),
    };
    let mut whole = core(context, &change, &prepared.fingerprint, rollback);
    if change.from == change.to {
        return whole;
    }
    let mut backend = context.backend();
    backend.install = parts.backend().install;
    let spec = NodeSpec {
        slot: change.to.clone(),
        goal: prepared.fingerprint.clone(),
        previous: previous(context),
        ..NodeSpec::default()
    };
    let started = steps::operation(&parts, true).steps;
    let of_start = |name: &str| started.iter().find(|step| step.name == name).cloned();
    let mut first = backend.prepare_version_steps(&spec);
    first.extend(of_start("check-containerd-config"));
    first.extend(of_start("node-files"));
    if let Some(import) = of_start("import-images") {
        first.push(while_containerd_runs(context, &import));
        // A node that was stopped, or an image that was collected in between.
        let deadline = import.deadline;
        let again =
            Step::new("import-missing-images", "import what the runtime lacks", deadline, move |cx| import.run(cx));
        if let Some(at) = whole.steps.iter().position(|step| step.name == "start-kubelet") {
            whole.steps.insert(at, again);
        }
    }
    let fs = host.fs.clone();
    first.push(Step::new("forget-kept", "forget what an earlier upgrade kept", SHORT, move |_| {
        let fs = fs.clone();
        async move {
            state_files::forget(fs.as_ref())
                .map(|_| Outcome::Unchanged)
                .map_err(|e| StepError::caused("what an earlier upgrade kept could not be removed", e))
        }
    }));
    first.push(look_at_node(context, &prepared.goal.node_name, &change.before));
    whole.prepend(first)
}

fn previous(context: &NodeContext) -> Option<String> {
    context.state().ok().and_then(|(_, extension)| extension.previous_slot)
}

/// Reads the Node right before the stop.
pub(super) fn look_at_node(context: &NodeContext, node: &str, before: &Arc<Mutex<Before>>) -> Step {
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
struct Change {
    from: String,
    to: String,
    old: Option<MachineGoal>,
    new: Option<MachineGoal>,
    before: Arc<Mutex<Before>>,
}

impl Change {
    fn wanted(&self, slot: &str, goal: Option<&MachineGoal>) -> Option<Wanted> {
        goal.map(|goal| Wanted {
            slot: slot.to_owned(),
            kubernetes: goal.kubernetes_version.clone(),
            node: goal.node_name.clone(),
            before: self.before.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        })
    }
}

/// The backend's upgrade with what the agent plugs in, from its check of both versions on.
fn core(context: &NodeContext, change: &Change, goal: &str, rollback: bool) -> Operation {
    let backend = plugged(context, change);
    let switches = change.from != change.to;
    let wait_ready = if switches { wait_hook(context, change, true) } else { Hook::default() };
    let request = UpgradeRequest {
        from: change.from.clone(),
        to: change.to.clone(),
        goal: goal.to_owned(),
        wait_ready,
        rollback,
    };
    let mut whole = backend.upgrade_operation(&request);
    whole.steps.push(save_new(context, change));
    if let Recovery::RollBack { steps, .. } = &mut whole.recovery {
        for step in steps.iter_mut().filter(|step| step.name == "start-containerd") {
            *step = or_on_old_databases(context, &backend, change, step);
        }
        steps.insert(0, evidence::step(context, &change.to));
        steps.push(save_old(context, change));
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

fn kept_for(context: &NodeContext, change: &Change) -> Result<Option<Kept>, state_files::KeepError> {
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
        let Some(wanted) = change.wanted(slot, known.as_ref()) else { return Ok(Outcome::Unchanged) };
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

/// Records that the new goal is applied; what was kept of the old one goes.
fn save_new(context: &NodeContext, change: &Change) -> Step {
    let (fs, change) = (context.host().fs.clone(), change.clone());
    Step::new("save-state", "record what is applied", SHORT, move |_| {
        let (fs, change) = (fs.clone(), change.clone());
        async move {
            let Some(goal) = change.new else { return Ok(Outcome::Unchanged) };
            let applied = |state: &State| state.applied(&goal);
            let before = StateStore::new(fs.clone()).load();
            let before = before.map_err(|e| StepError::caused("the state cannot be read", e))?.unwrap_or_default();
            let next = applied(&before).map_err(|e| StepError::caused("the state cannot be recorded", e))?;
            let saved = change_state(&fs, |state| *state = next)?;
            state_files::forget(fs.as_ref())
                .map_err(|e| StepError::caused("what was kept of the old version could not be removed", e))?;
            Ok(saved)
        }
    })
}

/// Records that the old goal is applied, where a failure came after the new one was recorded.
fn save_old(context: &NodeContext, change: &Change) -> Step {
    let (context, change) = (context.clone(), change.clone());
    Step::new("save-state", "record what is applied", SHORT, move |_| {
        let (context, change) = (context.clone(), change.clone());
        async move {
            let kept = kept_for(&context, &change).ok().flatten().and_then(|kept| kept.state);
            let old = context.goal_of(&change.from).ok();
            change_state(&context.host().fs, |state| {
                let active = state.flexnode.as_ref().and_then(|extension| extension.active_slot.clone());
                if active.as_ref() != Some(&change.from) {
                    let by_goal = || old.and_then(|goal| state.applied(&goal).ok());
                    if let Some(before) = kept.or_else(by_goal) {
                        *state = before;
                    }
                }
                // It runs again, whoever stopped it before.
                state.flexnode.get_or_insert_default().stopped_by_person = false;
            })
        }
    })
}

/// The operation of an interrupted record: what is left to do is its way back.
pub(super) fn recovery(context: &NodeContext, from: &str, to: &str, goal: &str) -> Operation {
    let change = Change {
        from: from.to_owned(),
        to: to.to_owned(),
        old: context.goal_of(from).ok(),
        new: context.goal_of(to).ok(),
        before: Arc::new(Mutex::new(Before::Unknown)),
    };
    let whole = core(context, &change, goal, true);
    if from == to {
        return whole;
    }
    // The steps before the stop are there by name: a record that stands at one of them is closed, nothing is done.
    let names = PREPARES.into_iter().chain(BEFORE_STOP);
    whole.prepend(names.map(|name| Step::new(name, name, SHORT, |_| async { Ok(Outcome::Unchanged) })).collect())
}

/// Remembers that a goal failed.
pub(super) fn remember(context: &NodeContext, goal: &str, reason: &str) -> Result<(), StepError> {
    let reason: String = reason.chars().take(REASON).collect();
    let failed = FailedGoal { goal: goal.to_owned(), reason, when: context.host().clock.now() };
    change_state(&context.host().fs, |state| state.remember_failure(failed)).map(|_| ())
}

/// Upgrades.
pub async fn run(
    context: &NodeContext,
    options: &UpgradeOptions,
    observer: Arc<dyn Observer>,
    cancel: Cancel,
) -> Result<UpgradeReport, OperationError> {
    let lock: Box<dyn Held> = lock(context, kind::UPGRADE)?;
    let planned = plan(context, options).await?;
    match planned.decision {
        Decision::Go => {}
        Decision::Confirm(_) if options.yes => {}
        Decision::Confirm(question) => return Err(OperationError::Unconfirmed(question)),
        Decision::Refuse(text, hint) => return Err(OperationError::Refused { text, hint }),
    }
    let report = execute(context, &planned.operation, observer, cancel, lock).await?;
    if let RunOutcome::RolledBack { step, error, .. } = &report.outcome {
        let reason = format!("step {step} failed: {}", report::line(error));
        remember(context, &planned.prepared.fingerprint, &reason)
            .map_err(|source| OperationError::Step { step: "remember-failure".into(), source })?;
    }
    let changed = outcome(report, &planned.from)?;
    let edits = edits(context, &planned.prepared.goal).await;
    let warnings = planned.prepared.warnings.clone();
    Ok(UpgradeReport { from: planned.from, to: planned.prepared.slot.to_string(), changed, warnings, edits })
}

/// What differs between the configuration file and what runs: the settings with the values to write.
async fn edits(context: &NodeContext, applied: &MachineGoal) -> Vec<String> {
    let (host, path, goal) = (context.host().clone(), context.start.config.clone(), applied.clone());
    let work = move || {
        let bytes = config_file::read(host.fs.as_ref(), &path).ok()?;
        let (_, mut told, ..) = Config::load(&bytes, &host_facts(&host).ok()?).ok()?;
        // What the file leaves to the source is no difference.
        told.artifacts.clone_from(&goal.artifacts);
        told.isolation = goal.isolation;
        let keep = |mine: &mut Option<String>, theirs: &Option<String>| {
            if mine.is_none() {
                mine.clone_from(theirs);
            }
        };
        keep(&mut told.containerd_version, &goal.containerd_version);
        keep(&mut told.runc_version, &goal.runc_version);
        keep(&mut told.cni_version, &goal.cni_version);
        Some(told.differences(&goal).iter().map(ToString::to_string).collect())
    };
    tokio::task::spawn_blocking(work).await.ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::tests::goal;

    fn failed(goal: &MachineGoal, reason: &str) -> State {
        let mut state = State::default();
        let when = jiff::Timestamp::UNIX_EPOCH;
        state.remember_failure(FailedGoal { goal: goal.fingerprint(), reason: reason.into(), when });
        state
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for (a, b, order) in [
            ("1.36.2", "1.36.10", Ordering::Less),
            ("1.36.3", "1.36.3", Ordering::Equal),
            ("1.37.0", "1.36.9", Ordering::Greater),
            ("1.37.0-rc.1", "1.37.0", Ordering::Less),
            ("1.37.0-rc.1", "1.36.9", Ordering::Greater),
        ] {
            assert_eq!(compare(a, b), order, "{a} {b}");
            assert_eq!(compare(b, a), order.reverse());
        }
    }

    #[test]
    fn what_has_to_be_confirmed_or_refused_is() {
        let (old, new) = (goal("1.36.2"), goal("1.36.3"));
        let none = State::default();
        let confirms = |decision: Decision| assert!(matches!(decision, Decision::Confirm(_)), "{decision:?}");
        let refuses = |decision: Decision| assert!(matches!(decision, Decision::Refuse(..)), "{decision:?}");
        assert_eq!(decide(&old, &new, &none, false), Decision::Go);
        assert_eq!(decide(&old, &old, &none, false), Decision::Go);
        confirms(decide(&new, &old, &none, false));
        refuses(decide(&old, &new, &failed(&new, "kubelet ended"), false));
        assert_eq!(decide(&old, &new, &failed(&new, "kubelet ended"), true), Decision::Go);
        confirms(decide(&old, &new, &failed(&new, BY_PERSON), false));
        let changed = MachineGoal { node_ips: vec![[10, 0, 0, 9].into()], ..new.clone() };
        assert_eq!(decide(&old, &changed, &failed(&new, "kubelet ended"), false), Decision::Go);
        for other in [
            MachineGoal { api_server: "https://other:443".into(), ..new.clone() },
            MachineGoal { ca_pem: "other".into(), ..new.clone() },
            MachineGoal { node_name: "other".into(), ..new.clone() },
        ] {
            refuses(decide(&old, &other, &none, true));
        }
    }
}

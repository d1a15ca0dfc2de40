//! What every backend must do, written once against the trait.
//!
//! The suite runs on the fake host in this crate's tests and on a real systemd host with real programs. A [`Subject`] is a
//! host with a backend on it; each check leaves it destroyed, so one host serves for all.

use crate::backend::{Backend, ExecRequest, LogRequest, NodeSpec};
use async_trait::async_trait;
use flexnode_host::Host;
use flexnode_host::testing::Tree;
use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;

/// A host with a backend on it.
#[async_trait]
pub trait Subject: Send + Sync {
    /// The backend. What its installer places starts for real.
    fn backend(&self) -> &dyn Backend;
    /// The host, to look at.
    fn host(&self) -> &Host;
    /// What `prepare` is asked for one of two slots.
    fn spec(&self, which: Slot) -> NodeSpec;
    /// The units of the stack in start order.
    fn units(&self) -> Vec<String>;
    /// Trees that are compared: all that the backend writes below, and no more than can be read in a moment.
    fn watched(&self) -> Vec<PathBuf>;
    /// Makes starts of this unit fail, or lets them succeed again.
    async fn break_start(&self, unit: &str, broken: bool);
    /// Paths, below the watched trees, that may stay after `destroy`: empty directories that other programs share.
    fn may_stay(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// One of the two slots that the suite uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The first.
    One,
    /// The second.
    Two,
}

/// How a check ended: what was not as it must be.
pub type Verdict = Result<(), String>;

type Run = for<'a> fn(&'a dyn Subject) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;

/// One thing that every backend must do.
#[derive(Clone, Copy)]
pub struct Check {
    /// Its name, as a sentence.
    pub name: &'static str,
    run: Run,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Check {
    /// Runs it, then destroys what it made.
    pub async fn run(&self, subject: &dyn Subject) -> Verdict {
        let before = look(subject, false);
        let verdict = (self.run)(subject).await;
        let destroyed = subject.backend().destroy(&subject.spec(Slot::One)).await.map_err(|e| chain("destroy", &e));
        verdict.and(destroyed).and_then(|()| {
            let left = left(subject, &before);
            if left.is_empty() { Ok(()) } else { Err(format!("destroy left: {}", left.join(", "))) }
        })
    }
}

macro_rules! checks {
    ($($name:ident),* $(,)?) => {
        /// All checks.
        pub const CHECKS: &[Check] = &[$(Check { name: stringify!($name), run: |subject| Box::pin($name(subject)) }),*];
    };
}

checks!(
    mode_and_requirements_are_stable,
    preflight_changes_nothing,
    prepare_names_its_slot_and_can_be_repeated,
    paths_are_absolute_deterministic_and_apart,
    prepare_does_not_activate,
    activate_returns_what_it_replaced,
    activating_what_is_not_installed_leaves_the_active_slot,
    start_and_stop_reach_their_state_and_can_be_repeated,
    a_unit_that_fails_stops_the_start_and_not_the_stop,
    restart_keeps_the_slot_and_restarts_every_unit,
    exec_returns_output_and_failure,
    logs_are_of_own_units_only,
    destroy_succeeds_from_every_state_and_again,
    an_operation_that_is_dropped_can_be_run_again,
);

fn chain(what: &str, error: &dyn std::error::Error) -> String {
    format!("{what}: {}", flexnode_ops::report::line(error))
}

fn ensure(holds: bool, what: &str) -> Verdict {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

fn look(subject: &dyn Subject, stamps: bool) -> Vec<Tree> {
    let read = |path: &PathBuf| Tree::read(&*subject.host().fs, path, stamps).unwrap_or_default();
    subject.watched().iter().map(read).collect()
}

fn differences(before: &[Tree], after: &[Tree]) -> Vec<String> {
    before.iter().zip(after).flat_map(|(before, after)| before.difference(after)).collect()
}

/// What is there and was not, what may stay apart.
fn left(subject: &dyn Subject, before: &[Tree]) -> Vec<String> {
    let may_stay = subject.may_stay();
    let stays = |line: &String| may_stay.iter().any(|path| line.split(' ').nth(1) == path.to_str());
    differences(before, &look(subject, false)).into_iter().filter(|line| !stays(line)).collect()
}

/// Runs `work`, which must change nothing in the watched trees.
async fn unchanged(subject: &dyn Subject, what: &str, work: impl Future<Output = Verdict>) -> Verdict {
    let before = look(subject, true);
    work.await?;
    let changed = differences(&before, &look(subject, true));
    ensure(changed.is_empty(), &format!("{what} changed {}", changed.join(", ")))
}

async fn prepare(subject: &dyn Subject, which: Slot) -> Verdict {
    subject.backend().prepare(&subject.spec(which)).await.map(|_| ()).map_err(|e| chain("prepare", &e))
}

async fn activate(subject: &dyn Subject, which: Slot) -> Result<Option<String>, String> {
    subject.backend().activate(&subject.spec(which)).await.map_err(|e| chain("activate", &e))
}

async fn start(subject: &dyn Subject) -> Verdict {
    subject.backend().start(&subject.spec(Slot::One)).await.map_err(|e| chain("start", &e))
}

async fn stop(subject: &dyn Subject) -> Verdict {
    subject.backend().stop(&subject.spec(Slot::One)).await.map_err(|e| chain("stop", &e))
}

async fn destroy(subject: &dyn Subject) -> Verdict {
    subject.backend().destroy(&subject.spec(Slot::One)).await.map_err(|e| chain("destroy", &e))
}

async fn expect_running(subject: &dyn Subject, wanted: bool) -> Verdict {
    let status = subject.backend().status(&subject.spec(Slot::One)).await.map_err(|e| chain("status", &e))?;
    ensure(status.running == wanted, &format!("running is {}, not {wanted}: {status:?}", status.running))
}

async fn running(subject: &dyn Subject) -> Verdict {
    prepare(subject, Slot::One).await?;
    activate(subject, Slot::One).await?;
    start(subject).await?;
    expect_running(subject, true).await
}

async fn mode_and_requirements_are_stable(subject: &dyn Subject) -> Verdict {
    let backend = subject.backend();
    ensure(backend.mode() == backend.mode(), "the mode changes")?;
    let needs = backend.requirements();
    ensure(needs == backend.requirements(), "the requirements change")?;
    ensure(!needs.writable_paths.is_empty(), "no path has to be writable")?;
    ensure(!needs.writable_paths.iter().any(|path| path.starts_with("/usr")), "/usr has to be writable")
}

async fn preflight_changes_nothing(subject: &dyn Subject) -> Verdict {
    let work = async { subject.backend().preflight().map_err(|e| chain("preflight", &e)) };
    unchanged(subject, "preflight", work).await
}

async fn prepare_names_its_slot_and_can_be_repeated(subject: &dyn Subject) -> Verdict {
    let spec = subject.spec(Slot::One);
    let root = subject.backend().prepare(&spec).await.map_err(|e| chain("prepare", &e))?;
    ensure(root.slot() == spec.slot, &format!("the root is of slot {}", root.slot()))?;
    unchanged(subject, "the second prepare", prepare(subject, Slot::One)).await
}

async fn paths_are_absolute_deterministic_and_apart(subject: &dyn Subject) -> Verdict {
    let root = subject.backend().prepare(&subject.spec(Slot::One)).await.map_err(|e| chain("prepare", &e))?;
    let in_node = [
        "/usr/local/bin/kubelet",
        "/usr/local/libexec/x",
        "/opt/cni/bin/bridge",
        "/etc/kubernetes/pki/ca.crt",
        "/var/lib/kubelet/kubeconfig",
        "/etc/cni/net.d/10-x.conflist",
    ];
    let mut seen = BTreeSet::new();
    for path in in_node.map(Path::new) {
        let host = root.path(path);
        ensure(host.is_absolute(), &format!("{} is not absolute", host.display()))?;
        ensure(host == root.path(path), &format!("{} changes", path.display()))?;
        ensure(seen.insert(host.clone()), &format!("two paths are {}", host.display()))?;
    }
    for name in ["kubelet/config.yaml", "containerd/config.toml"] {
        let host = root.config(name);
        ensure(host.is_absolute() && seen.insert(host.clone()), &format!("{} is not its own", host.display()))?;
    }
    Ok(())
}

async fn prepare_does_not_activate(subject: &dyn Subject) -> Verdict {
    running(subject).await?;
    stop(subject).await?;
    prepare(subject, Slot::Two).await?;
    let status = subject.backend().status(&subject.spec(Slot::One)).await.map_err(|e| chain("status", &e))?;
    ensure(status.slot == Some(subject.spec(Slot::One).slot), &format!("{:?} is active", status.slot))?;
    ensure(!status.running, "prepare started the stack")
}

async fn activate_returns_what_it_replaced(subject: &dyn Subject) -> Verdict {
    prepare(subject, Slot::One).await?;
    prepare(subject, Slot::Two).await?;
    let (one, two) = (subject.spec(Slot::One).slot, subject.spec(Slot::Two).slot);
    for (which, replaced) in [(Slot::One, None), (Slot::Two, Some(one)), (Slot::Two, Some(two))] {
        let found = activate(subject, which).await?;
        ensure(found == replaced, &format!("it replaced {found:?}, not {replaced:?}"))?;
    }
    Ok(())
}

async fn activating_what_is_not_installed_leaves_the_active_slot(subject: &dyn Subject) -> Verdict {
    prepare(subject, Slot::One).await?;
    activate(subject, Slot::One).await?;
    ensure(activate(subject, Slot::Two).await.is_err(), "a slot that is not installed was activated")?;
    let status = subject.backend().status(&subject.spec(Slot::One)).await.map_err(|e| chain("status", &e))?;
    ensure(status.slot == Some(subject.spec(Slot::One).slot), &format!("{:?} is active", status.slot))
}

async fn start_and_stop_reach_their_state_and_can_be_repeated(subject: &dyn Subject) -> Verdict {
    running(subject).await?;
    let since = starts(subject).await?;
    unchanged(subject, "the second start", start(subject)).await?;
    ensure(since == starts(subject).await?, "the second start restarted a unit")?;
    stop(subject).await?;
    expect_running(subject, false).await?;
    unchanged(subject, "the second stop", stop(subject)).await?;
    start(subject).await?;
    expect_running(subject, true).await
}

/// Main processes of the units.
async fn starts(subject: &dyn Subject) -> Result<Vec<u32>, String> {
    let status = subject.backend().status(&subject.spec(Slot::One)).await.map_err(|e| chain("status", &e))?;
    Ok(status.units.iter().map(|unit| unit.state.main_pid).collect())
}

async fn is_active(subject: &dyn Subject, unit: &str) -> Result<bool, String> {
    let state = subject.host().systemd.unit(unit).await.map_err(|e| chain("unit", &e))?;
    Ok(state.is_active())
}

async fn a_unit_that_fails_stops_the_start_and_not_the_stop(subject: &dyn Subject) -> Verdict {
    prepare(subject, Slot::One).await?;
    activate(subject, Slot::One).await?;
    let units = subject.units();
    let (Some(first), Some(last)) = (units.first(), units.last()) else { return Err("there are no units".into()) };
    subject.break_start(first, true).await;
    let started = start(subject).await;
    subject.break_start(first, false).await;
    ensure(started.is_err(), "a start with a unit that fails succeeded")?;
    ensure(!is_active(subject, last).await?, "units behind one that failed were started")?;
    stop(subject).await?;
    for unit in &units {
        ensure(!is_active(subject, unit).await?, &format!("{unit} was not stopped"))?;
    }
    start(subject).await
}

async fn restart_keeps_the_slot_and_restarts_every_unit(subject: &dyn Subject) -> Verdict {
    running(subject).await?;
    let (boot, before) = (subject.host().kernel.boot_id().map_err(|e| chain("boot", &e))?, starts(subject).await?);
    let spec = subject.spec(Slot::One);
    subject.backend().restart(&spec).await.map_err(|e| chain("restart", &e))?;
    expect_running(subject, true).await?;
    let after = starts(subject).await?;
    ensure(before.iter().all(|pid| !after.contains(pid)), "a unit was not restarted")?;
    ensure(boot == subject.host().kernel.boot_id().map_err(|e| chain("boot", &e))?, "the host was rebooted")?;
    let status = subject.backend().status(&spec).await.map_err(|e| chain("status", &e))?;
    ensure(status.slot == Some(spec.slot), "another slot is active")
}

async fn exec_returns_output_and_failure(subject: &dyn Subject) -> Verdict {
    let slot = subject.spec(Slot::One);
    let output = subject.backend().exec(&slot, &ExecRequest::new(["echo", "two words"])).await;
    let output = output.map_err(|e| chain("exec", &e))?;
    ensure(output.stdout == b"two words\n", &format!("{output:?}"))?;
    ensure(subject.backend().exec(&slot, &ExecRequest::new(["false"])).await.is_err(), "a failure was not told")
}

async fn logs_are_of_own_units_only(subject: &dyn Subject) -> Verdict {
    running(subject).await?;
    let slot = subject.spec(Slot::One);
    let request = |unit: &str| LogRequest { unit: Some(unit.to_owned()), lines: 5, follow: false };
    for unit in subject.units() {
        subject.backend().logs(&slot, &request(&unit), &mut |_: &str| {}).await.map_err(|e| chain("logs", &e))?;
    }
    let foreign = subject.backend().logs(&slot, &request("systemd-journald.service"), &mut |_: &str| {}).await;
    ensure(foreign.is_err(), "it reads logs of a unit that is not its own")
}

async fn destroy_succeeds_from_every_state_and_again(subject: &dyn Subject) -> Verdict {
    let before = look(subject, false);
    // Never prepared.
    unchanged(subject, "destroying nothing", destroy(subject)).await?;
    for state in 0..4 {
        prepare(subject, Slot::One).await?;
        if state > 0 {
            activate(subject, Slot::One).await?;
        }
        if state > 1 {
            start(subject).await?;
        }
        if state > 2 {
            stop(subject).await?;
        }
        destroy(subject).await?;
        expect_running(subject, false).await?;
        let left = left(subject, &before);
        ensure(left.is_empty(), &format!("in state {state} destroy left {}", left.join(", ")))?;
        unchanged(subject, "the second destroy", destroy(subject)).await?;
    }
    Ok(())
}

async fn an_operation_that_is_dropped_can_be_run_again(subject: &dyn Subject) -> Verdict {
    prepare(subject, Slot::One).await?;
    activate(subject, Slot::One).await?;
    let slot = subject.spec(Slot::One);
    {
        let mut dropped = subject.backend().start(&slot);
        // Polled once, then given up, as when a person interrupts.
        std::future::poll_fn(|cx| {
            let _ = dropped.as_mut().poll(cx);
            std::task::Poll::Ready(())
        })
        .await;
    }
    start(subject).await?;
    expect_running(subject, true).await
}

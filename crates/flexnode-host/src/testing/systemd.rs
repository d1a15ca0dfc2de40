//! PID 1.

mod manager;
mod script;
mod unit_file;

pub use script::{Script, Verb};

use super::{FakeCgroups, FakeClock, FakeProcesses, MemFs, locked};
use crate::{HostError, Systemd, UnitState};
use async_trait::async_trait;
use manager::Manager;
use script::{Hook, Planned};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// PID 1 over the unit files in [`MemFs`].
///
/// Units are read when they are first asked for and again on `reload`, drop-ins included; `need_reload` compares what
/// was read with the files. Starting follows `Requires`, `BindsTo` and `Wants`; stopping takes along what requires or
/// binds to the unit, or is part of it. A service needs its program and its EnvironmentFiles in the file system. Its
/// main process is one of [`FakeProcesses`]; when that ends, the unit fails or, with `Restart=`, starts again.
#[derive(Debug)]
pub struct FakeSystemd {
    clock: Arc<FakeClock>,
    manager: Mutex<Manager>,
    plans: Mutex<Plans>,
}

#[derive(Debug, Default)]
struct Plans {
    scripts: Vec<Planned>,
    hooks: Vec<Hook>,
    calls: Vec<String>,
}

impl FakeSystemd {
    /// A manager with no units loaded.
    pub fn new(
        fs: Arc<MemFs>,
        processes: Arc<FakeProcesses>,
        cgroups: Arc<FakeCgroups>,
        clock: Arc<FakeClock>,
    ) -> Self {
        let manager = Mutex::new(Manager::new(fs, processes, cgroups, clock.clone()));
        Self { clock, manager, plans: Mutex::default() }
    }

    /// Services start also when their programs and EnvironmentFiles are not in the file system.
    pub fn lenient(&self) -> &Self {
        locked(&self.manager).lenient = true;
        self
    }

    /// The next such call goes by the script, once. Scripts of one call are used in the order they were given.
    pub fn script(&self, verb: Verb, unit: &str, script: Script) -> &Self {
        self.plan(verb, unit, script, Some(1))
    }

    /// Every such call from now on goes by the script.
    pub fn script_always(&self, verb: Verb, unit: &str, script: Script) -> &Self {
        self.plan(verb, unit, script, None)
    }

    fn plan(&self, verb: Verb, unit: &str, script: Script, left: Option<usize>) -> &Self {
        locked(&self.plans).scripts.push(Planned { verb, unit: unit.to_owned(), script, left });
        self
    }

    /// Forgets every script.
    pub fn clear_scripts(&self) -> &Self {
        locked(&self.plans).scripts.clear();
        self
    }

    /// Runs `hook` after every such call that succeeded: what the unit's program would have done.
    pub fn hook(&self, verb: Verb, unit: &str, hook: impl Fn() + Send + Sync + 'static) -> &Self {
        locked(&self.plans).hooks.push(Hook { verb, unit: unit.to_owned(), run: Arc::new(hook) });
        self
    }

    /// The changing calls so far: `start NAME`, `stop NAME`, `restart NAME`, `enable NAME`, `disable NAME`, `reload`,
    /// `reset-failed NAME`.
    pub fn calls(&self) -> Vec<String> {
        locked(&self.plans).calls.clone()
    }

    /// Empties the log of calls.
    pub fn clear_calls(&self) -> &Self {
        locked(&self.plans).calls.clear();
        self
    }

    /// The state of a unit, without an `await`.
    pub fn state(&self, unit: &str) -> UnitState {
        locked(&self.manager).state(unit)
    }

    /// Puts a unit into this state as if it had come to it by itself.
    pub fn set_active(&self, unit: &str, active: &str, sub: &str) -> &Self {
        locked(&self.manager).set_active(unit, active, sub);
        self
    }

    /// Adds lines to a unit's journal.
    pub fn journal(&self, unit: &str, lines: &[&str]) -> &Self {
        let lines = lines.iter().map(ToString::to_string);
        locked(&self.manager).journals.entry(unit.to_owned()).or_default().extend(lines);
        self
    }

    /// As after a reboot: nothing is loaded or runs, then the units that are enabled start.
    pub fn reboot(&self) -> &Self {
        locked(&self.manager).reboot();
        self
    }

    /// Logs a call and says what is planned for it.
    fn begin(&self, verb: Verb, unit: &str) -> Option<Script> {
        let name = match verb {
            Verb::Start => "start",
            Verb::Stop => "stop",
            Verb::Restart => "restart",
            Verb::Enable => "enable",
            Verb::Disable => "disable",
            Verb::Reload => "reload",
            Verb::ResetFailed => "reset-failed",
            Verb::Unit | Verb::LastLines => "",
        };
        let mut plans = locked(&self.plans);
        if !name.is_empty() {
            plans.calls.push(format!("{name} {unit}").trim_end().to_owned());
        }
        let planned = plans.scripts.iter_mut().find(|p| p.verb == verb && p.unit == unit && p.left != Some(0))?;
        planned.left = planned.left.map(|left| left - 1);
        Some(planned.script.clone())
    }

    fn run_hooks(&self, verb: Verb, unit: &str) {
        let hooks: Vec<Hook> =
            locked(&self.plans).hooks.iter().filter(|h| h.verb == verb && h.unit == unit).cloned().collect();
        for hook in hooks {
            (hook.run)();
        }
    }

    /// A job: by its script, else as `run` says.
    fn job(
        &self,
        verb: Verb,
        unit: &str,
        deadline: Duration,
        run: impl FnOnce(&mut Manager) -> Result<(), HostError>,
    ) -> Result<(), HostError> {
        let what = format!("{verb:?} {unit}").to_lowercase();
        match self.begin(verb, unit) {
            None => run(&mut locked(&self.manager))?,
            Some(Script::Refuse(reason)) => return Err(HostError::Failed { what, reason }),
            Some(Script::Fail { result, exit_status }) => {
                locked(&self.manager).fail(unit, &result, exit_status);
                let reason = format!("the job failed: {result}, status {exit_status}");
                return Err(HostError::Failed { what, reason });
            }
            Some(Script::Hang) => {
                let between = if verb == Verb::Stop { "deactivating" } else { "activating" };
                locked(&self.manager).set_active(unit, between, "start");
                self.clock.pass(deadline);
                return Err(HostError::Deadline { what, after: deadline });
            }
            Some(Script::DieAfterStart(status)) => {
                let mut manager = locked(&self.manager);
                run(&mut manager)?;
                manager.fail(unit, "exit-code", status);
            }
        }
        self.run_hooks(verb, unit);
        Ok(())
    }
}

/// The deadline of calls that take none.
const CALL_DEADLINE: Duration = Duration::from_secs(60);

#[async_trait]
impl Systemd for FakeSystemd {
    async fn unit(&self, unit: &str) -> Result<UnitState, HostError> {
        match self.begin(Verb::Unit, unit) {
            Some(Script::Refuse(reason)) => Err(HostError::Failed { what: format!("query {unit}"), reason }),
            Some(Script::Hang) => {
                self.clock.pass(CALL_DEADLINE);
                Err(HostError::Deadline { what: format!("query {unit}"), after: CALL_DEADLINE })
            }
            _ => Ok(self.state(unit)),
        }
    }

    async fn start(&self, unit: &str, deadline: Duration) -> Result<(), HostError> {
        self.job(Verb::Start, unit, deadline, |manager| manager.start(unit))
    }

    async fn stop(&self, unit: &str, deadline: Duration) -> Result<(), HostError> {
        self.job(Verb::Stop, unit, deadline, |manager| {
            manager.stop(unit);
            Ok(())
        })
    }

    async fn restart(&self, unit: &str, deadline: Duration) -> Result<(), HostError> {
        self.job(Verb::Restart, unit, deadline, |manager| manager.restart(unit))
    }

    async fn enable(&self, unit: &str) -> Result<(), HostError> {
        self.job(Verb::Enable, unit, CALL_DEADLINE, |manager| manager.enable(unit))
    }

    async fn disable(&self, unit: &str) -> Result<(), HostError> {
        self.job(Verb::Disable, unit, CALL_DEADLINE, |manager| manager.disable(unit))
    }

    async fn reload(&self) -> Result<(), HostError> {
        self.job(Verb::Reload, "", CALL_DEADLINE, |manager| {
            manager.reload();
            Ok(())
        })
    }

    async fn reset_failed(&self, unit: &str) -> Result<(), HostError> {
        self.job(Verb::ResetFailed, unit, CALL_DEADLINE, |manager| {
            manager.reset_failed(unit);
            Ok(())
        })
    }

    async fn list(&self, patterns: &[&str]) -> Result<Vec<String>, HostError> {
        Ok(locked(&self.manager).list(patterns))
    }

    async fn last_lines(&self, unit: &str, lines: usize) -> Result<Vec<String>, HostError> {
        if let Some(Script::Refuse(reason)) = self.begin(Verb::LastLines, unit) {
            return Err(HostError::Failed { what: format!("read journal of {unit}"), reason });
        }
        let manager = locked(&self.manager);
        let all = manager.journals.get(unit).map_or(&[][..], Vec::as_slice);
        Ok(all[all.len().saturating_sub(lines)..].to_vec())
    }
}

#[cfg(test)]
mod tests;

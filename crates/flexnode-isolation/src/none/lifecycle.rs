//! Start, stop and restart.

use super::consts::{UNIT_CONTAINERD, UNIT_KUBELET, UNIT_LOCAL_DNS};
use super::dropins::ALL_UNITS;
use super::hooks::{Hook, RollbackUnits};
use super::layout::LayoutError;
use super::links::ensure_links;
use super::manifest;
use super::node::Backend;
use super::preflight::Ownership;
use super::prepare::{FILES, STOP, UNITS};
use super::run::{changed_if, kind};
use super::units::UnitSpec;
use crate::backend::{Error, JoinedErrors};
use flexnode_host::UnitState;
use flexnode_ops::{Outcome, Step, StepContext, StepError};
use std::sync::Arc;
use std::time::Duration;

/// One unit's start: systemd's own limit of 90 s, and time to say so.
const START: Duration = Duration::from_secs(100);

/// Which version's units are started.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    /// Those of [`Backend::units`].
    Units,
    /// Those of the version that a rollback returns to, once the link selects it.
    Previous(String),
}

impl Backend {
    /// The steps of [`Backend::start`] for an operation that has put the units right.
    pub fn start_steps(&self) -> Vec<Step> {
        self.start_steps_of(&Which::Units)
    }

    /// The steps of [`Backend::start`] for a node on which nothing was done to the units: a way back that failed may have left
    /// those of another version, and nothing is started by them.
    pub fn start_steps_with_units(&self) -> Vec<Step> {
        self.with_units(self.start_steps())
    }

    /// Puts the units right before anything else is done to them.
    fn with_units(&self, mut steps: Vec<Step>) -> Vec<Step> {
        let title = "see that the units are those of the active version";
        let right = self.step("write-units", title, UNITS, |b, _| async move { b.ensure_units().await });
        let at = steps.len().min(1);
        steps.insert(at, right);
        steps
    }

    /// Makes the units those of the active version, where it recorded which these are; see [`Backend::rollback_units`].
    /// Whoever starts a unit by another way than the operations calls it first.
    pub async fn ensure_units(&self) -> Result<Outcome, Error> {
        let recorded = self.recorded_spec()?;
        let known = match self.rollback_units {
            RollbackUnits::Recorded => recorded,
            RollbackUnits::Keep | RollbackUnits::Spec(_) => Some(self.units.clone()),
        };
        let Some(spec) = known else { return Ok(Outcome::Unchanged) };
        for unit in Self::stack(&spec) {
            refuse_masked(unit, &self.system.systemd.unit(unit).await?)?;
        }
        self.apply_units(&spec).await
    }

    /// The units of the version that is active: those that it recorded where [`Backend::rollback_units`] says so, otherwise
    /// [`Backend::units`].
    pub(crate) fn active_spec(&self) -> Result<UnitSpec, Error> {
        Ok(self.recorded_spec()?.unwrap_or_else(|| self.units.clone()))
    }

    /// What the active version recorded, where [`Backend::rollback_units`] says that records count.
    fn recorded_spec(&self) -> Result<Option<UnitSpec>, Error> {
        match (&self.rollback_units, self.current()?) {
            (RollbackUnits::Recorded, Some(current)) => {
                Ok(manifest::recorded_units(self.fs(), &self.layout, &current)?)
            }
            _ => Ok(None),
        }
    }

    pub(crate) fn start_steps_of(&self, which: &Which) -> Vec<Step> {
        let mut steps = self.before_steps(which);
        for (name, unit) in self.units_of(which, ["start-localdns", "start-containerd", "start-kubelet"]) {
            let gate = self.after_start.get(unit).cloned().unwrap_or_default();
            let which = which.clone();
            let deadline = START + gate.deadline();
            steps.push(self.step(name, format!("start {unit}"), deadline, move |b, cx| {
                let (which, gate) = (which.clone(), gate.clone());
                async move { b.start_unit(unit, &which, &gate, cx).await }
            }));
        }
        steps
    }

    /// The steps of [`Backend::stop`].
    pub fn stop_steps(&self) -> Vec<Step> {
        vec![self.stop_step(&Hook::default(), |b, cx| async move { b.stop_stack(&Hook::default(), cx).await })]
    }

    pub(crate) fn stop_step<F, Fut>(&self, between: &Hook, run: F) -> Step
    where
        F: Fn(Arc<Backend>, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, Error>> + Send + 'static,
    {
        let deadline = STOP * u32::try_from(ALL_UNITS.len()).unwrap_or(4) + between.deadline();
        self.step("stop", "stop the node stack", deadline, run).takes_down()
    }

    /// Steps that keep the stack from starting at boot, for a stop that a person asked for; [`Backend::start_steps`] enable
    /// it again.
    pub fn disable_steps(&self) -> Vec<Step> {
        vec![self.step("disable", "keep the node stack from starting at boot", FILES, |b, _| async move {
            let mut changed = false;
            for unit in [UNIT_KUBELET, UNIT_CONTAINERD, UNIT_LOCAL_DNS] {
                if b.system.systemd.unit(unit).await?.enabled == "enabled" {
                    b.system.systemd.disable(unit).await?;
                    changed = true;
                }
            }
            if changed {
                b.system.systemd.reload().await?;
            }
            Ok(changed_if(changed, ""))
        })]
    }

    /// The steps of [`Backend::restart`].
    pub fn restart_steps(&self) -> Vec<Step> {
        let mut steps = self.with_units(self.before_steps(&Which::Units));
        for (name, unit) in self.units_of(&Which::Units, ["restart-localdns", "restart-containerd", "restart-kubelet"])
        {
            let gate = self.after_restart.get(unit).cloned().unwrap_or_default();
            let deadline = STOP + START + gate.deadline();
            let step = self.step(name, format!("restart {unit}"), deadline, move |b, cx| {
                let gate = gate.clone();
                async move {
                    let spec = b.active_spec()?;
                    if !Self::stack(&spec).contains(&unit) {
                        return Ok(Outcome::Unchanged);
                    }
                    b.reload_if_needed(unit).await?;
                    b.system.systemd.restart(unit, STOP + START).await.map_err(|e| not_started(unit, e.into()))?;
                    b.check_started(unit, &spec).await?;
                    gate.call(cx).await?;
                    Ok(Outcome::Changed(String::new()))
                }
            });
            steps.push(step.takes_down());
        }
        steps
    }

    /// Starts the stack in order, running the `after_start` gate of each unit before the next one starts. What runs already,
    /// from the active version, is left alone.
    pub async fn start(&self) -> Result<(), Error> {
        self.execute(&Self::operation(kind::START, self.start_steps_with_units()), false).await.map(|_| ())
    }

    /// Stops the stack in reverse order. Every unit is attempted, so that a failure of one does not leave the others running.
    pub async fn stop(&self) -> Result<(), Error> {
        self.execute(&Self::operation(kind::STOP, self.stop_steps()), false).await.map(|_| ())
    }

    /// Restarts the stack in start order. Pods are left alone and the host is never rebooted.
    pub async fn restart(&self) -> Result<(), Error> {
        self.execute(&Self::operation(kind::RESTART, self.restart_steps()), false).await.map(|_| ())
    }

    /// What comes before any unit is touched: the links of the configuration, and the hook.
    fn before_steps(&self, which: &Which) -> Vec<Step> {
        let (which, enabled) = (which.clone(), which.clone());
        let enable = self.step("enable-units", "enable the units", FILES, move |b, _| {
            let which = enabled.clone();
            async move { b.enable_units(&b.spec_of(&which)?).await }
        });
        let links =
            self.step("check-node", "check the active version and the configuration links", FILES, move |b, _| {
                let which = which.clone();
                async move {
                    if b.current()?.is_none() {
                        return Err(LayoutError::NoneActive { path: b.layout.current_link() }.into());
                    }
                    let spec = b.spec_of(&which)?;
                    let change = ensure_links(b.fs(), &b.layout, &b.config_links(&spec))?;
                    if b.thaw_pods().await? {
                        return Ok(Outcome::Changed("pods that were frozen".into()));
                    }
                    Ok(changed_if(change.made(), "links to current/etc"))
                }
            });
        let mut steps = vec![links];
        steps.extend(self.hook_step("before-start", "prepare the host for the start", &self.before_start));
        steps.push(enable);
        steps
    }

    /// Enables the units for the boot, and lets systemd read what is on disk: nothing is started while it has not.
    ///
    /// It is done for all units before the first one starts, because changed links make systemd ask for a reload at every
    /// unit, and one is enough.
    async fn enable_units(&self, spec: &UnitSpec) -> Result<Outcome, Error> {
        let systemd = &self.system.systemd;
        let (mut enabled, mut reload) = (false, false);
        for unit in Self::stack(spec) {
            let state = systemd.unit(unit).await?;
            refuse_masked(unit, &state)?;
            reload |= state.need_reload || state.load == "not-found";
            if state.enabled != "enabled" {
                systemd.enable(unit).await?;
                enabled = true;
            }
        }
        if enabled || reload {
            systemd.reload().await?;
        }
        Ok(changed_if(enabled, ""))
    }

    /// A step for a hook, if it is set.
    pub(crate) fn hook_step(&self, name: &'static str, title: &str, hook: &Hook) -> Option<Step> {
        if !hook.is_set() {
            return None;
        }
        let run = hook.clone();
        Some(self.step(name, title, hook.deadline(), move |_, cx| {
            let run = run.clone();
            async move { Ok(run.call(cx).await?) }
        }))
    }

    /// The units to start in order, each with its step's name. Whether a previous version has LocalDNS is only known when
    /// the step runs.
    fn units_of(&self, which: &Which, names: [&'static str; 3]) -> Vec<(&'static str, &'static str)> {
        let all = names.into_iter().zip([UNIT_LOCAL_DNS, UNIT_CONTAINERD, UNIT_KUBELET]);
        let recorded = self.active_spec().is_ok_and(|spec| spec.local_dns);
        let local_dns = matches!(which, Which::Previous(_)) || self.units.local_dns || recorded;
        let wanted = |unit| unit != UNIT_LOCAL_DNS || local_dns;
        all.filter(|(_, unit)| wanted(*unit)).collect()
    }

    /// The spec of the units that are meant. When the link does not select the version that was to be returned to, it is the
    /// other version's: that is what runs.
    pub(crate) fn spec_of(&self, which: &Which) -> Result<UnitSpec, Error> {
        match which {
            Which::Previous(version) if self.current()?.as_ref() == Some(version) => self.rollback_spec(version),
            _ => self.active_spec(),
        }
    }

    /// The spec of the units of the version that a rollback returns to.
    pub(crate) fn rollback_spec(&self, version: &str) -> Result<UnitSpec, Error> {
        match &self.rollback_units {
            RollbackUnits::Spec(spec) => Ok(spec.clone()),
            RollbackUnits::Keep => Ok(self.installed_spec()?),
            RollbackUnits::Recorded => match manifest::recorded_units(self.fs(), &self.layout, version)? {
                Some(spec) => Ok(spec),
                None => Ok(self.installed_spec()?),
            },
        }
    }

    /// Starts one unit, compares what runs with what was meant, then waits for its gate.
    async fn start_unit(
        &self,
        unit: &'static str,
        which: &Which,
        gate: &Hook,
        cx: StepContext,
    ) -> Result<Outcome, Error> {
        let spec = self.spec_of(which)?;
        if !Self::stack(&spec).contains(&unit) {
            return Ok(Outcome::Unchanged);
        }
        let systemd = &self.system.systemd;
        self.reload_if_needed(unit).await?;
        let state = systemd.unit(unit).await?;
        let runs_right = state.active == "active" && self.compare(unit, &spec, &state)?.is_none();
        if !runs_right {
            let started = if state.is_active() {
                // It runs another version, or with another command, than the one that is active now.
                systemd.restart(unit, STOP + START).await
            } else {
                systemd.reset_failed(unit).await?;
                systemd.start(unit, START).await
            };
            started.map_err(|e| not_started(unit, e.into()))?;
            self.check_started(unit, &spec).await?;
        }
        let gated = gate.call(cx).await?;
        Ok(changed_if(!runs_right || gated != Outcome::Unchanged, ""))
    }

    /// Nothing is started while systemd has not read what is on disk: somebody may have changed it a moment ago.
    async fn reload_if_needed(&self, unit: &str) -> Result<(), Error> {
        if self.system.systemd.unit(unit).await?.need_reload {
            self.system.systemd.reload().await?;
        }
        Ok(())
    }

    /// Fails when a unit that was just started is not what was meant.
    async fn check_started(&self, unit: &str, spec: &UnitSpec) -> Result<(), Error> {
        let state = self.system.systemd.unit(unit).await?;
        match self.compare(unit, spec, &state)? {
            None => Ok(()),
            Some(problem) => Err(not_started(unit, Error::Request(problem))),
        }
    }

    /// What is wrong with a unit that should run now: not active, another command line than was rendered, or a main process
    /// that does not run a program of the active version.
    fn compare(&self, unit: &str, spec: &UnitSpec, state: &UnitState) -> Result<Option<String>, Error> {
        if !state.is_active() || state.main_pid == 0 {
            let (active, sub, result, status) = (&state.active, &state.sub, &state.result, state.exit_status);
            return Ok(Some(format!("it is {active} ({sub}); its process ended with {result}, status {status}")));
        }
        if state.need_reload {
            return Ok(Some("systemd has not read its file".to_owned()));
        }
        if let Some(words) = spec.command(unit) {
            let meant: Vec<String> = words.iter().map(super::encode::Word::loaded).collect();
            if state.exec_start != meant {
                let problem = format!("it runs `{}` instead of `{}`", state.exec_start.join(" "), meant.join(" "));
                return Ok(Some(problem));
            }
        }
        // The supervisor of LocalDNS is a script: its program is the interpreter.
        if unit == UNIT_LOCAL_DNS {
            return Ok(None);
        }
        let Some(process) = self.system.processes.get(state.main_pid)? else {
            return Ok(Some(format!("its process {} ended", state.main_pid)));
        };
        let active = Ownership::new(&self.system, &self.layout.current_link());
        if active.owns(&process) {
            return Ok(None);
        }
        Ok(Some(format!(
            "its process {} runs {}, which is not the active version's",
            process.pid,
            process.exe.display()
        )))
    }

    /// Stops every unit that is there and not stopped, kubelet first; `between` runs when kubelet has ended and containerd
    /// still runs.
    pub(crate) async fn stop_stack(&self, between: &Hook, cx: StepContext) -> Result<Outcome, Error> {
        let (mut errors, mut changed) = (Vec::new(), false);
        for unit in ALL_UNITS {
            if unit == UNIT_CONTAINERD && between.is_set() {
                let state = self.system.systemd.unit(unit).await?;
                if state.is_active() {
                    match tokio::time::timeout(between.deadline(), between.call(cx.clone())).await {
                        Ok(Ok(_)) => {}
                        Ok(Err(error)) => cx.note(&format!("not all pods could be ended by the runtime: {error}")),
                        Err(_) => cx.note("not all pods could be ended by the runtime in time"),
                    }
                }
            }
            match self.stop_unit(unit).await {
                Ok(stopped) => changed |= stopped,
                Err(error) => errors.push(StepError::caused(format!("could not stop {unit}"), error)),
            }
        }
        if errors.is_empty() { Ok(changed_if(changed, "")) } else { Err(JoinedErrors(errors).into()) }
    }

    pub(crate) async fn stop_unit(&self, unit: &str) -> Result<bool, Error> {
        let state = self.system.systemd.unit(unit).await?;
        if matches!(state.active.as_str(), "inactive" | "failed" | "") {
            return Ok(false);
        }
        self.system.systemd.stop(unit, STOP).await?;
        Ok(true)
    }
}

/// A person wants that it does not run.
fn refuse_masked(unit: &str, state: &UnitState) -> Result<(), Error> {
    if state.load != "masked" {
        return Ok(());
    }
    Err(StepError::new(format!("{unit} is masked")).hint(format!("systemctl unmask {unit}")).into())
}

fn not_started(unit: &str, cause: Error) -> Error {
    StepError::caused(format!("{unit} did not start"), cause).hint(format!("journalctl -u {unit} -n 50")).into()
}

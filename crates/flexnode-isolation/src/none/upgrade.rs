//! Upgrade and rollback. There is one upgrade: the list of steps that [`Backend::upgrade_operation`] gives.

use super::hooks::{Hook, RollbackUnits};
use super::layout::LayoutError;
use super::lifecycle::Which;
use super::links::check_links;
use super::manifest::{self, Level};
use super::node::Backend;
use super::prepare::{FILES, UNITS, VERIFY};
use super::reap::{REAP, Reap};
use super::run::{blocking, changed_if, kind};
use crate::backend::{Error, SlotRef};
use flexnode_ops::{Operation, Outcome, Recovery, Step, StepError};
use std::sync::Arc;

/// An upgrade between two versions that are installed.
#[derive(Clone, Debug)]
pub struct UpgradeRequest {
    /// The version that runs, to which a failure returns.
    pub from: String,
    /// The version to go to, prepared with [`Backend::prepare_version`].
    pub to: String,
    /// Fingerprint of the goal, for the journal.
    pub goal: String,
    /// Judges whether the new version is ready. Its failure or deadline rolls back.
    pub wait_ready: Hook,
    /// Whether a failure returns to `from`, which then has to be complete. A person may go without
    /// (`--without-rollback`) when it is not.
    pub rollback: bool,
}

impl Backend {
    /// The whole upgrade as data: its steps, and the way back from the first stop on.
    ///
    /// Both versions are looked at closely before anything is stopped. When `from` is `to` there is nothing to switch: units
    /// and links are put right and what does not run is started.
    pub fn upgrade_operation(&self, request: &UpgradeRequest) -> Operation {
        let mut steps = vec![self.check_versions_step(request)];
        let switches = request.from != request.to;
        if switches {
            let between = self.end_sandboxes.clone();
            steps.push(self.stop_step(&self.end_sandboxes, move |b, cx| {
                let between = between.clone();
                async move { b.stop_stack(&between, cx).await }
            }));
            steps.push(self.step("end-pods", "end the pods", REAP, |b, _| async move { b.reap(Reap::Pods).await }));
            steps.push(self.flip_step(&request.to));
        }
        let title = "write the units";
        steps.push(self.step(
            "write-units",
            title,
            UNITS,
            |b, _| async move { b.apply_units(&b.active_spec()?).await },
        ));
        steps.push(self.link_cni_step(&request.to));
        if switches {
            let title = "set the host up for the new version";
            steps.extend(self.hook_step("before-upgrade-start", title, &self.before_upgrade_start));
        }
        steps.extend(self.start_steps());
        steps.extend(self.hook_step("wait-ready", "wait until the new version is ready", &request.wait_ready));
        let recovery = match (switches, request.rollback) {
            (false, _) => Recovery::Resume,
            (true, false) => Recovery::Forward { since: "stop" },
            (true, true) => Recovery::RollBack { since: "stop", steps: self.rollback_steps(&request.from) },
        };
        Operation {
            kind: kind::UPGRADE,
            goal: request.goal.clone(),
            from: Some(request.from.clone()),
            to: Some(request.to.clone()),
            steps,
            recovery,
        }
    }

    /// Switches to an installed version prepared with [`Backend::prepare_version`]: stops the stack, ends its pods, flips the
    /// link, writes the units, starts the stack and waits for ready. If a step after the flip fails, the stack is stopped and
    /// its pods ended again, the link flipped back, the units of the previous version written, and it is started again. If
    /// the stop or the flip itself fails, the previous version is started again without a flip. The node is briefly down.
    ///
    /// Pods are ended before `before_upgrade_start`, because that hook cleans the host networking that they use.
    pub async fn upgrade(&self, slot: &(impl SlotRef + ?Sized), wait_ready: Hook) -> Result<(), Error> {
        let Some(from) = self.current()? else {
            return Err(LayoutError::NoneActive { path: self.layout.current_link() }.into());
        };
        let to = slot.slot().to_owned();
        let request = UpgradeRequest { from, to, goal: String::new(), wait_ready, rollback: true };
        self.execute(&self.upgrade_operation(&request), false).await.map(|_| ())
    }

    /// The steps back to `previous`. Every one has to be attempted, whatever became of those before.
    ///
    /// Where the link still selects `previous`, nothing has to be stopped or ended: what does not run is started. Where
    /// `previous` is not complete any more, the link stays and the best that runs is kept.
    pub fn rollback_steps(&self, previous: &str) -> Vec<Step> {
        let previous = Arc::<str>::from(previous);
        let (stopped, ended, flipped, written, linked) =
            (previous.clone(), previous.clone(), previous.clone(), previous.clone(), previous.clone());
        let mut steps = vec![
            self.stop_step(&self.end_sandboxes, move |b, cx| {
                let previous = stopped.clone();
                async move {
                    if !b.is_to_return(&previous)? {
                        return Ok(Outcome::Unchanged);
                    }
                    b.stop_stack(&b.end_sandboxes, cx).await
                }
            }),
            self.step("end-pods", "end the pods", REAP, move |b, _| {
                let previous = ended.clone();
                async move { if b.is_to_return(&previous)? { b.reap(Reap::Pods).await } else { Ok(Outcome::Unchanged) } }
            }),
            self.step("flip", format!("turn the current link back to {previous}"), FILES, move |b, _| {
                let previous = flipped.clone();
                async move { b.flip_to(&previous) }
            }),
            self.step("write-units", "write the units of the previous version", UNITS, move |b, _| {
                let previous = written.clone();
                async move { b.write_previous_units(&previous).await }
            }),
            self.step("link-cni", "link the CNI plugins of the previous version", FILES, move |b, _| {
                let previous = linked.clone();
                async move {
                    b.must_be_current(&previous)?;
                    let linked = b.link_cni_plugins(&previous)?;
                    Ok(changed_if(linked.made.len() + linked.removed.len() > 0, ""))
                }
            }),
        ];
        let title = "set the host up for the previous version";
        steps.extend(self.hook_step("before-rollback-start", title, &self.before_rollback_start));
        steps.extend(self.start_steps_of(&Which::Previous(previous.to_string())));
        steps
    }

    /// A rollback by itself as data. It goes the way back step by step; from the first failure on, every step is attempted.
    pub fn rollback_operation(&self, previous: &str) -> Operation {
        let (back, checked) = (self.rollback_steps(previous), previous.to_owned());
        let check = self.step("check-versions", format!("check version {previous}"), VERIFY, move |b, _| {
            let previous = checked.clone();
            async move {
                blocking(move || {
                    manifest::verify(b.fs(), &b.layout, &previous, Level::Content)?;
                    check_links(b.fs(), &b.layout, &b.config_links(&b.units))?;
                    Ok(Outcome::Unchanged)
                })
                .await
            }
        });
        let mut steps = vec![check.read_only()];
        steps.extend(back.clone());
        Operation {
            kind: kind::ROLLBACK,
            goal: String::new(),
            from: self.current().ok().flatten(),
            to: Some(previous.to_owned()),
            steps,
            recovery: Recovery::RollBack { since: "stop", steps: back },
        }
    }

    /// Stops the stack and its pods, points the current link at `previous`, writes its units (as [`Backend::rollback_units`]
    /// says), runs `before_rollback_start` and starts `previous`. Every step is attempted; the errors are joined. A version
    /// that is not complete is refused before anything is stopped.
    ///
    /// An upgrade that fails past the flip goes the same way; the agent also calls it at startup to finish an upgrade that a
    /// crash interrupted.
    pub async fn rollback(&self, previous: &str) -> Result<(), Error> {
        match self.execute(&self.rollback_operation(previous), false).await {
            // A step failed at first and not when all were attempted: the previous version runs.
            Err(Error::RolledBack(error)) if error.rollback.is_empty() => {
                tracing::warn!(parent: &self.log, error = %error.failure, "a step of the rollback had to be tried twice");
                Ok(())
            }
            other => other.map(|_| ()),
        }
    }

    fn check_versions_step(&self, request: &UpgradeRequest) -> Step {
        let checked = Arc::new(request.clone());
        let title = format!("check versions {} and {}", request.from, request.to);
        self.step("check-versions", title, VERIFY, move |b, _| {
            let request = checked.clone();
            async move {
                blocking(move || {
                    check_links(b.fs(), &b.layout, &b.config_links(&b.units))?;
                    manifest::verify(b.fs(), &b.layout, &request.to, Level::Content)?;
                    if request.rollback && request.from != request.to {
                        manifest::verify(b.fs(), &b.layout, &request.from, Level::Content).map_err(|error| {
                            let text = format!("a failed upgrade could not return to version {}", request.from);
                            StepError::caused(text, error)
                                .hint("mend it with `aks-flex-node slots repair`, or upgrade with --without-rollback")
                        })?;
                    }
                    Ok(Outcome::Unchanged)
                })
                .await
            }
        })
        .read_only()
    }

    /// Whether the link has to turn back: it selects another version, and `previous` is complete. An incomplete one is an
    /// error: what runs is better than what cannot.
    fn is_to_return(&self, previous: &str) -> Result<bool, Error> {
        if self.current()?.as_deref() == Some(previous) {
            return Ok(false);
        }
        manifest::verify(self.fs(), &self.layout, previous, Level::Shape)?;
        Ok(true)
    }

    fn must_be_current(&self, previous: &str) -> Result<(), Error> {
        match self.current()? {
            Some(current) if current == previous => Ok(()),
            other => Err(Error::Request(format!(
                "the current link selects {}, not {previous}",
                other.as_deref().unwrap_or("nothing")
            ))),
        }
    }

    async fn write_previous_units(&self, previous: &str) -> Result<Outcome, Error> {
        self.must_be_current(previous)?;
        match self.rollback_units {
            RollbackUnits::Keep => Ok(Outcome::Unchanged),
            _ => self.apply_units(&self.rollback_spec(previous)?).await,
        }
    }
}

//! An operation as a table for people: what will run, and what a crash in each step leads to.

use crate::resolve::{Resolution, after_crash};
use crate::{Operation, Step};
use serde::Serialize;

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanLine {
    /// Name of the step.
    pub step: String,
    /// What it does.
    pub title: String,
    /// It must end within this many seconds.
    pub deadline_seconds: f64,
    /// It only looks.
    pub read_only: bool,
    /// The node is down from here on.
    pub takes_down: bool,
    /// It belongs to the way back, which runs only after a failure.
    pub rollback: bool,
    /// What the next start of the agent does when a crash interrupts this step.
    pub after_crash: Resolution,
}

/// The steps of `operation` in order, those of its way back behind them. Runs nothing.
pub fn plan(operation: &Operation) -> Vec<PlanLine> {
    let forth =
        operation.steps.iter().enumerate().map(|(index, step)| line(step, false, after_crash(operation, index)));
    let back = operation.way_back().iter().map(|step| line(step, true, Resolution::RollBack));
    forth.chain(back).collect()
}

fn line(step: &Step, rollback: bool, after_crash: Resolution) -> PlanLine {
    PlanLine {
        step: step.name.to_owned(),
        title: step.title.clone(),
        deadline_seconds: step.deadline.as_secs_f64(),
        read_only: step.read_only,
        takes_down: step.takes_down,
        rollback,
        after_crash,
    }
}

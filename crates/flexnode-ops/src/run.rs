//! One run of one operation.

use crate::engine::Engine;
use crate::failpoint::{self, Action, Side};
use crate::journal::JournalError;
use crate::observer::{Event, Finish};
use crate::report::{self, Report, RunOutcome, StepFailure, StepReport};
use crate::{Cancel, Observer, Operation, Outcome, Recovery, Step, StepContext, StepError};
use flexnode_model::journal::{Ending, JournalRecord, Phase};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// A step of the way back that takes longer is named in the journal.
const WORTH_WRITING: Duration = Duration::from_millis(200);

/// Why a step did not end well.
enum Stopped {
    /// It failed, or its deadline passed.
    Failed(StepError),
    /// The end was asked for.
    Cancelled,
}

/// How a step is counted.
#[derive(Clone, Copy)]
struct Place {
    index: usize,
    of: usize,
    rollback: bool,
}

/// Requests to cancel are heard again when the run is over, also when it is dropped.
struct Release(Cancel);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// One run of one operation: what is known of it while it goes on.
pub(crate) struct Run<'a> {
    engine: &'a Engine,
    operation: &'a Operation,
    observer: Arc<dyn Observer>,
    record: JournalRecord,
    /// The closed record of another operation that goes to the history when this one is opened.
    displaced: Option<JournalRecord>,
    /// Whether this run has written its record.
    opened: bool,
    /// Whether the journal goes when all is done.
    forget: bool,
    steps: Vec<StepReport>,
    began: Duration,
    _release: Release,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        operation: &'a Operation,
        observer: Arc<dyn Observer>,
        record: JournalRecord,
        displaced: Option<JournalRecord>,
        forget: bool,
    ) -> Self {
        let began = engine.clock.monotonic();
        let release = Release(engine.cancel.clone());
        Self {
            engine,
            operation,
            observer,
            record,
            displaced,
            opened: false,
            forget,
            steps: Vec::new(),
            began,
            _release: release,
        }
    }

    /// Runs the steps, and the way back when one fails that has one.
    pub(crate) async fn forward(mut self) -> Report {
        self.started();
        let committed_from = self.operation.committed_from();
        let of = self.operation.steps.len();
        for (index, step) in self.operation.steps.iter().enumerate() {
            let committed = committed_from.is_some_and(|from| index >= from);
            if committed_from == Some(index) {
                if !self.engine.cancel.commit() {
                    return self.cancelled(step.name);
                }
                self.emit(&Event::Committed { step: step.name.to_owned() });
            } else if !committed && self.engine.cancel.is_requested() {
                return self.cancelled(step.name);
            }
            // The read-only steps at the head leave no trace; behind the first record each boundary is written.
            let recorded = self.opened || committed || !step.read_only;
            if recorded && let Err(error) = self.enter(step.name) {
                if step.optional {
                    tracing::warn!(step = step.name, error = report::line(&error), "an optional step was left out");
                    continue;
                }
                return self.failed(index, journal_failed(error)).await;
            }
            let place = Place { index: index + 1, of, rollback: false };
            match self.step(step, place).await {
                Ok(outcome) => self.steps.push(outcome),
                Err(Stopped::Cancelled) => return self.cancelled(step.name),
                // The observer was told.
                Err(Stopped::Failed(_)) if step.optional => {}
                Err(Stopped::Failed(error)) => return self.failed(index, error).await,
            }
        }
        if let Err(error) = self.close_done() {
            return self.failed(of - 1, journal_failed(error)).await;
        }
        let changed = self.steps.iter().any(|step| matches!(step.outcome, Outcome::Changed(_)));
        self.finish(RunOutcome::Done { changed })
    }

    /// Goes the way back of an operation that a crash interrupted.
    pub(crate) async fn interrupted_back(self) -> Report {
        self.started();
        let step = match self.record.phase {
            Phase::RollingBack => self.record.failed_step.clone().unwrap_or_default(),
            _ => self.record.step.clone(),
        };
        let error = StepError::new(match (&self.record.error, self.record.phase) {
            (Some(first), Phase::RollingBack) => format!("{first} (its way back was interrupted and is gone again)"),
            _ => "it was interrupted: its process was killed or the machine went down".to_owned(),
        });
        let mut run = self;
        if run.record.phase != Phase::RollingBack {
            step.clone_into(&mut run.record.step);
            run.record.roll_back_interrupted(report::line(&error), run.engine.clock.now());
        }
        run.back(step, error).await
    }

    /// Closes the record of an operation that was interrupted before it touched the node.
    pub(crate) fn discard(mut self) -> Result<Report, JournalError> {
        let step = self.record.step.clone();
        let text = "it was interrupted before the node was touched".to_owned();
        self.record.close(Ending::Failed, Some(text), self.engine.clock.now());
        self.engine.journal.write(&self.record)?;
        self.opened = true;
        Ok(self.finish(RunOutcome::Discarded { step }))
    }

    /// The step at `index` failed.
    async fn failed(mut self, index: usize, error: StepError) -> Report {
        let step = self.operation.steps[index].name;
        let touched = index >= self.operation.since_index();
        if touched && matches!(self.operation.recovery, Recovery::RollBack { .. }) {
            return self.back(step.to_owned(), error).await;
        }
        self.leave(step, &report::line(&error), Ending::Failed, touched);
        self.finish(RunOutcome::Failed { step: step.to_owned(), error })
    }

    /// The end was asked for before `step`, or in it.
    fn cancelled(mut self, step: &str) -> Report {
        self.leave(step, "it was cancelled", Ending::Cancelled, false);
        self.finish(RunOutcome::Cancelled { before_step: step.to_owned() })
    }

    /// Keeps the record of an operation that resumes, or of one that goes forward and has touched the node; closes that of
    /// another. A record that was not opened stays as it is.
    fn leave(&mut self, step: &str, text: &str, ending: Ending, touched: bool) {
        if !self.opened {
            return;
        }
        let now = self.engine.clock.now();
        step.clone_into(&mut self.record.step);
        match self.operation.recovery {
            Recovery::Resume => self.record.fail(text, now),
            Recovery::Forward { .. } if touched => self.record.fail(text, now),
            Recovery::Forward { .. } | Recovery::RollBack { .. } => {
                self.record.close(ending, Some(text.to_owned()), now);
            }
        }
        if let Err(error) = self.engine.journal.write(&self.record) {
            // The record on disk still says where it stopped, which leads to the same: resume, or close.
            tracing::warn!(error = report::line(&error), "the reason of the failure could not be recorded");
        }
    }

    /// Attempts every step of the way back and closes the record.
    async fn back(mut self, step: String, error: StepError) -> Report {
        self.engine.cancel.force_commit();
        let steps = self.operation.way_back();
        let reason = report::line(&error);
        self.emit(&Event::RollbackStarted { step: step.clone(), reason: reason.clone(), steps: steps.len() });
        let mut failures = Vec::new();
        if self.record.phase != Phase::RollingBack {
            step.clone_into(&mut self.record.step);
            self.record.roll_back(reason.as_str(), self.engine.clock.now());
        }
        for (index, back) in steps.iter().enumerate() {
            let place = Place { index: index + 1, of: steps.len(), rollback: true };
            let (written, ended) = self.step_back(back, place).await;
            if let Err(error) = written {
                failures.push(StepFailure { step: back.name.to_owned(), error: journal_failed(error) });
            }
            match ended {
                Ok(_) | Err(Stopped::Cancelled) => {}
                Err(Stopped::Failed(error)) => failures.push(StepFailure { step: back.name.to_owned(), error }),
            }
        }
        let ending = if failures.is_empty() { Ending::RolledBack } else { Ending::RollbackFailed };
        self.record.error = Some(report::joined(&reason, &failures));
        self.record.close(ending, None, self.engine.clock.now());
        if let Err(error) = self.engine.journal.write(&self.record) {
            failures.push(StepFailure { step: "close-record".to_owned(), error: journal_failed(error) });
        }
        self.finish(RunOutcome::RolledBack { step, error, rollback_errors: failures })
    }

    /// One step of the way back. That there is a way back is durable before its first step; after that the record only tells
    /// people which step it is, because all of them are attempted again after a crash. So a step that is over in a moment is
    /// not written down: the node is down, and a write to the disk takes longer than most of the steps.
    async fn step_back(
        &mut self,
        step: &Step,
        place: Place,
    ) -> (Result<(), JournalError>, Result<StepReport, Stopped>) {
        if place.index == 1 {
            let written = self.enter(step.name);
            return (written, self.step(step, place).await);
        }
        self.record.enter(step.name, self.engine.clock.now());
        let work = self.step(step, place);
        tokio::pin!(work);
        tokio::select! {
            biased;
            ended = &mut work => (Ok(()), ended),
            () = tokio::time::sleep(WORTH_WRITING) => {
                let written = self.engine.journal.write(&self.record);
                (written, work.await)
            }
        }
    }

    /// Makes it durable that `step` is about to run.
    fn enter(&mut self, step: &str) -> Result<(), JournalError> {
        self.record.enter(step, self.engine.clock.now());
        if !self.opened {
            self.engine.journal.begin(self.displaced.as_ref())?;
        }
        self.engine.journal.write(&self.record)?;
        self.opened = true;
        Ok(())
    }

    fn close_done(&mut self) -> Result<(), JournalError> {
        if self.forget {
            return self.engine.journal.forget();
        }
        if !self.opened {
            return Ok(());
        }
        self.record.close(Ending::Done, None, self.engine.clock.now());
        let written = self.engine.journal.write(&self.record);
        if written.is_err() {
            self.record.phase = Phase::Running;
            self.record.outcome = None;
        }
        written
    }

    /// Runs one step with its deadline and fail points, and tells the observer.
    async fn step(&self, step: &Step, place: Place) -> Result<StepReport, Stopped> {
        let name = step.name.to_owned();
        self.emit(&Event::StepStarted {
            step: name.clone(),
            title: step.title.clone(),
            index: place.index,
            of: place.of,
            deadline_seconds: step.deadline.as_secs_f64(),
            rollback: place.rollback,
        });
        let began = self.engine.clock.monotonic();
        let note = Arc::new(Mutex::new(String::new()));
        let ended = self.guarded(step, place.rollback, &note).await;
        let time = self.engine.clock.monotonic().saturating_sub(began);
        match ended {
            Ok(outcome) => {
                let (finish, text) = match &outcome {
                    Outcome::Changed(text) => (Finish::Changed, text.clone()),
                    Outcome::Unchanged => (Finish::Unchanged, String::new()),
                };
                self.emit(&Event::StepFinished { step: name.clone(), outcome: finish, text, seconds: seconds(time) });
                Ok(StepReport { step: name, outcome, time })
            }
            Err(Stopped::Cancelled) => Err(Stopped::Cancelled),
            Err(Stopped::Failed(error)) => {
                self.emit(&Event::StepFailed {
                    step: name,
                    errors: report::layers(&error),
                    hint: error.hint.clone(),
                    seconds: seconds(time),
                });
                Err(Stopped::Failed(error))
            }
        }
    }

    async fn guarded(&self, step: &Step, rollback: bool, note: &Arc<Mutex<String>>) -> Result<Outcome, Stopped> {
        let way = if rollback { format!("{}.rollback", self.operation.kind) } else { self.operation.kind.to_owned() };
        let hangs = Notify::new();
        let work = async {
            self.fail_at(&way, step.name, Side::Before, &hangs).await?;
            let outcome = step.run(self.context(step.name, note)).await?;
            self.fail_at(&way, step.name, Side::After, &hangs).await?;
            Ok(outcome)
        };
        let given_up = async {
            let Some(limit) = failpoint::seconds(failpoint::HANG_LIMIT) else { return std::future::pending().await };
            hangs.notified().await;
            tokio::time::sleep(limit).await;
        };
        let timed = async {
            tokio::select! {
                ended = tokio::time::timeout(step.deadline, work) => ended.ok(),
                () = given_up => None,
            }
        };
        let cancelled = async {
            if step.interruptible && !rollback {
                self.engine.cancel.requested().await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        let ended = tokio::select! {
            biased;
            ended = timed => ended,
            () = cancelled => return Err(Stopped::Cancelled),
        };
        if let Some(result) = ended {
            return result.map_err(Stopped::Failed);
        }
        let mut text = format!("it did not end within {} s", step.deadline.as_secs_f64());
        let last = note.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !last.is_empty() {
            text.push_str("; the last it said: ");
            text.push_str(&last);
        }
        Err(Stopped::Failed(StepError::new(text)))
    }

    fn context(&self, step: &'static str, last: &Arc<Mutex<String>>) -> StepContext {
        let observer = self.observer.clone();
        let last = last.clone();
        StepContext::new(move |text| {
            text.clone_into(&mut last.lock().unwrap_or_else(PoisonError::into_inner));
            observer.event(&Event::StepNote { step: step.to_owned(), text: text.to_owned() });
        })
    }

    async fn fail_at(&self, way: &str, step: &str, side: Side, hangs: &Notify) -> Result<(), StepError> {
        match self.engine.fail_points.at(way, step, side) {
            None => Ok(()),
            Some(Action::Error) => Err(StepError::new("the fail point of this step")),
            Some(Action::Hang) => {
                hangs.notify_one();
                std::future::pending().await
            }
            Some(Action::Crash) => failpoint::crash(),
        }
    }

    fn started(&self) {
        self.emit(&Event::OperationStarted {
            operation: self.operation.kind.to_owned(),
            attempt: self.record.attempt,
            from: self.operation.from.clone(),
            to: self.operation.to.clone(),
            steps: self.operation.steps.len(),
        });
    }

    fn finish(self, outcome: RunOutcome) -> Report {
        let time = self.engine.clock.monotonic().saturating_sub(self.began);
        let id = self.opened.then(|| self.record.id.clone());
        let report = Report { id, outcome, steps: self.steps, time };
        let (outcome, step) = report.ending();
        let rollback_errors = match &report.outcome {
            RunOutcome::RolledBack { rollback_errors, .. } => {
                rollback_errors.iter().map(|failure| report::line(failure)).collect()
            }
            _ => Vec::new(),
        };
        self.observer.event(&Event::OperationFinished {
            operation: self.operation.kind.to_owned(),
            outcome,
            step,
            rollback_errors,
            seconds: seconds(time),
        });
        report
    }

    fn emit(&self, event: &Event) {
        self.observer.event(event);
    }
}

fn journal_failed(error: JournalError) -> StepError {
    StepError::caused("the journal could not be written", error)
        .hint("see whether the file system of /var/lib is full or read-only")
}

/// Seconds to the millisecond: more is noise.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

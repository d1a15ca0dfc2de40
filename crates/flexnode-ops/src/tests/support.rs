//! A small node in memory, an operation of each kind on it, and an observer that writes down what it sees.

use crate::{Cancel, Engine, Event, Journal, Observer, Operation, Outcome, Recovery, Step, StepError};
use async_trait::async_trait;
use flexnode_host::testing::MemFs;
use flexnode_host::{Clock, Fs, FsError, durable};
use flexnode_model::journal::Writer;
use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const CURRENT: &str = "/node/current";
pub const RUNNING: &str = "/node/running";
pub const RECORD: &str = "/var/lib/aks-flex-node/journal/record.json";

/// A clock that moves a millisecond each time somebody looks.
#[derive(Debug, Default)]
pub struct Ticks(AtomicU64);

#[async_trait]
impl Clock for Ticks {
    fn now(&self) -> jiff::Timestamp {
        let millis = self.0.fetch_add(1, Ordering::SeqCst);
        jiff::Timestamp::from_millisecond(1_790_000_000_000 + i64::try_from(millis).unwrap()).unwrap()
    }
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.fetch_add(1, Ordering::SeqCst))
    }
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// What happened, in short words.
#[derive(Clone, Default)]
pub struct Seen(pub Arc<Mutex<Vec<String>>>);

impl Seen {
    pub fn push(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
    pub fn observer(&self) -> Arc<dyn Observer> {
        let seen = self.clone();
        Arc::new(move |event: &Event| seen.event(event))
    }
    fn event(&self, event: &Event) {
        self.push(match event {
            Event::OperationStarted { operation, attempt, .. } => format!("{operation} #{attempt}"),
            Event::StepStarted { step, rollback: false, .. } => format!("> {step}"),
            Event::StepStarted { step, rollback: true, .. } => format!("< {step}"),
            Event::StepNote { text, .. } => format!("note {text}"),
            Event::StepFinished { step, outcome, .. } => format!("{step} {outcome:?}"),
            Event::StepFailed { step, errors, .. } => format!("{step} failed: {}", errors.join(": ")),
            Event::Committed { step } => format!("committed at {step}"),
            Event::RollbackStarted { step, .. } => format!("back because of {step}"),
            Event::OperationFinished { outcome, step, .. } => {
                format!("end {outcome:?}{}", step.as_deref().map(|s| format!(" at {s}")).unwrap_or_default())
            }
        });
    }
}

/// A node whose version `old` runs.
pub fn node() -> MemFs {
    let fs = MemFs::new();
    fs.put_dir("/var/lib", 0o755).put_dir("/node/old", 0o755).put_link("old", CURRENT).put(RUNNING, "old", 0o644);
    fs
}

pub fn engine(fs: &MemFs, cancel: &Cancel) -> Engine {
    let by = Writer { boot_id: "boot-1".into(), pid: 42, owner: "command".into() };
    Engine::of_parts(Journal::new(Arc::new(fs.clone())), Arc::new(Ticks::default()), by, cancel.clone()).unwrap()
}

pub fn text(fs: &dyn Fs, path: &str) -> Option<String> {
    fs.read(Path::new(path), 1000).unwrap().map(|bytes| String::from_utf8(bytes).unwrap())
}

/// What runs, and what `current` names.
pub fn state(fs: &dyn Fs) -> (Option<String>, String) {
    (text(fs, RUNNING), fs.read_link(Path::new(CURRENT)).unwrap().display().to_string())
}

/// A step of a plain function that has a minute.
pub fn step<F, Fut>(name: &'static str, run: F) -> Step
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, StepError>> + Send + 'static,
{
    Step::new(name, format!("do {name}"), Duration::from_mins(1), move |_| run())
}

/// A step that does nothing.
pub fn idle(name: &'static str) -> Step {
    step(name, || async { Ok(Outcome::Unchanged) })
}

/// A step that fails.
pub fn failing(name: &'static str) -> Step {
    step(name, move || async move { Err(StepError::new(format!("{name} is broken")).hint("mend it")) })
}

/// A step that makes a durable change.
fn changing<F>(fs: &MemFs, name: &'static str, change: F) -> Step
where
    F: Fn(&dyn Fs) -> Result<durable::Change, FsError> + Clone + Send + Sync + 'static,
{
    let fs = fs.clone();
    step(name, move || {
        let (fs, change) = (fs.clone(), change.clone());
        async move {
            match change(&fs) {
                Ok(done) if done.made() => Ok(Outcome::Changed(name.into())),
                Ok(_) => Ok(Outcome::Unchanged),
                Err(error) => Err(StepError::caused(format!("cannot {name}"), error)),
            }
        }
    })
}

fn stop(fs: &MemFs, name: &'static str) -> Step {
    changing(fs, name, |fs| durable::remove_file(fs, Path::new(RUNNING)))
}

fn flip(fs: &MemFs, name: &'static str, to: &'static str) -> Step {
    changing(fs, name, move |fs| durable::replace_link(fs, Path::new(to), Path::new(CURRENT)))
}

/// Starts what `current` names.
fn start(fs: &MemFs, name: &'static str) -> Step {
    changing(fs, name, |fs| {
        let slot = fs.read_link(Path::new(CURRENT))?;
        durable::write(fs, Path::new(RUNNING), slot.as_os_str().as_encoded_bytes(), 0o644)
    })
}

/// From `old` to `new`, back from the stop on.
pub fn upgrade(fs: &MemFs) -> Operation {
    Operation {
        kind: "upgrade",
        goal: "1a2b3c4d".into(),
        from: Some("old".into()),
        to: Some("new".into()),
        steps: vec![
            idle("check").read_only(),
            changing(fs, "prepare", |fs| durable::ensure_dir(fs, Path::new("/node/new"), 0o755)),
            stop(fs, "stop").takes_down(),
            flip(fs, "flip", "new"),
            start(fs, "start"),
            idle("confirm"),
        ],
        recovery: Recovery::RollBack {
            since: "stop",
            steps: vec![stop(fs, "stop-new"), flip(fs, "flip-back", "old"), start(fs, "start-old")],
        },
    }
}

/// Stops, then starts again what `current` names.
pub fn restart(fs: &MemFs) -> Operation {
    Operation {
        kind: "restart",
        goal: String::new(),
        from: None,
        to: None,
        steps: vec![stop(fs, "stop").takes_down(), start(fs, "start")],
        recovery: Recovery::Resume,
    }
}

/// A resuming operation of these steps.
pub fn resuming(kind: &'static str, steps: Vec<Step>) -> Operation {
    Operation { kind, goal: String::new(), from: None, to: None, steps, recovery: Recovery::Resume }
}

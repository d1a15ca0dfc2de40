//! PID 1 over D-Bus (org.freedesktop.systemd1(5)).

mod bus;
mod private;
mod properties;

use crate::{Command, Commands, HostError, RealFs, Systemd, UnitState, UnitWatch, durable};
use async_trait::async_trait;
use bus::{Bus, JobEnd, ManagerProxy, Trouble};
use futures_util::StreamExt;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use zbus::OwnedObjectPath;

/// The deadline of a call that only asks or enqueues.
const CALL: Duration = Duration::from_secs(25);

/// The deadline of a daemon-reload.
const RELOAD: Duration = Duration::from_mins(1);

/// How often a job is asked for while its signal does not come.
const ASK: Duration = Duration::from_millis(500);

/// Bytes of a unit's journal that are kept.
const JOURNAL_MAX: usize = 64 * 1024;

/// PID 1 of this machine.
///
/// The connection is made at the first call, over the system bus, or over PID 1's own socket when there is no bus. When
/// it breaks, the next call makes another one.
#[derive(Debug)]
pub struct RealSystemd {
    commands: Arc<dyn Commands>,
    bus: Mutex<Option<Bus>>,
}

/// A kind of job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    Start,
    Stop,
    Restart,
}

impl Job {
    fn verb(self) -> &'static str {
        match self {
            Job::Start => "start",
            Job::Stop => "stop",
            Job::Restart => "restart",
        }
    }
}

impl RealSystemd {
    /// Not connected yet. `commands` runs journalctl.
    pub fn new(commands: Arc<dyn Commands>) -> Self {
        Self { commands, bus: Mutex::new(None) }
    }

    async fn bus(&self) -> Result<Bus, Trouble> {
        let mut kept = self.bus.lock().await;
        if let Some(bus) = kept.as_ref().filter(|bus| !bus.is_closed()) {
            return Ok(bus.clone());
        }
        let bus = Bus::connect().await?;
        *kept = Some(bus.clone());
        Ok(bus)
    }

    /// Calls with a deadline. When the connection turns out to be broken, once more over another one: all calls here
    /// say what is to be, so that a call that did arrive does no harm a second time.
    async fn call<T, F, Fut>(&self, what: &str, deadline: Duration, call: F) -> Result<T, Failure>
    where
        F: Fn(Bus) -> Fut,
        Fut: Future<Output = zbus::Result<T>>,
    {
        let end = Instant::now() + deadline;
        let late = || Failure::Host(HostError::Deadline { what: what.to_owned(), after: deadline });
        for last in [false, true] {
            let once = async { call(self.bus().await?).await.map_err(Trouble::from) };
            match timeout_at(end, once).await.map_err(|_| late())? {
                Ok(answer) => return Ok(answer),
                Err(Trouble::Broken(_)) if !last => *self.bus.lock().await = None,
                Err(trouble) => return Err(Failure::Bus(what.to_owned(), trouble)),
            }
        }
        Err(late())
    }

    /// Enqueues a job and waits until it is gone.
    async fn job(&self, job: Job, unit: &str, deadline: Duration) -> Result<(), HostError> {
        let what = format!("{} {unit}", job.verb());
        let end = Instant::now() + deadline;
        let late = || HostError::Deadline { what: what.clone(), after: deadline };
        // Before the job is made, so that its end cannot be missed.
        let mut ends = self.call(&what, deadline.min(CALL), |bus| async move { bus.job_ends().await }).await?;
        let enqueued =
            self.call(&what, deadline.min(CALL), |bus| async move { enqueue(&bus.manager, job, unit).await });
        let path = match enqueued.await {
            Ok(path) => path,
            Err(Failure::Bus(_, Trouble::NoSuchUnit(_))) if job == Job::Stop => return Ok(()),
            Err(Failure::Bus(_, Trouble::NoSuchUnit(_))) => {
                return Err(HostError::Absent { what: format!("unit {unit}") });
            }
            Err(other) => return Err(other.into()),
        };
        loop {
            let next = timeout_at(end.min(Instant::now() + ASK), ends.next()).await;
            if let Ok(Some(Ok(signal))) = &next
                && let Ok(ended) = JobEnd::read(signal)
                && ended.job == path
            {
                return self.judge(job, unit, Some(&ended.result)).await;
            }
            if matches!(next, Err(_) | Ok(None | Some(Err(_)))) {
                // No signal: it may be lost with the connection, so the unit itself is asked.
                if self.job_of(unit, &what).await? != Some(path.clone()) {
                    return self.judge(job, unit, None).await;
                }
                if matches!(next, Ok(None)) {
                    ends = self.call(&what, CALL, |bus| async move { bus.job_ends().await }).await?;
                }
            }
            if Instant::now() >= end {
                return Err(late());
            }
        }
    }

    /// The job that a unit has now.
    async fn job_of(&self, unit: &str, what: &str) -> Result<Option<OwnedObjectPath>, HostError> {
        let all = self.call(what, CALL, |bus| async move { bus.unit_properties(unit).await }).await?;
        Ok(properties::job(&all))
    }

    /// Whether a job that is gone reached what it was for: its result if that is known, and the unit's state.
    async fn judge(&self, job: Job, unit: &str, result: Option<&str>) -> Result<(), HostError> {
        let failed = |reason: String| HostError::Failed { what: format!("{} {unit}", job.verb()), reason };
        let state = self.unit(unit).await?;
        let described =
            || format!("{} ({}), result {}, status {}", state.active, state.sub, state.result, state.exit_status);
        match result {
            // `skipped`: nothing was to be done, for example because a condition does not hold.
            None | Some("done" | "skipped") => {}
            Some(result) => return Err(failed(format!("the job ended with {result:?}; the unit is {}", described()))),
        }
        let reached = match job {
            Job::Stop => !state.is_active() && state.active != "activating",
            Job::Start | Job::Restart => state.active != "failed" && state.sub != "auto-restart",
        };
        if reached { Ok(()) } else { Err(failed(format!("afterwards the unit is {}", described()))) }
    }

    async fn file_state(&self, unit: &str) -> Result<Option<String>, HostError> {
        let what = format!("ask for the file state of {unit}");
        let ask = self.call(&what, CALL, |bus| async move { bus.manager.get_unit_file_state(unit).await });
        absent_as_none(ask.await)
    }
}

async fn enqueue(manager: &ManagerProxy<'static>, job: Job, unit: &str) -> zbus::Result<OwnedObjectPath> {
    // systemd(1): `replace` takes the place of a job that is queued and contradicts.
    match job {
        Job::Start => manager.start_unit(unit, "replace").await,
        Job::Stop => manager.stop_unit(unit, "replace").await,
        Job::Restart => manager.restart_unit(unit, "replace").await,
    }
}

/// A call that failed.
enum Failure {
    Host(HostError),
    Bus(String, Trouble),
}

impl From<Failure> for HostError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Host(error) => error,
            Failure::Bus(what, trouble) => HostError::Failed { what, reason: trouble.to_string() },
        }
    }
}

/// `None` when the unit or its file does not exist.
fn absent_as_none<T>(answer: Result<T, Failure>) -> Result<Option<T>, HostError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Failure::Bus(_, Trouble::NoSuchUnit(_))) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

/// systemd makes and removes the links of `[Install]` without a sync; a node that is to start at boot has to do so also when
/// the power goes now.
fn sync_links(changes: &[bus::FileChange]) -> Result<(), HostError> {
    let fs = RealFs::host();
    for (_, path, _) in changes {
        durable::sync_name(&fs, Path::new(path))?;
    }
    Ok(())
}

#[async_trait]
impl Systemd for RealSystemd {
    async fn unit(&self, unit: &str) -> Result<UnitState, HostError> {
        let what = format!("query {unit}");
        let general = self.call(&what, CALL, |bus| async move { bus.unit_properties(unit).await }).await?;
        let service = if Path::new(unit).extension().is_some_and(|kind| kind == "service") {
            self.call(&what, CALL, |bus| async move { bus.service_properties(unit).await }).await?
        } else {
            std::collections::HashMap::new()
        };
        let mut state = properties::state(&general, &service);
        state.enabled = self.file_state(unit).await?.unwrap_or_default();
        Ok(state)
    }

    async fn start(&self, unit: &str, deadline: Duration) -> Result<(), HostError> {
        self.job(Job::Start, unit, deadline).await
    }

    async fn stop(&self, unit: &str, deadline: Duration) -> Result<(), HostError> {
        self.job(Job::Stop, unit, deadline).await
    }

    async fn restart(&self, unit: &str, deadline: Duration) -> Result<(), HostError> {
        self.job(Job::Restart, unit, deadline).await
    }

    async fn enable(&self, unit: &str) -> Result<(), HostError> {
        let absent = || HostError::Absent { what: format!("unit {unit}") };
        if self.file_state(unit).await?.ok_or_else(absent)? == "enabled" {
            return Ok(());
        }
        let what = format!("enable {unit}");
        let enable =
            self.call(&what, CALL, |bus| async move { bus.manager.enable_unit_files(&[unit], false, false).await });
        let (_, changes) = absent_as_none(enable.await)?.ok_or_else(absent)?;
        sync_links(&changes)
    }

    async fn disable(&self, unit: &str) -> Result<(), HostError> {
        let what = format!("disable {unit}");
        let disable = self.call(&what, CALL, |bus| async move { bus.manager.disable_unit_files(&[unit], false).await });
        sync_links(&absent_as_none(disable.await)?.unwrap_or_default())
    }

    async fn reload(&self) -> Result<(), HostError> {
        self.call("reload systemd", RELOAD, |bus| async move { bus.manager.reload().await }).await?;
        Ok(())
    }

    async fn reset_failed(&self, unit: &str) -> Result<(), HostError> {
        let what = format!("reset failed state of {unit}");
        let reset = self.call(&what, CALL, |bus| async move { bus.manager.reset_failed_unit(unit).await });
        absent_as_none(reset.await).map(drop)
    }

    async fn list(&self, patterns: &[&str]) -> Result<Vec<String>, HostError> {
        let what = format!("list units {}", patterns.join(" "));
        let units =
            self.call(&what, CALL, |bus| async move { bus.manager.list_units_by_patterns(&[], patterns).await });
        let units = units.await?;
        let files =
            self.call(&what, CALL, |bus| async move { bus.manager.list_unit_files_by_patterns(&[], patterns).await });
        let files = files.await?;
        // Names that another unit mentions are listed too; those that have no file and do nothing do not exist.
        let loaded = units.into_iter().filter(|unit| unit.2 != "not-found" || unit.3 != "inactive").map(|unit| unit.0);
        let installed =
            files.into_iter().filter_map(|(path, _)| Some(Path::new(&path).file_name()?.to_str()?.to_owned()));
        Ok(loaded.chain(installed).collect::<BTreeSet<String>>().into_iter().collect())
    }

    async fn last_lines(&self, unit: &str, lines: usize) -> Result<Vec<String>, HostError> {
        let args = [format!("--unit={unit}"), format!("--lines={lines}"), "--output=cat".to_owned()];
        let args = args.into_iter().chain(["--no-pager", "--quiet"].map(str::to_owned));
        let mut command = Command::new("journalctl", args).within(Duration::from_secs(10));
        command.max_output = JOURNAL_MAX;
        let output = self.commands.run(&command).await?.ok(&command)?;
        Ok(output.text().lines().map(str::to_owned).collect())
    }
}

#[async_trait]
impl UnitWatch for RealSystemd {
    async fn watch(&self, units: &[&str], tell: &(dyn Fn() + Send + Sync)) -> HostError {
        let begun = self.call("watch units", CALL, |bus| async move { bus.changes(units).await }).await;
        let mut changes = match begun {
            Ok(changes) => changes,
            Err(failure) => return failure.into(),
        };
        tell();
        while let Some(change) = changes.next().await {
            match change {
                Ok(_) => tell(),
                Err(e) => return HostError::Failed { what: "watch units".into(), reason: e.to_string() },
            }
        }
        HostError::Failed { what: "watch units".into(), reason: "the connection to systemd ended".into() }
    }
}

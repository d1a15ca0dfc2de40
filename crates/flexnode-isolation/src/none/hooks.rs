//! What the agent plugs into the backend. Every seam that is left unset does the safe thing: nothing.

use super::root::Root;
use super::units::UnitSpec;
use flexnode_host::{Command, Commands, Host, HostError, Output, Process, Processes};
use flexnode_ops::{Outcome, StepContext, StepError};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Work of the agent at one point of an operation, with the time that it may take. The default does nothing.
///
/// It is called again when an operation is resumed after a crash, so it has to be idempotent.
#[derive(Clone, Default)]
pub struct Hook(Option<Set>);

#[derive(Clone)]
struct Set {
    deadline: Duration,
    run: Arc<dyn Fn(StepContext) -> Boxed<Result<Outcome, StepError>> + Send + Sync>,
}

impl Hook {
    /// A hook that must return within `deadline`.
    pub fn new<F, Fut>(deadline: Duration, run: F) -> Self
    where
        F: Fn(StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, StepError>> + Send + 'static,
    {
        Self(Some(Set { deadline, run: Arc::new(move |cx| Box::pin(run(cx))) }))
    }

    /// Whether there is anything to do.
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// The time that it may take; nothing when it is not set.
    pub fn deadline(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |set| set.deadline)
    }

    /// Runs it.
    pub async fn call(&self, cx: StepContext) -> Result<Outcome, StepError> {
        match &self.0 {
            None => Ok(Outcome::Unchanged),
            Some(set) => (set.run)(cx).await,
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_set() { "Hook(set)" } else { "Hook(nothing)" })
    }
}

/// A file that an installer wrote, with the digest of the bytes as they went by: the slot's manifest need not read it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    /// Its host path.
    pub path: PathBuf,
    /// SHA-256 in lower-case hexadecimal digits.
    pub sha256: String,
    /// Bytes.
    pub size: u64,
}

/// What an installer did.
#[derive(Clone, Debug)]
pub struct Installed {
    /// How the step ended.
    pub outcome: Outcome,
    /// The files whose digests it knows. What is not among them is read when the version is sealed.
    pub files: Vec<WrittenFile>,
}

type Installer = dyn Fn(StepContext, Root) -> Boxed<Result<Installed, StepError>> + Send + Sync;

/// Places a version's artifacts and configuration through its root. The default installs nothing.
#[derive(Clone, Default)]
pub struct Install(Option<Arc<Installer>>);

impl Install {
    /// An installer that tells no digests.
    pub fn new<F, Fut>(run: F) -> Self
    where
        F: Fn(StepContext, Root) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, StepError>> + Send + 'static,
    {
        Self::hashing(move |cx, root| {
            let work = run(cx, root);
            async move { Ok(Installed { outcome: work.await?, files: Vec::new() }) }
        })
    }

    /// An installer that hashes what it writes.
    pub fn hashing<F, Fut>(run: F) -> Self
    where
        F: Fn(StepContext, Root) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Installed, StepError>> + Send + 'static,
    {
        Self(Some(Arc::new(move |cx, root| Box::pin(run(cx, root)))))
    }

    /// Runs it.
    pub async fn call(&self, cx: StepContext, root: Root) -> Result<Installed, StepError> {
        match &self.0 {
            None => Ok(Installed { outcome: Outcome::Unchanged, files: Vec::new() }),
            Some(run) => run(cx, root).await,
        }
    }
}

impl fmt::Debug for Install {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Install(set)" } else { "Install(nothing)" })
    }
}

/// Which units a rollback writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RollbackUnits {
    /// None: the unit files stay as they are, which is right when they were never rewritten.
    #[default]
    Keep,
    /// Those that the slot that is returned to recorded when it was prepared.
    Recorded,
    /// Those of this spec.
    Spec(UnitSpec),
}

type Running = dyn Fn(Command) -> Boxed<Result<Output, HostError>> + Send + Sync;

/// Runs a host command and returns what it wrote. A seam for tests; the default runs it for real through the host.
///
/// It serves [`Backend::exec`](super::Backend) and the journal. Units go through systemd's own interface.
#[derive(Clone, Default)]
pub struct Runner(Option<Arc<Running>>);

impl Runner {
    /// A runner of one's own.
    pub fn new<F, Fut>(run: F) -> Self
    where
        F: Fn(Command) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Output, HostError>> + Send + 'static,
    {
        Self(Some(Arc::new(move |command| Box::pin(run(command)))))
    }

    /// Runs `command`. A non-zero exit is not an error here.
    pub async fn run(&self, host: &dyn Commands, command: Command) -> Result<Output, HostError> {
        match &self.0 {
            None => host.run(&command).await,
            Some(run) => run(command).await,
        }
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Runner(own)" } else { "Runner(host)" })
    }
}

/// A command with bounded time and output.
pub(crate) fn command(argv: &[String], stdin: Vec<u8>, deadline: Duration) -> Option<Command> {
    let (program, rest) = argv.split_first()?;
    Some(Command {
        program: PathBuf::from(program),
        args: rest.to_vec(),
        env: BTreeMap::new(),
        stdin,
        deadline,
        max_output: 1 << 20,
    })
}

type Looking = dyn Fn(&str) -> Option<PathBuf> + Send + Sync;

/// Resolves host commands for the static preflight. The default skips the check.
#[derive(Clone, Default)]
pub struct LookPath(Option<Arc<Looking>>);

impl LookPath {
    /// A resolver.
    pub fn new(look: impl Fn(&str) -> Option<PathBuf> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(look)))
    }

    /// The PATH of the host.
    pub fn of(host: &Host) -> Self {
        let commands = host.commands.clone();
        Self::new(move |name| commands.look_path(name))
    }

    /// Those of `names` that cannot be resolved; none when the check is skipped.
    pub fn missing(&self, names: &[String]) -> Vec<String> {
        let Some(look) = &self.0 else { return Vec::new() };
        names.iter().filter(|name| look(name).is_none()).cloned().collect()
    }
}

impl fmt::Debug for LookPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "LookPath(set)" } else { "LookPath(skipped)" })
    }
}

/// SIGKILL (signal(7)).
const SIGKILL: i32 = 9;

type Killing = dyn Fn(&Process) -> Result<(), HostError> + Send + Sync;

/// Ends one process for reaping. The default sends SIGKILL through a pidfd, after comparing the start time.
#[derive(Clone, Default)]
pub struct Kill(Option<Arc<Killing>>);

impl Kill {
    /// A way of one's own, so that a test signals no process.
    pub fn new(kill: impl Fn(&Process) -> Result<(), HostError> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(kill)))
    }

    pub(crate) fn is_own(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn end(&self, processes: &dyn Processes, process: &Process) -> Result<(), HostError> {
        match &self.0 {
            None => processes.signal(process, SIGKILL).map(|_| ()),
            Some(kill) => kill(process),
        }
    }
}

impl fmt::Debug for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Kill(own)" } else { "Kill(SIGKILL)" })
    }
}

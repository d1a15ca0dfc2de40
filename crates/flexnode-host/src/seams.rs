//! The narrow traits for everything that is not a file.

mod network;

pub use network::{FilterPart, FilterTable, Filters, Link, Network, Route};

use async_trait::async_trait;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// One implementation of every seam. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Host {
    /// Files.
    pub fs: Arc<dyn crate::Fs>,
    /// Units and jobs of PID 1.
    pub systemd: Arc<dyn Systemd>,
    /// Programs.
    pub commands: Arc<dyn Commands>,
    /// Running processes.
    pub processes: Arc<dyn Processes>,
    /// Control groups.
    pub cgroups: Arc<dyn Cgroups>,
    /// The mount table of this process's namespace.
    pub mounts: Arc<dyn Mounts>,
    /// Links, network namespaces and packet filter chains.
    pub network: Arc<dyn Network>,
    /// Sysctls, modules, swap.
    pub kernel: Arc<dyn Kernel>,
    /// Wall clock, monotonic clock and waiting.
    pub clock: Arc<dyn Clock>,
}

/// A failure of one of the seams: what was tried, on what, and why it did not work.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The thing named is not there (unit, process, link, mount). Removing it again is a success for most callers.
    #[error("{what} does not exist")]
    Absent {
        /// For a person: `unit unbounded-kubelet.service`.
        what: String,
    },
    /// The deadline passed.
    #[error("{what} did not end within {} s", after.as_secs_f32())]
    Deadline {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
    },
    /// It was refused or failed.
    #[error("{what}: {reason}")]
    Failed {
        /// What was tried.
        what: String,
        /// What the system answered.
        reason: String,
    },
    /// A file of the system could not be read or written.
    #[error(transparent)]
    Fs(#[from] crate::FsError),
}

/// What systemd knows of one unit (org.freedesktop.systemd1.Unit and .Service).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitState {
    /// `loaded`, `not-found`, `masked`, `bad-setting`, `error`.
    pub load: String,
    /// `active`, `activating`, `deactivating`, `inactive`, `failed`, `reloading`.
    pub active: String,
    /// `running`, `dead`, `auto-restart`, ...
    pub sub: String,
    /// `enabled`, `disabled`, `masked`, `static`, or empty.
    pub enabled: String,
    /// The unit's own file, empty when there is none.
    pub fragment: PathBuf,
    /// Its drop-in files.
    pub drop_ins: Vec<PathBuf>,
    /// Whether the files on disk differ from what is loaded.
    pub need_reload: bool,
    /// PID of the main process; 0 when there is none.
    pub main_pid: u32,
    /// Automatic restarts so far.
    pub restarts: u32,
    /// `success`, `exit-code`, `signal`, `timeout`, ...
    pub result: String,
    /// Exit code or signal number of the last main process.
    pub exit_status: i32,
    /// When the unit entered its present active state: microseconds since the epoch; 0 when never.
    pub since_us: u64,
    /// argv of the first ExecStart as loaded.
    pub exec_start: Vec<String>,
    /// The `Environment=` entries as loaded.
    pub environment: Vec<String>,
    /// The unit's control group path, empty when it has none.
    pub control_group: String,
}

impl UnitState {
    /// A unit file (or generated unit) exists and is not masked.
    pub fn is_loaded(&self) -> bool {
        self.load == "loaded"
    }
    /// Systemd calls it active.
    pub fn is_active(&self) -> bool {
        self.active == "active" || self.active == "reloading"
    }
}

/// PID 1 over D-Bus. Every call has a deadline; a job is waited for by its JobRemoved signal, then by the unit's state.
#[async_trait]
pub trait Systemd: Send + Sync + Debug {
    /// What is known of `unit`. A unit that does not exist has `load == "not-found"`.
    async fn unit(&self, unit: &str) -> Result<UnitState, HostError>;
    /// Starts and waits for the job. `Absent` when there is no such unit.
    async fn start(&self, unit: &str, deadline: Duration) -> Result<(), HostError>;
    /// Stops and waits for the job. A unit that does not exist or is not active counts as stopped.
    async fn stop(&self, unit: &str, deadline: Duration) -> Result<(), HostError>;
    /// Restarts (starts when it was not active) and waits for the job.
    async fn restart(&self, unit: &str, deadline: Duration) -> Result<(), HostError>;
    /// Enables by the links of `[Install]`, durably; does nothing when it is enabled. Does not reload; until the next reload systemd
    /// says of every unit that it needs one.
    async fn enable(&self, unit: &str) -> Result<(), HostError>;
    /// Removes the links of `[Install]`, durably; a unit that does not exist counts as disabled. Does not reload.
    async fn disable(&self, unit: &str) -> Result<(), HostError>;
    /// `daemon-reload`.
    async fn reload(&self) -> Result<(), HostError>;
    /// Clears `failed`; a unit that is not loaded counts as clear.
    async fn reset_failed(&self, unit: &str) -> Result<(), HostError>;
    /// The names of the loaded or installed units that match one of the shell patterns.
    async fn list(&self, patterns: &[&str]) -> Result<Vec<String>, HostError>;
    /// The last journal lines of a unit, bounded in lines and bytes. For people and evidence only, never for decisions.
    async fn last_lines(&self, unit: &str, lines: usize) -> Result<Vec<String>, HostError>;
}

/// A program to run.
#[derive(Clone, Debug)]
pub struct Command {
    /// Absolute path, or a name looked up on the PATH of `env` or of this process.
    pub program: PathBuf,
    /// Its arguments. Never a secret.
    pub args: Vec<String>,
    /// Variables added to a clean environment (PATH, LANG=C only).
    pub env: BTreeMap<String, String>,
    /// What it gets on standard input.
    pub stdin: Vec<u8>,
    /// After this it is killed, its process group with it.
    pub deadline: Duration,
    /// Bytes kept of each output stream; what comes later is counted and dropped.
    pub max_output: usize,
}

/// How a program ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Kept bytes of standard output.
    pub stdout: Vec<u8>,
    /// Kept bytes of standard error.
    pub stderr: Vec<u8>,
}

/// Runs programs. The child dies with its parent.
#[async_trait]
pub trait Commands: Send + Sync + Debug {
    /// Runs to the end. A non-zero exit is not an error here; not being startable and the deadline are.
    async fn run(&self, command: &Command) -> Result<Output, HostError>;
    /// Where `name` is on the PATH.
    fn look_path(&self, name: &str) -> Option<PathBuf>;
}

/// A process, named so that a reused PID is not taken for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// PID in the namespace of the proc mount.
    pub pid: u32,
    /// Parent.
    pub ppid: u32,
    /// Start time in clock ticks since boot: with the PID, an identity.
    pub start_ticks: u64,
    /// `comm`.
    pub comm: String,
    /// argv, bounded.
    pub cmdline: Vec<String>,
    /// The text of /proc/PID/exe, ` (deleted)` included; empty for kernel threads and when it may not be read.
    pub exe: PathBuf,
    /// Device and inode behind /proc/PID/exe.
    pub exe_id: Option<(u64, u64)>,
    /// Inode of its mount namespace.
    pub mount_ns: u64,
    /// Control group lines of /proc/PID/cgroup: (controllers, path).
    pub cgroups: Vec<(String, String)>,
}

/// The process table.
#[async_trait]
pub trait Processes: Send + Sync + Debug {
    /// All processes. One that ends while it is read is left out.
    fn list(&self) -> Result<Vec<Process>, HostError>;
    /// One process, `None` when there is none.
    fn get(&self, pid: u32) -> Result<Option<Process>, HostError>;
    /// Signals exactly that process through a pidfd, after comparing its start time. `Ok(false)` when it is gone.
    fn signal(&self, process: &Process, signal: i32) -> Result<bool, HostError>;
    /// Waits through a pidfd until it is gone. `Ok(false)` when the deadline passed.
    async fn wait_gone(&self, process: &Process, deadline: Duration) -> Result<bool, HostError>;
    /// This process's mount namespace.
    fn own_mount_ns(&self) -> u64;
}

/// Which hierarchy the host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupVersion {
    /// Controllers on their own hierarchies (also the hybrid layout).
    V1,
    /// The unified hierarchy alone.
    V2,
}

/// Control groups below the host's own root.
#[async_trait]
pub trait Cgroups: Send + Sync + Debug {
    /// The version, `None` when no cgroup file system is mounted.
    fn version(&self) -> Option<CgroupVersion>;
    /// The groups whose path is `path` or lies below it, deepest first, relative to the root of each hierarchy.
    fn below(&self, path: &str) -> Result<Vec<String>, HostError>;
    /// The top-level groups (relative names).
    fn top(&self) -> Result<Vec<String>, HostError>;
    /// PIDs in the group in any hierarchy.
    fn pids(&self, path: &str) -> Result<Vec<u32>, HostError>;
    /// Ends everything in the group and below it: `cgroup.kill` on v2; freeze, kill, thaw on v1. Bounded.
    async fn kill(&self, path: &str, deadline: Duration) -> Result<(), HostError>;
    /// Lets whatever is frozen in the group and below it run again; whether anything was. A kill that was itself killed may
    /// leave a group frozen, and nothing that is put into it ever runs.
    fn thaw(&self, path: &str) -> Result<bool, HostError>;
    /// Removes the empty group and the empty ones below it in every hierarchy. Absent counts as removed.
    fn remove(&self, path: &str) -> Result<(), HostError>;
}

/// A line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    /// Mount ID.
    pub id: u64,
    /// Where, unescaped.
    pub path: PathBuf,
    /// File system type.
    pub kind: String,
    /// Source as the kernel tells it.
    pub source: String,
    /// Root within the file system.
    pub root: PathBuf,
    /// Read-only as a mount or as a file system.
    pub read_only: bool,
    /// `noexec` is set.
    pub no_exec: bool,
}

/// The mount table.
#[async_trait]
pub trait Mounts: Send + Sync + Debug {
    /// In the kernel's order: a later one covers an earlier one at the same path.
    fn list(&self) -> Result<Vec<MountPoint>, HostError>;
    /// Detaches the topmost mount at `path` without following links: plainly first, in a child with a limit of time, then
    /// lazily. `Absent` when nothing is mounted there.
    async fn unmount(&self, path: &std::path::Path, deadline: Duration) -> Result<(), HostError>;
}

/// A swap area in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapArea {
    /// Device or file.
    pub path: PathBuf,
    /// `partition` or `file`.
    pub kind: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Priority.
    pub priority: i32,
}

/// Kernel settings.
#[async_trait]
pub trait Kernel: Send + Sync + Debug {
    /// Host name of the kernel.
    fn host_name(&self) -> Result<String, HostError>;
    /// Identity of this boot.
    fn boot_id(&self) -> Result<String, HostError>;
    /// Release, as `uname -r`.
    fn release(&self) -> Result<String, HostError>;
    /// The value of `net.ipv4.ip_forward`-like key, trimmed; `None` when the kernel has no such key.
    fn sysctl(&self, key: &str) -> Result<Option<String>, HostError>;
    /// Sets it and reads it back.
    fn set_sysctl(&self, key: &str, value: &str) -> Result<(), HostError>;
    /// Whether a module's function is there: loaded, built in, or seen by its effect (file system type, sysctl directory).
    fn has_module(&self, module: &str) -> Result<bool, HostError>;
    /// Loads it (`modprobe`), then checks as [`Kernel::has_module`].
    async fn load_module(&self, module: &str) -> Result<(), HostError>;
    /// Active swap; empty when the kernel has none.
    fn swaps(&self) -> Result<Vec<SwapArea>, HostError>;
    /// Ends one swap area.
    async fn swap_off(&self, path: &std::path::Path) -> Result<(), HostError>;
    /// Begins one again.
    async fn swap_on(&self, path: &std::path::Path, priority: i32) -> Result<(), HostError>;
    /// Memory of the machine in bytes.
    fn memory_bytes(&self) -> Result<u64, HostError>;
    /// Processors that are online.
    fn cpus(&self) -> usize;
    /// `amd64` or `arm64` in Kubernetes's spelling.
    fn arch(&self) -> &'static str;
}

/// Time.
#[async_trait]
pub trait Clock: Send + Sync + Debug {
    /// Wall clock.
    fn now(&self) -> jiff::Timestamp;
    /// Monotonic time since an arbitrary start.
    fn monotonic(&self) -> Duration;
    /// Waits. Only [`poll`] and back-off use it.
    async fn sleep(&self, time: Duration);
}

/// The one polling helper: calls `probe` until it gives a value or the deadline passes.
///
/// Errors of `probe` end the wait at once; say `Ok(None)` for "not yet".
pub async fn poll<T, E, F, Fut>(
    clock: &dyn Clock,
    every: Duration,
    deadline: Duration,
    mut probe: F,
) -> Result<Option<T>, E>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Option<T>, E>>,
{
    let end = clock.monotonic() + deadline;
    loop {
        if let Some(value) = probe().await? {
            return Ok(Some(value));
        }
        let now = clock.monotonic();
        if now >= end {
            return Ok(None);
        }
        clock.sleep(every.min(end.saturating_sub(now))).await;
    }
}

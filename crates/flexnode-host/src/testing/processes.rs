//! A process table.

use super::{FakeClock, MemFs, locked};
use crate::{Fs, HostError, Process, Processes};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The inode of the mount namespace that the agent and, unless a test says otherwise, everybody is in.
const MOUNT_NS: u64 = 4_026_531_841;
const SIGKILL: i32 = 9;
/// Signals that do not end a process by default (signal(7)): 0, CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH.
const HARMLESS: [i32; 9] = [0, 17, 18, 19, 20, 21, 22, 23, 28];

/// A process table. Signals end processes as they do by default, unless a test says that one ignores them.
pub struct FakeProcesses {
    fs: Arc<MemFs>,
    clock: Arc<FakeClock>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    processes: BTreeMap<u32, Process>,
    ignores: BTreeSet<(u32, i32)>,
    signals: Vec<(u32, i32)>,
    started: u32,
}

impl fmt::Debug for FakeProcesses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeProcesses")
    }
}

impl FakeProcesses {
    /// Only PID 1. Programs are looked up in `fs`.
    pub fn new(fs: Arc<MemFs>, clock: Arc<FakeClock>) -> Self {
        let processes = Self { fs, clock, table: Mutex::default() };
        let init = processes.describe(1, Path::new("/usr/lib/systemd/systemd"), &["/sbin/init"]);
        processes.put(init);
        processes
    }

    fn describe(&self, pid: u32, exe: &Path, args: &[&str]) -> Process {
        let exe: PathBuf = self.fs.canonicalize(exe).unwrap_or_else(|_| exe.to_path_buf());
        let comm = exe.file_name().unwrap_or_default().to_string_lossy().chars().take(15).collect();
        Process {
            pid,
            ppid: u32::from(pid != 1),
            start_ticks: u64::from(pid) * 100,
            comm,
            cmdline: args.iter().map(ToString::to_string).collect(),
            exe_id: self.fs.stat(&exe).ok().flatten().map(|stat| (stat.dev, stat.ino)),
            exe,
            mount_ns: MOUNT_NS,
            cgroups: vec![(String::new(), "/".to_owned())],
        }
    }

    /// Starts a process with a new PID from 1001 on. Links to the program are resolved, as the kernel does. The first
    /// of `args` is its argv\[0\].
    pub fn spawn(&self, exe: impl AsRef<Path>, args: &[&str], cgroup: &str) -> Process {
        let pid = {
            let mut table = locked(&self.table);
            table.started += 1;
            1000 + table.started
        };
        let mut process = self.describe(pid, exe.as_ref(), args);
        process.cgroups = vec![(String::new(), format!("/{}", cgroup.trim_start_matches('/')))];
        self.put(process.clone());
        process
    }

    /// Puts a process there as it is, replacing one with its PID.
    pub fn put(&self, process: Process) {
        locked(&self.table).processes.insert(process.pid, process);
    }

    /// Changes one that runs.
    pub fn update(&self, pid: u32, change: impl FnOnce(&mut Process)) {
        if let Some(process) = locked(&self.table).processes.get_mut(&pid) {
            change(process);
        }
    }

    /// Lets one end by itself.
    pub fn end(&self, pid: u32) {
        locked(&self.table).processes.remove(&pid);
    }

    /// Whether a process with this PID runs.
    pub fn runs(&self, pid: u32) -> bool {
        locked(&self.table).processes.contains_key(&pid)
    }

    /// This process does not react to `signal`; with 9 it cannot be ended at all, as in uninterruptible sleep.
    pub fn ignore(&self, pid: u32, signal: i32) {
        locked(&self.table).ignores.insert((pid, signal));
    }

    /// The signals that were sent, in order.
    pub fn signals(&self) -> Vec<(u32, i32)> {
        locked(&self.table).signals.clone()
    }

    /// PIDs in exactly this control group.
    pub(super) fn in_cgroup(&self, path: &str) -> Vec<u32> {
        let here = |p: &&Process| p.cgroups.iter().any(|(_, group)| group.trim_start_matches('/') == path);
        locked(&self.table).processes.values().filter(here).map(|p| p.pid).collect()
    }

    /// Kills as the kernel does for a control group or a stopped unit; whether it is gone.
    pub(super) fn kill(&self, pid: u32) -> bool {
        let mut table = locked(&self.table);
        if !table.ignores.contains(&(pid, SIGKILL)) {
            table.processes.remove(&pid);
        }
        !table.processes.contains_key(&pid)
    }

    fn is_same(&self, process: &Process) -> bool {
        locked(&self.table).processes.get(&process.pid).is_some_and(|now| now.start_ticks == process.start_ticks)
    }
}

#[async_trait]
impl Processes for FakeProcesses {
    fn list(&self) -> Result<Vec<Process>, HostError> {
        Ok(locked(&self.table).processes.values().cloned().collect())
    }

    fn get(&self, pid: u32) -> Result<Option<Process>, HostError> {
        Ok(locked(&self.table).processes.get(&pid).cloned())
    }

    fn signal(&self, process: &Process, signal: i32) -> Result<bool, HostError> {
        if !self.is_same(process) {
            return Ok(false);
        }
        let mut table = locked(&self.table);
        table.signals.push((process.pid, signal));
        if !HARMLESS.contains(&signal) && !table.ignores.contains(&(process.pid, signal)) {
            table.processes.remove(&process.pid);
        }
        Ok(true)
    }

    async fn wait_gone(&self, process: &Process, deadline: Duration) -> Result<bool, HostError> {
        if !self.is_same(process) {
            return Ok(true);
        }
        self.clock.pass(deadline);
        tokio::task::yield_now().await;
        Ok(!self.is_same(process))
    }

    fn own_mount_ns(&self) -> u64 {
        MOUNT_NS
    }
}

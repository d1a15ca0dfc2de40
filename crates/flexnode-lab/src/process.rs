//! Processes by pid and start time, so that a pid that was given to another program is never signalled.

use crate::poll;
use anyhow::{Context as _, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::time::Duration;

/// One process of this machine, as `/proc` of the outer process namespace numbers it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Clock ticks between boot and its start (proc(5), stat field 22).
    pub start: u64,
}

impl Process {
    /// The process with this number now; `None` when there is none, or only a zombie.
    pub fn find(pid: i32) -> Option<Self> {
        let (state, start) = stat(pid)?;
        (state != 'Z' && state != 'X').then_some(Self { pid, start })
    }

    /// Whether it still runs. A zombie does not.
    pub fn alive(&self) -> bool {
        Self::find(self.pid).is_some_and(|now| now == *self)
    }

    /// Its children that run now.
    pub fn children(&self) -> Vec<Self> {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", self.pid)) else { return Vec::new() };
        let lists = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let pids: Vec<i32> =
            lists.flat_map(|list| list.split(' ').filter_map(|n| n.parse().ok()).collect::<Vec<_>>()).collect();
        pids.into_iter().filter_map(Self::find).collect()
    }

    /// Sends a signal, if the process still runs.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(()) };
        let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
        // The descriptor fixes the process; only now is it certain that the start time belongs to it.
        if !self.alive() {
            return Ok(());
        }
        match pidfd_send_signal(&descriptor, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(cause) => Err(cause).with_context(|| format!("cannot signal process {}", self.pid)),
        }
    }

    /// Waits until it has ended.
    pub fn wait_gone(&self, limit: Duration) -> Result<()> {
        poll(limit, Duration::from_millis(5), &format!("process {} to end", self.pid), || {
            Ok((!self.alive()).then_some(()))
        })
    }

    /// Ends it: politely first when `grace` is given, then with SIGKILL; returns when it is gone.
    pub fn end(&self, grace: Option<Duration>) -> Result<()> {
        if let Some(grace) = grace {
            self.signal(Signal::TERM)?;
            if self.wait_gone(grace).is_ok() {
                return Ok(());
            }
        }
        self.signal(Signal::KILL)?;
        self.wait_gone(Duration::from_secs(10))
    }
}

/// State letter and start time.
fn stat(pid: i32) -> Option<(char, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, and may hold both blanks and parentheses.
    let mut fields = text.get(text.rfind(')')? + 2..)?.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// The identity of this boot of the machine: pids and start times of another one mean nothing.
pub fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    Ok(std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?.trim().to_owned())
}

/// 32 random hex digits.
pub(crate) fn uuid() -> Result<String> {
    let path = "/proc/sys/kernel/random/uuid";
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    Ok(text.trim().replace('-', ""))
}

#[cfg(test)]
mod tests {
    use super::Process;
    use std::process::Command;

    #[test]
    fn ends_a_process_and_leaves_a_reused_pid_alone() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::find(child.id().cast_signed()).unwrap();
        let other = Process { start: process.start + 1, ..process.clone() };
        assert!(!other.alive());
        other.end(None).unwrap();
        assert!(process.alive());
        process.end(None).unwrap();
        assert!(!process.alive(), "a zombie does not run");
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn sees_children() {
        let own = Process::find(std::process::id().cast_signed()).unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let found = Process::find(child.id().cast_signed()).unwrap();
        assert!(own.children().contains(&found));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

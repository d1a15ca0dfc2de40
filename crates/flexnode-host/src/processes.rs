//! The process table, from /proc (proc(5)) and through pidfds (pidfd_open(2)).

use crate::{HostError, Process, Processes};
use async_trait::async_trait;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Bytes of a command line that are kept.
const CMDLINE_MAX: u64 = 32 * 1024;

/// The processes of the machine, as the proc mount of this process shows them.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealProcesses;

/// What is used of /proc/PID/stat.
#[derive(Debug, PartialEq, Eq)]
struct ProcStat {
    comm: String,
    ended: bool,
    ppid: u32,
    start_ticks: u64,
}

/// Parses /proc/PID/stat. The name in parentheses may hold anything, parentheses too.
fn parse_stat(text: &str) -> Option<ProcStat> {
    let (open, close) = (text.find('(')?, text.rfind(')')?);
    let fields: Vec<&str> = text.get(close + 1..)?.split_whitespace().collect();
    // The fields count from the state, which is number 3 in proc_pid_stat(5).
    let state = *fields.first()?;
    let threads: u64 = fields.get(17)?.parse().ok()?;
    Some(ProcStat {
        comm: text.get(open + 1..close)?.to_owned(),
        // A process whose first thread has ended is shown as a zombie, but its other threads go on.
        ended: matches!(state, "Z" | "X" | "x") && threads <= 1,
        ppid: fields.get(1)?.parse().ok()?,
        start_ticks: fields.get(19)?.parse().ok()?,
    })
}

fn stat(pid: u32) -> io::Result<ProcStat> {
    let text = String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat"))?).into_owned();
    parse_stat(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unexpected form of /proc/PID/stat"))
}

/// When a process started, in clock ticks since boot: with its PID, its identity.
pub(crate) fn start_ticks(pid: u32) -> io::Result<u64> {
    stat(pid).map(|stat| stat.start_ticks)
}

/// The inode number in `mnt:[4026531841]`.
fn namespace_inode(text: &str) -> Option<u64> {
    text.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

fn mount_ns(pid: &str) -> u64 {
    let link = fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap_or_default();
    namespace_inode(&link.to_string_lossy()).unwrap_or(0)
}

/// The lines of /proc/PID/cgroup as (controllers, path); the hierarchy's number says nothing (cgroups(7)).
fn parse_cgroups(text: &str) -> Vec<(String, String)> {
    let line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

pub(crate) fn cgroups_of(pid: u32) -> Vec<(String, String)> {
    let text = fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    parse_cgroups(&String::from_utf8_lossy(&text))
}

fn cmdline(pid: u32) -> Vec<String> {
    let mut bytes = Vec::new();
    if let Ok(file) = fs::File::open(format!("/proc/{pid}/cmdline")) {
        // A process may end while it is read; what was read then is not used.
        let _ = file.take(CMDLINE_MAX).read_to_end(&mut bytes);
    }
    let trimmed = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    if trimmed.is_empty() {
        return Vec::new();
    }
    trimmed.split(|byte| *byte == 0).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect()
}

/// Reads one process; `None` when it has ended, also while it was read.
fn read(pid: u32) -> io::Result<Option<Process>> {
    let gone =
        |e: &io::Error| e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(Errno::SRCH.raw_os_error());
    let before = match stat(pid) {
        Ok(stat) if stat.ended => return Ok(None),
        Ok(stat) => stat,
        Err(e) if gone(&e) => return Ok(None),
        Err(e) => return Err(e),
    };
    let exe = format!("/proc/{pid}/exe");
    let process = Process {
        pid,
        ppid: before.ppid,
        start_ticks: before.start_ticks,
        comm: before.comm,
        cmdline: cmdline(pid),
        exe: fs::read_link(&exe).unwrap_or_default(),
        exe_id: fs::metadata(&exe).ok().map(|meta| (meta.dev(), meta.ino())),
        mount_ns: mount_ns(&pid.to_string()),
        cgroups: cgroups_of(pid),
    };
    // All of it is of one process only if that is still there.
    let same = stat(pid).is_ok_and(|now| now.start_ticks == process.start_ticks && !now.ended);
    Ok(same.then_some(process))
}

fn failed(what: String, reason: impl std::fmt::Display) -> HostError {
    HostError::Failed { what, reason: reason.to_string() }
}

/// A descriptor of exactly this process; `None` when it is gone.
pub(crate) fn pidfd(process: &Process) -> Result<Option<OwnedFd>, HostError> {
    let what = || format!("open process {} ({})", process.pid, process.comm);
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::NONBLOCK) {
        // The number cannot be given to another process between the comparison and the use of the descriptor.
        Ok(fd) => Ok(start_ticks(process.pid).is_ok_and(|ticks| ticks == process.start_ticks).then_some(fd)),
        Err(Errno::SRCH | Errno::INVAL) => Ok(None),
        Err(e) => Err(failed(what(), e)),
    }
}

/// Waits until the process behind a pidfd has ended; whether it did before the deadline.
pub(crate) async fn ended(fd: OwnedFd, deadline: Duration) -> io::Result<bool> {
    let fd = crate::sys::readable(fd)?;
    match tokio::time::timeout(deadline, fd.readable()).await {
        Ok(ready) => ready.map(|_| true),
        Err(_) => Ok(false),
    }
}

#[async_trait]
impl Processes for RealProcesses {
    fn list(&self) -> Result<Vec<Process>, HostError> {
        let entries = fs::read_dir("/proc").map_err(|e| failed("list /proc".to_owned(), e))?;
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let mut all = Vec::new();
        for pid in pids {
            all.extend(self.get(pid)?);
        }
        all.sort_by_key(|process| process.pid);
        Ok(all)
    }

    fn get(&self, pid: u32) -> Result<Option<Process>, HostError> {
        read(pid).map_err(|e| failed(format!("read process {pid}"), e))
    }

    fn signal(&self, process: &Process, signal: i32) -> Result<bool, HostError> {
        let Some(fd) = pidfd(process)? else { return Ok(false) };
        if signal == 0 {
            return Ok(true);
        }
        let what = || format!("send signal {signal} to process {} ({})", process.pid, process.comm);
        let named = Signal::from_named_raw(signal).ok_or_else(|| failed(what(), "there is no such signal"))?;
        match pidfd_send_signal(&fd, named) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(e) => Err(failed(what(), e)),
        }
    }

    async fn wait_gone(&self, process: &Process, deadline: Duration) -> Result<bool, HostError> {
        let Some(fd) = pidfd(process)? else { return Ok(true) };
        ended(fd, deadline).await.map_err(|e| failed(format!("wait for process {}", process.pid), e))
    }

    fn own_mount_ns(&self) -> u64 {
        mount_ns("self")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    const SIGTERM: i32 = 15;

    fn sleeper() -> (Child, Process) {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = loop {
            // Until the exec is through it is still a copy of this test, and has its name before its arguments.
            match RealProcesses.get(child.id()).unwrap() {
                Some(process) if process.comm == "sleep" && !process.cmdline.is_empty() => break process,
                _ => std::thread::yield_now(),
            }
        };
        (child, process)
    }

    #[test]
    fn names_with_parentheses_do_not_confuse() {
        let text = "42 (a) (b (c) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 12345 1 2 3";
        let want = ProcStat { comm: "a) (b (c".to_owned(), ended: false, ppid: 1, start_ticks: 12345 };
        assert_eq!(parse_stat(text), Some(want));
        assert!(!parse_stat(&text.replace(" S ", " Z ")).unwrap().ended, "other threads run");
        assert!(parse_stat(&text.replace(" S ", " Z ").replace("0 3 0", "0 1 0")).unwrap().ended);
        for bad in ["", "1", "1 (a", "1 (a) S", ") ("] {
            assert_eq!(parse_stat(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn cgroup_lines_of_both_versions() {
        let v1 = "12:cpu,cpuacct:/kubepods/a:b\n1:name=systemd:/x\n0::/x\n";
        let want = [("cpu,cpuacct", "/kubepods/a:b"), ("name=systemd", "/x"), ("", "/x")];
        assert_eq!(parse_cgroups(v1), want.map(|(c, p)| (c.to_owned(), p.to_owned())));
        assert_eq!(namespace_inode("mnt:[4026531841]"), Some(4_026_531_841));
        assert_eq!(namespace_inode(""), None);
    }

    #[tokio::test]
    async fn a_process_is_seen_signalled_and_seen_gone() {
        let (mut child, process) = sleeper();
        assert_eq!(process.cmdline, ["sleep", "600"]);
        assert_eq!((process.ppid, process.mount_ns), (std::process::id(), RealProcesses.own_mount_ns()));
        let program = fs::metadata(&process.exe).unwrap();
        assert_eq!(process.exe_id, Some((program.dev(), program.ino())));
        assert!(!process.cgroups.is_empty());
        assert!(RealProcesses.list().unwrap().contains(&process));
        assert!(!RealProcesses.wait_gone(&process, Duration::from_millis(20)).await.unwrap());

        let reused = Process { start_ticks: process.start_ticks + 1, ..process.clone() };
        assert!(!RealProcesses.signal(&reused, SIGTERM).unwrap(), "another process with this PID is not hit");
        assert!(RealProcesses.wait_gone(&reused, Duration::from_secs(5)).await.unwrap());
        assert!(RealProcesses.signal(&process, 0).unwrap());
        assert!(RealProcesses.signal(&process, SIGTERM).unwrap());
        assert!(RealProcesses.wait_gone(&process, Duration::from_secs(5)).await.unwrap());
        assert_eq!(RealProcesses.get(process.pid).unwrap(), None, "a zombie has ended");
        child.wait().unwrap();
        assert!(!RealProcesses.signal(&process, SIGTERM).unwrap());
    }

    #[test]
    fn kernel_threads_and_strangers_are_no_error() {
        let all = RealProcesses.list().unwrap();
        assert!(all.windows(2).all(|pair| pair[0].pid < pair[1].pid));
        assert!(all.iter().any(|process| process.pid == 1));
        assert_eq!(RealProcesses.get(u32::MAX).unwrap(), None);
    }
}

//! Programs: a clean environment, a group of their own, a deadline, bounded output.

use crate::{Command, Commands, HostError, Output, sys};
use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::task::JoinSet;

/// The PATH when neither the command nor this process has one.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How long output is still read after the program has ended: something that it left behind may hold the pipes.
const DRAIN: Duration = Duration::from_secs(1);

/// How often a start is tried again while another process has the program's file open for writing.
const BUSY_TRIES: u32 = 20;

impl Command {
    /// A command without input; a minute of time, 1 MiB of each output.
    pub fn new(program: impl Into<PathBuf>, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: std::collections::BTreeMap::new(),
            stdin: Vec::new(),
            deadline: Duration::from_mins(1),
            max_output: 1 << 20,
        }
    }

    /// With this deadline.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// With this input.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// What is run, for a person: program and arguments, shortened.
    pub fn line(&self) -> String {
        let mut line = self.program.display().to_string();
        for arg in &self.args {
            line.push(' ');
            line.push_str(arg);
        }
        if line.len() > 200 {
            let end = (0..=200).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
            line.truncate(end);
            line.push_str(" ...");
        }
        line
    }
}

impl Output {
    /// Whether it exited with 0.
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// What a person is told of a failure: the end of standard error in one line, else how it exited.
    pub fn reason(&self) -> String {
        let stderr = String::from_utf8_lossy(&self.stderr);
        // Some tools underline the place with carets.
        let says = |line: &&str| line.chars().any(char::is_alphanumeric);
        let text = stderr.lines().map(str::trim).filter(says).collect::<Vec<_>>().join("; ");
        match self.code {
            _ if !text.is_empty() => text.chars().skip(text.chars().count().saturating_sub(300)).collect(),
            Some(code) => format!("exit code {code}"),
            None => "ended by a signal".to_owned(),
        }
    }

    /// The output, or an error that names `command` when it did not exit with 0.
    pub fn ok(self, command: &Command) -> Result<Self, HostError> {
        if self.success() {
            Ok(self)
        } else {
            Err(HostError::Failed { what: format!("run {}", command.line()), reason: self.reason() })
        }
    }
}

/// Runs programs of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealCommands;

/// The first executable regular file `name` on `path`.
fn look_on(path: &OsStr, name: &str) -> Option<PathBuf> {
    let runs = |file: &PathBuf| {
        std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(runs)
}

fn own_path() -> std::ffi::OsString {
    std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into())
}

/// Kills the whole group when it is dropped before the child was waited for.
struct Group(Option<Pid>);

impl Group {
    fn kill(&self) {
        if let Some(pid) = self.0 {
            // It may be gone already.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

type Kept = Arc<Mutex<Vec<u8>>>;

/// Reads to the end and keeps the first `max` bytes.
async fn keep(mut from: impl AsyncRead + Unpin, kept: Kept, max: usize) {
    let mut chunk = vec![0; 16 * 1024];
    while let Ok(n @ 1..) = from.read(&mut chunk).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let room = max.saturating_sub(kept.len()).min(n);
        kept.extend_from_slice(&chunk[..room]);
    }
}

fn taken(kept: &Kept) -> Vec<u8> {
    std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner))
}

fn failed(command: &Command, reason: impl std::fmt::Display) -> HostError {
    HostError::Failed { what: format!("run {}", command.line()), reason: reason.to_string() }
}

async fn spawn(command: &Command, program: &Path, path: &OsStr) -> Result<Child, HostError> {
    let mut process = tokio::process::Command::new(program);
    process.args(&command.args).env_clear().env("PATH", path).env("LANG", "C").envs(&command.env).current_dir("/");
    process.stdin(if command.stdin.is_empty() { Stdio::null() } else { Stdio::piped() });
    process.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    sys::die_with_parent(&mut process);
    let mut tries = 0;
    loop {
        match process.spawn() {
            // Another thread's fork may hold the file, which was just written, until its exec.
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            other => return other.map_err(|e| failed(command, e)),
        }
    }
}

#[async_trait]
impl Commands for RealCommands {
    async fn run(&self, command: &Command) -> Result<Output, HostError> {
        let path = command.env.get("PATH").map_or_else(own_path, Into::into);
        let program = match command.program.to_str() {
            Some(name) if !name.contains('/') => {
                let what = || HostError::Absent { what: format!("program {name} on the PATH") };
                look_on(&path, name).ok_or_else(what)?
            }
            _ => command.program.clone(),
        };
        let mut child = spawn(command, &program, &path).await?;
        let mut group = Group(child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())));

        let (stdout, stderr) = (Kept::default(), Kept::default());
        let mut pipes = JoinSet::new();
        if let Some(mut stdin) = child.stdin.take() {
            let input = command.stdin.clone();
            // A program need not read all of its input.
            pipes.spawn(async move { drop(stdin.write_all(&input).await) });
        }
        if let Some(out) = child.stdout.take() {
            pipes.spawn(keep(out, stdout.clone(), command.max_output));
        }
        if let Some(err) = child.stderr.take() {
            pipes.spawn(keep(err, stderr.clone(), command.max_output));
        }

        let Ok(status) = tokio::time::timeout(command.deadline, child.wait()).await else {
            group.kill();
            // What sits in uninterruptible sleep is left to the kernel.
            let _ = tokio::time::timeout(DRAIN, child.wait()).await;
            return Err(HostError::Deadline { what: command.line(), after: command.deadline });
        };
        // From here on the number may belong to another group.
        group.0 = None;
        let status: ExitStatus = status.map_err(|e| failed(command, e))?;
        let _ = tokio::time::timeout(DRAIN, async { while pipes.join_next().await.is_some() {} }).await;
        Ok(Output { code: status.code(), stdout: taken(&stdout), stderr: taken(&stderr) })
    }

    fn look_path(&self, name: &str) -> Option<PathBuf> {
        look_on(&own_path(), name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn sh(script: &str) -> Command {
        Command::new("sh", ["-c", script])
    }

    #[tokio::test]
    async fn output_and_exit_code_are_kept_apart() {
        let output = RealCommands.run(&sh("cat; echo err >&2; exit 3").input("in")).await.unwrap();
        assert_eq!(output, Output { code: Some(3), stdout: b"in".to_vec(), stderr: b"err\n".to_vec() });
        assert_eq!(output.reason(), "err");
        assert!(output.ok(&sh("x")).unwrap_err().to_string().starts_with("run sh -c x: err"));
        assert_eq!(RealCommands.run(&sh("kill -9 $$")).await.unwrap().code, None);
    }

    #[tokio::test]
    async fn the_environment_is_clean() {
        let mut command = Command::new("env", [""; 0]);
        command.env.insert("EXTRA".to_owned(), "1".to_owned());
        let text = RealCommands.run(&command).await.unwrap().text();
        let mut names: Vec<&str> = text.lines().filter_map(|line| line.split('=').next()).collect();
        names.sort_unstable();
        assert_eq!(names, ["EXTRA", "LANG", "PATH"]);
    }

    #[tokio::test]
    async fn output_is_bounded_and_the_rest_is_read() {
        let mut command = sh("head -c 300000 /dev/zero; echo end >&2");
        command.max_output = 1000;
        let output = RealCommands.run(&command).await.unwrap();
        assert_eq!((output.code, output.stdout.len(), output.stderr), (Some(0), 1000, b"end\n".to_vec()));
    }

    #[tokio::test]
    async fn the_deadline_ends_the_whole_group() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let script = format!("sleep 600 & echo $! > {0}; echo $$ >> {0}; wait", pids.display());
        let error = RealCommands.run(&sh(&script).within(Duration::from_millis(500))).await.unwrap_err();
        assert!(matches!(error, HostError::Deadline { .. }), "{error}");
        for pid in std::fs::read_to_string(&pids).unwrap().lines() {
            let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // The grandchild is reaped by whoever is its new parent; dead is enough.
            while !(state().is_empty() || state().contains(") Z")) {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn a_dropped_run_ends_the_group() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let script = format!("sleep 600 & echo $! > {0}; wait", pids.display());
        let command = sh(&script);
        let mut run = Box::pin(RealCommands.run(&command));
        let pid = loop {
            let _ = tokio::time::timeout(Duration::from_millis(10), &mut run).await;
            match std::fs::read_to_string(&pids) {
                Ok(pid) if pid.ends_with('\n') => break pid.trim().to_owned(),
                _ => {}
            }
        };
        drop(run);
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        while !(state().is_empty() || state().contains(") Z")) {
            tokio::task::yield_now().await;
        }
    }

    const PID_FILE: &str = "FLEXNODE_TEST_PID_FILE";

    #[tokio::test]
    #[ignore = "needs the_child_dies_with_its_parent, which runs it in a process of its own"]
    async fn holds_a_child() {
        let file = std::env::var(PID_FILE).unwrap();
        let _ = RealCommands.run(&sh(&format!("echo $$ > {file}; exec sleep 600"))).await;
    }

    #[test]
    fn the_child_dies_with_its_parent() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let mut parent = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "commands::tests::holds_a_child", "--ignored"])
            .env(PID_FILE, &file)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let child = loop {
            match std::fs::read_to_string(&file) {
                Ok(pid) if pid.ends_with('\n') => break pid.trim().to_owned(),
                _ => std::thread::yield_now(),
            }
        };
        // SIGKILL: the parent cannot do anything about it.
        parent.kill().unwrap();
        parent.wait().unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        while !(state().is_empty() || state().contains(") Z")) {
            std::thread::yield_now();
        }
    }

    #[tokio::test]
    async fn something_left_behind_does_not_hold_the_answer() {
        let started = Instant::now();
        let output = RealCommands.run(&sh("echo done; sleep 30 & exit 0")).await.unwrap();
        assert_eq!(output.text(), "done\n");
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[tokio::test]
    async fn what_cannot_start_is_named() {
        let absent = RealCommands.run(&Command::new("no-such-program", [""; 0])).await.unwrap_err();
        assert!(matches!(&absent, HostError::Absent { what } if what.contains("no-such-program")), "{absent}");
        let error = RealCommands.run(&Command::new("/etc/passwd", ["x"])).await.unwrap_err();
        assert!(error.to_string().starts_with("run /etc/passwd x: "), "{error}");
        assert_eq!(RealCommands.look_path("no-such-program"), None);
        assert!(RealCommands.look_path("sh").is_some_and(|path| path.is_absolute()));
    }
}

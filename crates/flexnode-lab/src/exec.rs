//! Commands and files in a host.

use crate::host::{Host, JOIN};
use crate::poll;
use crate::process::Process;
use crate::run::{Input, Output, Running, Stream, run_with};
use anyhow::{Context as _, Result};
use rustix::process::Signal;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a command in a host may take when nothing else is said.
pub const LIMIT: Duration = Duration::from_secs(600);
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Host {
    /// Runs a command in the host as root, however it ends.
    pub fn exec(&self, words: &[&str]) -> Result<Output> {
        self.exec_streaming(words, |_, _| ())
    }

    /// Runs a command; `each` sees each piece of output when it comes.
    pub fn exec_streaming(&self, words: &[&str], each: impl FnMut(Stream, &[u8])) -> Result<Output> {
        run_with(&mut self.command(words), Input::Empty, LIMIT, each)
    }

    /// Runs a command with something to read.
    pub fn exec_with(&self, words: &[&str], input: &[u8]) -> Result<Output> {
        run_with(&mut self.command(words), Input::Bytes(input), LIMIT, |_, _| ())
    }

    /// Runs a shell script.
    pub fn sh(&self, script: &str) -> Result<Output> {
        self.exec(&["sh", "-c", script])
    }

    /// Starts a command that the caller will signal or wait for.
    pub fn spawn(&self, words: &[&str]) -> Result<Spawned> {
        let running = Running::start(&mut self.command(words), Input::Empty)?;
        Ok(Spawned { running })
    }

    /// The command of the outer machine that runs words in the host: in all of its namespaces, in a control group of
    /// its own, with a plain environment. Standard streams are the caller's to set.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", JOIN, "sh"]).args(self.cgroups().iter().map(|group| group.join("lab")));
        command.args(["--", "nsenter", "-t", &self.leader.pid.to_string(), "-a", "--"]).args(words);
        command.env_clear().env("PATH", PATH).env("HOME", "/root").env("LANG", "C.UTF-8").current_dir("/");
        if let Some(terminal) = std::env::var_os("TERM") {
            command.env("TERM", terminal);
        }
        command
    }

    /// Writes a file with this mode, and the directories above it; replaces what is there by a rename.
    pub fn put(&self, path: &str, bytes: impl AsRef<[u8]>, mode: u32) -> Result<()> {
        self.write(path, Input::Bytes(bytes.as_ref()), mode)
    }

    /// Copies a file of the outer machine into the host.
    pub fn copy_in(&self, from: &Path, to: &str, mode: u32) -> Result<()> {
        let file = File::open(from).with_context(|| format!("cannot open {}", from.display()))?;
        self.write(to, Input::File(file), mode)
    }

    fn write(&self, path: &str, input: Input<'_>, mode: u32) -> Result<()> {
        let script = "umask 022 && mkdir -p \"$(dirname \"$1\")\" && cat >\"$1.lab-new\" && chmod \"$2\" \"$1.lab-new\" && mv -fT \"$1.lab-new\" \"$1\"";
        let mode = format!("{mode:o}");
        let output = run_with(&mut self.command(&["sh", "-c", script, "sh", path, &mode]), input, LIMIT, |_, _| ())?;
        output.success().with_context(|| format!("cannot write {path} in host {}", self.name()))?;
        Ok(())
    }

    /// The text of a file.
    pub fn read(&self, path: &str) -> Result<String> {
        let output = self.exec(&["cat", "--", path])?.success();
        Ok(output.with_context(|| format!("cannot read {path} in host {}", self.name()))?.stdout)
    }

    /// Where the outer machine sees a path of the host, as the host's first process has it mounted. Absolute links below
    /// it are followed in the outer machine: look at a link itself, or read through [`Host::read`].
    pub fn path(&self, path: &str) -> PathBuf {
        Path::new("/proc").join(self.leader.pid.to_string()).join("root").join(path.trim_start_matches('/'))
    }

    /// Kills a process by the number that it has in the host.
    pub fn kill(&self, pid: u32) -> Result<()> {
        self.exec(&["kill", "-KILL", &pid.to_string()])?.success()?;
        Ok(())
    }

    /// Waits until a unit is in a state: `active`, `failed`, …
    pub fn wait_unit(&self, unit: &str, state: &str, limit: Duration) -> Result<()> {
        poll(limit, Duration::from_millis(50), &format!("{unit} to be {state}"), || {
            Ok((self.exec(&["systemctl", "is-active", unit])?.stdout.trim() == state).then_some(()))
        })
    }
}

/// A command that runs in a host. It is killed when this is dropped before its end.
#[derive(Debug)]
pub struct Spawned {
    running: Running,
}

impl Spawned {
    /// The command's own process, as the outer machine numbers it. Waits until it is there.
    pub fn process(&self) -> Result<Process> {
        let outer = self.running.process().context("the command ended already")?;
        poll(Duration::from_secs(10), Duration::from_millis(1), "the command to start", || Ok(outer.children().pop()))
    }

    /// Sends a signal to the command itself.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process()?.signal(signal)
    }

    /// Ends it with SIGKILL, and gives what it said until then.
    pub fn kill(self) -> Result<Output> {
        self.signal(Signal::KILL)?;
        self.wait(Duration::from_secs(20))
    }

    /// Waits for its end.
    pub fn wait(self, limit: Duration) -> Result<Output> {
        self.running.wait(limit)
    }

    /// Waits for its end; `each` sees each piece of output when it comes.
    pub fn wait_with(self, limit: Duration, each: impl FnMut(Stream, &[u8])) -> Result<Output> {
        self.running.wait_with(limit, each)
    }
}

//! Programs that give scripted answers.

use super::{FakeClock, locked};
use crate::{Command, Commands, HostError, Output};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

type Answer = dyn Fn(&Command) -> Result<Output, HostError> + Send + Sync;

/// Runs nothing: answers as scripted and logs. A command that no script covers fails to start.
pub struct FakeCommands {
    clock: Arc<FakeClock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    scripts: Vec<Script>,
    on_path: BTreeMap<String, PathBuf>,
    log: Vec<Command>,
}

struct Script {
    program: String,
    args: Vec<String>,
    /// How often it still answers; `None` for always.
    left: Option<usize>,
    answer: Arc<Answer>,
}

impl Script {
    fn covers(&self, command: &Command) -> bool {
        let program = Path::new(&self.program);
        let same = program == command.program || Some(program.as_os_str()) == command.program.file_name();
        same && self.left != Some(0) && command.args.starts_with(&self.args)
    }
}

impl fmt::Debug for FakeCommands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeCommands")
    }
}

impl FakeCommands {
    /// No scripts, nothing on the PATH.
    pub fn new(clock: Arc<FakeClock>) -> Self {
        Self { clock, state: Mutex::default() }
    }

    fn add(&self, program: &str, args: &[&str], left: Option<usize>, answer: Arc<Answer>) -> &Self {
        let args = args.iter().map(ToString::to_string).collect();
        locked(&self.state).scripts.push(Script { program: program.to_owned(), args, left, answer });
        self
    }

    /// `program` (a path, or its last component) called with arguments that begin with `args` always prints this and
    /// exits with 0. A later script goes before an earlier one.
    pub fn answer(&self, program: &str, args: &[&str], stdout: &str) -> &Self {
        self.exit(program, args, 0, stdout, "")
    }

    /// As [`FakeCommands::answer`], with everything of the outcome.
    pub fn exit(&self, program: &str, args: &[&str], code: i32, stdout: &str, stderr: &str) -> &Self {
        let output = Output { code: Some(code), stdout: stdout.into(), stderr: stderr.into() };
        self.add(program, args, None, Arc::new(move |_| Ok(output.clone())))
    }

    /// The next such call, once, ends like this; then the scripts before count again.
    pub fn exit_once(&self, program: &str, args: &[&str], code: i32, stdout: &str, stderr: &str) -> &Self {
        let output = Output { code: Some(code), stdout: stdout.into(), stderr: stderr.into() };
        self.add(program, args, Some(1), Arc::new(move |_| Ok(output.clone())))
    }

    /// Computes the answer, for programs with effects: close over another fake.
    pub fn answer_with(
        &self,
        program: &str,
        args: &[&str],
        answer: impl Fn(&Command) -> Result<Output, HostError> + Send + Sync + 'static,
    ) -> &Self {
        self.add(program, args, None, Arc::new(answer))
    }

    /// Such a call never ends: the deadline fires, and the clock has moved by it.
    pub fn hang(&self, program: &str, args: &[&str]) -> &Self {
        let clock = self.clock.clone();
        self.answer_with(program, args, move |command| {
            clock.pass(command.deadline);
            Err(HostError::Deadline { what: command.program.display().to_string(), after: command.deadline })
        })
    }

    /// Lets [`Commands::look_path`] find `name` there.
    pub fn on_path(&self, name: &str, path: impl AsRef<Path>) -> &Self {
        locked(&self.state).on_path.insert(name.to_owned(), path.as_ref().to_path_buf());
        self
    }

    /// Every command so far.
    pub fn log(&self) -> Vec<Command> {
        locked(&self.state).log.clone()
    }

    /// Every command so far as `program arg arg`.
    pub fn lines(&self) -> Vec<String> {
        let line = |c: &Command| {
            std::iter::once(c.program.display().to_string()).chain(c.args.clone()).collect::<Vec<_>>().join(" ")
        };
        locked(&self.state).log.iter().map(line).collect()
    }

    /// Empties the log.
    pub fn clear_log(&self) -> &Self {
        locked(&self.state).log.clear();
        self
    }
}

#[async_trait]
impl Commands for FakeCommands {
    async fn run(&self, command: &Command) -> Result<Output, HostError> {
        let answer = {
            let mut state = locked(&self.state);
            state.log.push(command.clone());
            let found = state.scripts.iter_mut().rev().find(|script| script.covers(command));
            found.map(|script| {
                script.left = script.left.map(|left| left - 1);
                script.answer.clone()
            })
        };
        let Some(answer) = answer else {
            return Err(HostError::Failed {
                what: format!("run {} {}", command.program.display(), command.args.join(" ")),
                reason: "no such program: FakeCommands has no script for it".to_owned(),
            });
        };
        let mut output = answer(command)?;
        output.stdout.truncate(command.max_output);
        output.stderr.truncate(command.max_output);
        Ok(output)
    }

    fn look_path(&self, name: &str) -> Option<PathBuf> {
        locked(&self.state).on_path.get(name).cloned()
    }
}

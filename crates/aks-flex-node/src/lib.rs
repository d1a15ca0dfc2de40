//! The command line of the agent, thin: it parses, calls, prints.
//!
//! [`run`] is the whole program, so that tests call it in process with their own streams and host. Results go to standard
//! output, everything for people goes to standard error. Exit codes are in [`exit::Exit`]. Commands that only print
//! (`version`, `completion`, help) build no runtime and touch nothing.

pub mod cli;
mod commands;
pub mod exit;
pub mod failure;
pub mod logging;
pub mod progress;
mod session;
pub mod signals;
pub mod terminal;
pub mod version;

use clap::Parser;
use clap::error::ErrorKind;
use cli::{Cli, Command};
use exit::Exit;
use failure::Failure;
use flexnode_host::Host;
use std::ffi::OsString;
use std::process::ExitCode;
use terminal::Terminal;

/// What the program gets from outside besides its arguments.
#[derive(Debug)]
pub struct Env {
    /// Its streams.
    pub terminal: Terminal,
    /// The host; `None` means this machine.
    pub host: Option<Host>,
    /// Whether it may change the host.
    pub is_root: bool,
}

impl Env {
    /// That of this process.
    pub fn of_process() -> Self {
        Self { terminal: Terminal::of_process(), host: None, is_root: rustix::process::geteuid().is_root() }
    }
}

/// Runs the program. The first of `args` is its own name.
pub fn run<I>(args: I, env: Env) -> ExitCode
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    exit_of(args, env).into()
}

/// As [`run`]; the exit code as a word.
pub fn exit_of<I>(args: I, mut env: Env) -> Exit
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, &env.terminal),
    };
    if !matches!(cli.command, Command::Daemon(_)) {
        logging::begin(cli.log_level.unwrap_or(cli::LogLevel::Warn).into());
    }
    let events = cli.command.tells_events();
    let ended = commands::run(cli, &mut env);
    if let Err(failure) = &ended {
        env.terminal.err.write(&terminal::error_text(&failure.layers, &failure.hints));
    }
    let (exit, layers, hints) = match &ended {
        Ok(exit) => (*exit, &[][..], &[][..]),
        Err(Failure { exit, layers, hints }) => (*exit, &layers[..], &hints[..]),
    };
    if events {
        let line = progress::json::finished(exit.code(), layers, hints, jiff::Timestamp::now());
        env.terminal.out.line(&line);
    }
    exit
}

/// Help and version go to standard output and end well; anything else is a mistake of the person.
fn usage(error: &clap::Error, terminal: &Terminal) -> Exit {
    let (stream, exit) = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => (&terminal.out, Exit::Done),
        _ => (&terminal.err, Exit::Usage),
    };
    let text = error.render();
    stream.write(&if stream.is_terminal { text.ansi().to_string() } else { text.to_string() });
    exit
}

#[cfg(test)]
mod tests;

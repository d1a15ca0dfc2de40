//! One module per command. Each returns an exit code, or what is to be said.

mod bundle;
mod daemon;
mod healthz;
mod lifecycle;
mod metrics;
mod plan;
mod reset;
mod rollback;
mod slots;
mod start;
mod status;
mod upgrade;

use crate::cli::{Cli, Command};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Env, version};
use flexnode_daemon::operations::lifecycle::Lifecycle;

/// Runs the command.
pub(crate) fn run(cli: Cli, env: &mut Env) -> Result<Exit, Failure> {
    match cli.command {
        Command::Version => {
            env.terminal.out.write(&version::text());
            Ok(Exit::Done)
        }
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut crate::cli::command(), "aks-flex-node", &mut script);
            env.terminal.out.write(&String::from_utf8_lossy(&script));
            Ok(Exit::Done)
        }
        Command::Start(args) => start::run(&args, env),
        Command::Status(args) => status::run(&args, env),
        Command::Healthz(args) => Ok(healthz::run(&args, env)),
        Command::Metrics => metrics::run(env),
        Command::Upgrade(args) => upgrade::run(&args, env),
        Command::Rollback(args) => rollback::run(&args, env),
        Command::Restart(args) => lifecycle::run(Lifecycle::Restart, &args, env),
        Command::Stop(args) => lifecycle::run(Lifecycle::Stop, &args, env),
        Command::StartNode(args) => lifecycle::run(Lifecycle::Start, &args, env),
        Command::Slots(command) => slots::run(&command, env),
        Command::Reset(args) => reset::run(&args, env),
        Command::Daemon(args) => daemon::run(&args, cli.log_level, env),
        Command::Plan(args) => plan::run(&args, env),
        Command::Bundle(args) => bundle::run(*args, env),
    }
}

//! `cargo xtask lab`: thin commands on the crate flexnode-lab.

use anyhow::Result;
use clap::Subcommand;
use flexnode_lab::prerequisites;
use std::process::ExitCode;

/// Arguments of `cargo xtask lab`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install what the lab needs on this machine
    Prerequisites,
}

/// Runs one command of the lab; its exit code is the program's.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Prerequisites => prerequisites::ensure()?,
    }
    Ok(ExitCode::SUCCESS)
}

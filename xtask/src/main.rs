//! The project's own commands. Thin: the work is in the crates.

mod lab;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The commands of this project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A control plane and systemd hosts on this machine, to look into
    Lab(lab::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Lab(args) => lab::run(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

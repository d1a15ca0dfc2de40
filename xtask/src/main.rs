//! The project's own commands. Thin: the work is in the crates.

mod bench;
mod contract;
mod demo;
mod dist;
mod docs;
mod lab;
mod test;
mod torture;

use clap::{Parser, Subcommand};
use std::path::Path;
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
    /// The main job, for real: a control plane, a systemd host, start, Ready, a pod, status, reset
    Demo(demo::Args),
    /// A control plane and systemd hosts on this machine, to look into
    Lab(lab::Args),
    /// Checks that every item of the contract documents exists and is proven
    Contract {
        /// Lists the open rows
        #[arg(long)]
        open: bool,
    },
    /// Generate man pages, completions and the configuration's schema
    Docs {
        /// Only check that what is checked in is not stale
        #[arg(long)]
        check: bool,
    },
    /// Build the release: static, stripped, symbols beside it
    Dist,
    /// Measure, against a baseline in the same run
    Bench(bench::Args),
    /// Power cuts by the thousand
    Torture(torture::Args),
    /// Does all set-up and runs every check and test that this machine can run
    Test(test::Args),
}

/// The exit code of a program that ended by Ctrl-C, as shells tell it.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Lab(args) => lab::run(args),
        Command::Contract { open } => contract::run(root(), open).map(|()| ExitCode::SUCCESS),
        Command::Docs { check } => docs::run(root(), check).map(|()| ExitCode::SUCCESS),
        Command::Dist => dist::run(root()),
        Command::Bench(args) => bench::run(root(), &args),
        Command::Torture(args) => torture::run(root(), &args),
        Command::Test(args) => Ok(test::run(root(), &args)),
    };
    result.unwrap_or_else(|error| {
        // What was under way when a person pressed Ctrl-C is no news to them.
        if flexnode_lab::interrupt::pending() {
            eprintln!("interrupted");
            return ExitCode::from(INTERRUPTED);
        }
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// The project's root: the folder above this crate's.
fn root() -> &'static Path {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir.parent().unwrap_or(crate_dir)
}

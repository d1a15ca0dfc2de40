//! `cargo xtask lab`: thin commands on the crate flexnode-lab.

use anyhow::Result;
use clap::Subcommand;
use flexnode_lab::packages::Suite;
use flexnode_lab::{artifacts, interrupt, kubernetes, prerequisites};
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
    /// Make all that a node is made of, in two versions, and print where it is
    Artifacts,
}

/// Runs one command of the lab; its exit code is the program's.
pub fn run(args: Args) -> Result<ExitCode> {
    interrupt::install()?;
    match args.command {
        Command::Prerequisites => prerequisites::ensure()?,
        Command::Artifacts => make_artifacts()?,
    }
    Ok(ExitCode::SUCCESS)
}

fn make_artifacts() -> Result<()> {
    prerequisites::ensure()?;
    for (version, suite) in [(kubernetes::OLD, Suite::Trixie), (kubernetes::NEW, Suite::Forky)] {
        println!("{:#?}", artifacts::artifacts(version, suite)?);
    }
    Ok(())
}

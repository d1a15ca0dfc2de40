//! `cargo xtask lab`: thin commands on the crate flexnode-lab.

use anyhow::{Context as _, Result};
use clap::Subcommand;
use flexnode_lab::packages::Suite;
use flexnode_lab::{
    ControlPlane, Host, Lab, agent_binary, artifacts, control_plane, interrupt, kubernetes, lab, node, prerequisites,
    run,
};
use std::process::ExitCode;
use std::time::Instant;

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
    /// Bring up a control plane; it stays until `down`
    Up,
    /// Boot a systemd host in the lab that is up
    Host {
        /// Its name: small letters, digits, dashes
        name: String,
    },
    /// Run a command in a host
    Exec {
        /// The host
        name: String,
        /// The command; `sh` when none is given
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Run kubectl as the cluster's administrator
    Kubectl {
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build the agent and all that a node is made of, in two versions, pack bundles, and print where they are
    Artifacts,
    /// Remove the lab: hosts, control plane, network
    Down,
}

/// Runs one command of the lab; its exit code is the program's.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Exec { name, command } => return exec(&name, &command),
        Command::Kubectl { arguments } => return kubectl(&arguments),
        _ => interrupt::install()?,
    }
    match args.command {
        Command::Prerequisites => prerequisites::ensure()?,
        Command::Up => up()?,
        Command::Host { name } => host(&name)?,
        Command::Artifacts => make_artifacts()?,
        Command::Down => lab::down()?,
        Command::Exec { .. } | Command::Kubectl { .. } => (),
    }
    Ok(ExitCode::SUCCESS)
}

fn up() -> Result<()> {
    if let Some(lab) = Lab::open()? {
        println!("a lab is up already: {}", ControlPlane::open(&lab)?.server());
        return Ok(());
    }
    let lab = Lab::new()?;
    let started = Instant::now();
    let control_plane = ControlPlane::new(&lab, &control_plane::Options::default())?;
    lab.keep()?;
    println!("control plane up in {:.1} s", started.elapsed().as_secs_f32());
    println!("server: {}\ntoken: {}", control_plane.server(), control_plane.token()?);
    println!("next: cargo xtask lab host NAME, lab kubectl get nodes, lab down");
    Ok(())
}

fn host(name: &str) -> Result<()> {
    let lab = open()?;
    let started = Instant::now();
    let host = Host::new(&lab, name)?;
    println!("host {name} at {} up in {:.1} s", host.address(), started.elapsed().as_secs_f32());
    Ok(())
}

fn exec(name: &str, command: &[String]) -> Result<ExitCode> {
    let host = Host::open(&open()?, name)?;
    let words: Vec<&str> = if command.is_empty() { vec!["sh"] } else { command.iter().map(String::as_str).collect() };
    status(&mut host.command(&words))
}

fn kubectl(arguments: &[String]) -> Result<ExitCode> {
    let control_plane = ControlPlane::open(&open()?)?;
    status(control_plane.kubectl_command().args(arguments))
}

fn status(command: &mut std::process::Command) -> Result<ExitCode> {
    let code = run::code(command.status().with_context(|| run::describe(command))?);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

fn open() -> Result<Lab> {
    Lab::open()?.context("no lab is up: start one with `cargo xtask lab up`")
}

fn make_artifacts() -> Result<()> {
    prerequisites::ensure()?;
    let agent = agent_binary(&[])?;
    println!("agent: {}", agent.display());
    for (version, suite) in [(kubernetes::OLD, Suite::Trixie), (kubernetes::NEW, Suite::Forky)] {
        println!("{:#?}", artifacts::artifacts(version, suite)?);
        println!("packed as a bundle: {}", node::bundle(&agent, version, suite)?.display());
    }
    Ok(())
}

//! `cargo xtask torture`: power cuts by the thousand.
//!
//! On the model the disk is in memory and keeps, drops or reorders what was not synced as POSIX allows. Otherwise the disk
//! is that of a machine, recorded while a node started, was upgraded, went back, restarted and was reset. A case is a
//! number, so a run is told by its first case and how many there were.

use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Arguments of `cargo xtask torture`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// On the model of a disk, every operation of the agent on fakes of everything else
    #[arg(long)]
    model: bool,
    /// How many power cuts on the model
    #[arg(long, default_value_t = 100_000)]
    cuts: u64,
    /// How many states of a recorded disk; the recording is made when there is none of this program
    #[arg(long, conflicts_with = "model")]
    states: Option<u64>,
    /// How many of these states are booted and have to become Ready
    #[arg(long, default_value_t = 0, requires = "states")]
    boot: u64,
    /// Where results add up, a line for each run; in the lab's cache when none is given
    #[arg(long, requires = "states")]
    results: Option<PathBuf>,
    /// The control: a recording of an agent that leaves out this sync (a name of `flexnode_host::durable`, or `all`), in
    /// which a fault has to be found
    #[arg(long, requires = "states")]
    leave_out: Option<String>,
    /// The first case; the following ones are counted up from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only operations whose name contains this
    #[arg(long, default_value = "")]
    only: String,
}

/// The crates whose code runs in the inner loop.
const HOT: [&str; 9] = ["host", "model", "ops", "isolation", "stack", "status", "artifacts", "kube", "daemon"];

/// Runs the cases. A case that fails is told with its smallest history, and is in the exit code.
pub fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    if let Some(states) = args.states {
        let results = match &args.results {
            Some(file) => std::path::absolute(file)?,
            None => flexnode_lab::cache::dir()?.join("torture-results.jsonl"),
        };
        let run = Real { states, seed: args.seed, boot: args.boot, results: Some(&results) };
        let good = real(root, &run, args.leave_out.as_deref(), &root.join("target/torture-told.txt"))?;
        return Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if !args.model {
        bail!("say what is tortured: --states N for a recorded disk, --model for the model of one");
    }
    let began = Instant::now();
    let good = model(root, args.cuts, args.seed, &args.only)?;
    println!("seed {}, {} cuts, {} s with the build", args.seed, args.cuts, began.elapsed().as_secs());
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the search on the model; whether all was well.
pub fn model(root: &Path, cuts: u64, seed: u64, only: &str) -> Result<bool> {
    let status = Command::new(env!("CARGO"))
        .args(command())
        .env("FLEXNODE_CUTS", cuts.to_string())
        .env("FLEXNODE_SEED", seed.to_string())
        .env("FLEXNODE_ONLY", only)
        .current_dir(root)
        .status()
        .context("cargo")?;
    Ok(status.success())
}

/// A run over states of a recorded disk.
#[derive(Clone, Copy, Debug)]
pub struct Real<'a> {
    /// How many.
    pub states: u64,
    /// The first case.
    pub seed: u64,
    /// How many are booted.
    pub boot: u64,
    /// The file in which results add up; none: they are told only.
    pub results: Option<&'a Path>,
}

/// Runs it, or the control when a sync is left out; whether all was well.
/// A line for the end of all goes to the file `told`.
pub fn real(root: &Path, run: &Real<'_>, leave_out: Option<&str>, told: &Path) -> Result<bool> {
    if let Some(why) = flexnode_lab::prerequisites::missing_for_machine() {
        bail!("no disk can be recorded on this machine: {why}");
    }
    let mut command = Command::new(env!("CARGO"));
    command.args(real_command(leave_out.is_some())).current_dir(root);
    command.env("FLEXNODE_STATES", run.states.to_string()).env("FLEXNODE_SEED", run.seed.to_string());
    command.env("FLEXNODE_BOOT", run.boot.to_string());
    command.env("FLEXNODE_RESULTS", run.results.unwrap_or(Path::new("")));
    command.env("FLEXNODE_LEAVE_OUT_SYNC", leave_out.unwrap_or_default());
    command.env("FLEXNODE_REPORT", told);
    Ok(command.status().context("cargo")?.success())
}

/// As [`command`], the tests of recorded disks.
fn real_command(control: bool) -> Vec<String> {
    let name = if control { "a_recorded_agent_that_leaves" } else { "a_real_disk_after" };
    let mut words = command();
    words.pop();
    words.extend(["--ignored".to_owned(), name.to_owned()]);
    words
}

/// The test of the search, with this project's own crates optimized and the dependencies as every test has them: a build of
/// a minute instead of ten, and hardly slower.
fn command() -> Vec<String> {
    let mut words = vec!["test".to_owned()];
    for name in HOT {
        words.extend(["--config".to_owned(), format!("profile.dev.package.flexnode-{name}.opt-level=2")]);
    }
    let rest = ["-p", "flexnode-daemon", "--test", "power_cut", "--", "--nocapture", "after_a_power_cut"];
    words.extend(rest.map(str::to_owned));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_and_the_test_are_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for name in HOT {
            assert!(root.join(format!("crates/flexnode-{name}/Cargo.toml")).exists(), "{name}");
        }
        let test = std::fs::read_to_string(root.join("crates/flexnode-daemon/tests/power_cut/main.rs")).unwrap();
        let name = command().pop().unwrap();
        assert!(test.contains(&format!("fn {name}")), "no test is named {name}");
        for setting in ["FLEXNODE_CUTS", "FLEXNODE_SEED", "FLEXNODE_ONLY"] {
            assert!(test.contains(setting), "{setting} is not read");
        }
        let real = std::fs::read_to_string(root.join("crates/flexnode-daemon/tests/power_cut/real.rs")).unwrap();
        for name in [false, true].map(|control| real_command(control).pop().unwrap()) {
            assert!(real.contains(&format!("fn {name}")), "no test is named {name}");
        }
        for part in ["STATES", "SEED", "BOOT", "RESULTS", "LEAVE_OUT_SYNC"] {
            assert!(real.contains(&format!("FLEXNODE_{part}\"")), "FLEXNODE_{part} is not read");
        }
    }
}

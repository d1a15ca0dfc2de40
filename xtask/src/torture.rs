//! `cargo xtask torture`: power cuts by the thousand.
//!
//! On the model the disk is in memory and keeps, drops or reorders what was not synced as POSIX allows. A case is a number,
//! so a run is told by its first case and how many there were.

use anyhow::{Context as _, Result, bail};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Arguments of `cargo xtask torture`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// On the model of a disk, every operation of the agent on fakes of everything else
    #[arg(long)]
    model: bool,
    /// How many power cuts
    #[arg(long, default_value_t = 100_000)]
    cuts: u64,
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
    if !args.model {
        bail!("only the model of a disk can be tortured so far: --model");
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
    }
}

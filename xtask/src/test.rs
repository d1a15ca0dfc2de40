//! `cargo xtask test`: all set-up, then every rung of the test ladder that this machine can run.
//!
//! Every phase runs even when an earlier one failed, so that one run tells everything; the last lines say what ran, what
//! failed, and what was left out and why.

use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Arguments of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Everything: also the long suites
    #[arg(long)]
    all: bool,
    /// Only these phases: checks, unit, system, machine
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only tests whose name contains this (system tests)
    #[arg(long, default_value = "")]
    filter: String,
    /// Seed with which the crash suites choose their points
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Power cuts that a run of all tests makes on the model.
const POWER_CUTS: u64 = 10_000;

/// How one phase ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed(String),
    LeftOut(String),
}

struct Phase {
    name: &'static str,
    verdict: Verdict,
    took: Duration,
}

/// Runs the phases and prints the summary.
/// A failing phase is in the exit code.
pub fn run(root: &Path, args: &Args) -> ExitCode {
    // What an earlier run told is not of this one.
    let _ = std::fs::remove_file(told(root));
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|o| o == name);
    let mut phases = Vec::new();
    let mut phase = |name: &'static str, group: &str, run: &dyn Fn() -> Result<Verdict>| {
        if !wanted(group) {
            return;
        }
        println!("\n==> {name}");
        let begin = Instant::now();
        let verdict = run().unwrap_or_else(|e| Verdict::Failed(format!("{e:#}")));
        phases.push(Phase { name, verdict, took: begin.elapsed() });
    };
    phase("format", "checks", &|| cargo(root, &["fmt", "--all", "--check"], &[]));
    phase("lints", "checks", &|| {
        cargo(root, &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"], &[])
    });
    phase("documentation", "checks", &|| {
        cargo(root, &["doc", "--workspace", "--no-deps", "--quiet"], &[("RUSTDOCFLAGS", "-D warnings")])
    });
    phase("dependencies", "checks", &|| deny(root));
    phase("generated reference", "checks", &|| crate::docs::run(root, true).map(|()| Verdict::Passed));
    phase("rungs 1 and 2: unit, property and conformance tests", "unit", &|| {
        cargo(root, &["test", "--workspace"], &[])
    });
    phase("power cuts on the model of a disk", "unit", &|| {
        if !args.all {
            return Ok(Verdict::LeftOut(
                "`cargo xtask torture --model` runs it; the unit tests make a hundred cuts".into(),
            ));
        }
        let good = crate::torture::model(root, POWER_CUTS, 1, "")?;
        Ok(if good { Verdict::Passed } else { Verdict::Failed("a power cut left a host without a version".into()) })
    });
    phase("contract", "unit", &|| crate::contract::run(root, false).map(|()| Verdict::Passed));
    phase("rungs 3 and 4: systemd hosts and a cluster", "system", &|| system(root, args));
    phase("rung 5: a machine with a kernel of its own", "machine", &|| machine(root, args));
    println!("\n{}", summary(&phases));
    print!("{}", std::fs::read_to_string(told(root)).unwrap_or_default());
    if !args.all {
        println!("\n{ONLY_WITH_ALL}");
    }
    let failed = phases.iter().any(|p| matches!(p.verdict, Verdict::Failed(_)));
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn cargo(root: &Path, args: &[&str], env: &[(&str, &str)]) -> Result<Verdict> {
    let status =
        Command::new(env!("CARGO")).args(args).envs(env.iter().copied()).current_dir(root).status().context("cargo")?;
    Ok(if status.success() { Verdict::Passed } else { Verdict::Failed(format!("cargo {} failed", args.join(" "))) })
}

/// cargo-deny, built once from its crate into the cache.
fn deny(root: &Path) -> Result<Verdict> {
    const VERSION: &str = "0.20.2";
    let tools: PathBuf = flexnode_lab::cache::dir()?.join(format!("cargo-deny-{VERSION}"));
    let program = tools.join("bin/cargo-deny");
    if !program.exists() {
        println!("installing cargo-deny {VERSION}");
        let dir = tools.to_string_lossy();
        if let Verdict::Failed(why) =
            cargo(root, &["install", "--quiet", "--locked", "--root", &dir, &format!("cargo-deny@{VERSION}")], &[])?
        {
            return Ok(Verdict::Failed(why));
        }
    }
    // Advisories need their database; they are checked where it can be fetched (`cargo deny check advisories`).
    let status = Command::new(program).args(["check", "bans", "licenses", "sources"]).current_dir(root).status()?;
    Ok(if status.success() { Verdict::Passed } else { Verdict::Failed("cargo deny found something".into()) })
}

fn system(root: &Path, args: &Args) -> Result<Verdict> {
    if let Some(why) = flexnode_lab::prerequisites::missing() {
        return Ok(Verdict::LeftOut(why));
    }
    let suites = suites(root)?;
    let suites: Vec<&str> = suites.iter().filter(|name| *name != MACHINE).map(String::as_str).collect();
    // Two at once: the tests wait for real programs most of the time, and the machine has few processors.
    system_tests(root, args, &suites, "--test-threads=2")
}

fn machine(root: &Path, args: &Args) -> Result<Verdict> {
    if !args.all && !args.only.iter().any(|only| only == "machine") {
        return Ok(Verdict::LeftOut("an emulated machine takes some minutes: `cargo xtask test --all` runs it".into()));
    }
    if let Some(why) = flexnode_lab::prerequisites::missing_for_machine() {
        return Ok(Verdict::LeftOut(why));
    }
    // An emulated machine uses all the processors that there are.
    system_tests(root, args, &[MACHINE], "--test-threads=1")
}

/// The file of the tests that need a machine.
const MACHINE: &str = "machine";

/// The names of the files of system tests.
fn suites(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("crates/system-tests/tests");
    let files = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let files = files.flatten().map(|file| file.path()).filter(|path| path.extension().is_some_and(|e| e == "rs"));
    let mut names: Vec<String> = files.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    names.sort_unstable();
    Ok(names)
}

/// What is slow, and shown in part by the rest.
const ONLY_WITH_ALL: &str = "left to `cargo xtask test --all`: the machine (rung 5), and four fifths of the points of the \
     crash suites that are no crash before a step";

/// Where system tests put the lines that are to be seen at the end: seeds and numbers of points.
fn told(root: &Path) -> PathBuf {
    root.join("target/system-tests-told.txt")
}

fn system_tests(root: &Path, args: &Args, suites: &[&str], threads: &str) -> Result<Verdict> {
    // The whole workspace's choice of features, with which all is built already.
    let mut command = vec!["test", "--workspace"];
    for suite in suites {
        command.extend(["--test", suite]);
    }
    command.extend(["--", "--ignored", threads]);
    if !args.filter.is_empty() {
        command.push(&args.filter);
    }
    let seed = args.seed.to_string();
    println!("the points of the crash suites are chosen by --seed {seed}");
    let (told, all) = (told(root), if args.all { "1" } else { "" });
    let settings = [("FLEXNODE_TEST_ALL", all), ("FLEXNODE_SEED", &seed), ("FLEXNODE_REPORT", &told.to_string_lossy())];
    cargo(root, &command, &settings)
}

fn summary(phases: &[Phase]) -> String {
    let mut out = String::new();
    for Phase { name, verdict, took } in phases {
        let line = match verdict {
            Verdict::Passed => format!("passed    {name}"),
            Verdict::Failed(why) => format!("FAILED    {name}: {why}"),
            Verdict::LeftOut(why) => format!("left out  {name}: {why}"),
        };
        let _ = writeln!(out, "{line} ({} s)", took.as_secs());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_a_file_of_its_own() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let names = suites(root).unwrap();
        assert!(names.len() > 1 && names.iter().any(|name| name == MACHINE), "{names:?}");
    }

    #[test]
    fn the_summary_names_what_ran_failed_and_was_left_out() {
        let phase = |name, verdict| Phase { name, verdict, took: Duration::from_secs(2) };
        let phases = [
            phase("one", Verdict::Passed),
            phase("two", Verdict::Failed("broke".into())),
            phase("three", Verdict::LeftOut("no root".into())),
        ];
        assert_eq!(
            summary(&phases),
            "passed    one (2 s)\nFAILED    two: broke (2 s)\nleft out  three: no root (2 s)\n"
        );
    }
}

//! `cargo xtask test`: all set-up, then every rung of the test ladder that this machine can run.
//!
//! Every phase runs even when an earlier one failed, so that one run tells everything; the last lines say what ran, what
//! failed, and what was left out and why.

mod lanes;

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
    phase("rung 5: power cuts on a recorded disk", "machine", &|| power_cuts(root, args));
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
    system_tests(root, args, LANES, "--test-threads=2", |name| name != MACHINE)
}

fn machine(root: &Path, args: &Args) -> Result<Verdict> {
    if !args.all && !args.only.iter().any(|only| only == "machine") {
        return Ok(Verdict::LeftOut("an emulated machine takes some minutes: `cargo xtask test --all` runs it".into()));
    }
    if let Some(why) = flexnode_lab::prerequisites::missing_for_machine() {
        return Ok(Verdict::LeftOut(why));
    }
    // An emulated machine uses all the processors that there are.
    system_tests(root, args, 1, "--test-threads=1", |name| name == MACHINE)
}

/// States of a recorded disk that a run of all tests checks.
const STATES: u64 = 36;

fn power_cuts(root: &Path, args: &Args) -> Result<Verdict> {
    if !args.all && !args.only.iter().any(|only| only == "machine") {
        return Ok(Verdict::LeftOut(
            "the recording takes some minutes: `cargo xtask torture --states 36` runs it".into(),
        ));
    }
    if let Some(why) = flexnode_lab::prerequisites::missing_for_machine() {
        return Ok(Verdict::LeftOut(why));
    }
    let run = crate::torture::Real { states: STATES, seed: args.seed, boot: 1, results: None };
    let good = crate::torture::real(root, &run, None, &told(root))?;
    Ok(if good { Verdict::Passed } else { Verdict::Failed("a power cut left a disk without a version".into()) })
}

/// The file of the tests that need a machine.
const MACHINE: &str = "machine";

/// Files of system tests that run at once; most of the time they wait for real programs. A third one makes two processors so
/// busy that all of them take longer.
const LANES: usize = 2;

/// The files of system tests that take longest, in this order.
const LONG: [&str; 5] = ["bad_versions", "crash", "start_and_reset", "upgrade", "recovery"];

/// The package of the system tests.
const SYSTEM_TESTS: &str = "system-tests";

/// What is slow, and shown in part by the rest.
const ONLY_WITH_ALL: &str = "left to `cargo xtask test --all`: the machine (rung 5), and four fifths of the points of the \
     crash suites that are no crash before a step";

/// Where system tests put the lines that are to be seen at the end: seeds and numbers of points.
fn told(root: &Path) -> PathBuf {
    root.join("target/system-tests-told.txt")
}

/// The files of system tests with these names, several at once, as `--all`, `--seed` and `--filter` say.
fn system_tests(
    root: &Path,
    args: &Args,
    at_once: usize,
    threads: &str,
    wanted: impl Fn(&str) -> bool,
) -> Result<Verdict> {
    // The whole workspace's choice of features, with which all is built already.
    let built = crate::contract::build(root, &["test", "--no-run"])?;
    let programs = built.iter().filter_map(crate::contract::test_program);
    let suites = programs.filter_map(|(name, program)| {
        let name = name.strip_prefix(SYSTEM_TESTS)?.strip_prefix("::")?.to_owned();
        wanted(&name).then(|| lanes::Suite { name, program: program.into() })
    });
    let suites = lanes::longest_first(suites.collect(), &LONG);
    anyhow::ensure!(!suites.is_empty(), "cargo built no system tests");
    let mut arguments = vec!["--ignored", threads];
    arguments.extend((!args.filter.is_empty()).then_some(args.filter.as_str()));
    let seed = args.seed.to_string();
    println!("the points of the crash suites are chosen by --seed {seed}");
    let (told, all) = (told(root), if args.all { "1" } else { "" });
    let settings = lanes::Settings {
        folder: &root.join("crates").join(SYSTEM_TESTS),
        outputs: &root.join("target/system-tests"),
        arguments: &arguments,
        environment: &[
            ("FLEXNODE_TEST_ALL", all),
            ("FLEXNODE_SEED", &seed),
            ("FLEXNODE_REPORT", &told.to_string_lossy()),
        ],
    };
    let failed = lanes::run(suites, at_once, &settings)?;
    Ok(if failed.is_empty() { Verdict::Passed } else { Verdict::Failed(format!("{} failed", failed.join(", "))) })
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
    fn every_file_that_is_named_exists() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates").join(SYSTEM_TESTS);
        for name in LONG.iter().chain([&MACHINE]) {
            assert!(folder.join(format!("tests/{name}.rs")).exists(), "{name}");
        }
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

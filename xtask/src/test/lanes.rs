//! Test programs in lanes: several at once, each with its output in a file that is shown whole when it ends.
//!
//! Programs on hosts wait most of the time (for a boot, a pod, a gate's limit), so lanes cost little and save much; shown
//! together their lines would be of no use.

use anyhow::{Context as _, Result};
use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// A test program and how it is run.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The name of its file of tests.
    pub name: String,
    /// The program that cargo made of it.
    pub program: PathBuf,
}

/// What all suites are given.
#[derive(Debug)]
pub struct Settings<'a> {
    /// Where cargo runs a test program: its package's directory.
    pub folder: &'a Path,
    /// Where the outputs go.
    pub outputs: &'a Path,
    /// Arguments of each.
    pub arguments: &'a [&'a str],
    /// Environment of each, beside what is inherited.
    pub environment: &'a [(&'a str, &'a str)],
}

/// Puts the suites that are known to be long first, in this order, so that no lane is left alone with one at the end.
pub fn longest_first(mut suites: Vec<Suite>, long: &[&str]) -> Vec<Suite> {
    suites.sort_by_key(|suite| long.iter().position(|name| suite.name == *name).unwrap_or(long.len()));
    suites
}

/// Runs the suites, `lanes` at once, each whatever became of the others. Gives the names of those that failed.
///
/// # Errors
/// When an output cannot be kept.
pub fn run(suites: Vec<Suite>, lanes: usize, settings: &Settings<'_>) -> Result<Vec<String>> {
    std::fs::create_dir_all(settings.outputs).with_context(|| settings.outputs.display().to_string())?;
    let (left, failed) = (Mutex::new(VecDeque::from(suites)), Mutex::new(Vec::new()));
    let lane = || -> Result<()> {
        loop {
            // Not in the loop's condition: the lock would be held while the suite runs.
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(suite) = next else { return Ok(()) };
            if !run_one(&suite, settings)? {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push(suite.name);
            }
        }
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes.max(1)).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().map_err(|_| anyhow::anyhow!("a lane of tests panicked"))?)
    })?;
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort_unstable();
    Ok(failed)
}

fn run_one(Suite { name, program }: &Suite, settings: &Settings<'_>) -> Result<bool> {
    let path = settings.outputs.join(format!("{name}.log"));
    let output = File::create(&path).with_context(|| path.display().to_string())?;
    println!("{name}: begins; its output until it ends: {}", path.display());
    let begin = Instant::now();
    let status = Command::new(program)
        .args(settings.arguments)
        .envs(settings.environment.iter().copied())
        .current_dir(settings.folder)
        .stdout(output.try_clone()?)
        .stderr(output)
        .status()
        .with_context(|| program.display().to_string())?;
    let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
    // One write, so that lanes that end at the same time do not mix their lines.
    print!("{text}{name}: {status} in {} s\n\n", begin.elapsed().as_secs());
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(name: &str, program: &str) -> Suite {
        Suite { name: name.into(), program: program.into() }
    }

    #[test]
    fn known_long_suites_are_first_and_the_others_keep_their_order() {
        let names = ["a", "slow", "b", "slower"].map(|name| suite(name, "/bin/true"));
        let sorted = longest_first(names.to_vec(), &["slower", "gone", "slow"]);
        assert_eq!(sorted.iter().map(|suite| suite.name.as_str()).collect::<Vec<_>>(), ["slower", "slow", "a", "b"]);
    }

    #[test]
    fn every_suite_runs_and_those_that_fail_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let outputs = folder.path().join("outputs");
        // Links to a shell: a file that was written a moment ago cannot always be executed in a process with threads.
        let programs = ["good", "bad", "other"].map(|name| {
            let path = folder.path().join(name);
            std::os::unix::fs::symlink("/bin/sh", &path).unwrap();
            suite(name, path.to_str().unwrap())
        });
        let script = "n=$(basename $0) && test \"$FLEXNODE_X\" = y && touch $n.ran && echo said $n && test $n != bad";
        let (arguments, environment) = (["-c", script], [("FLEXNODE_X", "y")]);
        let settings =
            Settings { folder: folder.path(), outputs: &outputs, arguments: &arguments, environment: &environment };
        assert_eq!(run(programs.to_vec(), 2, &settings).unwrap(), ["bad"]);
        for name in ["good", "bad", "other"] {
            assert!(folder.path().join(format!("{name}.ran")).exists(), "{name}");
            assert_eq!(std::fs::read_to_string(outputs.join(format!("{name}.log"))).unwrap(), format!("said {name}\n"));
        }
    }
}

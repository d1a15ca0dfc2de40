//! Results of runs over states of power cuts, which add up in a file: one line of JSON for each run.

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

/// The form of a line.
const FORM: u64 = 1;
const NUMBERS: [&str; 10] =
    ["seed", "states", "old", "new", "gone", "neither", "foreign", "booted", "ready", "seconds"];

/// What one run found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Which recording: its name in the cache.
    pub recording: String,
    /// The first case.
    pub seed: u64,
    /// How many states were checked.
    pub states: u64,
    /// States that ended with the old version.
    pub old: u64,
    /// States that ended with the new version.
    pub new: u64,
    /// States of a reset, which was finished.
    pub gone: u64,
    /// States that ended with neither.
    pub neither: u64,
    /// States in which something of others was changed.
    pub foreign: u64,
    /// States that were booted.
    pub booted: u64,
    /// Of these, how many became Ready.
    pub ready: u64,
    /// How long it took.
    pub seconds: u64,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, old, new, gone, neither, foreign, booted, ready, .. } = self;
        write!(
            f,
            "{states} states: {old} with the old version, {new} with the new one, {gone} without a node after a reset, \
             {neither} with neither, {foreign} with foreign files changed; {booted} booted, {ready} became Ready \
             (seed {}, {} s)",
            self.seed, self.seconds
        )
    }
}

impl Run {
    fn numbers(&self) -> [u64; 10] {
        [
            self.seed,
            self.states,
            self.old,
            self.new,
            self.gone,
            self.neither,
            self.foreign,
            self.booted,
            self.ready,
            self.seconds,
        ]
    }

    fn to_line(&self) -> String {
        let mut line = json!({"form": FORM, "recording": self.recording});
        for (name, number) in NUMBERS.into_iter().zip(self.numbers()) {
            line[name] = number.into();
        }
        line.to_string()
    }

    fn of_line(line: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(line)?;
        if value["form"] != FORM {
            bail!("its form is {}, not {FORM}", value["form"]);
        }
        let number = |name: &str| value[name].as_u64().with_context(|| format!("it has no number {name:?}"));
        Ok(Self {
            recording: value["recording"].as_str().context("it names no recording")?.to_owned(),
            seed: number("seed")?,
            states: number("states")?,
            old: number("old")?,
            new: number("new")?,
            gone: number("gone")?,
            neither: number("neither")?,
            foreign: number("foreign")?,
            booted: number("booted")?,
            ready: number("ready")?,
            seconds: number("seconds")?,
        })
    }

    fn plus(mut self, other: &Self) -> Self {
        self.states += other.states;
        self.old += other.old;
        self.new += other.new;
        self.gone += other.gone;
        self.neither += other.neither;
        self.foreign += other.foreign;
        self.booted += other.booted;
        self.ready += other.ready;
        self.seconds += other.seconds;
        self
    }
}

/// All runs of a file together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// The sums; its seed is that of the first run.
    pub sum: Run,
    /// Every run's first case and how many states followed it.
    pub runs: Vec<(u64, u64)>,
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds: Vec<String> = self.runs.iter().map(|(seed, states)| format!("{seed}+{states}")).collect();
        write!(f, "{}; runs: {}", self.sum, seeds.join(", "))
    }
}

/// Adds a run to a file, which is made when it is not there, and gives the total. A run with the same recording and seed as
/// an earlier one replaces it: the same cases are not counted twice.
pub fn add(file: &Path, run: &Run) -> Result<Total> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let before = if file.exists() { fs::read_to_string(file)? } else { String::new() };
    total(&before).with_context(|| format!("{} is not a file of results", file.display()))?;
    let mut out = File::options().create(true).append(true).open(file)?;
    writeln!(out, "{}", run.to_line()).with_context(|| format!("cannot write {}", file.display()))?;
    total(&fs::read_to_string(file)?)
}

/// The total of such a file's text.
pub fn total(text: &str) -> Result<Total> {
    let mut runs = BTreeMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let run = Run::of_line(line).with_context(|| format!("line {}", number + 1))?;
        runs.insert((run.recording.clone(), run.seed), run);
    }
    let mut total = Total::default();
    for run in runs.values() {
        total.runs.push((run.seed, run.states));
        total.sum = std::mem::take(&mut total.sum).plus(run);
    }
    total.sum.seed = runs.values().map(|run| run.seed).min().unwrap_or_default();
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the first version wrote it.
    const LINE: &str = r#"{"form":1,"recording":"recording-0","seed":7,"states":5,"old":2,"new":1,"gone":2,"neither":0,
        "foreign":0,"booted":1,"ready":1,"seconds":9}"#;

    #[test]
    fn results_add_up_by_seed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results/all.jsonl");
        let first = Run::of_line(LINE).unwrap();
        // Of several recordings the sum names none.
        let unnamed = Run { recording: String::new(), ..first.clone() };
        assert_eq!(add(&file, &first).unwrap().sum, unnamed);
        // The same cases again.
        assert_eq!(add(&file, &first).unwrap().sum.states, 5);
        let second = Run { seed: 100, neither: 1, ..first.clone() };
        let total = add(&file, &second).unwrap();
        assert_eq!((total.sum.states, total.sum.neither, total.sum.booted), (10, 1, 2));
        assert_eq!(total.runs, [(7, 5), (100, 5)]);
        let other = Run { recording: "recording-1".into(), ..first };
        assert_eq!(add(&file, &other).unwrap().sum.states, 15);
    }

    #[test]
    fn a_file_of_something_else_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notes");
        for text in ["some notes\n", r#"{"form":2}"#, r#"{"form":1,"recording":"x"}"#] {
            fs::write(&file, text).unwrap();
            let refused = add(&file, &Run::default()).unwrap_err().to_string();
            assert_eq!(refused, format!("{} is not a file of results", file.display()));
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
    }
}

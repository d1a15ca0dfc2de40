//! `cargo xtask bench`: figures, each against a baseline measured in the same run.
//!
//! The machines are shared and noisy: what is compared runs in turn (A B A B …), and the median of the pairs' ratios is the
//! figure. Absolute times are there for the reader only.

mod daemon;
mod downtime;
mod healthz;
mod node;
mod node_of;
mod program;
mod report;

use anyhow::{Context as _, Result, bail};
use flexnode_lab::prerequisites;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Groups to run: size, program, start, reset, upgrade, rollback, daemon; all when none is named
    names: Vec<String>,
    /// One JSON object per measure
    #[arg(long)]
    json: bool,
    /// Write the figures into this file too, with date and machine
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Measure this program instead of the release, which is built otherwise
    #[arg(long, value_name = "PROGRAM")]
    agent: Option<PathBuf>,
    /// Pairs per measure
    #[arg(long, default_value_t = 5)]
    pairs: usize,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
struct Measure {
    /// What was measured.
    name: String,
    /// The figure.
    value: f64,
    /// Its unit.
    unit: &'static str,
    /// What it is compared with, in the same unit, from the same run; null when it is compared with nothing.
    baseline: Option<f64>,
    /// Median of the pairs' ratios; null without a baseline.
    ratio: Option<f64>,
    /// What the ratio is to be at most; without a baseline, what the value is to be at most.
    aim: f64,
    /// Whether it is.
    met: bool,
}

impl Measure {
    /// A figure that has to be at most `most`.
    fn absolute(name: &str, value: f64, unit: &'static str, most: f64) -> Self {
        Self { name: name.into(), value, unit, baseline: None, ratio: None, aim: most, met: value <= most }
    }

    /// Pairs of (ours, baseline) whose ratio has to be at most `most`.
    fn paired(name: &str, pairs: &[(f64, f64)], unit: &'static str, most: f64) -> Self {
        let ratio = median(pairs.iter().map(|(a, b)| a / b).collect());
        Self {
            name: name.into(),
            value: median(pairs.iter().map(|p| p.0).collect()),
            unit,
            baseline: Some(median(pairs.iter().map(|p| p.1).collect())),
            ratio: Some(ratio),
            aim: most,
            met: ratio <= most,
        }
    }

    fn line(&self) -> String {
        let mark = if self.met { "met   " } else { "missed" };
        let (name, value, unit, aim) = (&self.name, self.value, self.unit, self.aim);
        match (self.baseline, self.ratio) {
            (Some(b), Some(r)) => {
                format!(
                    "{mark} {name}: {value:.2} {unit} against {b:.2} {unit}: {r:.2} times (aim: at most {aim} times)"
                )
            }
            _ => format!("{mark} {name}: {value:.2} {unit} (aim: at most {aim} {unit})"),
        }
    }
}

/// The middle of the values, the upper one of two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Runs the groups and prints each figure when it is known.
///
/// # Errors
/// When something cannot be measured. A missed aim is no error: it is in the output.
pub fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    const GROUPS: [&str; 7] = ["size", "program", "start", "reset", "upgrade", "rollback", "daemon"];
    if let Some(unknown) = args.names.iter().find(|n| !GROUPS.contains(&n.as_str())) {
        bail!("there is no group {unknown}; there are {}", GROUPS.join(", "));
    }
    flexnode_lab::interrupt::install()?;
    let wanted = |name: &str| args.names.is_empty() || args.names.iter().any(|n| n == name);
    let mut all = Vec::new();
    let mut tell = |measures: Vec<Measure>| -> Result<()> {
        for measure in measures.into_iter().filter(|m| GROUPS.iter().any(|g| wanted(g) && m.name.starts_with(g))) {
            println!("{}", if args.json { serde_json::to_string(&measure)? } else { measure.line() });
            all.push(measure);
        }
        Ok(())
    };
    let in_lab = GROUPS[2..].iter().any(|group| wanted(group));
    if in_lab {
        prerequisites::ensure()?;
    }
    prerequisites::ensure_measuring()?;
    let program = match &args.agent {
        Some(program) => std::path::absolute(program)?,
        None => crate::dist::build(root)?,
    };
    if wanted("size") {
        let megabytes =
            u32::try_from(std::fs::metadata(&program)?.len() / 1000).map_or(f64::MAX, |kb| f64::from(kb) / 1000.0);
        tell(vec![Measure::absolute("size: of the stripped static program", megabytes, "MB", 12.0)])?;
    }
    if wanted("program") {
        tell(program::measure(&program, args.pairs.max(20))?)?;
    }
    if wanted("start") || wanted("reset") {
        tell(node::measure(&program, args.pairs)?)?;
    }
    if wanted("upgrade") || wanted("rollback") {
        downtime::measure(&program, args.pairs, &wanted, &mut |measure| tell(vec![measure]))?;
    }
    if wanted("daemon") {
        tell(daemon::measure(&program, args.pairs)?)?;
    }
    if let Some(page) = &args.write {
        let date = jiff::Timestamp::now().strftime("%F").to_string();
        let built = args.agent.as_ref().map_or("the release", |_| "a program that was given, not the release");
        let text = report::render(&date, &report::Machine::this()?, built, args.pairs, &all);
        let old = std::fs::read_to_string(page).unwrap_or_default();
        std::fs::write(page, report::with_kept(&text, &old)).with_context(|| page.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_the_median_of_the_pairs() {
        let measure = Measure::paired("x", &[(2.0, 1.0), (10.0, 10.0), (3.0, 2.0)], "ms", 1.5);
        assert_eq!((measure.ratio, measure.value, measure.baseline), (Some(1.5), 3.0, Some(2.0)));
        assert!(measure.met);
        assert!(!Measure::paired("x", &[(2.0, 1.0)], "ms", 1.5).met);
    }

    #[test]
    fn a_figure_over_its_aim_is_missed() {
        assert!(Measure::absolute("size", 12.0, "MB", 12.0).met);
        let measure = Measure::absolute("size", 12.5, "MB", 12.0);
        assert_eq!(measure.line(), "missed size: 12.50 MB (aim: at most 12 MB)");
        let json = serde_json::to_value(&measure).unwrap();
        let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["aim", "baseline", "met", "name", "ratio", "unit", "value"], "every measure has every key");
        assert!(json["baseline"].is_null());
    }
}

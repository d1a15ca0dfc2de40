//! `cargo xtask bench`: figures, each against a baseline measured in the same run.
//!
//! The machines are shared and noisy: what is compared runs in turn (A B A B …), and the median of the pairs' ratios is the
//! figure. Absolute times are there for the reader only.

mod daemon;
mod node;
mod program;

use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Groups to run: size, program, start, reset, daemon; all when none is named
    names: Vec<String>,
    /// One JSON object per measure
    #[arg(long)]
    json: bool,
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
    /// What it is compared with, in the same unit, from the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<f64>,
    /// Median of the pairs' ratios.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    /// What it is meant to be, in words.
    aim: String,
    /// Whether it is.
    met: bool,
}

impl Measure {
    /// A figure that has to be at most `most`.
    fn absolute(name: &str, value: f64, unit: &'static str, most: f64) -> Self {
        Self {
            name: name.into(),
            value,
            unit,
            baseline: None,
            ratio: None,
            aim: format!("at most {most} {unit}"),
            met: value <= most,
        }
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
            aim: format!("at most {most} times the baseline"),
            met: ratio <= most,
        }
    }

    fn line(&self) -> String {
        let mark = if self.met { "met   " } else { "missed" };
        let against = match (self.baseline, self.ratio) {
            (Some(b), Some(r)) => format!(" against {b:.2} {}: ratio {r:.2}", self.unit),
            _ => String::new(),
        };
        format!("{mark} {}: {:.2} {}{against} ({})", self.name, self.value, self.unit, self.aim)
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
    const GROUPS: [&str; 5] = ["size", "program", "start", "reset", "daemon"];
    if let Some(unknown) = args.names.iter().find(|n| !GROUPS.contains(&n.as_str())) {
        bail!("there is no group {unknown}; there are {}", GROUPS.join(", "));
    }
    flexnode_lab::interrupt::install()?;
    let wanted = |name: &str| args.names.is_empty() || args.names.iter().any(|n| n == name);
    let print = |measures: Vec<Measure>| -> Result<()> {
        for measure in measures {
            println!("{}", if args.json { serde_json::to_string(&measure)? } else { measure.line() });
        }
        Ok(())
    };
    let program = crate::dist::build(root)?;
    if wanted("size") {
        let megabytes =
            u32::try_from(std::fs::metadata(&program)?.len() / 1000).map_or(f64::MAX, |kb| f64::from(kb) / 1000.0);
        print(vec![Measure::absolute("size of the stripped static program", megabytes, "MB", 12.0)])?;
    }
    if wanted("program") {
        print(program::measure(&program, args.pairs.max(20))?)?;
    }
    if wanted("start") || wanted("reset") {
        let measures = node::measure(&program, args.pairs)?;
        print(measures.into_iter().filter(|m| GROUPS.iter().any(|g| wanted(g) && m.name.starts_with(g))).collect())?;
    }
    if wanted("daemon") {
        print(daemon::measure(&program, args.pairs)?)?;
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
        assert_eq!(measure.line(), "missed size: 12.50 MB (at most 12 MB)");
    }
}

//! The figures as a page: BENCHMARKS.md.

use super::Measure;
use anyhow::{Context as _, Result};
use std::fmt::Write as _;

/// What the figures were measured on. No name and no path of it.
pub struct Machine {
    /// `model name` of the processor.
    pub cpu: String,
    /// Processors that are online.
    pub cores: usize,
    /// Memory in MiB.
    pub memory: u64,
    /// The kernel's version.
    pub kernel: String,
}

impl Machine {
    /// This machine.
    pub fn this() -> Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).with_context(|| path.to_owned());
        let (cpu, memory) = (read("/proc/cpuinfo")?, read("/proc/meminfo")?);
        let value = |text: &str, key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.trim_start_matches([' ', '\t', ':']).trim().to_owned())
        };
        let kilobytes = value(&memory, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        let release = read("/proc/sys/kernel/osrelease")?;
        Ok(Self {
            cpu: value(&cpu, "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: kilobytes.unwrap_or(0) >> 10,
            kernel: release.trim().split('-').next().unwrap_or_default().to_owned(),
        })
    }
}

/// The page. `date` is a day; `pairs` is how often each was measured; `built` says which program.
pub fn render(date: &str, machine: &Machine, built: &str, pairs: usize, measures: &[Measure]) -> String {
    let Machine { cpu, cores, memory, kernel } = machine;
    let mut page = format!(
        "# Benchmarks\n\n\
         Made by `cargo xtask bench --write BENCHMARKS.md`; what each figure means is in xtask/src/bench. What is compared ran in\n\
         turn in one run on one machine: the ratio, the median over the pairs, is the figure. Absolute times are of that\n\
         machine and of what else it was doing.\n\n\
         - date: {date}\n- machine: {cpu}, {cores} cores, {memory} MiB of memory, Linux {kernel}\n\
         - program: {built}\n- pairs: {pairs}\n\n\
         | measure | value | baseline | ratio | aim | met |\n|---|---:|---:|---:|---|---|\n"
    );
    for measure in measures {
        let unit = measure.unit;
        let number = |value: Option<f64>, unit: &str| value.map_or(String::new(), |value| format!("{value:.2} {unit}"));
        let aim = if measure.ratio.is_some() {
            format!("≤ {} ×", measure.aim)
        } else {
            format!("≤ {} {unit}", measure.aim)
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {aim} | {} |",
            measure.name,
            number(Some(measure.value), unit),
            number(measure.baseline, unit),
            number(measure.ratio, "×"),
            if measure.met { "yes" } else { "**no**" }
        );
    }
    page
}

/// Everything from this line on is of other origin and stays when the figures are written again.
const KEPT: &str = "<!-- From here on `bench --write` keeps what is there. -->";

/// The new page with the end of the old one that is not of this command.
pub fn with_kept(page: &str, old: &str) -> String {
    let kept = old.split_once(KEPT).map_or("\n", |(_, kept)| kept);
    format!("{page}\n{KEPT}{kept}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_row_for_each_measure_and_says_what_is_missed() {
        let machine = Machine { cpu: "Some CPU".into(), cores: 2, memory: 8192, kernel: "6.1.0".into() };
        let measures = [
            Measure::absolute("size", 12.5, "MB", 12.0),
            Measure::paired("start", &[(2.0, 1.0), (3.0, 3.0), (1.2, 1.0)], "ms", 1.25),
        ];
        let page = render("2026-11-30", &machine, "release", 3, &measures);
        assert!(page.contains("- machine: Some CPU, 2 cores, 8192 MiB of memory, Linux 6.1.0\n"), "{page}");
        assert!(page.contains("\n| size | 12.50 MB |  |  | ≤ 12 MB | **no** |\n"), "{page}");
        assert!(page.ends_with("\n| start | 2.00 ms | 1.00 ms | 1.20 × | ≤ 1.25 × | yes |\n"), "{page}");
    }

    #[test]
    fn what_others_wrote_stays() {
        let old = format!("# Old\n\n{KEPT}\n\n## Power cuts\n");
        assert_eq!(with_kept("# New\n", &old), format!("# New\n\n{KEPT}\n\n## Power cuts\n"));
        assert_eq!(with_kept("# New\n", ""), format!("# New\n\n{KEPT}\n"));
    }
}

//! The report for people and for machines.

use crate::report::{NodeReport, UnitReport, Verdict};
use std::fmt::Write as _;

/// The report as JSON, two spaces of indent, a newline at the end.
pub fn to_json(report: &NodeReport) -> String {
    // A report is made of texts, numbers and lists: it can always be written.
    let mut text = serde_json::to_string_pretty(report).unwrap_or_default();
    text.push('\n');
    text
}

/// The report as text: the verdict in one line, then what deviates, then the rest.
pub fn to_text(report: &NodeReport) -> String {
    let mut text = format!("{}\n", report.summary);
    // The first deviation stands in the verdict already.
    for deviation in report.deviations.iter().skip(usize::from(report.verdict == Verdict::Degraded)) {
        let _ = writeln!(text, "  ! {deviation}");
    }
    for note in &report.notes {
        let _ = writeln!(text, "  - {note}");
    }
    if report.verdict == Verdict::NotANode {
        return text;
    }
    text.push('\n');
    let mut row = |key: &str, value: &str| {
        let _ = writeln!(text, "{key:<14}{value}");
    };
    row("Node", &node_words(report));
    let unknown = |version: &Option<String>| version.clone().unwrap_or_else(|| "unknown".into());
    let versions = format!(
        "kubelet {}, containerd {}, runc {}, agent {}",
        unknown(&report.kubernetes_version),
        unknown(&report.containerd_version),
        unknown(&report.runc_version),
        report.agent_version
    );
    row("Versions", &versions);
    row("Slot", report.slot.as_deref().unwrap_or("none"));
    if !report.previous_slots.is_empty() {
        row("Other slots", &report.previous_slots.join(", "));
    }
    if !report.units.is_empty() {
        text.push('\n');
        units(&mut text, &report.units);
    }
    text
}

fn node_words(report: &NodeReport) -> String {
    let name = report.node_name.as_deref().unwrap_or("unknown name");
    let ready = match report.ready {
        Some(true) => "Ready",
        Some(false) => "not Ready",
        None => "readiness unknown",
    };
    let since = report.node.as_ref().and_then(|n| n.ready.as_ref()).and_then(|r| r.since);
    match since {
        Some(since) => format!("{name}, {ready} for {}", span(report.at.duration_since(since).as_secs())),
        None => format!("{name}, {ready}"),
    }
}

fn units(text: &mut String, units: &[UnitReport]) {
    let width = units.iter().map(|u| u.unit.len()).max().unwrap_or(0).max(4);
    let _ = writeln!(text, "{:<width$}  {:<22}{:<12}{:<10}RESTARTS", "UNIT", "STATE", "FOR", "PID");
    for unit in units {
        let state = match unit.sub.as_str() {
            "" => unit.active.clone(),
            sub => format!("{} ({sub})", unit.active),
        };
        let time = unit.seconds.map_or_else(|| "-".to_owned(), span);
        let pid = unit.main_pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let _ = writeln!(text, "{:<width$}  {state:<22}{time:<12}{pid:<10}{}", unit.unit, unit.restarts);
    }
}

/// A span of time in at most two units: `3d 4h`, `12m 5s`.
pub fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, m) => format!("{m}m {}s", seconds % 60),
        (0, h, m) => format!("{h}h {m}m"),
        (d, h, _) => format!("{d}d {h}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        let spans: Vec<String> = [-5, 0, 59, 60, 725, 3_600, 7_260, 86_399, 86_400, 273_600].map(span).into();
        assert_eq!(spans, ["0s", "0s", "59s", "1m 0s", "12m 5s", "1h 0m", "2h 1m", "23h 59m", "1d 0h", "3d 4h"]);
    }
}

//! The snapshot for people and for machines.

use flexnode_model::snapshot::{Reading, Snapshot, UnitReport, Verdict};
use jiff::Timestamp;
use std::fmt::Write as _;

/// The snapshot as JSON, two spaces of indent, a newline at the end.
pub fn to_json(snapshot: &Snapshot) -> String {
    String::from_utf8_lossy(&snapshot.encode()).into_owned()
}

/// The snapshot as JSON in one line: one of many.
pub fn to_json_line(snapshot: &Snapshot) -> String {
    // A snapshot is made of texts, numbers and lists: it can always be written.
    let mut line = serde_json::to_string(snapshot).unwrap_or_default();
    line.push('\n');
    line
}

/// The snapshot as YAML.
pub fn to_yaml(snapshot: &Snapshot) -> String {
    // Through JSON's values, so that both have the same keys and spellings.
    let value = serde_json::to_value(snapshot).unwrap_or_default();
    let mut text = serde_saphyr::to_string(&value).unwrap_or_default();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The snapshot as text: the verdict in one line, then what deviates, then the rest.
pub fn to_text(snapshot: &Snapshot) -> String {
    let mut text = format!("{}\n", snapshot.summary);
    // The first deviation stands in the verdict already.
    for deviation in snapshot.deviations.iter().skip(usize::from(snapshot.verdict == Verdict::Degraded)) {
        let _ = writeln!(text, "  ! {}", deviation.message);
    }
    for note in &snapshot.notes {
        let _ = writeln!(text, "  - {note}");
    }
    if snapshot.verdict == Verdict::NotANode {
        return text;
    }
    edits(&mut text, snapshot);
    text.push('\n');
    rows(&mut text, snapshot);
    if !snapshot.units.is_empty() {
        text.push('\n');
        units(&mut text, &snapshot.units, snapshot.at);
    }
    for unit in snapshot.units.iter().filter(|unit| !unit.last_lines.is_empty()) {
        let _ = writeln!(text, "\nThe last lines of {}:", unit.unit);
        for line in &unit.last_lines {
            let _ = writeln!(text, "    {}", line.trim_end());
        }
    }
    text
}

/// The settings of the configuration that say something else than what runs.
fn edits(text: &mut String, snapshot: &Snapshot) {
    let mut editable = snapshot.goal.differences.iter().filter(|difference| difference.is_editable()).peekable();
    if editable.peek().is_none() {
        return;
    }
    let _ = writeln!(text, "\nTo keep what runs, these lines of the configuration have to be edited:");
    for difference in editable {
        let _ = writeln!(text, "    {}: {} -> {}", difference.path, difference.to, difference.from);
    }
}

fn rows(text: &mut String, snapshot: &Snapshot) {
    let mut row = |key: &str, value: &str| {
        let _ = writeln!(text, "{key:<14}{value}");
    };
    row("Node", &node_words(snapshot));
    let unknown = |version: &Option<String>| version.clone().unwrap_or_else(|| "unknown".into());
    let versions = format!(
        "kubelet {}, containerd {}, runc {}, agent {}",
        unknown(&snapshot.kubernetes_version),
        unknown(&snapshot.containerd_version),
        unknown(&snapshot.runc_version),
        snapshot.agent_version
    );
    row("Versions", &versions);
    row("Slot", snapshot.slot.as_deref().unwrap_or("none"));
    if !snapshot.other_slots.is_empty() {
        row("Other slots", &snapshot.other_slots.join(", "));
    }
    if let Some(since) = snapshot.since {
        let word = if snapshot.verdict == Verdict::Healthy { "healthy" } else { "degraded" };
        row("State", &format!("{word} for {}", span(snapshot.at.duration_since(since).as_secs())));
    }
    if let Some(goal) = &snapshot.goal.applied {
        let says = match snapshot.goal.is_up_to_date() {
            Some(true) => ", as the configuration says",
            Some(false) => ", the configuration says something else",
            None => "",
        };
        row("Goal", &format!("{goal}{says}"));
    }
    if let Some(last) = &snapshot.last_operation {
        let ago = span(snapshot.at.duration_since(last.ended).as_secs());
        let reason = last.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        row("Last done", &format!("{} {} ago, {}{reason}", last.operation, ago, outcome(last.outcome)));
    }
    for failed in &snapshot.goal.failed {
        row("Failed goal", &format!("{} at {:.0}: {}", failed.goal, failed.when, crate::lines::clean(&failed.reason)));
    }
    if let Reading::Known(certificates) = &snapshot.certificates {
        for certificate in certificates {
            if let Reading::Known(validity) = &certificate.validity {
                row("Certificate", &format!("{} until {:.0}", certificate.name, validity.not_after));
            }
        }
    }
    for mended in &snapshot.mended {
        row("Mended", &format!("{:.0} {}: {}", mended.at, mended.unit, mended.what));
    }
}

fn outcome(outcome: flexnode_model::journal::Ending) -> &'static str {
    use flexnode_model::journal::Ending;
    match outcome {
        Ending::Done => "done",
        Ending::Failed => "failed",
        Ending::RolledBack => "failed and rolled back",
        Ending::RollbackFailed => "failed, and the way back had errors",
        Ending::Cancelled => "cancelled",
        Ending::Superseded => "given up for another operation",
    }
}

fn node_words(snapshot: &Snapshot) -> String {
    let name = snapshot.node_name.as_deref().unwrap_or("unknown name");
    let ready = match snapshot.ready {
        Some(true) => "Ready",
        Some(false) => "not Ready",
        None => "readiness unknown",
    };
    let node = snapshot.node.known().and_then(Option::as_ref);
    match node.and_then(|n| n.ready.as_ref()).and_then(|r| r.since) {
        Some(since) => format!("{name}, {ready} for {}", span(snapshot.at.duration_since(since).as_secs())),
        None => format!("{name}, {ready}"),
    }
}

fn units(text: &mut String, units: &[UnitReport], now: Timestamp) {
    let width = units.iter().map(|u| u.unit.len()).max().unwrap_or(0).max(4);
    let _ = writeln!(text, "{:<width$}  {:<22}{:<12}{:<10}{:<10}RESTARTS", "UNIT", "STATE", "FOR", "PID", "MEMORY");
    for unit in units {
        let state = match unit.sub.as_str() {
            "" => unit.active.clone(),
            sub => format!("{} ({sub})", unit.active),
        };
        let time = unit.since.map_or_else(|| "-".to_owned(), |since| span(now.duration_since(since).as_secs()));
        let pid = unit.main_pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let memory = unit.resident_bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
        let _ = writeln!(text, "{:<width$}  {state:<22}{time:<12}{pid:<10}{memory:<10}{}", unit.unit, unit.restarts);
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

//! What is kept of a version that did not come up: states of the units, the ends of their logs, what the probes answered.
//!
//! It is for people and never decides anything. The file is root's alone, what looks like a token is blotted out, and only
//! the newest few are kept.

use super::{NodeContext, kept};
use flexnode_host::cri::READ_DEADLINE;
use flexnode_host::durable;
use flexnode_host::probe::KUBELET_HEALTHZ;
use flexnode_isolation::none::{UNIT_CONTAINERD, UNIT_KUBELET};
use flexnode_ops::{Journal, Outcome, Step, StepError};
use flexnode_status::lines::clean;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory of the evidence, below the agent's own.
pub const DIR: &str = "artifacts/evidence";
/// Files that are kept.
const MOST: usize = 8;
const LINES: usize = 50;
const DEADLINE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_secs(1);

/// The file for a slot.
pub fn path(slot: &str) -> PathBuf {
    kept(DIR).join(format!("{slot}.txt"))
}

/// The first step of a way back. It never fails: what cannot be seen is said in the file.
pub fn step(context: &NodeContext, slot: &str) -> Step {
    let (context, slot) = (context.clone(), slot.to_owned());
    Step::new("keep-evidence", format!("keep what was seen of {slot}"), DEADLINE * 2, move |cx| {
        let (context, slot) = (context.clone(), slot.clone());
        async move {
            let text = match tokio::time::timeout(DEADLINE, gather(&context, &slot)).await {
                Ok(text) => text,
                Err(_) => "nothing could be seen in time\n".to_owned(),
            };
            if let Err(error) = write(&context, &slot, &text) {
                cx.note(&format!("the evidence could not be kept: {error}"));
                return Ok(Outcome::Unchanged);
            }
            Ok(Outcome::Changed(path(&slot).display().to_string()))
        }
    })
}

async fn gather(context: &NodeContext, slot: &str) -> String {
    let (host, start) = (context.host(), &context.start);
    let mut text = format!("version {slot} at {}\n", host.clock.now());
    if let Ok(Some(record)) = Journal::new(host.fs.clone()).open() {
        let step = record.failed_step.as_deref().unwrap_or(&record.step);
        let why = record.error.as_deref().unwrap_or("it is not known why");
        let _ =
            writeln!(text, "{} {}, attempt {}, failed at step {step}:", record.operation, record.id, record.attempt);
        let _ = writeln!(text, "{}\n", clean(why));
    }
    for unit in [UNIT_CONTAINERD, UNIT_KUBELET] {
        match host.systemd.unit(unit).await {
            Ok(s) => {
                let _ = writeln!(
                    text,
                    "{unit}: {} ({}), PID {}, {} restarts, result {}, status {}",
                    s.active, s.sub, s.main_pid, s.restarts, s.result, s.exit_status
                );
            }
            Err(e) => say(&mut text, &format!("{unit}: {e}")),
        }
    }
    match start.probe.http_get(KUBELET_HEALTHZ, LOOK).await {
        Ok(answer) => {
            let _ = writeln!(text, "healthz: {} {}", answer.status, clean(&answer.body));
        }
        Err(e) => say(&mut text, &format!("healthz: {e}")),
    }
    match start.cri.status(READ_DEADLINE.min(LOOK)).await {
        Ok(status) => {
            let _ = writeln!(text, "containerd: ready {}; {}", status.runtime_ready, clean(&status.reasons.join("; ")));
        }
        Err(e) => say(&mut text, &format!("containerd: {e}")),
    }
    for unit in [UNIT_CONTAINERD, UNIT_KUBELET] {
        let _ = writeln!(text, "\nlast lines of {unit}:");
        match host.systemd.last_lines(unit, LINES).await {
            Ok(lines) => text.extend(lines.iter().map(|line| clean(line) + "\n")),
            Err(e) => say(&mut text, &e.to_string()),
        }
    }
    text
}

fn say(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

fn write(context: &NodeContext, slot: &str, text: &str) -> Result<(), StepError> {
    let fs = context.host().fs.as_ref();
    let failed = |e| StepError::caused("the evidence could not be written", e);
    let dir = kept(DIR);
    durable::ensure_dir(fs, &dir, 0o700).map_err(failed)?;
    durable::write(fs, &path(slot), text.as_bytes(), 0o600).map_err(failed)?;
    let mut files = Vec::new();
    for entry in fs.read_dir(&dir).map_err(failed)? {
        let path = dir.join(&entry.name);
        if let Some(stat) = fs.lstat(&path).map_err(failed)? {
            files.push((stat.mtime_ns, path));
        }
    }
    files.sort();
    let surplus = files.len().saturating_sub(MOST);
    for (_, old) in files.iter().take(surplus).filter(|(_, old)| old.as_path() != Path::new(&path(slot))) {
        durable::remove_file(fs, old).map_err(failed)?;
    }
    Ok(())
}

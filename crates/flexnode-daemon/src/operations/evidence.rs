//! What is kept of a version that did not come up: states of the units, the ends of their logs, what the probes answered.
//!
//! It is for people and never decides anything. The file is root's alone, what looks like a token is blotted out, and only
//! the newest few are kept.

use super::{NodeContext, kept};
use flexnode_host::durable;
use flexnode_host::probe::KUBELET_HEALTHZ;
use flexnode_isolation::none::{UNIT_CONTAINERD, UNIT_KUBELET};
use flexnode_ops::{Journal, Outcome, Step, StepError};
use flexnode_status::lines::clean;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The directory of the evidence, below the agent's own.
pub const DIR: &str = "artifacts/evidence";
/// Files that are kept.
const MOST: usize = 8;
const LINES: usize = 50;
const DEADLINE: Duration = Duration::from_secs(10);
/// A probe that does not answer by then is said not to: the node is down meanwhile.
const LOOK: Duration = Duration::from_millis(300);

/// The file for a slot.
pub fn path(slot: &str) -> PathBuf {
    kept(DIR).join(format!("{slot}.txt"))
}

/// The first step of a way back, which looks, and the last but few, which writes what was seen: the node is down between
/// them, and nothing waits for evidence. Neither fails: what cannot be seen is said in the file.
pub fn steps(context: &NodeContext, slot: &str) -> (Step, Step) {
    let seen: Seen = Arc::default();
    let (context, slot) = (context.clone(), slot.to_owned());
    let look = {
        let (context, slot, seen) = (context.clone(), slot.clone(), seen.clone());
        Step::new("look-at-failure", format!("look at what became of {slot}"), DEADLINE, move |_| {
            let (context, slot, seen) = (context.clone(), slot.clone(), seen.clone());
            async move {
                let text = states(&context, &slot).await;
                // Read while the other steps run; they only add lines to what is asked for.
                let lines = tokio::spawn(async move { last_lines(&context).await });
                *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some((text, lines));
                Ok(Outcome::Unchanged)
            }
        })
    };
    let keep = Step::new("keep-evidence", format!("keep what was seen of {slot}"), DEADLINE * 2, move |cx| {
        let (context, slot, seen) = (context.clone(), slot.clone(), seen.clone());
        async move {
            let taken = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some((mut text, lines)) = taken else { return Ok(Outcome::Unchanged) };
            text.push_str(match tokio::time::timeout(DEADLINE, lines).await {
                Ok(Ok(ref lines)) => lines,
                Ok(Err(_)) | Err(_) => "\nthe last lines of the units could not be read in time\n",
            });
            if let Err(error) = write(&context, &slot, &text) {
                cx.note(&format!("the evidence could not be kept: {error}"));
                return Ok(Outcome::Unchanged);
            }
            Ok(Outcome::Changed(path(&slot).display().to_string()))
        }
    });
    (look, keep)
}

/// What one step saw, for the other: the states, and the lines of logs that are being read.
type Seen = Arc<Mutex<Option<(String, JoinHandle<String>)>>>;

/// Why, and how the units and probes are at this moment.
async fn states(context: &NodeContext, slot: &str) -> String {
    let (host, start) = (context.host(), &context.start);
    let mut text = format!("version {slot} at {}\n", host.clock.now());
    if let Ok(Some(record)) = Journal::new(host.fs.clone()).open() {
        let step = record.failed_step.as_deref().unwrap_or(&record.step);
        let why = record.error.as_deref().unwrap_or("it is not known why");
        let _ =
            writeln!(text, "{} {}, attempt {}, failed at step {step}:", record.operation, record.id, record.attempt);
        let _ = writeln!(text, "{}\n", clean(why));
    }
    let unit = |unit| tokio::time::timeout(LOOK, host.systemd.unit(unit));
    let (containerd, kubelet, healthz, cri) = tokio::join!(
        unit(UNIT_CONTAINERD),
        unit(UNIT_KUBELET),
        start.probe.http_get(KUBELET_HEALTHZ, LOOK),
        start.cri.status(LOOK)
    );
    for (unit, state) in [(UNIT_CONTAINERD, containerd), (UNIT_KUBELET, kubelet)] {
        match state {
            Ok(Ok(s)) => {
                let _ = writeln!(
                    text,
                    "{unit}: {} ({}), PID {}, {} restarts, result {}, status {}",
                    s.active, s.sub, s.main_pid, s.restarts, s.result, s.exit_status
                );
            }
            Ok(Err(e)) => say(&mut text, &format!("{unit}: {e}")),
            Err(_) => say(&mut text, &format!("{unit}: systemd did not answer in time")),
        }
    }
    match healthz {
        Ok(answer) => {
            let _ = writeln!(text, "healthz: {} {}", answer.status, clean(&answer.body));
        }
        Err(e) => say(&mut text, &format!("healthz: {e}")),
    }
    match cri {
        Ok(status) => {
            let _ = writeln!(text, "containerd: ready {}; {}", status.runtime_ready, clean(&status.reasons.join("; ")));
        }
        Err(e) => say(&mut text, &format!("containerd: {e}")),
    }
    text
}

/// The ends of the units' logs.
async fn last_lines(context: &NodeContext) -> String {
    let systemd = &context.host().systemd;
    let (containerd, kubelet) =
        tokio::join!(systemd.last_lines(UNIT_CONTAINERD, LINES), systemd.last_lines(UNIT_KUBELET, LINES));
    let mut text = String::new();
    for (unit, lines) in [(UNIT_CONTAINERD, containerd), (UNIT_KUBELET, kubelet)] {
        let _ = writeln!(text, "\nlast lines of {unit}:");
        match lines {
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

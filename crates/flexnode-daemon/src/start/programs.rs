//! Whether the programs of a slot are of the versions that its goal means. A bundle can call them anything.

use super::steps::Parts;
use flexnode_artifacts::version_in_answer;
use flexnode_host::{Command, Host};
use flexnode_isolation::NodeRoot as _;
use flexnode_model::MachineGoal;
use flexnode_ops::{Outcome, StepContext, StepError};
use flexnode_stack::places;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const RUN: Duration = Duration::from_secs(30);
const MOST: usize = 1 << 16;

/// Asks the programs of the slot that was prepared, before anything that runs is stopped for it. Those of the version that is
/// active are not asked: they run.
pub async fn check(parts: &Parts, cx: &StepContext) -> Result<Outcome, StepError> {
    let slot = parts.prepared.slot.as_str();
    let active = parts.layout.current(parts.host.fs.as_ref());
    if active.map_err(|e| StepError::caused("the active version is not known", e))?.as_deref() == Some(slot) {
        return Ok(Outcome::Unchanged);
    }
    let bin = parts.backend().root(slot).path(Path::new(places::BIN));
    check_all(&parts.host, &bin, &parts.prepared.goal, cx).await
}

async fn check_all(host: &Host, bin: &Path, goal: &MachineGoal, cx: &StepContext) -> Result<Outcome, StepError> {
    check_kubelet(host, bin, &goal.kubernetes_version).await?;
    for (name, meant) in [("containerd", &goal.containerd_version), ("runc", &goal.runc_version)] {
        let Some(meant) = meant else { continue };
        let said = run(host, bin.join(name), &["--version"]).await?;
        match version_in_answer(&said) {
            // Not every build has its version in it, and no other program depends on it.
            None => cx.note(&format!("{name} does not tell of which version it is; {meant} is meant")),
            Some(is) if is == version_in_answer(meant).unwrap_or_else(|| meant.clone()) => {}
            Some(is) => return Err(wrong(name, &is, meant)),
        }
    }
    Ok(Outcome::Unchanged)
}

/// kubelet has to be exactly of the version that is meant: the cluster is told what it says.
pub async fn check_kubelet(host: &Host, bin: &Path, meant: &str) -> Result<(), StepError> {
    let said = run(host, bin.join("kubelet"), &["--version"]).await?;
    let is = said.split_whitespace().next_back().unwrap_or_default().trim_start_matches('v');
    if is == meant { Ok(()) } else { Err(wrong("kubelet", is, meant)) }
}

fn wrong(name: &str, is: &str, meant: &str) -> StepError {
    StepError::new(format!("{name} is of version {is}, not {meant}"))
        .hint(format!("make the bundle again with the right {name}"))
}

/// Runs a program of a slot; what it wrote.
pub async fn run(host: &Host, program: PathBuf, args: &[&str]) -> Result<String, StepError> {
    let name = program.display().to_string();
    let command = Command {
        program,
        args: args.iter().map(ToString::to_string).collect(),
        env: BTreeMap::new(),
        stdin: Vec::new(),
        deadline: RUN,
        max_output: MOST,
    };
    let failed = |e| StepError::caused(format!("{name} could not be run"), e);
    let output = host.commands.run(&command).await.map_err(failed)?;
    if output.code == Some(0) {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let last: String = text.lines().next_back().unwrap_or("it said nothing").chars().take(400).collect();
    Err(StepError::new(format!("{name} {} failed: {last}", args.first().unwrap_or(&""))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::goal;
    use flexnode_host::testing::FakeHost;
    use std::sync::{Arc, Mutex};

    /// What the programs say, the goal's versions of containerd and runc, and a part of the error; none: it is right.
    async fn judged(said: [&str; 3], meant: [Option<&str>; 2]) -> (Result<Outcome, String>, Vec<String>) {
        let fake = FakeHost::new();
        for (name, text) in ["kubelet", "containerd", "runc"].into_iter().zip(said) {
            if text == "fails" {
                fake.commands.exit(name, &["--version"], 127, "", "no such library");
            } else {
                fake.commands.answer(name, &["--version"], text);
            }
        }
        let mut goal = goal("1.36.3");
        [goal.containerd_version, goal.runc_version] = meant.map(|version| version.map(str::to_owned));
        let notes = Arc::new(Mutex::new(Vec::new()));
        let kept = notes.clone();
        let cx = StepContext::new(move |text| kept.lock().unwrap().push(text.to_owned()));
        let bin = Path::new("/opt/unbounded/node/a/bin");
        let result = check_all(&fake.host(), bin, &goal, &cx).await.map_err(|e| e.to_string());
        let notes = notes.lock().unwrap().clone();
        (result, notes)
    }

    const KUBELET: &str = "Kubernetes v1.36.3\n";
    const CONTAINERD: &str = "containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6+b4\n";
    const RUNC: &str = "runc version 1.1.15+ds1\ncommit: 1.1.15+ds1-2\n";

    #[tokio::test]
    async fn programs_are_what_they_say_and_not_what_a_bundle_calls_them() {
        let both = [Some("1.7.24"), Some("1.1.15+ds1")];
        for (said, meant, error) in [
            ([KUBELET, CONTAINERD, RUNC], both, None),
            (["Kubernetes v1.36.2\n", CONTAINERD, RUNC], both, Some("kubelet is of version 1.36.2, not 1.36.3")),
            (["Kubernetes v1.36.3-rc.1\n", CONTAINERD, RUNC], both, Some("kubelet is of version 1.36.3-rc.1")),
            (["fails", CONTAINERD, RUNC], both, Some("no such library")),
            ([KUBELET, "fails", RUNC], both, Some("bin/containerd --version failed")),
            ([KUBELET, CONTAINERD, "fails"], both, Some("bin/runc --version failed")),
            ([KUBELET, CONTAINERD, RUNC], [Some("2.1.9"), None], Some("containerd is of version 1.7.24, not 2.1.9")),
            ([KUBELET, CONTAINERD, RUNC], [None, Some("1.3.6")], Some("runc is of version 1.1.15, not 1.3.6")),
            // What the goal does not name is not asked.
            ([KUBELET, "fails", "fails"], [None, None], None),
        ] {
            match (judged(said, meant).await.0, error) {
                (Ok(outcome), None) => assert_eq!(outcome, Outcome::Unchanged),
                (Err(text), Some(part)) => assert!(text.contains(part), "{text}"),
                (other, _) => panic!("{said:?} {meant:?}: {other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_build_without_a_version_is_noted_and_nothing_more() {
        let (result, notes) = judged([KUBELET, "containerd github.com/x unknown\n", RUNC], [Some("2.1.9"), None]).await;
        assert!(result.is_ok());
        assert_eq!(notes, ["containerd does not tell of which version it is; 2.1.9 is meant"]);
    }
}

//! Some states are booted, in a lab that is what the recorded one was to the node: the same addresses, authority and token.
//! Each has to become Ready: a start that was interrupted is run again by the person who began it, the rest by itself.

use crate::real::Torture;
use crate::real::judge::Case;
use crate::scenario::Action;
use flexnode_lab::machine::cut::Disk;
use flexnode_lab::machine::recording::AGENT;
use flexnode_lab::{ControlPlane, Machine, cache, poll};
use std::path::Path;
use std::time::{Duration, Instant};

/// An emulated machine on a busy one.
const READY: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_millis(500);

/// Boots `boots` states of the cases from `first` on, evenly among those that are not of a reset. How many were booted, and
/// how many became Ready.
pub fn sample(torture: &Torture, first: u64, states: u64, boots: u64) -> (u64, u64) {
    if boots == 0 {
        return (0, 0);
    }
    let recorded = Disk::open(&torture.recording.disk(), &torture.recording.log()).unwrap();
    let mut cases = torture.cases(&recorded, first, states);
    cases.retain(|case| case.action != Action::Reset);
    let boots = usize::try_from(boots).unwrap().min(cases.len());
    let folder = torture.work.folder.join("boot");
    std::fs::create_dir_all(&folder).unwrap();
    let image = folder.join("disk.img");
    torture.recording.copy_disk(&image).unwrap();
    let mut disk = Disk::open(&image, &torture.recording.log()).unwrap();
    let (lab, cluster) = torture.recording.cluster().unwrap();
    let mut ready = 0;
    for index in 0..boots {
        let case = &cases[index * cases.len() / boots];
        let began = Instant::now();
        disk.cut(case.moment, case.number).unwrap();
        let booted = torture.recording.boot(&lab, &torture.agent, &image);
        disk.undo().unwrap();
        let ended = booted.and_then(|machine| become_ready(torture, &cluster, case, &machine));
        let told = match ended {
            Ok(slot) => {
                ready += 1;
                format!("Ready with {slot}")
            }
            Err(error) => format!("not Ready: {error:#}"),
        };
        println!("booted {case}: {told}, {} s", began.elapsed().as_secs());
    }
    drop(cluster);
    cache::remove_tree(Path::new(&folder)).unwrap();
    (boots as u64, ready)
}

/// The slot of the version with which the Node of this boot is Ready.
fn become_ready(torture: &Torture, cluster: &ControlPlane, case: &Case, machine: &Machine) -> anyhow::Result<String> {
    if case.action == Action::Start {
        let words = [&["env"], &torture.variables()[..], &[AGENT, "start", "--timeout", "300s"]].concat();
        let output = machine.exec(&words)?;
        anyhow::ensure!(output.code == 0, "start: {}{}", output.stdout, output.stderr);
    }
    let boot = machine.boot_id()?;
    let ready = poll(READY, SOON, "the Node of this boot to be Ready", || {
        let node = cluster.get(&["node", machine.name()])?;
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
        Ok((ready && node["status"]["nodeInfo"]["bootID"] == boot.as_str()).then_some(()))
    });
    if let Err(error) = ready {
        let script = "systemctl --no-pager --failed; readlink /opt/unbounded/node/current; \
            journalctl --no-pager -n 40 -o cat -u 'unbounded-*' -u 'aks-flex-node-*'";
        return Err(error.context(machine.sh(script)?.stdout));
    }
    Ok(machine.exec(&["readlink", "/opt/unbounded/node/current"])?.success()?.stdout.trim().to_owned())
}

//! Asking one seam.

use super::{
    Fact, Known, Observation, Part, ProgramView, Seams, UNIT_AGENT, UNIT_CONTAINERD, UNIT_KUBELET, UNIT_LOCAL_DNS,
    UnitView, is_failing, parts,
};
use crate::ArcStatus;
use crate::arc::parse_azcmagent_show;
use crate::lines;
use crate::node::NodeView;
use crate::slots::SlotsView;
use flexnode_host::probe::KUBELET_HEALTHZ;
use flexnode_host::{Command, HostError, Process};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The limit of a question to a program on this host.
const LOCAL: Duration = Duration::from_secs(5);
/// The limit of a question to the API server.
const REMOTE: Duration = Duration::from_secs(8);
/// The limit of a command.
const COMMAND: Duration = Duration::from_secs(10);
/// Lines of a unit's log that are kept when it failed.
const LAST_LINES: usize = 10;

/// Asks everything at once. Takes as long as the slowest seam, some seconds at most; never fails as a whole.
pub async fn observe(seams: &Seams, arc: bool) -> Observation {
    let mut seen = Observation::blank(seams.clock.now());
    seen.take(Fact::Slots(seams.witnesses.slots.view()));
    let base = &seen;
    // On the heap: each holds what its question needs.
    let of = |part| Box::pin(ask(seams, part, base, arc));
    let (units, healthz, runtime, versions, node, arc, disks) = tokio::join!(
        of(Part::Units),
        of(Part::Healthz),
        of(Part::Runtime),
        of(Part::Versions),
        of(Part::Node),
        of(Part::Arc),
        of(Part::Disks),
    );
    let mut facts = vec![units, healthz, runtime, versions, node, arc, disks];
    // Measured by the question for the Node.
    for part in [Part::Certificates, Part::Clock, Part::Reboot, Part::Cni, Part::KubeletState] {
        facts.push(of(part).await);
    }
    for fact in facts {
        seen.take(fact);
    }
    seen.at = seams.clock.now();
    seen
}

/// Asks for one part. `seen` is what is known so far: which slots there are, and which processes the units have. `arc` says
/// whether Azure Arc is configured.
pub async fn ask(seams: &Seams, part: Part, seen: &Observation, arc: bool) -> Fact {
    let now = seams.clock.now();
    match part {
        Part::Slots => Fact::Slots(seams.witnesses.slots.view()),
        Part::Units => {
            let of = |name| unit(seams, name, seen);
            let (a, b, c, d) = tokio::join!(of(UNIT_CONTAINERD), of(UNIT_KUBELET), of(UNIT_LOCAL_DNS), of(UNIT_AGENT));
            let views = [(UNIT_CONTAINERD, a), (UNIT_KUBELET, b), (UNIT_LOCAL_DNS, c), (UNIT_AGENT, d)];
            Fact::Units(views.into_iter().map(|(name, view)| (name.to_owned(), view)).collect())
        }
        Part::Programs => {
            let pid = |view: &UnitView| view.state.as_ref().map_or(0, |state| state.main_pid);
            let all = seen.units.iter().map(|(name, view)| (name.clone(), program(seams, pid(view), &seen.slots)));
            Fact::Programs(all.collect())
        }
        Part::Healthz => Fact::Healthz(healthz(seams).await),
        Part::Runtime => Fact::Runtime(words(seams.witnesses.cri.status(LOCAL).await)),
        Part::Versions => {
            let (runtime, runc) = tokio::join!(seams.witnesses.cri.version(LOCAL), runc_version(seams, &seen.slots));
            Fact::Versions(words(runtime), runc)
        }
        Part::Node => Fact::Node(own_node(seams).await),
        Part::Arc => Fact::Arc(arc_status(seams, arc).await),
        Part::Certificates => Fact::Certificates(match &seams.witnesses.certificates {
            Some(certificates) => certificates.view(),
            None => Err("nobody reads certificates here".into()),
        }),
        Part::Disks => Fact::Disks(parts::disks(&seams.witnesses.space, LOCAL).await),
        Part::Clock => Fact::Clock(match &seams.witnesses.skew {
            Some(skew) => skew.skew(now),
            None => Err("the API server's clock is not looked at here".into()),
        }),
        Part::Reboot => Fact::Reboot(parts::reboot(seams.fs.as_ref())),
        Part::Cni => Fact::Cni(parts::cni(seams.fs.as_ref())),
        Part::KubeletState => Fact::KubeletState(parts::damaged_kubelet_state(seams.fs.as_ref())),
    }
}

pub(super) fn words<T>(result: Result<T, HostError>) -> Known<T> {
    result.map_err(|e| match std::error::Error::source(&e) {
        Some(cause) => format!("{e}: {cause}"),
        None => e.to_string(),
    })
}

async fn unit(seams: &Seams, name: &str, seen: &Observation) -> UnitView {
    let state = match tokio::time::timeout(LOCAL, seams.systemd.unit(name)).await {
        Ok(state) => words(state),
        Err(_) => Err(format!("systemd did not answer within {} s", LOCAL.as_secs())),
    };
    let program = program(seams, state.as_ref().map_or(0, |state| state.main_pid), &seen.slots);
    let last_lines = match &state {
        Ok(state) if is_failing(state) => match seen.unit(name).filter(|before| before.is_failing()) {
            // Once for each failure: reading a journal costs a process.
            Some(before) if !before.last_lines.is_empty() => before.last_lines.clone(),
            _ => last_lines(seams, name).await,
        },
        _ => Vec::new(),
    };
    UnitView { state, program, last_lines }
}

async fn last_lines(seams: &Seams, unit: &str) -> Vec<String> {
    match tokio::time::timeout(COMMAND, seams.systemd.last_lines(unit, LAST_LINES)).await {
        Ok(Ok(lines)) => lines.iter().map(|line| lines::clean(line)).collect(),
        Ok(Err(e)) => vec![format!("(its log cannot be read: {e})")],
        Err(_) => vec![format!("(its log was not read within {} s)", COMMAND.as_secs())],
    }
}

/// What is known of a main process.
fn program(seams: &Seams, pid: u32, slots: &Known<SlotsView>) -> ProgramView {
    let process = if pid == 0 { Ok(None) } else { words(seams.processes.get(pid)) };
    let slot = match (&process, slots) {
        (Ok(Some(process)), Ok(slots)) => running_slot(seams, process, slots),
        _ => None,
    };
    let resident = matches!(process, Ok(Some(_))).then(|| parts::resident(seams.fs.as_ref(), pid)).flatten();
    ProgramView { process, slot, resident }
}

/// The slot whose file the process runs, by device and inode: a path can be faked, and says ` (deleted)` after a removal.
fn running_slot(seams: &Seams, process: &Process, slots: &SlotsView) -> Option<String> {
    let id = process.exe_id?;
    let program = program_name(&process.exe)?;
    let base = seams.witnesses.slots.base();
    let same = |path: &Path| seams.fs.stat(path).ok().flatten().is_some_and(|stat| (stat.dev, stat.ino) == id);
    let mut all = slots.current.iter().chain(&slots.others);
    all.find(|slot| same(&base.join(&slot.name).join("bin").join(program))).map(|slot| slot.name.clone())
}

/// The name of a program's file. The kernel says ` (deleted)` behind it once its name went to another file (proc_pid_exe(5)),
/// also where the file has its name again.
fn program_name(exe: &Path) -> Option<&str> {
    let name = exe.file_name()?.to_str()?;
    Some(name.strip_suffix(" (deleted)").unwrap_or(name))
}

async fn healthz(seams: &Seams) -> Known<()> {
    match seams.witnesses.probe.http_get(KUBELET_HEALTHZ, LOCAL).await {
        Ok(answer) if answer.is_success() => Ok(()),
        Ok(answer) => {
            let line = answer.body.lines().next().unwrap_or_default();
            Err(format!("kubelet's healthz answers {}: {}", answer.status, lines::clean(line)))
        }
        Err(e) => Err(e.to_string()),
    }
}

async fn own_node(seams: &Seams) -> Known<Option<NodeView>> {
    let Some(node) = &seams.witnesses.node else { return Err("the node's name is not known".into()) };
    match tokio::time::timeout(REMOTE, node.view(REMOTE)).await {
        Ok(view) => view.map_err(|e| e.reason),
        Err(_) => Err(format!("the API server did not answer within {} s", REMOTE.as_secs())),
    }
}

/// runc is no service: where the slot does not record its version, its own word counts.
async fn runc_version(seams: &Seams, slots: &Known<SlotsView>) -> Known<String> {
    let current = match slots {
        Ok(SlotsView { current: Some(current), .. }) => current,
        Ok(_) => return Err("no version is active".into()),
        Err(e) => return Err(e.clone()),
    };
    if let Some(version) = &current.runc_version {
        return Ok(version.clone());
    }
    let program = seams.witnesses.slots.base().join(&current.name).join("bin/runc");
    let output = run(seams, &program, &["--version"]).await?;
    parse_runc_version(&output).ok_or_else(|| format!("{} --version prints no version", program.display()))
}

/// Of the first line with the word `version`, the word after it, without `v`.
pub fn parse_runc_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.split_whitespace().any(|word| word == "version"))?;
    let version = line.split_whitespace().skip_while(|word| *word != "version").nth(1)?;
    Some(version.trim_start_matches('v').to_owned())
}

async fn arc_status(seams: &Seams, wanted: bool) -> Option<Known<ArcStatus>> {
    if !wanted {
        return None;
    }
    let Some(program) = seams.commands.look_path("azcmagent") else {
        return Some(Err("azcmagent is not installed".into()));
    };
    Some(run(seams, &program, &["show"]).await.map(|text| parse_azcmagent_show(&text)))
}

async fn run(seams: &Seams, program: &Path, args: &[&str]) -> Known<String> {
    let command = Command {
        program: program.to_path_buf(),
        args: args.iter().map(ToString::to_string).collect(),
        env: BTreeMap::new(),
        stdin: Vec::new(),
        deadline: COMMAND,
        max_output: 64 * 1024,
    };
    let output = words(seams.commands.run(&command).await)?;
    if output.code != Some(0) {
        let how = output.code.map_or_else(|| "was ended by a signal".to_owned(), |code| format!("ended with {code}"));
        return Err(format!("{} {} {how}", program.display(), args.join(" ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_its_name_again_is_found_by_it() {
        assert_eq!(program_name(Path::new("/opt/unbounded/node/a/bin/kubelet (deleted)")), Some("kubelet"));
        assert_eq!(program_name(Path::new("/opt/unbounded/node/a/bin/kubelet")), Some("kubelet"));
        assert_eq!(program_name(Path::new("/")), None);
    }
}

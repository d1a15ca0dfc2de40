//! Looking at the node: every seam is asked once, all at the same time, each with a deadline of its own. What could not be
//! found out stays unknown with its reason.

use crate::ArcStatus;
use crate::arc::parse_azcmagent_show;
use crate::node::{NodeView, OwnNode};
use crate::slots::{Slots, SlotsView};
use flexnode_host::cri::{Cri, RuntimeStatus, RuntimeVersion};
use flexnode_host::probe::{KUBELET_HEALTHZ, Probe};
use flexnode_host::{Clock, Command, Commands, Fs, Host, HostError, Process, Processes, Systemd, UnitState};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The units of the stack (none.txt) with the programs that they run.
pub const UNIT_CONTAINERD: &str = "unbounded-containerd.service";
/// See above.
pub const UNIT_KUBELET: &str = "unbounded-kubelet.service";
/// The cluster DNS on the node; not every node has it.
pub const UNIT_LOCAL_DNS: &str = "unbounded-localdns.service";
/// The agent's own service.
pub const UNIT_AGENT: &str = "aks-flex-node-agent.service";

/// The limit of a question to a program on this host.
const LOCAL: Duration = Duration::from_secs(5);
/// The limit of a question to the API server.
const REMOTE: Duration = Duration::from_secs(8);
/// The limit of a command.
const COMMAND: Duration = Duration::from_secs(10);

/// Known, or why not.
pub type Known<T> = Result<T, String>;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Seams {
    /// PID 1.
    pub systemd: Arc<dyn Systemd>,
    /// The process table.
    pub processes: Arc<dyn Processes>,
    /// Files, to compare a process's program with the slot's.
    pub fs: Arc<dyn Fs>,
    /// Programs; only for what nothing else tells.
    pub commands: Arc<dyn Commands>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Kubelet's health.
    pub probe: Arc<dyn Probe>,
    /// The container runtime.
    pub cri: Arc<dyn Cri>,
    /// Version directories.
    pub slots: Arc<dyn Slots>,
    /// The own Node; `None` where the node's name is not known: then nobody is asked.
    pub node: Option<Arc<dyn OwnNode>>,
}

impl Seams {
    /// With those of a host.
    pub fn new(
        host: &Host,
        probe: Arc<dyn Probe>,
        cri: Arc<dyn Cri>,
        slots: Arc<dyn Slots>,
        node: Option<Arc<dyn OwnNode>>,
    ) -> Self {
        Self {
            systemd: host.systemd.clone(),
            processes: host.processes.clone(),
            fs: host.fs.clone(),
            commands: host.commands.clone(),
            clock: host.clock.clone(),
            probe,
            cri,
            slots,
            node,
        }
    }
}

/// One unit as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitView {
    /// What systemd knows.
    pub state: Known<UnitState>,
    /// Its main process, when it has one.
    pub process: Known<Option<Process>>,
    /// The slot whose program the main process runs; `None` when it is another program or there is none.
    pub slot: Option<String>,
}

impl UnitView {
    /// Whether systemd calls it active.
    pub fn is_active(&self) -> bool {
        self.state.as_ref().is_ok_and(UnitState::is_active)
    }
}

/// Everything that was seen at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// When the collection began.
    pub began: Timestamp,
    /// When it ended.
    pub at: Timestamp,
    /// Version directories.
    pub slots: Known<SlotsView>,
    /// The units of the stack and the agent's, by name.
    pub units: BTreeMap<String, UnitView>,
    /// Whether kubelet says that it is healthy; the error says what it answered instead.
    pub healthz: Known<()>,
    /// Conditions of the runtime.
    pub runtime: Known<RuntimeStatus>,
    /// What runs as the runtime.
    pub runtime_version: Known<RuntimeVersion>,
    /// Version of runc, where the slot does not record it.
    pub runc_version: Known<String>,
    /// The own Node; `Ok(None)`: the cluster has none.
    pub node: Known<Option<NodeView>>,
    /// Azure Arc; `None` where it is not configured.
    pub arc: Option<Known<ArcStatus>>,
}

impl Observation {
    /// A unit of the list above.
    pub fn unit(&self, name: &str) -> Option<&UnitView> {
        self.units.get(name)
    }
}

/// Asks everything. Takes as long as the slowest seam, some seconds at most; never fails as a whole.
pub async fn observe(seams: &Seams, arc: bool) -> Observation {
    let began = seams.clock.now();
    let slots = seams.slots.view();
    let (containerd, kubelet, local_dns, agent, healthz, runtime, runtime_version, runc_version, node, arc) = tokio::join!(
        unit(seams, UNIT_CONTAINERD, &slots),
        unit(seams, UNIT_KUBELET, &slots),
        unit(seams, UNIT_LOCAL_DNS, &slots),
        unit(seams, UNIT_AGENT, &slots),
        healthz(seams),
        async { words(seams.cri.status(LOCAL).await) },
        async { words(seams.cri.version(LOCAL).await) },
        runc_version(seams, &slots),
        own_node(seams),
        arc_status(seams, arc),
    );
    let units =
        [(UNIT_CONTAINERD, containerd), (UNIT_KUBELET, kubelet), (UNIT_LOCAL_DNS, local_dns), (UNIT_AGENT, agent)];
    Observation {
        began,
        at: seams.clock.now(),
        slots,
        units: units.into_iter().map(|(name, view)| (name.to_owned(), view)).collect(),
        healthz,
        runtime,
        runtime_version,
        runc_version,
        node,
        arc,
    }
}

fn words<T>(result: Result<T, HostError>) -> Known<T> {
    result.map_err(|e| match std::error::Error::source(&e) {
        Some(cause) => format!("{e}: {cause}"),
        None => e.to_string(),
    })
}

async fn unit(seams: &Seams, name: &str, slots: &Known<SlotsView>) -> UnitView {
    let state = match tokio::time::timeout(LOCAL, seams.systemd.unit(name)).await {
        Ok(state) => words(state),
        Err(_) => Err(format!("systemd did not answer within {} s", LOCAL.as_secs())),
    };
    let process = match &state {
        Ok(state) if state.main_pid != 0 => words(seams.processes.get(state.main_pid)),
        _ => Ok(None),
    };
    let slot = match (&process, slots) {
        (Ok(Some(process)), Ok(slots)) => running_slot(seams, process, slots),
        _ => None,
    };
    UnitView { state, process, slot }
}

/// The slot whose file the process runs, by device and inode: a path can be faked, and says ` (deleted)` after a removal.
fn running_slot(seams: &Seams, process: &Process, slots: &SlotsView) -> Option<String> {
    let id = process.exe_id?;
    let program = process.exe.file_name()?;
    let same = |path: &Path| seams.fs.stat(path).ok().flatten().is_some_and(|stat| (stat.dev, stat.ino) == id);
    let mut all = slots.current.iter().chain(&slots.others);
    all.find(|slot| same(&seams.slots.base().join(&slot.name).join("bin").join(program))).map(|slot| slot.name.clone())
}

async fn healthz(seams: &Seams) -> Known<()> {
    match seams.probe.http_get(KUBELET_HEALTHZ, LOCAL).await {
        Ok(answer) if answer.is_success() => Ok(()),
        Ok(answer) => {
            let line: String = answer.body.lines().next().unwrap_or_default().chars().take(200).collect();
            Err(format!("kubelet's healthz answers {}: {line}", answer.status))
        }
        Err(e) => Err(e.to_string()),
    }
}

async fn own_node(seams: &Seams) -> Known<Option<NodeView>> {
    let Some(node) = &seams.node else { return Err("the node's name is not known".into()) };
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
    let program = seams.slots.base().join(&current.name).join("bin/runc");
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

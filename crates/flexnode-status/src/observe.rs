//! Looking at the node: every seam is asked by itself, with a deadline of its own. What could not be found out is unknown
//! with its reason, never an older value.
//!
//! A look has parts ([`Part`]), so that who watches asks again only for what may have changed: [`ask`] gives a [`Fact`],
//! [`Observation::take`] puts it in its place.

mod ask;
mod parts;

pub use ask::{ask, observe};
pub use parts::{KUBELET_STATE_FILES, damaged_kubelet_state};

use crate::ArcStatus;
use crate::certificates::Certificates;
use crate::node::{NodeView, OwnNode};
use crate::slots::{Slots, SlotsView};
use flexnode_host::cri::{Cri, RuntimeStatus, RuntimeVersion};
use flexnode_host::probe::Probe;
use flexnode_host::{Clock, Commands, Fs, Host, Process, Processes, Space, Systemd, UnitState};
use flexnode_model::snapshot::{Certificate, ClockSkew, Cni, Disk, PendingReboot};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

/// The units of the stack (none.txt) with the programs that they run.
pub const UNIT_CONTAINERD: &str = "unbounded-containerd.service";
/// See above.
pub const UNIT_KUBELET: &str = "unbounded-kubelet.service";
/// The cluster DNS on the node; not every node has it.
pub const UNIT_LOCAL_DNS: &str = "unbounded-localdns.service";
/// The agent's own service.
pub const UNIT_AGENT: &str = "aks-flex-node-agent.service";
/// All units that are looked at, in the order in which they start.
pub const UNITS: [&str; 4] = [UNIT_CONTAINERD, UNIT_LOCAL_DNS, UNIT_KUBELET, UNIT_AGENT];

/// Known, or why not.
pub type Known<T> = Result<T, String>;

/// Tells how this host's clock differs from the API server's.
pub trait Skew: Send + Sync + Debug {
    /// The last measure, or why there is none.
    fn skew(&self, now: Timestamp) -> Known<ClockSkew>;
}

/// What is asked beside the host itself.
#[derive(Clone, Debug)]
pub struct Witnesses {
    /// Kubelet's health.
    pub probe: Arc<dyn Probe>,
    /// The container runtime.
    pub cri: Arc<dyn Cri>,
    /// Version directories.
    pub slots: Arc<dyn Slots>,
    /// Free space.
    pub space: Arc<dyn Space>,
    /// The own Node; `None` where the node's name is not known: then nobody is asked.
    pub node: Option<Arc<dyn OwnNode>>,
    /// The node's certificates; `None` where nobody can read them.
    pub certificates: Option<Arc<dyn Certificates>>,
    /// The clock of the API server; `None` where nobody measures it.
    pub skew: Option<Arc<dyn Skew>>,
}

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
    /// What is asked beside the host.
    pub witnesses: Witnesses,
}

impl Seams {
    /// With those of a host.
    pub fn new(host: &Host, witnesses: Witnesses) -> Self {
        Self {
            systemd: host.systemd.clone(),
            processes: host.processes.clone(),
            fs: host.fs.clone(),
            commands: host.commands.clone(),
            clock: host.clock.clone(),
            witnesses,
        }
    }
}

/// A part of a look that can be had by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Version directories.
    Slots,
    /// The units, their processes, and the last lines of those that failed.
    Units,
    /// The processes of the units alone: what they run, and their memory.
    Programs,
    /// Kubelet's healthz.
    Healthz,
    /// The conditions of the container runtime.
    Runtime,
    /// Versions that no slot records.
    Versions,
    /// The own Node.
    Node,
    /// Azure Arc.
    Arc,
    /// The certificates.
    Certificates,
    /// Free space.
    Disks,
    /// The difference of the clocks.
    Clock,
    /// Whether a reboot is needed.
    Reboot,
    /// The network plugin's configuration.
    Cni,
    /// The small state files of kubelet.
    KubeletState,
}

impl Part {
    /// All parts.
    pub const ALL: [Part; 14] = [
        Part::Slots,
        Part::Units,
        Part::Programs,
        Part::Healthz,
        Part::Runtime,
        Part::Versions,
        Part::Node,
        Part::Arc,
        Part::Certificates,
        Part::Disks,
        Part::Clock,
        Part::Reboot,
        Part::Cni,
        Part::KubeletState,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Part::Slots => "versions",
            Part::Units => "units",
            Part::Programs => "programs",
            Part::Healthz => "healthz",
            Part::Runtime => "runtime",
            Part::Versions => "version_numbers",
            Part::Node => "node",
            Part::Arc => "arc",
            Part::Certificates => "certificates",
            Part::Disks => "disks",
            Part::Clock => "clock",
            Part::Reboot => "reboot",
            Part::Cni => "cni",
            Part::KubeletState => "kubelet_state",
        }
    }
}

/// One unit as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitView {
    /// What systemd knows.
    pub state: Known<UnitState>,
    /// Its main process.
    pub program: ProgramView,
    /// The last lines of its log when it failed.
    pub last_lines: Vec<String>,
}

/// The main process of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramView {
    /// The process; `None` when the unit has none.
    pub process: Known<Option<Process>>,
    /// The slot whose program it runs; `None` when it is another program or there is none.
    pub slot: Option<String>,
    /// Its memory in RAM, in bytes.
    pub resident: Option<u64>,
}

impl UnitView {
    /// Whether systemd calls it active.
    pub fn is_active(&self) -> bool {
        self.state.as_ref().is_ok_and(UnitState::is_active)
    }

    /// It does not run as it should: what its log says is of interest.
    pub fn is_failing(&self) -> bool {
        self.state.as_ref().is_ok_and(is_failing)
    }
}

/// One that ended once and is started again is not failing: reading a journal takes longer than the start.
pub(crate) fn is_failing(state: &UnitState) -> bool {
    state.active == "failed" || (state.sub == "auto-restart" && state.restarts >= crate::judge::LOOPING)
}

/// Everything that was seen, each part at its time.
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
    /// The certificates.
    pub certificates: Known<Vec<Certificate>>,
    /// The file systems.
    pub disks: Vec<Disk>,
    /// The difference of the clocks.
    pub clock: Known<ClockSkew>,
    /// Whether a reboot is needed.
    pub reboot: Known<PendingReboot>,
    /// The network plugin's configuration.
    pub cni: Known<Cni>,
    /// State files of kubelet that it cannot read.
    pub damaged_state: Vec<PathBuf>,
}

/// What a part is found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the field of the observation of that name")]
pub enum Fact {
    Slots(Known<SlotsView>),
    Units(BTreeMap<String, UnitView>),
    Programs(BTreeMap<String, ProgramView>),
    Healthz(Known<()>),
    Runtime(Known<RuntimeStatus>),
    Versions(Known<RuntimeVersion>, Known<String>),
    Node(Known<Option<NodeView>>),
    Arc(Option<Known<ArcStatus>>),
    Certificates(Known<Vec<Certificate>>),
    Disks(Vec<Disk>),
    Clock(Known<ClockSkew>),
    Reboot(Known<PendingReboot>),
    Cni(Known<Cni>),
    KubeletState(Vec<PathBuf>),
}

impl Observation {
    /// Nothing was looked at yet.
    pub fn blank(now: Timestamp) -> Self {
        fn not_yet<T>() -> Known<T> {
            Err("it was not looked at yet".into())
        }
        Self {
            began: now,
            at: now,
            slots: not_yet(),
            units: BTreeMap::new(),
            healthz: not_yet(),
            runtime: not_yet(),
            runtime_version: not_yet(),
            runc_version: not_yet(),
            node: not_yet(),
            arc: None,
            certificates: not_yet(),
            disks: Vec::new(),
            clock: not_yet(),
            reboot: not_yet(),
            cni: not_yet(),
            damaged_state: Vec::new(),
        }
    }

    /// A unit of the list above.
    pub fn unit(&self, name: &str) -> Option<&UnitView> {
        self.units.get(name)
    }

    /// Takes a fact in.
    pub fn take(&mut self, fact: Fact) {
        match fact {
            Fact::Slots(slots) => self.slots = slots,
            Fact::Units(units) => self.units = units,
            Fact::Programs(programs) => {
                for (unit, program) in programs {
                    if let Some(view) = self.units.get_mut(&unit) {
                        view.program = program;
                    }
                }
            }
            Fact::Healthz(healthz) => self.healthz = healthz,
            Fact::Runtime(runtime) => self.runtime = runtime,
            Fact::Versions(runtime, runc) => (self.runtime_version, self.runc_version) = (runtime, runc),
            Fact::Node(node) => self.node = node,
            Fact::Arc(arc) => self.arc = arc,
            Fact::Certificates(certificates) => self.certificates = certificates,
            Fact::Disks(disks) => self.disks = disks,
            Fact::Clock(clock) => self.clock = clock,
            Fact::Reboot(reboot) => self.reboot = reboot,
            Fact::Cni(cni) => self.cni = cni,
            Fact::KubeletState(damaged) => self.damaged_state = damaged,
        }
    }
}

//! The host-native backend: its parts, and what it does outside of operations.

use super::cni::{self, Linked};
use super::consts::{SYSTEMD_DIR, UNIT_CONTAINERD, UNIT_KUBELET, UNIT_LOCAL_DNS};
use super::dropins;
use super::hooks::{Hook, Install, Kill, LookPath, RollbackUnits, Runner, command};
use super::layout::{Layout, LayoutError};
use super::links::{ConfigLink, config_links};
use super::preflight::{self, HostFs, PreflightError};
use super::root::Root;
use super::units::{UnitError, UnitSpec};
use crate::backend::{Error, ExecRequest, Mode, Requirements, Status, UnitStatus};
use flexnode_host::durable::Change;
use flexnode_host::{Cgroups, Fs, Host, Output, Processes};
use flexnode_ops::{Engine, Observer, Silent};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of standard error that an error keeps.
const STDERR_KEPT: usize = 2048;

/// Runs the node stack directly on the host.
///
/// The fields are those of the contract, as seams: what is left at its default does the safe thing. [`Backend::new`] makes
/// one that touches units and files through the given host, reaps nothing and installs nothing; [`Backend::new_default`]
/// has the production defaults.
#[derive(Clone)]
pub struct Backend {
    /// Every effect goes through it.
    pub system: Host,
    /// Parent of what is logged. The default is none.
    pub log: tracing::Span,
    /// The arrangement of versions.
    pub layout: Layout,
    /// Where units are written. Empty means [`SYSTEMD_DIR`].
    pub systemd_dir: PathBuf,
    /// What preflight looks at. The default is the real host.
    pub host: HostFs,
    /// Runs host commands for `exec` and `logs`. The default runs them for real through `system`.
    pub run: Runner,
    /// The template input that `prepare` and `upgrade` write.
    pub units: UnitSpec,
    /// Places the version's artifacts and configuration. `prepare` calls it after the version directory exists and before
    /// the units are written. The default installs nothing, which the conformance suite and unit tests want.
    pub install: Install,
    /// Runs after the named unit was started by `start`, for readiness gates such as waiting for LocalDNS between CoreDNS
    /// and containerd. A failure stops the start.
    pub after_start: BTreeMap<String, Hook>,
    /// `after_start` for `restart`.
    pub after_restart: BTreeMap<String, Hook>,
    /// Runs during `upgrade` after the old version has stopped and the link has flipped, before the new version starts:
    /// cleans up host networking and sets it up for the new configuration.
    pub before_upgrade_start: Hook,
    /// Runs during a failed `upgrade` before the previous version starts again, so that it starts on the configuration and
    /// host networking that it was running with: after the link has flipped back on a rollback, and without a flip when the
    /// stop or the activation failed. A failure is reported with the rollback and does not stop it.
    pub before_rollback_start: Hook,
    /// The units of the version that a rollback returns to. The default leaves the unit files as they are.
    pub rollback_units: RollbackUnits,
    /// Runs at the start of `start` and `restart`, before any unit is touched: prepares GPU support, which depends on the
    /// devices and driver present at that start. A failure stops the start.
    pub before_start: Hook,
    /// Prefixes the host paths that grants name, and all identity-mapped paths. Empty is the real host.
    pub host_root: PathBuf,
    /// Host paths that must exist when a grant asks for NVIDIA devices. Empty checks nothing.
    pub gpu_host_paths: Vec<PathBuf>,
    /// Replaces `requirements().writable_paths` in preflight when not empty: tests and offline tooling probe a temporary
    /// tree instead of the real `/etc`, `/opt` and `/var`.
    pub check_paths: Vec<PathBuf>,
    /// Resolves host commands for the static preflight. The default skips the check.
    pub look_path: LookPath,
    /// The processes that `destroy` searches for containerd shims that outlive the stopped units. `None` skips the search,
    /// so that a test or tool never signals a process by accident.
    pub proc: Option<Arc<dyn Processes>>,
    /// The control groups below which `destroy` ends the pods: ending a shim leaves the pod's processes running. `None`
    /// skips it for the same reason.
    pub cgroup_root: Option<Arc<dyn Cgroups>>,
    /// Ends one process for the reaping. The default sends SIGKILL; tests set it so that no real process is signalled.
    pub kill: Kill,
    /// Beyond the contract: ends the pods' sandboxes through the container runtime, between kubelet's stop and containerd's
    /// in an upgrade and a rollback. What remains is ended as `destroy` does it, so a failure is noted and no more. The
    /// default leaves all to that.
    pub end_sandboxes: Hook,
    /// Beyond the contract: runs the operations with a journal. Without one they run in the same order and with the same
    /// way back, but a crash leaves no record.
    pub engine: Option<Engine>,
    /// Beyond the contract: is told what the operations do.
    pub observer: Arc<dyn Observer>,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("layout", &self.layout)
            .field("units", &self.units)
            .field("install", &self.install)
            .field("reaps", &(self.proc.is_some(), self.cgroup_root.is_some()))
            .finish_non_exhaustive()
    }
}

impl Backend {
    /// A backend with every seam unset.
    pub fn new(system: Host) -> Self {
        Self {
            system,
            log: tracing::Span::none(),
            layout: Layout::default(),
            systemd_dir: PathBuf::new(),
            host: HostFs::default(),
            run: Runner::default(),
            units: UnitSpec::default(),
            install: Install::default(),
            after_start: BTreeMap::new(),
            after_restart: BTreeMap::new(),
            before_upgrade_start: Hook::default(),
            before_rollback_start: Hook::default(),
            rollback_units: RollbackUnits::default(),
            before_start: Hook::default(),
            host_root: PathBuf::new(),
            gpu_host_paths: Vec::new(),
            check_paths: Vec::new(),
            look_path: LookPath::default(),
            proc: None,
            cgroup_root: None,
            kill: Kill::default(),
            end_sandboxes: Hook::default(),
            engine: None,
            observer: Arc::new(Silent),
        }
    }

    /// A backend with the production defaults: the default layout and unit directory, host commands run for real, and
    /// `destroy` reaping shims and pods' control groups. It is what a caller wants that needs `status`, `exec`, `logs` or
    /// `destroy` only; the agent's operations set the other seams.
    pub fn new_default(system: Host, log: tracing::Span) -> Self {
        let (proc, cgroup_root) = (Some(system.processes.clone()), Some(system.cgroups.clone()));
        Self { log, proc, cgroup_root, ..Self::new(system) }
    }

    pub(crate) fn fs(&self) -> &dyn Fs {
        &*self.system.fs
    }

    /// Where units are written.
    pub fn unit_dir(&self) -> &Path {
        if self.systemd_dir.as_os_str().is_empty() { Path::new(SYSTEMD_DIR) } else { &self.systemd_dir }
    }

    /// The root of one version.
    pub fn root(&self, version: &str) -> Root {
        Root { layout: self.layout.clone(), version: version.to_owned(), host_root: self.host_root.clone() }
    }

    /// The active version, or `None`.
    pub fn current(&self) -> Result<Option<String>, LayoutError> {
        self.layout.current(self.fs())
    }

    pub(crate) fn config_links(&self, spec: &UnitSpec) -> Vec<ConfigLink> {
        config_links(&self.layout, spec, &self.host_root)
    }

    /// Which mode this is.
    pub fn mode(&self) -> Mode {
        Mode::None
    }

    /// What this mode needs from a host. `/usr` need not be writable.
    pub fn requirements(&self) -> Requirements {
        preflight::requirements(self.layout.base_dir())
    }

    /// Refuses to go on when the host already has a kubelet or containerd that the agent does not own, or a required path is
    /// read-only. Changes nothing. It is [`Backend::preflight_static`] followed by [`Backend::preflight_ownership`].
    pub fn preflight(&self) -> Result<(), PreflightError> {
        self.preflight_static()?;
        self.preflight_ownership()
    }

    /// Checks what the host must provide whatever it runs now: the cgroup file system, the required commands (when
    /// `look_path` is set), writable `/etc`, node base and `/var`, and that programs below the base can be executed. It is
    /// right on a host that is a running node, so a migration runs it before it resets or stops anything.
    pub fn preflight_static(&self) -> Result<(), PreflightError> {
        let needs = self.requirements();
        let mut errors = Vec::new();
        let cgroup = &self.host.cgroup;
        if needs.cgroups && !cgroup.as_os_str().is_empty() {
            let is_dir = self.fs().stat(cgroup)?.is_some_and(|stat| stat.kind == flexnode_host::FileKind::Dir);
            if !is_dir || self.system.cgroups.version().is_none() {
                errors.push(PreflightError::NoCgroups(cgroup.clone()));
            }
        }
        let missing = self.look_path.missing(&needs.commands);
        if !missing.is_empty() {
            errors.push(PreflightError::MissingCommands(missing));
        }
        let paths = if self.check_paths.is_empty() { &needs.writable_paths } else { &self.check_paths };
        errors.extend(preflight::check_writable(self.fs(), paths).err());
        errors.extend(preflight::check_executable(&self.system, self.layout.base_dir()).err());
        preflight::gather(errors)
    }

    /// Refuses a host that already has a kubelet or containerd that the agent does not own (unit, binary or running
    /// process). It fails on a host that is a running node, so a migration runs it only after the reset.
    pub fn preflight_ownership(&self) -> Result<(), PreflightError> {
        let findings = self.host.detect_unmanaged(&self.system, self.layout.base_dir())?;
        if findings.is_empty() { Ok(()) } else { Err(PreflightError::Unmanaged(findings)) }
    }

    /// Links every CNI plugin of `version` into the host plugin directory, each to the plugin of the same name below the
    /// current link: a flip switches the plugins with the rest of the version, while plugins that other components install
    /// in the host directory stay usable.
    ///
    /// A host file that is not a link, or a link that points outside of the agent's base, belongs to someone else and is
    /// left alone. Links of ours whose plugin the version does not have are removed. Idempotent.
    pub fn link_cni_plugins(&self, version: &str) -> Result<Linked, LayoutError> {
        let linked = cni::link(self.fs(), &self.layout, &self.host_root, version)?;
        for path in &linked.foreign {
            tracing::info!(parent: &self.log, path = %path.display(), "this CNI plugin belongs to someone else and is left alone");
        }
        Ok(linked)
    }

    /// Removes the links that [`Backend::link_cni_plugins`] made and nothing else, then the host plugin directory when that
    /// leaves it empty.
    pub fn unlink_cni_plugins(&self) -> Result<Change, LayoutError> {
        cni::unlink(self.fs(), &self.layout, &self.host_root)
    }

    /// The spec that the unit files on disk were written for, as far as the set of units goes.
    pub(crate) fn installed_spec(&self) -> Result<UnitSpec, UnitError> {
        let installed = dropins::installed(self.fs(), self.unit_dir())?;
        Ok(UnitSpec { local_dns: installed.contains(&UNIT_LOCAL_DNS), ..self.units.clone() })
    }

    /// The units of a stack in start order.
    pub(crate) fn stack(spec: &UnitSpec) -> Vec<&'static str> {
        let local_dns = spec.local_dns.then_some(UNIT_LOCAL_DNS);
        local_dns.into_iter().chain([UNIT_CONTAINERD, UNIT_KUBELET]).collect()
    }

    /// Reports running when every unit is active: containerd, kubelet, and LocalDNS where it is installed.
    pub async fn status(&self) -> Result<Status, Error> {
        let mut units = Vec::new();
        for unit in Self::stack(&self.installed_spec()?) {
            units.push(UnitStatus { unit: unit.to_owned(), state: self.system.systemd.unit(unit).await? });
        }
        let running = units.iter().all(|unit| unit.state.is_active());
        Ok(Status { running, slot: self.current()?, units })
    }

    /// Runs the program on the host, which is the node stack's environment. A non-zero exit is an error.
    pub async fn exec(&self, request: &ExecRequest) -> Result<Output, Error> {
        let Some(command) = command(&request.argv, request.stdin.clone(), request.deadline) else {
            return Err(Error::Request("exec needs a program".into()));
        };
        let program = command.program.display().to_string();
        let output = self.run.run(&*self.system.commands, command).await?;
        if output.code == Some(0) {
            return Ok(output);
        }
        let status = output.code.map_or_else(|| "a signal".to_owned(), |code| format!("exit status {code}"));
        let text = String::from_utf8_lossy(&output.stderr);
        let tail: Vec<char> = text.trim_end().chars().rev().take(STDERR_KEPT).collect();
        Err(Error::Exec { program, status, stderr: tail.into_iter().rev().collect() })
    }
}

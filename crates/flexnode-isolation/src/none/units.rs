//! The units: rendering, and writing only what differs.
//!
//! Every path in a unit goes through the `current` link, so the bytes are the same for all versions unless LocalDNS, GPU
//! setup or the launch check come or go: a flip needs no `daemon-reload`.

use super::consts::{
    CONTAINERD_CONFIG_PATH, DEFAULT_KUBELET_CONFIG_PATH, LAUNCH_CHECK_REFUSED, REGISTRATION_ENV_PATH, UNIT_CONTAINERD,
    UNIT_KUBELET, UNIT_LOCAL_DNS_NETWORK,
};
use super::encode::{self, EncodeError, UnitText, Word};
use super::layout::Layout;
use flexnode_host::durable::{self, Change};
use flexnode_host::{Fs, FsError};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Mode of unit files and drop-ins.
pub(crate) const UNIT_MODE: u32 = 0o644;

/// What the unit templates need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnitSpec {
    /// The directory that the binaries are executed from, normally [`Layout::bin_dir`], so that the units follow the
    /// current link. Kubelet's variables are read from `../etc/kubelet/env` beside it.
    pub bin_dir: PathBuf,
    /// The kubelet configuration; `None` means [`DEFAULT_KUBELET_CONFIG_PATH`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_config_path: Option<PathBuf>,
    /// Adds the CoreDNS unit and makes containerd and kubelet depend on it.
    #[serde(default)]
    pub local_dns: bool,
    /// The configuration that containerd runs with; `None` means [`CONTAINERD_CONFIG_PATH`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containerd_config_path: Option<PathBuf>,
    /// The commands that containerd runs before each start to prepare GPU support. The NVIDIA CDI spec names driver
    /// libraries by version, so it is made again whenever the stack starts, a boot included. Empty writes no drop-in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_setup: Vec<Vec<String>>,
    /// The command line, in systemd's syntax, that the launch check runs before every kubelet start on an allocation
    /// host; [`encode::command_line_of`] makes one. `None` writes no launch check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_check_command: Option<String>,
}

impl Default for UnitSpec {
    fn default() -> Self {
        Self::of(&Layout::default())
    }
}

impl UnitSpec {
    /// The spec of a node without LocalDNS, GPU setup and launch check, whose units follow the link of `layout`.
    pub fn of(layout: &Layout) -> Self {
        Self {
            bin_dir: layout.bin_dir(),
            kubelet_config_path: None,
            local_dns: false,
            containerd_config_path: None,
            gpu_setup: Vec::new(),
            launch_check_command: None,
        }
    }

    /// The variables that kubelet's unit reads, beside the binaries: `../etc/kubelet/env`.
    pub fn kubelet_env_path(&self) -> PathBuf {
        self.beside("etc/kubelet/env")
    }

    /// The LocalDNS supervisor, beside the binaries: `../libexec/localdns-supervisor`.
    pub fn local_dns_supervisor(&self) -> PathBuf {
        self.beside("libexec/localdns-supervisor")
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.bin_dir.parent().unwrap_or(Path::new("/")).join(name)
    }

    /// The command that a unit's main process is started with, or `None` when this spec does not know the unit or its
    /// command was given whole.
    pub fn command(&self, unit: &str) -> Option<Vec<Word>> {
        let path = |path: &Path| Word::literal(path.to_string_lossy());
        let option = |name: &str, value: &Path| Word::literal(format!("{name}={}", value.to_string_lossy()));
        match unit {
            UNIT_CONTAINERD => {
                let config = self.containerd_config_path.as_deref().unwrap_or(Path::new(CONTAINERD_CONFIG_PATH));
                Some(vec![path(&self.bin_dir.join("containerd")), Word::literal("--config"), path(config)])
            }
            UNIT_KUBELET => {
                let config = self.kubelet_config_path.as_deref().unwrap_or(Path::new(DEFAULT_KUBELET_CONFIG_PATH));
                Some(vec![
                    path(&self.bin_dir.join("kubelet")),
                    option("--config", config),
                    Word::Variable("KUBELET_NODE_CONFIG_ARGS"),
                    Word::Variable("KUBELET_KUBECONFIG_ARGS"),
                    Word::Variable("KUBELET_REGISTRATION_ARGS"),
                ])
            }
            super::consts::UNIT_LOCAL_DNS if self.local_dns => Some(vec![path(&self.local_dns_supervisor())]),
            _ => None,
        }
    }
}

/// A unit that could not be rendered, written or removed.
#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    /// A value of the spec cannot stand in a unit.
    #[error("cannot render {unit}")]
    Render {
        /// Which unit or drop-in.
        unit: &'static str,
        /// The value and what is wrong with it.
        #[source]
        source: EncodeError,
    },
    /// A file could not be written or removed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The recorded units of a slot cannot be read.
    #[error("the unit specification {} cannot be read; `aks-flex-node slots repair` makes it again", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

pub(crate) fn rendering(unit: &'static str) -> impl FnOnce(EncodeError) -> UnitError {
    move |source| UnitError::Render { unit, source }
}

/// Restarts for ever: after 1 s at first, after 60 s from the tenth time on. systemd before 254 ignores the steps and
/// waits 1 s each time.
fn restart_always(unit: &mut UnitText) {
    unit.set("Restart", "always").set("RestartSec", "1").set("RestartSteps", "10").set("RestartMaxDelaySec", "60");
}

/// The containerd unit.
pub fn render_containerd(spec: &UnitSpec) -> Result<Vec<u8>, UnitError> {
    let command = command(spec, UNIT_CONTAINERD)?;
    let mut unit = UnitText::new();
    unit.section("Unit")
        .set("Description", "containerd of this Kubernetes node")
        .set("After", "network.target local-fs.target")
        .comment("Its own back-off is enough; without this a few quick failures would end it for good.")
        .set("StartLimitIntervalSec", "0")
        .section("Service")
        .set("Type", "notify")
        .comment("It may be built in, or there may be no modules at all: no reason not to start.")
        .set("ExecStartPre", "-/sbin/modprobe overlay")
        .set("ExecStart", command)
        .comment("Containers live on while containerd is replaced.")
        .set("Delegate", "yes")
        .set("KillMode", "process");
    restart_always(&mut unit);
    unit.set("LimitNPROC", "infinity")
        .set("LimitCORE", "infinity")
        .set("LimitNOFILE", "infinity")
        .set("TasksMax", "infinity")
        .set("OOMScoreAdjust", "-999")
        .section("Install")
        .set("WantedBy", "multi-user.target");
    Ok(unit.bytes())
}

/// The kubelet unit. It orders after and wants the agent's containerd, never the distribution's.
///
/// `Type=exec` makes a start fail at once when the program cannot be executed. The variables of `current/etc/kubelet/env`
/// are required: without them kubelet would join under another name.
pub fn render_kubelet(spec: &UnitSpec) -> Result<Vec<u8>, UnitError> {
    let command = command(spec, UNIT_KUBELET)?;
    let env = encode::path(&spec.kubelet_env_path()).map_err(rendering(UNIT_KUBELET))?;
    let mut unit = UnitText::new();
    unit.section("Unit")
        .set("Description", "kubelet of this Kubernetes node")
        .set("After", format_args!("network-online.target {UNIT_CONTAINERD}"))
        .set("Wants", format_args!("network-online.target {UNIT_CONTAINERD}"))
        .comment("Its own back-off is enough; without this a few quick failures would end it for good.")
        .set("StartLimitIntervalSec", "0")
        .section("Service")
        .set("Type", "exec")
        .set("EnvironmentFile", env)
        .comment("Labels and taints to register with, if there are any.")
        .set("EnvironmentFile", format_args!("-{REGISTRATION_ENV_PATH}"))
        .set("ExecStart", command)
        .comment("How kubelet ends on SIGTERM.")
        .set("SuccessExitStatus", "143")
        .comment("Mount helpers that it started serve pods that live on.")
        .set("KillMode", "process");
    restart_always(&mut unit);
    unit.section("Install").set("WantedBy", "multi-user.target");
    Ok(unit.bytes())
}

/// The CoreDNS supervisor unit. `supervisor` is the path of the supervisor script in the version directory.
pub fn render_local_dns(supervisor: &Path) -> Result<Vec<u8>, UnitError> {
    let name = super::consts::UNIT_LOCAL_DNS;
    let command = encode::command_line_of(&[supervisor.to_string_lossy()]).map_err(rendering(name))?;
    let mut unit = UnitText::new();
    unit.section("Unit")
        .set("Description", "LocalDNS of this Kubernetes node")
        .set("Requires", UNIT_LOCAL_DNS_NETWORK)
        .set("Wants", "network-online.target")
        .set("After", format_args!("network-online.target {UNIT_LOCAL_DNS_NETWORK}"))
        .set("StartLimitIntervalSec", "0")
        .section("Service")
        .comment("The supervisor says READY when CoreDNS answers, and keeps the watchdog while it does.")
        .set("Type", "notify")
        .set("NotifyAccess", "all")
        .set("ExecStart", command)
        .set("WatchdogSec", "60")
        .set("Restart", "on-failure")
        .set("RestartSec", "2")
        .set("KillMode", "mixed")
        .set("TimeoutStartSec", "90")
        .set("TimeoutStopSec", "30")
        .set("Slice", "localdns.slice")
        .set("DynamicUser", "yes")
        .set("AmbientCapabilities", "CAP_NET_BIND_SERVICE")
        .set("CapabilityBoundingSet", "CAP_NET_BIND_SERVICE")
        .set("NoNewPrivileges", "yes")
        .set("PrivateTmp", "yes")
        .set("ProtectSystem", "strict")
        .set("ProtectHome", "yes")
        .section("Install")
        .set("WantedBy", "multi-user.target");
    Ok(unit.bytes())
}

/// The oneshot that runs the allocation launch check before every kubelet start on an allocation host.
///
/// It is a unit of its own because `RestartPreventExitStatus=` applies to a main process only: a final refusal
/// ([`LAUNCH_CHECK_REFUSED`]) has to fail kubelet's start instead of looping under its `Restart=always`. Any other failure
/// is tried again while kubelet's start waits (`RestartMode=direct`, systemd 254; before, a failure fails kubelet's start).
/// It does not stay active, so that it runs before each start, and has no `[Install]`: only kubelet pulls it in.
///
/// `command` is a command line in systemd's syntax.
pub fn render_kubelet_launch_check(command: &str) -> Result<Vec<u8>, UnitError> {
    let name = super::consts::UNIT_KUBELET_LAUNCH_CHECK;
    let command = encode::raw_command(command).map_err(rendering(name))?;
    let mut unit = UnitText::new();
    unit.section("Unit")
        .set("Description", "launch check of this allocation host")
        .set("Wants", "network-online.target")
        .set("After", "network-online.target")
        .set("StartLimitIntervalSec", "0")
        .section("Service")
        .set("Type", "oneshot")
        .set("ExecStart", command)
        .set("TimeoutStartSec", "120")
        .set("Restart", "on-failure")
        .set("RestartMode", "direct")
        .set("RestartSec", "5")
        .comment("A final refusal.")
        .set("RestartPreventExitStatus", LAUNCH_CHECK_REFUSED);
    Ok(unit.bytes())
}

fn command(spec: &UnitSpec, unit: &'static str) -> Result<String, UnitError> {
    encode::command_line(&spec.command(unit).unwrap_or_default()).map_err(rendering(unit))
}

/// What writing units did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The files that are in place now, in the order in which they were written.
    pub paths: Vec<PathBuf>,
    /// Those that were written because their bytes differed or they were missing, and those that were removed. systemd
    /// has to reload exactly when this is not empty.
    pub changed: Vec<PathBuf>,
}

impl Written {
    /// Whether anything was written or removed.
    pub fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    pub(crate) fn file(&mut self, fs: &dyn Fs, path: PathBuf, bytes: &[u8]) -> Result<(), UnitError> {
        let change = durable::write(fs, &path, bytes, UNIT_MODE)?;
        self.note(path, change);
        Ok(())
    }

    fn note(&mut self, path: PathBuf, change: Change) {
        if change.made() {
            self.changed.push(path.clone());
        }
        self.paths.push(path);
    }

    pub(crate) fn join(&mut self, other: Written) {
        self.paths.extend(other.paths);
        self.changed.extend(other.changed);
    }
}

/// Writes the containerd and the kubelet unit into `dir` and returns their paths. Each is replaced atomically, so a crash
/// never leaves half a unit; one whose bytes are right is not touched.
pub fn write_units(fs: &dyn Fs, dir: &Path, spec: &UnitSpec) -> Result<Written, UnitError> {
    // Both are rendered before anything is written: a bad value changes nothing.
    let containerd = render_containerd(spec)?;
    let kubelet = render_kubelet(spec)?;
    let mut written = Written::default();
    written.file(fs, dir.join(UNIT_CONTAINERD), &containerd)?;
    written.file(fs, dir.join(UNIT_KUBELET), &kubelet)?;
    Ok(written)
}

#[cfg(test)]
mod tests;

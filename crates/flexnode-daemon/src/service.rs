//! The agent's own systemd service.
//!
//! The unit has no directive that gives it a mount namespace (PrivateTmp=, Protect…=, ReadOnlyPaths= and their like,
//! systemd.exec(5)): what the daemon unmounts has to vanish from the host. It neither requires nor orders after a unit of
//! the node, since it is what brings these back after a crash, and it does not wait for the network to be up: a host
//! that comes up without it must be able to finish an interrupted operation.

use flexnode_host::durable::{self, Change};
use flexnode_host::{Host, HostError};
use flexnode_isolation::none::encode;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The agent's unit (daemon.txt, `ServiceUnitName`).
pub const SERVICE_UNIT_NAME: &str = "aks-flex-node-agent.service";
/// Where it is installed; the first-boot unit only runs while it is absent (daemon.txt, `ServiceUnitPath`).
pub const SERVICE_UNIT_PATH: &str = "/etc/systemd/system/aks-flex-node-agent.service";
/// The oneshot unit of hosts that Ignition provisioned; reset removes it (daemon.txt, `FirstBootUnitName`).
pub const FIRST_BOOT_UNIT_NAME: &str = "aks-flex-node-bootstrap.service";
/// Where a first-boot unit lies.
pub const FIRST_BOOT_UNIT_PATH: &str = "/etc/systemd/system/aks-flex-node-bootstrap.service";

/// The daemon pings at half of this; when it hangs longer systemd ends it and starts it again.
pub const WATCHDOG: Duration = Duration::from_mins(1);
/// After an end that nobody asked for. There is no limit of starts: whatever ended the daemon so often, somebody has to finish
/// what is open on the node. systemd before version 254 knows no steps, tells so in its log, and keeps to this pause.
const PAUSE: Duration = Duration::from_secs(5);
/// Starts until the pause is [`PAUSE_LONGEST`].
const PAUSE_STEPS: u32 = 8;
/// The pause of a daemon that ends again and again.
const PAUSE_LONGEST: Duration = Duration::from_mins(1);
/// READY comes before any work, so a start that takes longer is broken.
const START_DEADLINE: Duration = Duration::from_mins(1);
/// The daemon ends at its next boundary; the longest step of an operation must fit.
const STOP_DEADLINE: Duration = Duration::from_mins(10);
const JOB_DEADLINE: Duration = Duration::from_secs(30);

/// What the daemon and the programs that it runs do without. Nothing here makes a mount namespace: Protect…=, Private…= and
/// the like would, and what the daemon unmounts has to vanish from the host. It mounts and unmounts, loads modules, changes
/// links and packet filters, signals and looks at every process, and owns files of every mode: those capabilities stay.
const HARDENING: &str = "UMask=0077\n\
    NoNewPrivileges=yes\n\
    LockPersonality=yes\n\
    MemoryDenyWriteExecute=yes\n\
    RestrictRealtime=yes\n\
    RestrictSUIDSGID=yes\n\
    RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK\n\
    RestrictNamespaces=~user cgroup\n\
    SystemCallArchitectures=native\n\
    SystemCallErrorNumber=EPERM\n\
    SystemCallFilter=~@clock @cpu-emulation @debug @obsolete @raw-io @reboot\n\
    KeyringMode=private\n\
    CapabilityBoundingSet=~CAP_AUDIT_CONTROL CAP_AUDIT_READ CAP_AUDIT_WRITE CAP_BLOCK_SUSPEND CAP_BPF \
    CAP_CHECKPOINT_RESTORE CAP_IPC_LOCK CAP_IPC_OWNER CAP_LEASE CAP_LINUX_IMMUTABLE CAP_MAC_OVERRIDE CAP_NET_BROADCAST \
    CAP_PERFMON CAP_SYS_BOOT CAP_SYS_NICE CAP_SYS_PACCT CAP_SYS_RAWIO CAP_SYS_TIME CAP_SYS_TTY_CONFIG CAP_SYSLOG \
    CAP_WAKE_ALARM\n";

/// What the unit's text is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSpec {
    /// The agent's program.
    pub program: PathBuf,
    /// The configuration that the daemon reads.
    pub config: PathBuf,
}

/// Why the service could not be installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// A path that is not UTF-8.
    #[error("{} cannot be named in a systemd unit: it is not UTF-8", .0.display())]
    Path(PathBuf),
    /// A path with characters that cannot stand in a unit.
    #[error("{} cannot be named in a systemd unit", .0.display())]
    Encode(PathBuf, #[source] encode::EncodeError),
    /// systemd refused or did not answer in time.
    #[error("the agent's service could not be {0}")]
    Systemd(&'static str, #[source] HostError),
    /// A file could not be changed.
    #[error("the file of the agent's service could not be changed")]
    Fs(#[from] flexnode_host::FsError),
}

/// The unit's text.
pub fn render(spec: &ServiceSpec) -> Result<String, ServiceError> {
    let argv = [text(&spec.program)?, "daemon", "--config", text(&spec.config)?];
    let command = encode::command_line_of(&argv).map_err(|e| ServiceError::Encode(spec.config.clone(), e))?;
    Ok(format!(
        "# Written by aks-flex-node. Removed by `aks-flex-node reset`.\n\
         [Unit]\n\
         Description=AKS Flex Node agent\n\
         Documentation=man:aks-flex-node(8)\n\
         After=network.target\n\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         Type=notify\n\
         NotifyAccess=main\n\
         ExecStart={command}\n\
         Restart=always\n\
         RestartSec={pause}\n\
         RestartSteps={steps}\n\
         RestartMaxDelaySec={longest}\n\
         WatchdogSec={watchdog}\n\
         TimeoutStartSec={start}\n\
         TimeoutStopSec={stop}\n\
         KillMode=mixed\n\
         RuntimeDirectory=aks-flex-node\n\
         RuntimeDirectoryMode=0755\n\
         RuntimeDirectoryPreserve=yes\n\
         {HARDENING}\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n",
        pause = PAUSE.as_secs(),
        steps = PAUSE_STEPS,
        longest = PAUSE_LONGEST.as_secs(),
        watchdog = WATCHDOG.as_secs(),
        start = START_DEADLINE.as_secs(),
        stop = STOP_DEADLINE.as_secs(),
    ))
}

fn text(path: &Path) -> Result<&str, ServiceError> {
    path.to_str().ok_or_else(|| ServiceError::Path(path.into()))
}

/// Writes, enables and starts the service. Changes nothing where it is in place and runs. A daemon that runs already is
/// not replaced: the caller restarts it when the program changed.
pub async fn install(host: &Host, spec: &ServiceSpec) -> Result<Change, ServiceError> {
    let text = render(spec)?;
    let path = Path::new(SERVICE_UNIT_PATH);
    let looked = |e| ServiceError::Systemd("looked at", e);
    let mut change = durable::write(host.fs.as_ref(), path, text.as_bytes(), 0o644)?;
    if host.systemd.unit(SERVICE_UNIT_NAME).await.map_err(looked)?.enabled != "enabled" {
        host.systemd.enable(SERVICE_UNIT_NAME).await.map_err(|e| ServiceError::Systemd("enabled", e))?;
        change = Change::Made;
    }
    // Once, after both: systemd counts changed links too as something that it has not read.
    let state = host.systemd.unit(SERVICE_UNIT_NAME).await.map_err(looked)?;
    if change.made() || state.need_reload || !state.is_loaded() {
        host.systemd.reload().await.map_err(|e| ServiceError::Systemd("loaded", e))?;
        change = Change::Made;
    }
    if !state.is_active() {
        // A unit that failed too often is refused until this is cleared.
        host.systemd.reset_failed(SERVICE_UNIT_NAME).await.map_err(|e| ServiceError::Systemd("cleared", e))?;
        host.systemd
            .start(SERVICE_UNIT_NAME, START_DEADLINE + JOB_DEADLINE)
            .await
            .map_err(|e| ServiceError::Systemd("started", e))?;
        change = Change::Made;
    }
    Ok(change)
}

/// Whether the service is installed, enabled and active with exactly this text.
pub async fn is_installed(host: &Host, spec: &ServiceSpec) -> Result<bool, ServiceError> {
    let text = render(spec)?;
    let now = host.fs.read(Path::new(SERVICE_UNIT_PATH), 1 << 16)?;
    let state = host.systemd.unit(SERVICE_UNIT_NAME).await.map_err(|e| ServiceError::Systemd("looked at", e))?;
    Ok(now.as_deref() == Some(text.as_bytes()) && state.enabled == "enabled" && state.is_active() && !state.need_reload)
}

/// Starts the service again; the daemon ends at its next boundary first.
pub async fn restart(host: &Host) -> Result<(), ServiceError> {
    host.systemd
        .restart(SERVICE_UNIT_NAME, STOP_DEADLINE + START_DEADLINE + JOB_DEADLINE)
        .await
        .map_err(|e| ServiceError::Systemd("restarted", e))
}

/// Stops the service at its next boundary and leaves it installed: what reset does first when the daemon may hold the
/// lock.
pub async fn stop(host: &Host) -> Result<(), ServiceError> {
    host.systemd
        .stop(SERVICE_UNIT_NAME, STOP_DEADLINE + JOB_DEADLINE)
        .await
        .map_err(|e| ServiceError::Systemd("stopped", e))
}

/// Removes the first-boot unit, then disables, removes and (unless this very process is the daemon) stops the agent's
/// unit (daemon.txt, `UninstallService`). Without the units it changes nothing. systemd keeps what it has
/// read of them until its next reload, which the caller has for other units too: see [`forget`].
pub async fn uninstall(host: &Host, stop_it: bool) -> Result<Change, ServiceError> {
    let mut change = remove_unit(host, FIRST_BOOT_UNIT_NAME, FIRST_BOOT_UNIT_PATH, true).await?;
    // Stopping comes last: the daemon may be the one that waits for us.
    change = change.or(remove_unit(host, SERVICE_UNIT_NAME, SERVICE_UNIT_PATH, false).await?);
    if stop_it {
        let state = host.systemd.unit(SERVICE_UNIT_NAME).await.map_err(|e| ServiceError::Systemd("looked at", e))?;
        if state.main_pid != 0 || state.is_active() {
            stop(host).await?;
            change = Change::Made;
        }
    }
    Ok(change)
}

/// Has systemd read again what is on disk, where it still knows a unit that [`uninstall`] removed.
pub async fn forget(host: &Host) -> Result<Change, ServiceError> {
    let looked = |e| ServiceError::Systemd("looked at", e);
    let mut known = false;
    for (name, path) in [(SERVICE_UNIT_NAME, SERVICE_UNIT_PATH), (FIRST_BOOT_UNIT_NAME, FIRST_BOOT_UNIT_PATH)] {
        let state = host.systemd.unit(name).await.map_err(looked)?;
        known |= state.fragment == Path::new(path) && host.fs.lstat(Path::new(path))?.is_none();
    }
    if !known {
        return Ok(Change::None);
    }
    host.systemd.reload().await.map_err(|e| ServiceError::Systemd("unloaded", e))?;
    host.systemd.reset_failed(SERVICE_UNIT_NAME).await.map_err(|e| ServiceError::Systemd("cleared", e))?;
    Ok(Change::Made)
}

async fn remove_unit(host: &Host, name: &str, path: &str, stop_it: bool) -> Result<Change, ServiceError> {
    let path = Path::new(path);
    // Looked at first: removing a missing file on a read-only file system is an error of its own.
    if host.fs.lstat(path)?.is_none() {
        return Ok(Change::None);
    }
    if stop_it {
        host.systemd.stop(name, JOB_DEADLINE).await.map_err(|e| ServiceError::Systemd("stopped", e))?;
    }
    host.systemd.disable(name).await.map_err(|e| ServiceError::Systemd("disabled", e))?;
    Ok(durable::remove_file(host.fs.as_ref(), path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> ServiceSpec {
        ServiceSpec {
            program: "/opt/unbounded/agent/bin/aks-flex-node".into(),
            config: "/etc/aks-flex-node/config.json".into(),
        }
    }

    #[test]
    fn constants_keep_their_values_to_the_letter() {
        assert_eq!(SERVICE_UNIT_NAME, "aks-flex-node-agent.service");
        assert_eq!(SERVICE_UNIT_PATH, "/etc/systemd/system/aks-flex-node-agent.service");
        assert_eq!(FIRST_BOOT_UNIT_NAME, "aks-flex-node-bootstrap.service");
    }

    #[test]
    fn the_unit_names_program_and_configuration() {
        let text = render(&spec()).unwrap();
        assert!(text.contains(
            "\nExecStart=/opt/unbounded/agent/bin/aks-flex-node daemon --config /etc/aks-flex-node/config.json\n"
        ));
        assert!(
            text.contains("\nType=notify\n")
                && text.contains("\nRestart=always\n")
                && text.contains("\nWatchdogSec=60\n")
        );
        assert!(text.contains("\nRuntimeDirectoryPreserve=yes\n"));
    }

    #[test]
    fn it_is_started_again_however_often_it_ended() {
        let text = render(&spec()).unwrap();
        for line in
            ["Restart=always", "StartLimitIntervalSec=0", "RestartSec=5", "RestartSteps=8", "RestartMaxDelaySec=60"]
        {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert!(!text.contains("StartLimitBurst"), "{text}");
    }

    #[test]
    fn no_directive_gives_a_mount_namespace() {
        let text = render(&spec()).unwrap();
        for directive in [
            "PrivateTmp",
            "PrivateDevices",
            "PrivateMounts",
            "PrivateUsers",
            "PrivateNetwork",
            "PrivateIPC",
            "Protect",
            "ReadOnlyPaths",
            "ReadWritePaths",
            "InaccessiblePaths",
            "ExecPaths",
            "NoExecPaths",
            "BindPaths",
            "BindReadOnlyPaths",
            "TemporaryFileSystem",
            "MountFlags",
            "RootDirectory",
            "RootImage",
            "MountAPIVFS",
            "DynamicUser",
            "StateDirectory",
            "LoadCredential",
            "SetCredential",
            "ImportCredential",
            "NetworkNamespacePath",
            "JoinsNamespaceOf",
            "ExtensionImages",
        ] {
            assert!(!text.contains(directive), "{directive}");
        }
    }

    #[test]
    fn it_gives_up_what_it_does_not_need() {
        let text = render(&spec()).unwrap();
        for line in ["NoNewPrivileges=yes", "UMask=0077", "RestrictRealtime=yes", "SystemCallArchitectures=native"] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        // What the work needs: mounts, modules, links and filters, other programs' processes and files.
        let given_up = text.lines().find(|line| line.starts_with("CapabilityBoundingSet=~")).unwrap();
        let needed = [
            "SYS_ADMIN",
            "SYS_MODULE",
            "NET_ADMIN",
            "NET_RAW",
            "KILL",
            "SYS_PTRACE",
            "DAC_OVERRIDE",
            "CHOWN",
            "FOWNER",
        ];
        assert!(needed.iter().all(|capability| !given_up.contains(capability)), "{given_up}");
    }

    #[test]
    fn it_does_not_depend_on_a_unit_of_the_node() {
        let text = render(&spec()).unwrap();
        assert!(!text.contains("unbounded-"), "{text}");
        assert!(
            !text.lines().any(|l| l.starts_with("Requires=") || l.starts_with("BindsTo=") || l.starts_with("PartOf="))
        );
    }

    #[test]
    fn a_configuration_elsewhere_is_one_argument_taken_literally() {
        let text = render(&ServiceSpec { config: "/srv/a b/%n/$HOME.json".into(), ..spec() }).unwrap();
        let line = text.lines().find(|l| l.starts_with("ExecStart=")).unwrap();
        assert!(line.ends_with(r#" daemon --config "/srv/a b/%%n/$$HOME.json""#), "{line}");
        assert!(render(&ServiceSpec { config: "/a\nb".into(), ..spec() }).is_err());
    }

    fn host() -> flexnode_host::testing::FakeHost {
        let fake = flexnode_host::testing::FakeHost::new();
        fake.fs.put("/opt/unbounded/agent/bin/aks-flex-node", "", 0o755);
        fake
    }

    #[tokio::test]
    async fn it_is_installed_once_and_removed_without_a_trace() {
        let fake = host();
        let before = fake.fs.tree();
        assert_eq!(install(&fake.host(), &spec()).await.unwrap(), Change::Made);
        let state = fake.systemd.state(SERVICE_UNIT_NAME);
        assert!(state.is_active() && state.enabled == "enabled", "{state:?}");
        assert!(is_installed(&fake.host(), &spec()).await.unwrap(), "{:?}", fake.systemd.state(SERVICE_UNIT_NAME));
        let (tree, calls) = (fake.fs.tree_with_stamps(), fake.systemd.calls());
        assert_eq!(install(&fake.host(), &spec()).await.unwrap(), Change::None);
        assert_eq!(
            (fake.fs.tree_with_stamps(), fake.systemd.calls()),
            (tree, calls),
            "the second time nothing happens"
        );
        assert_eq!(uninstall(&fake.host(), true).await.unwrap(), Change::Made);
        let reloads = || fake.systemd.calls().iter().filter(|call| *call == "reload").count();
        let before_forgetting = reloads();
        assert_eq!(forget(&fake.host()).await.unwrap(), Change::Made);
        assert_eq!(forget(&fake.host()).await.unwrap(), Change::None);
        assert_eq!(reloads(), before_forgetting + 1);
        let left: Vec<_> = fake.fs.tree().difference(&before);
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(fake.systemd.state(SERVICE_UNIT_NAME).load, "not-found");
        assert_eq!(uninstall(&fake.host(), true).await.unwrap(), Change::None);
    }

    #[tokio::test]
    async fn the_daemon_that_uninstalls_itself_is_not_stopped() {
        let fake = host();
        install(&fake.host(), &spec()).await.unwrap();
        uninstall(&fake.host(), false).await.unwrap();
        assert!(!fake.systemd.calls().iter().any(|call| call.starts_with("stop")), "{:?}", fake.systemd.calls());
        assert!(!fake.fs.exists(SERVICE_UNIT_PATH));
    }

    #[tokio::test]
    async fn a_first_boot_unit_goes_too() {
        let fake = host();
        fake.fs.put(
            FIRST_BOOT_UNIT_PATH,
            "[Service]\nType=oneshot\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
            0o644,
        );
        fake.host().systemd.enable(FIRST_BOOT_UNIT_NAME).await.unwrap();
        assert_eq!(uninstall(&fake.host(), true).await.unwrap(), Change::Made);
        assert!(!fake.fs.exists(FIRST_BOOT_UNIT_PATH));
    }
}

//! All fakes together.

use super::{
    FakeCgroups, FakeClock, FakeCommands, FakeKernel, FakeMounts, FakeNetwork, FakeProcesses, FakeSystemd, MemFs,
};
use crate::Host;
use std::sync::Arc;

/// A host of fakes that know each other.
#[derive(Clone, Debug)]
pub struct FakeHost {
    /// Files.
    pub fs: Arc<MemFs>,
    /// Units.
    pub systemd: Arc<FakeSystemd>,
    /// Programs.
    pub commands: Arc<FakeCommands>,
    /// Processes.
    pub processes: Arc<FakeProcesses>,
    /// Control groups.
    pub cgroups: Arc<FakeCgroups>,
    /// Mounts.
    pub mounts: Arc<FakeMounts>,
    /// Links, namespaces, rules.
    pub network: Arc<FakeNetwork>,
    /// Sysctls, modules, swap.
    pub kernel: Arc<FakeKernel>,
    /// Time.
    pub clock: Arc<FakeClock>,
}

impl Default for FakeHost {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeHost {
    /// A plain host: the usual top directories, no units, no swap, cgroup v2.
    pub fn new() -> Self {
        let fs = Arc::new(MemFs::new());
        for dir in ["/etc/systemd/system", "/usr/bin", "/usr/lib/systemd/system", "/var/lib", "/opt", "/run", "/dev"] {
            fs.put_dir(dir, 0o755);
        }
        fs.put_dir("/tmp", 0o1777).put_special("/dev/null", 0o666);
        fs.put("/usr/lib/systemd/systemd", "", 0o755);
        Self::on(fs)
    }

    /// A host that was just switched on with this disk: nothing runs, no kernel setting is made, and what lies in memory
    /// (/run, /tmp) is gone. [`FakeSystemd::reboot`] then starts the units that are enabled.
    pub fn booted(disk: MemFs) -> Self {
        disk.take("/run").put_dir("/run/systemd/system", 0o755).take("/tmp").put_dir("/tmp", 0o1777);
        Self::on(Arc::new(disk))
    }

    fn on(fs: Arc<MemFs>) -> Self {
        let clock = Arc::new(FakeClock::new());
        let processes = Arc::new(FakeProcesses::new(fs.clone(), clock.clone()));
        let cgroups = Arc::new(FakeCgroups::new(processes.clone(), clock.clone()));
        let systemd = FakeSystemd::new(fs.clone(), processes.clone(), cgroups.clone(), clock.clone());
        Self {
            systemd: Arc::new(systemd),
            commands: Arc::new(FakeCommands::new(clock.clone())),
            mounts: Arc::new(FakeMounts::new(fs.clone(), clock.clone())),
            network: Arc::new(FakeNetwork::new()),
            kernel: Arc::new(FakeKernel::new()),
            processes,
            cgroups,
            clock,
            fs,
        }
    }

    /// The host for the code under test. Single parts may be replaced in it.
    pub fn host(&self) -> Host {
        Host {
            fs: self.fs.clone(),
            systemd: self.systemd.clone(),
            commands: self.commands.clone(),
            processes: self.processes.clone(),
            cgroups: self.cgroups.clone(),
            mounts: self.mounts.clone(),
            network: self.network.clone(),
            kernel: self.kernel.clone(),
            clock: self.clock.clone(),
        }
    }
}

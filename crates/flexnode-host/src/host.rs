//! The real thing in every seam.

use crate::{
    Host, RealCgroups, RealClock, RealCommands, RealFs, RealKernel, RealMounts, RealNetwork, RealProcesses, RealSystemd,
};
use std::sync::Arc;

impl Host {
    /// This machine. Nothing is opened or asked yet.
    pub fn real() -> Self {
        let commands = Arc::new(RealCommands);
        Self {
            fs: Arc::new(RealFs::host()),
            systemd: Arc::new(RealSystemd::new(commands.clone())),
            processes: Arc::new(RealProcesses),
            cgroups: Arc::new(RealCgroups),
            mounts: Arc::new(RealMounts),
            network: Arc::new(RealNetwork::new(commands.clone())),
            kernel: Arc::new(RealKernel::new(commands.clone())),
            clock: Arc::new(RealClock),
            commands,
        }
    }
}

//! Kernel settings.

use super::locked;
use crate::{HostError, Kernel, SwapArea};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;

/// What a [`FakeKernel`] is made of; [`FakeKernel::change`] gives access to all of it.
#[derive(Clone, Debug)]
pub struct KernelState {
    /// Host name.
    pub host_name: String,
    /// Identity of this boot.
    pub boot_id: String,
    /// As `uname -r`.
    pub release: String,
    /// The keys that this kernel has.
    pub sysctls: BTreeMap<String, String>,
    /// Keys that cannot be set: writing fails.
    pub read_only_sysctls: BTreeSet<String>,
    /// Keys that take every value and keep their own.
    pub stuck_sysctls: BTreeSet<String>,
    /// Modules whose function is there.
    pub modules: BTreeSet<String>,
    /// Modules that can be loaded.
    pub loadable: BTreeSet<String>,
    /// Keys that a module brings when it is loaded.
    pub module_sysctls: BTreeMap<String, BTreeMap<String, String>>,
    /// Active swap.
    pub swaps: Vec<SwapArea>,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Processors.
    pub cpus: usize,
    /// `amd64` or `arm64`.
    pub arch: &'static str,
}

impl Default for KernelState {
    fn default() -> Self {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let set = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Self {
            host_name: "node1".to_owned(),
            boot_id: "0f4b6c1e-9a3d-4a57-8b0e-5d2f7c6e1a90".to_owned(),
            release: "6.12.0-fake".to_owned(),
            sysctls: map(&[
                ("net.ipv4.ip_forward", "0"),
                ("net.ipv6.conf.all.forwarding", "0"),
                ("vm.overcommit_memory", "0"),
                ("vm.panic_on_oom", "0"),
                ("vm.swappiness", "60"),
                ("kernel.panic", "0"),
                ("kernel.panic_on_oops", "0"),
                ("kernel.keys.root_maxkeys", "1000000"),
                ("kernel.keys.root_maxbytes", "25000000"),
                ("fs.inotify.max_user_instances", "128"),
                ("fs.inotify.max_user_watches", "65536"),
            ]),
            read_only_sysctls: BTreeSet::new(),
            stuck_sysctls: BTreeSet::new(),
            modules: BTreeSet::new(),
            loadable: set(&["overlay", "br_netfilter", "nf_conntrack", "ip_vs", "vxlan", "wireguard", "dummy"]),
            module_sysctls: [(
                "br_netfilter".to_owned(),
                map(&[("net.bridge.bridge-nf-call-iptables", "1"), ("net.bridge.bridge-nf-call-ip6tables", "1")]),
            )]
            .into(),
            swaps: Vec::new(),
            memory_bytes: 8 << 30,
            cpus: 4,
            arch: "amd64",
        }
    }
}

/// Kernel settings: a plain x86-64 machine with nothing loaded and no swap. Changes are logged.
#[derive(Debug, Default)]
pub struct FakeKernel {
    state: Mutex<KernelState>,
    log: Mutex<Vec<String>>,
}

impl FakeKernel {
    /// The plain machine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Changes anything, unlogged.
    pub fn change(&self, change: impl FnOnce(&mut KernelState)) -> &Self {
        change(&mut locked(&self.state));
        self
    }

    /// Everything as it is now.
    pub fn state(&self) -> KernelState {
        locked(&self.state).clone()
    }

    /// What was changed through the trait, in order: `sysctl KEY=VALUE`, `modprobe NAME`, `swapoff PATH`, `swapon PATH`.
    pub fn log(&self) -> Vec<String> {
        locked(&self.log).clone()
    }

    fn note(&self, line: String) {
        locked(&self.log).push(line);
    }
}

fn failed(what: String, reason: &str) -> HostError {
    HostError::Failed { what, reason: reason.to_owned() }
}

#[async_trait]
impl Kernel for FakeKernel {
    fn host_name(&self) -> Result<String, HostError> {
        Ok(locked(&self.state).host_name.clone())
    }
    fn boot_id(&self) -> Result<String, HostError> {
        Ok(locked(&self.state).boot_id.clone())
    }
    fn release(&self) -> Result<String, HostError> {
        Ok(locked(&self.state).release.clone())
    }
    fn sysctl(&self, key: &str) -> Result<Option<String>, HostError> {
        Ok(locked(&self.state).sysctls.get(key).cloned())
    }

    fn set_sysctl(&self, key: &str, value: &str) -> Result<(), HostError> {
        let mut state = locked(&self.state);
        let what = || format!("set sysctl {key} to {value}");
        if !state.sysctls.contains_key(key) {
            return Err(HostError::Absent { what: format!("sysctl {key}") });
        }
        if state.read_only_sysctls.contains(key) {
            return Err(failed(what(), "read-only file system"));
        }
        if state.stuck_sysctls.contains(key) && state.sysctls.get(key).is_some_and(|now| now != value) {
            return Err(failed(what(), "the kernel keeps another value"));
        }
        state.sysctls.insert(key.to_owned(), value.to_owned());
        self.note(format!("sysctl {key}={value}"));
        Ok(())
    }

    fn has_module(&self, module: &str) -> Result<bool, HostError> {
        Ok(locked(&self.state).modules.contains(module))
    }

    async fn load_module(&self, module: &str) -> Result<(), HostError> {
        let mut state = locked(&self.state);
        if state.modules.contains(module) {
            return Ok(());
        }
        if !state.loadable.contains(module) {
            return Err(failed(format!("load kernel module {module}"), "module not found"));
        }
        state.modules.insert(module.to_owned());
        let brought = state.module_sysctls.get(module).cloned().unwrap_or_default();
        state.sysctls.extend(brought);
        self.note(format!("modprobe {module}"));
        Ok(())
    }

    fn swaps(&self) -> Result<Vec<SwapArea>, HostError> {
        Ok(locked(&self.state).swaps.clone())
    }

    async fn swap_off(&self, path: &Path) -> Result<(), HostError> {
        let mut state = locked(&self.state);
        let Some(at) = state.swaps.iter().position(|swap| swap.path == path) else {
            return Err(HostError::Absent { what: format!("swap {}", path.display()) });
        };
        state.swaps.remove(at);
        self.note(format!("swapoff {}", path.display()));
        Ok(())
    }

    async fn swap_on(&self, path: &Path, priority: i32) -> Result<(), HostError> {
        let mut state = locked(&self.state);
        if !state.swaps.iter().any(|swap| swap.path == path) {
            let area = SwapArea { path: path.to_path_buf(), kind: "file".to_owned(), bytes: 1 << 30, priority };
            state.swaps.push(area);
            self.note(format!("swapon {}", path.display()));
        }
        Ok(())
    }

    fn memory_bytes(&self) -> Result<u64, HostError> {
        Ok(locked(&self.state).memory_bytes)
    }
    fn cpus(&self) -> usize {
        locked(&self.state).cpus
    }
    fn arch(&self) -> &'static str {
        locked(&self.state).arch
    }
}

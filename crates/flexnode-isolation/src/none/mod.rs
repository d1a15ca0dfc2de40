//! The isolation backend that runs the node stack directly on the host as agent-owned systemd units.
//!
//! Artifacts and configuration live in versioned directories under an agent-owned base, selected by a `current` link, so
//! an upgrade is a link flip that can be flipped back.

pub mod cni;
pub mod consts;
mod contract;
mod destroy;
pub mod dropins;
pub mod encode;
pub mod hooks;
pub mod layout;
mod lifecycle;
mod links;
mod logs;
pub mod manifest;
mod mend;
mod node;
pub mod preflight;
mod prepare;
mod reap;
pub mod root;
pub mod run;
pub mod units;
mod upgrade;

pub use cni::Linked;
pub use consts::*;
pub use dropins::{
    drop_in_dir, remove_all, remove_stale, render_gpu_setup_drop_in, render_kubelet_launch_check_drop_in,
    render_local_dns_drop_in, render_path_drop_in, write_drop_ins,
};
pub use encode::EncodeError;
pub use hooks::{Hook, Install, Installed, Kill, LookPath, RollbackUnits, Runner, WrittenFile};
pub use layout::{Layout, LayoutError, mkdir_traversable};
pub use manifest::{Level, Manifest, SlotError};
pub use node::Backend;
pub use preflight::{Finding, HostFs, PreflightError, check_writable};
pub use root::Root;
pub use units::{
    UnitError, UnitSpec, Written, render_containerd, render_kubelet, render_kubelet_launch_check, render_local_dns,
    write_units,
};
pub use upgrade::UpgradeRequest;

#[cfg(test)]
mod tests;

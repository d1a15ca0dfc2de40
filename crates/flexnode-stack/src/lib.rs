//! From a goal to files: what containerd and kubelet are told, what kubelet joins with, and the installer that fills a
//! slot.
//!
//! Renderers are pure functions from a [`flexnode_model::MachineGoal`] to bytes. Installers take a
//! [`flexnode_isolation::NodeRoot`] and never join host paths themselves, so the same code serves every backend. What
//! belongs to a version goes into its slot ([`Installer`]); what belongs to the node ([`node_files`]) is written once and
//! not rolled back. Effects go through [`flexnode_host::Fs`].

pub mod containerd;
pub mod environment;
mod facts;
mod install;
pub mod kubeconfig;
pub mod kubelet;
mod merge;
pub mod node_files;
pub mod places;
pub mod references;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use facts::HostFacts;
pub use install::{InstallError, Installer, Rendered, render, resolved_goal};

/// Revision of the renderers: raised when the same goal gives other bytes. A slot keeps the revision that it was made
/// with; a difference is reported and never rewritten.
pub const RENDERER: u32 = 1;

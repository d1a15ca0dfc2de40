//! The lab as a library: a real control plane and real systemd hosts on one Linux machine, for tests and for `cargo xtask`.
//!
//! What it may touch: its cache directory ([`cache`]), network namespaces named `flexnode-N…`, cgroups of the same names,
//! and packages of this machine when [`prerequisites`] has to install some. The agent's crates never depend on it, and it
//! depends on none of them: it meets the agent only as a program in a host.
//!
//! How things go through it: [`kubernetes`], [`packages`], [`base`] and [`image`] make cache entries once; a [`Lab`] takes
//! a slot with a bridge in a network namespace of its own; a [`ControlPlane`], any number of [`Host`]s and, where a host
//! has to have a kernel of its own, a [`Machine`] run in it. All
//! that a lab starts is written into its directory before it exists, so that the next lab can remove what a killed one left.

pub mod agent;
pub mod artifacts;
pub mod base;
pub mod by_hand;
pub mod cache;
mod cgroup;
pub mod control_plane;
mod exec;
pub mod host;
pub mod image;
pub mod interrupt;
pub mod kubernetes;
pub mod lab;
pub mod machine;
pub mod node;
mod objects;
pub mod packages;
pub mod pki;
pub mod poll;
pub mod prerequisites;
pub mod process;
mod record;
pub mod run;
pub mod snapshot;
pub mod stand_in;

pub use agent::{agent_binary, test_programs};
pub use artifacts::{Artifacts, artifacts};
pub use control_plane::ControlPlane;
pub use exec::Spawned;
pub use host::Host;
pub use lab::Lab;
pub use machine::Machine;
pub use poll::poll;
pub use run::Output;

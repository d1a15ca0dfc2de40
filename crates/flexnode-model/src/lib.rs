//! The documents that cross a boundary: configuration, machine goal, daemon state, journal record, slot and bundle
//! manifests, node status. Plain data, versioned, without I/O; a sample of every old version is in the tests.

pub mod goal;
pub mod secret;

pub use goal::{CgroupLayout, ContainerdGoal, Isolation, Join, KubeletGoal, MachineGoal};
pub use secret::Secret;

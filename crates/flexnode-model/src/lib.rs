//! The documents that cross a boundary: configuration, machine goal, daemon state, journal record, slot and bundle
//! manifests, node status. Plain data, versioned, without I/O; a sample of every old version is in the tests.

pub mod bundle;
pub mod canonical;
pub mod config;
pub mod difference;
pub mod document;
pub mod goal;
pub mod journal;
pub mod record;
pub mod secret;
pub mod slot;
pub mod snapshot;
pub mod state;
pub mod status;

pub use bundle::{BundleManifest, BundleVersions};
pub use config::{Config, ConfigErrors, HostFacts, Warning, config_schema};
pub use difference::Difference;
pub use document::DocumentError;
pub use goal::{CgroupLayout, ContainerdGoal, Isolation, Join, KubeletGoal, MachineGoal};
pub use journal::JournalRecord;
pub use record::HostRecord;
pub use secret::Secret;
pub use slot::{SlotName, SlotNameError};
pub use snapshot::Snapshot;
pub use state::{State, StateError};

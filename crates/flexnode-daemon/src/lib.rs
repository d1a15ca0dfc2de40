//! The agent's decisions and life: becoming a node, staying one, and going without a trace.

pub mod agent_binary;
pub mod api;
pub mod config_file;
pub mod daemon;
pub mod foreign;
pub mod host_setup;
pub mod leftovers;
pub mod lock;
pub mod look;
pub mod metrics;
pub mod operations;
pub mod preflight;
pub mod record;
pub mod records;
pub mod reset;
pub mod resume;
pub mod service;
pub mod start;
pub mod state;
pub mod swap_watch;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

//! The agent's decisions and life: becoming a node, staying one, and going without a trace.

pub mod agent_binary;
pub mod config_file;
pub mod foreign;
pub mod host_setup;
pub mod preflight;
pub mod service;

//! What the node is now: versions, services, readiness.
//!
//! Data goes one way: the seams of flexnode-host and [`node::OwnNode`] are asked, each with a deadline of its own, and
//! what they say becomes a document. Deciding on it is pure, and the only thing this crate writes is its own status
//! file.

pub mod node;

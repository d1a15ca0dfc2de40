//! How the node stack is separated from the host: the [`Backend`] trait and its implementations.
//!
//! A *slot* is one of several installed versions of the node stack (containerd, runc, kubelet, CNI plugins, LocalDNS)
//! that an upgrade alternates between. A backend installs a slot, makes it the active one, runs it and takes it away.
//! [`none`] runs the stack directly on the host as agent-owned systemd units.
//!
//! Data goes one way: a [`NodeSpec`] names a slot, installers fill it through a [`NodeRoot`], the backend seals it with a
//! manifest, flips a link, and drives units. Every effect goes through `flexnode_host`; every change is a step of
//! `flexnode_ops`, so that it can be planned, journaled, interrupted and resumed.

pub mod backend;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod none;

pub use backend::{
    Backend, Error, ExecRequest, Grants, JoinedErrors, LogRequest, LogSink, Mode, NodeRoot, NodeSpec, Requirements,
    RolledBack, SlotRef, Status, UnitStatus,
};

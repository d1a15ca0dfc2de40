//! What goes and what stays, first as a pure function, then on a host in memory.

mod host;
mod network;
mod plan;

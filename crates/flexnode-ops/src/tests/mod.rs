//! The engine against a file system in memory: order, failures, cancellation, crashes and power cuts.

mod crash;
mod points;
mod runs;
mod support;

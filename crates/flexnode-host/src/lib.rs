//! Every effect on the operating system, each behind a narrow trait with a fake.
//!
//! This is the only crate of the agent that may touch the host. Callers get a [`Host`], which holds one implementation
//! of each trait: [`Host::real`] on a machine, a fake host (feature `testing`) in tests. Paths are always those of the
//! host (`/etc/...`); the [`Fs`] decides below which root they lie, so that every function runs against a temporary
//! tree without knowing it.
//!
//! The traits are dumb on purpose: they do one thing, with a deadline where it can wait, and decide nothing.

pub mod cgroups;
pub mod cri;
pub mod durable;
pub mod fs;
pub mod probe;
mod real_fs;
pub mod seams;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use fs::{DirEntry, FileKind, FileWriter, Fs, FsError, Stat};
pub use real_fs::RealFs;
pub use seams::*;

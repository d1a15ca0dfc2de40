//! Every effect on the operating system, each behind a narrow trait with a fake.
//!
//! This is the only crate of the agent that may touch the host. Callers get a [`Host`], which holds one implementation
//! of each trait: [`Host::real`] on a machine, a fake host (feature `testing`) in tests. Paths are always those of the
//! host (`/etc/...`); the [`Fs`] decides below which root they lie, so that every function runs against a temporary
//! tree without knowing it.
//!
//! The traits are dumb on purpose: they do one thing, with a deadline where it can wait, and decide nothing.

mod cgroups;
mod clock;
mod commands;
pub mod cri;
pub mod durable;
pub mod fs;
mod host;
mod kernel;
pub mod lock;
mod mounts;
mod network;
pub mod probe;
mod processes;
mod real_fs;
pub mod seams;
pub mod space;
mod sys;
mod systemd;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod watch;

pub use cgroups::RealCgroups;
pub use clock::RealClock;
pub use commands::RealCommands;
pub use fs::{DirEntry, FileKind, FileWriter, Fs, FsError, Stat};
pub use kernel::RealKernel;
pub use lock::{Lock, LockError};
pub use mounts::RealMounts;
pub use network::RealNetwork;
pub use processes::RealProcesses;
pub use real_fs::RealFs;
pub use seams::*;
pub use space::{RealSpace, Space, SpaceLeft};
pub use systemd::RealSystemd;
pub use watch::{FileWatch, Inotify, UnitWatch};

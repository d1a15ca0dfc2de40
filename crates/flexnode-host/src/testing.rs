//! Fakes of every seam, with interior mutability and logs, and the suites that hold for a fake and for the real thing.
//!
//! A test makes a [`FakeHost`], arranges its parts, gives [`FakeHost::host`] to the code under test and looks at the
//! parts again. The fakes belong together: a unit that [`FakeSystemd`] starts is a process of [`FakeProcesses`] in a
//! group of [`FakeCgroups`]; a mount of [`FakeMounts`] is another device in [`MemFs`]; whatever waits moves the
//! [`FakeClock`].

mod cgroups;
mod clock;
mod commands;
pub mod fs_suite;
mod host;
mod kernel;
mod mem_fs;
mod mounts;
mod network;
pub mod power;
mod processes;
mod systemd;
pub mod systemd_suite;
mod tree;

pub use cgroups::FakeCgroups;
pub use clock::FakeClock;
pub use commands::FakeCommands;
pub use host::FakeHost;
pub use kernel::{FakeKernel, KernelState};
pub use mem_fs::{Fault, Given, MemFs, Op};
pub use mounts::{FakeMounts, mount_point};
pub use network::FakeNetwork;
pub use power::{Cut, History};
pub use processes::FakeProcesses;
pub use systemd::{FakeSystemd, Script, Verb};
pub use tree::{Node, Tree};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks whether or not a test panicked while it held the lock.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The one place with `unsafe` code.
#![allow(unsafe_code)]

use rustix::fd::OwnedFd;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use std::io;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Command;

/// Registers a descriptor with the runtime, to wait until it can be read.
pub(crate) fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` owns an open descriptor, always the same one, and the `AsyncFd` owns the `OwnedFd`: the
    // descriptor is closed only when the `AsyncFd` is dropped, which ends the registration first. The callers use it
    // through `&AsyncFd` alone, so that it is not replaced.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// Lets the kernel kill the child when the thread that started it ends, also by SIGKILL (prctl(2),
/// `PR_SET_PDEATHSIG`): what this process can no longer wait for must not go on changing the host.
pub(crate) fn die_with_parent(command: &mut Command) {
    let parent: Pid = getpid();
    let hook = move || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before the call above; then nobody sends the signal any more.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: the hook runs between fork and exec, where only async-signal-safe work is allowed (signal-safety(7)). It
    // makes two raw system calls, prctl and getppid, and builds an `io::Error` from a number or a kind, which allocates
    // nothing and takes no lock. It borrows nothing: it owns a copy of the PID.
    unsafe {
        command.pre_exec(hook);
    }
}

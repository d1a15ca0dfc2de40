//! The one place with `unsafe` code.
#![allow(unsafe_code)]

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, set_parent_process_death_signal};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
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

/// A child that makes one umount2(2) and ends with its error number as exit code.
#[derive(Debug)]
pub(crate) struct UnmountChild {
    pid: Pid,
    waited: bool,
}

/// Starts a child that unmounts `path`, so that a file system that does not answer blocks nobody else.
pub(crate) fn unmount_child(path: &Path, flags: UnmountFlags) -> io::Result<UnmountChild> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the process may have other threads, so the child may do only what is async-signal-safe
    // (signal-safety(7)): it makes the raw system call umount2 with a string and flags that were made before the fork,
    // which neither allocates nor takes a lock, and leaves by _exit, which runs no destructor and flushes no buffer.
    let pid = unsafe {
        match libc::fork() {
            0 => {
                let result = rustix::mount::unmount(path.as_c_str(), flags);
                libc::_exit(result.map_or_else(Errno::raw_os_error, |()| 0));
            }
            pid => pid,
        }
    };
    // -1 says that there is no child.
    match u32::try_from(pid).ok().and_then(|_| Pid::from_raw(pid)) {
        Some(pid) => Ok(UnmountChild { pid, waited: false }),
        None => Err(io::Error::last_os_error()),
    }
}

impl UnmountChild {
    /// A descriptor that can be read when the child has ended.
    pub(crate) fn watch(&self) -> io::Result<OwnedFd> {
        Ok(rustix::process::pidfd_open(self.pid, PidfdFlags::NONBLOCK)?)
    }

    /// What the system call said. The child has ended.
    pub(crate) fn result(mut self) -> io::Result<Result<(), Errno>> {
        let status = rustix::process::waitpid(Some(self.pid), WaitOptions::empty())?;
        self.waited = true;
        match status.and_then(|(_, status)| status.exit_status()) {
            Some(0) => Ok(Ok(())),
            Some(error) => Ok(Err(Errno::from_raw_os_error(error))),
            None => Err(io::Error::other("the unmounting child was killed")),
        }
    }

    /// Gives it up. The kernel ends it as soon as its system call returns.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for UnmountChild {
    fn drop(&mut self) {
        if self.waited {
            return;
        }
        let pid = self.pid;
        // It is our child and was not waited for, so the number is still its own.
        let _ = rustix::process::kill_process(pid, Signal::KILL);
        // Somebody has to take its exit status, whenever that comes; if no thread can be had, it stays a zombie.
        let reap = move || rustix::process::waitpid(Some(pid), WaitOptions::empty());
        drop(std::thread::Builder::new().name("unmount".to_owned()).spawn(reap));
    }
}

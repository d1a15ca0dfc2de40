//! Ctrl-C: waits and commands of the lab end with an error, so that everything is cleaned up on the way out.

use anyhow::{Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(false)));

thread_local! {
    static CLEANING: Cell<bool> = const { Cell::new(false) };
}

/// From now on SIGINT, SIGTERM and SIGHUP do not end this process: the lab's waits return an error instead. Programs that
/// the lab starts are in process groups of their own, so a Ctrl-C at the terminal reaches none of them.
pub fn install() -> Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&INTERRUPTED))?;
    }
    Ok(())
}

/// Whether a signal came, and this thread is not cleaning up.
pub fn pending() -> bool {
    INTERRUPTED.load(Ordering::Relaxed) && !CLEANING.get()
}

/// An error when a signal came.
pub fn check() -> Result<()> {
    if pending() {
        bail!("interrupted");
    }
    Ok(())
}

/// Runs `work` without being interrupted: for what removes things.
pub fn while_cleaning<T>(work: impl FnOnce() -> T) -> T {
    let before = CLEANING.replace(true);
    let result = work();
    CLEANING.set(before);
    result
}

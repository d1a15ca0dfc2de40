//! SIGINT, SIGTERM and SIGHUP end a command while that does no harm. From the first step that takes the node down they
//! do not: the person is told, and the operation goes on to the new state or the old one.

use crate::progress::Progress;
use flexnode_ops::{Asked, Cancel};
use std::future::Future;
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that are heard.
pub(crate) struct Heard {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Heard {
    /// They are heard from now on.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hang_up.recv() => "SIGHUP",
        }
    }
}

/// Hears signals until it is dropped. They are heard from the call on, not only from the first poll.
pub fn listening(cancel: Cancel, progress: Progress) -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut heard = Heard::new()?;
    Ok(async move {
        loop {
            let name = heard.next().await;
            progress.say(&answer(name, cancel.request()));
        }
    })
}

/// What is said to a signal.
pub fn answer(signal: &str, asked: Asked) -> String {
    match asked {
        Asked::WillStop => format!("{signal}: it ends when the running step is done"),
        Asked::GoesOn => {
            format!("{signal}: the node may be down, so this goes on until it is whole again; nothing is to be done")
        }
    }
}

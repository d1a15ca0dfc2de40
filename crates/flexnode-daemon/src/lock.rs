//! The one lock of a host, as the agent's operations use it.

use async_trait::async_trait;
use flexnode_host::lock::{LOCK_PATH, Lock, wait_free};
use std::fmt::Debug;
use std::path::PathBuf;

/// Why the lock could not be had.
pub type LockFailure = Box<dyn std::error::Error + Send + Sync>;

/// The lock while it is held; dropping it lets go.
pub trait Held: Send + Debug {}

/// Takes the lock.
#[async_trait]
pub trait Locks: Send + Sync + Debug {
    /// Takes it at once, or says who holds it.
    fn acquire(&self, operation: &str) -> Result<Box<dyn Held>, LockFailure>;
    /// Waits until it is free, without taking it. Dropping the future gives up.
    async fn free(&self) -> Result<(), LockFailure>;
    /// PID of who holds it, as far as that was said.
    fn holder(&self) -> Option<u32> {
        None
    }
}

impl Held for Lock {}

/// The lock of this machine.
#[derive(Clone, Debug)]
pub struct HostLocks {
    path: PathBuf,
}

impl Default for HostLocks {
    fn default() -> Self {
        Self { path: LOCK_PATH.into() }
    }
}

#[async_trait]
impl Locks for HostLocks {
    fn acquire(&self, operation: &str) -> Result<Box<dyn Held>, LockFailure> {
        Ok(Box::new(Lock::acquire(&self.path, operation)?))
    }
    async fn free(&self) -> Result<(), LockFailure> {
        Ok(wait_free(&self.path).await?)
    }
    fn holder(&self) -> Option<u32> {
        Lock::owner(&self.path).map(|owner| owner.pid)
    }
}

//! The one lock of a host, as the agent's operations use it.

use async_trait::async_trait;
use std::fmt::Debug;

/// Why the lock could not be had.
pub type LockFailure = Box<dyn std::error::Error + Send + Sync>;

/// The lock while it is held; dropping it lets go.
pub trait Held: Send + Debug {}

/// Takes the lock.
#[async_trait]
pub trait Locks: Send + Sync + Debug {
    /// Takes it at once, or says who holds it.
    fn acquire(&self, operation: &str) -> Result<Box<dyn Held>, LockFailure>;
    /// Waits until it is free and takes it. Dropping the future gives up.
    async fn wait(&self, operation: &str) -> Result<Box<dyn Held>, LockFailure>;
}

//! The operation engine: named steps, a durable journal, resume and undo, fail points. It knows nothing of nodes.
//!
//! An [`Operation`] is a list of [`Step`]s. The list is data: it can be printed before anything runs, the crash tests
//! enumerate it. Each step is idempotent: running it again after a crash at any instant in it is always right.

pub mod step;

pub use step::{Operation, Outcome, Recovery, Step, StepContext, StepError};

//! The operation engine: named steps, a durable journal, resume and undo, fail points. It knows nothing of nodes.
//!
//! An [`Operation`] is a list of [`Step`]s. The list is data: [`plan`](plan::plan) prints it before anything runs, the
//! crash tests enumerate it. Each step is idempotent: running it again after a crash at any instant in it is always
//! right.
//!
//! [`Engine::run`] writes a record to the [`Journal`] before the first step that may change something and at each
//! boundary, runs each step with its deadline, tells an [`Observer`] what happens, and answers a failure as the operation
//! says: it ends and can be run again, or the way back is gone. What a crash left is judged by one table,
//! [`resolve`](resolve::resolve()), and put right by [`Engine::recover`].
//!
//! It touches its journal and nothing else; what steps do is theirs.

pub mod cancel;
pub mod engine;
pub mod failpoint;
pub mod journal;
pub mod observer;
pub mod plan;
pub mod report;
pub mod resolve;
mod run;
pub mod step;

pub use cancel::{Asked, Cancel};
pub use engine::{Engine, EngineError, Mode};
pub use flexnode_model::journal::JournalRecord;
pub use journal::{Journal, JournalError};
pub use observer::{Event, Observer, Silent, Traced};
pub use plan::{PlanLine, plan};
pub use report::{Report, RunOutcome, StepFailure, StepReport};
pub use resolve::{Resolution, resolve};
pub use step::{Operation, Outcome, Recovery, Step, StepContext, StepError};

#[cfg(test)]
mod tests;

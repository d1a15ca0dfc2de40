//! A command that did not end well: what is said, and the exit code.

use crate::exit::Exit;
use flexnode_ops::report;
use std::error::Error;

/// Why a command did not end well.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What this layer says, then its causes, outermost first. Empty: everything was said already.
    pub layers: Vec<String>,
    /// What to do, each a sentence or a command.
    pub hints: Vec<String>,
}

impl Failure {
    /// A failure with its exit code and a text.
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, layers: vec![text.into()], hints: Vec::new() }
    }

    /// A failure from an error and its causes.
    pub fn of(exit: Exit, error: &(dyn Error + 'static)) -> Self {
        Self { exit, layers: report::layers(error), hints: Vec::new() }
    }

    /// An exit code about which nothing more is to be said.
    pub fn silent(exit: Exit) -> Self {
        Self { exit, layers: Vec::new(), hints: Vec::new() }
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds what to do, if that is known.
    #[must_use]
    pub fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hints.extend(hint);
        self
    }
}

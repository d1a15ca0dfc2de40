//! What a check found, as data.

use serde::Serialize;
use std::fmt;

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// `start` goes on; the person should know.
    Warning,
    /// `start` refuses.
    Error,
}

/// One finding of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check: stable, kebab-case.
    pub name: &'static str,
    /// What was looked at: a path, unit or port. May be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target: String,
    /// Its weight.
    pub severity: Severity,
    /// What was found. No secrets.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Finding {
    /// All is well.
    pub fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self::of(name, Severity::Ok, message.into())
    }
    /// Something to know.
    pub fn warning(name: &'static str, message: impl Into<String>) -> Self {
        Self::of(name, Severity::Warning, message.into())
    }
    /// A reason not to begin.
    pub fn error(name: &'static str, message: impl Into<String>) -> Self {
        Self::of(name, Severity::Error, message.into())
    }
    fn of(name: &'static str, severity: Severity, message: String) -> Self {
        Self { name, target: String::new(), severity, message, hint: None }
    }
    /// Names what was looked at.
    #[must_use]
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = target.into();
        self
    }
    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

/// The findings that keep `start` from beginning.
pub fn errors(findings: &[Finding]) -> Vec<Finding> {
    findings.iter().filter(|f| f.severity == Severity::Error).cloned().collect()
}

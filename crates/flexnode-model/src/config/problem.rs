//! What is wrong with a configuration, and what to write instead. Never a value that may be secret.

use std::fmt;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// Path of keys: `node.kubelet.nodeIP`, `node.taints[2]`; `.` for the whole document.
    pub path: String,
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub fix: String,
    /// A required key is not there. These are told first: an unknown key is often its misspelling.
    #[serde(skip)]
    pub(crate) missing: bool,
}

impl Problem {
    pub(crate) fn new(path: impl Into<String>, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { path: path.into(), what: what.into(), fix: fix.into(), missing: false }
    }
    pub(crate) fn missing(path: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { path: path.into(), what: "it is missing".into(), fix: fix.into(), missing: true }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path == "." {
            write!(f, "{}; {}", self.what, self.fix)
        } else {
            write!(f, "{}: {}; {}", self.path, self.what, self.fix)
        }
    }
}

/// All that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize)]
#[serde(transparent)]
pub struct ConfigErrors(Vec<Problem>);

impl ConfigErrors {
    /// The problems as one error; `None` when there is none.
    ///
    /// Missing keys come first. A key that is called missing and has another problem of its own is told once.
    pub(crate) fn from_problems(mut problems: Vec<Problem>) -> Option<Self> {
        let told: Vec<String> = problems.iter().filter(|p| !p.missing).map(|p| p.path.clone()).collect();
        problems.retain(|p| !p.missing || !told.contains(&p.path));
        problems.sort_by_key(|p| !p.missing);
        let mut seen = Vec::new();
        problems.retain(|p| {
            let new = !seen.contains(p);
            seen.push(p.clone());
            new
        });
        (!problems.is_empty()).then_some(Self(problems))
    }

    pub(crate) fn one(problem: Problem) -> Self {
        Self(vec![problem])
    }

    /// What is wrong, at least one.
    pub fn problems(&self) -> &[Problem] {
        &self.0
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => write!(f, "the configuration has a problem: {one}"),
            all => {
                write!(f, "the configuration has {} problems:", all.len())?;
                all.iter().try_for_each(|p| write!(f, "\n  - {p}"))
            }
        }
    }
}

/// Something in a configuration that works, but perhaps not as meant.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Warning {
    /// Path of keys.
    pub path: String,
    /// What a person should know.
    pub message: String,
}

impl Warning {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

//! The configuration file: from bytes to a [`MachineGoal`] and a [`Join`], with every problem told at once.
//!
//! Bytes (`text`) become JSON (`json`), which is held against the schema of the types (`shape`), and whose values are
//! checked one by one ([`values`]) and then together (`resolve`). A problem in one place does not hide one in another.

pub(crate) mod json;
mod keys;
mod problem;
mod resolve;
mod shape;
mod text;
pub mod types;
pub mod values;

pub use problem::{ConfigErrors, Problem, Warning};
pub use resolve::{HostFacts, LogLevel};
pub use types::{Config, config_schema};

use crate::{Join, MachineGoal};
use shape::Findings;

impl Config {
    /// Reads and checks a configuration file.
    ///
    /// Everything that does not depend on the host is checked here, so that all problems are told in one run. A byte order
    /// mark and line ends with carriage return are accepted.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Vec<Warning>), ConfigErrors> {
        let (config, found) = read(bytes, None);
        match ConfigErrors::from_problems(found.problems) {
            None => Ok((config, found.warnings)),
            Some(errors) => Err(errors),
        }
    }

    /// As [`Config::parse`], then [`Config::goal`], but the problems of both are told together.
    pub fn load(bytes: &[u8], facts: &HostFacts) -> Result<(Self, MachineGoal, Join, Vec<Warning>), ConfigErrors> {
        let (config, found) = read(bytes, Some(facts));
        if let Some(errors) = ConfigErrors::from_problems(found.problems) {
            return Err(errors);
        }
        let (goal, join, warnings) = config.goal(facts)?;
        Ok((config, goal, join, found.warnings.into_iter().chain(warnings).collect()))
    }
}

/// What can be read, and all that is wrong.
fn read(bytes: &[u8], facts: Option<&HostFacts>) -> (Config, Findings) {
    let mut found = Findings::default();
    let document = match text::decode(bytes) {
        Ok(source) => {
            let (document, problems) = json::parse(source);
            found.problems.extend(problems);
            document
        }
        Err(problem) => {
            found.problems.push(problem);
            None
        }
    };
    let Some(mut document) = document else { return (Config::default(), found) };
    if !document.is_object() {
        let fix = "write a JSON object, {\"components\": ...}";
        found.problems.push(Problem::new(".", "the document is no object", fix));
        return (Config::default(), found);
    }
    keys::adapt(&mut document, &mut found.warnings);
    let config = shape::read(document, &mut found);
    found.problems.extend(resolve::problems(&config, facts));
    (config, found)
}

#[cfg(test)]
mod tests;

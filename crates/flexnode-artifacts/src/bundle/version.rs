//! Which version a release file is of.

use crate::error::ArtifactError;
use crate::names::{Role, clean_version, version_in_answer};
use flexnode_host::{Command, Commands};
use std::path::Path;
use std::time::Duration;

/// A program that only prints its version needs a fraction of this.
const PATIENCE: Duration = Duration::from_secs(20);
const MAX_ANSWER: usize = 16 << 10;

/// The version in the name of the official release, `None` where it has none. Refuses a release for another
/// architecture.
pub(super) fn from_name(role: Role, input: &Path, arch: &str) -> Result<Option<String>, ArtifactError> {
    let name = input.file_name().unwrap_or_default().to_string_lossy();
    role.version_in_name(&name, arch)
        .map_err(|other| ArtifactError::input(input, format!("it is for {other}, the bundle is for {arch}")))
}

/// The version that a person gave, checked.
pub(super) fn told(role: Role, text: Option<&str>, input: &Path) -> Result<Option<String>, ArtifactError> {
    let Some(text) = text else { return Ok(None) };
    match clean_version(text) {
        Some(version) => Ok(Some(version)),
        None => Err(ArtifactError::input(input, format!("{text:?} is no version of {role}"))),
    }
}

/// Asks the program itself; the error says which option tells the version instead.
pub(super) async fn ask(
    commands: &dyn Commands,
    role: Role,
    program: &Path,
    input: &Path,
) -> Result<String, ArtifactError> {
    let option = match role {
        Role::Kubelet | Role::Kubectl | Role::KubeProxy => "kubernetes",
        other => other.name(),
    };
    let command = Command {
        program: program.to_path_buf(),
        args: vec!["--version".into()],
        env: std::collections::BTreeMap::new(),
        stdin: Vec::new(),
        deadline: PATIENCE,
        max_output: MAX_ANSWER,
    };
    let why = match commands.run(&command).await {
        Ok(output) => {
            // The CNI plugins answer on standard error.
            let answer = [output.stdout, output.stderr].concat();
            match version_in_answer(&String::from_utf8_lossy(&answer)) {
                Some(version) => return Ok(version),
                None => "the program did not tell one".to_owned(),
            }
        }
        Err(e) => format!("the program could not be asked ({e})"),
    };
    Err(ArtifactError::input(input, format!("its file name tells no version and {why}; give --{option}-version")))
}

//! The agent's program for hosts: static, so that it runs in any tree.

use crate::prerequisites::find_program;
use crate::run::{must, run};
use crate::{Output, cache};
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(3600);

/// Builds the agent with the profile `lab` and these features, and gives the program's path. When nothing has changed it
/// is there in a second. Programs with other features have other paths.
pub fn agent_binary(features: &[&str]) -> Result<PathBuf> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("this crate is not in the workspace")?;
    let cargo = std::env::var_os("CARGO").map(PathBuf::from).or_else(|| find_program("cargo"));
    let cargo = cargo.context("there is no cargo in PATH")?;
    let host = host_triple(&cargo, root)?;
    // A target is named so that the flags do not reach build scripts and macros, which cannot be static.
    let mut command = Command::new(cargo);
    command.current_dir(root).env("RUSTFLAGS", "-C target-feature=+crt-static").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command.args(["build", "--quiet", "--profile", "lab", "--package", "aks-flex-node", "--target", &host]);
    if !features.is_empty() {
        command.args(["--features", &features.join(",")]);
    }
    // For this directory of builds only: another checkout's build may take minutes, and has its own.
    std::fs::create_dir_all(target_dir(root))?;
    let _lock = cache::lock(&target_dir(root).join("lab-agent.lock"), "another process to build the agent")?;
    let progress = cache::Progress::start("building the agent for the lab (some minutes the first time)");
    let output: Output = run(&mut command, crate::run::Input::Empty, LIMIT)?;
    output.success().context("the agent does not build")?;
    progress.done();
    let built = target_dir(root).join(host).join("lab/aks-flex-node");
    keep(&built, features)
}

/// Builds the tests in the files of this name of all crates (`tests/NAME.rs`) as `cargo test --workspace` builds them, and
/// gives their programs with the names of the crates' directories.
pub fn test_programs(name: &str) -> Result<Vec<(String, PathBuf)>> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("this crate is not in the workspace")?;
    let cargo = std::env::var_os("CARGO").map(PathBuf::from).or_else(|| find_program("cargo"));
    let mut command = Command::new(cargo.context("there is no cargo in PATH")?);
    command.current_dir(root).args(["test", "--workspace", "--quiet", "--no-run", "--message-format=json"]);
    // Those that have fakes ask for this feature by name.
    command.args(["--test", name, "--features", "flexnode-host/testing,flexnode-isolation/testing"]);
    let progress = cache::Progress::start("building the tests that run in a host");
    let told = run(&mut command, crate::run::Input::Empty, LIMIT)?.success().context("the tests do not build")?;
    progress.done();
    let programs = told.stdout.lines().filter_map(|line| program_of(line, name));
    Ok(programs.collect())
}

/// What one line of cargo's messages says of a test's program.
fn program_of(line: &str, name: &str) -> Option<(String, PathBuf)> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let is_it = message["target"]["name"] == name && message["target"]["kind"][0] == "test";
    let program = message["executable"].as_str().filter(|_| is_it)?;
    let krate = Path::new(message["manifest_path"].as_str()?).parent()?.file_name()?;
    Some((krate.to_string_lossy().into_owned(), PathBuf::from(program)))
}

/// A copy under a name that a build with other features does not replace.
fn keep(built: &Path, features: &[&str]) -> Result<PathBuf> {
    let kept = built.with_file_name(format!("aks-flex-node-for-lab-{}", features.join("-")));
    let temporary = kept.with_extension("new");
    std::fs::copy(built, &temporary).with_context(|| format!("cannot copy {}", built.display()))?;
    std::fs::rename(&temporary, &kept)?;
    Ok(kept)
}

fn host_triple(cargo: &Path, root: &Path) -> Result<String> {
    let told = must(Command::new(cargo).arg("-vV").current_dir(root), Duration::from_secs(60))?;
    let line = told.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("cargo -vV names no host")?.to_owned())
}

fn target_dir(root: &Path) -> PathBuf {
    let own = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root.join(own.unwrap_or_else(|| PathBuf::from("target")))
}

#[cfg(test)]
mod tests {
    use super::program_of;

    #[test]
    fn the_program_of_a_test_is_found_among_cargos_messages() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/flexnode-host/Cargo.toml",
            "target":{"kind":["test"],"name":"system"},"executable":"/w/target/debug/deps/system-1"}"#;
        let line = line.replace('\n', "");
        assert_eq!(program_of(&line, "system"), Some(("flexnode-host".into(), "/w/target/debug/deps/system-1".into())));
        assert_eq!(program_of(&line, "other"), None);
        assert_eq!(program_of("Compiling x", "system"), None);
    }
}

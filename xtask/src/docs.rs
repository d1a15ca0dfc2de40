//! `cargo xtask docs`: the generated reference below docs/reference, and the check that it is not stale.

use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Generates the reference, or compares it with what is checked in.
///
/// # Errors
/// When it cannot be generated, or is stale and `check` is set.
pub fn run(root: &Path, check: bool) -> Result<()> {
    let checked_in = root.join("docs/reference");
    let into = if check { root.join("target/docs-reference") } else { checked_in.clone() };
    if into.exists() {
        std::fs::remove_dir_all(&into)?;
    }
    let status = Command::new(generator(root)?).arg(&into).current_dir(root).status().context("the generator")?;
    ensure!(status.success(), "the reference cannot be generated");
    if check {
        let stale = differences(&files(&into)?, &files(&checked_in)?);
        ensure!(stale.is_empty(), "docs/reference is stale ({}): run `cargo xtask docs`", stale.join(", "));
    }
    Ok(())
}

/// Builds the program that writes the reference, with the features that the workspace's tests have: nothing of it is
/// built twice then.
fn generator(root: &Path) -> Result<PathBuf> {
    crate::contract::build(root, &["build", "--example", "docs"])?
        .iter()
        .filter(|message| message["target"]["name"] == "docs")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo names no program for the example docs")
}

/// The names of files that are missing, too many or other.
fn differences(wanted: &BTreeMap<PathBuf, Vec<u8>>, have: &BTreeMap<PathBuf, Vec<u8>>) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = wanted.keys().chain(have.keys()).collect();
    names
        .into_iter()
        .filter(|name| wanted.get(*name) != have.get(*name))
        .map(|name| name.display().to_string())
        .collect()
}

fn files(dir: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at).with_context(|| at.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(dir)?.to_path_buf(), std::fs::read(&path)?);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_extra_and_changed_files_are_stale() {
        let tree =
            |files: &[(&str, &str)]| files.iter().map(|(n, t)| (PathBuf::from(n), t.as_bytes().to_vec())).collect();
        let wanted: BTreeMap<_, _> = tree(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let have: BTreeMap<_, _> = tree(&[("a", "1"), ("b", "other"), ("d", "4")]);
        assert_eq!(differences(&wanted, &have), ["b", "c", "d"]);
        assert!(differences(&wanted, &wanted.clone()).is_empty());
    }
}

//! `cargo xtask contract`: every exported item of the contract documents exists and is proven by tests that exist.
//!
//! A row claims two things, both checked by the tools that know: its Rust path by rustdoc (a generated crate links to
//! every path, broken links are errors), its tests by the list of the test programs themselves.

use anyhow::{Context as _, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// One `[[item]]` of contract.toml.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// `daemon`, `none` or `status`.
    pub document: String,
    /// `const`, `func`, `type`, `method`, `field` or `var`.
    pub kind: String,
    /// The name as in the document.
    pub name: String,
    /// The public Rust item; empty while the row is open.
    pub rust: String,
    /// The tests that prove it; empty while the row is open.
    pub tests: Vec<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    item: Vec<Item>,
}

/// A test as the test programs list it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// It runs by default.
    Runs,
    /// It is marked `#[ignore]`, so it proves nothing by default.
    Ignored,
}

/// Checks the table and prints done and open per document.
///
/// # Errors
/// When the table differs from the list of items, or a row claims a path or a test that is not there.
pub fn run(root: &Path, verbose: bool) -> Result<()> {
    let rows: Rows = toml::from_str(&std::fs::read_to_string(root.join("contract.toml"))?).context("contract.toml")?;
    let list = std::fs::read_to_string(root.join("docs/contract/items.txt")).context("docs/contract/items.txt")?;
    let mut problems = compare(&list, &rows.item);
    let tests = list_tests(root)?;
    problems.extend(check_tests(&rows.item, &tests));
    if let Err(e) = check_paths(root, &rows.item) {
        problems.push(format!("{e:#}"));
    }
    print!("{}", summary(&rows.item, verbose));
    for problem in &problems {
        eprintln!("contract: {problem}");
    }
    ensure!(problems.is_empty(), "{} claims of contract.toml do not hold", problems.len());
    Ok(())
}

/// The differences between the list of exported items and the rows, and rows that contradict themselves.
fn compare(list: &str, items: &[Item]) -> Vec<String> {
    let wanted: Vec<_> = list.lines().filter(|l| !l.is_empty()).map(|l| l.split('\t').collect::<Vec<_>>()).collect();
    let have: Vec<_> = items.iter().map(|i| vec![i.document.as_str(), &i.kind, &i.name]).collect();
    let mut problems = Vec::new();
    let (wanted_set, have_set): (BTreeSet<_>, BTreeSet<_>) = (wanted.iter().collect(), have.iter().collect());
    problems.extend(wanted_set.difference(&have_set).map(|row| format!("no row for {}", row.join(" "))));
    problems.extend(have_set.difference(&wanted_set).map(|row| format!("row for an unknown item: {}", row.join(" "))));
    if have.len() != have_set.len() {
        problems.push("an item has two rows".to_string());
    }
    problems.extend(
        items
            .iter()
            .filter(|i| i.rust.is_empty() && !i.tests.is_empty())
            .map(|i| format!("{} {} has tests but no path", i.document, i.name)),
    );
    problems
}

fn check_tests(items: &[Item], tests: &BTreeMap<String, Listed>) -> Vec<String> {
    let mut problems = Vec::new();
    for item in items {
        for test in &item.tests {
            match tests.get(test) {
                Some(Listed::Runs) => {}
                Some(Listed::Ignored) => {
                    problems.push(format!("{} {}: test {test} is ignored", item.document, item.name));
                }
                None => problems.push(format!("{} {}: there is no test {test}", item.document, item.name)),
            }
        }
    }
    problems
}

fn summary(items: &[Item], verbose: bool) -> String {
    let mut out = String::new();
    let documents: BTreeSet<_> = items.iter().map(|i| i.document.as_str()).collect();
    for document in documents {
        let rows: Vec<_> = items.iter().filter(|i| i.document == document).collect();
        let open: Vec<_> = rows.iter().filter(|i| i.tests.is_empty()).collect();
        let _ = writeln!(out, "{document}: {} done, {} open", rows.len() - open.len(), open.len());
        if verbose {
            for item in open {
                let _ = writeln!(out, "  open: {} {}", item.kind, item.name);
            }
        }
    }
    out
}

/// Builds the test programs and asks each for its tests. A name is `package::path` for unit tests and
/// `package::file::path` for integration tests.
fn list_tests(root: &Path) -> Result<BTreeMap<String, Listed>> {
    let out = Command::new(env!("CARGO"))
        .args(["test", "--workspace", "--no-run", "--message-format=json", "--quiet"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cargo test --no-run")?;
    ensure!(out.status.success(), "the tests do not compile");
    let mut tests = BTreeMap::new();
    for line in out.stdout.split(|b| *b == b'\n').filter(|l| l.starts_with(b"{")) {
        let message: serde_json::Value = serde_json::from_slice(line)?;
        if let Some((prefix, program)) = test_program(&message) {
            for (args, listed) in [
                (&["--list", "--format", "terse"][..], Listed::Runs),
                (&["--list", "--format", "terse", "--ignored"], Listed::Ignored),
            ] {
                let out =
                    Command::new(&program).args(args).current_dir(root).output().with_context(|| program.clone())?;
                let text = String::from_utf8_lossy(&out.stdout);
                tests.extend(
                    text.lines().filter_map(|l| l.strip_suffix(": test")).map(|t| (format!("{prefix}::{t}"), listed)),
                );
            }
        }
    }
    if tests.is_empty() {
        bail!("cargo lists no tests");
    }
    Ok(tests)
}

/// The name prefix and the program of a test artifact in cargo's messages; `None` for everything else.
fn test_program(message: &serde_json::Value) -> Option<(String, String)> {
    let program = message.get("executable")?.as_str()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let package = manifest.parent()?.file_name()?.to_str()?;
    let integration = message["target"]["kind"].as_array()?.iter().any(|k| k == "test");
    let prefix =
        if integration { format!("{package}::{}", message["target"]["name"].as_str()?) } else { package.to_string() };
    Some((prefix, program.to_string()))
}

/// Lets rustdoc resolve every path, from outside of the crates, so that only public items count.
fn check_paths(root: &Path, items: &[Item]) -> Result<()> {
    let paths: Vec<_> = items.iter().filter(|i| !i.rust.is_empty()).collect();
    if paths.is_empty() {
        return Ok(());
    }
    let dir = root.join("target/contract");
    std::fs::create_dir_all(dir.join("src"))?;
    let crates: BTreeSet<_> =
        paths.iter().filter_map(|i| i.rust.split("::").next()).map(|c| c.replace('_', "-")).collect();
    let mut manifest = "[package]\nname = \"contract-links\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n".to_string();
    for name in crates {
        writeln!(manifest, "{name} = {{ path = \"{}\" }}", root.join("crates").join(&name).display())?;
    }
    let mut source = "//! Links to every item of the contract.\n//!\n".to_string();
    for item in paths {
        writeln!(source, "//! - [`{} {}`]({})", item.document, item.name, item.rust)?;
    }
    std::fs::write(dir.join("Cargo.toml"), manifest)?;
    std::fs::write(dir.join("src/lib.rs"), source)?;
    std::fs::copy(root.join("Cargo.lock"), dir.join("Cargo.lock"))?;
    let status = Command::new(env!("CARGO"))
        .args(["doc", "--no-deps", "--quiet", "--target-dir"])
        .arg(root.join("target"))
        .current_dir(&dir)
        .env("RUSTDOCFLAGS", "-D rustdoc::broken_intra_doc_links")
        .status()
        .context("cargo doc")?;
    ensure!(status.success(), "a path of contract.toml does not resolve to a public item");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, rust: &str, tests: &[&str]) -> Item {
        let tests = tests.iter().map(ToString::to_string).collect();
        Item { document: "none".into(), kind: "func".into(), name: name.into(), rust: rust.into(), tests }
    }

    #[test]
    fn rows_and_list_must_be_the_same_set() {
        let list = "none\tfunc\tA\nnone\tfunc\tB\n";
        assert!(compare(list, &[item("A", "", &[]), item("B", "", &[])]).is_empty());
        assert_eq!(compare(list, &[item("A", "", &[])]), ["no row for none func B"]);
        let extra = [item("A", "", &[]), item("B", "", &[]), item("C", "", &[])];
        assert_eq!(compare(list, &extra), ["row for an unknown item: none func C"]);
        assert_eq!(
            compare(list, &[item("A", "", &[]), item("B", "", &[]), item("B", "", &[])]),
            ["an item has two rows"]
        );
    }

    #[test]
    fn a_row_with_tests_needs_a_path() {
        assert_eq!(compare("none\tfunc\tA\n", &[item("A", "", &["t"])]), ["none A has tests but no path"]);
    }

    #[test]
    fn a_claimed_test_must_be_listed_and_not_ignored() {
        let tests =
            BTreeMap::from([("x::runs".to_string(), Listed::Runs), ("x::ignored".to_string(), Listed::Ignored)]);
        assert!(check_tests(&[item("A", "p", &["x::runs"])], &tests).is_empty());
        assert_eq!(check_tests(&[item("A", "p", &["x::ignored"])], &tests), ["none A: test x::ignored is ignored"]);
        assert_eq!(check_tests(&[item("A", "p", &["x::gone"])], &tests), ["none A: there is no test x::gone"]);
    }

    #[test]
    fn the_summary_counts_rows_with_tests_as_done() {
        let items = [item("A", "p", &["t"]), item("B", "", &[])];
        assert_eq!(summary(&items, false), "none: 1 done, 1 open\n");
        assert_eq!(summary(&items, true), "none: 1 done, 1 open\n  open: func B\n");
    }

    #[test]
    fn only_test_programs_are_asked() {
        let message = serde_json::json!({"reason": "compiler-artifact", "manifest_path": "/r/crates/flexnode-x/Cargo.toml",
            "target": {"kind": ["test"], "name": "cli"}, "profile": {"test": true}, "executable": "/t/cli-1"});
        assert_eq!(test_program(&message), Some(("flexnode-x::cli".into(), "/t/cli-1".into())));
        let unit = serde_json::json!({"reason": "compiler-artifact", "manifest_path": "/r/crates/flexnode-x/Cargo.toml",
            "target": {"kind": ["lib"], "name": "flexnode_x"}, "profile": {"test": true}, "executable": "/t/lib-1"});
        assert_eq!(test_program(&unit), Some(("flexnode-x".into(), "/t/lib-1".into())));
        let program = serde_json::json!({"reason": "compiler-artifact", "manifest_path": "/r/xtask/Cargo.toml",
            "target": {"kind": ["bin"], "name": "xtask"}, "profile": {"test": false}, "executable": "/t/xtask"});
        assert_eq!(test_program(&program), None);
    }
}

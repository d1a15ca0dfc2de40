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
    let built = build(root, &["test", "--no-run"])?;
    let tests = list_tests(root, &built)?;
    problems.extend(check_tests(&rows.item, &tests));
    if let Err(e) = check_paths(root, &rows.item, &built) {
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

/// Builds with cargo's `what`, for the whole workspace; what cargo tells of each part.
///
/// # Errors
/// When something does not compile.
pub fn build(root: &Path, what: &[&str]) -> Result<Vec<serde_json::Value>> {
    let out = Command::new(env!("CARGO"))
        .args(what)
        .args(["--workspace", "--message-format=json", "--quiet"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cargo {}", what.join(" ")))?;
    ensure!(out.status.success(), "cargo {} failed", what.join(" "));
    let lines = out.stdout.split(|b| *b == b'\n').filter(|l| l.starts_with(b"{"));
    Ok(lines.map(serde_json::from_slice).collect::<Result<_, _>>()?)
}

/// Asks each test program for its tests. A name is `package::path` for unit tests and `package::file::path` for
/// integration tests.
fn list_tests(root: &Path, built: &[serde_json::Value]) -> Result<BTreeMap<String, Listed>> {
    let mut tests = BTreeMap::new();
    for (prefix, program) in built.iter().filter_map(test_program) {
        for (args, listed) in [
            (&["--list", "--format", "terse"][..], Listed::Runs),
            (&["--list", "--format", "terse", "--ignored"], Listed::Ignored),
        ] {
            let out = Command::new(&program).args(args).current_dir(root).output().with_context(|| program.clone())?;
            let text = String::from_utf8_lossy(&out.stdout);
            tests.extend(
                text.lines().filter_map(|l| l.strip_suffix(": test")).map(|t| (format!("{prefix}::{t}"), listed)),
            );
        }
    }
    if tests.is_empty() {
        bail!("cargo lists no tests");
    }
    Ok(tests)
}

/// The name prefix and the program of a test artifact in cargo's messages; `None` for everything else.
pub fn test_program(message: &serde_json::Value) -> Option<(String, String)> {
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

/// The library that a message of cargo tells of: the name of its crate and its file.
fn library(message: &serde_json::Value) -> Option<(String, String)> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != false {
        return None;
    }
    let is_library = message["target"]["kind"].as_array()?.iter().any(|kind| kind == "lib");
    let files = message["filenames"].as_array()?.iter().filter_map(|file| file.as_str());
    let file = files.into_iter().find(|file| Path::new(file).extension().is_some_and(|end| end == "rlib"))?;
    is_library.then_some((message["target"]["name"].as_str()?.to_owned(), file.to_owned()))
}

/// Lets rustdoc resolve every path, from outside of the crates, so that only public items count. It reads the libraries
/// that the tests were linked with: a workspace of its own would build every dependency again.
fn check_paths(root: &Path, items: &[Item], built: &[serde_json::Value]) -> Result<()> {
    let paths: Vec<_> = items.iter().filter(|i| !i.rust.is_empty()).collect();
    let libraries: BTreeMap<_, _> = built.iter().filter_map(library).collect();
    let dir = root.join("target/contract");
    std::fs::create_dir_all(&dir)?;
    let source = dir.join("links.rs");
    std::fs::write(&source, links(&paths))?;
    let mut rustdoc = Command::new(std::env::var_os("RUSTDOC").unwrap_or_else(|| "rustdoc".into()));
    rustdoc.args(["--edition", "2024", "--crate-name", "contract_links", "-D", "rustdoc::broken_intra_doc_links"]);
    let crates: BTreeSet<_> = paths.iter().filter_map(|i| i.rust.split("::").next()).collect();
    let mut folders = BTreeSet::new();
    for name in crates {
        let file =
            libraries.get(name).with_context(|| format!("contract.toml names a crate {name} that is not here"))?;
        rustdoc.arg("--extern").arg(format!("{name}={file}"));
        folders.extend(Path::new(file).parent().map(|folder| folder.join("deps")));
        folders.extend(Path::new(file).parent().map(Path::to_path_buf));
    }
    for folder in folders {
        rustdoc.arg("-L").arg(format!("dependency={}", folder.display()));
    }
    let status = rustdoc.arg("-o").arg(dir.join("doc")).arg(&source).current_dir(root).status().context("rustdoc")?;
    ensure!(status.success(), "a path of contract.toml does not resolve to a public item");
    Ok(())
}

/// The source of a crate that links to each item.
fn links(items: &[&Item]) -> String {
    let mut source = "//! Links to every item of the contract.\n//!\n".to_string();
    for item in items {
        let _ = writeln!(source, "//! - [`{} {}`]({})", item.document, item.name, item.rust);
    }
    source
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

    #[test]
    fn only_libraries_are_linked_to() {
        let library_of = |kind: &str, test: bool| {
            library(&serde_json::json!({"reason": "compiler-artifact", "profile": {"test": test},
                "target": {"kind": [kind], "name": "flexnode_x"}, "filenames": ["/t/libx.rlib", "/t/libx.rmeta"]}))
        };
        assert_eq!(library_of("lib", false), Some(("flexnode_x".into(), "/t/libx.rlib".into())));
        assert_eq!((library_of("lib", true), library_of("bin", false)), (None, None));
    }

    #[test]
    fn every_path_is_a_link() {
        let (a, b) = (item("A", "x::A", &[]), item("B", "x::b::B", &[]));
        let source = links(&[&a, &b]);
        assert!(source.ends_with("//! - [`none A`](x::A)\n//! - [`none B`](x::b::B)\n"), "{source}");
    }
}

//! Tests of other crates that need a systemd of their own: their programs are built, copied into a host and run there.
#![allow(clippy::unwrap_used, missing_docs)]

use flexnode_lab::artifacts::artifacts;
use flexnode_lab::host::{Options, Share};
use flexnode_lab::{Host, Lab, test_programs};
use system_tests::{NEW, all, points, report};

/// Where a host has the programs of a node.
const PROGRAMS: &str = "/srv/programs";

/// Runs all ignored tests of one name, each crate's in a host of its own, and reports lines that begin with `mark`.
fn run(name: &str, mark: &str) {
    let programs = test_programs(name).unwrap();
    assert!(!programs.is_empty(), "no crate has tests/{name}.rs");
    let lab = Lab::new().unwrap();
    let folder = lab.folder().join("programs");
    std::fs::create_dir(&folder).unwrap();
    artifacts(NEW.kubernetes, NEW.suite).unwrap().unpack_programs(&folder).unwrap();
    let mut failed = Vec::new();
    for (krate, program) in &programs {
        let share = Share { from: folder.clone(), to: PROGRAMS.into() };
        let host = Host::with(&lab, &krate.replace("flexnode-", "inside-"), Options { shares: vec![share] }).unwrap();
        let at = format!("/root/{name}");
        host.copy_in(program, &at, 0o755).unwrap();
        let settings = [
            format!("FLEXNODE_TEST_PROGRAMS={PROGRAMS}"),
            "FLEXNODE_TEST_HOST=1".to_owned(),
            format!("FLEXNODE_SEED={}", points::seed()),
            format!("FLEXNODE_TEST_ALL={}", u8::from(all())),
        ];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let output = host.exec(&[&["env"], &settings[..], &[&at, "--ignored", "--test-threads=1"]].concat()).unwrap();
        for line in output.stdout.lines().filter(|line| line.starts_with(mark)) {
            report(&format!("{krate}: {line}"));
        }
        if output.code != 0 {
            failed.push(format!("{krate} tests/{name}.rs:\n{}\n{}", output.stdout, output.stderr));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn what_needs_a_systemd_is_right_on_a_real_host() {
    run("system", "test result");
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn the_backend_survives_every_point_between_versions_with_other_units() {
    run("host_crash", "crash suite");
}

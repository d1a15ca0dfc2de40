//! What the README tells people to type and to write is what the program takes.
#![allow(clippy::unwrap_used, missing_docs)]

use aks_flex_node::cli;
use flexnode_model::CgroupLayout;
use flexnode_model::config::{Config, HostFacts};
use std::path::Path;

const CA: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BTUNBUUU9Ci0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K";

fn readme() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap()
}

/// The fenced blocks of a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    let blocks = text.split(&begin).skip(1).filter_map(|rest| rest.split("\n```").next());
    blocks.map(str::to_owned).collect()
}

#[test]
fn the_sample_is_a_configuration_without_warnings() {
    let [sample] = &blocks(&readme(), "json")[..] else { panic!("the README has one sample") };
    let cut = sample.split("\"caCertData\": \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(cut.ends_with('…'), "a certificate has no place in it");
    let facts = HostFacts {
        host_name: "host".into(),
        memory_bytes: 8 << 30,
        cpus: 4,
        cgroups: CgroupLayout::V2,
        arch: "amd64".into(),
    };
    let (_, goal, join, warnings) = Config::load(sample.replace(cut, CA).as_bytes(), &facts).unwrap();
    assert_eq!(warnings.iter().map(ToString::to_string).collect::<Vec<_>>(), [""; 0]);
    assert_eq!((goal.node_name.as_str(), join.labels["example.com/site"].as_str()), ("edge-1", "berlin"));
}

#[test]
fn every_command_parses() {
    let mut count = 0;
    for block in blocks(&readme(), "console") {
        for line in block.replace("\\\n", " ").lines() {
            let words = line.trim_start_matches(['$', '#', ' ']).split(" #").next().unwrap_or_default();
            let words: Vec<&str> = words.split_whitespace().collect();
            if words.first() == Some(&"aks-flex-node") {
                count += 1;
                let parsed = cli::command().try_get_matches_from(&words);
                assert!(parsed.is_ok(), "{line}\n{}", parsed.unwrap_err());
            }
        }
    }
    assert!(count >= 4, "only {count} commands were found");
}

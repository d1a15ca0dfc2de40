//! Writes the generated reference into a directory: man pages, shell completions, the schema of the
//! configuration, the table of metrics.
//!
//! `cargo xtask docs` runs it; `cargo xtask docs --check` compares what it writes with what is checked in.

use aks_flex_node::cli::Cli;
use clap::{Command, CommandFactory as _, ValueEnum as _};
use clap_complete::Shell;
use std::fs;
use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let into = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: docs DIRECTORY"))?;
    let into = Path::new(&into);
    let (man, completions) = (into.join("man"), into.join("completions"));
    for dir in [&man, &completions] {
        fs::create_dir_all(dir)?;
    }
    let mut command = Cli::command();
    command.build();
    pages(&command, "aks-flex-node", &man)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut Cli::command(), "aks-flex-node", &completions)?;
    }
    let mut schema = serde_json::to_string_pretty(&flexnode_model::config::config_schema())?;
    schema.push('\n');
    fs::write(into.join("config.schema.json"), schema)?;
    fs::write(into.join("metrics.md"), flexnode_daemon::metrics::reference())
}

/// The page of a command and those of its subcommands: `aks-flex-node-start.1`.
fn pages(command: &Command, name: &str, into: &Path) -> io::Result<()> {
    let mut page = Vec::new();
    // Without the version: a page changes when the command does.
    clap_mangen::Man::new(command.clone().version("")).date("").source("aks-flex-node").render(&mut page)?;
    fs::write(into.join(format!("{name}.1")), page)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        pages(sub, &format!("{name}-{}", sub.get_name()), into)?;
    }
    Ok(())
}

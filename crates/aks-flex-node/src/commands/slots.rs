//! `aks-flex-node slots`: the installed versions.

use super::{start, upgrade};
use crate::cli::{Output, SlotsCommand};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Env, session};
use flexnode_daemon::config_file;
use flexnode_daemon::operations::NodeContext;
use flexnode_daemon::operations::slots::{self, Repaired, Slot};
use flexnode_ops::StepContext;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;

/// The document of `slots list --output json`, version 1.
#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    slots: &'a [Slot],
}

/// The document of `slots prune --output json`, version 1.
#[derive(Serialize)]
struct Pruned<'a> {
    version: u32,
    removed: &'a [String],
}

/// The document of `slots repair --output json`, version 1.
#[derive(Serialize)]
struct Mended<'a> {
    version: u32,
    slot: &'a str,
    files: &'a [String],
    restart: bool,
}

/// Runs the command.
pub(crate) fn run(command: &SlotsCommand, env: &Env) -> Result<Exit, Failure> {
    let host = session::host(env);
    let context = |config: &Path| Ok::<_, Failure>(NodeContext::new(start::context(&host, config)?));
    let usual = Path::new(config_file::CONFIG_PATH);
    let text = match command {
        SlotsCommand::List(args) => {
            let found = slots::list(&context(usual)?).map_err(|error| upgrade::failure(&error))?;
            match args.output.output {
                Output::Text => table(&found),
                Output::Json => json(&Document { version: 1, slots: &found })?,
            }
        }
        SlotsCommand::Prune(args) => {
            session::need_root(env, "slots prune")?;
            let removed = slots::prune(&context(usual)?).map_err(|error| upgrade::failure(&error))?;
            match args.output.output {
                Output::Json => json(&Pruned { version: 1, removed: &removed })?,
                Output::Text if removed.is_empty() => "nothing had to be removed\n".to_owned(),
                Output::Text => format!("removed: {}\n", removed.join(", ")),
            }
        }
        SlotsCommand::Repair(args) => {
            session::need_root(env, "slots repair")?;
            let context = context(&args.config.config)?;
            let err = env.terminal.err.clone();
            let cx = StepContext::new(move |note| err.line(note));
            let done = session::block_on(async {
                slots::repair(&context, &args.slot, cx).await.map_err(|error| upgrade::failure(&error))
            })?;
            match args.output.output {
                Output::Text => mended(&args.slot, &done),
                Output::Json => {
                    json(&Mended { version: 1, slot: &args.slot, files: &done.files, restart: done.restart })?
                }
            }
        }
    };
    env.terminal.out.write(&text);
    Ok(Exit::Done)
}

fn json(document: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(document).map_err(|error| Failure::of(Exit::Failed, &error))? + "\n")
}

/// What a repair did, for a person.
fn mended(slot: &str, done: &Repaired) -> String {
    if done.files.is_empty() {
        return format!("{slot} is as it was installed; nothing had to be changed\n");
    }
    let mut text = format!("{slot} was mended: {}\n", done.files.join(", "));
    if done.restart {
        text.push_str("the node runs the damaged programs until it is restarted: aks-flex-node restart\n");
    }
    text
}

fn table(slots: &[Slot]) -> String {
    if slots.is_empty() {
        return "no version is installed\n".to_owned();
    }
    let mut text = String::new();
    for slot in slots {
        let marks = [(slot.active, "active"), (slot.previous, "previous"), (slot.in_use && !slot.active, "in use")];
        let marks: Vec<&str> = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
        let _ = writeln!(text, "{:<28} {:>6} MiB  {}", slot.name, slot.bytes >> 20, marks.join(", "));
        if let Some(problem) = &slot.problem {
            let _ = writeln!(text, "  {problem}");
        }
    }
    text.lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_are_a_table() {
        let slot = |name: &str, active, problem: Option<&str>| Slot {
            name: name.into(),
            active,
            previous: !active,
            in_use: active,
            complete: problem.is_none(),
            problem: problem.map(Into::into),
            bytes: 300 << 20,
            since: 0,
        };
        let slots = [slot("1.36.2-1a2b3c4d", false, Some("it is damaged")), slot("1.36.3-2b3c4d5e", true, None)];
        assert_eq!(
            table(&slots),
            "1.36.2-1a2b3c4d                 300 MiB  previous\n  it is damaged\n\
             1.36.3-2b3c4d5e                 300 MiB  active\n"
        );
        assert_eq!(table(&[]), "no version is installed\n");
    }
    #[test]
    fn what_was_mended_is_named_and_whether_the_node_has_to_be_restarted() {
        let done =
            |files: &[&str], restart| Repaired { files: files.iter().map(|f| (*f).to_owned()).collect(), restart };
        assert_eq!(mended("a", &done(&[], false)), "a is as it was installed; nothing had to be changed\n");
        assert_eq!(mended("a", &done(&["bin/kubelet"], false)), "a was mended: bin/kubelet\n");
        assert!(mended("a", &done(&["bin/kubelet"], true)).ends_with("aks-flex-node restart\n"));
    }
}

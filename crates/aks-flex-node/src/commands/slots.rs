//! `aks-flex-node slots`: the installed versions.

use super::{start, upgrade};
use crate::cli::{Output, SlotsCommand};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Env, session};
use flexnode_daemon::config_file;
use flexnode_daemon::operations::NodeContext;
use flexnode_daemon::operations::slots::{self, Slot};
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
            let mended = session::block_on(async {
                slots::repair(&context, &args.slot).await.map_err(|error| upgrade::failure(&error))
            })?;
            let what = if mended { "was mended" } else { "is as it was installed; nothing had to be changed" };
            format!("{} {what}\n", args.slot)
        }
    };
    env.terminal.out.write(&text);
    Ok(Exit::Done)
}

fn json(document: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(document).map_err(|error| Failure::of(Exit::Failed, &error))? + "\n")
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
}

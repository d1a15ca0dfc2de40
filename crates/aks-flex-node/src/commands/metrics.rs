//! `aks-flex-node metrics`: what the daemon serves on its socket, for a person or a script.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Env, session};
use flexnode_daemon::metrics::{SOCKET, scrape};
use std::path::Path;

/// Runs the command.
pub(crate) fn run(env: &Env) -> Result<Exit, Failure> {
    let text = session::block_on(async {
        scrape(Path::new(SOCKET)).await.map_err(|error| {
            Failure::of(Exit::Failed, &error)
                .hint("the agent's service serves them: systemctl status aks-flex-node-agent; only root may ask")
        })
    })?;
    env.terminal.out.write(&text);
    Ok(Exit::Done)
}

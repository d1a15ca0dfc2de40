//! `aks-flex-node status`: what the node is now, in one look; with `--watch` each time that it changes.

use crate::cli::{StatusArgs, StatusOutput};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Env, session, version};
use flexnode_daemon::lock::HostLocks;
use flexnode_daemon::look;
use flexnode_host::{FileWatch as _, Host, Inotify};
use flexnode_model::Snapshot;
use flexnode_status::{Verdict, get_status_file_path, render};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::Notify;

/// While it is watched, what the daemon does not tell is looked for so often.
const AGAIN: Duration = Duration::from_secs(5);
/// A change seldom comes alone.
const GATHER: Duration = Duration::from_millis(200);

/// Runs the command.
pub(crate) fn run(args: &StatusArgs, env: &Env) -> Result<Exit, Failure> {
    let host = session::host(env);
    if !env.is_root {
        env.terminal.err.line("note: this is not root, so some of it cannot be seen");
    }
    let (config, file) = (args.config.config.clone(), get_status_file_path());
    session::block_on(async {
        let mut snapshot = snapshot(&host, &config, &file).await;
        env.terminal.out.write(&text(&snapshot, args));
        if args.watch {
            let changed = Notify::new();
            let dirs: Vec<PathBuf> = file.parent().map(Path::to_path_buf).into_iter().collect();
            let tell = |_: &Path| changed.notify_one();
            let told = async {
                // Where files cannot be watched, the clock alone says when to look.
                let _ = Inotify.watch(&dirs, &tell).await;
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = told => {}
                () = follow(args, env, &host, &config, &file, &changed, &mut snapshot) => {}
            }
        }
        Ok(exit(&snapshot))
    })
}

/// Shows each change until nobody reads any more.
async fn follow(
    args: &StatusArgs,
    env: &Env,
    host: &Host,
    config: &Path,
    file: &Path,
    changed: &Notify,
    last: &mut Snapshot,
) {
    while !env.terminal.out.is_closed() {
        tokio::select! {
            () = changed.notified() => host.clock.sleep(GATHER).await,
            () = host.clock.sleep(AGAIN) => {}
        }
        let now = snapshot(host, config, file).await;
        if !now.says_the_same(last) {
            let clear = if env.terminal.out.is_terminal && args.output == StatusOutput::Text { CLEAR } else { "" };
            env.terminal.out.write(&format!("{clear}{}", text(&now, args)));
        }
        *last = now;
    }
}

/// Home, and everything after it cleared (ECMA-48).
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

async fn snapshot(host: &Host, config: &Path, file: &Path) -> Snapshot {
    look::snapshot(host, &HostLocks::default(), config, file, version::VERSION).await
}

fn text(snapshot: &Snapshot, args: &StatusArgs) -> String {
    match (args.output, args.watch) {
        (StatusOutput::Text, false) => render::to_text(snapshot),
        // One after the other: a blank line between them.
        (StatusOutput::Text, true) => format!("{}\n", render::to_text(snapshot)),
        (StatusOutput::Json, false) => render::to_json(snapshot),
        (StatusOutput::Json, true) => render::to_json_line(snapshot),
        (StatusOutput::Yaml, false) => render::to_yaml(snapshot),
        (StatusOutput::Yaml, true) => format!("---\n{}", render::to_yaml(snapshot)),
    }
}

/// The exit code of a verdict.
pub(super) fn exit(snapshot: &Snapshot) -> Exit {
    match snapshot.verdict {
        Verdict::Healthy => Exit::Done,
        Verdict::Degraded => Exit::Degraded,
        Verdict::NotANode => Exit::NotANode,
    }
}

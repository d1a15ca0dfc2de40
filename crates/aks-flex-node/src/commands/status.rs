//! `aks-flex-node status`: what the node is now, in one look.

use crate::cli::{Output, StatusArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Env, session, version};
use flexnode_daemon::lock::{HostLocks, Locks};
use flexnode_daemon::record::RecordStore;
use flexnode_host::Host;
use flexnode_host::cri::{CONTAINERD_SOCKET, CriSocket};
use flexnode_host::probe::LoopbackProbe;
use flexnode_kube::{Names, NodeClient};
use flexnode_model::journal::JournalRecord;
use flexnode_ops::{Journal, JournalError, report};
use flexnode_stack::places;
use flexnode_status::node::OwnNode;
use flexnode_status::observe::{Seams, observe};
use flexnode_status::render;
use flexnode_status::report::{Context, Verdict, report as judge};
use flexnode_status::slots::{BASE, FsSlots};
use std::sync::Arc;

/// Runs the command.
pub(crate) fn run(args: &StatusArgs, env: &Env) -> Result<Exit, Failure> {
    let host = session::host(env);
    if !env.is_root {
        env.terminal.err.line("note: this is not root, so some of it cannot be seen");
    }
    let context = context(&host);
    let seen = session::block_on(async { Ok(observe(&seams(&host, context.node_name.as_deref()), false).await) })?;
    let report = judge(&seen, &context);
    env.terminal.out.write(&match args.output.output {
        Output::Text => render::to_text(&report),
        Output::Json => render::to_json(&report),
    });
    Ok(match report.verdict {
        Verdict::Healthy => Exit::Done,
        Verdict::Degraded => Exit::Degraded,
        Verdict::NotANode => Exit::NotANode,
    })
}

fn seams(host: &Host, node: Option<&str>) -> Seams {
    let slots = FsSlots::new(host.fs.clone(), BASE);
    let node = node.map(|name| -> Arc<dyn OwnNode> {
        Arc::new(NodeClient::from_kubelet_credentials(host.fs.clone(), places::KUBECONFIG, name, Names::system()))
    });
    Seams::new(host, Arc::new(LoopbackProbe), Arc::new(CriSocket::new(CONTAINERD_SOCKET)), Arc::new(slots), node)
}

/// What is recorded: the Node's name, and what did not end.
fn context(host: &Host) -> Context {
    let mut context = Context { agent_version: version::VERSION.into(), ..Context::default() };
    match RecordStore::new(host.fs.clone()).load() {
        Ok(record) => {
            context.agent_expected = record.is_some();
            context.node_name = record.and_then(|record| record.node_name);
        }
        Err(error) => context.deviations.push(report::line(&error)),
    }
    context.deviations.extend(unfinished(Journal::new(host.fs.clone()).open(), HostLocks::default().holder()));
    context
}

/// An operation that did not end, in a sentence.
fn unfinished(open: Result<Option<JournalRecord>, JournalError>, holder: Option<u32>) -> Option<String> {
    let record = match open {
        Ok(None) => return None,
        Err(error) => return Some(report::line(&error)),
        Ok(Some(record)) => record,
    };
    let operation = &record.operation;
    Some(match (&record.failed_step, &record.error, holder) {
        (_, _, Some(pid)) => format!("{operation} runs (PID {pid}) and is at step {}", record.step),
        (Some(step), Some(error), None) if !record.is_interrupted() => {
            format!("{operation} failed at step {step}: {error}; run aks-flex-node {operation} again to go on")
        }
        _ => format!(
            "{operation} was interrupted at step {}; the agent's service or running it again goes on",
            record.step
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_model::journal::{Subject, Writer};

    fn record() -> JournalRecord {
        let by = Writer { boot_id: "b".into(), pid: 1, owner: "command".into() };
        let now = jiff::Timestamp::UNIX_EPOCH;
        let subject = Subject { operation: "start".into(), ..Subject::default() };
        let mut record = JournalRecord::open("1", subject, &by, now);
        record.enter("import-images", now);
        record
    }

    #[test]
    fn what_did_not_end_is_told() {
        assert_eq!(unfinished(Ok(None), None), None);
        assert_eq!(
            unfinished(Ok(Some(record())), None).unwrap(),
            "start was interrupted at step import-images; the agent's service or running it again goes on"
        );
        let runs = unfinished(Ok(Some(record())), Some(42)).unwrap();
        assert_eq!(runs, "start runs (PID 42) and is at step import-images");
        let mut failed = record();
        failed.fail("disk full", jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(
            unfinished(Ok(Some(failed)), None).unwrap(),
            "start failed at step import-images: disk full; run aks-flex-node start again to go on"
        );
    }
}

//! One look at the whole node, for commands: what is seen now, with what the daemon knows beside it.

use crate::lock::Locks;
use crate::records;
use flexnode_host::cri::{CONTAINERD_SOCKET, CriSocket};
use flexnode_host::probe::LoopbackProbe;
use flexnode_host::{Host, RealSpace};
use flexnode_kube::{KubeletCertificates, Names, NodeClient};
use flexnode_model::Snapshot;
use flexnode_stack::places;
use flexnode_status::observe::{Seams, Witnesses, observe};
use flexnode_status::report::{Context, report};
use flexnode_status::slots::BASE;
use flexnode_status::{FsSlots, load_snapshot_from_file};
use jiff::{SignedDuration, Timestamp};
use std::path::Path;
use std::sync::Arc;

/// What the daemon wrote longer ago says nothing about now.
pub const STALE: SignedDuration = SignedDuration::from_mins(5);

/// Looks at everything and judges it, with the programs and sockets of this machine. `config` is the configuration file,
/// `status_file` what the daemon writes: since when it is so, and what it mended.
pub async fn snapshot(
    host: &Host,
    locks: &dyn Locks,
    config: &Path,
    status_file: &Path,
    agent_version: &str,
) -> Snapshot {
    let mut recorded = records::recorded(host, locks);
    recorded.configured = records::configured(host, config);
    let node = recorded.node_name.as_deref().map(|name| {
        let names = Names::system();
        Arc::new(NodeClient::from_kubelet_credentials(host.fs.clone(), places::KUBECONFIG, name, names))
    });
    let witnesses = Witnesses {
        probe: Arc::new(LoopbackProbe),
        cri: Arc::new(CriSocket::new(CONTAINERD_SOCKET)),
        slots: Arc::new(FsSlots::new(host.fs.clone(), BASE)),
        space: Arc::new(RealSpace),
        skew: node.as_ref().map(|node| node.meter().clone() as _),
        node: node.map(|node| node as _),
        certificates: Some(Arc::new(KubeletCertificates::new(host.fs.clone()))),
    };
    let seen = observe(&Seams::new(host, witnesses), false).await;
    let before = load_snapshot_from_file(status_file).ok().flatten().filter(|before| is_fresh(before, seen.at));
    let mended = before.as_ref().map(|before| before.mended.clone()).unwrap_or_default();
    report(&seen, &Context { agent_version: agent_version.into(), recorded, before, mended, notes: Vec::new() })
}

/// Whether what the daemon wrote still counts; a time in the future does not.
pub fn is_fresh(snapshot: &Snapshot, now: Timestamp) -> bool {
    let age = now.duration_since(snapshot.at);
    age <= STALE && age >= -SignedDuration::from_secs(5)
}

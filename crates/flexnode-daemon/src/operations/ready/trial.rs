//! A container is made, started and removed with the slot's programs, where kubelet does not see it.

use crate::agent_binary;
use crate::operations::NodeContext;
use crate::start::programs::run;
use flexnode_host::cri::CONTAINERD_SOCKET;
use flexnode_ops::StepError;
use std::path::Path;

/// containerd's namespace of the container that is tried: kubelet does not see it.
const NAMESPACE: &str = "aks-flex-node-ready";
const CONTAINER: &str = "ready";
const ROOT: &str = "/var/lib/aks-flex-node/artifacts/ready";

/// Makes, starts and removes a container with the slot's shim and runc. It runs this agent's program, which needs no
/// libraries, in an empty root on the host's network.
pub(super) async fn container(context: &NodeContext, bin: &Path) -> Result<(), StepError> {
    let host = context.host();
    let installed = agent_binary::installed_path();
    let there = host.fs.stat(&installed).ok().flatten().is_some();
    let program = if there { installed } else { context.start.program.clone() };
    let failed = |e| StepError::caused("the root of a container could not be made", e);
    flexnode_host::durable::ensure_dir(host.fs.as_ref(), Path::new(ROOT), 0o755).map_err(failed)?;
    let ctr = |args: &[&str]| {
        let base = ["--address", CONTAINERD_SOCKET, "--namespace", NAMESPACE];
        let args: Vec<String> = base.iter().chain(args).map(ToString::to_string).collect();
        let (host, program) = (host.clone(), bin.join("ctr"));
        async move { run(&host, program, &args.iter().map(String::as_str).collect::<Vec<_>>()).await }
    };
    let clean = async || {
        // What an earlier, killed try left, and what this one did. Nothing depends on its success.
        for args in
            [&["tasks", "rm", "-f", CONTAINER][..], &["containers", "rm", CONTAINER], &["namespaces", "rm", NAMESPACE]]
        {
            let _ = ctr(args).await;
        }
        let _ = host.cgroups.remove(NAMESPACE);
    };
    clean().await;
    let mount = format!("type=bind,src={},dst=/agent,options=rbind:ro", program.display());
    let runc = bin.join("runc").display().to_string();
    let made = ctr(&[
        "run",
        "--rm",
        "--net-host",
        "--runc-binary",
        &runc,
        "--mount",
        &mount,
        "--rootfs",
        ROOT,
        CONTAINER,
        "/agent",
        "version",
    ])
    .await;
    clean().await;
    made.map(|_| ()).map_err(|e| {
        StepError::caused("the new version cannot run a container", e).hint("journalctl -u unbounded-containerd -n 50")
    })
}

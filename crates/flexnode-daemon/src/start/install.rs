//! What is installed: the slot's programs and configuration, the agent's own program and service.

use super::steps::Parts;
use crate::service::ServiceError;
use crate::{agent_binary, service};
use flexnode_artifacts::InstalledFile;
use flexnode_host::{Command, Host, HostError};
use flexnode_isolation::NodeRoot as _;
use flexnode_isolation::none::{Installed, Root, WrittenFile};
use flexnode_ops::{Outcome, StepContext, StepError};
use flexnode_stack::{HostFacts, Installer, containerd, places};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const DUMP_DEADLINE: Duration = Duration::from_secs(20);
const DUMP_LIMIT: u64 = 4 << 20;

/// Fills the slot; tells the digest of every file, so that the slot's manifest need not read them again.
pub async fn install(parts: &Parts, root: &Root, cx: &StepContext) -> Result<Installed, StepError> {
    let Some(source) = &parts.prepared.source else {
        return Err(StepError::new(format!(
            "the artifact source {} is not there, and this version is not installed",
            parts.prepared.join.source.display()
        ))
        .hint("put the bundle there again, or correct bootstrap.offlineArtifacts.source"));
    };
    let facts = HostFacts::read(parts.host.fs.as_ref())
        .map_err(|e| StepError::caused("the host's resolver file cannot be read", e))?;
    cx.note(&format!("unpacking and verifying {} artifacts", source.resolved.artifacts.len()));
    let installer = Installer::new(
        parts.host.fs.clone(),
        source.resolved.artifacts.clone(),
        parts.prepared.goal.clone(),
        facts,
        parts.layout.bin_dir(),
    );
    let files = installer
        .install_in_background(Box::new(root.clone()))
        .await
        .map_err(|e| StepError::caused(format!("version {} could not be installed", parts.prepared.slot), e))?;
    let bytes: u64 = files.iter().map(|f| f.size).sum();
    let outcome = Outcome::Changed(format!("{} files, {} MiB", files.len(), bytes >> 20));
    let written = |file: InstalledFile| WrittenFile { path: file.path, sha256: file.sha256, size: file.size };
    Ok(Installed { outcome, files: files.into_iter().map(written).collect() })
}

/// Asks the slot's containerd what it makes of its configuration: a setting that it does not show is one that it ignores.
pub async fn check_containerd(parts: &Parts, _cx: &StepContext) -> Result<Outcome, StepError> {
    let root = parts.backend().root(parts.prepared.slot.as_str());
    let path = root.config(places::config::CONTAINERD);
    let failed = |what: &str| format!("containerd {what} its configuration {}", path.display());
    let rendered = parts
        .host
        .fs
        .read(&path, DUMP_LIMIT)
        .map_err(|e| StepError::caused(failed("cannot read"), e))?
        .ok_or_else(|| StepError::new(format!("{} is not there", path.display())))?;
    let command = Command {
        program: root.path(places::BIN.as_ref()).join("containerd"),
        args: containerd::dump_arguments(&path),
        env: BTreeMap::new(),
        stdin: Vec::new(),
        deadline: DUMP_DEADLINE,
        max_output: usize::try_from(DUMP_LIMIT).unwrap_or(usize::MAX),
    };
    let output = parts.host.commands.run(&command).await.map_err(|e| StepError::caused(failed("does not tell"), e))?;
    if output.code != Some(0) {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().next_back().unwrap_or("no reason was given");
        return Err(
            StepError::new(format!("{}: {last}", failed("does not accept"))).hint("correct node.containerd.config")
        );
    }
    let ignored =
        containerd::ignored(&rendered, &output.stdout).map_err(|e| StepError::caused(failed("does not tell"), e))?;
    if ignored.is_empty() {
        return Ok(Outcome::Unchanged);
    }
    Err(StepError::new(format!("containerd ignores these settings of {}: {}", path.display(), ignored.join(", ")))
        .hint("correct the names of these keys in node.containerd.config; containerd 1 and 2 name some differently"))
}

/// Installs the agent's program below the host root.
pub async fn agent(parts: &Parts) -> Result<Outcome, StepError> {
    let path = agent_binary::installed_path();
    match agent_binary::install(&parts.host, &parts.program).await {
        Ok(change) if change.made() => Ok(Outcome::Changed(path.display().to_string())),
        Ok(_) => Ok(Outcome::Unchanged),
        Err(e) => {
            let hint = e.hint();
            let error = StepError::caused("the agent's program could not be installed", e);
            Err(match hint {
                Some(hint) => error.hint(hint),
                None => error,
            })
        }
    }
}

/// Installs and starts the agent's service. A daemon that runs another program than the installed one is started again,
/// unless it is this process.
pub async fn service(parts: &Parts) -> Result<Outcome, StepError> {
    let host = &parts.host;
    let name = service::SERVICE_UNIT_NAME;
    let failed = |e: ServiceError| {
        StepError::caused("the agent's service could not be installed", e)
            .hint(format!("journalctl -u {name} -n 50 --no-pager"))
    };
    let spec = service::ServiceSpec { program: agent_binary::installed_path(), config: parts.config.clone() };
    if service::install(host, &spec).await.map_err(failed)?.made() {
        return Ok(Outcome::Changed(name.into()));
    }
    if !runs_another(host, &spec.program).await.map_err(|e| failed(ServiceError::Systemd("looked at", e)))? {
        return Ok(Outcome::Unchanged);
    }
    service::restart(host).await.map_err(failed)?;
    Ok(Outcome::Changed(format!("restarted {name} with the new program")))
}

/// Whether the service's main process runs another file than `program`.
async fn runs_another(host: &Host, program: &Path) -> Result<bool, HostError> {
    let pid = host.systemd.unit(service::SERVICE_UNIT_NAME).await?.main_pid;
    if pid == 0 || pid == std::process::id() {
        return Ok(false);
    }
    let (Some(process), Some(file)) = (host.processes.get(pid)?, host.fs.stat(program)?) else { return Ok(false) };
    Ok(process.exe_id.is_some_and(|id| id != (file.dev, file.ino)))
}

//! From the configuration file to the goal of this machine, with the digests of what will be installed.

use super::error::StartError;
use crate::config_file;
use flexnode_artifacts::{ArtifactError, Bundle, Resolved, Trust, Wanted};
use flexnode_host::{CgroupVersion, Host, HostError};
use flexnode_model::config::{Config, HostFacts, Warning};
use flexnode_model::{CgroupLayout, Difference, Isolation, Join, MachineGoal, SlotName};
use std::io::ErrorKind;
use std::path::Path;

/// All that `start` works for.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The configuration as it was read.
    pub config: Config,
    /// What the machine is meant to be, digests of the artifacts included.
    pub goal: MachineGoal,
    /// What joining needs beyond the slot.
    pub join: Join,
    /// The source and what is installed from it; `None` when the source is not there and the digests are the recorded ones.
    pub source: Option<Source>,
    /// The goal's fingerprint, eight hex digits.
    pub fingerprint: String,
    /// The slot that the goal belongs into.
    pub slot: SlotName,
    /// For a person: what may not be as meant.
    pub warnings: Vec<String>,
    /// What of the host went into the goal.
    pub facts: HostFacts,
}

/// An artifact source that was looked through.
#[derive(Clone, Debug)]
pub struct Source {
    /// Where the files are.
    pub bundle: Bundle,
    /// The files that this machine needs.
    pub resolved: Resolved,
}

/// What a goal takes from the host.
pub fn host_facts(host: &Host) -> Result<HostFacts, HostError> {
    let cgroups = match host.cgroups.version() {
        Some(CgroupVersion::V1) => CgroupLayout::V1,
        Some(CgroupVersion::V2) => CgroupLayout::V2,
        None => {
            return Err(HostError::Failed {
                what: "find the control groups".into(),
                reason: "no cgroup file system is mounted; mount cgroup2 on /sys/fs/cgroup".into(),
            });
        }
    };
    Ok(HostFacts {
        host_name: host.kernel.host_name()?,
        memory_bytes: host.kernel.memory_bytes()?,
        cpus: host.kernel.cpus(),
        cgroups,
        arch: host.kernel.arch().to_string(),
    })
}

/// A configuration that was read: as written, the goal without artifacts, what joining needs, warnings, and the facts of
/// the host that went into it.
pub type Configured = (Config, MachineGoal, Join, Vec<Warning>, HostFacts);

/// Reads and checks the configuration alone.
pub fn read_config(host: &Host, path: &Path) -> Result<Configured, StartError> {
    let bytes = config_file::read(host.fs.as_ref(), path)?;
    let facts = host_facts(host).map_err(StartError::Host)?;
    let loaded = Config::load(&bytes, &facts);
    let (config, goal, join, found) = loaded.map_err(|source| StartError::Config { path: path.into(), source })?;
    Ok((config, goal, join, found, facts))
}

/// Reads the configuration and the source. `applied` is the goal that the machine was given last, if any: its digests
/// serve for comparing when the source is not there. Changes nothing.
///
/// Blocks on files; a source without a recorded digest is hashed.
pub fn prepare(host: &Host, config_path: &Path, applied: Option<&MachineGoal>) -> Result<Prepared, StartError> {
    let (config, mut goal, join, found, facts) = read_config(host, config_path)?;
    let mut warnings: Vec<String> = found.iter().map(ToString::to_string).collect();
    if config.node.isolation.is_none()
        && let Some(applied) = applied
    {
        goal.isolation = applied.isolation;
    }
    if goal.isolation != Isolation::None {
        return Err(StartError::Isolation);
    }
    let source = open_source(host, &goal, &join, &facts.arch, applied.is_some())?;
    match (&source, applied) {
        (Some(source), _) => {
            warnings.extend(source.resolved.notes.iter().cloned());
            goal = flexnode_stack::resolved_goal(goal, &source.resolved);
        }
        (None, Some(applied)) => {
            warnings.push(format!(
                "the artifact source {} is not there; the recorded digests are used",
                join.source.display()
            ));
            goal.artifacts.clone_from(&applied.artifacts);
            goal.take_unset_versions(applied);
        }
        (None, None) => {}
    }
    let fingerprint = goal.fingerprint();
    let slot = goal.slot().map_err(StartError::Slot)?;
    Ok(Prepared { config, goal, join, source, fingerprint, slot, warnings, facts })
}

/// What the configuration file alone says otherwise than the goal that is applied, from what runs to what is written. What it
/// leaves to the source or to the recorded state is as it is applied.
pub fn written_differences(
    host: &Host,
    config_path: &Path,
    applied: &MachineGoal,
) -> Result<Vec<Difference>, StartError> {
    let (config, mut goal, _, _, facts) = read_config(host, config_path)?;
    goal.artifacts.clone_from(&applied.artifacts);
    if config.node.isolation.is_none() {
        goal.isolation = applied.isolation;
    }
    goal.take_unset_versions(applied);
    Ok(config.differences(&facts, applied, &goal))
}

/// `goal` as it was made once, from what the configuration's source holds now: the applied goal with another Kubernetes
/// version, or that of an installed version that is to be mended. The source has to be there; where its path names the
/// Kubernetes version, it is the one of this goal.
///
/// Blocks like [`prepare`].
pub fn prepare_goal(host: &Host, config_path: &Path, goal: MachineGoal) -> Result<Prepared, StartError> {
    let (config, _, mut join, _, facts) = read_config(host, config_path)?;
    if let Some(source) = config.source_of(&goal.kubernetes_version) {
        join.source = source;
    }
    let source = open_source(host, &goal, &join, &facts.arch, true)?;
    let Some(source) = source else { return Err(StartError::NoSource { path: join.source }) };
    let warnings = source.resolved.notes.clone();
    let goal = flexnode_stack::resolved_goal(goal, &source.resolved);
    let (fingerprint, slot) = (goal.fingerprint(), goal.slot().map_err(StartError::Slot)?);
    Ok(Prepared { config, goal, join, source: Some(source), fingerprint, slot, warnings, facts })
}

/// Opens the source and finds what is needed. `None`: it is not there at all, which `may_be_absent` allows.
fn open_source(
    host: &Host,
    goal: &MachineGoal,
    join: &Join,
    arch: &str,
    may_be_absent: bool,
) -> Result<Option<Source>, StartError> {
    let bundle = match Bundle::open(host.fs.clone(), &join.source, Trust::root()) {
        Ok(bundle) => bundle,
        Err(ArtifactError::Fs(e)) if may_be_absent && e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(StartError::Source(e)),
    };
    let wanted = Wanted {
        kubernetes: goal.kubernetes_version.clone(),
        containerd: goal.containerd_version.clone(),
        runc: goal.runc_version.clone(),
        cni: goal.cni_version.clone(),
        arch: arch.into(),
        allow_unverified: join.allow_unverified.clone(),
    };
    let resolved = bundle.resolve(&wanted).map_err(StartError::Source)?;
    Ok(Some(Source { bundle, resolved }))
}

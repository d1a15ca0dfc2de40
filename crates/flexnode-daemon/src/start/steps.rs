//! The steps of `start`, in order.
//!
//! The read-only ones come first: they run before the journal's record is opened, so that a refusal leaves no trace. Each
//! of the others is idempotent and says "unchanged" on a node that is as it should be, so the same list serves the first
//! start, one that continues after a failure, and one that only looks.

use super::cluster::Cluster;
use super::goal::Prepared;
use super::{decide, files, gates, images, install, join, programs};
use crate::host_setup::{self, Recorder, swap};
use crate::{api, preflight};
use flexnode_host::Host;
use flexnode_host::cri::Cri;
use flexnode_host::probe::Probe;
use flexnode_isolation::NodeSpec;
use flexnode_isolation::none::{Backend, Install, Layout};
use flexnode_ops::{Operation, Outcome, Recovery, Step, StepContext, StepError};
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Looking, and small changes to files.
const SHORT: Duration = Duration::from_mins(1);
/// Turning swap off can move gigabytes into memory.
const SWAP: Duration = Duration::from_mins(10);
/// Hashing and importing images.
const IMAGES: Duration = Duration::from_mins(30);

/// What the steps work with.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The host.
    pub host: Host,
    /// The container runtime.
    pub cri: Arc<dyn Cri>,
    /// Questions to programs on this machine.
    pub probe: Arc<dyn Probe>,
    /// The cluster as this node sees it.
    pub cluster: Arc<dyn Cluster>,
    /// The goal and all that belongs to it.
    pub prepared: Arc<Prepared>,
    /// The configuration file, which the daemon reads too.
    pub config: PathBuf,
    /// This running program.
    pub program: PathBuf,
    /// Keeps values before.
    pub recorder: Arc<dyn Recorder>,
    /// The arrangement of versions.
    pub layout: Layout,
}

impl Parts {
    fn step<F, Fut>(&self, name: &'static str, title: &str, deadline: Duration, run: F) -> Step
    where
        F: Fn(Parts, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, StepError>> + Send + 'static,
    {
        let parts = self.clone();
        Step::new(name, title, deadline, move |cx| run(parts.clone(), cx))
    }

    /// The backend with everything that the agent plugs in.
    pub fn backend(&self) -> Backend {
        let mut backend = Backend::new_default(self.host.clone(), tracing::Span::none());
        backend.layout = self.layout.clone();
        let parts = self.clone();
        backend.install = Install::hashing(move |cx, root| {
            let parts = parts.clone();
            async move { install::install(&parts, &root, &cx).await }
        });
        backend.after_start = gates::hooks(&self.host, &self.cri, &self.probe);
        backend
    }

    /// What the backend installs.
    pub fn node_spec(&self) -> NodeSpec {
        NodeSpec {
            slot: self.prepared.slot.to_string(),
            goal: self.prepared.fingerprint.clone(),
            ..NodeSpec::default()
        }
    }
}

/// The whole operation. `runs`: the node's own stack runs already.
pub fn operation(parts: &Parts, runs: bool) -> Operation {
    let backend = parts.backend();
    let (looks, prepares): (Vec<Step>, Vec<Step>) =
        backend.prepare_steps(&parts.node_spec()).into_iter().partition(|step| step.read_only);
    let mut steps = looking(parts, runs);
    steps.extend(looks);
    steps.extend(host(parts));
    // One reload serves the units' files and the links that enable them.
    let place = |step: Step| if step.name == "write-units" { backend.place_units_step() } else { step };
    steps.extend(prepares.into_iter().map(place));
    steps.push(parts.step(
        "check-programs",
        "check that the programs are of the versions that are meant",
        SHORT * 2,
        |p, cx| async move { programs::check(&p, &cx).await },
    ));
    steps.push(parts.step(
        "check-containerd-config",
        "check that containerd reads every setting",
        SHORT,
        |p, cx| async move { install::check_containerd(&p, &cx).await },
    ));
    steps.push(parts.step(
        "node-files",
        "write the CA, the bootstrap kubeconfig and the registration",
        SHORT,
        |p, _| async move { files::write(&p) },
    ));
    steps.push(backend.link_cni_step(parts.prepared.slot.as_str()));
    steps.push(backend.flip_step(parts.prepared.slot.as_str()));
    for step in backend.start_steps() {
        if step.name == "start-kubelet" {
            steps.push(import(parts));
        }
        steps.push(step);
    }
    steps.extend(finishing(parts));
    Operation {
        kind: decide::KIND,
        goal: parts.prepared.fingerprint.clone(),
        from: None,
        to: Some(parts.prepared.slot.to_string()),
        steps,
        recovery: Recovery::Resume,
    }
}

fn looking(parts: &Parts, runs: bool) -> Vec<Step> {
    let check = parts.step("check-host", "check the host", SHORT, move |p, cx| async move {
        let input = preflight::Input {
            config: p.config.clone(),
            api_server: p.prepared.goal.api_server.clone(),
            ca_pem: p.prepared.goal.ca_pem.clone(),
            ports: preflight::ports::of(&p.prepared.goal),
            keep_swap: swap::keeps(&p.prepared.goal),
            runs,
        };
        let found = preflight::run(&p.host, &input).await;
        for finding in found.iter().filter(|f| f.severity == preflight::Severity::Warning) {
            cx.note(&finding.to_string());
        }
        refuse(&preflight::errors(&found))
    });
    let reach = parts.step("check-api-server", "reach the API server", api::DEADLINE * 2, |p, cx| async move {
        api::check(&p.host, p.cluster.as_ref(), &p.prepared, &cx).await
    });
    vec![check.read_only(), reach.read_only().interruptible()]
}

/// All findings in one error: a person wants to mend them in one go.
fn refuse(errors: &[preflight::Finding]) -> Result<Outcome, StepError> {
    if errors.is_empty() {
        return Ok(Outcome::Unchanged);
    }
    let texts: Vec<String> = errors.iter().map(|f| f.message.clone()).collect();
    let mut hints: Vec<&str> = errors.iter().filter_map(|f| f.hint.as_deref()).collect();
    hints.dedup();
    let message = match texts.as_slice() {
        [one] => one.clone(),
        all => format!("{} things keep this host from becoming a node:\n  - {}", all.len(), all.join("\n  - ")),
    };
    let error = StepError::new(message);
    Err(if hints.is_empty() { error } else { error.hint(hints.join("; ")) })
}

fn host(parts: &Parts) -> Vec<Step> {
    vec![
        parts.step(
            "record-host",
            "record how the host is now",
            SHORT,
            |p, _| async move { files::record_host(&p).await },
        ),
        parts.step("kernel-modules", "load the kernel modules", SHORT, |p, cx| async move {
            host_setup::set_up_modules(&p.host, p.recorder.as_ref(), &cx).await
        }),
        parts.step("sysctls", "apply the kernel settings", SHORT, |p, cx| async move {
            host_setup::set_up_sysctls(&p.host, p.recorder.as_ref(), &cx)
        }),
        parts.step("swap", "turn swap off", SWAP, |p, cx| async move {
            host_setup::set_up_swap(&p.host, p.recorder.as_ref(), swap::keeps(&p.prepared.goal), &cx).await
        }),
    ]
}

fn import(parts: &Parts) -> Step {
    let looked = Arc::new(images::Looked::default());
    parts.step("import-images", "import the images of the source", IMAGES, move |p, cx| {
        let looked = looked.clone();
        async move {
            let (source, bin) = (p.prepared.source.as_ref(), p.layout.bin_dir());
            images::import(&p.host, p.cri.as_ref(), source, &bin, &looked, &cx).await
        }
    })
}

fn finishing(parts: &Parts) -> Vec<Step> {
    vec![
        parts
            .step("wait-kubelet", "wait for kubelet to join the cluster", join::DEADLINE + SHORT, |p, cx| async move {
                join::wait(&p, &cx).await
            })
            .interruptible(),
        parts.step("save-state", "record what is applied", SHORT, |p, _| async move { files::save_state(&p) }),
        parts.step(
            "install-agent",
            "install the agent's program",
            SHORT,
            |p, _| async move { install::agent(&p).await },
        ),
        parts.step("install-service", "install and start the agent's service", SHORT * 2, |p, _| async move {
            install::service(&p).await
        }),
    ]
}

//! The backend on the fake host, sentence by sentence of the contract.

mod conformance;
mod destroy;
mod exec;
mod lifecycle;
mod mend;
mod places;
mod preflight;
mod prepare;
mod steps;
mod upgrade;

use super::*;
use crate::backend::{Error, NodeRoot, NodeSpec};
use flexnode_host::durable;
use flexnode_host::testing::FakeHost;
use flexnode_ops::{Outcome, StepError};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const UNITS: &str = "/etc/systemd/system";

/// A fake host, and a backend on it whose installer places small stand-ins.
struct Node {
    fake: FakeHost,
    backend: Backend,
}

impl Node {
    fn new() -> Self {
        let fake = FakeHost::new();
        let mut backend = Backend::new(fake.host());
        backend.install = installer(&fake);
        Self { fake, backend }
    }

    /// With the reaping seams set, as the product has them.
    fn reaping(mut self) -> Self {
        self.backend.proc = Some(self.fake.processes.clone());
        self.backend.cgroup_root = Some(self.fake.cgroups.clone());
        self
    }

    fn text(&self, path: &str) -> String {
        self.fake.fs.text(path)
    }

    fn current(&self) -> Option<String> {
        self.backend.current().unwrap()
    }

    fn state(&self, unit: &str) -> flexnode_host::UnitState {
        self.fake.systemd.state(unit)
    }

    fn active(&self, unit: &str) -> bool {
        self.state(unit).is_active()
    }

    /// The file that the main process of a unit runs.
    fn runs(&self, unit: &str) -> String {
        use flexnode_host::Processes;
        let process = self.fake.processes.get(self.state(unit).main_pid).unwrap().expect("the unit has a process");
        process.exe.to_str().unwrap().to_owned()
    }

    fn calls(&self) -> Vec<String> {
        self.fake.systemd.calls()
    }

    /// Prepared, active and running.
    async fn running(self, version: &str) -> Self {
        self.backend.prepare(&spec(version)).await.unwrap();
        self.backend.activate(version).await.unwrap();
        self.backend.start().await.unwrap();
        assert!(self.backend.status().await.unwrap().running);
        self.fake.systemd.clear_calls();
        self
    }

    /// Asserts that `version` is active and runs.
    fn assert_runs(&self, version: &str) {
        assert_eq!(self.current().as_deref(), Some(version));
        for (unit, program) in [(UNIT_CONTAINERD, "containerd"), (UNIT_KUBELET, "kubelet")] {
            assert!(self.active(unit), "{unit} does not run");
            assert_eq!(self.runs(unit), format!("/opt/unbounded/node/{version}/bin/{program}"));
        }
    }
}

fn spec(version: &str) -> NodeSpec {
    NodeSpec { slot: version.into(), ..NodeSpec::default() }
}

/// Places what the units need, with the version in it.
fn installer(fake: &FakeHost) -> Install {
    let fs = fake.fs.clone();
    Install::new(move |_, root| {
        let fs = fs.clone();
        async move {
            let version = root.version.clone();
            for (path, mode) in [
                (root.path(Path::new("/usr/local/bin/kubelet")), 0o755),
                (root.path(Path::new("/usr/local/bin/containerd")), 0o755),
                (root.path(Path::new("/usr/local/bin/containerd-shim-runc-v2")), 0o755),
                (root.path(Path::new("/usr/local/libexec/localdns-supervisor")), 0o755),
                (root.path(Path::new("/opt/cni/bin/bridge")), 0o755),
                (root.config("kubelet/config.yaml"), 0o644),
                (root.config("kubelet/env"), 0o644),
                (root.config("containerd/config.toml"), 0o644),
            ] {
                let write = || -> Result<(), flexnode_host::FsError> {
                    durable::ensure_dir(&*fs, path.parent().unwrap(), 0o755)?;
                    durable::write(&*fs, &path, version.as_bytes(), mode).map(|_| ())
                };
                write().map_err(|e| StepError::caused("the stand-in could not be written", e))?;
            }
            Ok(Outcome::Changed(String::new()))
        }
    })
}

/// A log of what hooks did, shared with them.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// A hook that writes `text`, and what `also` sees at that moment.
    fn hook(&self, text: &'static str, also: impl Fn() -> String + Send + Sync + 'static) -> Hook {
        let diary = self.clone();
        Hook::new(Duration::from_secs(60), move |_| {
            diary.note(format!("{text}{}", also()));
            async { Ok(Outcome::Changed(String::new())) }
        })
    }
}

fn failing(text: &'static str) -> Hook {
    Hook::new(Duration::from_secs(60), move |_| async move { Err(StepError::new(text)) })
}

/// An error with all its causes.
fn whole(error: &dyn std::error::Error) -> String {
    flexnode_ops::report::layers(error).join(": ")
}

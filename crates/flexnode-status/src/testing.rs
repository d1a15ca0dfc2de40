//! A joined node of fakes, for the tests of collector and report.

use crate::certificates::Certificates;
use crate::node::{NodeUnknown, NodeView, OwnNode};
use crate::observe::{Known, Observation, Seams, Skew, UNIT_AGENT, UNIT_CONTAINERD, UNIT_KUBELET, Witnesses, observe};
use crate::slots::{BASE, FsSlots};
use async_trait::async_trait;
use flexnode_host::cri::RuntimeVersion;
use flexnode_host::cri::fake::FakeCri;
use flexnode_host::probe::{FakeProbe, KUBELET_HEALTHZ};
use flexnode_host::space::FakeSpace;
use flexnode_host::testing::FakeHost;
use flexnode_model::snapshot::{Certificate, ClockSkew, Reading, Validity};
use jiff::Timestamp;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A Node that the test sets.
#[derive(Debug)]
pub struct FakeNode(Mutex<Result<Option<NodeView>, NodeUnknown>>);

impl FakeNode {
    pub fn set(&self, node: Result<Option<NodeView>, &str>) {
        *self.0.lock().unwrap() = node.map_err(|reason| NodeUnknown { reason: reason.to_owned() });
    }
}

#[async_trait]
impl OwnNode for FakeNode {
    async fn view(&self, _: Duration) -> Result<Option<NodeView>, NodeUnknown> {
        self.0.lock().unwrap().clone()
    }
}

pub use crate::node::example as node;

/// Certificates that the test sets.
#[derive(Debug)]
pub struct FakeCertificates(pub Mutex<Known<Vec<Certificate>>>);

impl Certificates for FakeCertificates {
    fn view(&self) -> Known<Vec<Certificate>> {
        self.0.lock().unwrap().clone()
    }
}

/// A difference of clocks that the test sets.
#[derive(Debug)]
pub struct FakeSkew(pub Mutex<Known<i64>>);

impl Skew for FakeSkew {
    fn skew(&self, now: Timestamp) -> Known<ClockSkew> {
        self.0.lock().unwrap().clone().map(|seconds| ClockSkew { seconds, measured: now })
    }
}

/// kubelet's client certificate, good between these times.
pub fn client_certificate(from: &str, to: &str) -> Certificate {
    let validity = Validity { not_before: from.parse().unwrap(), not_after: to.parse().unwrap() };
    Certificate {
        name: "kubeletClient".into(),
        path: "/var/lib/kubelet/pki/kubelet-client-current.pem".into(),
        validity: Reading::Known(validity),
    }
}

pub struct FakeNodeHost {
    pub space: Arc<FakeSpace>,
    pub certificates: Arc<FakeCertificates>,
    pub skew: Arc<FakeSkew>,
    pub host: FakeHost,
    pub cri: Arc<FakeCri>,
    pub probe: Arc<FakeProbe>,
    pub node: Arc<FakeNode>,
}

fn unit(program: &str) -> String {
    format!("[Service]\nExecStart={program}\n[Install]\nWantedBy=multi-user.target\n")
}

impl FakeNodeHost {
    /// Nothing is installed.
    pub fn bare() -> Self {
        Self {
            space: Arc::default(),
            certificates: Arc::new(FakeCertificates(Mutex::new(Ok(Vec::new())))),
            skew: Arc::new(FakeSkew(Mutex::new(Ok(0)))),
            host: FakeHost::new(),
            cri: Arc::default(),
            probe: Arc::default(),
            node: Arc::new(FakeNode(Mutex::new(Ok(None)))),
        }
    }

    /// A healthy node: slot 1.36.3-aa is active, 1.35.4-bb is left, all units run.
    pub async fn healthy() -> Self {
        let this = Self::bare();
        let fs = &this.host.fs;
        crate::slots::tests::put_slot(fs, "1.36.3-aa", "1.36.3", true);
        crate::slots::tests::put_slot(fs, "1.35.4-bb", "1.35.4", true);
        fs.put_link("1.36.3-aa", Path::new(BASE).join("current"));
        fs.put("/opt/unbounded/agent/bin/aks-flex-node", "agent", 0o755);
        let units = [
            (UNIT_CONTAINERD, "/opt/unbounded/node/current/bin/containerd"),
            (UNIT_KUBELET, "/opt/unbounded/node/current/bin/kubelet"),
            (UNIT_AGENT, "/opt/unbounded/agent/bin/aks-flex-node"),
        ];
        let systemd = this.host.host().systemd;
        for (name, program) in units {
            fs.put(Path::new("/etc/systemd/system").join(name), unit(program), 0o644);
        }
        systemd.reload().await.unwrap();
        for (name, _) in units {
            systemd.enable(name).await.unwrap();
            systemd.start(name, Duration::from_secs(5)).await.unwrap();
        }
        systemd.reload().await.unwrap();
        let runc = "runc version 1.3.6\ncommit: v1.3.6-0-g0\nspec: 1.2.1\n";
        this.host.commands.answer("/opt/unbounded/node/1.36.3-aa/bin/runc", &["--version"], runc);
        this.cri.set_version(RuntimeVersion {
            name: "containerd".into(),
            version: "v2.1.9".into(),
            api_version: "v1".into(),
        });
        this.probe.set(
            KUBELET_HEALTHZ,
            flexnode_host::probe::FakeAnswer::Answer(flexnode_host::probe::HttpAnswer {
                status: 200,
                body: "ok".into(),
            }),
        );
        this.node.set(Ok(Some(node(Some(true), "KubeletReady", "kubelet is posting ready status"))));
        let certificate = client_certificate("2025-06-01T00:00:00Z", "2026-06-01T00:00:00Z");
        *this.certificates.0.lock().unwrap() = Ok(vec![certificate]);
        this
    }

    pub fn seams(&self) -> Seams {
        let witnesses = Witnesses {
            probe: self.probe.clone(),
            cri: self.cri.clone(),
            slots: Arc::new(FsSlots::new(self.host.fs.clone(), BASE)),
            space: self.space.clone(),
            node: Some(self.node.clone()),
            certificates: Some(self.certificates.clone()),
            skew: Some(self.skew.clone()),
        };
        Seams::new(&self.host.host(), witnesses)
    }

    pub async fn observe(&self) -> Observation {
        observe(&self.seams(), false).await
    }

    /// The main process of a unit.
    pub fn pid(&self, unit: &str) -> u32 {
        self.host.systemd.state(unit).main_pid
    }
}

//! Pods for tests.

use crate::{Cluster, Node, SOON};
use anyhow::{Result, anyhow};
use flexnode_lab::{image, poll};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a pod may take to be Ready.
const POD_READY: Duration = Duration::from_secs(120);

/// A pod of the web image on a node.
pub fn web(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
            // A node that is upgraded or not Ready for a while keeps its pods.
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "web", "image": image::WEB, "imagePullPolicy": "Never"}],
        },
    })
}

impl Cluster {
    /// Makes `count` web pods on a node and waits until each runs.
    pub fn run_pods(&self, node: &Node<'_>, count: usize) -> Vec<String> {
        let names: Vec<String> = (0..count).map(|n| format!("{}-web-{n}", node.host.name())).collect();
        // The namespace's own account is made by a controller a moment after the namespace.
        poll(Duration::from_secs(30), SOON, "the default service account", || {
            Ok(self.control_plane.get(&["serviceaccount", "default"]).ok())
        })
        .unwrap();
        for name in &names {
            self.control_plane.apply(&web(name, node.host.name())).unwrap();
        }
        for name in &names {
            node.wait_pod(name);
        }
        names
    }

    /// Waits until a pod is Ready; its address. The error tells how the pod is and what happened to it.
    pub fn wait_pod(&self, name: &str, limit: Duration) -> Result<String> {
        let what = format!("pod {name} to be Ready");
        let found = poll(limit, SOON, &what, || {
            let pod = self.control_plane.get(&["pod", name])?;
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
            Ok(pod["status"]["podIP"].as_str().filter(|_| ready).map(str::to_owned))
        });
        found.map_err(|error| anyhow!("{error:#}\n{}", self.evidence_of_pod(name)))
    }

    /// The pod's status and the events about it, for the message of a failed test.
    fn evidence_of_pod(&self, name: &str) -> String {
        let status = self.control_plane.get(&["pod", name]).map(|pod| format!("{:#}", pod["status"]));
        let about = format!("--field-selector=involvedObject.name={name}");
        let events = self.control_plane.kubectl(&["get", "events", &about, "--sort-by=.lastTimestamp"]);
        let events = events.map(|told| told.stdout + &told.stderr);
        let text = |told: Result<String>| told.unwrap_or_else(|e| format!("{e:#}"));
        format!("the pod's status:\n{}\nits events:\n{}", text(status), text(events))
    }

    /// What a pod answers over HTTP on its address, asked from the control plane's network.
    pub fn ask_pod(&self, address: &str) -> String {
        use std::io::{Read as _, Write as _};
        let target = format!("{address}:80");
        let answer = self.lab.in_network(|| -> std::io::Result<String> {
            let mut stream = std::net::TcpStream::connect(target)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        });
        answer.unwrap().unwrap()
    }
}

impl Node<'_> {
    /// Waits until a pod of this node is Ready; its address.
    #[track_caller]
    pub fn wait_pod(&self, name: &str) -> String {
        match self.cluster.wait_pod(name, POD_READY) {
            Ok(address) => address,
            Err(error) => panic!("{error:#}\n{}\n{}", self.evidence_of_runtime(), self.evidence()),
        }
    }

    /// What the runtime knows of its pods, and what it and kubelet said last.
    fn evidence_of_runtime(&self) -> String {
        let script = "PATH=/opt/unbounded/node/current/bin:$PATH; e=unix:///run/containerd/containerd.sock
            echo '== sandboxes'; crictl -r $e pods; echo '== containers'; crictl -r $e ps -a; echo '== images'; crictl -r $e images
            echo '== frozen groups'; grep -rl FROZEN --include=freezer.state /sys/fs/cgroup 2>/dev/null
            echo '== disk'; df -h / | tail -1
            for u in kubelet containerd; do echo \"== $u\"; journalctl --no-pager -n 150 -o short-precise -u unbounded-$u; done";
        self.host.sh(script).map_or_else(|e| format!("{e:#}"), |o| o.stdout + &o.stderr)
    }
}

//! Pods for tests.

use crate::{Cluster, Node, SOON};
use flexnode_lab::{image, poll};
use serde_json::{Value, json};
use std::time::Duration;

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
            self.wait_pod(name);
        }
        names
    }

    /// Waits until a pod is Ready; its address.
    #[track_caller]
    pub fn wait_pod(&self, name: &str) -> String {
        self.wait_pod_within(name, Duration::from_secs(120))
    }

    /// As [`Cluster::wait_pod`], on a node that is slower than others.
    #[track_caller]
    pub fn wait_pod_within(&self, name: &str, limit: Duration) -> String {
        let what = format!("pod {name} to be Ready");
        poll(limit, SOON, &what, || {
            let pod = self.control_plane.get(&["pod", name])?;
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
            Ok(pod["status"]["podIP"].as_str().filter(|_| ready).map(str::to_owned))
        })
        .unwrap()
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

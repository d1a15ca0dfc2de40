//! The truth about a node that something is wrong with: verdict, reason and exit code, and within which time.
//!
//! One host serves all of it, one trouble after the other: each is mended before the next.
#![allow(clippy::unwrap_used, missing_docs)]

use flexnode_lab::{control_plane, poll};
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};
use system_tests::{Cluster, Node, SOON};

const FILE: &str = "/run/aks-flex-node/status.json";
const CONTAINERD: &str = "unbounded-containerd.service";
const KUBELET: &str = "unbounded-kubelet.service";
const SERVICE: &str = "aks-flex-node-agent.service";
/// What is watched is in the file within this.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Until everything that a trouble brought along is over.
const WELL: Duration = Duration::from_secs(90);

/// The file as the daemon wrote it last; null while there is none. What is there is always a whole document.
fn file(node: &Node<'_>) -> Value {
    std::fs::read(node.host.path(FILE)).map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap())
}

/// Waits until the file's snapshot fulfils `is`; how long that took.
#[track_caller]
fn wait(node: &Node<'_>, what: &str, limit: Duration, is: impl Fn(&Value) -> bool) -> Duration {
    let begin = Instant::now();
    let found = poll(limit, Duration::from_millis(5), what, || Ok(is(&file(node)["flexnode"]).then_some(())));
    let last = file(node)["flexnode"].clone();
    assert!(found.is_ok(), "{what} within {limit:?}: {last:#}\n{}", node.evidence());
    begin.elapsed()
}

fn has(reason: &str) -> impl Fn(&Value) -> bool + '_ {
    move |snapshot| snapshot["deviations"].as_array().is_some_and(|all| all.iter().any(|d| d["reason"] == reason))
}

fn is_well(snapshot: &Value) -> bool {
    snapshot["verdict"] == "healthy"
}

fn unit<'a>(snapshot: &'a Value, name: &str) -> &'a Value {
    snapshot["units"].as_array().and_then(|all| all.iter().find(|unit| unit["unit"] == name)).unwrap_or(&Value::Null)
}

/// `status` says the same as the file: this exit code, and these words in its first line.
#[track_caller]
fn says(node: &Node<'_>, code: i32, words: &str) -> String {
    let output = node.agent(&["status"]);
    let first = output.stdout.lines().next().unwrap_or_default();
    assert!(output.code == code && first.contains(words), "{code} {words:?}: {} {}", output.code, output.stdout);
    output.stdout
}

#[track_caller]
fn well_again(node: &Node<'_>) {
    wait(node, "the node to be well again", WELL, is_well);
}

fn sh(node: &Node<'_>, script: &str) {
    node.host.sh(script).unwrap().success().unwrap();
}

fn pid(node: &Node<'_>, unit: &str) -> u32 {
    let output = node.host.exec(&["systemctl", "show", "-P", "MainPID", unit]).unwrap();
    output.stdout.trim().parse().unwrap()
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn status_tells_the_truth_and_in_time() {
    let cluster = Cluster::new();
    let node = cluster.node("truth");
    assert_eq!(node.agent(&["healthz"]).code, 4, "not a node");
    node.start();
    wait(&node, "a healthy node in the file", Duration::from_secs(30), is_well);
    says(&node, 0, "truth is Ready: Kubernetes 1.36.3");
    healthy_in_every_form(&node);

    let mut times = Vec::new();
    let mut took = |what: &str, time: Duration| times.push(format!("{what}: {} ms", time.as_millis()));
    took("kill -9 kubelet", killed(&node));
    took("kill -9 of the daemon", daemon_killed(&node));
    took("containerd stopped", stopped(&node));
    took("kubelet frozen", frozen(&node));
    took("kubelet masked", masked(&node));
    took("program replaced", replaced(&node));
    took("certificate expired", expired(&node, &cluster));
    took("Node deleted", deleted(&node, &cluster));
    took("stopped by a person", by_a_person(&node));
    took("API server gone, disk full", api_server_gone_and_disk_full(&node, &cluster));
    eprintln!("from the trouble to the file:\n  {}", times.join("\n  "));
    told_to_the_cluster(&node, &cluster);
}

fn healthy_in_every_form(node: &Node<'_>) {
    assert_eq!(node.agent(&["healthz"]).stdout, "ok\n");
    let json: Value = serde_json::from_str(&node.agent(&["status", "--output", "json"]).stdout).unwrap();
    assert_eq!((&json["verdict"], &json["version"]), (&"healthy".into(), &1.into()));
    assert!(json["certificates"]["known"].as_array().unwrap().len() >= 2, "{json:#}");
    assert_eq!(json["cni"]["known"]["configuration"], "/etc/cni/net.d/10-lab.conflist");
    assert!(json["clock"]["known"]["seconds"].as_i64().unwrap().abs() <= 1, "{}", json["clock"]);
    assert!(unit(&json, KUBELET)["residentBytes"].as_u64().unwrap() > 1 << 20);
    assert!(unit(&json, KUBELET)["executable"].as_str().unwrap().ends_with("/bin/kubelet"));
    assert!(node.agent(&["status", "--output", "yaml"]).stdout.contains("verdict: healthy"));
    let metrics = node.agent(&["metrics"]).stdout;
    assert!(metrics.contains("flexnode_verdict{verdict=\"healthy\"} 1.0"), "{metrics}");
    // What a reader of the original's file knows.
    let status = file(node);
    assert_eq!((&status["kubeletReady"], &status["lastUpdatedReason"]), (&"Ready".into(), &"perodicStatusLoop".into()));
    // The unit's security, by systemd's own judgement.
    let security = node.host.exec(&["systemd-analyze", "security", "--no-pager", SERVICE]).unwrap().stdout;
    let last = security.lines().last().unwrap_or_default();
    let exposure: f64 = last.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    assert!(exposure < 8.5, "{last}");
    eprintln!("{last}");
}

/// systemd starts it again; the file says so in between.
fn killed(node: &Node<'_>) -> Duration {
    let before = pid(node, KUBELET);
    node.host.kill(before).unwrap();
    let time = wait(node, "another or no kubelet", AT_ONCE, |s| unit(s, KUBELET)["mainPid"] != before);
    well_again(node);
    assert!(file(node)["flexnode"]["mended"].as_array().unwrap().is_empty(), "systemd did it, not the agent");
    time
}

/// Its file is whole, and the next daemon goes on where it was.
fn daemon_killed(node: &Node<'_>) -> Duration {
    let since = file(node)["flexnode"]["since"].clone();
    let before = pid(node, SERVICE);
    node.host.kill(before).unwrap();
    assert!(is_well(&file(node)["flexnode"]));
    let begin = Instant::now();
    poll(Duration::from_secs(30), SOON, "another daemon", || {
        let written = file(node)["flexnode"].clone();
        let now = unit(&written, SERVICE)["mainPid"].as_u64();
        Ok((is_well(&written) && now.is_some_and(|now| now != u64::from(before))).then_some(()))
    })
    .unwrap();
    assert_eq!(file(node)["flexnode"]["since"], since, "since when it is well is not since the daemon began");
    begin.elapsed()
}

/// As a package's script would do it. It is started once; whoever stops it again means it.
fn stopped(node: &Node<'_>) -> Duration {
    sh(node, &format!("systemctl stop {CONTAINERD}"));
    let time = wait(node, "containerd stopped", AT_ONCE, has("UnitStopped"));
    wait(node, "the agent to start it", Duration::from_secs(20), |s| {
        s["mended"].as_array().unwrap().iter().any(|m| m["unit"] == CONTAINERD && m["reason"] == "UnitStopped")
    });
    well_again(node);
    sh(node, &format!("systemctl stop {CONTAINERD}"));
    wait(node, "that it is left alone", Duration::from_secs(10), |s| {
        s["notes"].as_array().unwrap().iter().any(|note| note.as_str().unwrap().contains("stopped again"))
    });
    assert!(!node.host.exec(&["systemctl", "is-active", CONTAINERD]).unwrap().stdout.starts_with("active"));
    sh(node, &format!("systemctl start {CONTAINERD}"));
    well_again(node);
    time
}

fn frozen(node: &Node<'_>) -> Duration {
    let pid = pid(node, KUBELET);
    sh(node, &format!("kill -STOP {pid}"));
    // healthz is asked every 10 s and has 5 s to answer.
    let time = wait(node, "that kubelet does not answer", Duration::from_secs(17), has("KubeletUnhealthy"));
    says(node, 3, "kubelet is not healthy");
    let healthz = node.agent(&["healthz"]);
    assert!(healthz.code == 3 && healthz.stdout.contains("kubelet"), "{}", healthz.stdout);
    // Told to the cluster after some seconds, in fixed words.
    let cluster = &node.cluster.control_plane;
    let condition = poll(Duration::from_secs(30), SOON, "the condition", || {
        let object = cluster.get(&["node", node.host.name()])?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(conditions.into_iter().find(|c| c["type"] == "FlexNodeAgentReady" && c["status"] == "False"))
    })
    .unwrap();
    assert_eq!(condition["reason"], "KubeletUnhealthy");
    assert_eq!(condition["message"], "kubelet does not say that it is healthy");
    sh(node, &format!("kill -CONT {pid}"));
    well_again(node);
    time
}

fn masked(node: &Node<'_>) -> Duration {
    // What masking is: the unit's file is a link to /dev/null (systemctl refuses while a file of its own is there).
    let file = format!("/etc/systemd/system/{KUBELET}");
    sh(
        node,
        &format!(
            "mv {file} /root/unit && ln -s /dev/null {file} && systemctl daemon-reload && systemctl stop {KUBELET}"
        ),
    );
    let time = wait(node, "that kubelet is masked", AT_ONCE * 2, has("UnitMasked"));
    let text = says(node, 3, "unbounded-kubelet.service is masked");
    assert!(text.contains("systemctl unmask"), "{text}");
    sh(node, &format!("mv -f /root/unit {file} && systemctl daemon-reload"));
    // It is only stopped now, and that is started once.
    well_again(node);
    time
}

/// A program of the slot is replaced by another file: what runs is none of the version any more.
fn replaced(node: &Node<'_>) -> Duration {
    let program = "/opt/unbounded/node/current/bin/kubelet";
    sh(node, &format!("ln {program} /root/kept && cp {program} /root/other && mv -f /root/other {program}"));
    let time = wait(node, "a program of nobody", AT_ONCE * 2, has("ForeignProgram"));
    says(node, 3, "which is no program of a version");
    assert_eq!(file(node)["kubeletVersion"], "unknown", "not the version that was recorded for another file");
    sh(node, &format!("mv -f /root/kept {program}"));
    well_again(node);
    time
}

/// A certificate of the cluster's authority that is over takes the place of kubelet's.
fn expired(node: &Node<'_>, cluster: &Cluster) -> Duration {
    let authority = cluster.control_plane.authority();
    let folder = authority.path("expired");
    std::fs::create_dir_all(&folder).unwrap();
    let name = node.host.name();
    let script = format!(
        "set -e; cd {}; openssl req -new -nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256 -keyout key.pem -out csr.pem \
         -subj '/O=system:nodes/CN=system:node:{name}'; touch index.txt; echo 01 >serial.txt; \
         printf '[ca]\\ndefault_ca=d\\n[d]\\ndatabase=index.txt\\nserial=serial.txt\\nnew_certs_dir=.\\ndefault_md=sha256\\n\
         policy=p\\nunique_subject=no\\n[p]\\norganizationName=optional\\ncommonName=supplied\\n' >ca.cnf; \
         openssl ca -batch -config ca.cnf -cert ../ca.crt -keyfile ../ca.key -in csr.pem -out crt.pem -notext \
         -startdate 20250101000000Z -enddate 20250102000000Z; cat crt.pem key.pem >both.pem",
        folder.display()
    );
    let made = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    node.host.copy_in(&folder.join("both.pem"), "/root/expired.pem", 0o600).unwrap();
    let current = "/var/lib/kubelet/pki/kubelet-client-current.pem";
    sh(
        node,
        &format!(
            "readlink {current} >/root/link && mv /root/expired.pem /var/lib/kubelet/pki/expired.pem && \
        ln -s expired.pem /root/new && mv -fT /root/new {current}"
        ),
    );
    let time = wait(node, "a certificate that is over", AT_ONCE * 2, has("CertificateExpired"));
    let text = says(node, 3, "kubelet's client certificate");
    assert!(text.contains("expired at 2025-01-02T00:00:00Z") && text.contains("bootstrap token"), "{text}");
    sh(node, &format!("ln -sfn \"$(cat /root/link)\" {current} && rm /var/lib/kubelet/pki/expired.pem"));
    well_again(node);
    time
}

fn deleted(node: &Node<'_>, cluster: &Cluster) -> Duration {
    cluster.control_plane.kubectl(&["delete", "node", node.host.name()]).unwrap().success().unwrap();
    let time = wait(node, "that there is no Node", Duration::from_secs(3), has("NodeMissing"));
    let text = says(node, 3, "the cluster has no Node of this name");
    assert!(text.contains("`aks-flex-node restart` registers the node again"), "{text}");
    // What it says is true.
    assert_eq!(node.agent(&["restart"]).code, 0);
    well_again(node);
    time
}

fn by_a_person(node: &Node<'_>) -> Duration {
    assert_eq!(node.agent(&["stop"]).code, 0);
    let time = wait(node, "that a person stopped it", AT_ONCE * 2, |s| s["reason"] == "StoppedByPerson");
    let text = says(node, 3, "stopped by a person");
    assert!(text.contains("aks-flex-node start-node"), "{text}");
    assert_eq!(file(node)["kubeletRunning"], false);
    assert_eq!(node.agent(&["start-node"]).code, 0);
    well_again(node);
    time
}

/// Two at once: neither hides the other. Space is looked at once in 50 s.
fn api_server_gone_and_disk_full(node: &Node<'_>, cluster: &Cluster) -> Duration {
    sh(node, "mount -t tmpfs -o size=1m,nr_inodes=64 tmpfs /var/log && head -c 1000000 /dev/zero >/var/log/full");
    cluster.control_plane.stop(control_plane::Program::ApiServer).unwrap();
    let time = wait(node, "that the API server is gone", Duration::from_secs(5), has("NodeUnknown"));
    let text = says(node, 3, "whether the Node is Ready is not known");
    assert!(text.contains("the file system of /var/log is nearly full"), "{text}");
    assert_eq!(file(node)["kubeletReady"], "Unknown", "never an old value that looks fresh");
    assert!(
        has("DiskPressure")(&file(node)["flexnode"])
            || wait(node, "a full disk", Duration::from_secs(60), has("DiskPressure")) > AT_ONCE
    );
    sh(node, "umount -l /var/log");
    cluster.control_plane.start(control_plane::Program::ApiServer).unwrap();
    well_again(node);
    time
}

/// Conditions and events, and only from kubelet's own rights.
fn told_to_the_cluster(node: &Node<'_>, cluster: &Cluster) {
    poll(Duration::from_secs(30), SOON, "the conditions to be True again", || {
        let object = cluster.control_plane.get(&["node", node.host.name()])?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_true = |kind: &str| conditions.iter().any(|c| c["type"] == kind && c["status"] == "True");
        Ok((is_true("FlexNodeAgentReady") && is_true("FlexNodeUpToDate")).then_some(()))
    })
    .unwrap();
    let events = cluster.control_plane.get(&["events", "-n", "default"]).unwrap();
    let events = events["items"].as_array().cloned().unwrap_or_default();
    let ours: Vec<&str> = events
        .iter()
        .filter(|e| e["source"]["component"] == "aks-flex-node")
        .filter_map(|e| e["reason"].as_str())
        .collect();
    assert!(ours.contains(&"KubeletUnhealthy") && ours.contains(&"NodeHealthy"), "{ours:?}");
}

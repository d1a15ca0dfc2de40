//! Versions that do not come up: each ends on the old one, Ready, with the reason kept, or is refused before the stop.
#![allow(clippy::unwrap_used, missing_docs)]

use flexnode_lab::host::Share;
use flexnode_lab::{Output, artifacts};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use system_tests::{Cluster, NEW, Node, OLD, bundle, changed_bundle, report};

const OLD_BUNDLE: &str = "/srv/old";
const NEW_BUNDLE: &str = "/srv/new";
const OTHER: &str = "/run/flexnode-other.json";
/// The suite has no time for half a minute of probation and two of waiting for a gate, in each case.
const SETTINGS: [&str; 2] = ["FLEXNODE_PROBATION=4", "FLEXNODE_GATE_LIMIT=8"];

/// A program that can be executed and does nothing but fail.
const FALSE: &str = "/bin/false";

/// A program that says this when it is asked for its version, and fails at everything else.
fn only_says(folder: &Path, name: &str, version: &str) -> String {
    let to = folder.join(name);
    flexnode_lab::stand_in::only_says(&to, version).unwrap();
    to.to_string_lossy().into_owned()
}

/// What a person puts beside the units, so that the start of the new version, and of no other, meets something.
fn drop_in(unit: &str, lines: &str) -> String {
    let dir = format!("/etc/systemd/system/{unit}.service.d");
    format!("mkdir -p {dir} && printf '[Service]\\n{lines}\\n' >{dir}/99-person.conf && systemctl daemon-reload")
}

fn only_new(command: &str) -> String {
    let new = NEW.kubernetes;
    format!("/bin/sh -c \"case $(readlink /opt/unbounded/node/current) in {new}*) {command};; esac\"")
}

/// containerd's release with a shim that fails.
fn bad_shim(folder: &Path, release: &Path) -> String {
    let to = folder.join(release.file_name().unwrap());
    let script = "set -e; d=$(mktemp -d); tar -C $d -xzf \"$1\"; cp /bin/false $d/bin/containerd-shim-runc-v2; tar -C $d -czf \"$2\" bin; rm -r $d";
    let status = std::process::Command::new("sh").args(["-c", script, "sh"]).arg(release).arg(&to).status().unwrap();
    assert!(status.success());
    to.to_string_lossy().into_owned()
}

/// One version that is not to come up.
struct Bad {
    name: &'static str,
    /// Arguments of `bundle` that make the new version's bundle a bad one; none: the good one is taken.
    bundle: Vec<String>,
    /// Made of the configuration of the new version.
    change: fn(&mut Value),
    /// Done in the host before and after.
    around: [String; 2],
    /// The reason has one of these words.
    words: &'static [&'static str],
    /// The file of this name is not in the bundle, though its manifest has it.
    removed: Option<&'static str>,
    /// It is found out before anything is stopped.
    refused: bool,
}

impl Bad {
    fn new(name: &'static str, words: &'static [&'static str]) -> Self {
        let around = ["true".to_owned(), "true".to_owned()];
        Self { name, bundle: Vec::new(), change: |_| {}, around, words, removed: None, refused: false }
    }
}

fn cases(folder: &Path) -> Vec<Bad> {
    let (old, new) = (artifacts(OLD.kubernetes, OLD.suite).unwrap(), artifacts(NEW.kubernetes, NEW.suite).unwrap());
    let kubelet = only_says(folder, "kubelet", &format!("Kubernetes v{}", NEW.kubernetes));
    let runc = only_says(folder, "runc", &format!("runc version {}", new.runc_version));
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<String>>();
    let remove =
        |unit: &str| format!("rm /etc/systemd/system/{unit}.service.d/99-person.conf; systemctl daemon-reload");
    vec![
        // C155: it ends at once, again and again.
        Bad {
            bundle: words(&["--kubelet", &kubelet, "--kubernetes-version", NEW.kubernetes]),
            ..Bad::new("crash-at-start", &["does not stay up", "did not start"])
        },
        Bad {
            bundle: words(&["--kubelet", FALSE, "--kubernetes-version", NEW.kubernetes]),
            refused: true,
            ..Bad::new("does-not-run", &["kubelet --version failed"])
        },
        Bad {
            bundle: words(&["--kubelet", &old.kubelet.to_string_lossy(), "--kubernetes-version", NEW.kubernetes]),
            refused: true,
            ..Bad::new("wrong-version", &["kubelet is of version"])
        },
        // C154: the old version comes back with its own configuration.
        Bad {
            change: |config| config["node"]["kubelet"]["config"]["topologyManagerPolicy"] = "nonsense".into(),
            ..Bad::new("bad-configuration", &["does not stay up", "did not start"])
        },
        Bad {
            bundle: words(&["--containerd", &bad_shim(folder, &new.containerd_tgz)]),
            ..Bad::new("shim-fails", &["container"])
        },
        Bad {
            bundle: words(&["--runc", &new.runc.to_string_lossy(), "--runc-version", &new.runc_version]),
            removed: Some("kubelet"),
            refused: true,
            ..Bad::new("missing-program", &["kubelet"])
        },
        Bad {
            change: |config| {
                config["node"]["containerd"]["config"] = json!({"disabled_plugins": ["io.containerd.grpc.v1.cri"]});
            },
            ..Bad::new("no-answer", &["not ready", "does not answer"])
        },
        Bad {
            around: [
                drop_in("unbounded-containerd", &format!("TimeoutStartSec=4\\nExecStartPre={}", only_new("sleep infinity"))),
                remove("unbounded-containerd"),
            ],
            ..Bad::new("start-hangs", &["did not start", "did not end"])
        },
        Bad {
            around: [
                drop_in("unbounded-containerd", &format!("ExecStartPost={}", only_new("kill -KILL $MAINPID"))),
                remove("unbounded-containerd"),
            ],
            // A goal of its own: that of the case before has failed and is not tried again.
            change: |config| config["node"]["kubelet"]["config"]["maxOpenFiles"] = 999_998.into(),
            ..Bad::new("killed-in-its-first-start", &["did not start", "does not stay up"])
        },
        Bad {
            bundle: words(&["--runc", &runc, "--runc-version", &new.runc_version]),
            ..Bad::new("runc-fails", &["container"])
        },
        Bad {
            change: |config| config["components"]["sandboxImage"] = "flexnode.invalid/lab/none:1".into(),
            ..Bad::new("no-sandbox-image", &["flexnode.invalid/lab/none:1"])
        },
        Bad {
            around: [
                "fallocate -l $(( $(df --output=avail -B1 /opt/unbounded | tail -1) - 40000000 )) /opt/unbounded/filler".into(),
                "rm /opt/unbounded/filler".into(),
            ],
            refused: true,
            // Of another goal than the others, whose slots are complete.
            change: |config| config["node"]["kubelet"]["config"]["maxOpenFiles"] = 999_999.into(),
            ..Bad::new("disk-full", &["are free", "No space left"])
        },
    ]
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn each_bad_version_ends_on_the_old_one_with_the_node_ready() {
    let cluster = Cluster::new();
    let folder = cluster.lab.folder().join("bad");
    std::fs::create_dir(&folder).unwrap();
    let cases = cases(&folder);
    let mut shares =
        vec![Share { from: bundle(OLD), to: OLD_BUNDLE.into() }, Share { from: bundle(NEW), to: NEW_BUNDLE.into() }];
    for case in cases.iter().filter(|case| !case.bundle.is_empty()) {
        let words: Vec<&str> = case.bundle.iter().map(String::as_str).collect();
        let from = changed_bundle(&folder, &format!("bundle-{}", case.name), &words);
        if let Some(name) = case.removed {
            let status =
                std::process::Command::new("find").arg(&from).args(["-name", name, "-type", "f", "-delete"]).status();
            assert!(status.unwrap().success());
        }
        shares.push(Share { from, to: PathBuf::from("/srv").join(case.name) });
    }
    let node = cluster.node_of("bad", shares, true);
    // The versions are on a file system of their own, so that it can be full without harm to anything else.
    node.host
        .sh("mkdir -p /opt/unbounded && mount -t tmpfs -o mode=755,size=4g versions /opt/unbounded")
        .unwrap()
        .success()
        .unwrap();
    node.configure(&node.config_of(OLD, OLD_BUNDLE));
    node.start();
    let slot = node.active_slot();
    let pods = cluster.run_pods(&node, 2);
    let mut failures = Vec::new();
    for case in &cases {
        let begin = std::time::Instant::now();
        let (before, output) = try_it(&node, case);
        let problems = judge(&node, case, &slot, &before, &output);
        report(&format!(
            "bad version {}: exit code {}, {:.1} s",
            case.name,
            output.code,
            begin.elapsed().as_secs_f32()
        ));
        if !problems.is_empty() {
            failures.push(format!("{}: {}\n{}{}", case.name, problems.join("; "), output.stdout, output.stderr));
        }
    }
    assert!(failures.is_empty(), "{}\n{}", failures.join("\n\n"), node.evidence());
    a_disk_that_fills_up_while_it_is_written(&node, &slot);
    for pod in &pods {
        node.wait_pod(pod);
    }
}

/// There is space for the bytes, and after some files none for more of them: it fails in the middle, as a quota would have it.
/// With space the same succeeds.
fn a_disk_that_fills_up_while_it_is_written(node: &Node<'_>, slot: &str) {
    let mut config = node.config_of(NEW, NEW_BUNDLE);
    config["node"]["kubelet"]["config"]["maxOpenFiles"] = 999_997.into();
    node.host.put(OTHER, serde_json::to_vec(&config).unwrap(), 0o600).unwrap();
    let slots = || node.host.sh("ls -A /opt/unbounded/node").unwrap().stdout;
    let files = |most: &str| {
        let remount = format!("mount -o remount,nr_inodes={most} /opt/unbounded");
        node.host.sh(&remount).unwrap().success().unwrap();
    };
    let (before, pids) = (slots(), node.main_pids());
    let upgrade = || node.agent_with(&SETTINGS, &["upgrade", "--to-config", OTHER]);
    files("$(( $(df --output=iused /opt/unbounded | tail -1) + 12 ))");
    let failed = upgrade();
    assert_eq!(failed.code, 1, "{}{}", failed.stdout, failed.stderr);
    let names = ["the file system of /opt/unbounded/node/", "is full", "MiB are needed in all", "free space"];
    assert!(names.iter().all(|words| failed.stderr.contains(words)), "{}", failed.stderr);
    assert_eq!((slots(), node.active_slot().as_str()), (before, slot), "half a version stays");
    assert_eq!(node.main_pids()[..2], pids[..2], "nothing was stopped");
    files("1000000");
    let output = upgrade();
    assert_eq!(output.code, 0, "{}{}\n{}", output.stdout, output.stderr, node.evidence());
    assert_eq!(node.active(), NEW.kubernetes);
    node.wait_ready();
}

fn try_it(node: &Node<'_>, case: &Bad) -> (Vec<String>, Output) {
    let source = if case.bundle.is_empty() { NEW_BUNDLE.to_owned() } else { format!("/srv/{}", case.name) };
    let mut config = node.config_of(NEW, &source);
    let lab = config["node"]["containerd"]["config"].clone();
    (case.change)(&mut config);
    // What containerd needs on machines of labs stays.
    for (key, value) in lab.as_object().unwrap() {
        config["node"]["containerd"]["config"][key] = value.clone();
    }
    node.host.put(OTHER, serde_json::to_vec(&config).unwrap(), 0o600).unwrap();
    let before = node.main_pids();
    node.host.sh(&case.around[0]).unwrap().success().unwrap();
    let output = node.agent_with(&SETTINGS, &["upgrade", "--to-config", OTHER]);
    node.host.sh(&case.around[1]).unwrap().success().unwrap();
    (before, output)
}

fn judge(node: &Node<'_>, case: &Bad, slot: &str, before: &[String], output: &Output) -> Vec<String> {
    let mut problems = Vec::new();
    let said = format!("{}{}", output.stdout, output.stderr);
    let stopped = before[..2] != node.main_pids()[..2];
    match output.code {
        7 if case.refused => problems.push("it went so far as to stop the node".to_owned()),
        7 => {
            // C152
            let newest =
                "cd /var/lib/aks-flex-node/artifacts/evidence && stat -c %a $(ls -t | head -1) && ls -t | head -1";
            let evidence = node.host.sh(newest).unwrap().stdout;
            if !evidence.starts_with(&format!("600\n{}-", NEW.kubernetes)) {
                problems.push(format!("its evidence is {evidence:?}"));
            }
            let again = node.agent_with(&SETTINGS, &["upgrade", "--to-config", OTHER]);
            if again.code != 2 || !again.stderr.contains("--retry") {
                problems.push(format!("tried again it ended with {}: {}", again.code, again.stderr));
            }
        }
        1 | 2 if !stopped => {}
        other => problems.push(format!("exit code {other}, stopped: {stopped}")),
    }
    if !case.words.iter().any(|word| said.contains(word)) {
        problems.push(format!("the reason is not one of {:?}", case.words));
    }
    if node.active_slot() != slot {
        problems.push(format!("{} is active", node.active_slot()));
    }
    if let Err(error) = node.cluster.control_plane.wait_ready(node.host.name(), system_tests::READY) {
        problems.push(format!("{error:#}"));
    }
    let reported = node.object().unwrap()["status"]["nodeInfo"]["kubeletVersion"].clone();
    if reported != format!("v{}", OLD.kubernetes) {
        problems.push(format!("kubelet reports {reported}"));
    }
    problems
}

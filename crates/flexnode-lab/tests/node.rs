//! The lab can carry a node: real containerd and kubelet in a host, joined by hand.

use flexnode_lab::by_hand;
use flexnode_lab::packages::Suite;
use flexnode_lab::{ControlPlane, Host, Lab, artifacts, control_plane, host, image, kubernetes};
use std::time::{Duration, Instant};

#[test]
#[ignore = "needs root and the lab's programs"]
fn both_versions_join_and_run_a_pod_that_answers() {
    let lab = Lab::new().unwrap();
    let control_plane = ControlPlane::new(&lab, &control_plane::Options::default()).unwrap();
    for (name, version, suite) in [("new", kubernetes::NEW, Suite::Forky), ("old", kubernetes::OLD, Suite::Trixie)] {
        let artifacts = artifacts(version, suite).unwrap();
        let options = host::Options { shares: vec![by_hand::share().unwrap()] };
        let host = Host::with(&lab, name, options).unwrap();
        let started = Instant::now();
        by_hand::join(&host, &control_plane, &artifacts).unwrap();
        eprintln!("{name}: Ready after {:.1} s", started.elapsed().as_secs_f32());
        let node = control_plane.get(&["node", name]).unwrap();
        let info = &node["status"]["nodeInfo"];
        assert_eq!(info["kubeletVersion"], format!("v{version}"));
        let runtime = info["containerRuntimeVersion"].as_str().unwrap();
        assert!(runtime.contains(&artifacts.containerd_version), "{runtime}");
        let address = by_hand::run_web_pod(&control_plane, &format!("web-{name}"), name).unwrap();
        assert_eq!(by_hand::ask_web_pod(&lab, &address).unwrap(), image::WEB_ANSWER);
        let started = Instant::now();
        control_plane.kubectl(&["delete", "pod", &format!("web-{name}")]).unwrap().success().unwrap();
        assert!(started.elapsed() < Duration::from_secs(5), "the pod ends when asked");
    }
}

use super::*;
use flexnode_host::testing::MemFs;

const GOAL: &str = r#"{
    "version": 1, "isolation": "none", "nodeName": "node-1", "nodeIps": [], "apiServer": "https://api:6443", "caPem": "",
    "dnsServiceIps": [], "kubernetesVersion": "KUBE", "containerdVersion": "2.1.9", "runcVersion": null,
    "cniVersion": null,
    "kubelet": { "maxPods": 110, "systemReserved": {}, "kubeReserved": {}, "imageGcHighThreshold": 85,
        "imageGcLowThreshold": 80, "verbosity": 2, "config": {} },
    "containerd": { "sandboxImage": "pause", "config": {} }, "cgroups": "v2", "artifacts": {}
}"#;

/// A slot with a goal, complete or not.
pub(crate) fn put_slot(fs: &MemFs, name: &str, kubernetes: &str, complete: bool) {
    let dir = Path::new(BASE).join(name);
    fs.put_dir(dir.join("etc"), 0o755).put_dir(dir.join("bin"), 0o755);
    fs.put(dir.join("etc/goal.json"), GOAL.replace("KUBE", kubernetes), 0o600);
    for program in ["kubelet", "containerd", "runc"] {
        fs.put(dir.join("bin").join(program), format!("{program} of {name}"), 0o755);
    }
    if complete {
        fs.put(dir.join("etc/manifest.json"), "{}", 0o644);
    }
}

fn view(fs: &Arc<MemFs>) -> Result<SlotsView, String> {
    FsSlots::new(fs.clone(), BASE).view()
}

#[test]
fn a_host_without_slots_has_none() {
    let fs = Arc::new(MemFs::new());
    assert_eq!(view(&fs).unwrap(), SlotsView::default());
}

#[test]
fn the_active_slot_tells_what_it_recorded() {
    let fs = Arc::new(MemFs::new());
    put_slot(&fs, "1.36.3-aa", "1.36.3", true);
    put_slot(&fs, "1.35.4-bb", "v1.35.4", true);
    fs.put_link("1.36.3-aa", Path::new(BASE).join("current"));
    fs.put_dir(Path::new(BASE).join(".flexnode-tmp-1"), 0o755);
    let slots = view(&fs).unwrap();
    let current = slots.current.clone().unwrap();
    assert_eq!((current.name.as_str(), current.kubelet_version.as_deref()), ("1.36.3-aa", Some("1.36.3")));
    assert_eq!((current.containerd_version.as_deref(), current.runc_version), (Some("2.1.9"), None));
    assert_eq!(current.problem, None);
    assert_eq!(slots.others.len(), 1);
    assert_eq!(slots.others[0].kubelet_version.as_deref(), Some("1.35.4"));
    let owner = |path: &str| slots.owner(Path::new(BASE), Path::new(path)).map(|slot| slot.name.as_str());
    assert_eq!(owner("/opt/unbounded/node/1.35.4-bb/bin/kubelet"), Some("1.35.4-bb"));
    assert_eq!(owner("/opt/unbounded/node/gone/bin/kubelet"), None);
    assert_eq!(owner("/usr/bin/kubelet"), None);
}

#[test]
fn what_is_wrong_with_the_active_slot_is_kept() {
    let fs = Arc::new(MemFs::new());
    let link = Path::new(BASE).join("current");
    let problem = || view(&fs).unwrap().current.unwrap().problem.unwrap();
    fs.put_dir(BASE, 0o755).put_link("1.36.3-aa", &link);
    assert!(problem().contains("1.36.3-aa is not there"));
    put_slot(&fs, "1.36.3-aa", "1.36.3", false);
    assert!(problem().contains("never finished"));
    fs.put(Path::new(BASE).join("1.36.3-aa/etc/goal.json"), "{", 0o600);
    assert!(problem().contains("goal.json cannot be read"));
}

#[test]
fn a_link_that_is_not_ours_is_an_error() {
    let fs = Arc::new(MemFs::new());
    let link = Path::new(BASE).join("current");
    fs.put_dir(BASE, 0o755).put_link("/usr/bin", &link);
    assert!(view(&fs).unwrap_err().contains("points to /usr/bin"));
    fs.take(&link).put_dir(&link, 0o755);
    assert!(view(&fs).unwrap_err().contains("no link"));
}

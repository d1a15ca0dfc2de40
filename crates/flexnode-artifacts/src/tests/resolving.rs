use super::*;
use crate::Role;

fn problems(fs: &MemFs, wanted: &Wanted) -> String {
    told(&open(fs).unwrap().resolve(wanted).unwrap_err())
}

#[test]
fn a_complete_bundle_gives_all_artifacts_with_digests() {
    let fs = bundle();
    let resolved = resolve(&fs);
    let roles: Vec<_> = resolved.artifacts.iter().map(|a| (a.role, a.path.as_str(), a.verified)).collect();
    assert_eq!(
        roles[..4],
        [
            (Role::Kubelet, KUBELET, true),
            (Role::Containerd, CONTAINERD, true),
            (Role::Runc, RUNC, true),
            (Role::Cni, CNI, true),
        ]
    );
    assert!(roles[4].1.starts_with(IMAGE) && roles.len() == 5, "{roles:?}");
    assert_eq!((resolved.kubernetes.as_str(), resolved.containerd.as_str()), ("1.36.3", "2.1.9"));
    assert_eq!(resolved.digests()[RUNC], Digest::of(&program("runc")).to_string());
    assert_eq!(resolved.images().next().unwrap().image.as_deref(), Some("a.b/pause:1"));
    let notes = resolved.notes.join("\n");
    assert!(
        notes.contains("bin/linux/amd64/kubectl is missing; it is not needed") && notes.contains("no crictl"),
        "{notes}"
    );
}

#[test]
fn every_problem_is_named_at_once() {
    let fs = bundle();
    fs.take(at(RUNC)).take(at(&format!("{KUBELET}.sha256")));
    edit(&fs, |manifest| {
        manifest["digests"].as_object_mut().unwrap().remove(CNI);
        manifest["containerImages"] = json!(["a.b/pause:1", "a.b/other:2", "not an image"]);
    });
    let wanted = Wanted { containerd: Some("v2.2.0".into()), ..wanted() };
    let text = problems(&fs, &wanted);
    for part in [
        "containerd v2.2.0 is wanted, the source has 2.1.9",
        "runc/v1.3.6/runc.amd64 is missing",
        "kubelet has no digest",
        "v1.9.1.tgz has no digest: `digests` of manifest.json has to promise one, or bootstrap.allowUnverified",
        "a.b_other_2-",
        "\"not an image\"",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn another_kubernetes_version_or_architecture_is_refused() {
    let fs = bundle();
    let text = problems(&fs, &Wanted { kubernetes: "1.36.2".into(), ..wanted() });
    assert!(text.contains("kubernetes 1.36.2 is wanted, the source has 1.36.3"), "{text}");
    let text = problems(&fs, &Wanted { arch: "arm64".into(), ..wanted() });
    assert!(text.contains("bin/linux/arm64/kubelet is missing"), "{text}");
    let text = problems(&fs, &Wanted { arch: "s390x".into(), ..wanted() });
    assert!(text.contains("architecture s390x"), "{text}");
}

#[test]
fn versions_in_the_manifest_never_lead_out_of_the_bundle() {
    for bad in ["../../../etc", "1.3.6/../../..", "", "latest"] {
        let fs = bundle();
        edit(&fs, |manifest| manifest["versions"]["runc"] = bad.into());
        let text = problems(&fs, &wanted());
        assert!(text.contains("which is no version"), "{text}");
    }
    let fs = bundle();
    edit(&fs, |manifest| {
        manifest["versions"].as_object_mut().unwrap().remove("cni");
    });
    assert!(problems(&fs, &wanted()).contains("has no cni"));
}

#[test]
fn a_person_can_allow_an_artifact_without_a_digest_by_name() {
    for name in [RUNC, "runc"] {
        let fs = bundle();
        edit(&fs, |manifest| {
            manifest["digests"].as_object_mut().unwrap().remove(RUNC);
        });
        let wanted = Wanted { allow_unverified: vec![name.into(), "nothing".into()], ..wanted() };
        let resolved = open(&fs).unwrap().resolve(&wanted).unwrap();
        let runc = resolved.artifacts.iter().find(|a| a.role == Role::Runc).unwrap();
        assert!(!runc.verified);
        assert_eq!(runc.digest, Digest::of(&program("runc")), "what is there is what will be installed");
        let notes = resolved.notes.join("\n");
        assert!(notes.contains("without a promised digest") && notes.contains("names nothing"), "{notes}");
    }
}

#[test]
fn digests_that_contradict_or_are_none_are_refused() {
    let fs = bundle();
    edit(&fs, |manifest| manifest["digests"][KUBELET] = Digest::of(b"other").to_string().into());
    assert!(problems(&fs, &wanted()).contains("promise different digests"));
    let fs = bundle();
    edit(&fs, |manifest| manifest["digests"][RUNC] = "abc".into());
    assert!(told(&open(&fs).unwrap_err()).contains(RUNC));
    let fs = bundle();
    fs.put(at(&format!("{KUBELET}.sha256")), "abc", 0o644);
    assert!(problems(&fs, &wanted()).contains("64 hexadecimal digits"));
    let fs = bundle();
    fs.put(at(&format!("{KUBELET}.sha256")), "x".repeat(2000), 0o644);
    assert!(problems(&fs, &wanted()).contains("larger than 1024 bytes"));
}

#[test]
fn a_missing_or_unreadable_manifest_is_told() {
    let fs = bundle();
    fs.take(at("manifest.json"));
    assert!(told(&open(&fs).unwrap_err()).contains("aks-flex-node bundle"));
    for bad in ["", "{", r#"{"schemaVersion": 2}"#] {
        fs.put(at("manifest.json"), bad, 0o644);
        assert!(matches!(open(&fs), Err(crate::ArtifactError::Manifest { .. })), "{bad}");
    }
    // The oldest bundles have no number, which means 1.
    edit_text(&fs, |text| text.replace("\"schemaVersion\":1,", ""));
    open(&fs).unwrap();
}

fn edit_text(fs: &MemFs, change: impl FnOnce(String) -> String) {
    let text = bundle().text(at("manifest.json"));
    fs.put(at("manifest.json"), change(text), 0o644);
}

#[test]
fn an_image_is_verified_each_time_it_is_used() {
    let fs = bundle();
    let (bundle, resolved) = (open(&fs).unwrap(), resolve(&fs));
    let image = resolved.images().next().unwrap();
    let verified = bundle.verified_image(image).unwrap();
    // Its bytes are no archive: it can only be told by its name.
    assert_eq!((verified.archive, verified.identifiers.len()), (image.source.clone(), 0));
    fs.put(&image.source, "imagf", 0o644);
    let text = told(&bundle.verified_image(image).unwrap_err());
    assert!(text.contains("is promised"), "{text}");
}

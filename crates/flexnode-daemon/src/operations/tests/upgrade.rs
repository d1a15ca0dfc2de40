//! Upgrades, forth and back by themselves.

use super::*;
use flexnode_host::testing::{Fault, Op};

#[tokio::test]
async fn an_upgrade_ends_the_pods_and_records_what_runs() {
    let world = world().await;
    let report = world.upgrade().await;
    assert!(report.is_done(), "{report:?}");
    world.assert_runs(&world.new).await;
    assert_eq!(world.extension().previous_slot, Some(world.old.clone()));
    assert_eq!(state_files::load(world.fake.fs.as_ref()).unwrap(), None, "what was kept goes when it is confirmed");
    let tried = world.fake.commands.lines();
    assert!(tried.iter().any(|line| line.contains("--namespace aks-flex-node-ready run --rm")), "{tried:?}");
    // The API server is away: local signals decide, after a minute.
    assert!(world.fake.clock.slept() >= ready::SILENCE);
}

#[tokio::test]
async fn what_nobody_goes_back_to_any_more_goes_when_the_new_version_is_confirmed() {
    let world = world().await;
    let slot = |name: &str| format!("/opt/unbounded/node/{name}");
    let further = ["1.35.1", "1.35.2"];
    let mut names = Vec::new();
    for version in further {
        names.push(install(&world.fake, &world.context, version).await);
    }
    world.fake.fs.put_dir(slot("1.34.0-00000000/bin"), 0o755);
    assert!(world.upgrade().await.is_done());
    world.assert_runs(&world.new).await;
    // The active, the previous, and the newest besides.
    let left = world.context.layout().versions(world.fake.fs.as_ref()).unwrap();
    assert_eq!(left, [names[1].clone(), world.old.clone(), world.new.clone()]);

    // It is the last and the least: when it fails the new version runs all the same.
    let world = self::world().await;
    world.fake.fs.put_dir(slot("1.34.0-00000000/bin"), 0o755);
    let stuck = Fault::full_disk().on(Op::Rename).below(slot(".flexnode-tmp-removed-1.34.0-00000000"));
    world.fake.fs.fault(stuck);
    assert!(world.upgrade().await.is_done());
    world.assert_runs(&world.new).await;
    assert!(world.fake.fs.exists(slot("1.34.0-00000000")));
}

#[tokio::test]
async fn a_node_that_the_api_server_calls_ready_is_watched_for_the_probation_and_no_longer() {
    let world = world().await;
    *world.api.ready.lock().unwrap() = Some("1.36.3".into());
    assert!(world.upgrade().await.is_done());
    let slept = world.fake.clock.slept();
    assert!(slept >= PROBATION && slept < ready::SILENCE, "{slept:?}");
    // Another kubelet than was meant is seen there too.
    let world = self::world().await;
    *world.api.ready.lock().unwrap() = Some("1.36.2".into());
    assert_eq!(rolled_back(world.upgrade().await), "wait-ready");
    assert!(world.failure().unwrap().contains("kubelet reports version v1.36.2, not 1.36.3"), "{:?}", world.failure());
}

#[tokio::test]
async fn whatever_fails_in_the_new_version_the_old_one_runs_again_with_its_state_files() {
    type Break = fn(&World);
    let breaks: [(&str, Break); 9] = [
        ("start-kubelet", |w| _ = w.fake.systemd.script(Verb::Start, UNIT_KUBELET, Script::exit(1))),
        ("start-containerd", |w| _ = w.fake.systemd.script(Verb::Start, UNIT_CONTAINERD, Script::exit(1))),
        ("wait-ready", |w| {
            _ = w.fake.commands.exit_once(
                "ctr",
                &["--address", places::CONTAINERD_SOCKET, "--namespace", "aks-flex-node-ready", "run"],
                1,
                "",
                "runc failed",
            );
        }),
        ("wait-ready", |w| {
            _ = w.fake.commands.answer(
                &format!("/opt/unbounded/node/{}/bin/kubelet", w.new),
                &["--version"],
                "Kubernetes v1.35.0",
            );
        }),
        ("wait-ready", |w| {
            // It answers when it was started, and is not well later; the old one is.
            let (probe, fs) = (w.probe.clone(), w.fake.fs.clone());
            let new = w.new.clone();
            w.fake.commands.answer_with("ctr", &[], move |_| {
                let turned = fs.read_link(Path::new("/opt/unbounded/node/current")).unwrap() == Path::new(&new);
                let answer = if turned { (500, "sick") } else { (200, "ok") };
                probe.set(KUBELET_HEALTHZ, FakeAnswer::Answer(HttpAnswer { status: answer.0, body: answer.1.into() }));
                Ok(flexnode_host::Output { code: Some(0), ..flexnode_host::Output::default() })
            });
            let probe = w.probe.clone();
            w.fake.systemd.hook(Verb::Start, UNIT_KUBELET, move || {
                probe.set(KUBELET_HEALTHZ, FakeAnswer::Answer(HttpAnswer { status: 200, body: "ok".into() }));
            });
        }),
        ("wait-ready", |w| {
            // No pod starts without it, and nobody has it.
            w.cri.clear_images();
        }),
        ("start-containerd", |w| {
            // It hangs in its start.
            _ = w.fake.systemd.script(Verb::Start, UNIT_CONTAINERD, Script::Hang);
        }),
        ("start-kubelet", |w| {
            // C155: it ends at once, and systemd starts it again and again.
            _ = w.fake.systemd.script(Verb::Start, UNIT_KUBELET, Script::DieAfterStart(1));
        }),
        ("start-containerd", |w| {
            // The new one runs and its CRI does not answer; the old one's does.
            let (cri, fs, new) = (w.cri.clone(), w.fake.fs.clone(), w.new.clone());
            w.fake.systemd.hook(Verb::Start, UNIT_CONTAINERD, move || {
                let turned = fs.read_link(Path::new("/opt/unbounded/node/current")).unwrap() == Path::new(&new);
                cri.set_running(!turned);
            });
        }),
    ];
    for (n, (step, broken)) in breaks.into_iter().enumerate() {
        let world = world().await;
        let fs = world.fake.fs.clone();
        world.fake.systemd.hook(Verb::Start, UNIT_CONTAINERD, move || _ = fs.put(KUBELET_STATE, "new", 0o600));
        broken(&world);
        let report = world.upgrade().await;
        assert_eq!(rolled_back(report), step, "break {n}");
        world.assert_runs(&world.old).await;
        let evidence = world.text(evidence::path(&world.new).to_str().unwrap());
        assert!(evidence.contains(UNIT_KUBELET) && evidence.contains("healthz"), "{evidence}");
        assert!(evidence.contains(&format!("failed at step {step}:")), "{evidence}");
        let reason = world.failure().unwrap();
        assert!(reason.starts_with(&format!("step {step} failed: ")), "{reason}");
        assert_eq!(world.fake.fs.lstat(&evidence::path(&world.new)).unwrap().unwrap().mode, 0o600);
    }
}

#[tokio::test]
async fn kubelets_files_are_those_of_the_old_version_when_it_starts_again() {
    let world = world().await;
    let (fs, seen) = (world.fake.fs.clone(), Arc::new(Mutex::new(Vec::new())));
    let diary = seen.clone();
    world.fake.systemd.hook(Verb::Start, UNIT_KUBELET, move || {
        diary.lock().unwrap().push(fs.text(KUBELET_STATE));
        fs.put(KUBELET_STATE, "new", 0o600);
    });
    world.fake.commands.exit(
        "ctr",
        &["--address", places::CONTAINERD_SOCKET, "--namespace", "aks-flex-node-ready", "run"],
        1,
        "",
        "no",
    );
    let report = world.upgrade().await;
    // The container cannot be made by the old version either: it runs, and that is said.
    assert!(
        matches!(&report.outcome, RunOutcome::RolledBack { rollback_errors, .. } if rollback_errors.len() == 1),
        "{report:?}"
    );
    world.assert_runs(&world.old).await;
    assert_eq!(*seen.lock().unwrap(), ["old", "old"]);
}

#[tokio::test]
async fn an_old_containerd_that_does_not_come_up_gets_its_databases_back() {
    const DATABASE: &str = "/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db";
    let world = world().await;
    world.fake.fs.put(DATABASE, "1.7", 0o644);
    let fs = world.fake.fs.clone();
    world.fake.systemd.hook(Verb::Start, UNIT_CONTAINERD, move || {
        if fs.text(DATABASE) == "1.7"
            && fs.read_link(Path::new("/opt/unbounded/node/current")).unwrap().to_str().unwrap().contains("1.36.3")
        {
            fs.put(DATABASE, "2.1", 0o644);
        }
    });
    world.fake.systemd.script(Verb::Start, UNIT_KUBELET, Script::exit(1));
    let systemd = world.fake.systemd.clone();
    // The first stop of the failed stack comes right before the old containerd's first try.
    let once = Mutex::new(Some(()));
    world.fake.systemd.hook(Verb::Stop, UNIT_CONTAINERD, {
        let fs = world.fake.fs.clone();
        move || {
            if fs.text(DATABASE) == "2.1" && once.lock().unwrap().take().is_some() {
                systemd.script(Verb::Start, UNIT_CONTAINERD, Script::exit(1));
            }
        }
    });
    assert_eq!(rolled_back(world.upgrade().await), "start-kubelet");
    world.assert_runs(&world.old).await;
    assert_eq!(world.text(DATABASE), "1.7");
}

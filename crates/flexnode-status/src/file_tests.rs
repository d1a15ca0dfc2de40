use super::*;
use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;

struct Place {
    _temp: tempfile::TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("run").join("status.json");
    Place { _temp: temp, path }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn snapshot() -> NodeStatus {
    NodeStatus {
        kubelet_version: "1.36.3".into(),
        runc_version: "1.3.6".into(),
        containerd_version: "2.1.9".into(),
        kubelet_running: true,
        kubelet_ready: "Ready".into(),
        containerd_running: true,
        last_updated: Some(at("2026-11-30T12:00:00Z")),
        last_updated_by: LastUpdatedBy::StatusCollectionLoop,
        last_updated_reason: LastUpdatedReason::PeriodicStatusLoop,
        agent_version: "0.1.0".into(),
        ..NodeStatus::default()
    }
}

#[test]
fn what_is_written_is_loaded() {
    let place = place();
    write_status_to_file(&place.path, &snapshot()).unwrap();
    assert_eq!(load_status_from_file(&place.path).unwrap(), snapshot());
    let text = std::fs::read_to_string(&place.path).unwrap();
    assert!(text.starts_with("{\n  \"kubeletVersion\": \"1.36.3\",\n") && text.ends_with("\n}"), "{text}");
    assert_eq!(std::fs::metadata(&place.path).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn only_the_file_and_its_lock_are_left_behind() {
    let place = place();
    write_status_to_file(&place.path, &snapshot()).unwrap();
    write_status_to_file(&place.path, &NodeStatus::default()).unwrap();
    let dir = std::fs::read_dir(place.path.parent().unwrap()).unwrap();
    let names: BTreeSet<_> = dir.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names, BTreeSet::from([".status.json.lock".to_owned(), "status.json".to_owned()]));
}

#[test]
fn an_empty_path_is_an_error_and_a_mark_there_does_nothing() {
    let empty = Path::new("");
    assert!(matches!(write_status_to_file(empty, &snapshot()), Err(StatusFileError::EmptyPath)));
    assert!(matches!(load_status_from_file(empty), Err(StatusFileError::EmptyPath)));
    mark_kubelet_unhealthy_best_effort_at_path(empty, None);
    remove_status_file_best_effort_at_path(empty);
    assert!(write_status_to_file(Path::new("relative/status.json"), &snapshot()).is_err());
}

#[test]
fn absent_and_damaged_files_are_told_apart() {
    let place = place();
    assert!(matches!(load_status_from_file(&place.path), Err(StatusFileError::Absent { .. })));
    write_status_to_file(&place.path, &snapshot()).unwrap();
    for damage in ["", "{", "[]", "{\"kubeletRunning\": \"yes\"}"] {
        std::fs::write(&place.path, damage).unwrap();
        assert!(matches!(load_status_from_file(&place.path), Err(StatusFileError::Decode { .. })), "{damage:?}");
    }
    // A writer mends it.
    write_status_to_file(&place.path, &snapshot()).unwrap();
    assert_eq!(load_status_from_file(&place.path).unwrap(), snapshot());
}

#[test]
fn a_file_that_others_may_write_is_not_trusted() {
    let place = place();
    write_status_to_file(&place.path, &snapshot()).unwrap();
    std::fs::set_permissions(&place.path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let error = load_status_from_file(&place.path).unwrap_err().to_string();
    assert!(error.contains("chmod go-w"), "{error}");
    std::fs::set_permissions(&place.path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(load_status_from_file(&place.path).is_ok());
}

#[test]
fn a_link_in_its_place_is_neither_followed_nor_replaced() {
    let place = place();
    write_status_to_file(&place.path, &snapshot()).unwrap();
    let target = place.path.with_file_name("target");
    std::fs::rename(&place.path, &target).unwrap();
    std::os::unix::fs::symlink(&target, &place.path).unwrap();
    assert!(matches!(load_status_from_file(&place.path), Err(StatusFileError::Untrusted { .. })));
    assert!(write_status_to_file(&place.path, &NodeStatus::default()).is_err());
    assert_eq!(load_status_from_file(&target).unwrap(), snapshot());
}

#[test]
fn a_lock_that_is_a_link_is_refused() {
    let place = place();
    let dir = place.path.parent().unwrap();
    crate::place::ensure_dir(dir).unwrap();
    let elsewhere = dir.join("elsewhere");
    std::os::unix::fs::symlink(&elsewhere, dir.join(".status.json.lock")).unwrap();
    assert!(write_status_to_file(&place.path, &snapshot()).is_err());
    assert!(!elsewhere.exists());
}

#[test]
fn a_mark_keeps_everything_else() {
    let place = place();
    write_status_to_file(&place.path, &snapshot()).unwrap();
    mark_kubelet_unhealthy_best_effort_at_path(&place.path, Some(at("2026-11-30T12:01:00Z")));
    let want = NodeStatus {
        kubelet_running: false,
        kubelet_ready: "Unknown".into(),
        kubelet_version: "unknown".into(),
        last_updated: Some(at("2026-11-30T12:01:00Z")),
        last_updated_by: LastUpdatedBy::DriftDetectionAndRemediation,
        last_updated_reason: LastUpdatedReason::KubernetesVersionDrift,
        ..snapshot()
    };
    assert_eq!(load_status_from_file(&place.path).unwrap(), want);
}

#[test]
fn a_mark_without_a_snapshot_makes_a_minimal_one_of_now() {
    let place = place();
    let before = Timestamp::now();
    mark_kubelet_unhealthy_best_effort_at_path(&place.path, None);
    let status = load_status_from_file(&place.path).unwrap();
    assert!(!status.kubelet_running && status.kubelet_version == "unknown" && status.containerd_version.is_empty());
    let updated = status.last_updated.unwrap();
    assert!(before <= updated && updated <= Timestamp::now());
    let damaged = place.path.clone();
    std::fs::write(&damaged, "{").unwrap();
    mark_kubelet_unhealthy_best_effort_at_path(&damaged, None);
    assert_eq!(load_status_from_file(&damaged).unwrap().kubelet_ready, "Unknown");
}

#[test]
fn removing_is_for_the_file_alone_and_can_be_done_twice() {
    let place = place();
    remove_status_file_best_effort_at_path(&place.path);
    assert!(!place.path.parent().unwrap().exists(), "nothing is made by removing");
    write_status_to_file(&place.path, &snapshot()).unwrap();
    remove_status_file_best_effort_at_path(&place.path);
    remove_status_file_best_effort_at_path(&place.path);
    assert!(matches!(load_status_from_file(&place.path), Err(StatusFileError::Absent { .. })));
    std::fs::create_dir(&place.path).unwrap();
    remove_status_file_best_effort_at_path(&place.path);
    assert!(place.path.is_dir());
}

#[test]
fn keys_of_newer_programs_survive_every_writer() {
    let place = place();
    write_status_to_file(&place.path, &snapshot()).unwrap();
    let text = std::fs::read_to_string(&place.path).unwrap();
    let richer = text.replacen('{', "{\n  \"flexnode\": {\"version\": 1, \"slot\": \"a\"},", 1);
    std::fs::write(&place.path, richer).unwrap();
    mark_kubelet_unhealthy_best_effort_at_path(&place.path, None);
    write_status_to_file(&place.path, &snapshot()).unwrap();
    let keys: Value = serde_json::from_slice(&std::fs::read(&place.path).unwrap()).unwrap();
    assert_eq!(keys["flexnode"]["slot"], "a");
    assert_eq!(load_status_from_file(&place.path).unwrap(), snapshot());
}

#[test]
fn every_field_of_the_contract_is_known_as_one() {
    let mut full = snapshot();
    full.arc_status.machine_name = "m".into();
    let Value::Object(keys) = serde_json::from_slice(&full.encode()).unwrap() else { panic!() };
    let keys: BTreeSet<&str> = keys.keys().map(String::as_str).collect();
    assert_eq!(keys, BTreeSet::from(FIELDS));
}

#[test]
fn a_mark_that_came_while_a_snapshot_was_collected_stays() {
    let began = at("2026-11-30T12:00:00Z");
    let collected = NodeStatus { last_updated: Some(at("2026-11-30T12:00:05Z")), ..snapshot() };
    let mark = |time: &str| unhealthy(NodeStatus::default(), at(time));
    let merged = merge(Some(&mark("2026-11-30T12:00:03Z")), &collected, began);
    assert!(!merged.kubelet_running);
    assert_eq!(merged.last_updated, Some(at("2026-11-30T12:00:03Z")));
    assert_eq!(merged.containerd_version, "2.1.9", "the rest is taken over");
    // An older mark, one of another clock, and an older snapshot are replaced.
    assert_eq!(merge(Some(&mark("2026-11-30T11:59:59Z")), &collected, began), collected);
    assert_eq!(merge(Some(&mark("2027-01-01T00:00:00Z")), &collected, began), collected);
    let older = NodeStatus { last_updated: Some(at("2026-11-30T12:00:03Z")), ..snapshot() };
    assert_eq!(merge(Some(&older), &collected, began), collected);
    assert_eq!(merge(None, &collected, began), collected);
}

/// Each of many writers adds one word under the lock; none may be lost, and each reader sees a whole document.
#[test]
fn a_thousand_writers_and_readers_lose_nothing() {
    // As /run: in memory, where syncing costs nothing.
    let memory = Path::new("/dev/shm");
    let temp = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let place = Place { path: temp.path().join("run/status.json"), _temp: temp };
    write_status_to_file(&place.path, &NodeStatus::default()).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..10 {
            let path = &place.path;
            scope.spawn(move || {
                for round in 0..100 {
                    let word = format!("{writer}-{round} ");
                    let add = |now: Option<&NodeStatus>| {
                        let mut status = now.cloned().unwrap_or_default();
                        status.agent_version.push_str(&word);
                        status
                    };
                    update_status_file(path, add).unwrap();
                    load_status_from_file(path).unwrap();
                }
            });
        }
    });
    let status = load_status_from_file(&place.path).unwrap();
    let words: BTreeSet<&str> = status.agent_version.split_whitespace().collect();
    assert_eq!(words.len(), 1000);
}

/// Set in the process that a test starts of itself.
const CHILD: &str = "FLEXNODE_STATUS_TEST_CHILD";

/// The functions without a path, in a process of a user who is not root: root's file is the host's own.
#[test]
fn the_functions_without_a_path_use_the_users_own_directory() {
    if std::env::var_os(CHILD).is_some() {
        return in_the_users_directory();
    }
    let temp = tempfile::tempdir().unwrap();
    let (program, runtime) = (temp.path().join("test"), temp.path().join("runtime"));
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::create_dir(&runtime).unwrap();
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(temp.path(), 0o755);
    mode(&runtime, 0o700);
    let mut child = std::process::Command::new(&program);
    child.args(["--exact", "file::tests::the_functions_without_a_path_use_the_users_own_directory", "--nocapture"]);
    child.env(CHILD, "1").env("XDG_RUNTIME_DIR", &runtime).current_dir("/");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&runtime, Some(NOBODY), Some(NOBODY)).unwrap();
        child.uid(NOBODY).gid(NOBODY);
    }
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!runtime.join("aks-flex-node/status.json").exists(), "it was removed at the end");
    assert_eq!(std::fs::metadata(runtime.join("aks-flex-node")).unwrap().mode() & 0o7777, 0o700);
}

const NOBODY: u32 = 65534;

fn in_the_users_directory() {
    let path = get_status_file_path();
    assert_eq!(path, PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR").unwrap()).join("aks-flex-node/status.json"));
    assert!(matches!(load_status(), Err(StatusFileError::Absent { .. })));
    write_status_to_file(&path, &snapshot()).unwrap();
    assert_eq!(load_status().unwrap(), snapshot());
    mark_kubelet_unhealthy_best_effort();
    let marked = load_status().unwrap();
    assert!(!marked.kubelet_running && marked.containerd_running);
    std::fs::set_permissions(path.parent().unwrap(), std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(load_status(), Err(StatusFileError::Untrusted { .. })));
    std::fs::set_permissions(path.parent().unwrap(), std::fs::Permissions::from_mode(0o700)).unwrap();
    remove_status_file_best_effort();
    assert!(matches!(load_status(), Err(StatusFileError::Absent { .. })));
}

fn richer(count: u32) -> Snapshot {
    let bytes = include_bytes!("../../flexnode-model/tests/samples/snapshot-1.json");
    // Large enough that a write is not one page.
    let notes = vec![format!("{count} {}", "x".repeat(20_000))];
    Snapshot { notes, ..Snapshot::decode(bytes).unwrap() }
}

#[test]
fn the_richer_snapshot_stands_beside_the_contracts_fields() {
    let place = place();
    assert!(matches!(load_snapshot_from_file(&place.path), Err(StatusFileError::Absent { .. })));
    write_status_to_file(&place.path, &snapshot()).unwrap();
    assert_eq!(load_snapshot_from_file(&place.path).unwrap(), None);
    let began = at("2026-11-30T12:00:00Z");
    publish_snapshot(&place.path, &snapshot(), &richer(1), began).unwrap();
    assert_eq!(load_status_from_file(&place.path).unwrap(), snapshot(), "an old reader sees what it knows");
    assert_eq!(load_snapshot_from_file(&place.path).unwrap(), Some(richer(1)));
    // A writer that knows only the contract's fields takes nothing away.
    mark_kubelet_unhealthy_best_effort_at_path(&place.path, None);
    assert_eq!(load_snapshot_from_file(&place.path).unwrap(), Some(richer(1)));
    // One of a newer program is refused, and replaced by the next writing.
    let text = std::fs::read_to_string(&place.path).unwrap().replacen("\"version\": 1", "\"version\": 2", 1);
    std::fs::write(&place.path, text).unwrap();
    assert!(matches!(load_snapshot_from_file(&place.path), Err(StatusFileError::Decode { .. })));
    publish_snapshot(&place.path, &snapshot(), &richer(2), began).unwrap();
    assert_eq!(load_snapshot_from_file(&place.path).unwrap(), Some(richer(2)));
}

#[test]
fn a_thousand_at_once_and_every_read_is_a_whole_document() {
    let memory = Path::new("/dev/shm");
    let temp = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let path = &temp.path().join("run/status.json");
    publish_snapshot(path, &snapshot(), &richer(0), at("2026-11-30T12:00:00Z")).unwrap();
    let together = &std::sync::Barrier::new(1000);
    std::thread::scope(|scope| {
        for n in 0..1000_u32 {
            let work = move || {
                together.wait();
                if n % 2 == 0 {
                    update_status_file(path, |now| {
                        let mut status = now.cloned().unwrap_or_default();
                        status.agent_version.push('x');
                        status
                    })
                    .unwrap();
                } else {
                    assert!(load_status_from_file(path).unwrap().kubelet_running);
                    assert_eq!(load_snapshot_from_file(path).unwrap(), Some(richer(0)));
                }
            };
            std::thread::Builder::new().stack_size(256 * 1024).spawn_scoped(scope, work).unwrap();
        }
    });
    let written = load_status_from_file(path).unwrap().agent_version;
    assert_eq!(written.len(), snapshot().agent_version.len() + 500, "no update is lost");
}

/// A process that writes as fast as it can is killed again and again.
#[test]
fn a_writer_that_is_killed_leaves_a_whole_document() {
    const FILE: &str = "FLEXNODE_STATUS_TEST_FILE";
    if let Some(path) = std::env::var_os(FILE) {
        for count in 1.. {
            publish_snapshot(Path::new(&path), &snapshot(), &richer(count), at("2026-11-30T12:00:00Z")).unwrap();
        }
    }
    let place = place();
    publish_snapshot(&place.path, &snapshot(), &richer(0), at("2026-11-30T12:00:00Z")).unwrap();
    let whole = |path: &Path| {
        assert_eq!(load_status_from_file(path).unwrap(), snapshot());
        let notes = load_snapshot_from_file(path).unwrap().unwrap().notes;
        notes[0].split(' ').next().unwrap().parse::<u32>().unwrap()
    };
    for kill in 0..20_u32 {
        let mut writer = std::process::Command::new(std::env::current_exe().unwrap());
        writer.args(["--exact", "file::tests::a_writer_that_is_killed_leaves_a_whole_document", "--nocapture"]);
        let mut child = writer.env(FILE, &place.path).stdout(std::process::Stdio::null()).spawn().unwrap();
        let end = std::time::Instant::now() + Duration::from_secs(60);
        // Its own count begins at 1, so that it has written when another count than the last one is seen.
        let last = whole(&place.path);
        while whole(&place.path) == last || whole(&place.path) < kill % 7 {
            assert!(std::time::Instant::now() < end, "the writer does not write");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        whole(&place.path);
        // The next writer sweeps what the killed one left.
        write_status_to_file(&place.path, &snapshot()).unwrap();
        let names = std::fs::read_dir(place.path.parent().unwrap()).unwrap().count();
        assert_eq!(names, 2, "the file and its lock");
    }
}

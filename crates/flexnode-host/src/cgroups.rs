//! Control groups below the host's own root (cgroups(7)).
//!
//! On version 1 each controller has a tree of its own, and a group of one name may be in some of them: every function
//! here works on all trees together. Names are relative to the root of each tree.

use crate::{CgroupVersion, Cgroups, HostError, Processes, RealProcesses, mounts, processes};
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the end of processes is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// How long a group may be busy after its last process has ended: the kernel lets go of it a moment later.
const LINGER: Duration = Duration::from_secs(1);

const SIGKILL: i32 = 9;

/// `path` without slashes around it; refuses the root itself and whatever leads out of it.
pub(crate) fn relative(path: &str) -> Result<String, HostError> {
    let trimmed = path.trim_matches('/');
    let plain = |c: Component<'_>| matches!(c, Component::Normal(_));
    if trimmed.is_empty() || !Path::new(trimmed).components().all(plain) {
        let reason = "it is the root or leads out of it".to_owned();
        return Err(HostError::Failed { what: format!("use control group {path:?}"), reason });
    }
    Ok(trimmed.to_owned())
}

/// Sorts so that each group comes after all below it; equal depths by name.
pub(crate) fn deepest_first(groups: &mut [String]) {
    groups.sort_by(|a, b| b.matches('/').count().cmp(&a.matches('/').count()).then_with(|| a.cmp(b)));
}

/// A mounted tree of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tree {
    at: PathBuf,
    version: CgroupVersion,
    /// Has controllers, or is version 2: others, as `name=systemd`, only keep track of processes.
    controls: bool,
    freezer: bool,
}

/// The trees in a mount table, each once. Mounts of a part of a tree are left out.
fn trees(lines: &[mounts::MountLine]) -> Vec<Tree> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for line in lines {
        let version = match line.mount.kind.as_str() {
            "cgroup" => CgroupVersion::V1,
            "cgroup2" => CgroupVersion::V2,
            _ => continue,
        };
        if line.mount.root == Path::new("/") && seen.insert(line.device.clone()) {
            let named = line.fs_options.iter().any(|option| option.starts_with("name="));
            found.push(Tree {
                at: line.mount.path.clone(),
                version,
                controls: version == CgroupVersion::V2 || !named,
                freezer: line.fs_options.iter().any(|option| option == "freezer"),
            });
        }
    }
    found
}

/// Version 1 as soon as one controller is on a tree of its own.
fn version_of(trees: &[Tree]) -> Option<CgroupVersion> {
    if trees.iter().any(|tree| tree.version == CgroupVersion::V1 && tree.controls) {
        return Some(CgroupVersion::V1);
    }
    trees.iter().any(|tree| tree.version == CgroupVersion::V2).then_some(CgroupVersion::V2)
}

/// The control groups of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealCgroups;

fn failed(verb: &str, path: &Path, error: &io::Error) -> HostError {
    HostError::Failed { what: format!("{verb} control group {}", path.display()), reason: error.to_string() }
}

/// Nothing when the group is gone: reading files of a group that is being removed gives `ENODEV`.
fn if_there<T: Default>(result: io::Result<T>) -> io::Result<T> {
    match result {
        Err(e) if e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(19) => Ok(T::default()),
        other => other,
    }
}

fn subgroups(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// The groups at and below `path` of one tree.
fn below_in(tree: &Tree, path: &str) -> Result<Vec<String>, HostError> {
    let mut found = Vec::new();
    let mut todo = vec![path.to_owned()];
    while let Some(group) = todo.pop() {
        let dir = tree.at.join(&group);
        if !dir.is_dir() {
            continue;
        }
        let names = if_there(subgroups(&dir)).map_err(|e| failed("list", &dir, &e))?;
        todo.extend(names.into_iter().map(|name| format!("{group}/{name}")));
        found.push(group);
    }
    Ok(found)
}

fn pids_in(tree: &Tree, group: &str) -> Result<Vec<u32>, HostError> {
    let dir = tree.at.join(group);
    let read = |file: &str| if_there(fs::read_to_string(dir.join(file)));
    // A threaded group tells only its threads (cgroups(7)); the kernel kills the whole process for any of them.
    let text = read("cgroup.procs").or_else(|_| read("cgroup.threads")).map_err(|e| failed("read", &dir, &e))?;
    // 0 is a process of another PID namespace.
    Ok(text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect())
}

/// Whether a process is in `group` or below it, in any tree.
fn is_member(pid: u32, group: &str) -> bool {
    processes::cgroups_of(pid).iter().any(|(_, path)| Path::new(path.trim_start_matches('/')).starts_with(group))
}

/// Kills every process at and below `group`; the number of those that were there.
fn kill_all(trees: &[Tree], group: &str) -> Result<usize, HostError> {
    let mut pids = BTreeSet::new();
    for tree in trees {
        for group in below_in(tree, group)? {
            pids.extend(pids_in(tree, &group)?);
        }
    }
    for pid in &pids {
        let Some(process) = RealProcesses.get(*pid)? else { continue };
        // The number may have gone to another process since the list was read.
        if is_member(*pid, group) {
            RealProcesses.signal(&process, SIGKILL)?;
        }
    }
    Ok(pids.len())
}

/// Writes to a control file where there is one.
fn set(tree: &Tree, group: &str, file: &str, value: &str) -> Result<(), HostError> {
    let path = tree.at.join(group).join(file);
    if !path.exists() {
        return Ok(());
    }
    if_there(fs::write(&path, value))
        .map_err(|e| failed(&format!("write {value} to {file} of"), &tree.at.join(group), &e))
}

/// Removes one empty directory of a tree, waiting a moment while the kernel holds it.
fn remove_one(dir: &Path) -> io::Result<()> {
    let end = Instant::now() + LINGER;
    loop {
        match if_there(fs::remove_dir(dir)) {
            Err(e) if e.kind() == ErrorKind::ResourceBusy && Instant::now() < end && is_empty(dir) => {
                std::thread::yield_now();
            }
            other => return other,
        }
    }
}

fn is_empty(dir: &Path) -> bool {
    fs::read(dir.join("cgroup.procs")).is_ok_and(|pids| pids.is_empty())
}

#[async_trait]
impl Cgroups for RealCgroups {
    fn version(&self) -> Option<CgroupVersion> {
        version_of(&trees(&mounts::read().ok()?))
    }

    fn below(&self, path: &str) -> Result<Vec<String>, HostError> {
        let path = relative(path)?;
        let mut groups = BTreeSet::new();
        for tree in trees(&mounts::read()?) {
            groups.extend(below_in(&tree, &path)?);
        }
        let mut groups: Vec<String> = groups.into_iter().collect();
        deepest_first(&mut groups);
        Ok(groups)
    }

    fn top(&self) -> Result<Vec<String>, HostError> {
        let mut groups = BTreeSet::new();
        for tree in trees(&mounts::read()?) {
            groups.extend(subgroups(&tree.at).map_err(|e| failed("list", &tree.at, &e))?);
        }
        Ok(groups.into_iter().collect())
    }

    fn pids(&self, path: &str) -> Result<Vec<u32>, HostError> {
        let path = relative(path)?;
        let mut pids = BTreeSet::new();
        for tree in trees(&mounts::read()?) {
            pids.extend(pids_in(&tree, &path)?);
        }
        Ok(pids.into_iter().collect())
    }

    async fn kill(&self, path: &str, deadline: Duration) -> Result<(), HostError> {
        let group = relative(path)?;
        let what = format!("end control group {group}");
        if is_member(std::process::id(), &group) {
            return Err(HostError::Failed { what, reason: "this process is in it".to_owned() });
        }
        let trees = trees(&mounts::read()?);
        let end = Instant::now() + deadline;
        loop {
            // On version 2 this is one atomic act; on version 1 nothing can fork while it is frozen.
            for tree in trees.iter().filter(|tree| tree.version == CgroupVersion::V2) {
                set(tree, &group, "cgroup.kill", "1")?;
            }
            for tree in trees.iter().filter(|tree| tree.freezer) {
                set(tree, &group, "freezer.state", "FROZEN")?;
            }
            let killed = kill_all(&trees, &group);
            // A frozen process takes its signal when it thaws; groups below may have been frozen by themselves.
            for tree in trees.iter().filter(|tree| tree.freezer) {
                for group in below_in(tree, &group)? {
                    set(tree, &group, "freezer.state", "THAWED")?;
                }
            }
            if killed? == 0 {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(HostError::Deadline { what, after: deadline });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn thaw(&self, path: &str) -> Result<bool, HostError> {
        let path = relative(path)?;
        let mut thawed = false;
        for tree in trees(&mounts::read()?) {
            let (file, frozen, run) = match tree.version {
                CgroupVersion::V2 => ("cgroup.freeze", "1", "0"),
                CgroupVersion::V1 if tree.freezer => ("freezer.self_freezing", "1", "THAWED"),
                CgroupVersion::V1 => continue,
            };
            // From the top: what is above holds what is below.
            for group in below_in(&tree, &path)? {
                let dir = tree.at.join(&group);
                let is = if_there(fs::read_to_string(dir.join(file))).map_err(|e| failed("read", &dir, &e))?;
                if is.trim() == frozen {
                    set(&tree, &group, if file == "cgroup.freeze" { file } else { "freezer.state" }, run)?;
                    thawed = true;
                }
            }
        }
        Ok(thawed)
    }

    fn remove(&self, path: &str) -> Result<(), HostError> {
        let path = relative(path)?;
        for tree in trees(&mounts::read()?) {
            let mut groups = below_in(&tree, &path)?;
            deepest_first(&mut groups);
            for group in groups {
                let dir = tree.at.join(&group);
                remove_one(&dir).map_err(|e| failed("remove", &dir, &e))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Vec<Tree> {
        trees(&mounts::parse(lines.join("\n").as_bytes()))
    }

    #[test]
    fn the_root_and_paths_out_of_it_are_refused() {
        for bad in ["", "/", "//", "..", "a/../..", "/../x"] {
            assert!(relative(bad).is_err(), "{bad:?}");
        }
        assert_eq!(relative("/kubepods/burstable/").unwrap(), "kubepods/burstable");
    }

    #[test]
    fn layouts() {
        let v2 = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";
        let unified = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
        let named = "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd";
        let cpu = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct";
        let freezer = "33 31 0:30 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer";
        let again = "50 31 0:29 / /mnt/cpu rw - cgroup cgroup rw,cpu,cpuacct";
        let part = "51 31 0:60 /docker/x /mnt/part rw - cgroup cgroup rw,pids";
        assert_eq!(version_of(&of(&[])), None);
        assert_eq!(version_of(&of(&[v2])), Some(CgroupVersion::V2));
        assert_eq!(version_of(&of(&[named, unified])), Some(CgroupVersion::V2));
        assert_eq!(version_of(&of(&[named, unified, cpu])), Some(CgroupVersion::V1));
        let all = of(&[named, unified, cpu, freezer, again, part]);
        let at: Vec<_> = all.iter().map(|tree| tree.at.to_string_lossy().into_owned()).collect();
        let dir = |name: &str| format!("/sys/fs/cgroup/{name}");
        assert_eq!(at, [dir("systemd"), dir("unified"), dir("cpu,cpuacct"), dir("freezer")]);
        assert_eq!(all.iter().filter(|tree| tree.freezer).count(), 1);
    }

    #[test]
    fn the_deepest_come_first() {
        let mut groups = ["a", "a/b/c", "a/d", "a/b"].map(str::to_owned);
        deepest_first(&mut groups);
        assert_eq!(groups, ["a/b/c", "a/b", "a/d", "a"]);
    }
}

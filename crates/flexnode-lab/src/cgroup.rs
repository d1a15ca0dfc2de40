//! Control groups of hosts. Two hosts must not share any: their kubelets would both own `/kubepods`. A host gets one in
//! every hierarchy of this machine, and its cgroup namespace makes it the root.

use crate::poll;
use crate::process::Process;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

const ROOT: &str = "/sys/fs/cgroup";

/// The places for a group of this name below the groups that this process is in, one for each hierarchy.
pub(crate) fn places(name: &str) -> Result<Vec<PathBuf>> {
    let path = "/proc/self/cgroup";
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    Ok(text.lines().filter_map(|line| place(line, name, Path::new(ROOT))).collect())
}

/// One line of /proc/PID/cgroup (cgroups(7)): number, controllers, path.
fn place(line: &str, name: &str, root: &Path) -> Option<PathBuf> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let mount = match controllers.strip_prefix("name=").unwrap_or(controllers) {
        "" => "unified",
        named => named,
    };
    // With version 2 alone there is one hierarchy, mounted at the root itself.
    let mount = if root.join(mount).is_dir() { root.join(mount) } else { root.to_owned() };
    Some(mount.join(path.trim_matches('/')).join(name))
}

/// The group of the scope of this name, on a machine where systemd rules over control groups of version 2: there it
/// has to be asked for one, and it gives all controllers. `None` elsewhere.
pub(crate) fn scope(name: &str) -> Option<PathBuf> {
    let root = Path::new(ROOT);
    let ruled = Path::new("/run/systemd/system").is_dir() && root.join("cgroup.controllers").exists();
    ruled.then(|| root.join(format!("system.slice/{name}.scope")))
}

/// An error when the groups lack a controller that a node needs.
pub(crate) fn check(groups: &[PathBuf]) -> Result<()> {
    let mut found = Vec::new();
    for group in groups {
        found.extend(fs::read_dir(group)?.flatten().map(|file| file.file_name().to_string_lossy().into_owned()));
    }
    for (controller, file) in [("cpu", "cpu."), ("cpuset", "cpuset."), ("memory", "memory."), ("pids", "pids.")] {
        if !found.iter().any(|name| name.starts_with(file)) {
            bail!(
                "the control groups of this machine give new groups no {controller} controller, which kubelet needs: run \
                 the lab where systemd is the first process, or in the root control group"
            );
        }
    }
    Ok(())
}

/// Makes a group that processes can join.
pub(crate) fn create(group: &Path) -> Result<()> {
    fs::create_dir(group).with_context(|| format!("cannot make {}", group.display()))?;
    for file in ["cpuset.cpus", "cpuset.mems"] {
        // In version 1 these are empty in a new group, and nothing can run in it before they are set.
        let (own, above) = (group.join(file), group.with_file_name(file));
        if own.exists() && above.exists() && fs::read_to_string(&own)?.trim().is_empty() {
            fs::write(&own, fs::read_to_string(&above)?).with_context(|| format!("cannot write {}", own.display()))?;
        }
    }
    Ok(())
}

/// Ends every process in the group and below, then removes the groups from the leaves up.
pub(crate) fn remove(group: &Path, limit: Duration) -> Result<()> {
    let what = format!("{} to go", group.display());
    poll(limit, Duration::from_millis(10), &what, || {
        if !group.exists() {
            return Ok(Some(()));
        }
        let groups = below(group);
        for process in groups.iter().flat_map(|group| processes(group)) {
            process.signal(rustix::process::Signal::KILL)?;
        }
        for group in groups.iter().rev() {
            match fs::remove_dir(group) {
                Err(cause) if cause.kind() != ErrorKind::NotFound => return Err(cause.into()),
                _ => (),
            }
        }
        Ok(Some(()))
    })
}

/// The group and all below it, parents first.
pub(crate) fn below(group: &Path) -> Vec<PathBuf> {
    let mut found = vec![group.to_owned()];
    let mut next = 0;
    while let Some(group) = found.get(next).cloned() {
        next += 1;
        let Ok(entries) = fs::read_dir(&group) else { continue };
        let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        found.extend(folders.map(|entry| entry.path()));
    }
    found
}

fn processes(group: &Path) -> Vec<Process> {
    let list = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    list.lines().filter_map(|pid| Process::find(pid.parse().ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::{check, place};
    use std::path::{Path, PathBuf};

    #[test]
    fn a_group_without_memory_is_told() {
        let group = tempfile::tempdir().unwrap();
        for file in ["cpu.shares", "cpuset.cpus", "pids.max"] {
            std::fs::write(group.path().join(file), "").unwrap();
        }
        let groups = [group.path().to_owned()];
        let told = check(&groups).unwrap_err().to_string();
        assert!(told.contains("no memory controller"), "{told}");
        std::fs::write(group.path().join("memory.max"), "").unwrap();
        check(&groups).unwrap();
    }

    #[test]
    fn a_place_in_each_kind_of_hierarchy() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["memory", "systemd", "unified"] {
            std::fs::create_dir(root.path().join(folder)).unwrap();
        }
        let at = |line: &str, root: &Path| place(line, "x", root);
        for (line, expected) in
            [("4:memory:/a/b", "memory/a/b/x"), ("9:name=systemd:/", "systemd/x"), ("0::/", "unified/x")]
        {
            assert_eq!(at(line, root.path()), Some(root.path().join(expected)));
        }
        let only: PathBuf = tempfile::tempdir().unwrap().path().to_owned();
        assert_eq!(at("0::/user.slice", &only), Some(only.join("user.slice/x")));
    }
}

//! What a lab has made, written down before it is made: the one way in which things of a lab are removed, by the lab that
//! made them as well as by the next one when that was killed.
//!
//! A record is a directory with lists of processes, control groups and network namespaces, and the records of its parts.

use crate::process::{Process, boot_id};
use crate::run::must;
use crate::{cache, cgroup, interrupt};
use anyhow::{Context as _, Result, anyhow, bail};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

/// One record.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Its directory.
    pub folder: PathBuf,
}

impl Record {
    /// Begins one. Its directory must not exist: that is how a name is taken.
    pub fn create(folder: &Path) -> Result<Self> {
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::create_dir(folder).with_context(|| format!("{} is taken", folder.display()))?;
        fs::write(folder.join("boot"), boot_id()?)?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// The record of a lab that was kept.
    pub fn open(folder: &Path) -> Result<Self> {
        if !folder.join("boot").is_file() {
            bail!("there is no {}", folder.display());
        }
        Ok(Self { folder: folder.to_owned() })
    }

    /// The place of a part's record.
    pub fn part(&self, name: &str) -> PathBuf {
        self.folder.join("parts").join(name)
    }

    /// A process that was started just now. When the record is removed it is killed, its children first: nothing that it
    /// could still write is kept, and a container's first process takes all of the container with it.
    pub fn add_process(&self, name: &str, process: &Process) -> Result<()> {
        self.add("processes", &format!("{name} {} {}", process.pid, process.start))
    }

    /// A namespace that will be made by `ip netns add`.
    pub fn add_namespace(&self, name: &str) -> Result<()> {
        self.add("namespaces", name)
    }

    /// A control group that will be made.
    pub fn add_cgroup(&self, path: &Path) -> Result<()> {
        self.add("cgroups", &path.to_string_lossy())
    }

    /// The processes that still run, oldest first.
    pub fn processes(&self) -> Vec<(String, Process)> {
        let parse = |line: String| {
            let mut fields = line.split(' ');
            let name = fields.next()?.to_owned();
            let process = Process { pid: fields.next()?.parse().ok()?, start: fields.next()?.parse().ok()? };
            process.alive().then_some((name, process))
        };
        if self.same_boot() { self.lines("processes").into_iter().filter_map(parse).collect() } else { Vec::new() }
    }

    /// Control groups, in the order in which they were made.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        self.lines("cgroups").into_iter().map(PathBuf::from).collect()
    }

    /// Ends and removes all that the record names, then the record. Goes on after an error, and tells all of them.
    pub fn remove(&self) -> Result<()> {
        interrupt::while_cleaning(|| {
            let mut errors = Vec::new();
            for part in self.parts() {
                errors.extend(part.remove().err());
            }
            errors.extend(self.end_processes());
            for name in self.lines("namespaces") {
                errors.extend(remove_namespace(&name).err());
            }
            if !errors.is_empty() {
                let told: Vec<String> = errors.iter().map(|error| format!("{error:#}")).collect();
                return Err(anyhow!(told.join("; ")).context(format!("{} could not be removed", self.folder.display())));
            }
            cache::remove_tree(&self.folder)
        })
    }

    /// Ends the processes and removes the control groups, and forgets them: a host that will boot again.
    pub fn stop(&self) -> Result<()> {
        interrupt::while_cleaning(|| {
            if let Some(error) = self.end_processes().into_iter().next() {
                return Err(error);
            }
            for name in ["processes", "cgroups"] {
                let path = self.folder.join(name);
                if path.exists() {
                    fs::remove_file(path)?;
                }
            }
            Ok(())
        })
    }

    fn end_processes(&self) -> Vec<anyhow::Error> {
        let mut errors = Vec::new();
        for (name, process) in self.processes().into_iter().rev() {
            let ended =
                process.children().iter().try_for_each(|child| child.end(None)).and_then(|()| process.end(None));
            errors.extend(ended.with_context(|| format!("{name} does not end")).err());
        }
        for group in self.cgroups() {
            errors.extend(cgroup::remove(&group, LIMIT).err());
        }
        errors
    }

    /// Hosts before the control plane that they talk to.
    fn parts(&self) -> Vec<Self> {
        let Ok(parts) = fs::read_dir(self.folder.join("parts")) else { return Vec::new() };
        let mut folders: Vec<PathBuf> = parts.flatten().map(|part| part.path()).collect();
        folders.sort_by_key(|folder| (folder.ends_with("control-plane"), folder.clone()));
        folders.into_iter().map(|folder| Self { folder }).collect()
    }

    /// After a reboot the numbers in the record belong to others.
    fn same_boot(&self) -> bool {
        let recorded = fs::read_to_string(self.folder.join("boot")).unwrap_or_default();
        boot_id().is_ok_and(|now| now == recorded)
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn add(&self, name: &str, line: &str) -> Result<()> {
        let path = self.folder.join(name);
        let file = File::options().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Makes a network namespace with its loopback link up.
pub(crate) fn add_namespace(record: &Record, name: &str) -> Result<()> {
    record.add_namespace(name)?;
    must(Command::new("ip").args(["netns", "add", name]), LIMIT)?;
    must(Command::new("ip").args(["-n", name, "link", "set", "lo", "up"]), LIMIT)?;
    Ok(())
}

/// Ends what still runs in a namespace of the lab and removes it. One that is not there is fine.
pub(crate) fn remove_namespace(name: &str) -> Result<()> {
    if !Path::new("/run/netns").join(name).exists() {
        return Ok(());
    }
    let own = std::process::id().cast_signed();
    let pids = must(Command::new("ip").args(["netns", "pids", name]), LIMIT)?;
    let inside = pids.lines().filter_map(|pid| pid.trim().parse().ok()).filter(|pid| *pid != own);
    for process in inside.filter_map(Process::find) {
        process.end(None)?;
    }
    must(Command::new("ip").args(["netns", "del", name]), LIMIT)?;
    Ok(())
}

//! What a host must provide, and what must not run on it already.

use super::root::prefixed;
use crate::backend::{Grants, Requirements};
use flexnode_host::{FileKind, Fs, FsError, Host, HostError, Process, Processes};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// The programs that only one of may run on a host.
const PROGRAMS: [&str; 2] = ["kubelet", "containerd"];

/// A host that cannot become a node as it is. Every reason that was found is in it; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// Someone else's kubelet or containerd.
    #[error("this host already has a kubelet or containerd that is not the agent's: {}", list(.0))]
    Unmanaged(Vec<Finding>),
    /// Paths that cannot be written.
    #[error("the agent has to write below {}, which is not writable (permissions or a read-only mount)", paths(.0))]
    NotWritable(Vec<PathBuf>),
    /// No cgroup file system.
    #[error("no cgroup file system is mounted at {}", .0.display())]
    NoCgroups(PathBuf),
    /// Programs that are missing.
    #[error("these programs are not on the PATH: {}; install them", .0.join(", "))]
    MissingCommands(Vec<String>),
    /// Programs of the node could not be executed.
    #[error("{} lies on the mount {}, which forbids to execute programs (noexec)", base.display(), mount.display())]
    NoExec {
        /// The node base.
        base: PathBuf,
        /// The mount point.
        mount: PathBuf,
    },
    /// Paths of grants that do not exist.
    #[error("these paths that the node stack was granted do not exist: {}", paths(.0))]
    GrantMissing(Vec<PathBuf>),
    /// Paths without which no GPU workload can run.
    #[error("NVIDIA devices are granted, but {} is missing; install the NVIDIA Container Toolkit", paths(.0))]
    GpuMissing(Vec<PathBuf>),
    /// Several reasons.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<PreflightError>),
    /// A file could not be looked at.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The host could not be looked at.
    #[error(transparent)]
    Host(#[from] HostError),
}

fn list(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// One error of those that were found, or none.
pub(crate) fn gather(errors: Vec<PreflightError>) -> Result<(), PreflightError> {
    let mut errors = errors;
    match errors.len() {
        0 => Ok(()),
        1 => Err(errors.remove(0)),
        _ => Err(PreflightError::Several(errors)),
    }
}

/// One sign of a kubelet or containerd that the agent does not own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A unit file.
    Unit(PathBuf),
    /// An executable on the standard paths.
    Executable(PathBuf),
    /// A running process.
    Process {
        /// Its PID.
        pid: u32,
        /// The path of its executable, or its name when that cannot be read.
        program: PathBuf,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Unit(path) => write!(f, "unit {}", path.display()),
            Finding::Executable(path) => write!(f, "program {}", path.display()),
            Finding::Process { pid, program } => write!(f, "process {pid} ({})", program.display()),
        }
    }
}

/// The host paths that preflight looks at. [`HostFs::default`] is the real host (`DefaultHostFS`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFs {
    /// Directories searched for unit files, the one that wins first.
    pub unit_dirs: Vec<PathBuf>,
    /// Directories searched for executables.
    pub bin_dirs: Vec<PathBuf>,
    /// The proc mount. Empty skips the search for processes.
    pub proc: PathBuf,
    /// The cgroup mount. Empty skips the cgroup check.
    pub cgroup: PathBuf,
}

impl Default for HostFs {
    fn default() -> Self {
        let all = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
        Self {
            unit_dirs: all(&[
                "/etc/systemd/system",
                "/run/systemd/system",
                "/usr/lib/systemd/system",
                "/lib/systemd/system",
            ]),
            bin_dirs: all(&["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]),
            proc: "/proc".into(),
            cgroup: "/sys/fs/cgroup".into(),
        }
    }
}

impl HostFs {
    /// One finding for each kubelet or containerd that the agent does not own: a unit file, an executable on the standard
    /// paths, or a running process. Two of them on one host fight over the same sockets and directories.
    ///
    /// No findings: what lies below `owned_base` and processes that run it; a unit that is masked for good (a link to
    /// `/dev/null`, or an empty file, in a directory that survives a boot), with all that it hides; the second name of a
    /// directory (`/lib` and `/usr/lib`); processes in the mount namespace of a container, unless they run the host's file.
    pub fn detect_unmanaged(&self, host: &Host, owned_base: &Path) -> Result<Vec<Finding>, PreflightError> {
        let mut findings = self.units(&*host.fs)?;
        findings.extend(self.executables(&*host.fs, owned_base)?);
        if !self.proc.as_os_str().is_empty() {
            findings.extend(processes(host, owned_base)?);
        }
        Ok(findings)
    }

    fn units(&self, fs: &dyn Fs) -> Result<Vec<Finding>, FsError> {
        let mut findings = Vec::new();
        for program in PROGRAMS {
            let name = format!("{program}.service");
            let mut seen = BTreeSet::new();
            for dir in &self.unit_dirs {
                let path = dir.join(&name);
                let Some(stat) = fs.lstat(&path)? else { continue };
                if is_mask(fs, &path)? {
                    if dir.starts_with("/run") {
                        continue;
                    }
                    break;
                }
                if stat.kind == FileKind::Dir {
                    continue;
                }
                let resolved = fs.canonicalize(&path).unwrap_or_else(|_| path.clone());
                if seen.insert(resolved) {
                    findings.push(Finding::Unit(path));
                }
            }
        }
        Ok(findings)
    }

    fn executables(&self, fs: &dyn Fs, owned_base: &Path) -> Result<Vec<Finding>, FsError> {
        let base = fs.canonicalize(owned_base).unwrap_or_else(|_| owned_base.to_path_buf());
        let (mut findings, mut seen) = (Vec::new(), BTreeSet::new());
        for program in PROGRAMS {
            for dir in &self.bin_dirs {
                let path = dir.join(program);
                let Some(stat) = fs.stat(&path)? else { continue };
                if stat.kind != FileKind::File || stat.mode & 0o111 == 0 {
                    continue;
                }
                let resolved = fs.canonicalize(&path)?;
                if !resolved.starts_with(&base) && seen.insert(resolved) {
                    findings.push(Finding::Executable(path));
                }
            }
        }
        Ok(findings)
    }
}

/// A link to /dev/null or an empty file: systemd takes both for a mask (systemd.unit(5)).
fn is_mask(fs: &dyn Fs, path: &Path) -> Result<bool, FsError> {
    match fs.lstat(path)? {
        Some(stat) if stat.kind == FileKind::Link => {
            let target = fs.read_link(path)?;
            Ok(target == Path::new("/dev/null") || target.ends_with("dev/null") && !target.is_absolute())
        }
        Some(stat) => Ok(stat.kind == FileKind::File && stat.size == 0),
        None => Ok(false),
    }
}

fn processes(host: &Host, owned_base: &Path) -> Result<Vec<Finding>, PreflightError> {
    let own = Ownership::new(host, owned_base);
    let mut findings = Vec::new();
    for process in host.processes.list()? {
        let exe = without_deleted(&process.exe);
        let name = exe.file_name().and_then(|name| name.to_str()).unwrap_or(&process.comm);
        if !PROGRAMS.contains(&name) || own.owns(&process) || !own.concerns_host(&process) {
            continue;
        }
        let program = if process.exe.as_os_str().is_empty() { PathBuf::from(&process.comm) } else { exe };
        findings.push(Finding::Process { pid: process.pid, program });
    }
    Ok(findings)
}

/// The text of /proc/PID/exe without the mark of a removed file.
pub(crate) fn without_deleted(exe: &Path) -> PathBuf {
    exe.to_str().and_then(|text| text.strip_suffix(" (deleted)")).map_or_else(|| exe.to_path_buf(), PathBuf::from)
}

/// Tells which processes run a file below one directory of ours.
///
/// The path alone proves nothing: a container has its own mounts, and its `/opt/unbounded/node` is not ours. So the process
/// has to be in the agent's own mount namespace, and where the file still exists it has to be the same device and inode.
#[derive(Debug)]
pub(crate) struct Ownership<'a> {
    fs: &'a dyn Fs,
    base: PathBuf,
    mount_ns: u64,
}

impl<'a> Ownership<'a> {
    pub(crate) fn new(host: &'a Host, base: &Path) -> Self {
        Self::among(host, &*host.processes, base)
    }

    /// With a process table of its own.
    pub(crate) fn among(host: &'a Host, processes: &dyn Processes, base: &Path) -> Self {
        let base = host.fs.canonicalize(base).unwrap_or_else(|_| base.to_path_buf());
        Self { fs: &*host.fs, base, mount_ns: processes.own_mount_ns() }
    }

    /// Whether `process` runs a file below the directory.
    pub(crate) fn owns(&self, process: &Process) -> bool {
        process.mount_ns == self.mount_ns
            && without_deleted(&process.exe).starts_with(&self.base)
            && self.same_file(process) != Some(false)
    }

    /// Whether `process` shares the host's mounts, or runs a file of the host.
    fn concerns_host(&self, process: &Process) -> bool {
        process.mount_ns == self.mount_ns || self.same_file(process) == Some(true)
    }

    /// Whether the file at the path is the one that runs; `None` when it is not there any more, or cannot be compared.
    fn same_file(&self, process: &Process) -> Option<bool> {
        if process.exe != without_deleted(&process.exe) {
            return None;
        }
        let file = self.fs.stat(&process.exe).ok()??;
        process.exe_id.map(|id| id == (file.dev, file.ino))
    }
}

/// Fails when any of `paths` cannot be written. A path that does not exist is judged by its nearest existing parent.
/// Permissions and a read-only mount both count; all that fail are named.
pub fn check_writable<P: AsRef<Path>>(fs: &dyn Fs, paths: &[P]) -> Result<(), PreflightError> {
    let mut refused = Vec::new();
    for path in paths {
        let path = path.as_ref();
        let mut at = path;
        let writable = loop {
            match fs.stat(at)? {
                Some(_) => break fs.writable(at)?,
                None => match at.parent() {
                    Some(parent) => at = parent,
                    None => break false,
                },
            }
        };
        if !writable {
            refused.push(path.to_path_buf());
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(PreflightError::NotWritable(refused)) }
}

/// What this mode needs. `/usr` need not be writable.
pub(crate) fn requirements(base: &Path) -> Requirements {
    Requirements {
        writable_paths: vec!["/etc".into(), base.to_path_buf(), "/var".into()],
        // kubelet mounts volumes with the host's tools; the bridge plugin masquerades with iptables.
        commands: ["mount", "umount", "iptables"].map(String::from).to_vec(),
        cgroups: true,
    }
}

/// Fails when programs below `base` could not be executed: it lies, or will lie, on a `noexec` mount.
pub(crate) fn check_executable(host: &Host, base: &Path) -> Result<(), PreflightError> {
    let base = host.fs.canonicalize(base).unwrap_or_else(|_| base.to_path_buf());
    let mounts = host.mounts.list()?;
    // Of several at one place the last covers the others.
    let holding = mounts.iter().enumerate().filter(|(_, mount)| base.starts_with(&mount.path));
    let nearest = holding.max_by_key(|(i, mount)| (mount.path.components().count(), *i));
    match nearest {
        Some((_, mount)) if mount.no_exec => Err(PreflightError::NoExec { base, mount: mount.path.clone() }),
        _ => Ok(()),
    }
}

/// Fails when a granted path does not exist below `host_root`, or NVIDIA devices are granted and one of `gpu_paths` is
/// missing.
pub(crate) fn check_grants(
    fs: &dyn Fs,
    grants: &Grants,
    host_root: &Path,
    gpu_paths: &[PathBuf],
) -> Result<(), PreflightError> {
    let missing = |paths: &mut dyn Iterator<Item = &PathBuf>| -> Result<Vec<PathBuf>, FsError> {
        let mut missing = Vec::new();
        for path in paths {
            if fs.stat(&prefixed(host_root, path))?.is_none() {
                missing.push(path.clone());
            }
        }
        Ok(missing)
    };
    let mut errors = Vec::new();
    let granted = missing(&mut grants.devices.iter().chain(&grants.host_paths))?;
    if !granted.is_empty() {
        errors.push(PreflightError::GrantMissing(granted));
    }
    if grants.nvidia {
        let gpu = missing(&mut gpu_paths.iter())?;
        if !gpu.is_empty() {
            errors.push(PreflightError::GpuMissing(gpu));
        }
    }
    gather(errors)
}

//! Kernel settings, from /proc and /sys.

use crate::{Command, Commands, HostError, Kernel, SwapArea, mounts};
use async_trait::async_trait;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a module may take to load.
const MODPROBE: Duration = Duration::from_secs(30);

/// Ending swap reads back all that was paged out.
const SWAPOFF: Duration = Duration::from_mins(10);

/// The kernel of this machine.
#[derive(Clone, Debug)]
pub struct RealKernel {
    commands: Arc<dyn Commands>,
}

impl RealKernel {
    /// `commands` runs modprobe, swapon and swapoff.
    pub fn new(commands: Arc<dyn Commands>) -> Self {
        Self { commands }
    }
}

fn failed(what: impl Into<String>, reason: impl std::fmt::Display) -> HostError {
    HostError::Failed { what: what.into(), reason: reason.to_string() }
}

fn read(path: &str) -> Result<String, HostError> {
    fs::read_to_string(path).map_err(|e| failed(format!("read {path}"), e))
}

fn read_if_there(path: &Path) -> Result<Option<String>, HostError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(failed(format!("read {}", path.display()), e)),
    }
}

/// Writes a key's value, as sysctl(8) does. The file is never created: /proc/sys has the keys that the kernel has. It is
/// cut first: a container runtime may put a plain file in a key's place, where a short value would keep a longer one's end.
fn write_value(path: &Path, value: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).truncate(true).open(path)?;
    io::Write::write_all(&mut file, value.as_bytes())
}

/// The file of a sysctl key. In a key with slashes the dots are part of names, as in `net/ipv4/conf/eth0.1/forwarding`
/// (sysctl(8)).
fn sysctl_path(key: &str) -> Result<PathBuf, HostError> {
    let relative = if key.contains('/') { key.to_owned() } else { key.replace('.', "/") };
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    if !relative.split('/').all(plain) {
        return Err(failed(format!("use sysctl {key:?}"), "it is not the name of a key"));
    }
    Ok(Path::new("/proc/sys").join(relative))
}

/// Values of several numbers are compared without regard to the white space between them.
fn same_value(a: &str, b: &str) -> bool {
    a.split_whitespace().eq(b.split_whitespace())
}

/// Parses /proc/swaps: `Filename Type Size Used Priority`, sizes in KiB.
fn parse_swaps(text: &str) -> Vec<SwapArea> {
    let area = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [path, kind, size, _used, priority] = fields[..] else { return None };
        let path = mounts::unescape(path.as_bytes());
        Some(SwapArea {
            path: PathBuf::from(path),
            kind: kind.to_owned(),
            bytes: size.parse::<u64>().ok()?.saturating_mul(1024),
            priority: priority.parse().ok()?,
        })
    };
    text.lines().filter_map(area).collect()
}

/// The number of processors in a list as `0-3,8`.
fn count_list(text: &str) -> Option<usize> {
    text.trim().split(',').try_fold(0, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        Some(sum + (last + 1).checked_sub(first)?)
    })
}

/// MemTotal of /proc/meminfo in bytes.
fn mem_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Modules are listed with underscores, their files may have hyphens.
fn same_module(a: &str, b: &str) -> bool {
    a.replace('-', "_") == b.replace('-', "_")
}

/// Whether modules.builtin names the module: one path a line.
fn is_built_in(text: &str, module: &str) -> bool {
    let stem = |line: &str| Path::new(line).file_name()?.to_str()?.split('.').next().map(str::to_owned);
    text.lines().filter_map(stem).any(|name| same_module(&name, module))
}

/// Whether /proc/filesystems has the type: `nodev overlay`.
fn has_file_system(text: &str, kind: &str) -> bool {
    text.lines().filter_map(|line| line.split_whitespace().last()).any(|name| name == kind)
}

/// What a module brings that can be seen also when it is built in.
fn effect(module: &str) -> Option<&'static str> {
    match module.replace('-', "_").as_str() {
        "br_netfilter" => Some("/proc/sys/net/bridge"),
        "nf_conntrack" => Some("/proc/sys/net/netfilter/nf_conntrack_max"),
        "ip_vs" => Some("/proc/sys/net/ipv4/vs"),
        "ip_tables" => Some("/proc/net/ip_tables_names"),
        "ip6_tables" => Some("/proc/net/ip6_tables_names"),
        _ => None,
    }
}

#[async_trait]
impl Kernel for RealKernel {
    fn host_name(&self) -> Result<String, HostError> {
        Ok(read("/proc/sys/kernel/hostname")?.trim().to_owned())
    }

    fn boot_id(&self) -> Result<String, HostError> {
        Ok(read("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
    }

    fn release(&self) -> Result<String, HostError> {
        Ok(read("/proc/sys/kernel/osrelease")?.trim().to_owned())
    }

    fn sysctl(&self, key: &str) -> Result<Option<String>, HostError> {
        Ok(read_if_there(&sysctl_path(key)?)?.map(|value| value.trim().to_owned()))
    }

    fn set_sysctl(&self, key: &str, value: &str) -> Result<(), HostError> {
        let what = || format!("set sysctl {key} to {value}");
        let path = sysctl_path(key)?;
        match write_value(&path, value) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(HostError::Absent { what: format!("sysctl {key}") });
            }
            Err(e) => return Err(failed(what(), e)),
        }
        match self.sysctl(key)? {
            Some(now) if same_value(&now, value) => Ok(()),
            now => Err(failed(what(), format!("the kernel keeps {:?}", now.unwrap_or_default()))),
        }
    }

    fn has_module(&self, module: &str) -> Result<bool, HostError> {
        let loaded = read_if_there(Path::new("/proc/modules"))?.unwrap_or_default();
        if loaded.lines().filter_map(|line| line.split_whitespace().next()).any(|name| same_module(name, module)) {
            return Ok(true);
        }
        let in_sys = Path::new("/sys/module").join(module.replace('-', "_"));
        if in_sys.is_dir() || effect(module).is_some_and(|path| Path::new(path).exists()) {
            return Ok(true);
        }
        if has_file_system(&read_if_there(Path::new("/proc/filesystems"))?.unwrap_or_default(), module) {
            return Ok(true);
        }
        let release = self.release()?;
        for root in ["/lib/modules", "/usr/lib/modules"] {
            let list = Path::new(root).join(&release).join("modules.builtin");
            if is_built_in(&read_if_there(&list)?.unwrap_or_default(), module) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn load_module(&self, module: &str) -> Result<(), HostError> {
        if self.has_module(module)? {
            return Ok(());
        }
        let command = Command::new("modprobe", ["--", module]).within(MODPROBE);
        let tried = self.commands.run(&command).await;
        // The effect counts, not what modprobe says.
        if self.has_module(module)? {
            return Ok(());
        }
        let what = format!("load kernel module {module}");
        match tried {
            Ok(output) if !output.success() => Err(failed(what, output.reason())),
            Ok(_) => Err(failed(what, "modprobe reports success, but the kernel shows no sign of it")),
            Err(e) => Err(failed(what, e)),
        }
    }

    fn swaps(&self) -> Result<Vec<SwapArea>, HostError> {
        // A kernel without swap has no such file.
        Ok(parse_swaps(&read_if_there(Path::new("/proc/swaps"))?.unwrap_or_default()))
    }

    async fn swap_off(&self, path: &Path) -> Result<(), HostError> {
        if !self.swaps()?.iter().any(|swap| swap.path == path) {
            return Err(HostError::Absent { what: format!("swap {}", path.display()) });
        }
        let command = Command::new("swapoff", [path.to_string_lossy()]).within(SWAPOFF);
        self.commands.run(&command).await?.ok(&command)?;
        if self.swaps()?.iter().any(|swap| swap.path == path) {
            return Err(failed(format!("end swap {}", path.display()), "it is still active"));
        }
        Ok(())
    }

    async fn swap_on(&self, path: &Path, priority: i32) -> Result<(), HostError> {
        if self.swaps()?.iter().any(|swap| swap.path == path) {
            return Ok(());
        }
        // A negative priority is the kernel's own choice and cannot be asked for (swapon(2)).
        let mut args = Vec::new();
        if priority >= 0 {
            args.extend(["--priority".to_owned(), priority.to_string()]);
        }
        args.push(path.to_string_lossy().into_owned());
        let command = Command::new("swapon", args);
        self.commands.run(&command).await?.ok(&command)?;
        Ok(())
    }

    fn memory_bytes(&self) -> Result<u64, HostError> {
        mem_total(&read("/proc/meminfo")?).ok_or_else(|| failed("read /proc/meminfo", "it has no MemTotal"))
    }

    fn cpus(&self) -> usize {
        let online = fs::read_to_string("/sys/devices/system/cpu/online").ok();
        let available = || std::thread::available_parallelism().map_or(1, Into::into);
        online.and_then(|text| count_list(&text)).unwrap_or_else(available)
    }

    fn arch(&self) -> &'static str {
        match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeClock, FakeCommands};

    fn kernel() -> (RealKernel, Arc<FakeCommands>) {
        let commands = Arc::new(FakeCommands::new(Arc::new(FakeClock::new())));
        (RealKernel::new(commands.clone()), commands)
    }

    #[test]
    fn a_short_value_replaces_a_long_one_and_no_key_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("panic");
        assert_eq!(write_value(&key, "1").unwrap_err().kind(), ErrorKind::NotFound);
        fs::write(&key, "10\n").unwrap();
        write_value(&key, "1").unwrap();
        assert_eq!(fs::read_to_string(&key).unwrap(), "1");
    }

    #[test]
    fn swaps_with_escapes() {
        let text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/vda2 partition\t1048572\t0\t-2\n\
            /swap\\040file\\040(deleted) file\t\t2048\t0\t5\nbroken line\n";
        let area = |path: &str, kind: &str, bytes, priority| SwapArea {
            path: PathBuf::from(path),
            kind: kind.to_owned(),
            bytes,
            priority,
        };
        let want =
            [area("/dev/vda2", "partition", 1_048_572 * 1024, -2), area("/swap file (deleted)", "file", 2_097_152, 5)];
        assert_eq!(parse_swaps(text), want);
        assert_eq!(parse_swaps(""), []);
    }

    #[test]
    fn lists_and_sums() {
        assert_eq!((count_list("0-3\n"), count_list("0"), count_list("0-1,4,6-7")), (Some(4), Some(1), Some(5)));
        assert_eq!((count_list(""), count_list("3-1")), (None, None));
        assert_eq!(mem_total("MemTotal:       16332 kB\nMemFree: 1 kB\n"), Some(16332 * 1024));
        assert_eq!(mem_total("MemFree: 1 kB"), None);
    }

    #[test]
    fn modules_are_found_under_either_spelling() {
        let built_in = "kernel/fs/overlayfs/overlay.ko\nkernel/net/bridge/br-netfilter.ko.xz\n";
        assert!(is_built_in(built_in, "overlay") && is_built_in(built_in, "br_netfilter"));
        assert!(!is_built_in(built_in, "over"));
        assert!(has_file_system("nodev\toverlay\n\text4\n", "overlay") && has_file_system("\text4\n", "ext4"));
        assert!(!has_file_system("nodev\toverlayfs\n", "overlay"));
    }

    #[test]
    fn keys() {
        assert_eq!(sysctl_path("net.ipv4.ip_forward").unwrap(), Path::new("/proc/sys/net/ipv4/ip_forward"));
        let vlan = "net/ipv4/conf/eth0.1/forwarding";
        assert_eq!(sysctl_path(vlan).unwrap(), Path::new("/proc/sys").join(vlan));
        for bad in ["", "a..b", "../x", "a/../../x", "/etc/passwd", "a/./b"] {
            assert!(sysctl_path(bad).is_err(), "{bad:?}");
        }
        assert!(same_value("4096\t87380\t6291456", "4096 87380  6291456\n") && !same_value("1", "10"));
    }

    #[test]
    fn this_machine() {
        let (kernel, _) = kernel();
        assert!(kernel.memory_bytes().unwrap() > 1 << 20);
        assert!(kernel.cpus() > 0);
        assert_eq!(kernel.boot_id().unwrap().len(), 36);
        assert!(!kernel.release().unwrap().is_empty() && !kernel.host_name().unwrap().is_empty());
        assert!(["amd64", "arm64"].contains(&kernel.arch()));
        assert!(kernel.sysctl("kernel.pid_max").unwrap().unwrap().parse::<u64>().unwrap() > 0);
        assert_eq!(kernel.sysctl("kernel.no_such_key").unwrap(), None);
        assert!(matches!(kernel.set_sysctl("kernel.no_such_key", "1"), Err(HostError::Absent { .. })));
        assert!(kernel.has_module("proc").unwrap(), "a file system type");
        kernel.swaps().unwrap();
    }

    #[tokio::test]
    async fn the_effect_counts_not_what_modprobe_says() {
        let (kernel, commands) = kernel();
        commands.answer("modprobe", &[], "");
        let error = kernel.load_module("no_such_module").await.unwrap_err().to_string();
        assert!(error.contains("no sign"), "{error}");
        commands.exit("modprobe", &[], 1, "", "modprobe: FATAL: Module no_such_module not found.");
        let error = kernel.load_module("no_such_module").await.unwrap_err().to_string();
        assert!(error.contains("not found"), "{error}");
        commands.clear_log();
        kernel.load_module("proc").await.unwrap();
        assert_eq!(commands.lines(), Vec::<String>::new());
    }
}

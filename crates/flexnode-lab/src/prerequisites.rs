//! What the machine needs before a lab can run, and how it is had.

use crate::cache;
use crate::run::must;
use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Programs that the lab runs, each with the Debian package that has it.
const PROGRAMS: [(&str, &str); 11] = [
    ("debootstrap", "debootstrap"),
    ("systemd-nspawn", "systemd-container"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("nft", "nftables"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
    ("openssl", "openssl"),
    ("dpkg", "dpkg"),
    ("dpkg-deb", "dpkg"),
    ("cp", "coreutils"),
];

/// What a machine of rung 5 needs more.
const MACHINE_PROGRAMS: [(&str, &str); 7] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("e2undo", "e2fsprogs"),
    ("losetup", "mount"),
    ("blockdev", "util-linux"),
    ("tar", "tar"),
];

/// What measuring needs more: the release's symbols are split off, and a program's peak memory is read.
const MEASURE_PROGRAMS: [(&str, &str); 3] = [("objcopy", "binutils"), ("readelf", "binutils"), ("time", "time")];

/// The oldest Go that builds the pinned Kubernetes.
const GO: (u32, u32) = (1, 26);

/// Why the lab cannot run on this machine, in words for a person; `None` when it can, perhaps after [`ensure`].
pub fn missing() -> Option<String> {
    let mut asks = Vec::new();
    if !rustix::process::geteuid().is_root() {
        asks.push("it makes namespaces, cgroups and mounts: run it as root".to_owned());
    }
    let packages = packages(&PROGRAMS);
    if !packages.is_empty() && find_program("apt-get").is_none() {
        asks.push(format!("there is no apt-get: install what {} stands for on Debian", packages.join(", ")));
    }
    asks.extend(go_ask());
    if find_program("cc").is_none() {
        asks.push("Rust links with a C compiler, and there is no cc: install gcc and libc6-dev".to_owned());
    }
    if !Path::new("/sys/fs/cgroup").is_dir() {
        asks.push("there is no /sys/fs/cgroup: mount the control groups".to_owned());
    }
    (!asks.is_empty()).then(|| asks.join("; "))
}

/// Installs the packages that are missing, by apt-get; an error says what a person has to do first.
pub fn ensure() -> Result<()> {
    if let Some(asks) = missing() {
        bail!("the lab cannot run on this machine yet: {asks}");
    }
    install(&PROGRAMS)
}

/// Why no [`Machine`](crate::Machine) can run here, in words for a person; `None` when it can, perhaps after
/// [`ensure_machine`].
pub fn missing_for_machine() -> Option<String> {
    let mut asks: Vec<String> = missing().into_iter().collect();
    if std::env::consts::ARCH != "x86_64" {
        asks.push(format!("the guest is one of x86_64, and this machine is {}", std::env::consts::ARCH));
    }
    if !Path::new("/dev/net/tun").exists() {
        asks.push("there is no /dev/net/tun, which connects the guest: load the kernel module tun".to_owned());
    }
    let packages = packages(&MACHINE_PROGRAMS);
    if !packages.is_empty() && find_program("apt-get").is_none() {
        asks.push(format!("there is no apt-get: install what {} stands for on Debian", packages.join(", ")));
    }
    (!asks.is_empty()).then(|| asks.join("; "))
}

/// As [`ensure`], with what a [`Machine`](crate::Machine) needs more.
pub fn ensure_machine() -> Result<()> {
    if let Some(asks) = missing_for_machine() {
        bail!("this machine cannot run another one yet: {asks}");
    }
    ensure()?;
    install(&MACHINE_PROGRAMS)
}

/// Installs what building and measuring the release needs, where apt-get can.
pub fn ensure_measuring() -> Result<()> {
    if !packages(&MEASURE_PROGRAMS).is_empty() && find_program("apt-get").is_none() {
        bail!("install what {} stands for on Debian", packages(&MEASURE_PROGRAMS).join(", "));
    }
    install(&MEASURE_PROGRAMS)
}

fn install(programs: &[(&'static str, &'static str)]) -> Result<()> {
    if packages(programs).is_empty() {
        return Ok(());
    }
    let _lock = cache::lock(&cache::dir()?.join("packages.lock"), "another process to install packages")?;
    let packages = packages(programs);
    if packages.is_empty() {
        return Ok(());
    }
    eprintln!("lab: installing {}", packages.join(", "));
    let limit = Duration::from_secs(900);
    must(&mut apt_get(&["-q", "update"]), limit).context("the package lists could not be fetched")?;
    let mut words = vec!["-q", "-y", "--no-install-recommends", "install"];
    words.extend(packages);
    must(&mut apt_get(&words), limit).context("install these packages by hand, then run it again")?;
    Ok(())
}

/// The Debian packages that are missing.
fn packages(programs: &[(&'static str, &'static str)]) -> Vec<&'static str> {
    let absent = programs.iter().filter(|(program, _)| find_program(program).is_none());
    let mut packages: Vec<&'static str> = absent.map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn apt_get(words: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").args(words);
    command
}

/// The path of a program in `PATH` or in the directories for administration, which a user's `PATH` may lack.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/go/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn go_ask() -> Option<String> {
    let wanted = format!("Go {}.{} or later builds the Kubernetes programs", GO.0, GO.1);
    let Some(go) = find_program("go") else { return Some(format!("{wanted}: there is no go in PATH")) };
    let told = must(Command::new(go).args(["env", "GOVERSION"]).current_dir("/"), Duration::from_secs(20)).ok()?;
    match go_version(&told) {
        Some(found) if found >= GO => None,
        _ => Some(format!("{wanted}: this one says {}", told.trim())),
    }
}

/// `go1.26.8` as (1, 26).
fn go_version(told: &str) -> Option<(u32, u32)> {
    let mut parts = told.trim().strip_prefix("go")?.split(['.', 'r', 'b', ' ']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{find_program, go_version};

    #[test]
    fn reads_what_go_says() {
        assert_eq!(go_version("go1.26.8\n"), Some((1, 26)));
        assert_eq!(go_version("go1.27rc1\n"), Some((1, 27)));
        assert_eq!(go_version("devel +abc"), None);
    }

    #[test]
    fn finds_programs() {
        assert!(find_program("sh").is_some());
        assert!(find_program("no-such-program-anywhere").is_none());
    }
}

//! What the machine needs before a lab can run, and how it is had.

use crate::run::must;
use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Programs that the lab runs, each with the Debian package that has it.
const PROGRAMS: [(&str, &str); 13] = [
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
    ("find", "findutils"),
    ("flock", "util-linux"),
];

/// The oldest Go that builds the pinned Kubernetes.
const GO: (u32, u32) = (1, 26);

/// What the lab needs and this machine does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Debian packages that can be installed.
    pub packages: Vec<&'static str>,
    /// What a person has to do, one sentence each.
    pub asks: Vec<String>,
}

impl Missing {
    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.packages.is_empty() && self.asks.is_empty()
    }
}

/// Looks at the machine. Changes nothing.
pub fn missing() -> Missing {
    let mut packages: Vec<&'static str> =
        PROGRAMS.iter().filter(|(program, _)| find_program(program).is_none()).map(|(_, package)| *package).collect();
    packages.dedup();
    let mut asks = Vec::new();
    if !rustix::process::geteuid().is_root() {
        asks.push("the lab makes namespaces, cgroups and mounts: run it as root".to_owned());
    }
    if !packages.is_empty() && find_program("apt-get").is_none() {
        asks.push(format!("this machine has no apt-get: install what {} stand for on Debian", packages.join(", ")));
    }
    asks.extend(go_ask());
    if !Path::new("/sys/fs/cgroup").is_dir() {
        asks.push("there is no /sys/fs/cgroup: mount the control groups".to_owned());
    }
    Missing { packages, asks }
}

/// Installs the packages that are missing, by apt-get; an error says what a person has to do first.
pub fn ensure() -> Result<()> {
    let missing = missing();
    if !missing.asks.is_empty() {
        bail!("the lab cannot run on this machine yet:\n- {}", missing.asks.join("\n- "));
    }
    if missing.packages.is_empty() {
        return Ok(());
    }
    eprintln!("lab: installing {}", missing.packages.join(", "));
    let limit = Duration::from_secs(900);
    must(&mut apt_get(&["-q", "update"]), limit).context("the package lists could not be fetched")?;
    let mut words = vec!["-q", "-y", "--no-install-recommends", "install"];
    words.extend(&missing.packages);
    must(&mut apt_get(&words), limit).context("install these packages by hand, then run it again")?;
    Ok(())
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

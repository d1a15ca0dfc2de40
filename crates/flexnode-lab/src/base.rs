//! The tree of a fresh systemd host.

use crate::cache;
use crate::packages::mirror;
use crate::run::must;
use anyhow::Result;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const RECIPE: &str = "2";
const SUITE: &str = "trixie";
const PACKAGES: [&str; 18] = [
    "systemd",
    "systemd-sysv",
    "dbus",
    "udev",
    "kmod",
    "iproute2",
    "iptables",
    "nftables",
    "procps",
    "ca-certificates",
    "systemd-container",
    "busybox-static",
    "conntrack",
    "ethtool",
    "socat",
    "mount",
    "libseccomp2",
    "util-linux",
];

/// Units that do something of their own at a time of their own: a comparison of two moments should not meet them.
const MASKED: [&str; 10] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "systemd-tmpfiles-clean.timer",
    "console-getty.service",
    // It would announce the devices of the outer machine anew.
    "systemd-udev-trigger.service",
    // It would set sysctls of the outer machine's kernel, which are not the host's own.
    "systemd-sysctl.service",
];

/// What no program of a node reads: every host is a copy, and each file costs.
const LEFT_OUT: [&str; 6] =
    ["usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man", "usr/share/lintian", "var/lib/apt/lists"];

/// The tree to copy: Debian with systemd and what a node needs.
pub fn tree() -> Result<PathBuf> {
    let inputs = [RECIPE, SUITE, &PACKAGES.join(" "), &MASKED.join(" "), std::env::consts::ARCH];
    let folder = cache::entry("host", &inputs, "making the tree of a Debian host (some 80 s)", make)?;
    Ok(folder.join("tree"))
}

/// A busybox that needs no library, for images.
pub fn busybox() -> Result<PathBuf> {
    Ok(tree()?.join("usr/bin/busybox"))
}

fn make(into: &Path) -> Result<()> {
    let tree = into.join("tree");
    let mut command = Command::new("debootstrap");
    command
        .arg("--variant=minbase")
        .arg(format!("--include={}", PACKAGES.join(",")))
        .arg(SUITE)
        .arg(&tree)
        .arg(mirror()?);
    must(&mut command, Duration::from_secs(1800))?;
    for unit in MASKED {
        symlink("/dev/null", tree.join("etc/systemd/system").join(unit))?;
    }
    // Each host gets its own.
    fs::write(tree.join("etc/machine-id"), "")?;
    for folder in LEFT_OUT {
        cache::remove_tree(&tree.join(folder))?;
        fs::create_dir(tree.join(folder))?;
    }
    must(Command::new("chroot").arg(&tree).args(["apt-get", "clean"]), Duration::from_secs(60))?;
    Ok(())
}

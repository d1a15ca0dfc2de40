//! What every machine starts from: a kernel, the program that finds the root disk, and that disk.

use crate::packages::{Apt, Suite};
use crate::run::must;
use crate::{base, cache};
use anyhow::{Context as _, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const RECIPE: &str = "1";
const LIMIT: Duration = Duration::from_secs(300);
/// The kernel of Debian for machines in clouds: small, and most of what a virtual machine needs is built in.
const KERNEL: &str = "linux-image-cloud-amd64";
/// The one module that this kernel lacks to reach its root disk.
const DISK_MODULE: &str = "kernel/drivers/block/virtio_blk.ko.xz";
const SIZE: &str = "6G";
const AGENT: &str = include_str!("agent.sh");
const INIT: &str = include_str!("init.sh");
const UNIT: &str = "[Unit]
Description=The lab's commands on a virtio-serial port

[Service]
ExecStart=/etc/lab-agent
Restart=always
KillMode=process

[Install]
WantedBy=multi-user.target
";
/// Units that a container must not run, and a machine has to.
const UNMASKED: [&str; 2] = ["systemd-udev-trigger.service", "systemd-sysctl.service"];

/// The files of a cache entry.
#[derive(Clone, Debug)]
pub(super) struct Golden {
    folder: PathBuf,
}

impl Golden {
    /// Makes them, or takes them from the cache.
    pub fn get() -> Result<Self> {
        let (kernel, host) = (kernel()?, base::tree()?);
        let host_entry = host.parent().context("the host tree is in no entry")?;
        let name = |entry: &Path| entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let inputs = [RECIPE, &name(&kernel), &name(host_entry), AGENT, INIT, UNIT, &UNMASKED.join(" "), SIZE];
        let what = "making the disk of a machine (some 15 s)";
        let folder = cache::entry("machine", &inputs, what, |into| make(&kernel, &host, into))?;
        Ok(Self { folder })
    }

    /// Its name in the cache, which tells all that went into it.
    pub fn name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The kernel.
    pub fn kernel(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// The initial memory disk.
    pub fn initrd(&self) -> PathBuf {
        self.folder.join("initrd.gz")
    }

    /// The root disk, ext4 without partitions: to be copied.
    pub fn disk(&self) -> PathBuf {
        self.folder.join("disk.img")
    }
}

/// The kernel's unpacked package.
fn kernel() -> Result<PathBuf> {
    let inputs = [RECIPE, KERNEL, Suite::Trixie.name()];
    cache::entry("machine-kernel", &inputs, "fetching the kernel of a machine", |into| {
        let apt = Apt::new(Suite::Trixie, &into.join(".apt"))?;
        let stanza = apt.show(KERNEL)?;
        let package = current(&stanza).with_context(|| format!("{KERNEL} names no kernel"))?;
        for archive in apt.download(&[package])? {
            must(Command::new("dpkg").arg("-x").arg(archive).arg(into.join("tree")), LIMIT)?;
        }
        fs::remove_dir_all(into.join(".apt"))?;
        Ok(())
    })
}

/// The package that a package without content depends on: `linux-image-6.12.90+deb13-cloud-amd64`.
fn current(stanza: &str) -> Option<&str> {
    let depends = stanza.lines().find_map(|line| line.strip_prefix("Depends:"))?;
    depends.split([' ', ',']).find(|word| word.starts_with("linux-image-"))
}

fn make(kernel: &Path, host: &Path, into: &Path) -> Result<()> {
    let (kernel, tree) = (kernel.join("tree"), into.join("tree"));
    must(Command::new("cp").args(["-a", "--reflink=auto", "--"]).arg(host).arg(&tree), LIMIT)?;
    let modules = tree.join("usr/lib/modules");
    must(Command::new("cp").args(["-a", "--reflink=auto", "--"]).arg(modules_of(&kernel)).arg(&modules), LIMIT)?;
    let release = only(&modules)?;
    must(
        Command::new("chroot").arg(&tree).arg("depmod").arg("-a").arg(release.file_name().unwrap_or_default()),
        LIMIT,
    )?;
    let image = fs::read_dir(kernel.join("boot"))?.flatten().map(|file| file.path());
    let image = image.into_iter().find(|path| path.to_string_lossy().contains("/vmlinuz-"));
    fs::copy(image.context("the kernel's package has no kernel")?, into.join("vmlinuz"))?;
    make_initrd(&tree, &release.join(DISK_MODULE), into).context("cannot make the initial memory disk")?;
    make_guest(&tree)?;
    let mut command = Command::new("mkfs.ext4");
    command.args(["-q", "-F", "-L", "root", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-d"]);
    must(command.arg(&tree).arg(into.join("disk.img")).arg(SIZE), LIMIT)?;
    cache::remove_tree(&tree)
}

fn modules_of(kernel: &Path) -> PathBuf {
    let merged = kernel.join("usr/lib/modules");
    if merged.is_dir() { merged } else { kernel.join("lib/modules") }
}

fn only(folder: &Path) -> Result<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    match entries.as_slice() {
        [one] => Ok(one.clone()),
        _ => bail!("{} has {} entries instead of one", folder.display(), entries.len()),
    }
}

/// busybox, one module and a script: nothing else stands between this kernel and its root disk.
fn make_initrd(tree: &Path, module: &Path, into: &Path) -> Result<()> {
    let (root, busybox) = (into.join("initrd"), tree.join("usr/bin/busybox"));
    for folder in ["bin", "proc", "sys", "dev", "root"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::copy(&busybox, root.join("bin/busybox"))?;
    write(&root.join("init"), INIT, 0o755)?;
    let script = "\"$1\" xz -dc \"$2\" >virtio_blk.ko && find . | \"$1\" cpio -o -H newc >../initrd.cpio";
    let mut command = Command::new("sh");
    must(command.args(["-ec", script, "sh"]).arg(&busybox).arg(module).current_dir(&root), LIMIT)?;
    let mut packed = GzEncoder::new(File::create(into.join("initrd.gz"))?, Compression::fast());
    packed.write_all(&fs::read(into.join("initrd.cpio"))?)?;
    packed.finish()?;
    fs::remove_file(into.join("initrd.cpio"))?;
    cache::remove_tree(&root)
}

/// What makes the tree a guest: its network, a console for people, the lab's commands.
fn make_guest(tree: &Path) -> Result<()> {
    let units = tree.join("etc/systemd/system");
    for unit in UNMASKED {
        fs::remove_file(units.join(unit))?;
    }
    fs::write(tree.join("etc/machine-id"), "")?;
    fs::write(tree.join("etc/fstab"), "# Nothing but the root disk.\n")?;
    fs::write(tree.join("etc/resolv.conf"), "# there is no name server in the lab\n")?;
    // A login on the console without a password: it is a file on this machine, and leads nowhere else.
    let accounts = fs::read_to_string(tree.join("etc/shadow"))?;
    let open = accounts.lines().map(|line| match line.strip_prefix("root:").and_then(|rest| rest.split_once(':')) {
        Some((_, rest)) => format!("root::{rest}\n"),
        None => format!("{line}\n"),
    });
    fs::write(tree.join("etc/shadow"), open.collect::<String>())?;
    write(&tree.join("etc/lab-agent"), AGENT, 0o755)?;
    fs::write(units.join("lab-agent.service"), UNIT)?;
    let wants = units.join("multi-user.target.wants");
    fs::create_dir_all(&wants)?;
    fs::create_dir_all(tree.join("srv"))?;
    for (unit, file) in [
        ("lab-agent.service", "/etc/systemd/system/lab-agent.service"),
        ("systemd-networkd.service", "/usr/lib/systemd/system/systemd-networkd.service"),
    ] {
        let link = wants.join(unit);
        if link.symlink_metadata().is_err() {
            symlink(file, link)?;
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::current;

    #[test]
    fn the_kernel_behind_a_package_without_content() {
        let stanza =
            "Package: linux-image-cloud-amd64\nDepends: linux-image-6.12.90+deb13-cloud-amd64 (= 6.12.90-1), x\n";
        assert_eq!(current(stanza), Some("linux-image-6.12.90+deb13-cloud-amd64"));
        assert_eq!(current("Package: x\n"), None);
    }
}

//! A disk's file system, looked at from outside: its journal is played and it is checked, then mounted so that nobody
//! writes to it; all of that can be undone.

use crate::poll;
use crate::run::{Input, Output, must, run};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_millis(20);
/// e2fsck(8): errors were corrected, which playing the journal may count as.
const CORRECTED: i32 = 1;

/// A disk whose file system was mended as a boot would do it, and is mounted. Dropping it leaves it as it is: [`Mounted::undo`].
#[derive(Debug)]
pub struct Mounted {
    image: PathBuf,
    undo: PathBuf,
    at: PathBuf,
    is_there: bool,
    device: Option<PathBuf>,
}

/// What is wrong with a file system: what the checker said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(pub String);

impl Mounted {
    /// Plays the journal of `image`, checks its file system, and mounts it read-only at `at`, which is made. `undo` is a
    /// file for what the first one changed. The inner error is what is wrong with the disk; it is undone already.
    pub fn new(image: &Path, undo: &Path, at: &Path) -> Result<Result<Self, Broken>> {
        if undo.exists() {
            fs::remove_file(undo)?;
        }
        fs::create_dir_all(at)?;
        let mut this =
            Self { image: image.to_owned(), undo: undo.to_owned(), at: at.to_owned(), is_there: false, device: None };
        let mut mend = Command::new("e2fsck");
        mend.arg("-p").arg("-z").arg(undo).arg(image);
        let mended = run(&mut mend, Input::Empty, LIMIT)?;
        if mended.code != 0 && mended.code != CORRECTED {
            return this.broken(&mended);
        }
        let checked = run(Command::new("e2fsck").args(["-f", "-n"]).arg(image), Input::Empty, LIMIT)?;
        if checked.code != 0 {
            return this.broken(&checked);
        }
        this.attach()?;
        Ok(Ok(this))
    }

    /// Mounts the image through a block device of its own. `mount -o loop` would take one that an earlier mount of this
    /// file left behind, with what that one had in memory.
    fn attach(&mut self) -> Result<()> {
        let attached = must(Command::new("losetup").args(["--find", "--show", "--read-only"]).arg(&self.image), LIMIT)?;
        self.device = Some(PathBuf::from(attached.trim()));
        must(Command::new("blockdev").arg("--flushbufs").arg(attached.trim()), LIMIT)?;
        let mut mount = Command::new("mount");
        must(mount.args(["-t", "ext4", "-o", "ro,noload", attached.trim()]).arg(&self.at), LIMIT)?;
        self.is_there = true;
        Ok(())
    }

    /// Where it is mounted.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Unmounts it and puts back what playing the journal changed.
    pub fn undo(mut self) -> Result<()> {
        self.unmount()?;
        self.put_back()
    }

    fn broken(&self, output: &Output) -> Result<Result<Self, Broken>> {
        self.put_back()?;
        Ok(Err(Broken(format!("e2fsck ended with {}: {}{}", output.code, output.stdout, output.stderr))))
    }

    fn unmount(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_there) {
            // A program that another thread is just starting has this one's open files until it runs.
            poll(LIMIT, SOON, "the image to be unmounted", || {
                must(Command::new("umount").arg(&self.at), LIMIT).map(|_| Some(()))
            })?;
        }
        if let Some(device) = self.device.take() {
            must(Command::new("losetup").arg("--detach").arg(&device), LIMIT)?;
            // Somebody who looks at new devices may hold it open for a moment.
            poll(LIMIT, SOON, "the image's block device to go", || {
                let left = must(Command::new("losetup").arg("--associated").arg(&self.image), LIMIT)?;
                Ok(left.trim().is_empty().then_some(()))
            })?;
        }
        Ok(())
    }

    fn put_back(&self) -> Result<()> {
        // Without a change there is no file.
        if self.undo.exists() {
            must(Command::new("e2undo").arg(&self.undo).arg(&self.image), LIMIT)?;
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("lab: {error:#}");
        }
    }
}

/// Unmounts what a killed run left below a directory, and detaches the block devices of images there.
pub fn unmount_below(folder: &Path) -> Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("cannot read the mounts")?;
    for place in table.lines().filter_map(|line| line.split(' ').nth(4)) {
        if place.contains('\\') || !Path::new(place).starts_with(folder) {
            continue;
        }
        must(Command::new("umount").arg(place), LIMIT)?;
    }
    let devices =
        must(Command::new("losetup").args(["--list", "--noheadings", "--raw", "--output", "NAME,BACK-FILE"]), LIMIT)?;
    for (device, file) in devices.lines().filter_map(|line| line.split_once(' ')) {
        if Path::new(file).starts_with(folder) {
            must(Command::new("losetup").arg("--detach").arg(device), LIMIT)?;
        }
    }
    if fs::read_to_string("/proc/self/mountinfo")?.lines().any(|line| line.contains(&*folder.to_string_lossy())) {
        bail!("something below {} is still mounted", folder.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prerequisites::find_program;

    fn image(folder: &Path) -> PathBuf {
        let image = folder.join("image");
        let mut make = Command::new(find_program("mkfs.ext4").expect("mkfs.ext4 of e2fsprogs"));
        must(make.args(["-q", "-F"]).arg(&image).arg("8M"), LIMIT).unwrap();
        image
    }

    /// Mounting takes root; what is found before it does not.
    #[test]
    fn a_broken_file_system_is_told_and_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let image = image(folder.path());
        let mut bytes = fs::read(&image).unwrap();
        // The superblock is whole; what it says of its groups is not.
        bytes[4096..200 * 1024].fill(0xff);
        fs::write(&image, &bytes).unwrap();
        let seen = Mounted::new(&image, &folder.path().join("undo"), &folder.path().join("at")).unwrap();
        let told = seen.unwrap_err().0;
        assert!(told.starts_with("e2fsck ended with "), "{told}");
        assert!(fs::read(&image).unwrap() == bytes, "the image was changed");
    }
}

//! The mount table (proc_pid_mountinfo(5)), and unmounting that cannot hang.
//!
//! Unmounting a file system whose server is gone may block in the kernel for ever, where no signal reaches. So it is
//! done in a child: a fork that makes the one system call and ends, see [`crate::sys::unmount_child`]. The program
//! umount(8) would do as a child too, but it resolves links in the path when it runs as root; the system call with
//! `UMOUNT_NOFOLLOW` does not. Running this program again needs a hidden command in each program that links this crate.

use crate::{HostError, MountPoint, Mounts, processes, sys};
use async_trait::async_trait;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The mounts of this process's namespace.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealMounts;

/// A line of mountinfo with what only other modules of this crate need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountLine {
    pub(crate) mount: MountPoint,
    /// `major:minor` of the file system.
    pub(crate) device: String,
    /// Options of the file system, as for cgroup v1 its controllers.
    pub(crate) fs_options: Vec<String>,
}

/// Undoes the octal escapes (`\040`) of the files in /proc.
pub(crate) fn unescape(text: &[u8]) -> OsString {
    let digit = |at: usize| text.get(at).filter(|b| (b'0'..=b'7').contains(b)).map(|b| u32::from(b - b'0'));
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let octal = match (text[at], digit(at + 1), digit(at + 2), digit(at + 3)) {
            (b'\\', Some(a), Some(b), Some(c)) => u8::try_from(a * 64 + b * 8 + c).ok(),
            _ => None,
        };
        plain.push(octal.unwrap_or(text[at]));
        at += if octal.is_some() { 4 } else { 1 };
    }
    OsString::from_vec(plain)
}

/// Parses one line: `id parent major:minor root path options [tags] - type source fs-options`.
fn parse_line(line: &[u8]) -> Option<MountLine> {
    let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    let plain = |at: usize| fields.get(at).map(|field| unescape(field));
    let text = |at: usize| plain(at).map(|field| field.to_string_lossy().into_owned());
    let options: Vec<String> = text(5)?.split(',').map(str::to_owned).collect();
    let fs_options: Vec<String> = text(dash + 3).unwrap_or_default().split(',').map(str::to_owned).collect();
    let has = |list: &[String], name: &str| list.iter().any(|option| option == name);
    Some(MountLine {
        mount: MountPoint {
            id: text(0)?.parse().ok()?,
            root: PathBuf::from(plain(3)?),
            path: PathBuf::from(plain(4)?),
            kind: text(dash + 1)?,
            source: text(dash + 2)?,
            read_only: has(&options, "ro") || has(&fs_options, "ro"),
            no_exec: has(&options, "noexec"),
        },
        device: text(2)?,
        fs_options,
    })
}

/// The lines that can be read; a form of line that a later kernel adds is left out.
pub(crate) fn parse(mountinfo: &[u8]) -> Vec<MountLine> {
    mountinfo.split(|b| *b == b'\n').filter_map(parse_line).collect()
}

pub(crate) fn read() -> Result<Vec<MountLine>, HostError> {
    let text = std::fs::read("/proc/self/mountinfo");
    let failed =
        |e: std::io::Error| HostError::Failed { what: "read the mount table".to_owned(), reason: e.to_string() };
    Ok(parse(&text.map_err(failed)?))
}

fn failed(path: &Path, error: Errno) -> HostError {
    HostError::Failed { what: format!("unmount {}", path.display()), reason: error.to_string() }
}

/// One umount2(2) in a child; `Ok(None)` when the deadline passed.
async fn attempt(path: &Path, flags: UnmountFlags, deadline: Duration) -> Result<Option<Result<(), Errno>>, HostError> {
    let io =
        |e: std::io::Error| HostError::Failed { what: format!("unmount {}", path.display()), reason: e.to_string() };
    let child = sys::unmount_child(path, flags).map_err(io)?;
    let watch = child.watch().map_err(io)?;
    if processes::ended(watch, deadline).await.map_err(io)? {
        return Ok(Some(child.result().map_err(io)?));
    }
    child.kill();
    Ok(None)
}

#[async_trait]
impl Mounts for RealMounts {
    fn list(&self) -> Result<Vec<MountPoint>, HostError> {
        Ok(read()?.into_iter().map(|line| line.mount).collect())
    }

    async fn unmount(&self, path: &Path, deadline: Duration) -> Result<(), HostError> {
        let absent = || HostError::Absent { what: format!("mount {}", path.display()) };
        if !read()?.iter().any(|line| line.mount.path == path) {
            return Err(absent());
        }
        match attempt(path, UnmountFlags::NOFOLLOW, deadline).await? {
            Some(Ok(())) => return Ok(()),
            Some(Err(Errno::INVAL | Errno::NOENT)) => return Err(absent()),
            // Busy, or it does not answer: it is taken out of the tree now and ends when the last user does.
            Some(Err(Errno::BUSY)) | None => {}
            Some(Err(e)) => return Err(failed(path, e)),
        }
        match attempt(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH, deadline).await? {
            // Not mounted any more: the first attempt came through after all.
            Some(Ok(()) | Err(Errno::INVAL | Errno::NOENT)) => Ok(()),
            Some(Err(e)) => Err(failed(path, e)),
            None => Err(HostError::Deadline { what: format!("unmounting {}", path.display()), after: deadline }),
        }
    }
}

/// Detaches whatever is mounted at `path`, lazily and without following links: for the name of a network namespace,
/// whose file system (nsfs) never waits for anything. `Ok(false)` when nothing was mounted.
pub(crate) fn detach(path: &Path) -> Result<bool, Errno> {
    match rustix::mount::unmount(path.as_os_str().as_bytes(), UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_with_their_escapes_and_tags() {
        let text = b"36 35 98:0 /mnt1 /mnt\\0402\\134x rw,noatime,noexec master:1 shared:3 - ext3 /dev/ro\\011ot ro,errors=continue\n\
            31 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\nnonsense\n1 2 3 - x\n";
        let lines = parse(text);
        let want = MountPoint {
            id: 36,
            path: PathBuf::from("/mnt 2\\x"),
            kind: "ext3".to_owned(),
            source: "/dev/ro\tot".to_owned(),
            root: PathBuf::from("/mnt1"),
            read_only: true,
            no_exec: true,
        };
        assert_eq!((lines.len(), &lines[0].mount, lines[0].device.as_str()), (2, &want, "98:0"));
        assert_eq!(lines[1].fs_options, ["rw", "cpu", "cpuacct"]);
        assert!(!lines[1].mount.read_only && !lines[1].mount.no_exec);
    }

    #[test]
    fn half_escapes_stay() {
        for (text, plain) in [("\\04", "\\04"), ("\\", "\\"), ("a\\0b", "a\\0b"), ("\\777", "\\777"), ("\\101", "A")] {
            assert_eq!(unescape(text.as_bytes()), plain, "{text}");
        }
    }

    #[test]
    fn the_table_of_this_machine_can_be_read() {
        let mounts = RealMounts.list().unwrap();
        assert!(mounts.iter().any(|mount| mount.path == Path::new("/proc") && mount.kind == "proc"));
        assert!(mounts.iter().any(|mount| mount.path == Path::new("/")));
    }

    #[tokio::test]
    async fn what_is_not_mounted_is_absent() {
        let dir = tempfile::tempdir().unwrap();
        let error = RealMounts.unmount(dir.path(), Duration::from_secs(1)).await.unwrap_err();
        assert!(matches!(error, HostError::Absent { .. }), "{error}");
        // The child's own answer: EINVAL as root, EPERM for others.
        let answer = attempt(dir.path(), UnmountFlags::NOFOLLOW, Duration::from_secs(10)).await.unwrap();
        assert!(matches!(answer, Some(Err(Errno::INVAL | Errno::PERM))), "{answer:?}");
    }
}

//! The file system of the machine, or a tree of it.

use crate::{DirEntry, FileKind, FileWriter, Fs, FsError, Stat};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Access, AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};
use rustix::fs::{Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How often an `openat2` that a rename raced with is tried again.
const RACES: usize = 64;

/// The longest value of an extended attribute (xattr(7)).
const XATTR_MAX: usize = 64 * 1024;

/// The real file system below a root directory.
///
/// Every path is resolved beneath the root as after a chroot(2), by openat2(2) with `RESOLVE_IN_ROOT`: absolute links
/// and `..` stay inside. The last component is then named relative to its directory's descriptor. For the root `/` the
/// plain system calls do the same.
#[derive(Debug)]
pub struct RealFs {
    /// `None` for `/`.
    root: Option<OwnedFd>,
}

/// A path taken apart: an open directory, and a name in it.
struct Place {
    dir: OwnedFd,
    name: OsString,
}

impl RealFs {
    /// The whole machine.
    pub fn host() -> Self {
        Self { root: None }
    }

    /// The tree at `root`, which must be a directory; a link to one is followed.
    pub fn new(root: &Path) -> Result<Self, FsError> {
        if root == Path::new("/") {
            return Ok(Self::host());
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty()).map_err(|e| FsError::new("open", root, e.into()))?;
        Ok(Self { root: Some(root) })
    }

    fn open_at(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        if !path.is_absolute() {
            return Err(Errno::INVAL);
        }
        let Some(root) = &self.root else { return rustix::fs::openat(CWD, path, flags, Mode::empty()) };
        for _ in 0..RACES {
            match rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                // A rename or mount elsewhere came in between; openat2(2) asks to try again.
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    fn place(&self, path: &Path) -> Result<Place, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match (path.parent(), path.file_name()) {
            (Some(dir), Some(name)) => Ok(Place { dir: self.open_at(dir, flags)?, name: name.to_owned() }),
            _ => Ok(Place { dir: self.open_at(path, flags)?, name: OsString::from(".") }),
        }
    }

    /// An `O_PATH` descriptor of the path itself.
    fn itself(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let place = self.place(path)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&place.dir, &place.name, flags, Mode::empty())
    }

    /// Where `fd` lies in the machine.
    fn location(fd: &OwnedFd) -> Result<PathBuf, Errno> {
        let text = rustix::fs::readlinkat(CWD, by_fd(fd), Vec::new())?;
        Ok(PathBuf::from(OsStr::from_bytes(text.to_bytes())))
    }
}

/// A path to the very object of a descriptor, also of an `O_PATH` one (proc_pid_fd(5)).
fn by_fd(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

fn kind_of(kind: FileType) -> FileKind {
    match kind {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Dir,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
    }
}

fn stat_at(dir: impl AsFd, name: &OsStr, flags: AtFlags) -> Result<Stat, Errno> {
    let x = rustix::fs::statx(dir, name, flags | AtFlags::NO_AUTOMOUNT, StatxFlags::BASIC_STATS)?;
    Ok(Stat {
        kind: kind_of(FileType::from_raw_mode(u32::from(x.stx_mode))),
        mode: u32::from(x.stx_mode) & 0o7777,
        uid: x.stx_uid,
        gid: x.stx_gid,
        size: x.stx_size,
        dev: rustix::fs::makedev(x.stx_dev_major, x.stx_dev_minor),
        ino: x.stx_ino,
        mtime_ns: i128::from(x.stx_mtime.tv_sec) * 1_000_000_000 + i128::from(x.stx_mtime.tv_nsec),
        mount_root: x.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
    })
}

fn stat_fd(fd: impl AsFd) -> Result<Stat, Errno> {
    stat_at(fd, OsStr::new(""), AtFlags::EMPTY_PATH)
}

fn none_if_absent(result: Result<Stat, Errno>) -> Result<Option<Stat>, Errno> {
    match result {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Gives what `fd` is open on exactly this mode: the umask and a set-group-ID directory have their say at creation.
fn exact_mode(fd: &OwnedFd, mode: u32) -> Result<(), Errno> {
    if stat_fd(fd)?.mode == mode { Ok(()) } else { rustix::fs::fchmod(fd, Mode::from_raw_mode(mode)) }
}

fn named<T>(op: &'static str, path: &Path, result: Result<T, Errno>) -> Result<T, FsError> {
    result.map_err(|e| FsError::new(op, path, e.into()))
}

impl Fs for RealFs {
    fn lstat(&self, path: &Path) -> Result<Option<Stat>, FsError> {
        let stat = |place: Place| stat_at(&place.dir, &place.name, AtFlags::SYMLINK_NOFOLLOW);
        named("stat", path, none_if_absent(self.place(path).and_then(stat)))
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>, FsError> {
        named("stat", path, none_if_absent(self.open_at(path, OFlags::PATH).and_then(stat_fd)))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Read + Send>, FsError> {
        // Without O_NONBLOCK the opening of a pipe waits for its writer.
        let open = || {
            let fd = self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
            match stat_fd(&fd)?.kind {
                FileKind::File => Ok(fd),
                FileKind::Dir => Err(Errno::ISDIR),
                _ => Err(Errno::NXIO),
            }
        };
        Ok(Box::new(File::from(named("open", path, open())?)))
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf, FsError> {
        let read = |place: Place| rustix::fs::readlinkat(&place.dir, &place.name, Vec::new());
        let text = named("read link", path, self.place(path).and_then(read))?;
        Ok(PathBuf::from(OsStr::from_bytes(text.to_bytes())))
    }

    fn canonicalize(&self, path: &Path) -> Result<PathBuf, FsError> {
        let resolve = || {
            let fd = self.open_at(path, OFlags::PATH)?;
            let location = Self::location(&fd)?;
            let inside = match &self.root {
                None => location,
                Some(root) => {
                    let below = location.strip_prefix(Self::location(root)?).map_err(|_| Errno::XDEV)?;
                    Path::new("/").join(below)
                }
            };
            // The kernel adds " (deleted)" to what was removed meanwhile.
            let (now, opened) = (self.itself(&inside).and_then(stat_fd)?, stat_fd(&fd)?);
            if (now.dev, now.ino) == (opened.dev, opened.ino) { Ok(inside) } else { Err(Errno::NOENT) }
        };
        named("resolve", path, resolve())
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>, FsError> {
        let list = || {
            let fd = self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
            let mut entries = Vec::new();
            for entry in Dir::read_from(&fd)? {
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
                if name == "." || name == ".." {
                    continue;
                }
                let kind = match entry.file_type() {
                    FileType::Unknown => match none_if_absent(stat_at(&fd, &name, AtFlags::SYMLINK_NOFOLLOW))? {
                        Some(stat) => stat.kind,
                        None => continue,
                    },
                    known => kind_of(known),
                };
                entries.push(DirEntry { name, kind });
            }
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(entries)
        };
        named("list", path, list())
    }

    fn create(&self, path: &Path, mode: u32) -> Result<Box<dyn FileWriter>, FsError> {
        let create = || {
            let place = self.place(path)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(&place.dir, &place.name, flags, Mode::from_raw_mode(mode & 0o777))?;
            exact_mode(&fd, mode & 0o7777)?;
            Ok(fd)
        };
        Ok(Box::new(Writer(File::from(named("create", path, create())?))))
    }

    fn mkdir(&self, path: &Path, mode: u32) -> Result<(), FsError> {
        let make = || {
            let place = self.place(path)?;
            rustix::fs::mkdirat(&place.dir, &place.name, Mode::from_raw_mode(mode & 0o777))?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(&place.dir, &place.name, flags, Mode::empty())?;
            // Not `fchmod`: reading the new directory may not be allowed by its mode.
            if stat_fd(&fd)?.mode == mode & 0o7777 {
                return Ok(());
            }
            rustix::fs::chmodat(CWD, by_fd(&fd), Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())
        };
        named("make directory", path, make())
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<(), FsError> {
        let link = |place: Place| rustix::fs::symlinkat(target, &place.dir, &place.name);
        named("make link", path, self.place(path).and_then(link))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        let old = named("rename", from, self.place(from))?;
        let new = named("rename to", to, self.place(to))?;
        named("rename to", to, rustix::fs::renameat(&old.dir, &old.name, &new.dir, &new.name))
    }

    fn unlink(&self, path: &Path) -> Result<(), FsError> {
        let unlink = |place: Place| rustix::fs::unlinkat(&place.dir, &place.name, AtFlags::empty());
        named("remove", path, self.place(path).and_then(unlink))
    }

    fn rmdir(&self, path: &Path) -> Result<(), FsError> {
        let rmdir = |place: Place| rustix::fs::unlinkat(&place.dir, &place.name, AtFlags::REMOVEDIR);
        named("remove", path, self.place(path).and_then(rmdir))
    }

    fn chmod(&self, path: &Path, mode: u32) -> Result<(), FsError> {
        let chmod = || {
            let fd = self.itself(path)?;
            if stat_fd(&fd)?.kind == FileKind::Link {
                return Err(Errno::OPNOTSUPP);
            }
            rustix::fs::chmodat(CWD, by_fd(&fd), Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())
        };
        named("set mode of", path, chmod())
    }

    fn chown(&self, path: &Path, uid: u32, gid: u32) -> Result<(), FsError> {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        let chown = |place: Place| rustix::fs::chownat(&place.dir, &place.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
        named("set owner of", path, self.place(path).and_then(chown))
    }

    fn sync_file(&self, path: &Path) -> Result<(), FsError> {
        let sync = || {
            let fd = self.open_at(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
            if stat_fd(&fd)?.kind == FileKind::File { rustix::fs::fsync(&fd) } else { Err(Errno::ISDIR) }
        };
        named("sync", path, sync())
    }

    fn sync_dir(&self, path: &Path) -> Result<(), FsError> {
        let sync = || match rustix::fs::fsync(self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?) {
            // fsync(2): this file system has no sync of directories, so there is nothing to wait for.
            Err(Errno::INVAL) => Ok(()),
            other => other,
        };
        named("sync", path, sync())
    }

    fn get_xattr(&self, path: &Path, name: &str) -> Result<Option<Vec<u8>>, FsError> {
        let get = || {
            let fd = self.itself(path)?;
            let mut value = vec![0; 256];
            loop {
                match rustix::fs::getxattr(by_fd(&fd), name, value.as_mut_slice()) {
                    Ok(length) => {
                        value.truncate(length);
                        return Ok(Some(value));
                    }
                    Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
                    Err(Errno::RANGE) if value.len() < XATTR_MAX => value.resize(XATTR_MAX, 0),
                    Err(e) => return Err(e),
                }
            }
        };
        named("read attribute of", path, get())
    }

    fn set_xattr(&self, path: &Path, name: &str, value: &[u8]) -> Result<(), FsError> {
        let set = |fd: OwnedFd| rustix::fs::setxattr(by_fd(&fd), name, value, XattrFlags::empty());
        named("set attribute of", path, self.itself(path).and_then(set))
    }

    fn writable(&self, path: &Path) -> Result<bool, FsError> {
        let fd = named("check access to", path, self.open_at(path, OFlags::PATH))?;
        match rustix::fs::accessat(CWD, by_fd(&fd), Access::WRITE_OK, AtFlags::EACCESS) {
            Ok(()) => Ok(true),
            Err(Errno::ACCESS | Errno::ROFS | Errno::PERM) => Ok(false),
            Err(e) => named("check access to", path, Err(e)),
        }
    }

    fn free_bytes(&self, path: &Path) -> Result<u64, FsError> {
        let stat = self.open_at(path, OFlags::PATH).and_then(rustix::fs::fstatvfs);
        let stat = named("ask for free space of", path, stat)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

/// A regular file that is open for writing.
struct Writer(File);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl FileWriter for Writer {
    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::{self, Change};
    use crate::testing::{Tree, fs_suite};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tempfile::TempDir;

    /// A file system over a directory of its own, which goes when it is dropped.
    #[derive(Debug)]
    struct InTemp(RealFs, #[allow(dead_code)] TempDir);

    fn in_temp() -> InTemp {
        let dir = tempfile::tempdir().unwrap();
        InTemp(RealFs::new(dir.path()).unwrap(), dir)
    }

    #[test]
    fn the_suite_of_every_file_system() {
        for (name, case) in fs_suite::CASES {
            println!("case {name}");
            let temp = in_temp();
            case(&temp.0);
        }
    }

    #[test]
    fn the_root_of_the_machine_needs_no_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("f");
        let fs = RealFs::new(Path::new("/")).unwrap();
        assert_eq!(durable::write(&fs, &path, b"x", 0o600).unwrap(), Change::Made);
        assert_eq!(fs.read(&path, 9).unwrap().unwrap(), b"x");
        assert_eq!(fs.canonicalize(&path).unwrap(), path);
        assert_eq!(fs.read_link(Path::new("/proc/self/exe")).unwrap(), std::env::current_exe().unwrap());
        assert!(fs.lstat(Path::new("/proc")).unwrap().unwrap().mount_root);
        assert!(!fs.writable(Path::new("/proc/version")).unwrap() || rustix::process::geteuid().is_root());
    }

    #[test]
    fn a_link_out_of_the_tree_leads_into_it() {
        let temp = in_temp();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "outside").unwrap();
        symlink(outside.path(), temp.1.path().join("out")).unwrap();
        assert!(temp.0.open(Path::new("/out/secret")).is_err());
        assert_eq!(temp.0.stat(Path::new("/out")).unwrap(), None);
        durable::remove_tree(&temp.0, Path::new("/out")).unwrap();
        assert_eq!(std::fs::read(outside.path().join("secret")).unwrap(), b"outside");
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let temp = in_temp();
        let path = temp.1.path().join("pipe");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert_eq!(
            temp.0.open(Path::new("/pipe")).err().unwrap().source.raw_os_error(),
            Some(Errno::NXIO.raw_os_error())
        );
        assert_eq!(temp.0.lstat(Path::new("/pipe")).unwrap().unwrap().kind, FileKind::Other);
        assert!(durable::write(&temp.0, Path::new("/pipe"), b"x", 0o600).is_err());
        assert_eq!(durable::remove_file(&temp.0, Path::new("/pipe")).unwrap(), Change::Made);
    }

    #[test]
    fn a_set_group_id_directory_does_not_change_the_mode() {
        let temp = in_temp();
        let dir = temp.1.path().join("d");
        std::fs::create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o2775)).unwrap();
        durable::ensure_dir(&temp.0, Path::new("/d/sub"), 0o750).unwrap();
        assert_eq!(temp.0.lstat(Path::new("/d/sub")).unwrap().unwrap().mode, 0o750);
    }

    #[test]
    fn a_second_write_touches_nothing() {
        let temp = in_temp();
        durable::write(&temp.0, Path::new("/f"), b"x", 0o640).unwrap();
        durable::replace_link(&temp.0, Path::new("f"), Path::new("/link")).unwrap();
        let before = Tree::read(&temp.0, Path::new("/"), true).unwrap();
        durable::write(&temp.0, Path::new("/f"), b"x", 0o640).unwrap();
        durable::replace_link(&temp.0, Path::new("f"), Path::new("/link")).unwrap();
        assert_eq!(before.difference(&Tree::read(&temp.0, Path::new("/"), true).unwrap()), Vec::<String>::new());
    }
}

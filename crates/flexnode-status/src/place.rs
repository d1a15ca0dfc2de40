//! Where the status file of this process lies, and whether the directory can be trusted.

use crate::file::StatusFileError;
use flexnode_host::{FileKind, Fs as _, RealFs, Stat};
use std::path::{Path, PathBuf};

/// The directory of root's file; systemd makes it as the service's RuntimeDirectory.
pub const RUN_DIR: &str = "/run/aks-flex-node";
/// The file's name.
pub const FILE: &str = "status.json";
/// Mode of root's directory where it has to be made, as the original makes it.
const ROOT_DIR_MODE: u32 = 0o750;
/// Mode of a user's directory.
const OWN_DIR_MODE: u32 = 0o700;

/// What the choice of the path depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// Effective user.
    pub uid: u32,
    /// `XDG_RUNTIME_DIR`, when it is a directory of this user's own with mode 0700.
    pub runtime_dir: Option<PathBuf>,
}

impl Places {
    pub fn of_process() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| is_own(dir, uid));
        Self { uid, runtime_dir }
    }

    pub fn status_file(&self) -> PathBuf {
        let dir = match (&self.runtime_dir, self.uid) {
            (_, 0) => PathBuf::from(RUN_DIR),
            (Some(dir), _) => dir.join("aks-flex-node"),
            (None, uid) => PathBuf::from(format!("/tmp/aks-flex-node-{uid}")),
        };
        dir.join(FILE)
    }
}

fn is_own(dir: &Path, uid: u32) -> bool {
    let stat = if dir.is_absolute() { RealFs::host().lstat(dir).ok().flatten() } else { None };
    stat.is_some_and(|s| s.kind == FileKind::Dir && s.uid == uid && s.mode & 0o777 == 0o700)
}

/// Makes the directory of a status file when it is missing, and refuses one that somebody else could write in.
pub(crate) fn ensure_dir(dir: &Path) -> Result<(), StatusFileError> {
    let fs = RealFs::host();
    let mode = if rustix::process::geteuid().is_root() { ROOT_DIR_MODE } else { OWN_DIR_MODE };
    if fs.lstat(dir)?.is_none() {
        // The parents are the system's or the user's; making them is not ours. In /tmp another user can be faster: what
        // is there then is judged below like any other.
        match fs.mkdir(dir, mode) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(e.into()),
            _ => {}
        }
    }
    check_dir(dir)
}

/// Refuses a directory that is a link, belongs to another user, or can be written by others. Absent is fine.
pub(crate) fn check_dir(dir: &Path) -> Result<(), StatusFileError> {
    let Some(stat) = RealFs::host().lstat(dir)? else { return Ok(()) };
    if stat.kind != FileKind::Dir {
        return Err(untrusted(dir, format!("it is a {}, no directory", stat.kind), format!("rm {}", dir.display())));
    }
    check_owner(dir, &stat)
}

/// Refuses what belongs to another user than this one or root, or can be written by others.
pub(crate) fn check_owner(path: &Path, stat: &Stat) -> Result<(), StatusFileError> {
    let me = rustix::process::geteuid().as_raw();
    let shown = path.display();
    if stat.uid != me && stat.uid != 0 {
        return Err(untrusted(path, format!("it belongs to user {}", stat.uid), format!("chown {me} {shown}")));
    }
    if stat.mode & 0o022 != 0 {
        return Err(untrusted(
            path,
            format!("others may write it (mode {:o})", stat.mode),
            format!("chmod go-w {shown}"),
        ));
    }
    Ok(())
}

pub(crate) fn untrusted(path: &Path, problem: String, mend: String) -> StatusFileError {
    StatusFileError::Untrusted { path: path.to_path_buf(), problem, mend }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn path(uid: u32, runtime_dir: Option<&str>) -> String {
        let places = Places { uid, runtime_dir: runtime_dir.map(PathBuf::from) };
        places.status_file().display().to_string()
    }

    #[test]
    fn root_has_its_file_in_run_whatever_the_environment_says() {
        assert_eq!(path(0, None), "/run/aks-flex-node/status.json");
        assert_eq!(path(0, Some("/run/user/0")), "/run/aks-flex-node/status.json");
    }

    #[test]
    fn a_user_has_a_directory_of_their_own() {
        assert_eq!(path(1000, Some("/run/user/1000")), "/run/user/1000/aks-flex-node/status.json");
        assert_eq!(path(1000, None), "/tmp/aks-flex-node-1000/status.json");
    }

    #[test]
    fn a_directory_that_others_write_in_is_refused_with_the_command() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("d");
        ensure_dir(&dir).unwrap();
        assert!(RealFs::host().lstat(&dir).unwrap().unwrap().mode & 0o027 == 0);
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = ensure_dir(&dir).unwrap_err().to_string();
        assert!(error.contains("others may write it (mode 777)") && error.contains("chmod go-w"), "{error}");
        let link = temp.path().join("link");
        std::os::unix::fs::symlink("/tmp", &link).unwrap();
        assert!(matches!(ensure_dir(&link).unwrap_err(), StatusFileError::Untrusted { .. }));
    }

    #[test]
    fn a_runtime_directory_counts_only_when_it_is_private_and_own() {
        let temp = tempfile::tempdir().unwrap();
        let me = rustix::process::geteuid().as_raw();
        std::fs::set_permissions(temp.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        assert!(is_own(temp.path(), me));
        assert!(!is_own(temp.path(), me + 1));
        std::fs::set_permissions(temp.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!is_own(temp.path(), me));
        assert!(!is_own(Path::new("relative"), me));
        assert!(!is_own(&temp.path().join("absent"), me));
    }
}

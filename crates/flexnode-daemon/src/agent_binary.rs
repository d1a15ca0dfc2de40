//! The agent's own program below the host root.

use flexnode_host::durable::{self, Change, TEMP_PREFIX};
use flexnode_host::{Command, FileKind, Fs, FsError, Host, HostError};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The host root, below which the agent installs its own files. On hosts that were taken over it is a link to /usr/local.
pub const HOST_ROOT: &str = "/opt/unbounded/agent";
/// The program's name below the `bin` of the host root.
pub const PROGRAM: &str = "aks-flex-node";

const VERSION_DEADLINE: Duration = Duration::from_secs(10);

/// Why the program could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum AgentBinaryError {
    /// The running program's file is gone or cannot be read.
    #[error("the running program {} cannot be read", .0.display())]
    Source(PathBuf, #[source] FsError),
    /// The file system refused.
    #[error("the program cannot be installed as {}", path.display())]
    Install {
        /// Its final path.
        path: PathBuf,
        /// Why.
        #[source]
        source: FsError,
    },
    /// The copy does not start.
    #[error("the copied program {} cannot run", .0.display())]
    Start(PathBuf, #[source] HostError),
    /// The copy starts and fails.
    #[error("the copied program {} fails when asked for its version: {reason}", path.display())]
    Fails {
        /// The copy.
        path: PathBuf,
        /// Exit code and the last line of its errors.
        reason: String,
    },
}

impl AgentBinaryError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Start(path, _) | Self::Fails { path, .. } => Some(format!(
                "`findmnt -T {}` shows whether the file system is mounted noexec; SELinux and fapolicyd can refuse it too",
                path.display()
            )),
            Self::Source(..) => Some("run start again with a program that is there".into()),
            Self::Install { .. } => None,
        }
    }
}

/// Where the program is installed: R/bin/aks-flex-node.
pub fn installed_path() -> PathBuf {
    Path::new(HOST_ROOT).join("bin").join(PROGRAM)
}

/// The host root with links resolved, as far as it exists (`PlannedHostRoot` of a host that needs no migration).
pub fn resolved_root(fs: &dyn Fs) -> PathBuf {
    fs.canonicalize(Path::new(HOST_ROOT)).unwrap_or_else(|_| PathBuf::from(HOST_ROOT))
}

/// Makes R/bin/aks-flex-node a copy of `running`: staged beside its final name, run once, then renamed, so that the name
/// never holds half a program and a running one is not written to. Same bytes and mode: nothing is touched.
pub async fn install(host: &Host, running: &Path) -> Result<Change, AgentBinaryError> {
    let fs = host.fs.as_ref();
    let root = resolved_root(fs);
    let bin = root.join("bin");
    let path = bin.join(PROGRAM);
    let install = |source| AgentBinaryError::Install { path: path.clone(), source };
    let source = fs.canonicalize(running).map_err(|e| AgentBinaryError::Source(running.into(), e))?;
    if source == path || same(fs, &source, &path)? {
        return Ok(Change::None);
    }
    for dir in [&root, &bin] {
        durable::ensure_dir(fs, dir, 0o755).map_err(install)?;
    }
    let staged = bin.join(format!("{TEMP_PREFIX}{PROGRAM}"));
    let mut reader = fs.open(&source).map_err(|e| AgentBinaryError::Source(source.clone(), e))?;
    durable::copy_hashed(fs, &mut reader, &staged, 0o755, None).map_err(install)?;
    if let Err(e) = try_run(host, &staged).await {
        durable::remove_file(fs, &staged).map_err(install)?;
        return Err(e);
    }
    durable::rename(fs, &staged, &path).map_err(install)?;
    Ok(Change::Made)
}

/// Whether both are regular files with the same bytes, and the second one has the mode of a program.
fn same(fs: &dyn Fs, source: &Path, path: &Path) -> Result<bool, AgentBinaryError> {
    let error = |source| AgentBinaryError::Install { path: path.into(), source };
    let (Some(a), Some(b)) = (fs.stat(source).map_err(error)?, fs.lstat(path).map_err(error)?) else {
        return Ok(false);
    };
    if b.kind != FileKind::File || b.mode != 0o755 || a.size != b.size {
        return Ok(false);
    }
    if (a.dev, a.ino) == (b.dev, b.ino) {
        return Ok(true);
    }
    Ok(digest(fs, source).map_err(error)? == digest(fs, path).map_err(error)?)
}

fn digest(fs: &dyn Fs, path: &Path) -> Result<Vec<u8>, FsError> {
    let mut reader = fs.open(path)?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 128 << 10];
    loop {
        match reader.read(&mut chunk).map_err(|e| FsError::new("read", path, e))? {
            0 => return Ok(hash.finalize().to_vec()),
            n => hash.update(&chunk[..n]),
        }
    }
}

async fn try_run(host: &Host, program: &Path) -> Result<(), AgentBinaryError> {
    let command = Command {
        program: program.into(),
        args: vec!["version".into()],
        env: BTreeMap::new(),
        stdin: Vec::new(),
        deadline: VERSION_DEADLINE,
        max_output: 4096,
    };
    let output = host.commands.run(&command).await.map_err(|e| AgentBinaryError::Start(program.into(), e))?;
    if output.code == Some(0) {
        return Ok(());
    }
    let code = output.code.map_or_else(|| "ended by a signal".to_string(), |code| format!("exit code {code}"));
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().next_back().unwrap_or_default();
    Err(AgentBinaryError::Fails { path: program.into(), reason: format!("{code} {last}").trim_end().into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_host::testing::FakeHost;

    const RUNNING: &str = "/root/aks-flex-node";
    const INSTALLED: &str = "/opt/unbounded/agent/bin/aks-flex-node";

    fn host() -> FakeHost {
        let fake = FakeHost::new();
        fake.fs.put(RUNNING, "new program", 0o755);
        fake.commands.answer(".flexnode-tmp-aks-flex-node", &["version"], "aks-flex-node 1\n");
        fake
    }

    async fn install_it(fake: &FakeHost) -> Result<Change, AgentBinaryError> {
        install(&fake.host(), Path::new(RUNNING)).await
    }

    /// C040: a program that runs is never written to; the new one is renamed over its name.
    /// C034 and C041: a move between file systems, and a program that is replaced while it runs: it is staged beside
    /// its place.
    #[tokio::test]
    async fn it_is_staged_beside_run_once_and_renamed() {
        let fake = host();
        fake.fs.put(INSTALLED, "old program", 0o755);
        let old = fake.fs.lstat(Path::new(INSTALLED)).unwrap().unwrap().ino;
        assert_eq!(install_it(&fake).await.unwrap(), Change::Made);
        assert_eq!(fake.fs.text(INSTALLED), "new program");
        let new = fake.fs.lstat(Path::new(INSTALLED)).unwrap().unwrap();
        assert!(new.ino != old && new.mode == 0o755);
        assert_eq!(fake.commands.lines(), ["/opt/unbounded/agent/bin/.flexnode-tmp-aks-flex-node version"]);
        let before = fake.fs.tree_with_stamps();
        assert_eq!(install_it(&fake).await.unwrap(), Change::None);
        assert_eq!(fake.fs.tree_with_stamps(), before);
    }

    #[tokio::test]
    async fn the_installed_program_does_not_copy_itself() {
        let fake = host();
        fake.fs.put(INSTALLED, "new program", 0o755);
        assert_eq!(install(&fake.host(), Path::new(INSTALLED)).await.unwrap(), Change::None);
        assert!(fake.commands.log().is_empty());
    }

    #[tokio::test]
    async fn a_copy_that_cannot_run_leaves_the_old_one() {
        let fake = host();
        fake.fs.put(INSTALLED, "old program", 0o755);
        let before = fake.fs.tree();
        fake.commands.exit(".flexnode-tmp-aks-flex-node", &["version"], 126, "", "Permission denied\n");
        let error = install_it(&fake).await.unwrap_err();
        assert!(error.to_string().contains("exit code 126 Permission denied"), "{error}");
        assert!(error.hint().unwrap().contains("noexec"));
        assert_eq!(fake.fs.tree(), before);
    }

    #[tokio::test]
    async fn a_host_root_that_is_a_link_is_followed() {
        let fake = host();
        fake.fs.put_dir("/usr/local", 0o755).put_link("/usr/local", HOST_ROOT);
        assert_eq!(install_it(&fake).await.unwrap(), Change::Made);
        assert_eq!(fake.fs.text("/usr/local/bin/aks-flex-node"), "new program");
    }
}

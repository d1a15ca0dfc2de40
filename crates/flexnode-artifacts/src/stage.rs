//! Files on their way to their final name: written under a temporary one, hashed as they are written, published by a
//! rename when everything that belongs together was found right.

use crate::digest::{Digest, Hasher};
use crate::error::ArtifactError;
use flexnode_host::durable::TEMP_PREFIX;
use flexnode_host::{FileKind, FileWriter, Fs, FsError};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are copied and hashed at a time: large enough that the calls do not count, small enough for the cache.
const CHUNK: usize = 256 << 10;

/// A file that is complete under a temporary name. Dropping it removes it.
pub(crate) struct Staged<'a> {
    fs: &'a dyn Fs,
    temp: PathBuf,
    path: PathBuf,
    published: bool,
    /// Of the bytes that were written.
    pub digest: Digest,
    /// Bytes that were written.
    pub size: u64,
    /// Its permission bits.
    pub mode: u32,
}

/// A file that is being written under a temporary name; what is written is hashed.
pub(crate) struct Draft<'a> {
    staged: Staged<'a>,
    file: Box<dyn FileWriter>,
    hash: Hasher,
}

impl<'a> Draft<'a> {
    /// Begins a file that is to lie at `path`. Refuses a link, directory or device there before anything is written.
    pub(crate) fn create(fs: &'a dyn Fs, path: &Path, mode: u32) -> Result<Self, ArtifactError> {
        if let Some(stat) = fs.lstat(path)?
            && stat.kind != FileKind::File
        {
            return Err(FsError::new("replace", path, ErrorKind::AlreadyExists.into()).into());
        }
        let (temp, file) = create_temp(fs, path, mode)?;
        let digest = Digest::of(b"");
        let staged = Staged { fs, temp, path: path.into(), published: false, digest, size: 0, mode };
        Ok(Self { staged, file, hash: Hasher::default() })
    }

    /// The complete file. The writer that is given back still has to be synced before [`Staged::publish`]: the caller
    /// chooses when to wait for the device.
    pub(crate) fn finish(mut self) -> (Staged<'a>, Box<dyn FileWriter>) {
        self.staged.digest = self.hash.finish();
        (self.staged, self.file)
    }
}

impl Write for Draft<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.hash.update(&bytes[..n]);
        self.staged.size += n as u64;
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl<'a> Staged<'a> {
    /// Writes all of `reader` beside `path`; see [`Draft`].
    pub(crate) fn write(
        fs: &'a dyn Fs,
        path: &Path,
        mode: u32,
        reader: &mut dyn Read,
    ) -> Result<(Self, Box<dyn FileWriter>), StageError> {
        let mut draft = Draft::create(fs, path, mode)?;
        let mut chunk = vec![0; CHUNK];
        loop {
            match reader.read(&mut chunk) {
                Ok(0) => return Ok(draft.finish()),
                Ok(n) => {
                    let written = draft.write_all(&chunk[..n]);
                    written.map_err(|e| ArtifactError::write(FsError::new("write", path, e), path))?;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(StageError::Source(e)),
            }
        }
    }

    /// Where it lies for now.
    pub(crate) fn temp(&self) -> &Path {
        &self.temp
    }

    /// Where it will lie.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Will lie in another place of the same directory tree; the temporary file stays where it is.
    pub(crate) fn aim_at(&mut self, path: PathBuf) {
        self.path = path;
    }

    /// Gives it its name. The content must have been synced; the directory is to be synced by the caller.
    pub(crate) fn publish(mut self) -> Result<(), ArtifactError> {
        self.fs.rename(&self.temp, &self.path).map_err(|e| ArtifactError::write(e, &self.path))?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if !self.published {
            // The error that led here matters more; the next run sweeps what stays.
            let _ = self.fs.unlink(&self.temp);
        }
    }
}

/// Whose fault a failure is: the reader knows best what its own error means.
pub(crate) enum StageError {
    /// Reading failed.
    Source(std::io::Error),
    /// Anything else.
    Other(ArtifactError),
}

impl From<ArtifactError> for StageError {
    fn from(error: ArtifactError) -> Self {
        StageError::Other(error)
    }
}

impl From<FsError> for StageError {
    fn from(error: FsError) -> Self {
        StageError::Other(error.into())
    }
}

impl StageError {
    /// Blames `source` for a failed read.
    pub(crate) fn blame(self, op: &'static str, source: &Path) -> ArtifactError {
        match self {
            StageError::Source(e) => FsError::new(op, source, e).into(),
            StageError::Other(e) => e,
        }
    }
}

/// A new file beside `path`, under a name that a later run knows as left over.
fn create_temp(fs: &dyn Fs, path: &Path, mode: u32) -> Result<(PathBuf, Box<dyn FileWriter>), ArtifactError> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let dir = path.parent().ok_or_else(|| FsError::new("write", path, ErrorKind::InvalidInput.into()))?;
    loop {
        let unique = NEXT.fetch_add(1, Ordering::Relaxed);
        let temp = dir.join(format!("{TEMP_PREFIX}{}-a{unique}", std::process::id()));
        match fs.create(&temp, mode) {
            Ok(file) => return Ok((temp, file)),
            // Left by an earlier process with our PID.
            Err(e) if e.kind() == ErrorKind::AlreadyExists && unique < 1 << 20 => {}
            Err(e) => return Err(ArtifactError::write(e, path)),
        }
    }
}

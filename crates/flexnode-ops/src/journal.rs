//! The durable record of what is being done, and of what was done last.
//!
//! `record.json` holds the newest operation, open or closed: closing it is one atomic replacement. When the next
//! operation begins, the closed record moves to `history/`, of which a bounded number is kept for status.

use flexnode_host::{FileKind, Fs, FsError, durable};
use flexnode_model::DocumentError;
use flexnode_model::journal::JournalRecord;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The journal's directory, 0700.
pub const DIR: &str = "/var/lib/aks-flex-node/journal";

/// Closed records that are kept besides the newest.
pub const HISTORY: usize = 16;

/// A record is a few hundred bytes, its error text is bounded; more than this is not a record.
const LIMIT: u64 = 256 * 1024;

/// A journal that cannot be used. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The record is there but makes no sense.
    #[error("the record of the last operation in {} cannot be read; nothing is changed until it is mended or removed", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: DocumentError,
    },
    /// The file system refused.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// The journal of one host. Whoever writes holds the host's lock.
#[derive(Clone, Debug)]
pub struct Journal {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
}

impl Journal {
    /// The journal at [`DIR`] of this file system. Touches nothing.
    pub fn new(fs: Arc<dyn Fs>) -> Self {
        Self { fs, dir: PathBuf::from(DIR) }
    }

    /// The newest record, open or closed; `None` when nothing was ever done.
    pub fn last(&self) -> Result<Option<JournalRecord>, JournalError> {
        self.load(&self.record())
    }

    /// The record of an operation that has not ended: it runs, was interrupted, or ended as failed and keeps its record.
    pub fn open(&self) -> Result<Option<JournalRecord>, JournalError> {
        Ok(self.last()?.filter(JournalRecord::is_open))
    }

    /// The record of an operation that did not end by itself: its process was killed or the power failed. Only true for
    /// who holds the lock; otherwise the operation may be running.
    pub fn interrupted(&self) -> Result<Option<JournalRecord>, JournalError> {
        Ok(self.last()?.filter(JournalRecord::is_interrupted))
    }

    /// The closed records that are kept, oldest first, the newest operation's with them when it has ended. A kept record
    /// that cannot be read is left out: nothing is decided from it.
    pub fn history(&self) -> Result<Vec<JournalRecord>, JournalError> {
        let mut records = Vec::new();
        for path in self.kept()? {
            match self.load(&path) {
                Ok(Some(record)) => records.push(record),
                Ok(None) => {}
                Err(error) => tracing::warn!(path = %path.display(), %error, "a kept record is left out"),
            }
        }
        records.sort_by_key(|record| record.started);
        if let Ok(Some(last)) = self.last()
            && !last.is_open()
        {
            records.retain(|record| record.id != last.id);
            records.push(last);
        }
        Ok(records)
    }

    /// Makes `record` the newest, durably. The record that it takes the place of is kept in the history when it is
    /// another operation's.
    pub(crate) fn write(&self, record: &JournalRecord) -> Result<(), JournalError> {
        durable::write(&*self.fs, &self.record(), &record.encode(), 0o600)?;
        Ok(())
    }

    /// Prepares for the record of another operation: the directory, and `closed` in the history.
    pub(crate) fn begin(&self, closed: Option<&JournalRecord>) -> Result<(), JournalError> {
        durable::ensure_dir(&*self.fs, &self.dir, 0o700)?;
        durable::sweep(&*self.fs, &self.dir)?;
        let Some(closed) = closed else { return Ok(()) };
        let history = self.dir.join("history");
        durable::ensure_dir(&*self.fs, &history, 0o700)?;
        durable::sweep(&*self.fs, &history)?;
        durable::write(&*self.fs, &history.join(file_name(&closed.id)), &closed.encode(), 0o600)?;
        let kept = self.kept()?;
        for old in &kept[..kept.len().saturating_sub(HISTORY)] {
            durable::remove_file(&*self.fs, old)?;
        }
        Ok(())
    }

    /// Removes the journal whole, the newest record last, and the directory above it when nothing else is in it. For the
    /// end of a reset.
    pub(crate) fn forget(&self) -> Result<(), JournalError> {
        let fs = &*self.fs;
        durable::remove_tree(fs, &self.dir.join("history"))?;
        durable::sweep(fs, &self.dir)?;
        durable::remove_file(fs, &self.record())?;
        durable::remove_tree(fs, &self.dir)?;
        if let Some(base) = self.dir.parent() {
            // An interrupted making of the journal's directory lies there.
            durable::sweep(fs, base)?;
            match fs.rmdir(base) {
                Ok(()) => {
                    if let Some(above) = base.parent() {
                        fs.sync_dir(above)?;
                    }
                }
                // Something else lies in it, or it is a mount point: not the journal's to remove.
                Err(e) if matches!(e.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::ResourceBusy) => {}
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn record(&self) -> PathBuf {
        self.dir.join("record.json")
    }

    /// Files of the history, oldest first: their names begin with the time.
    fn kept(&self) -> Result<Vec<PathBuf>, JournalError> {
        let history = self.dir.join("history");
        if self.fs.lstat(&history)?.is_none() {
            return Ok(Vec::new());
        }
        let entries = self.fs.read_dir(&history)?;
        let is_record = |name: &Path| name.extension().is_some_and(|ext| ext == "json");
        Ok(entries
            .into_iter()
            .filter(|entry| entry.kind == FileKind::File && is_record(Path::new(&entry.name)))
            .map(|entry| history.join(entry.name))
            .collect())
    }

    fn load(&self, path: &Path) -> Result<Option<JournalRecord>, JournalError> {
        let Some(bytes) = self.fs.read(path, LIMIT)? else { return Ok(None) };
        match JournalRecord::decode(&bytes) {
            Ok(record) => Ok(Some(record)),
            Err(source) => Err(JournalError::Unreadable { path: path.to_path_buf(), source }),
        }
    }
}

/// The file of a record in the history. Identities are made by the engine of digits and letters; whatever else a damaged
/// one holds must not lead out of the directory.
fn file_name(id: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    format!("{}.json", id.chars().take(100).map(safe).collect::<String>())
}

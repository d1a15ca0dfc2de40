//! Mending an installed version from a fresh copy of it.
//!
//! The version's own manifest decides: a file that it does not find as it was installed is replaced by the one of the copy,
//! and only when that one is what the manifest says. Where there is no manifest, the version is made what the copy is. Files
//! are replaced one by one and each atomically, so that a version that runs goes on running, and a crash leaves one that is
//! mended further the next time.

use super::manifest::{self, Known, Level, MANIFEST, Manifest, SlotError, UNIT_SPEC};
use super::node::Backend;
use super::units::UnitSpec;
use flexnode_host::{FileKind, durable};
use flexnode_model::document;
use std::path::Path;

const ACCEPTED: &str = "is damaged, and the source does not give it as it was installed";

impl Backend {
    /// Mends version `slot` with the copy of the same name below `copy`, which was just installed and is not sealed. Gives
    /// the names of what was replaced, relative to the version. `goal` is for the manifest of a version that has none.
    ///
    /// # Errors
    /// [`SlotError::Damaged`] when the copy has not what the version's manifest says; nothing was replaced then.
    pub fn mend_version(&self, slot: &str, copy: &super::Layout, goal: &str) -> Result<Vec<String>, SlotError> {
        let fs = self.fs();
        let own = match manifest::read(fs, &self.layout, slot) {
            Ok(own) => Some(own),
            Err(SlotError::Incomplete { .. } | SlotError::Manifest { .. }) => None,
            Err(other) => return Err(other),
        };
        let fresh =
            manifest::seal(fs, copy, slot, goal, &self.spec_to_mend_with(slot, own.as_ref())?, &Known::default())?;
        let (from, to) = (copy.version_dir(slot), self.layout.version_dir(slot));
        let wanted = own.as_ref().unwrap_or(&fresh);
        let mut broken = Vec::new();
        for name in wanted.files.keys().chain(wanted.links.keys()) {
            if manifest::damage(fs, &to, wanted, name, Level::Content)?.is_some() {
                broken.push(name.clone());
            }
        }
        let other = |name: &&String| {
            wanted.links.get(*name) != fresh.links.get(*name)
                || wanted.files.get(*name).map(|file| &file.sha256) != fresh.files.get(*name).map(|file| &file.sha256)
        };
        if let Some(name) = broken.iter().find(other) {
            let (path, problem) = (to.join(name), ACCEPTED.to_owned());
            return Err(SlotError::Damaged { slot: slot.to_owned(), path, problem });
        }
        for name in &broken {
            self.replace(&from, &to, name, wanted)?;
        }
        if own.is_none() {
            durable::write(fs, &to.join(MANIFEST), &document::encode(&fresh), 0o644)?;
            broken.push(MANIFEST.to_owned());
        }
        manifest::verify(fs, &self.layout, slot, Level::Content)?;
        Ok(broken)
    }

    /// The units of a version: as it recorded them, when that record is whole.
    fn spec_to_mend_with(&self, slot: &str, own: Option<&Manifest>) -> Result<UnitSpec, SlotError> {
        let dir = self.layout.version_dir(slot);
        let whole = match own {
            Some(own) => manifest::damage(self.fs(), &dir, own, UNIT_SPEC, Level::Content)?.is_none(),
            None => true,
        };
        let recorded =
            if whole { manifest::recorded_units(self.fs(), &self.layout, slot).ok().flatten() } else { None };
        Ok(recorded.unwrap_or_else(|| self.units.clone()))
    }

    fn replace(&self, from: &Path, to: &Path, name: &str, wanted: &Manifest) -> Result<(), SlotError> {
        let (fs, target) = (self.fs(), to.join(name));
        if let Some(dir) = target.parent() {
            durable::ensure_dir(fs, dir, 0o755)?;
        }
        let kind = fs.lstat(&target)?.map(|stat| stat.kind);
        if let Some(link) = wanted.links.get(name) {
            if kind == Some(FileKind::File) {
                durable::remove_file(fs, &target)?;
            }
            durable::replace_link(fs, Path::new(link), &target)?;
        } else if let Some(file) = wanted.files.get(name) {
            if kind == Some(FileKind::Link) {
                durable::remove_file(fs, &target)?;
            }
            durable::copy_hashed(fs, &mut fs.open(&from.join(name))?, &target, file.mode, Some(&file.sha256))?;
        }
        Ok(())
    }
}

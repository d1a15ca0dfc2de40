//! Installing a version, activating it, and writing its units.

use super::consts::{UNIT_KUBELET_LAUNCH_CHECK, UNIT_LOCAL_DNS};
use super::dropins::{self, remove_stale, write_drop_ins};
use super::layout::mkdir_traversable;
use super::links::{check_links, ensure_links};
use super::manifest::{self, Known, Level, SlotError};
use super::node::Backend;
use super::preflight::check_grants;
use super::root::Root;
use super::run::{blocking, changed_if, kind};
use super::units::{UnitSpec, Written, write_units};
use crate::backend::{Error, NodeSpec, SlotRef};
use flexnode_ops::{Outcome, Step};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Looking at a version, hashing included, on a slow disk.
pub(crate) const VERIFY: Duration = Duration::from_mins(5);
/// Small changes to files.
pub(crate) const FILES: Duration = Duration::from_mins(1);
/// Fetching and unpacking a version.
const INSTALL: Duration = Duration::from_hours(1);
/// Writing units: files, at most two stops of a stale unit, a reload.
pub(crate) const UNITS: Duration = Duration::from_mins(5);
/// One unit's stop: systemd's own limit of 90 s, and time to say so.
pub(crate) const STOP: Duration = Duration::from_secs(100);

impl Backend {
    /// The steps of [`Backend::prepare`].
    pub fn prepare_steps(&self, spec: &NodeSpec) -> Vec<Step> {
        let mut steps = self.prepare_version_steps(spec);
        steps.push(self.step(
            "link-config",
            "link the configuration paths to the active version",
            FILES,
            |b, _| async move {
                let change = ensure_links(b.fs(), &b.layout, &b.config_links(&b.units))?;
                Ok(changed_if(change.made(), "links to current/etc"))
            },
        ));
        steps.push(self.write_units_step());
        steps
    }

    /// The steps of [`Backend::prepare_version`].
    pub fn prepare_version_steps(&self, spec: &NodeSpec) -> Vec<Step> {
        let spec = Arc::new(spec.clone());
        let (checked, created, installed, sealed) = (spec.clone(), spec.clone(), spec.clone(), spec.clone());
        let slot = &spec.slot;
        // From one step to the next of this process only: a version whose installation was interrupted is begun anew.
        let written = Arc::new(Mutex::new(Known::default()));
        let known = written.clone();
        vec![
            self.step("check-version", format!("check what version {slot} needs"), VERIFY, move |b, _| {
                let spec = checked.clone();
                async move { b.check_version(&spec).await }
            })
            .read_only(),
            self.step("create-version", format!("make the directory of version {slot}"), VERIFY, move |b, _| {
                let spec = created.clone();
                async move { b.or_discard(&spec, b.create_version(&spec)) }
            }),
            self.step("install", format!("install version {slot}"), INSTALL, move |b, cx| {
                let (spec, written) = (installed.clone(), written.clone());
                async move {
                    if b.is_complete(&spec.slot)? {
                        return Ok(Outcome::Unchanged);
                    }
                    let installed = b.install.call(cx, b.root(&spec.slot)).await;
                    let installed = b.or_discard(&spec, installed.map_err(Error::from))?;
                    let known = b.or_discard(&spec, Known::of(b.fs(), installed.files).map_err(Error::from))?;
                    *written.lock().unwrap_or_else(PoisonError::into_inner) = known;
                    Ok(installed.outcome)
                }
            }),
            self.step("seal-version", format!("write the manifest of version {slot}"), VERIFY, move |b, _| {
                let (spec, known) = (sealed.clone(), known.clone());
                async move {
                    if b.is_complete(&spec.slot)? {
                        return Ok(Outcome::Unchanged);
                    }
                    let known = known.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    let seal = move || {
                        let sealed = manifest::seal(b.fs(), &b.layout, &spec.slot, &spec.goal, &b.units, &known);
                        b.or_discard(&spec, sealed.map_err(Error::from))
                    };
                    let manifest = blocking(seal).await?;
                    Ok(Outcome::Changed(format!("{} files", manifest.files.len())))
                }
            }),
        ]
    }

    /// Installs the version directory and writes the agent-owned units. The current link is not touched until
    /// [`Backend::activate`].
    ///
    /// It is for a node that is not running: a LocalDNS unit that a previous configuration left is stopped before its file
    /// is removed. A version that is complete is verified and not written again.
    pub async fn prepare(&self, spec: &NodeSpec) -> Result<Root, Error> {
        self.execute(&Self::operation(kind::PREPARE, self.prepare_steps(spec)), false).await?;
        Ok(self.root(&spec.slot))
    }

    /// Installs the version directory without touching the units, so that a running node keeps the units that it started
    /// with. [`Backend::upgrade`] writes the units once the old stack has stopped.
    pub async fn prepare_version(&self, spec: &NodeSpec) -> Result<Root, Error> {
        self.execute(&Self::operation(kind::PREPARE_VERSION, self.prepare_version_steps(spec)), false).await?;
        Ok(self.root(&spec.slot))
    }

    /// Points the current link at the root's version and returns the version that it replaced. A version that is not
    /// complete by its manifest is refused, and the link stays.
    pub async fn activate(&self, slot: &(impl SlotRef + ?Sized)) -> Result<Option<String>, Error> {
        let replaced = self.current()?;
        self.execute(&Self::operation(kind::ACTIVATE, vec![self.flip_step(slot.slot())]), false).await?;
        Ok(replaced)
    }

    /// The step that turns the link to `version`.
    pub fn flip_step(&self, version: &str) -> Step {
        let to = version.to_owned();
        self.step("flip", format!("turn the current link to {version}"), FILES, move |b, _| {
            let to = to.clone();
            async move { b.flip_to(&to) }
        })
    }

    /// Turns the link to a version that is complete.
    pub(crate) fn flip_to(&self, version: &str) -> Result<Outcome, Error> {
        if self.current()?.as_deref() == Some(version) {
            // Also makes sure that the link is on the device: an earlier run may have been killed before its sync.
            self.layout.flip(self.fs(), version)?;
            return Ok(Outcome::Unchanged);
        }
        manifest::verify(self.fs(), &self.layout, version, Level::Shape)?;
        let replaced = self.layout.flip(self.fs(), version)?;
        Ok(Outcome::Changed(format!("{} -> {version}", replaced.as_deref().unwrap_or("nothing"))))
    }

    /// The step that links the plugins of `version`; the link need not be turned to it yet.
    pub fn link_cni_step(&self, version: &str) -> Step {
        let version = version.to_owned();
        self.step("link-cni", "link the CNI plugins", FILES, move |b, _| {
            let version = version.clone();
            async move {
                let linked = b.link_cni_plugins(&version)?;
                let changed = linked.made.len() + linked.removed.len();
                Ok(changed_if(changed > 0, format!("{changed} links")))
            }
        })
    }

    /// The step that writes the units of [`Backend::units`].
    pub fn write_units_step(&self) -> Step {
        self.step("write-units", "write the units", UNITS, |b, _| async move { b.apply_units(&b.units).await })
    }

    /// As [`Backend::write_units_step`], for an operation in which [`Backend::start_steps`] follow: their `enable-units` has
    /// systemd read the files together with the links of the boot, so that one reload does for both.
    pub fn place_units_step(&self) -> Step {
        self.step("write-units", "write the units", UNITS, |b, _| async move {
            let written = b.place_units(&b.units).await?;
            Ok(changed_if(written.is_changed(), format!("{} files", written.changed.len())))
        })
    }

    /// Makes unit files and drop-ins those of `spec`. systemd reloads only when a byte changed, or when an earlier run was
    /// killed before its reload.
    pub(crate) async fn apply_units(&self, spec: &UnitSpec) -> Result<Outcome, Error> {
        let written = self.place_units(spec).await?;
        if written.is_changed() || self.needs_reload(spec).await? {
            self.system.systemd.reload().await?;
        }
        Ok(changed_if(written.is_changed(), format!("{} files", written.changed.len())))
    }

    async fn place_units(&self, spec: &UnitSpec) -> Result<Written, Error> {
        let dir = self.unit_dir();
        let systemd = &self.system.systemd;
        dropins::sweep(self.fs(), dir)?;
        let installed = dropins::installed(self.fs(), dir)?;
        // A unit is stopped before its file goes: without it systemd would keep a service that nothing describes.
        let stale =
            [(UNIT_KUBELET_LAUNCH_CHECK, spec.launch_check_command.is_none()), (UNIT_LOCAL_DNS, !spec.local_dns)];
        for (unit, _) in stale.into_iter().filter(|(unit, stale)| *stale && installed.contains(unit)) {
            systemd.stop(unit, STOP).await?;
            systemd.disable(unit).await?;
        }
        let mut written = Written::default();
        written.join(write_units(self.fs(), dir, spec)?);
        written.join(write_drop_ins(self.fs(), dir, spec)?);
        written.join(remove_stale(self.fs(), dir, spec)?);
        Ok(written)
    }

    /// Whether systemd has not read what is on disk.
    async fn needs_reload(&self, spec: &UnitSpec) -> Result<bool, Error> {
        for unit in Self::stack(spec) {
            let state = self.system.systemd.unit(unit).await?;
            if state.need_reload || state.load == "not-found" {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a version has its manifest.
    fn is_complete(&self, slot: &str) -> Result<bool, SlotError> {
        match manifest::read(self.fs(), &self.layout, slot) {
            Ok(_) => Ok(true),
            Err(SlotError::Incomplete { .. } | SlotError::Absent { .. }) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Looks at all that could refuse the preparation, before anything is changed.
    async fn check_version(self: Arc<Self>, spec: &NodeSpec) -> Result<Outcome, Error> {
        check_grants(self.fs(), &spec.grants, &self.host_root, &self.gpu_host_paths)?;
        check_links(self.fs(), &self.layout, &self.config_links(&self.units))?;
        let slot = spec.slot.clone();
        let keeps = self.keeps(spec)?;
        blocking(move || match manifest::verify(self.fs(), &self.layout, &slot, Level::Content) {
            Ok(found) => {
                if found.renderer != manifest::RENDERER {
                    tracing::info!(parent: &self.log, slot, renderer = found.renderer, "another program rendered this version; it is not written again");
                }
                Ok(Outcome::Unchanged)
            }
            Err(SlotError::Absent { .. }) => Ok(Outcome::Unchanged),
            Err(SlotError::Incomplete { .. }) if !keeps => Ok(Outcome::Unchanged),
            Err(other) => Err(other.into()),
        })
        .await
    }

    /// Whether the slot must not be removed, whatever it is: it is active.
    ///
    /// The one before, to which a rollback would return, may: an incomplete version is refused there, and whoever prepares it
    /// again wants to go to it.
    fn keeps(&self, spec: &NodeSpec) -> Result<bool, Error> {
        Ok(self.current()?.as_ref() == Some(&spec.slot))
    }

    /// A version that could not be prepared goes: half of it is of no use, and its place may be what is missing. What cannot be
    /// removed now is when it is prepared again.
    fn or_discard<T>(&self, spec: &NodeSpec, result: Result<T, Error>) -> Result<T, Error> {
        if result.is_err() {
            self.discard_incomplete(&spec.slot);
        }
        result
    }

    /// Removes a version that is neither complete nor active: what an operation left that ended while it prepared it.
    pub fn discard_incomplete(&self, slot: &str) {
        let is_active = !matches!(self.current(), Ok(current) if current.as_deref() != Some(slot));
        if is_active || !matches!(self.is_complete(slot), Ok(false)) {
            return;
        }
        let gone = self.layout.sweep(self.fs()).and_then(|()| self.layout.remove(self.fs(), slot));
        if let Err(error) = gone {
            tracing::warn!(parent: &self.log, slot, %error, "what was prepared of this version could not be removed");
        }
    }

    /// Makes the version's directories; one that is incomplete is begun anew.
    fn create_version(&self, spec: &NodeSpec) -> Result<Outcome, Error> {
        if self.is_complete(&spec.slot)? {
            return Ok(Outcome::Unchanged);
        }
        if self.keeps(spec)? && self.layout.is_installed(self.fs(), &spec.slot)? {
            return Err(SlotError::Incomplete { slot: spec.slot.clone() }.into());
        }
        self.layout.sweep(self.fs())?;
        self.layout.remove(self.fs(), &spec.slot)?;
        let dir = self.layout.ensure(self.fs(), &spec.slot)?;
        for name in ["libexec", "cni", "etc"] {
            mkdir_traversable(self.fs(), &dir.join(name))?;
        }
        Ok(Outcome::Changed(dir.display().to_string()))
    }
}

//! Taking the node stack away.

use super::consts::{CONTAINERD_CONFIG_PATH, DEFAULT_BASE};
use super::dropins::{self, ALL_UNITS};
use super::links::remove_links;
use super::node::Backend;
use super::prepare::{FILES, STOP, UNITS, VERIFY};
use super::reap::{REAP, Reap};
use super::root::prefixed;
use super::run::{changed_if, kind};
use crate::backend::{Error, JoinedErrors};
use flexnode_ops::{Outcome, Step, StepError};
use std::io::ErrorKind;
use std::path::Path;

impl Backend {
    /// The steps of [`Backend::destroy`].
    pub fn destroy_steps(&self) -> Vec<Step> {
        let stopping = (STOP + FILES) * u32::try_from(ALL_UNITS.len()).unwrap_or(4);
        vec![
            self.step("stop-and-disable", "stop and disable the units", stopping, |b, _| async move {
                b.stop_and_disable().await
            })
            .takes_down(),
            self.step("remove-units", "remove the units", UNITS, |b, _| async move { b.remove_units().await }),
            self.step("reap", "end what outlived the units", REAP, |b, _| async move { b.reap(Reap::All).await }),
            self.step("remove-links", "remove the links of configuration and CNI plugins", FILES, |b, _| async move {
                b.remove_all_links()
            }),
            self.step("remove-versions", "remove the versions", VERIFY, |b, _| async move {
                let change = b.layout.remove_all(b.fs())?;
                // `/opt/unbounded` is the agent's own; whoever else lives in it keeps it.
                if b.layout.base_dir() == Path::new(DEFAULT_BASE) {
                    b.remove_if_empty(b.layout.base_dir().parent())?;
                }
                Ok(changed_if(change.made(), b.layout.base_dir().display().to_string()))
            }),
        ]
    }

    /// Stops and disables the units, removes them with their drop-ins, kills the container shims that containerd leaves
    /// running and the pods, and removes links and version directories (the whole base directory).
    ///
    /// Units that were never installed are skipped, so destroying a half-installed node completes, and destroying it again
    /// does nothing. A drop-in of another name beside ours, a unit that a person masked, and files that are not the agent's
    /// stay.
    pub async fn destroy(&self) -> Result<(), Error> {
        self.execute(&Self::operation(kind::DESTROY, self.destroy_steps()), true).await.map(|_| ())
    }

    async fn stop_and_disable(&self) -> Result<Outcome, Error> {
        let (mut errors, mut changed) = (Vec::new(), false);
        for unit in ALL_UNITS {
            match self.stop_and_disable_unit(unit).await {
                Ok(did) => changed |= did,
                Err(error) => errors.push(StepError::caused(format!("could not stop and disable {unit}"), error)),
            }
        }
        if errors.is_empty() { Ok(changed_if(changed, "")) } else { Err(JoinedErrors(errors).into()) }
    }

    async fn stop_and_disable_unit(&self, unit: &str) -> Result<bool, Error> {
        let systemd = &self.system.systemd;
        let state = systemd.unit(unit).await?;
        let mut changed = self.stop_unit(unit).await?;
        let has_file = self.fs().lstat(&self.unit_dir().join(unit))?.is_some();
        if state.enabled == "enabled" && (has_file || state.load != "not-found") {
            systemd.disable(unit).await?;
            changed = true;
        }
        if state.load != "not-found" {
            systemd.reset_failed(unit).await?;
        }
        Ok(changed)
    }

    async fn remove_units(&self) -> Result<Outcome, Error> {
        dropins::sweep(self.fs(), self.unit_dir())?;
        let removed = dropins::remove_all(self.fs(), self.unit_dir())?;
        let mut reload = removed.is_changed();
        for unit in ALL_UNITS {
            // An earlier run may have been killed before its reload.
            reload = reload || self.system.systemd.unit(unit).await?.need_reload;
        }
        if reload {
            self.system.systemd.reload().await?;
        }
        Ok(changed_if(removed.is_changed(), format!("{} files", removed.changed.len())))
    }

    fn remove_all_links(&self) -> Result<Outcome, Error> {
        let links = remove_links(self.fs(), &self.layout, &self.config_links(&self.units))?;
        let plugins = self.unlink_cni_plugins()?;
        let containerd = prefixed(&self.host_root, Path::new(CONTAINERD_CONFIG_PATH));
        self.remove_if_empty(containerd.parent())?;
        self.remove_if_empty(containerd.parent().and_then(Path::parent))?;
        Ok(changed_if(links.or(plugins).made(), ""))
    }

    /// Removes a directory of the agent's own name when nothing is in it.
    fn remove_if_empty(&self, dir: Option<&Path>) -> Result<(), Error> {
        let Some(dir) = dir else { return Ok(()) };
        match self.fs().rmdir(dir) {
            Ok(()) => {
                if let Some(above) = dir.parent() {
                    self.fs().sync_dir(above)?;
                }
                Ok(())
            }
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory
                ) =>
            {
                Ok(())
            }
            Err(e) => Err(e.into()),
        }
    }
}

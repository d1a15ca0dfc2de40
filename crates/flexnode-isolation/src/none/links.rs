//! The configuration paths of the contract: links through `current`, so that a flip switches configuration and programs
//! together.

use super::consts::{CONTAINERD_CONFIG_PATH, DEFAULT_KUBELET_CONFIG_PATH};
use super::layout::{Layout, LayoutError, sweep_up};
use super::root::prefixed;
use super::units::UnitSpec;
use flexnode_host::durable::{self, Change};
use flexnode_host::{FileKind, Fs, FsError};
use std::path::{Path, PathBuf};

/// A link from a path of the contract to the active version's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigLink {
    /// Where the units look.
    pub path: PathBuf,
    /// The text of the link.
    pub target: PathBuf,
}

/// The links that `spec` needs. A path that lies below the base already needs none.
pub(crate) fn config_links(layout: &Layout, spec: &UnitSpec, host_root: &Path) -> Vec<ConfigLink> {
    let kubelet = spec.kubelet_config_path.as_deref().unwrap_or(Path::new(DEFAULT_KUBELET_CONFIG_PATH));
    let containerd = spec.containerd_config_path.as_deref().unwrap_or(Path::new(CONTAINERD_CONFIG_PATH));
    [(kubelet, "kubelet/config.yaml"), (containerd, "containerd/config.toml")]
        .into_iter()
        .filter(|(path, _)| !path.starts_with(layout.base_dir()))
        .map(|(path, name)| ConfigLink { path: prefixed(host_root, path), target: layout.current_config(name) })
        .collect()
}

/// Refuses, by name, anything in the place of one of `links` that is not a link of ours. Changes nothing.
pub(crate) fn check_links(fs: &dyn Fs, layout: &Layout, links: &[ConfigLink]) -> Result<(), LayoutError> {
    for link in links {
        let foreign = |problem: String| LayoutError::ForeignLink { path: link.path.clone(), problem };
        match fs.lstat(&link.path)? {
            None => {}
            Some(stat) if stat.kind != FileKind::Link => {
                return Err(foreign(format!("is a {} that the agent did not make", stat.kind)));
            }
            Some(_) => {
                let target = fs.read_link(&link.path)?;
                if !is_ours(layout, &target) {
                    return Err(foreign(format!("is a link to {}, which the agent did not make", target.display())));
                }
            }
        }
    }
    Ok(())
}

/// Makes the links that are missing or lead elsewhere below the base; a foreign file or link is refused before any change.
pub(crate) fn ensure_links(fs: &dyn Fs, layout: &Layout, links: &[ConfigLink]) -> Result<Change, LayoutError> {
    check_links(fs, layout, links)?;
    let mut change = Change::None;
    for link in links {
        if let Some(dir) = link.path.parent() {
            sweep_up(fs, dir)?;
            durable::ensure_dir(fs, dir, 0o755)?;
        }
        change = change.or(durable::replace_link(fs, &link.target, &link.path)?);
    }
    Ok(change)
}

/// Removes those of `links` that point into the base; what is foreign stays.
pub(crate) fn remove_links(fs: &dyn Fs, layout: &Layout, links: &[ConfigLink]) -> Result<Change, FsError> {
    let mut change = Change::None;
    for link in links {
        let stat = fs.lstat(&link.path)?;
        if stat.is_some_and(|stat| stat.kind == FileKind::Link) && is_ours(layout, &fs.read_link(&link.path)?) {
            change = change.or(durable::remove_file(fs, &link.path)?);
        }
    }
    Ok(change)
}

/// Whether a link's text leads below the base. A text that climbs is not ours, wherever it ends.
pub(crate) fn is_ours(layout: &Layout, target: &Path) -> bool {
    let climbs = target.components().any(|part| part == std::path::Component::ParentDir);
    !climbs && target.starts_with(layout.base_dir())
}

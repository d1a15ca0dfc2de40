//! Looking at what the pure functions decide over.

use super::{modules, swap, sysctls};
use flexnode_host::{FsError, Host};
use flexnode_ops::StepError;
use std::path::Path;

const LIMIT: u64 = 1 << 20;

pub(super) fn modules(host: &Host) -> Result<modules::Observed, StepError> {
    let mut observed = modules::Observed { file: text(host, modules::MODULES_FILE)?, ..modules::Observed::default() };
    for module in modules::MODULES {
        let present = host
            .kernel
            .has_module(module.name)
            .map_err(|e| StepError::caused(format!("cannot tell whether the kernel has {}", module.name), e))?;
        observed.present.insert(module.name, present);
    }
    Ok(observed)
}

pub(super) fn sysctls(host: &Host) -> Result<sysctls::Observed, StepError> {
    let mut observed = sysctls::Observed { file: text(host, sysctls::SYSCTL_FILE)?, ..sysctls::Observed::default() };
    for key in sysctls::SETTINGS.iter().map(|s| s.key).chain(sysctls::FOLLOWERS) {
        let value = host
            .kernel
            .sysctl(key)
            .map_err(|e| StepError::caused(format!("the kernel setting {key} cannot be read"), e))?;
        if let Some(value) = value {
            observed.values.insert(key.into(), value);
        }
    }
    Ok(observed)
}

pub(super) async fn swap(host: &Host) -> Result<swap::Observed, StepError> {
    let areas = host.kernel.swaps().map_err(|e| StepError::caused("the active swap areas cannot be read", e))?;
    let fstab = text(host, swap::FSTAB)?;
    let names = host
        .systemd
        .list(&["*.swap"])
        .await
        .map_err(|e| StepError::caused("systemd does not tell its swap units", e))?;
    let mut units = Vec::new();
    for name in names {
        let state = host
            .systemd
            .unit(&name)
            .await
            .map_err(|e| StepError::caused(format!("systemd does not tell of the unit {name}"), e))?;
        // Without a file it is only systemd's name for an active area; a masked one is done with.
        if !state.is_loaded() || state.fragment.as_os_str().is_empty() {
            continue;
        }
        let content =
            read(host, &state.fragment).map_err(|e| StepError::caused(format!("the unit {name} cannot be read"), e))?;
        let (source, what) = swap::parse_unit(&state.fragment, content.as_deref().unwrap_or_default());
        // A person's unit file that nothing enables is not started at boot.
        let dormant = source == swap::UnitSource::File && !state.is_active() && state.enabled != "enabled";
        if !dormant {
            units.push(swap::SwapUnit { name, fragment: state.fragment, source, what });
        }
    }
    Ok(swap::Observed { areas, fstab, units })
}

fn text(host: &Host, path: &str) -> Result<Option<String>, StepError> {
    read(host, Path::new(path)).map_err(|e| StepError::caused(format!("{path} cannot be read"), e))
}

/// A file as text. Bytes that are not UTF-8 never make a file equal to one of ours; /etc/fstab with them is refused
/// rather than rewritten.
fn read(host: &Host, path: &Path) -> Result<Option<String>, FsError> {
    let Some(bytes) = host.fs.read(path, LIMIT)? else { return Ok(None) };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(e) => Err(FsError::new("read as text", path, std::io::Error::new(std::io::ErrorKind::InvalidData, e))),
    }
}

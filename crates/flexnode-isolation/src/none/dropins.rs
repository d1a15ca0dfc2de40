//! Drop-ins and the units that come and go with the configuration.

use super::consts::{UNIT_CONTAINERD, UNIT_KUBELET, UNIT_KUBELET_LAUNCH_CHECK, UNIT_LOCAL_DNS};
use super::encode::{self, UnitText};
use super::units::{UnitError, UnitSpec, Written, render_kubelet_launch_check, render_local_dns, rendering};
use flexnode_host::durable;
use flexnode_host::{FileKind, Fs};
use std::path::{Path, PathBuf};

/// Puts the version's programs first on PATH.
pub(crate) const PATH_DROP_IN: &str = "00-path.conf";
/// Orders a node unit after LocalDNS.
pub(crate) const LOCAL_DNS_DROP_IN: &str = "05-localdns.conf";
/// Runs the GPU setup before containerd.
pub(crate) const GPU_DROP_IN: &str = "10-gpu-setup.conf";
/// Makes kubelet wait for the launch check.
pub(crate) const LAUNCH_CHECK_DROP_IN: &str = "10-launch-check.conf";

/// Every drop-in name that is ours, for each unit of ours.
const OUR_DROP_INS: [&str; 4] = [PATH_DROP_IN, LOCAL_DNS_DROP_IN, GPU_DROP_IN, LAUNCH_CHECK_DROP_IN];

/// Every unit that this backend may write, in the order in which they are stopped.
pub(crate) const ALL_UNITS: [&str; 4] = [UNIT_KUBELET, UNIT_KUBELET_LAUNCH_CHECK, UNIT_CONTAINERD, UNIT_LOCAL_DNS];

/// The drop-in directory of an agent-owned unit.
pub fn drop_in_dir(dir: &Path, unit: &str) -> PathBuf {
    dir.join(format!("{unit}.d"))
}

/// The drop-in that puts the version's bin directory first on PATH, so that containerd finds its shim and runc, and kubelet
/// the tools that it calls, without touching the host's PATH.
pub fn render_path_drop_in(bin_dir: &Path) -> Result<Vec<u8>, UnitError> {
    let value = format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", bin_dir.to_string_lossy());
    let path = encode::environment("PATH", &value).map_err(rendering(PATH_DROP_IN))?;
    Ok(UnitText::new().section("Service").set("Environment", path).bytes())
}

/// The drop-in that orders a node unit after LocalDNS and makes it depend on it, as the nspawn machine's units do.
pub fn render_local_dns_drop_in() -> Vec<u8> {
    requires(UNIT_LOCAL_DNS)
}

/// The kubelet drop-in that makes every kubelet start wait for, and depend on, the launch check.
pub fn render_kubelet_launch_check_drop_in() -> Vec<u8> {
    requires(UNIT_KUBELET_LAUNCH_CHECK)
}

fn requires(unit: &str) -> Vec<u8> {
    UnitText::new().section("Unit").set("Requires", unit).set("After", unit).bytes()
}

/// The containerd drop-in that runs each command before containerd starts. A failure fails the start, and `Restart=` tries
/// it again.
pub fn render_gpu_setup_drop_in(commands: &[Vec<String>]) -> Result<Vec<u8>, UnitError> {
    let mut unit = UnitText::new();
    unit.section("Service");
    for argv in commands {
        unit.set("ExecStartPre", encode::command_line_of(argv).map_err(rendering(GPU_DROP_IN))?);
    }
    Ok(unit.bytes())
}

/// A file that a spec wants below the unit directory.
type Wanted = (PathBuf, Vec<u8>);

/// The files that [`write_drop_ins`] wants, in the order in which they are written.
fn wanted(dir: &Path, spec: &UnitSpec) -> Result<Vec<Wanted>, UnitError> {
    let mut files = Vec::new();
    let mut units = vec![UNIT_CONTAINERD, UNIT_KUBELET];
    if spec.local_dns {
        units.push(UNIT_LOCAL_DNS);
        files.push((dir.join(UNIT_LOCAL_DNS), render_local_dns(&spec.local_dns_supervisor())?));
    }
    if let Some(command) = &spec.launch_check_command {
        units.push(UNIT_KUBELET_LAUNCH_CHECK);
        files.push((dir.join(UNIT_KUBELET_LAUNCH_CHECK), render_kubelet_launch_check(command)?));
    }
    let path = render_path_drop_in(&spec.bin_dir)?;
    for unit in units {
        files.push((drop_in_dir(dir, unit).join(PATH_DROP_IN), path.clone()));
    }
    if spec.local_dns {
        for unit in [UNIT_CONTAINERD, UNIT_KUBELET] {
            files.push((drop_in_dir(dir, unit).join(LOCAL_DNS_DROP_IN), render_local_dns_drop_in()));
        }
    }
    if !spec.gpu_setup.is_empty() {
        let drop_in = drop_in_dir(dir, UNIT_CONTAINERD).join(GPU_DROP_IN);
        files.push((drop_in, render_gpu_setup_drop_in(&spec.gpu_setup)?));
    }
    if spec.launch_check_command.is_some() {
        let drop_in = drop_in_dir(dir, UNIT_KUBELET).join(LAUNCH_CHECK_DROP_IN);
        files.push((drop_in, render_kubelet_launch_check_drop_in()));
    }
    Ok(files)
}

/// Writes the PATH drop-in for every unit, the LocalDNS ordering drop-ins for the node units, the LocalDNS unit itself when
/// the spec has it, the GPU setup and the launch check. Returns the paths; a file whose bytes are right is not touched.
///
/// Files that only another spec wants are left: [`remove_stale`] takes them.
pub fn write_drop_ins(fs: &dyn Fs, dir: &Path, spec: &UnitSpec) -> Result<Written, UnitError> {
    let mut written = Written::default();
    for (path, bytes) in wanted(dir, spec)? {
        if let Some(parent) = path.parent() {
            durable::ensure_dir(fs, parent, 0o755)?;
        }
        written.file(fs, path, &bytes)?;
    }
    Ok(written)
}

/// Removes the units and drop-ins of ours that `spec` does not want, and drop-in directories that this leaves empty. Drop-ins
/// of other names, a person's for example, stay. A LocalDNS unit has to be stopped before.
pub fn remove_stale(fs: &dyn Fs, dir: &Path, spec: &UnitSpec) -> Result<Written, UnitError> {
    let keep: Vec<PathBuf> = wanted(dir, spec)?.into_iter().map(|(path, _)| path).collect();
    let node_units = [dir.join(UNIT_CONTAINERD), dir.join(UNIT_KUBELET)];
    remove_except(fs, dir, |path| keep.iter().any(|k| k == path) || node_units.iter().any(|k| k == path))
}

/// Removes all units and drop-ins of ours; what a person put beside them stays.
pub fn remove_all(fs: &dyn Fs, dir: &Path) -> Result<Written, UnitError> {
    remove_except(fs, dir, |_| false)
}

/// The units of ours whose files are below `dir`, in stop order.
pub(crate) fn installed(fs: &dyn Fs, dir: &Path) -> Result<Vec<&'static str>, UnitError> {
    let mut found = Vec::new();
    for unit in ALL_UNITS {
        if fs.lstat(&dir.join(unit))?.is_some() {
            found.push(unit);
        }
    }
    Ok(found)
}

/// Removes what a crash left of our temporary files beside our units and drop-ins.
pub(crate) fn sweep(fs: &dyn Fs, dir: &Path) -> Result<(), UnitError> {
    durable::sweep(fs, dir)?;
    for unit in ALL_UNITS {
        durable::sweep(fs, &drop_in_dir(dir, unit))?;
    }
    Ok(())
}

fn remove_except(fs: &dyn Fs, dir: &Path, keep: impl Fn(&Path) -> bool) -> Result<Written, UnitError> {
    let mut removed = Written::default();
    for unit in ALL_UNITS {
        let own = drop_in_dir(dir, unit);
        let drop_ins = OUR_DROP_INS.map(|name| own.join(name));
        // The unit goes before its drop-ins: a crash between leaves no unit with half of its settings.
        for path in std::iter::once(dir.join(unit)).chain(drop_ins) {
            if !keep(&path) && fs.lstat(&path)?.is_some() {
                durable::remove_file(fs, &path)?;
                removed.changed.push(path);
            }
        }
        let is_dir = fs.lstat(&own)?.is_some_and(|stat| stat.kind == FileKind::Dir);
        if is_dir && fs.read_dir(&own)?.is_empty() {
            fs.rmdir(&own)?;
            fs.sync_dir(dir)?;
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests;

//! The host's own settings: kernel modules, sysctls, swap. Each is decided by a pure function over what was observed, the
//! values before are recorded durably, then the change is made and its effect looked at.

pub mod fstab;
pub mod modules;
mod observe;
pub mod swap;
pub mod sysctls;

use async_trait::async_trait;
use flexnode_host::durable::{self, Change};
use flexnode_host::{Host, SwapArea};
use flexnode_ops::{Outcome, StepContext, StepError};
use std::collections::BTreeMap;
use std::path::Path;

/// What is about to be changed, with the values before: what a reset needs to put it back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// Modules that are about to be loaded.
    pub modules: Vec<String>,
    /// Values of the keys that are about to change.
    pub sysctls: BTreeMap<String, String>,
    /// Active swap areas that are about to be turned off.
    pub swaps: Vec<SwapArea>,
    /// Units that are about to be masked.
    pub masked: Vec<String>,
    /// Units whose links of `[Install]` are about to be removed.
    pub disabled: Vec<String>,
    /// /etc/fstab is about to be edited.
    pub fstab: bool,
    /// Files of our names that are about to be written: path, and the content that is there now.
    pub files: Vec<(&'static str, Option<Vec<u8>>)>,
}

/// Keeps how the host was before. What is recorded already stays: it is the older one.
#[async_trait]
pub trait Recorder: Send + Sync + std::fmt::Debug {
    /// Records, once, what of the names that we will use exists now.
    async fn record_host(&self, host: &Host) -> Result<Outcome, StepError>;
    /// Makes it durable.
    fn record(&self, before: &Before) -> Result<(), StepError>;
}

/// Loads the kernel modules and names them for the next boot.
pub async fn set_up_modules(host: &Host, recorder: &dyn Recorder, cx: &StepContext) -> Result<Outcome, StepError> {
    let observed = observe::modules(host)?;
    let actions = modules::decide(&observed);
    if actions.is_empty() {
        return Ok(Outcome::Unchanged);
    }
    let mut before = Before::default();
    for action in &actions {
        match action {
            modules::Action::Load(module) => before.modules.push(module.name.into()),
            modules::Action::Persist(_) => {
                before.files.push((modules::MODULES_FILE, observed.file.clone().map(String::into_bytes)));
            }
        }
    }
    recorder.record(&before)?;
    let mut done = Vec::new();
    for action in actions {
        match action {
            modules::Action::Load(module) => {
                if load(host, module, cx).await? {
                    done.push(format!("loaded {}", module.name));
                }
            }
            modules::Action::Persist(text) => {
                write(host, modules::MODULES_FILE, &text)?;
                done.push(format!("wrote {}", modules::MODULES_FILE));
            }
        }
    }
    Ok(outcome(&done))
}

/// Loads a module and looks whether its function is there. `false`: it is not, and the node does without.
async fn load(host: &Host, module: modules::Module, cx: &StepContext) -> Result<bool, StepError> {
    cx.note(&format!("loading {}", module.name));
    let loaded = host.kernel.load_module(module.name).await;
    let present = host.kernel.has_module(module.name).unwrap_or(false);
    if present {
        return Ok(true);
    }
    let release = host.kernel.release().unwrap_or_default();
    let message = format!("the kernel module {} is not there: {}", module.name, module.without);
    if module.required {
        let error = match loaded {
            Err(e) => StepError::caused(message, e),
            Ok(()) => StepError::new(message),
        };
        return Err(
            error.hint(format!("install the modules of kernel {release} (linux-modules-extra on some systems)"))
        );
    }
    cx.note(&message);
    tracing::warn!(module = module.name, "{message}");
    Ok(false)
}

/// Applies the kernel settings key by key, reads each back, and keeps them for the next boot.
pub fn set_up_sysctls(host: &Host, recorder: &dyn Recorder, cx: &StepContext) -> Result<Outcome, StepError> {
    let observed = observe::sysctls(host)?;
    let plan = sysctls::decide(&observed);
    for setting in &plan.absent {
        let why = setting.module.map(|m| format!(" (module {m})")).unwrap_or_default();
        cx.note(&format!("this kernel has no {}{why}", setting.key));
    }
    if plan.actions.is_empty() {
        return Ok(Outcome::Unchanged);
    }
    let persists = plan.actions.iter().any(|a| matches!(a, sysctls::Action::Persist(_)));
    let file = (sysctls::SYSCTL_FILE, observed.file.map(String::into_bytes));
    recorder.record(&Before {
        sysctls: plan.record,
        files: if persists { vec![file] } else { Vec::new() },
        ..Before::default()
    })?;
    let mut done = Vec::new();
    for action in plan.actions {
        match action {
            sysctls::Action::Set { setting, before } => {
                set_sysctl(host, setting)?;
                done.push(format!("{}: {before} -> {}", setting.key, setting.value));
            }
            sysctls::Action::Persist(text) => {
                write(host, sysctls::SYSCTL_FILE, &text)?;
                done.push(format!("wrote {}", sysctls::SYSCTL_FILE));
            }
        }
    }
    Ok(outcome(&done))
}

fn set_sysctl(host: &Host, setting: sysctls::Setting) -> Result<(), StepError> {
    let failed = |e| {
        StepError::caused(format!("the kernel setting {} cannot be set to {}", setting.key, setting.value), e)
            .hint("is /proc/sys writable here? In a container it often is not")
    };
    host.kernel.set_sysctl(setting.key, setting.value).map_err(failed)?;
    let now = host.kernel.sysctl(setting.key).map_err(failed)?;
    match now {
        Some(now) if sysctls::normal(&now) == setting.value => Ok(()),
        now => Err(StepError::new(format!(
            "the kernel setting {} is {} after it was set to {}",
            setting.key,
            now.as_deref().unwrap_or("gone"),
            setting.value
        ))),
    }
}

/// What swap there is, and who brings it.
pub async fn observe_swap(host: &Host) -> Result<swap::Observed, StepError> {
    observe::swap(host).await
}

/// Turns swap off, also for later boots, and looks that none is left. `keep`: kubelet is told to live with it.
pub async fn set_up_swap(
    host: &Host,
    recorder: &dyn Recorder,
    keep: bool,
    cx: &StepContext,
) -> Result<Outcome, StepError> {
    let observed = observe::swap(host).await?;
    let plan = swap::decide(&observed, keep);
    if plan.actions.is_empty() {
        return Ok(Outcome::Unchanged);
    }
    for source in &plan.sources {
        cx.note(&format!("swap comes from {source}"));
    }
    recorder.record(&swap_before(&plan))?;
    let mut done = Vec::new();
    let mut reload = false;
    for action in &plan.actions {
        match action {
            swap::Action::CommentFstab(text) => {
                comment_fstab(host, text)?;
                reload = true;
                done.push(format!("commented the swap lines of {}", swap::FSTAB));
            }
            swap::Action::Mask(unit) => {
                let path = Path::new(swap::SYSTEM_UNITS).join(unit);
                durable::replace_link(host.fs.as_ref(), Path::new("/dev/null"), &path)
                    .map_err(|e| StepError::caused(format!("the swap unit {unit} cannot be masked"), e))?;
                reload = true;
                done.push(format!("masked {unit}"));
            }
            swap::Action::Disable(unit) => {
                host.systemd
                    .disable(unit)
                    .await
                    .map_err(|e| StepError::caused(format!("the swap unit {unit} cannot be disabled"), e))?;
                reload = true;
                done.push(format!("disabled {unit}"));
            }
            swap::Action::Off(area) => {
                cx.note(&format!("turning swap off on {}", area.path.display()));
                swap_off(host, area).await?;
                done.push(format!("swap off on {}", area.path.display()));
            }
        }
    }
    if reload {
        host.systemd.reload().await.map_err(|e| StepError::caused("systemd could not reload its units", e))?;
    }
    for path in &plan.unexplained {
        done.push(format!(
            "swap on {} was turned on by a script or the initramfs, and will be again at the next boot",
            path.display()
        ));
    }
    Ok(outcome(&done))
}

fn swap_before(plan: &swap::Plan) -> Before {
    let mut before = Before::default();
    for action in &plan.actions {
        match action {
            swap::Action::CommentFstab(_) => before.fstab = true,
            swap::Action::Mask(unit) => before.masked.push(unit.clone()),
            swap::Action::Disable(unit) => before.disabled.push(unit.clone()),
            swap::Action::Off(area) => before.swaps.push(area.clone()),
        }
    }
    before
}

fn comment_fstab(host: &Host, text: &str) -> Result<(), StepError> {
    let path = Path::new(swap::FSTAB);
    let failed = |e| {
        StepError::caused(format!("the swap lines of {} cannot be commented out", swap::FSTAB), e)
            .hint("comment them out by hand, then run it again")
    };
    let mode = host.fs.lstat(path).map_err(failed)?.map_or(0o644, |stat| stat.mode);
    durable::write(host.fs.as_ref(), path, text.as_bytes(), mode).map_err(failed)?;
    Ok(())
}

async fn swap_off(host: &Host, area: &SwapArea) -> Result<(), StepError> {
    let name = area.path.display();
    let failed = |message: String| {
        StepError::new(message)
            .hint(format!("free memory, then `swapoff {name}`, or set node.kubelet.config.failSwapOn to false"))
    };
    if let Err(e) = host.kernel.swap_off(&area.path).await {
        return Err(StepError { source: Some(Box::new(e)), ..failed(format!("swap on {name} cannot be turned off")) });
    }
    let left = host.kernel.swaps().map_err(|e| StepError::caused("the active swap areas cannot be read", e))?;
    if left.iter().any(|left| left.path == area.path) {
        return Err(failed(format!("swap on {name} is still active after it was turned off")));
    }
    Ok(())
}

fn write(host: &Host, path: &str, text: &str) -> Result<Change, StepError> {
    let path = Path::new(path);
    let failed = |e| StepError::caused(format!("{} cannot be written", path.display()), e);
    if let Some(dir) = path.parent() {
        durable::ensure_dir(host.fs.as_ref(), dir, 0o755).map_err(failed)?;
    }
    durable::write(host.fs.as_ref(), path, text.as_bytes(), 0o644).map_err(failed)
}

fn outcome(done: &[String]) -> Outcome {
    if done.is_empty() { Outcome::Unchanged } else { Outcome::Changed(done.join("; ")) }
}

#[cfg(test)]
mod tests;

//! Control groups below the host's own root.

use crate::HostError;
use std::path::{Component, Path};

/// `path` without slashes around it; refuses the root itself and whatever leads out of it.
pub(crate) fn relative(path: &str) -> Result<String, HostError> {
    let trimmed = path.trim_matches('/');
    let plain = |c: Component<'_>| matches!(c, Component::Normal(_));
    if trimmed.is_empty() || !Path::new(trimmed).components().all(plain) {
        let reason = "it is the root or leads out of it".to_owned();
        return Err(HostError::Failed { what: format!("use control group {path:?}"), reason });
    }
    Ok(trimmed.to_owned())
}

/// Sorts so that each group comes after all below it; equal depths by name.
pub(crate) fn deepest_first(groups: &mut [String]) {
    groups.sort_by(|a, b| b.matches('/').count().cmp(&a.matches('/').count()).then_with(|| a.cmp(b)));
}

//! The syncs that durable changes consist of. Each place that syncs has a name of its own.
//!
//! The names are for one test: with any one of these syncs left out, the model of the power cut has to find a fault. So
//! nothing in this module's folder syncs in another way, and a test reads the names from the source.

use crate::{FileWriter, Fs, FsError};
use std::path::Path;

/// Syncs the file that was just written.
pub(super) fn written(site: &'static str, file: &mut dyn FileWriter, path: &Path) -> Result<(), FsError> {
    named(site, || file.sync().map_err(|e| FsError::new("sync", path, e)))
}

/// Syncs a file that is there.
pub(super) fn file(site: &'static str, fs: &dyn Fs, path: &Path) -> Result<(), FsError> {
    named(site, || fs.sync_file(path))
}

/// Syncs a directory.
pub(super) fn dir(site: &'static str, fs: &dyn Fs, path: &Path) -> Result<(), FsError> {
    named(site, || fs.sync_dir(path))
}

#[cfg(not(any(test, feature = "testing")))]
fn named(site: &'static str, sync: impl FnOnce() -> Result<(), FsError>) -> Result<(), FsError> {
    if left_out::is(site) { Ok(()) } else { sync() }
}

/// Syncs that a lab's build leaves out, so that a recorded disk shows that it notices: `FLEXNODE_LEAVE_OUT_SYNC` has their
/// names with commas between them, or `all`.
#[cfg(all(feature = "failpoints", not(any(test, feature = "testing"))))]
mod left_out {
    use std::sync::LazyLock;

    const VARIABLE: &str = "FLEXNODE_LEAVE_OUT_SYNC";
    static NAMES: LazyLock<String> = LazyLock::new(|| std::env::var(VARIABLE).unwrap_or_default());

    pub(super) fn is(site: &str) -> bool {
        NAMES.split(',').any(|name| name == site || name == "all")
    }
}

#[cfg(not(any(feature = "failpoints", test, feature = "testing")))]
mod left_out {
    pub(super) const fn is(_: &str) -> bool {
        false
    }
}

#[cfg(any(test, feature = "testing"))]
pub use testing::{site, sites};

#[cfg(any(test, feature = "testing"))]
use testing::named;

/// Which sync runs, for the file system in memory.
#[cfg(any(test, feature = "testing"))]
mod testing {
    use std::cell::Cell;

    thread_local! {
        static SITE: Cell<&'static str> = const { Cell::new("") };
    }

    pub(super) fn named<T>(site: &'static str, sync: impl FnOnce() -> T) -> T {
        SITE.set(site);
        let result = sync();
        SITE.set("");
        result
    }

    /// The name of the sync that this thread is in; empty outside of one.
    pub fn site() -> &'static str {
        SITE.get()
    }

    /// The names of all places in [`crate::durable`] that sync, as they stand in the source.
    pub fn sites() -> Vec<&'static str> {
        let sources = [include_str!("../durable.rs"), include_str!("tree.rs")];
        sources.iter().flat_map(|source| source.split("sync::").skip(1)).filter_map(name).collect()
    }

    /// The name in a call of one of the three functions, whose text follows `sync::`.
    fn name(call: &'static str) -> Option<&'static str> {
        let call = ["written(", "file(", "dir("].iter().find_map(|function| call.strip_prefix(function))?;
        let (_, quoted) = call.split_once('"')?;
        quoted.split_once('"').map(|(name, _)| name)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn every_sync_has_a_name_of_its_own() {
            let names = sites();
            assert!(names.len() > 10, "{names:?}");
            let different: std::collections::BTreeSet<_> = names.iter().collect();
            assert_eq!(different.len(), names.len(), "{names:?}");
            for source in [include_str!("../durable.rs"), include_str!("tree.rs")] {
                for other in [".sync_dir(", ".sync_file(", ".sync()"] {
                    assert!(!source.contains(other), "{other} has no name");
                }
            }
        }
    }
}

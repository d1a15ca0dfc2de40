//! Who tells the daemon that something changed: units over D-Bus, files by inotify, the own Node by a watch.
//!
//! A source that ends is begun again after a pause; until then its subjects are looked at by the clock.

use super::DaemonContext;
use super::cluster::Member;
use super::schedule::Subject;
use flexnode_isolation::none::DEFAULT_BASE;
use flexnode_status::observe::{Part, UNITS};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// After a source ended: twice as long each time.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LAST: Duration = Duration::from_secs(60);

const STATE_DIR: &str = "/etc/aks-flex-node";
const JOURNAL: &str = flexnode_ops::journal::DIR;
const CNI_CONFIGURATION: &str = "/etc/cni/net.d";
const CNI_PROGRAMS: &str = "/opt/cni/bin";
const KUBELET: &str = "/var/lib/kubelet";
const PKI: &str = "/var/lib/kubelet/pki";

/// What changed and was not looked at yet.
#[derive(Debug, Default)]
pub struct Hints {
    subjects: Mutex<BTreeSet<Subject>>,
    told: Notify,
    /// kubelet's credentials may have changed.
    pub credentials: Notify,
    blind: AtomicBool,
}

impl Hints {
    /// Something changed.
    pub fn add(&self, subjects: impl IntoIterator<Item = Subject>) {
        self.subjects.lock().unwrap_or_else(PoisonError::into_inner).extend(subjects);
        self.told.notify_one();
    }

    /// Takes what changed.
    pub fn take(&self) -> BTreeSet<Subject> {
        std::mem::take(&mut self.subjects.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for a change.
    pub async fn told(&self) {
        self.told.notified().await;
    }

    /// Changes of files are not told at this time.
    pub fn is_blind(&self) -> bool {
        self.blind.load(Ordering::Relaxed)
    }
}

/// The directories that are watched.
pub fn directories(configuration: &Path) -> Vec<PathBuf> {
    let base = Path::new(DEFAULT_BASE);
    let mut dirs: Vec<PathBuf> =
        [STATE_DIR, JOURNAL, CNI_CONFIGURATION, CNI_PROGRAMS, KUBELET, PKI].map(PathBuf::from).into();
    dirs.extend([base.to_path_buf(), base.join("current/bin"), base.join("current/etc")]);
    if let Some(dir) = configuration.parent()
        && !dirs.iter().any(|watched| watched == dir)
    {
        dirs.push(dir.to_path_buf());
    }
    dirs
}

/// What a change in a directory may have changed.
pub fn subjects(dir: &Path) -> Vec<Subject> {
    let part = Subject::Part;
    match dir.to_str() {
        Some(JOURNAL) => vec![Subject::Records, part(Part::Slots)],
        Some(CNI_CONFIGURATION) => vec![part(Part::Cni), part(Part::Runtime)],
        Some(CNI_PROGRAMS) => vec![part(Part::Cni)],
        Some(KUBELET) => vec![part(Part::KubeletState), part(Part::Certificates)],
        Some(PKI) => vec![part(Part::Certificates)],
        Some(path) if path.starts_with(DEFAULT_BASE) => {
            vec![part(Part::Slots), part(Part::Programs), part(Part::Versions), Subject::Configuration]
        }
        _ => vec![Subject::Records, Subject::Configuration],
    }
}

/// All sources; they never end.
pub async fn listen(context: &DaemonContext, hints: &Arc<Hints>, members: watch::Receiver<Option<Member>>) {
    tokio::join!(units(context, hints), files(context, hints), node(hints, members));
}

async fn units(context: &DaemonContext, hints: &Hints) {
    let changed = [Part::Units, Part::Healthz, Part::Runtime].map(Subject::Part);
    let mut pause = PAUSE_FIRST;
    loop {
        let begun = context.host.clock.monotonic();
        let error = context.units.watch(&UNITS, &|| hints.add(changed)).await;
        tracing::warn!(%error, "changes of units are not told for now; they are looked at by the clock");
        hints.add(changed);
        pause = rest(context, begun, pause).await;
    }
}

async fn files(context: &DaemonContext, hints: &Hints) {
    let dirs = directories(&context.config);
    let mut pause = PAUSE_FIRST;
    loop {
        let begun = context.host.clock.monotonic();
        hints.blind.store(false, Ordering::Relaxed);
        // What changed before it was watched.
        hints.add(dirs.iter().flat_map(|dir| subjects(dir)));
        let tell = |dir: &Path| {
            if dir == Path::new(PKI) {
                hints.credentials.notify_one();
            }
            hints.add(subjects(dir));
        };
        let error = context.files.watch(&dirs, &tell).await;
        tracing::warn!(%error, "changes of files are not told for now; they are looked at by the clock");
        hints.blind.store(true, Ordering::Relaxed);
        pause = rest(context, begun, pause).await;
    }
}

/// Waits before a source is begun again; gives the next pause.
async fn rest(context: &DaemonContext, begun: Duration, pause: Duration) -> Duration {
    let clock = context.host.clock.as_ref();
    let pause = if clock.monotonic().saturating_sub(begun) > PAUSE_LAST { PAUSE_FIRST } else { pause };
    clock.sleep(pause).await;
    (pause * 2).min(PAUSE_LAST)
}

async fn node(hints: &Hints, mut members: watch::Receiver<Option<Member>>) {
    loop {
        let member = members.borrow_and_update().clone();
        let changed = match member {
            None => members.changed().await,
            Some(member) => {
                let tell = |told| {
                    member.followed.set(told);
                    hints.add([Part::Node, Part::Clock].map(Subject::Part));
                };
                tokio::select! {
                    never = member.cluster.watch(&hints.credentials, &tell) => match never {},
                    changed = members.changed() => changed,
                }
            }
        };
        if changed.is_err() {
            // The daemon ends.
            return std::future::pending().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_tells_of_something() {
        let dirs = directories(Path::new("/srv/node.json"));
        assert!(dirs.contains(&PathBuf::from("/srv")));
        assert_eq!(directories(Path::new("/etc/aks-flex-node/config.json")).len(), dirs.len() - 1);
        for dir in &dirs {
            assert!(!subjects(dir).is_empty(), "{}", dir.display());
        }
        assert!(subjects(Path::new("/srv")).contains(&Subject::Configuration));
        assert!(subjects(Path::new("/opt/unbounded/node")).contains(&Subject::Part(Part::Slots)));
    }
}

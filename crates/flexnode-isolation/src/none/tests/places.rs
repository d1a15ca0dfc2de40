use super::*;
use flexnode_host::Fs;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[tokio::test]
async fn base_unit_directory_and_host_root_can_be_elsewhere() {
    let mut node = Node::new();
    node.backend.layout = Layout::new("/srv/node");
    node.backend.units = UnitSpec::of(&node.backend.layout);
    node.backend.systemd_dir = "/srv/units".into();
    node.backend.host_root = "/srv/root".into();
    node.fake.fs.put_dir("/srv/units", 0o755);
    node.backend.prepare(&spec("v1")).await.unwrap();
    node.backend.activate("v1").await.unwrap();
    node.backend.link_cni_plugins("v1").unwrap();
    let fs = &node.fake.fs;
    assert!(fs.text("/srv/units/unbounded-kubelet.service").contains("ExecStart=/srv/node/current/bin/kubelet "));
    assert!(fs.text("/srv/units/unbounded-kubelet.service.d/00-path.conf").contains("PATH=/srv/node/current/bin:"));
    let link = fs.read_link(Path::new("/srv/root/var/lib/kubelet/config.yaml")).unwrap();
    assert_eq!(link, Path::new("/srv/node/current/etc/kubelet/config.yaml"));
    assert!(fs.exists("/srv/root/opt/cni/bin/bridge"));
    assert!(fs.read_dir(Path::new(UNITS)).unwrap().is_empty() && !fs.exists("/opt/unbounded"));
    node.backend.destroy().await.unwrap();
    assert!(!fs.exists("/srv/node") && fs.read_dir(Path::new("/srv/units")).unwrap().is_empty());
}

/// Collects the parents of events.
#[derive(Clone, Default)]
struct Parents(Arc<Mutex<Vec<Option<u64>>>>);

impl Subscriber for Parents {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(7)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push(event.parent().map(Id::into_u64));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn what_is_logged_belongs_to_the_span_that_was_given() {
    let parents = Parents::default();
    let mut node = Node::new();
    node.backend.prepare_version(&spec("v1")).await.unwrap();
    node.fake.fs.put("/opt/cni/bin/bridge", "theirs", 0o755);
    tracing::subscriber::with_default(parents.clone(), || {
        node.backend.log = tracing::info_span!("node");
        node.backend.link_cni_plugins("v1").unwrap();
    });
    assert_eq!(*parents.0.lock().unwrap(), [Some(7)]);
}

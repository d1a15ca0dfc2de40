use super::*;
use crate::conformance::{CHECKS, Slot, Subject};
use async_trait::async_trait;
use flexnode_host::Host;
use flexnode_host::testing::{Script, Verb};
use std::path::PathBuf;

struct Fake {
    node: Node,
    host: Host,
}

#[async_trait]
impl Subject for Fake {
    fn backend(&self) -> &dyn crate::Backend {
        &self.node.backend
    }
    fn host(&self) -> &Host {
        &self.host
    }
    fn spec(&self, which: Slot) -> NodeSpec {
        spec(if which == Slot::One { "v1" } else { "v2" })
    }
    fn units(&self) -> Vec<String> {
        [UNIT_CONTAINERD, UNIT_KUBELET].map(String::from).to_vec()
    }
    fn watched(&self) -> Vec<PathBuf> {
        ["/etc", "/opt", "/usr", "/var"].map(PathBuf::from).to_vec()
    }
    async fn break_start(&self, unit: &str, broken: bool) {
        self.node.fake.systemd.clear_scripts();
        if broken {
            self.node.fake.systemd.script_always(Verb::Start, unit, Script::exit(1));
        }
    }
    fn may_stay(&self) -> Vec<PathBuf> {
        ["/var/lib/kubelet", "/etc/systemd/system/multi-user.target.wants"].map(PathBuf::from).to_vec()
    }
}

#[tokio::test]
async fn the_backend_conforms_on_the_fake_host() {
    for with_engine in [false, true] {
        let mut node = Node::new().reaping();
        node.fake.fs.put_dir("/sys/fs/cgroup", 0o755);
        node.fake.commands.answer("echo", &["two words"], "two words\n").exit("false", &[], 1, "", "");
        node.fake.commands.answer("journalctl", &[], "");
        if with_engine {
            // Its journal lies below /var/lib, which is compared: look at the backend's own places then.
            node.backend.engine =
                Some(flexnode_ops::Engine::new(&node.fake.host(), "test", flexnode_ops::Cancel::new()).unwrap());
        }
        let host = node.fake.host();
        let subject = Fake { node, host };
        for check in CHECKS {
            subject.node.fake.clock.advance(Duration::from_secs(1));
            let verdict = if with_engine { check.run(&WithJournal(&subject)).await } else { check.run(&subject).await };
            assert_eq!(verdict, Ok(()), "{} (engine: {with_engine})", check.name);
        }
    }
}

/// The same without the journal's directory among what is compared.
struct WithJournal<'a>(&'a Fake);

#[async_trait]
impl Subject for WithJournal<'_> {
    fn backend(&self) -> &dyn crate::Backend {
        self.0.backend()
    }
    fn host(&self) -> &Host {
        self.0.host()
    }
    fn spec(&self, which: Slot) -> NodeSpec {
        self.0.spec(which)
    }
    fn units(&self) -> Vec<String> {
        self.0.units()
    }
    fn watched(&self) -> Vec<PathBuf> {
        ["/etc", "/opt", "/usr", "/var/lib/kubelet"].map(PathBuf::from).to_vec()
    }
    async fn break_start(&self, unit: &str, broken: bool) {
        self.0.break_start(unit, broken).await;
    }
    fn may_stay(&self) -> Vec<PathBuf> {
        self.0.may_stay()
    }
}

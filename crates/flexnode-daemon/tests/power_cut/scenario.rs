//! What is run when the power goes.

use crate::world::{CONFIG, NEW, OLD, World, config};
use flexnode_daemon::operations::lifecycle::{self, Lifecycle};
use flexnode_daemon::operations::upgrade::{self, Target, UpgradeOptions};
use flexnode_daemon::operations::{rollback, slots};
use flexnode_daemon::reset::{self, Options, ResetContext};
use flexnode_daemon::start;
use flexnode_host::testing::{History, MemFs, Script, Verb};
use flexnode_isolation::none::UNIT_KUBELET;
use flexnode_ops::{Cancel, Engine, Silent, report};
use std::error::Error;
use std::sync::Arc;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Start,
    /// Start on a node that runs, with another label in the configuration.
    StartWithLabel,
    Upgrade,
    /// To a version whose kubelet does not come up.
    UpgradeThatFails,
    Rollback,
    Restart,
    Stop,
    StartNode,
    Prune,
    Reset,
    Destroy,
}

impl Action {
    /// What a person does before it.
    pub fn arrange(self, world: &World) {
        let fs = &world.fake.fs;
        match self {
            Action::Upgrade | Action::UpgradeThatFails => _ = fs.put(CONFIG, config(NEW, "1"), 0o600),
            Action::Rollback => _ = fs.put(CONFIG, config(OLD, "1"), 0o600),
            Action::StartWithLabel => _ = fs.put(CONFIG, config(OLD, "2"), 0o600),
            Action::Prune => {
                fs.put("/opt/unbounded/node/1.35.0-00000000/bin/kubelet", "x", 0o755);
                fs.put("/opt/unbounded/node/1.35.0-00000000/etc/goal.json", "x", 0o600);
            }
            _ => {}
        }
        fs.settle();
    }

    /// Runs it as the command line does; a rollback goes to this slot, or to the previous one. An error is what a person
    /// would read.
    pub async fn run(self, world: &World, back_to: Option<&str>) -> Result<(), String> {
        let node = &world.node;
        let life = |which| lifecycle::run(node, which, Arc::new(Silent), Cancel::new());
        if self == Action::UpgradeThatFails {
            world.fake.systemd.script(Verb::Start, UNIT_KUBELET, Script::exit(1));
        }
        match self {
            Action::Start | Action::StartWithLabel => {
                told(start::run(&node.start, Arc::new(Silent), Cancel::new()).await)
            }
            Action::Upgrade | Action::UpgradeThatFails => {
                let target = Target::Config(CONFIG.into());
                let options = UpgradeOptions { target, yes: true, retry: false, rollback: true };
                told(upgrade::run(node, &options, Arc::new(Silent), Cancel::new()).await)
            }
            Action::Rollback => told(rollback::run(node, back_to, Arc::new(Silent), Cancel::new()).await),
            Action::Restart => told(life(Lifecycle::Restart).await),
            Action::Stop => told(life(Lifecycle::Stop).await),
            Action::StartNode => told(life(Lifecycle::Start).await),
            Action::Prune => told(slots::prune(node)),
            Action::Reset => {
                let context = ResetContext::new(world.fake.host(), world.cri.clone(), Options::default());
                told(reset::run(&context, node.start.locks.as_ref(), Arc::new(Silent), Cancel::new()).await)
            }
            Action::Destroy => {
                let mut backend = node.backend();
                backend.engine = Some(Engine::new(node.host(), "command", Cancel::new()).map_err(|e| e.to_string())?);
                told(backend.destroy().await)
            }
        }
    }
}

fn told<T, E: Error + Send + Sync + 'static>(result: Result<T, E>) -> Result<(), String> {
    // The second form names which of the checks failed.
    result.map(drop).map_err(|e| format!("{} ({e:?})", report::layers(&e).join(": ")))
}

/// An operation on a host on which others ran before.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub before: &'static [Action],
    pub action: Action,
}

pub const SCENARIOS: [Scenario; 11] = {
    const fn of(name: &'static str, before: &'static [Action], action: Action) -> Scenario {
        Scenario { name, before, action }
    }
    use Action as A;
    [
        of("start", &[], A::Start),
        of("start with another label", &[A::Start], A::StartWithLabel),
        of("upgrade", &[A::Start], A::Upgrade),
        of("upgrade that fails", &[A::Start], A::UpgradeThatFails),
        of("rollback", &[A::Start, A::Upgrade], A::Rollback),
        of("restart", &[A::Start], A::Restart),
        of("stop", &[A::Start], A::Stop),
        of("start-node", &[A::Start, A::Stop], A::StartNode),
        of("slots prune", &[A::Start, A::Upgrade], A::Prune),
        of("reset", &[A::Start], A::Reset),
        of("destroy", &[A::Start], A::Destroy),
    ]
};

/// A scenario that was run once, with the disk at every moment of it.
#[derive(Debug)]
pub struct Recorded {
    pub scenario: Scenario,
    /// The disk before the operation.
    pub before: MemFs,
    pub history: History,
    /// Slots of the old version and the new one.
    pub old: String,
    pub new: String,
}

impl Recorded {
    /// Runs the scenario.
    pub async fn new(pristine: &MemFs, scenario: &Scenario) -> Self {
        let world = World::boot(pristine.fork());
        let (mut old, mut new) = (String::new(), String::new());
        for action in scenario.before {
            action.arrange(&world);
            action.run(&world, None).await.unwrap_or_else(|e| panic!("{}: before it, {action:?}: {e}", scenario.name));
            match action {
                Action::Start => old = current(&world),
                Action::Upgrade => new = current(&world),
                _ => {}
            }
        }
        scenario.action.arrange(&world);
        let fs = &world.fake.fs;
        let before = fs.fork();
        fs.record();
        let ended = scenario.action.run(&world, None).await;
        let history = fs.recorded();
        match scenario.action {
            Action::UpgradeThatFails => assert!(ended.is_err(), "it was to fail"),
            _ => ended.unwrap_or_else(|e| panic!("{}: {e}", scenario.name)),
        }
        match scenario.action {
            Action::Start => old = current(&world),
            Action::Upgrade => new = current(&world),
            _ => {}
        }
        if new.is_empty() && scenario.action == Action::UpgradeThatFails {
            let is_new = |name: &String| name.starts_with(NEW);
            new = world.node.layout().versions(fs.as_ref()).unwrap().into_iter().find(is_new).unwrap();
        }
        Self { scenario: scenario.clone(), before, history, old, new }
    }
}

fn current(world: &World) -> String {
    world.node.layout().current(world.fake.fs.as_ref()).unwrap().unwrap_or_default()
}

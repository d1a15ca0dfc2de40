//! The crash suite's hands: they bring a host to where an operation has something to do, make it meet a point, start the
//! agent anew, and ask the [`Checker`]. They know operations and exit codes, and no step.

use crate::checker::Checker;
use crate::points::{Point, Random};
use crate::{Node, SOON, Version};
use flexnode_lab::{Output, poll};
use serde_json::Value;
use std::time::Duration;

/// The exit code of a program that SIGKILL ended, as a shell tells it.
pub const KILLED: i32 = 137;
const SERVICE: &str = "aks-flex-node-agent.service";
/// How long the agent's service may take to finish what was open.
const TAKEN_UP: Duration = Duration::from_secs(120);
/// Settings of lab builds: the probation that the suite has time for, and the end of steps that hang.
const SETTINGS: [&str; 2] = ["FLEXNODE_PROBATION=2", "FLEXNODE_HANG_LIMIT=1"];
/// The configuration of the version that is gone to.
const OTHER: &str = "/run/flexnode-other.json";

/// A node that goes from one version to the other and back, with a point in its way each time.
#[derive(Debug)]
pub struct Series<'a> {
    node: &'a Node<'a>,
    checker: Checker<'a>,
    versions: [(Version, &'static str); 2],
    random: Random,
    /// Goals so far: each has slots of its own.
    goals: u32,
}

impl<'a> Series<'a> {
    /// Starts the node and goes once to the other version, so that there is one to go back to. The agent's service stands
    /// still from then on: it is started anew after each point.
    pub fn new(node: &'a Node<'a>, versions: [(Version, &'static str); 2], seed: u64) -> Self {
        Checker::prepare(node);
        node.configure(&node.config_of(versions[0].0, versions[0].1));
        node.host.put(OTHER, "{}", 0o600).unwrap();
        node.start();
        let drop_in = format!("[Service]\nEnvironment={}\n", SETTINGS.join(" "));
        node.host.put(&format!("/etc/systemd/system/{SERVICE}.d/lab.conf"), drop_in, 0o644).unwrap();
        node.host.sh(&format!("systemctl daemon-reload; systemctl stop {SERVICE}")).unwrap().success().unwrap();
        let checker = Checker::new(node);
        let series = Self { node, checker, versions, random: Random(seed), goals: 0 };
        series.must(&series.command("upgrade"));
        series
    }

    /// The plan of an operation, as the agent itself prints it.
    pub fn plan(&self, operation: &str) -> Value {
        let mut words = vec!["plan", operation, "--output", "json"];
        if operation == "upgrade" {
            self.aim();
            words.extend(["--to-config", OTHER]);
        }
        let output = self.node.agent(&words).success().unwrap();
        serde_json::from_str(&output.stdout).unwrap()
    }

    /// Makes one operation meet one point, and says what was wrong afterwards.
    pub fn meet(&mut self, point: &Point) -> Result<(), String> {
        self.arrange(&point.operation);
        if point.operation == "upgrade" && self.random.below(3) == 0 {
            // What is gone to is not always there already.
            self.goals += 1;
            self.must(&["slots", "prune"]);
        }
        let words = self.command(&point.operation);
        let output = self.run(&[&format!("FLEXNODE_FAILPOINT={point}")], &words);
        let said = format!("{}{}", output.stdout, output.stderr);
        if point.crashes() != (output.code == KILLED) {
            return Err(format!("{point}: exit code {}\n{said}", output.code));
        }
        let took_up = self.begin_anew(&words)?;
        let problems = self.checker.problems();
        if problems.is_empty() {
            return Ok(());
        }
        Err(format!("{point}: {}\n{said}\n{took_up}", problems.join("\n  ")))
    }

    /// After a failure: the node as it was made, by the agent's own means.
    pub fn mend(&mut self) {
        self.must(&["reset", "--yes"]);
        self.node.start();
        self.node.host.sh(&format!("systemctl stop {SERVICE}")).unwrap().success().unwrap();
        self.checker = Checker::new(self.node);
        self.must(&self.command("upgrade"));
    }

    /// A new start of the agent: its service takes up what was interrupted. What failed and waits for a person is run
    /// again by one; and where the way back had failures of its own, one starts the node, as the agent does not try again
    /// by itself.
    fn begin_anew(&self, words: &[&str]) -> Result<String, String> {
        let begin = "date +%s";
        let since = self.node.host.sh(begin).unwrap().stdout;
        // So many starts in so short a time are the suite's and no crash loop.
        let start = format!("systemctl reset-failed {SERVICE}; systemctl start {SERVICE}");
        self.node.host.sh(&start).unwrap().success().unwrap();
        let ended = poll(TAKEN_UP, SOON, "the interrupted operation to be finished", || {
            Ok((!self.is_interrupted()).then_some(()))
        });
        let stop =
            format!("systemctl stop {SERVICE}; journalctl --no-pager -o cat -u {SERVICE} --since=@{}", since.trim());
        let said = self.node.host.sh(&stop).unwrap().stdout;
        if let Err(error) = ended {
            return Err(format!("{error:#}\n{said}"));
        }
        let record = self.record();
        let person = match (&record["phase"], &record["outcome"]) {
            (phase, _) if *phase == "running" => Some(words),
            (_, outcome) if *outcome == "rollbackFailed" => Some(&["start-node"] as &[&str]),
            _ => None,
        };
        if let Some(words) = person {
            let again = self.run(&[], words);
            if again.code != 0 {
                return Err(format!(
                    "run again it ended with {}: {}{}\n{said}",
                    again.code, again.stdout, again.stderr
                ));
            }
        }
        Ok(said)
    }

    fn record(&self) -> Value {
        let text = self.node.host.read("/var/lib/aks-flex-node/journal/record.json").unwrap_or_default();
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    fn is_interrupted(&self) -> bool {
        let record = self.record();
        record["phase"] == "rollingBack" || (record["phase"] == "running" && record["failedStep"].is_null())
    }

    /// Brings the node to where the operation has something to do.
    fn arrange(&self, operation: &str) {
        let stopped = self.state()["flexnode"]["stoppedByPerson"] == true;
        match (operation, stopped) {
            ("start-node", false) => self.must(&["stop"]),
            ("start-node", true) | (_, false) => {}
            (_, true) => self.must(&["start-node"]),
        }
        if operation == "rollback" && !self.has_previous() {
            self.must(&self.command("upgrade"));
        }
    }

    /// The arguments with which an operation is run.
    fn command(&self, operation: &str) -> Vec<&'static str> {
        match operation {
            "upgrade" => {
                self.aim();
                vec!["upgrade", "--to-config", OTHER, "--yes", "--retry"]
            }
            "rollback" => vec!["rollback", "--yes"],
            "restart" => vec!["restart"],
            "stop" => vec!["stop"],
            "start-node" => vec!["start-node"],
            other => panic!("the suite does not know how {other} is run"),
        }
    }

    /// Writes the configuration of the version that does not run.
    fn aim(&self) {
        let to = usize::from(self.node.active() == self.versions[0].0.kubernetes);
        let (version, source) = self.versions[to];
        let mut config = self.node.config_of(version, source);
        config["node"]["kubelet"]["config"]["maxOpenFiles"] = (1_000_000 + self.goals).into();
        self.node.host.put(OTHER, config.to_string(), 0o600).unwrap();
    }

    fn state(&self) -> Value {
        serde_json::from_str(&self.node.host.read("/etc/aks-flex-node/daemon-state.json").unwrap()).unwrap()
    }

    fn has_previous(&self) -> bool {
        let state = self.state();
        let Some(previous) = state["flexnode"]["previousSlot"].as_str() else { return false };
        let manifest = format!("test -e /opt/unbounded/node/{previous}/etc/manifest.json");
        previous != self.node.active_slot() && self.node.host.sh(&manifest).unwrap().code == 0
    }

    fn run(&self, variables: &[&str], words: &[&str]) -> Output {
        self.node.agent_with(&[&SETTINGS[..], variables].concat(), words)
    }

    #[track_caller]
    fn must(&self, words: &[&str]) {
        let output = self.run(&[], words);
        assert_eq!(output.code, 0, "{words:?}: {}{}\n{}", output.stdout, output.stderr, self.node.evidence());
    }
}

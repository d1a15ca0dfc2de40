//! A recording: the life of a node in a machine, with every write and flush of its disk.
//!
//! It is made once for an agent and its inputs and lies in the lab's cache; states of power cuts are made from it as often
//! as wanted ([`super::cut`]).

use super::golden::Golden;
use super::{Machine, Options};
use crate::host::Share;
use crate::packages::Suite;
use crate::run::must;
use crate::snapshot::sha256;
use crate::{ControlPlane, Lab, cache, control_plane, kubernetes, node};
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Changed when the recorder does something else.
const RECIPE: &str = "2";
/// The form of `recording.json`.
const FORM: u64 = 1;
/// The name of the machine and of its Node.
pub const NAME: &str = "recorded";
/// What nodes know the cluster by.
const IDENTITY: &str = "identity";
/// Where the machine has the agent's program.
pub const AGENT: &str = "/srv/aks-flex-node";
const CONFIG: &str = "/etc/aks-flex-node/config.json";
const NEXT: &str = "/etc/aks-flex-node/next.json";
/// The version that is started, and the one that is gone to: where the machine sees their bundles.
const VERSIONS: [(&str, Suite, &str); 2] =
    [(kubernetes::OLD, Suite::Trixie, "/srv/old"), (kubernetes::NEW, Suite::Forky, "/srv/new")];

/// What is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Life<'a> {
    /// The agent's program, static.
    pub agent: &'a Path,
    /// What others have on the machine before it is a node: a script.
    pub prepare: &'a str,
    /// Variables of the environment for the agent, `NAME=VALUE`; of its commands, not of its service.
    pub variables: &'a [&'a str],
}

/// What is run, in this order: a name, and the agent's arguments.
const OPERATIONS: [(&str, &[&str]); 5] = [
    ("start", &["start", "--timeout", "300s"]),
    ("upgrade", &["upgrade", "--to-config", NEXT, "--yes"]),
    ("rollback", &["rollback", "--yes"]),
    ("restart", &["restart"]),
    ("reset", &["reset", "--yes"]),
];

/// One operation of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// Where the log ended when it began, in bytes.
    pub from: u64,
    /// Where the log ended when it said that it is done.
    pub to: u64,
}

/// A recording in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Its directory.
    pub folder: PathBuf,
    /// Its operations, in order.
    pub parts: Vec<Part>,
    /// The slot of the version that was started.
    pub old: String,
    /// The slot of the version that was gone to.
    pub new: String,
    /// The number of the lab that it was recorded in, which is in its addresses.
    pub lab: u8,
    /// The machine's memory in bytes, as its kernel tells it.
    pub memory: u64,
    /// The machine's processors.
    pub processors: usize,
}

impl Recording {
    /// Makes it, or takes it from the cache.
    pub fn get(life: Life<'_>) -> Result<Self> {
        let agent = sha256(life.agent).with_context(|| format!("cannot read {}", life.agent.display()))?;
        let golden = Golden::get()?.name();
        let mut inputs = vec![RECIPE, &agent, life.prepare, &golden];
        inputs.extend(life.variables);
        let parts = VERSIONS.map(|(kubernetes, suite, _)| format!("{kubernetes} {}", suite.name()));
        inputs.extend(parts.iter().map(String::as_str));
        let commands = OPERATIONS.map(|(_, words)| words.join(" "));
        inputs.extend(commands.iter().map(String::as_str));
        let what = "recording the life of a node in a machine (some ten minutes)";
        let make = || cache::entry("recording", &inputs, what, |into| record(life, into));
        let mut folder = make()?;
        if is_old(&folder)? {
            cache::remove_tree(&folder)?;
            folder = make()?;
        }
        Self::open(&folder)
    }

    /// Reads what the recorder wrote.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("recording.json");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        parse(&text, folder).with_context(|| format!("{} is not what the recorder writes", path.display()))
    }

    /// The disk as it was when the log began: to be copied.
    pub fn disk(&self) -> PathBuf {
        self.folder.join("before.img")
    }

    /// The log of its writes.
    pub fn log(&self) -> PathBuf {
        self.folder.join("log.img")
    }

    /// Its name in the cache.
    pub fn name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Where the machine saw the bundle of the version that is started, and where it is on this machine.
    pub fn bundle(&self, agent: &Path) -> Result<(PathBuf, PathBuf)> {
        let (kubernetes, suite, at) = VERSIONS[0];
        Ok((PathBuf::from(at), node::bundle(agent, kubernetes, suite)?))
    }

    /// A cluster that the node takes for the one that it joined. The labs of all recordings of a number exclude each other.
    pub fn cluster(&self) -> Result<(Lab, ControlPlane)> {
        let lab = Lab::at(self.lab)?;
        let options = control_plane::Options { identity: Some(self.folder.join(IDENTITY)), ..Default::default() };
        let cluster = ControlPlane::new(&lab, &options)?;
        Ok((lab, cluster))
    }

    /// The machine with this disk in that lab, switched on.
    pub fn boot(&self, lab: &Lab, agent: &Path, disk: &Path) -> Result<Machine> {
        let options = Options { shares: shares(agent)?, disk: Some(disk.to_owned()), ..Options::default() };
        Machine::new(lab, NAME, options)
    }

    /// A copy of the disk, to be changed.
    pub fn copy_disk(&self, to: &Path) -> Result<()> {
        copy(&self.disk(), to)
    }
}

/// Whether its certificates end soon: a state of it could not be booted any more.
fn is_old(folder: &Path) -> Result<bool> {
    let made = fs::metadata(folder.join("recording.json"))?.modified()?;
    Ok(made.elapsed().is_ok_and(|age| age > Duration::from_secs(25 * 24 * 3600)))
}

fn parse(text: &str, folder: &Path) -> Result<Recording> {
    let told: Value = serde_json::from_str(text)?;
    if told["form"] != FORM {
        bail!("its form is {}, not {FORM}", told["form"]);
    }
    let word = |value: &Value| value.as_str().map(str::to_owned).context("a name is missing");
    let parts = told["parts"].as_array().context("it names no parts")?;
    let parts = parts.iter().map(|part| {
        let place = |key: &str| part[key].as_u64().with_context(|| format!("a part has no {key:?}"));
        Ok(Part { name: word(&part["name"])?, from: place("from")?, to: place("to")? })
    });
    let parts: Vec<Part> = parts.collect::<Result<_>>()?;
    if parts.is_empty() || parts.iter().any(|part| part.from > part.to) {
        bail!("its parts are {parts:?}");
    }
    let lab = told["lab"].as_u64().and_then(|lab| lab.try_into().ok()).context("it names no lab")?;
    let memory = told["memory"].as_u64().context("it tells no memory")?;
    let processors = told["processors"].as_u64().context("it tells no processors")?.try_into()?;
    let (folder, old, new) = (folder.to_owned(), word(&told["old"])?, word(&told["new"])?);
    Ok(Recording { folder, parts, old, new, lab, memory, processors })
}

fn record(life: Life<'_>, into: &Path) -> Result<()> {
    let lab = Lab::new()?;
    let cluster = ControlPlane::new(&lab, &control_plane::Options::default())?;
    let options = Options { shares: shares(life.agent)?, record: true, ..Options::default() };
    let mut machine = Machine::new(&lab, NAME, options)?;
    for ((kubernetes, suite, at), file) in VERSIONS.into_iter().zip([CONFIG, NEXT]) {
        let config = node::config_for(&cluster, (NAME, &machine.address()), kubernetes, suite, at)?;
        machine.put(file, serde_json::to_vec_pretty(&config)?, 0o600)?;
    }
    machine.put("/etc/cni/net.d/10-lab.conflist", machine.network_plugin_config(), 0o644)?;
    machine.sh(life.prepare)?.success()?;
    let number = |script: &str| -> Result<u64> { Ok(machine.sh(script)?.success()?.stdout.trim().parse()?) };
    let memory = number("awk '$1 == \"MemTotal:\" {print $2}' /proc/meminfo")?;
    let processors = number("nproc")?;
    // From here on nobody is asked to write anything out but by the agent.
    machine.sh("sync")?.success()?;
    let mut parts = Vec::new();
    let mut slots = Vec::new();
    for (name, words) in OPERATIONS {
        let from = machine.mark()?;
        let command = [&["env"], life.variables, &[AGENT], words].concat();
        let output = machine.exec(&command)?;
        let to = machine.mark()?;
        eprintln!("lab: {name}: {} MB of writes", (to - from) >> 20);
        if output.code != 0 {
            bail!("{name}: {}{}\n{}", output.stdout, output.stderr, evidence(&machine));
        }
        parts.push(json!({"name": name, "from": from, "to": to}));
        if slots.len() < 2 {
            slots.push(machine.exec(&["readlink", "/opt/unbounded/node/current"])?.success()?.stdout.trim().to_owned());
        }
    }
    machine.power_cut()?;
    cluster.keep_identity(&into.join(IDENTITY))?;
    for (from, name) in [(machine.disk_before(), "before.img"), (machine.log(), "log.img")] {
        copy(&from, &into.join(name))?;
    }
    let told = json!({
        "form": FORM, "lab": lab.slot(), "old": slots[0], "new": slots[1], "parts": parts, "memory": memory << 10,
        "processors": processors,
    });
    fs::write(into.join("recording.json"), serde_json::to_vec_pretty(&told)?)?;
    Ok(())
}

/// What the machine sees beside its disk.
fn shares(agent: &Path) -> Result<Vec<Share>> {
    let mut shares = vec![Share { from: agent.to_owned(), to: PathBuf::from(AGENT) }];
    for (kubernetes, suite, at) in VERSIONS {
        shares.push(Share { from: node::bundle(agent, kubernetes, suite)?, to: PathBuf::from(at) });
    }
    Ok(shares)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("cp");
    must(command.args(["--sparse=always", "--reflink=auto", "--"]).arg(from).arg(to), Duration::from_secs(300))?;
    Ok(())
}

fn evidence(machine: &Machine) -> String {
    let script = "journalctl --no-pager -n 60 -o cat -u 'unbounded-*' -u 'aks-flex-node-*'";
    machine.sh(script).map_or_else(|error| format!("{error:#}"), |output| output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_of_form_1_is_read() {
        let text = r#"{"form": 1, "lab": 7, "memory": 3145728000, "processors": 2, "old": "1.36.2-00000000", "new": "1.36.3-00000000",
            "parts": [{"name": "start", "from": 512, "to": 4096}]}"#;
        let read = parse(text, Path::new("/x")).unwrap();
        assert_eq!(read.parts, [Part { name: "start".into(), from: 512, to: 4096 }]);
        assert_eq!((read.old.as_str(), read.new.as_str(), read.lab), ("1.36.2-00000000", "1.36.3-00000000", 7));
        for (from, to) in [
            ("\"form\": 1", "\"form\": 2"),
            ("512", "5120"),
            ("\"old\"", "\"odd\""),
            ("7", "700"),
            ("\"memory\"", "\"mem\""),
            ("\"parts\"", "\"p\""),
        ] {
            assert!(parse(&text.replace(from, to), Path::new("/x")).is_err(), "{to}");
        }
    }
}

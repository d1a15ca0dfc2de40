//! Whether a host is as it has to be after anything: one checker, which knows nothing of what was done.
//!
//! The old version or the new one, whole: one complete slot that link, state, units, processes and Node agree on; the
//! journal closed, the lock free, no half-made file; and what belongs to others as it was. These are the first four
//! invariants of the project: only our own things are changed, a crash ends with one version or the other, a failed
//! upgrade ends with the one before, and nothing is left over that a later operation would trip over.

use crate::{Node, READY, SOON};
use flexnode_lab::poll;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;

/// Where versions are.
const BASE: &str = "/opt/unbounded/node";

/// What other people have on a host, in and beside the agent's places: a script that puts it there.
pub const FOREIGN: &str = "set -e
mkdir -p /opt/cni/bin /etc/cni/net.d /opt/unbounded /etc/unbounded /var/lib/kubelet /var/lib/other /usr/local/bin
echo other >/opt/cni/bin/other-plugin; ln -s /usr/bin/true /opt/cni/bin/other-link; ln -s /nowhere/bridge-two /opt/cni/bin/other-dangling
echo '{}' >/etc/cni/net.d/87-other.conflist; echo text >/opt/unbounded/of-a-person; echo text >/etc/unbounded/of-a-person
echo text >/var/lib/kubelet/of-a-person; echo data >/var/lib/other/data; echo '#!/bin/sh' >/usr/local/bin/tool
mkdir -p /etc/systemd/system/unbounded-kubelet.service.d
printf '[Service]\\nEnvironment=OF_A_PERSON=1\\n' >/etc/systemd/system/unbounded-kubelet.service.d/99-person.conf
printf '[Service]\\nExecStart=/bin/sleep infinity\\n[Install]\\nWantedBy=multi-user.target\\n' >/etc/systemd/system/other.service
systemctl daemon-reload; systemctl enable --now other.service 2>/dev/null
";

/// Everything that the check needs from inside, in one run: each part begins with a line `@name`.
const LOOK: &str = r#"
u='unbounded-containerd unbounded-kubelet unbounded-localdns unbounded-kubelet-launch-check'
echo @current; readlink /opt/unbounded/node/current
echo @entries; ls -A /opt/unbounded/node
echo @units
for unit in $u; do
    systemctl show -p Id,LoadState,ActiveState,SubState,UnitFileState,NeedDaemonReload,MainPID $unit.service | paste -sd' '
done
echo @mains
for unit in containerd kubelet; do
    pid=$(systemctl show -P MainPID unbounded-$unit.service)
    [ "$pid" = 0 ] || echo "$unit $(stat -Lc '%d:%i' /proc/$pid/exe) $(stat -Lc '%d:%i' /opt/unbounded/node/current/bin/$unit)"
done
echo @running; for exe in /proc/[0-9]*/exe; do readlink $exe; done 2>/dev/null | grep ^/opt/unbounded/node/ | sort -u
echo @healthz; busybox wget -q -T 3 -O - http://127.0.0.1:10248/healthz
echo; echo @lock; flock -n /run/aks-flex-node.lock true; echo $?
echo @temporary
find /opt /etc /var/lib/aks-flex-node /usr/local /root -xdev -name '.flexnode-tmp-*'
find /var/lib/kubelet -xdev -maxdepth 2 -name '.flexnode-tmp-*'
echo @links; for link in /etc/unbounded/containerd/config.toml /var/lib/kubelet/config.yaml; do echo "$link $(readlink $link)"; done
echo @plugins; for link in /opt/cni/bin/*; do [ -L $link ] && echo "$link $(readlink $link) $([ -e $link ] && echo there)"; done
echo @tried; ls -d /sys/fs/cgroup/*/aks-flex-node-ready /run/containerd/runc/aks-flex-node-ready/* 2>/dev/null
echo @foreign
systemctl is-active other.service
find /etc /opt /usr /root /home /var/lib/other /var/lib/kubelet/of-a-person -xdev \
    \( -path /opt/unbounded/node -o -path '/etc/aks-flex-node/daemon-state*' -o -path '*.wants/unbounded-*' \) -prune \
    -o -type f -printf '%p %m %U:%G %s %T@\n' -o -type l -printf '%p -> %l\n' -o -printf '%p %y %m %U:%G\n' | sort
"#;

/// Looks at one host, again and again.
#[derive(Debug)]
pub struct Checker<'a> {
    node: &'a Node<'a>,
    foreign: Vec<String>,
    /// Digests of files that were looked at, by what changes with their content.
    digests: Mutex<BTreeMap<String, String>>,
}

impl<'a> Checker<'a> {
    /// Gives a host that is no node yet what other people have.
    pub fn prepare(node: &Node<'_>) {
        node.host.sh(FOREIGN).unwrap().success().unwrap();
    }

    /// For a node that runs: it is right from here on, and what is not the agent's has to stay as it is now.
    pub fn new(node: &'a Node<'a>) -> Self {
        let mut checker = Self { node, foreign: Vec::new(), digests: Mutex::default() };
        checker.foreign = lines(&checker.look(), "foreign").to_vec();
        checker
    }

    /// All that is wrong, as lines for a person; nothing when all is right.
    pub fn problems(&self) -> Vec<String> {
        problems(self, &self.foreign)
    }
}

/// What a checker sees of a host. The parts of [`Sight::look`] are those that the script of the look prints.
pub trait Sight {
    /// Everything, as lines by the name of their part.
    fn look(&self) -> BTreeMap<String, Vec<String>>;
    /// A file's JSON; null when there is none.
    fn json(&self, path: &str) -> Value;
    /// Mode and SHA-256 of each file of a directory, by its path in it.
    fn files_of(&self, dir: &str) -> BTreeMap<String, (u64, String)>;
    /// Why the Node of the active version is not Ready.
    fn not_ready(&self, current: &str) -> Option<String>;
}

/// All that is wrong with a host, where `foreign` are the lines of what belongs to others.
pub fn problems(sight: &dyn Sight, foreign: &[String]) -> Vec<String> {
    let state = sight.json("/etc/aks-flex-node/daemon-state.json");
    let stopped = state["flexnode"]["stoppedByPerson"] == true;
    let mut problems = Vec::new();
    let seen = sight.look();
    let first = |part: &str| lines(&seen, part).first().cloned().unwrap_or_default();
    let current = first("current");
    if current.is_empty() || current.contains('/') {
        problems.push(format!("the link of the active version is {current:?}"));
    }
    if state["flexnode"]["activeSlot"] != current.as_str() {
        problems.push(format!("{current} is active, and the state says {}", state["flexnode"]["activeSlot"]));
    }
    problems.extend(slots(sight, &current, lines(&seen, "entries")));
    problems.extend(units(&seen, stopped));
    problems.extend(lines(&seen, "running").iter().filter_map(|exe| {
        let own = exe.starts_with(&format!("{BASE}/{current}/"));
        (stopped && !exe.contains("containerd-shim") || !own).then(|| format!("{exe} runs"))
    }));
    problems.extend(links(&seen));
    if !stopped && first("healthz") != "ok" {
        problems.push(format!("kubelet's healthz says {:?}", first("healthz")));
    }
    if first("lock") != "0" {
        problems.push("the lock is held".to_owned());
    }
    // C035
    problems.extend(lines(&seen, "temporary").iter().map(|path| format!("{path} is left over")));
    problems.extend(lines(&seen, "tried").iter().map(|path| format!("{path} of the container that was tried is left")));
    problems.extend(kept(sight));
    problems.extend(differences(foreign, lines(&seen, "foreign")));
    if !stopped && problems.is_empty() {
        problems.extend(sight.not_ready(&current));
    }
    problems
}

impl Sight for Checker<'_> {
    fn look(&self) -> BTreeMap<String, Vec<String>> {
        let told = self.node.host.sh(LOOK).unwrap().stdout;
        let mut parts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut part = String::new();
        for line in told.lines() {
            match line.strip_prefix('@') {
                Some(name) => name.clone_into(&mut part),
                None if !line.is_empty() => parts.entry(part.clone()).or_default().push(line.to_owned()),
                None => {}
            }
        }
        parts
    }

    fn json(&self, path: &str) -> Value {
        let text = self.node.host.read(path).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// Mode and digest of each file of a directory.
    fn files_of(&self, dir: &str) -> BTreeMap<String, (u64, String)> {
        let script = format!("cd {dir} && find . -type f -printf '%P %m %i:%s:%T@:%C@\\n'");
        let told = self.node.host.sh(&script).unwrap().stdout;
        let entries: Vec<[&str; 3]> =
            told.lines().filter_map(|line| line.split(' ').collect::<Vec<_>>().try_into().ok()).collect();
        let mut digests = self.digests.lock().unwrap();
        let key = |name: &str, id: &str| format!("{dir}/{name} {id}");
        let mut new = String::new();
        for [name, _, id] in entries.iter().filter(|[name, _, id]| !digests.contains_key(&key(name, id))) {
            let _ = writeln!(new, "{name} {id}");
        }
        if !new.is_empty() {
            let names: String = new
                .lines()
                .filter_map(|line| line.split(' ').next())
                .fold(String::new(), |all, name| all + name + "\n");
            let hash = format!("cd {dir} && xargs -d '\\n' sha256sum --");
            let sums =
                self.node.host.exec_with(&["sh", "-c", &hash], names.as_bytes()).unwrap().success().unwrap().stdout;
            for (line, sum) in new.lines().zip(sums.lines()) {
                let (name, id) = line.split_once(' ').unwrap_or_default();
                digests.insert(key(name, id), sum.split(' ').next().unwrap_or_default().to_owned());
            }
        }
        let of = |[name, mode, id]: [&str; 3]| {
            let mode = u64::from_str_radix(mode, 8).unwrap_or_default();
            (name.to_owned(), (mode, digests.get(&key(name, id)).cloned().unwrap_or_default()))
        };
        entries.into_iter().map(of).collect()
    }

    /// The API server has to call the Node Ready, of the active version.
    fn not_ready(&self, current: &str) -> Option<String> {
        let version = format!("v{}", current.split('-').next().unwrap_or_default());
        let ready = poll(READY, SOON, "the Node to be Ready", || {
            let object = self.node.object().unwrap_or_default();
            let reported = object["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap_or_default();
            if reported != version {
                anyhow::bail!("kubelet reports {reported}, {version} is active");
            }
            Ok(self.node.is_ready().then_some(()))
        });
        ready.err().map(|error| format!("{error:#}"))
    }
}

/// The active slot is whole, and nothing is beside the slots that has no business there.
fn slots(sight: &dyn Sight, current: &str, entries: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    let is_slot = |name: &str| name.split('-').next_back().is_some_and(|hash| hash.len() == 8);
    for entry in entries.iter().filter(|entry| *entry != "current" && !is_slot(entry)) {
        problems.push(format!("{BASE}/{entry} is no version"));
    }
    // The active one, the previous, one more that is kept, and what the last goal of a series made of both versions.
    let slots = entries.iter().filter(|entry| *entry != "current").count();
    if slots > 5 {
        problems.push(format!("{slots} versions are installed"));
    }
    let dir = format!("{BASE}/{current}");
    let manifest = sight.json(&format!("{dir}/etc/manifest.json"));
    let Some(files) = manifest["files"].as_object() else {
        problems.push(format!("{dir} has no manifest"));
        return problems;
    };
    let there = sight.files_of(&dir);
    for (name, entry) in files {
        let wanted = (entry["sha256"].as_str().unwrap_or_default(), entry["mode"].as_u64().unwrap_or_default());
        match there.get(name) {
            None => problems.push(format!("{dir}/{name} is missing")),
            Some((mode, digest)) if (digest.as_str(), *mode) != wanted => {
                problems.push(format!("{dir}/{name} is {mode:o} {digest}, not {:o} {}", wanted.1, wanted.0));
            }
            Some(_) => {}
        }
    }
    let named: BTreeSet<&str> = files.keys().map(String::as_str).chain(["etc/manifest.json"]).collect();
    for name in there.keys().filter(|name| !named.contains(name.as_str())) {
        problems.push(format!("{dir}/{name} is not in the manifest"));
    }
    problems
}

/// The journal is closed, and no upgrade's copies wait for their end.
fn kept(sight: &dyn Sight) -> Option<String> {
    let record = sight.json("/var/lib/aks-flex-node/journal/record.json");
    if record.is_null() || record["phase"] == "closed" {
        return None;
    }
    Some(format!("the journal is open: {} at step {}, {}", record["operation"], record["step"], record["phase"]))
}

fn lines<'a>(seen: &'a BTreeMap<String, Vec<String>>, part: &str) -> &'a [String] {
    seen.get(part).map(Vec::as_slice).unwrap_or_default()
}

/// Both units of the stack run and start at boot, from the active slot; or neither, when a person stopped the node.
fn units(seen: &BTreeMap<String, Vec<String>>, stopped: bool) -> Vec<String> {
    let mut problems = Vec::new();
    for line in lines(seen, "units") {
        let of = |key: &str| {
            let found = line.split(' ').find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
            found.unwrap_or_default()
        };
        let stack = ["unbounded-containerd.service", "unbounded-kubelet.service"].contains(&of("Id"));
        let wanted = match (stack, stopped) {
            (true, false) => [("LoadState", "loaded"), ("ActiveState", "active"), ("UnitFileState", "enabled")],
            (true, true) => [("LoadState", "loaded"), ("ActiveState", "inactive"), ("UnitFileState", "disabled")],
            // Neither version of this suite has them.
            (false, _) => [("LoadState", "not-found"), ("ActiveState", "inactive"), ("UnitFileState", "")],
        };
        let wrong = wanted.into_iter().find(|(key, value)| of(key) != *value);
        if let Some((key, value)) = wrong.or((of("NeedDaemonReload") != "no").then_some(("NeedDaemonReload", "no"))) {
            problems.push(format!("{key} is not {value:?}: {line}"));
        }
    }
    for line in lines(seen, "mains") {
        let words: Vec<&str> = line.split(' ').collect();
        if words.len() != 3 || words[1] != words[2] {
            problems.push(format!("a main process is not of the active version: {line}"));
        }
    }
    problems
}

/// The links of the configuration and of the plugins lead through the active version to something.
fn links(seen: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut problems = Vec::new();
    for line in lines(seen, "links") {
        if !line.contains("node/current/etc/") {
            problems.push(format!("a link of the configuration leads elsewhere: {line}"));
        }
    }
    let ours: Vec<&String> = lines(seen, "plugins").iter().filter(|line| line.contains("unbounded/node/")).collect();
    if ours.is_empty() {
        problems.push("no CNI plugin is linked".to_owned());
    }
    problems.extend(
        ours.iter().filter(|line| !line.ends_with(" there")).map(|line| format!("a link leads nowhere: {line}")),
    );
    problems
}

fn differences(before: &[String], after: &[String]) -> Vec<String> {
    let (old, new): (BTreeSet<&String>, BTreeSet<&String>) = (before.iter().collect(), after.iter().collect());
    let gone = old.difference(&new).map(|line| format!("- {line}"));
    gone.chain(new.difference(&old).map(|line| format!("+ {line}"))).collect()
}

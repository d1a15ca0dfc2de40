//! A fresh systemd host: a container with its own tree, cgroups and network namespace, whose first process is systemd.

use crate::lab::{BRIDGE, Lab, in_namespace};
use crate::process::{Process, uuid};
use crate::record::{self, Record};
use crate::run::{Input, must, run, tail};
use crate::{base, cache, cgroup, poll};
use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::json;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_millis(20);
/// Numbers of hosts in a lab: the last byte of the address, and the third of the pods' network.
const NUMBERS: std::ops::RangeInclusive<u8> = 10..=250;

/// Joins the control groups named before `--`, then becomes the program named after it.
pub(crate) const JOIN: &str =
    "while [ \"$1\" != -- ]; do echo $$ >\"$1/cgroup.procs\" || exit 125; shift; done; shift; exec \"$@\"";

/// Settings of the kernel that are not a namespace's own. In a host each is a file of the host instead, so that hosts
/// neither change the outer machine nor see each other: kubelet and the agent write them and read them back.
const GLOBAL_SETTINGS: [&str; 12] = [
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "kernel/pid_max",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "vm/max_map_count",
    "vm/swappiness",
    "fs/inotify/max_user_instances",
    "fs/inotify/max_user_watches",
    "fs/file-max",
];

/// A directory of the outer machine that a host sees, read-only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Outside.
    pub from: PathBuf,
    /// In the host.
    pub to: PathBuf,
}

/// What may differ between hosts.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Directories of the outer machine to show.
    pub shares: Vec<Share>,
}

/// A running host. Dropping it ends and removes all of it, unless the lab is kept.
#[derive(Debug)]
pub struct Host {
    lab: Lab,
    record: Record,
    name: String,
    number: u8,
    options: Options,
    container: Mutex<Option<Child>>,
    pub(crate) leader: Process,
    /// As they were made for the container.
    groups: Vec<PathBuf>,
    /// It is booted: before that it goes also when the lab is kept.
    complete: bool,
}

impl Host {
    /// Makes a host from the base tree and boots it. The name is its host name too: small letters, digits, dashes.
    pub fn new(lab: &Lab, name: &str) -> Result<Self> {
        Self::with(lab, name, Options::default())
    }

    /// As [`Host::new`], with options.
    pub fn with(lab: &Lab, name: &str, options: Options) -> Result<Self> {
        check_name(name)?;
        let base = base::tree()?;
        let record = Record::create(&lab.record().part(&format!("host-{name}")))?;
        let number = take_number(lab, &record)?;
        let leader = Process { pid: 0, start: 0 };
        let name = name.to_owned();
        let (lab, container) = (lab.clone(), Mutex::new(None));
        let mut host =
            Self { lab, record, name, number, options, container, leader, groups: Vec::new(), complete: false };
        host.copy_tree(&base)?;
        host.attach().context("cannot make the host's network")?;
        host.boot()?;
        host.complete = true;
        Ok(host)
    }

    /// A host of a lab that was kept.
    pub fn open(lab: &Lab, name: &str) -> Result<Self> {
        let record = Record::open(&lab.record().part(&format!("host-{name}")))?;
        let number = fs::read_to_string(record.folder.join("number"))?.trim().parse()?;
        let Some((_, container)) = record.processes().pop() else { bail!("host {name} does not run") };
        let leader = leader_of(&container).context("the host's first process does not run")?;
        let (name, lab, groups) = (name.to_owned(), lab.clone(), record.cgroups());
        let options = Options::default();
        Ok(Self { lab, record, name, number, options, container: Mutex::new(None), leader, groups, complete: true })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address on the lab's bridge.
    pub fn address(&self) -> String {
        self.lab.address(self.number)
    }

    /// The network of its pods; the lab's gateway routes it to this host.
    pub fn pod_network(&self) -> String {
        format!("10.244.{}.0/24", self.number)
    }

    /// The name of its network namespace on the outer machine.
    pub fn namespace(&self) -> String {
        format!("{}-{}", self.lab.namespace(), self.name)
    }

    /// The first process of the host, as the outer machine numbers it.
    pub fn leader(&self) -> &Process {
        &self.leader
    }

    /// Its control groups on the outer machine, one in each hierarchy: what its processes see as the root.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        // Where systemd-nspawn keeps itself apart from the container, the namespace begins one group deeper.
        let root = |group: &PathBuf| Some(group.join("payload")).filter(|group| group.is_dir());
        self.groups.iter().map(|group| root(group).unwrap_or_else(|| group.clone())).collect()
    }

    /// Runs `work` in a thread that is in the host's network namespace: its loopback is the host's.
    pub fn in_network<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        in_namespace(&self.namespace(), work)
    }

    /// What the host's console said.
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.record.folder.join("console.log")).unwrap_or_default()).into_owned()
    }

    /// A configuration for containerd's network, as the add-on of a cluster would put it in place.
    pub fn network_plugin_config(&self) -> String {
        network_plugin_config(&self.pod_network())
    }

    /// Boots it again on the same tree, in a new network namespace. `hard`: nothing in it is told, as if the power went
    /// (what was written stays); else systemd shuts down first.
    pub fn reboot(&mut self, hard: bool) -> Result<()> {
        if !hard {
            self.exec(&["systemctl", "--no-block", "poweroff"])?.success()?;
            self.leader.wait_gone(LIMIT).context("the host does not shut down")?;
        }
        self.record.stop()?;
        self.reap();
        record::remove_namespace(&self.namespace())?;
        self.attach()?;
        self.boot()
    }

    fn tree(&self) -> PathBuf {
        self.record.folder.join("tree")
    }

    fn copy_tree(&self, base: &Path) -> Result<()> {
        let tree = self.tree();
        must(Command::new("cp").args(["-a", "--reflink=auto", "--"]).arg(base).arg(&tree), LIMIT)?;
        fs::write(tree.join("etc/hostname"), format!("{}\n", self.name))?;
        fs::write(tree.join("etc/hosts"), format!("127.0.0.1 localhost\n{} {}\n", self.address(), self.name))?;
        fs::write(tree.join("etc/resolv.conf"), "# there is no name server in the lab\n")?;
        fs::write(tree.join("etc/machine-id"), format!("{}\n", uuid()?))?;
        Ok(())
    }

    fn attach(&self) -> Result<()> {
        let (own, lab) = (self.namespace(), self.lab.namespace());
        record::add_namespace(&self.record, &own)?;
        let (link, address) = (format!("host{}", self.number), format!("{}/24", self.address()));
        let (gateway, pods, own_address) = (self.lab.gateway(), self.pod_network(), self.address());
        for words in [
            &["link", "add", &link, "netns", &lab, "type", "veth", "peer", "name", "eth0", "netns", &own] as &[&str],
            &["-n", &lab, "link", "set", &link, "master", BRIDGE, "up"],
            &["-n", &own, "addr", "add", &address, "dev", "eth0"],
            &["-n", &own, "link", "set", "eth0", "up"],
            &["-n", &own, "route", "add", "default", "via", &gateway],
            &["-n", &lab, "route", "replace", &pods, "via", &own_address],
        ] {
            must(Command::new("ip").args(words), LIMIT)?;
        }
        Ok(())
    }

    fn boot(&mut self) -> Result<()> {
        self.make_groups()?;
        let log = File::options().create(true).append(true).open(self.record.folder.join("console.log"))?;
        let mut command = self.container();
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn().context("cannot run systemd-nspawn")?;
        let container = Process::find(child.id().cast_signed());
        if let Ok(mut slot) = self.container.lock() {
            *slot = Some(child);
        }
        let container = container.with_context(|| self.failed("systemd-nspawn ended at once"))?;
        self.record.add_process("container", &container)?;
        let leader = poll(LIMIT, SOON, "the host's first process", || {
            let ended = (!container.alive()).then(|| Err(anyhow!("systemd-nspawn ended")));
            Ok(ended.or_else(|| leader_of(&container).map(Ok)))
        });
        self.leader = leader.and_then(|found| found).with_context(|| self.failed("the host does not start"))?;
        self.wait_running().with_context(|| self.failed("the host does not boot"))?;
        self.prepare()
    }

    fn make_groups(&mut self) -> Result<()> {
        if let Some(scope) = cgroup::scope(&self.namespace()) {
            // Its systemd makes it when the container starts.
            self.record.add_cgroup(&scope)?;
            self.groups = vec![scope];
            return Ok(());
        }
        self.groups = cgroup::places(&self.namespace())?;
        for group in &self.groups {
            self.record.add_cgroup(group)?;
            cgroup::create(group)?;
        }
        cgroup::check(&self.groups)
    }

    fn container(&self) -> Command {
        let mut command = if cgroup::scope(&self.namespace()).is_some() {
            let mut command = Command::new("systemd-run");
            command.args(["--scope", "--quiet", "--collect", "--property=Delegate=yes"]);
            command.arg(format!("--unit={}", self.namespace())).arg("--");
            command
        } else {
            let mut command = Command::new("sh");
            command.args(["-c", JOIN, "sh"]).args(&self.groups).arg("--");
            command
        };
        command.arg("systemd-nspawn");
        // /proc/sys and /sys writable as on a real host; kubelet opens /dev/kmsg.
        command.env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "1").env_remove("NOTIFY_SOCKET");
        command.args(["--boot", "--register=no", "--keep-unit", "--capability=all", "--system-call-filter=@known"]);
        command.args([
            "--bind=/dev/kmsg",
            "--resolv-conf=off",
            "--timezone=off",
            "--link-journal=no",
            "--console=read-only",
        ]);
        command.arg(format!("--network-namespace-path=/run/netns/{}", self.namespace()));
        command.arg(format!("--machine={}", self.namespace())).arg(format!("--hostname={}", self.name));
        for share in &self.options.shares {
            command.arg(format!("--bind-ro={}:{}", share.from.display(), share.to.display()));
        }
        command.arg("--directory").arg(self.tree());
        command
    }

    fn wait_running(&self) -> Result<()> {
        poll(LIMIT, SOON, "systemd in the host", || {
            if !self.leader.alive() {
                return Ok(Some(Err(anyhow!("its first process ended"))));
            }
            // The group of the lab's commands is not there yet, so not by exec.
            let mut command = Command::new("nsenter");
            command.args(["-t", &self.leader.pid.to_string(), "-a", "systemctl", "is-system-running"]);
            let state = run(&mut command, Input::Empty, LIMIT)?;
            match state.stdout.trim() {
                "running" | "degraded" => Ok(Some(Ok(()))),
                other => bail!("it says {other:?} {}", state.stderr.trim()),
            }
        })?
    }

    /// What a container lacks against a real host: writable control groups, settings of its own, a group for commands.
    fn prepare(&self) -> Result<()> {
        for group in self.cgroups() {
            cgroup::create(&group.join("lab"))?;
        }
        let script = format!(
            "set -e
            for d in /sys/fs/cgroup /sys/fs/cgroup/*/; do mountpoint -q \"$d\" && mount -o remount,bind,rw \"$d\"; done
            mkdir /run/lab && mount -t tmpfs -o mode=755 lab /run/lab
            for s in {}; do
                [ -e /proc/sys/$s ] || continue
                f=/run/lab/$(echo $s | tr / .)
                cat /proc/sys/$s >$f && mount --bind $f /proc/sys/$s
            done
            printf 'Filename\\t\\t\\t\\tType\\t\\tSize\\t\\tUsed\\t\\tPriority\\n' >/run/lab/swaps
            mount --bind /run/lab/swaps /proc/swaps
            umount -l /run/lab && rmdir /run/lab",
            GLOBAL_SETTINGS.join(" ")
        );
        self.sh(&script)?.success().context("cannot prepare the host")?;
        Ok(())
    }

    fn failed(&self, what: &str) -> String {
        format!("{what}; its console says: {}", tail(&self.console(), 1500))
    }

    fn reap(&self) {
        if let Ok(mut container) = self.container.lock()
            && let Some(mut child) = container.take()
        {
            // It was ended before this; an error means that its code was taken already.
            let _ = child.wait();
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.complete && self.lab.is_kept() {
            return;
        }
        match self.record.remove() {
            Ok(()) => self.reap(),
            Err(error) => eprintln!("lab: {error:#}"),
        }
    }
}

/// The first process of the container: the child of systemd-nspawn that is number 1 in a process namespace of its own.
/// The child before it, which makes the namespace, is gone in a moment.
fn leader_of(container: &Process) -> Option<Process> {
    container.children().into_iter().find(|child| {
        let status = fs::read_to_string(format!("/proc/{}/status", child.pid)).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        let numbers: Vec<&str> = numbers.split_whitespace().collect();
        numbers.len() > 1 && numbers.last() == Some(&"1")
    })
}

/// A configuration for containerd's network with a bridge of its own for this network of pods.
pub(crate) fn network_plugin_config(pods: &str) -> String {
    let ipam = json!({
        "type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}],
    });
    let bridge = json!({"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "ipam": ipam});
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    json!({"cniVersion": "1.0.0", "name": "lab", "plugins": [bridge, portmap]}).to_string()
}

/// Whether a name is one for a host: up to 40 small letters, digits and dashes.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 40 || !name.chars().all(fits) {
        bail!("{name:?} is no name for a host: use up to 40 small letters, digits and dashes");
    }
    Ok(())
}

/// A number that no host of the lab has; the record is where it is written down.
pub(crate) fn take_number(lab: &Lab, record: &Record) -> Result<u8> {
    let _lock = cache::lock(&lab.folder().join("numbers.lock"), "another host to take its number")?;
    let parts = fs::read_dir(lab.record().folder.join("parts"))?.flatten();
    let taken: Vec<u8> =
        parts.filter_map(|part| fs::read_to_string(part.path().join("number")).ok()?.trim().parse().ok()).collect();
    let number = NUMBERS.into_iter().find(|number| !taken.contains(number)).context("the lab is full of hosts")?;
    fs::write(record.folder.join("number"), number.to_string())?;
    Ok(number)
}

//! Everything that a host is at one moment, to compare with another moment: files, mounts, units, processes, control groups,
//! network objects, settings of the kernel.

use crate::cache::hex;
use crate::cgroup;
use crate::host::Host;
use anyhow::{Context as _, Result};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// Settings that a node's set-up or its programs may change.
const SETTINGS: [&str; 16] = [
    "fs/inotify/max_user_instances",
    "fs/inotify/max_user_watches",
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/pid_max",
    "net/bridge/bridge-nf-call-ip6tables",
    "net/bridge/bridge-nf-call-iptables",
    "net/ipv4/conf/all/forwarding",
    "net/ipv4/conf/all/route_localnet",
    "net/ipv4/ip_forward",
    "net/ipv6/conf/all/forwarding",
    "vm/max_map_count",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];

/// What is not part of a host's files, or changes all the time by itself.
pub const NOT_FILES: [&str; 8] = [
    "/dev",
    "/proc",
    "/sys",
    "/run/systemd",
    "/run/udev",
    "/run/log/journal",
    "/var/log/journal",
    "/var/lib/systemd/random-seed",
];

/// What to look at.
#[derive(Clone, Debug)]
pub struct Options {
    /// Paths that are left out with all below them.
    pub excluded: Vec<String>,
    /// Whether the times of files and directories count.
    pub times: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { excluded: NOT_FILES.map(str::to_owned).to_vec(), times: true }
    }
}

/// One moment of a host. Each thing is a key (`file /etc/passwd`, `unit ssh.service`, `link eth0`) with what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The things, by kind and name.
    pub things: BTreeMap<String, String>,
}

/// What two moments differ in, as lines for a person: `+` is there only after, `-` only before, `~` is another.
pub fn diff(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let mut lines = Vec::new();
    let keys: std::collections::BTreeSet<&String> = before.things.keys().chain(after.things.keys()).collect();
    for key in keys {
        match (before.things.get(key), after.things.get(key)) {
            (None, Some(new)) => lines.push(format!("+ {key}: {new}")),
            (Some(old), None) => lines.push(format!("- {key}: {old}")),
            (Some(old), Some(new)) if old != new => lines.push(format!("~ {key}: {old} -> {new}")),
            _ => (),
        }
    }
    lines
}

impl Host {
    /// Looks at the whole host with the usual options.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.snapshot_with(&Options::default())
    }

    /// Looks at the whole host.
    pub fn snapshot_with(&self, options: &Options) -> Result<Snapshot> {
        let mut snapshot = self.files("/", options)?;
        let things = &mut snapshot.things;
        self.add_mounts(things)?;
        self.add_units(things)?;
        self.add_processes(things)?;
        self.add_cgroups(things);
        self.add_network(things)?;
        for setting in SETTINGS {
            // One that the kernel does not have is no thing.
            if let Ok(value) = self.read(&format!("/proc/sys/{setting}")) {
                things.insert(format!("setting {setting}"), value.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
        Ok(snapshot)
    }

    /// Looks at the files below a directory of the host. Links are not followed; mounts are looked into.
    pub fn files(&self, below: &str, options: &Options) -> Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        let root = self.path("/");
        let mut left = vec![below.to_owned()];
        while let Some(path) = left.pop() {
            let outer = root.join(path.trim_start_matches('/'));
            // What goes while it is looked at is not there.
            let Ok(meta) = outer.symlink_metadata() else { continue };
            let Ok(told) = tell(&outer, &meta, options) else { continue };
            snapshot.things.insert(format!("file {path}"), told);
            if !meta.is_dir() {
                continue;
            }
            let entries = fs::read_dir(&outer).with_context(|| format!("cannot read {}", outer.display()))?;
            for entry in entries.flatten() {
                let name = format!("{}/{}", path.trim_end_matches('/'), entry.file_name().to_string_lossy());
                if !options.excluded.contains(&name) {
                    left.push(name);
                }
            }
        }
        Ok(snapshot)
    }

    fn add_mounts(&self, things: &mut BTreeMap<String, String>) -> Result<()> {
        // Numbers of mounts and devices differ from one mount to the next; proc_pid_mountinfo(5) has the fields.
        for line in self.read("/proc/1/mountinfo")?.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let Some(dash) = fields.iter().position(|field| *field == "-") else { continue };
            let [_, _, _, root, target, flags, ..] = fields[..] else { continue };
            let kind = fields[dash + 1..].first().copied().unwrap_or_default();
            add(things, format!("mount {target}"), format!("{kind} {root} {flags}"));
        }
        Ok(())
    }

    fn add_units(&self, things: &mut BTreeMap<String, String>) -> Result<()> {
        let told = self.exec(&["systemctl", "list-units", "--all", "--output=json"])?.success()?;
        for unit in array(&told.stdout)? {
            let text = |key: &str| unit[key].as_str().unwrap_or_default().to_owned();
            // Devices come and go with the links that they stand for; scopes of commands that look are not the host's.
            let name = text("unit");
            if !name.ends_with(".device") && text("load") != "not-found" {
                things.insert(format!("unit {name}"), format!("{} {} {}", text("load"), text("active"), text("sub")));
            }
        }
        let files = self.exec(&["systemctl", "list-unit-files", "--output=json"])?.success()?;
        for unit in array(&files.stdout)? {
            let name = unit["unit_file"].as_str().unwrap_or_default();
            things.insert(format!("unit file {name}"), unit["state"].as_str().unwrap_or_default().to_owned());
        }
        Ok(())
    }

    fn add_processes(&self, things: &mut BTreeMap<String, String>) -> Result<()> {
        let told = self.exec(&["ps", "-e", "-ww", "-o", "cgroup=", "-o", "args="])?.success()?;
        for line in told.stdout.lines() {
            // The cgroup has no blank in it. What runs in the lab's own group is this look itself, and udev's workers are
            // started and ended as events come.
            let Some((group, arguments)) = line.split_once(' ') else { continue };
            let own = group.split(',').any(|part| part.ends_with(":/lab"));
            if !own && !arguments.trim().starts_with("(udev-worker)") {
                add(things, format!("process {}", arguments.trim()), "runs".to_owned());
            }
        }
        Ok(())
    }

    fn add_cgroups(&self, things: &mut BTreeMap<String, String>) {
        for root in self.cgroups() {
            for group in cgroup::below(&root) {
                if let Ok(path) = group.strip_prefix(&root) {
                    let hierarchy = root
                        .components()
                        .nth(4)
                        .map_or_else(String::new, |part| part.as_os_str().to_string_lossy().into_owned());
                    things.insert(format!("cgroup {hierarchy} /{}", path.display()), "exists".to_owned());
                }
            }
        }
    }

    fn add_network(&self, things: &mut BTreeMap<String, String>) -> Result<()> {
        for link in array(&self.exec(&["ip", "-json", "-details", "link"])?.success()?.stdout)? {
            let kind = link["linkinfo"]["info_kind"].as_str().unwrap_or_default();
            let state = format!("{kind} mtu {} master {} {}", link["mtu"], link["master"], link["operstate"]);
            things.insert(format!("link {}", link["ifname"].as_str().unwrap_or_default()), state);
        }
        for (kind, words) in [
            ("address", &["ip", "-oneline", "addr"] as &[&str]),
            ("route", &["ip", "route", "show", "table", "all"]),
            ("rule", &["ip", "rule"]),
            ("netns", &["ip", "netns"]),
            ("neighbour proxy", &["ip", "neigh", "show", "proxy"]),
            (
                "iptables-legacy",
                &[
                    "sh",
                    "-c",
                    "cat /proc/net/ip_tables_names 2>/dev/null | while read t; do iptables-legacy-save -t $t; done",
                ],
            ),
        ] {
            let told = self.exec(words)?.success()?;
            // An address line begins with the link's number, which is another after the link was made again.
            let lines = told
                .stdout
                .lines()
                .map(|line| line.trim_start_matches(|c: char| c.is_ascii_digit() && kind == "address"));
            for line in lines.filter(|line| !line.starts_with('#')) {
                add(things, format!("{kind} {}", line.trim_end()), "is there".to_owned());
            }
        }
        for line in nft(&self.exec(&["nft", "--stateless", "list", "ruleset"])?.success()?.stdout) {
            add(things, line, "is there".to_owned());
        }
        Ok(())
    }
}

/// Adds a thing of which several may have the same name.
fn add(things: &mut BTreeMap<String, String>, key: String, value: String) {
    things.entry(key).and_modify(|all| *all = format!("{all}; {value}")).or_insert(value);
}

/// A ruleset as one line for each table, chain and rule, with where it is.
fn nft(ruleset: &str) -> Vec<String> {
    let (mut place, mut lines) = (Vec::new(), Vec::new());
    for line in ruleset.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line == "}" {
            place.pop();
            continue;
        }
        let (name, opens) = line.strip_suffix('{').map_or((line, false), |name| (name.trim_end(), true));
        place.push(name);
        lines.push(format!("nft {}", place.join(" / ")));
        if !opens {
            place.pop();
        }
    }
    lines
}

fn array(text: &str) -> Result<Vec<Value>> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(text).context("a program of the host answered with something that is no JSON list")
}

fn tell(path: &Path, meta: &Metadata, options: &Options) -> Result<String> {
    let kind = meta.file_type();
    let content = if kind.is_symlink() {
        format!("link to {}", fs::read_link(path)?.display())
    } else if kind.is_file() {
        format!("file of {} bytes, sha256 {}", meta.len(), sha256(path)?)
    } else if kind.is_dir() {
        "directory".to_owned()
    } else if kind.is_socket() {
        "socket".to_owned()
    } else if kind.is_fifo() {
        "fifo".to_owned()
    } else {
        format!("device {}", meta.rdev())
    };
    let mode = format!("{:04o} {}:{}", meta.mode() & 0o7777, meta.uid(), meta.gid());
    let time = if options.times { format!(" at {}.{:09}", meta.mtime(), meta.mtime_nsec()) } else { String::new() };
    Ok(format!("{content} {mode}{time}"))
}

pub(crate) fn sha256(path: &Path) -> Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 65536];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => hash.update(&buffer[..read]),
        }
    }
    Ok(hex(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::{Options, Snapshot, diff, nft, tell};
    use std::collections::BTreeMap;

    fn of(things: &[(&str, &str)]) -> Snapshot {
        let things: BTreeMap<_, _> =
            things.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Snapshot { things }
    }

    #[test]
    fn a_difference_is_a_line() {
        let before = of(&[("file /a", "1"), ("file /b", "2"), ("unit c", "3")]);
        let after = of(&[("file /a", "1"), ("file /b", "4"), ("link d", "5")]);
        assert_eq!(diff(&before, &after), ["~ file /b: 2 -> 4", "+ link d: 5", "- unit c: 3"]);
        assert!(diff(&before, &before).is_empty());
    }

    #[test]
    fn a_rule_is_told_with_its_chain_and_table() {
        let text = "table ip nat {\n\tchain A {\n\t\tcounter jump B\n\t}\n\n\tchain B {\n\t}\n}\ntable ip x {\n}\n";
        let expected = [
            "table ip nat",
            "table ip nat / chain A",
            "table ip nat / chain A / counter jump B",
            "table ip nat / chain B",
            "table ip x",
        ];
        assert_eq!(nft(text), expected.map(|line| format!("nft {line}")));
    }

    #[test]
    fn content_mode_and_time_of_a_file_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let see =
            |times| tell(&path, &path.symlink_metadata().unwrap(), &Options { excluded: Vec::new(), times }).unwrap();
        std::fs::write(&path, "one").unwrap();
        let (first, timeless) = (see(true), see(false));
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_ne!(first, see(true));
        assert_eq!(timeless, see(false));
        std::fs::write(&path, "two").unwrap();
        assert_ne!(timeless, see(false));
    }
}

//! What needs a kernel of its own (rung 5): control groups of version 2, settings that all containers share, swap, boots.
#![allow(clippy::unwrap_used, missing_docs)]

use flexnode_lab::host::Share;
use flexnode_lab::machine::Options;
use flexnode_lab::{Machine, Output, node, poll};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use system_tests::{BUNDLE, CONFIG, Cluster, NEW, SOON, agent, bundle, pods};

/// Where a machine has the agent's program before it is installed.
const AGENT: &str = "/srv/aks-flex-node";
/// The processor is emulated.
const READY: Duration = Duration::from_secs(300);

/// What a node needs, as the kernel prints it.
const WANTED: [(&str, &str); 13] = [
    ("vm.overcommit_memory", "1"),
    ("vm.panic_on_oom", "0"),
    ("kernel.panic", "10"),
    ("kernel.panic_on_oops", "1"),
    ("kernel.keys.root_maxkeys", "1000000"),
    ("kernel.keys.root_maxbytes", "25000000"),
    ("net.bridge.bridge-nf-call-iptables", "1"),
    ("net.bridge.bridge-nf-call-ip6tables", "1"),
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv4.conf.all.src_valid_mark", "1"),
    ("net.ipv4.conf.default.src_valid_mark", "1"),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
];

/// Settings that nobody sets by name: the kernel changes them along, or kubelet, containerd and plugins could.
const OTHERS: [&str; 10] = [
    "net.ipv4.conf.all.accept_redirects",
    "net.ipv4.conf.default.forwarding",
    "net.ipv4.conf.all.forwarding",
    "net.ipv4.conf.all.route_localnet",
    "net.ipv6.conf.all.forwarding",
    "vm.max_map_count",
    "vm.swappiness",
    "kernel.pid_max",
    "fs.inotify.max_user_instances",
    "fs.inotify.max_user_watches",
];

/// A machine that the agent works on.
struct Guest<'a> {
    machine: Machine,
    cluster: &'a Cluster,
}

impl<'a> Guest<'a> {
    /// With the agent's program, the bundle of [`NEW`], the network plugin's configuration as the cluster's add-on would
    /// put it, and a configuration for this cluster.
    fn new(cluster: &'a Cluster, name: &str, read_only_usr: bool) -> Self {
        let shares = vec![
            Share { from: agent(false), to: PathBuf::from(AGENT) },
            Share { from: bundle(NEW), to: PathBuf::from(BUNDLE) },
        ];
        let machine =
            Machine::new(&cluster.lab, name, Options { read_only_usr, shares, ..Options::default() }).unwrap();
        let (control_plane, at) = (&cluster.control_plane, machine.address());
        let config = node::config_for(control_plane, (name, &at), NEW.kubernetes, NEW.suite, BUNDLE).unwrap();
        machine.put("/etc/cni/net.d/10-lab.conflist", machine.network_plugin_config(), 0o644).unwrap();
        machine.put(CONFIG, serde_json::to_vec_pretty(&config).unwrap(), 0o600).unwrap();
        Self { machine, cluster }
    }

    /// The output of a script that has to succeed.
    #[track_caller]
    fn sh(&self, script: &str) -> String {
        self.machine.sh(script).unwrap().success().unwrap().stdout
    }

    #[track_caller]
    fn start(&self) -> Output {
        let output = self.machine.exec(&[AGENT, "start", "--timeout", "300s"]).unwrap();
        assert_eq!(output.code, 0, "start: {}\n{}\n{}", output.stdout, output.stderr, self.evidence());
        output
    }

    /// Waits until the API server calls the Node of the current boot Ready.
    #[track_caller]
    fn wait_ready(&self) {
        let boot = self.machine.boot_id().unwrap();
        let what = format!("node {} to be Ready after boot {boot}", self.machine.name());
        let ready = poll(READY, SOON * 5, &what, || {
            let node = self.cluster.control_plane.get(&["node", self.machine.name()])?;
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
            Ok((ready && node["status"]["nodeInfo"]["bootID"] == boot.as_str()).then_some(()))
        });
        if let Err(error) = ready {
            panic!("{error:#}\n{}", self.evidence());
        }
    }

    /// The settings that this kernel has.
    fn settings(&self) -> BTreeMap<String, String> {
        let names = WANTED.iter().map(|(name, _)| *name).chain(OTHERS);
        let script = format!("sysctl -e {} 2>/dev/null", names.collect::<Vec<_>>().join(" "));
        let text = self.machine.sh(&script).unwrap().stdout;
        text.lines().filter_map(|line| line.split_once(" = ")).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    }

    /// The active swap areas.
    fn swaps(&self) -> Vec<String> {
        let table = self.machine.read("/proc/swaps").unwrap();
        table.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
    }

    #[track_caller]
    fn assert_is_as_a_node_needs(&self, when: &str) {
        let settings = self.settings();
        for (name, value) in WANTED {
            assert_eq!(settings.get(name).map(String::as_str), Some(value), "{name} {when}");
        }
        assert_eq!(self.swaps(), [""; 0], "swap {when}");
    }

    #[track_caller]
    fn assert_settings_are_back(&self, before: &BTreeMap<String, String>, reset: &Output) {
        let mut after = self.settings();
        // Its module stays until the next boot, as reset says.
        after.retain(|name, _| before.contains_key(name) || !name.starts_with("net.bridge."));
        assert_eq!(&after, before, "{}", reset.stdout);
    }

    fn evidence(&self) -> String {
        let script = "systemctl --no-pager --failed; systemctl --no-pager -n 0 status 'unbounded-*' 'aks-flex-node-*'; \
            journalctl --no-pager -n 60 -o cat -u 'unbounded-*' -u 'aks-flex-node-*'";
        self.machine.sh(script).map_or_else(|e| format!("{e:#}"), |o| o.stdout)
    }
}

const SWAP_LINE: &str = "/swap.img none swap sw,pri=7 0 0";
const SWAP_ON: &str = "set -e; dd if=/dev/zero of=/swap.img bs=1M count=32 status=none; chmod 600 /swap.img
    mkswap -q /swap.img; echo '/swap.img none swap sw,pri=7 0 0' >>/etc/fstab; systemctl daemon-reload; swapon -a";

#[test]
#[ignore = "needs root, QEMU and some minutes"]
fn settings_and_swap_hold_over_a_reboot_and_come_back_at_reset() {
    let cluster = Cluster::new();
    let guest = Guest::new(&cluster, "settings", false);
    guest.sh(SWAP_ON);
    let (before, fstab) = (guest.settings(), guest.machine.read("/etc/fstab").unwrap());
    assert_eq!(guest.swaps(), ["/swap.img"]);
    assert!(fstab.contains(SWAP_LINE));
    for name in ["kernel.panic", "vm.overcommit_memory", "net.ipv4.ip_forward"] {
        assert_eq!(before[name], "0", "{name}: it has to change, or this shows nothing");
    }

    guest.start();
    guest.wait_ready();
    guest.assert_is_as_a_node_needs("after start");
    let commented = guest.machine.read("/etc/fstab").unwrap();
    assert!(commented.lines().any(|line| line == format!("#aks-flex-node# {SWAP_LINE}")), "{commented}");

    // One hierarchy of version 2, and systemd makes the groups of pods.
    assert_eq!(guest.sh("stat -fc %T /sys/fs/cgroup").trim(), "cgroup2fs");
    cluster.control_plane.apply(&pods::web("settings-web", "settings")).unwrap();
    let address = cluster.wait_pod("settings-web", READY).unwrap();
    assert!(cluster.ask_pod(&address).ends_with(flexnode_lab::image::WEB_ANSWER));
    assert_eq!(guest.sh("systemctl is-active kubepods.slice").trim(), "active");
    let scopes = guest.sh("systemctl list-units --plain --no-legend --type=scope");
    assert!(scopes.contains("cri-containerd-"), "{scopes}");
    // Its program ignores SIGTERM: a shutdown would wait for it for as long as systemd has patience.
    cluster.control_plane.kubectl(&["delete", "pod", "settings-web", "--grace-period=1"]).unwrap().success().unwrap();

    guest.machine.reboot().unwrap();
    guest.wait_ready();
    guest.assert_is_as_a_node_needs("after a reboot");

    let reset = guest.machine.exec(&[AGENT, "reset", "--yes", "--remove-agent"]).unwrap();
    assert_eq!(reset.code, 0, "{}{}", reset.stdout, reset.stderr);
    assert_eq!(guest.machine.read("/etc/fstab").unwrap(), fstab);
    assert_eq!(guest.swaps(), ["/swap.img"], "{}{}", reset.stdout, reset.stderr);
    assert_eq!(guest.sh("awk '$1 == \"/swap.img\" {print $5}' /proc/swaps").trim(), "7", "its priority");
    guest.assert_settings_are_back(&before, &reset);
}

#[test]
#[ignore = "needs root, QEMU and some minutes"]
fn a_node_under_a_read_only_usr_comes_back_after_a_power_cut_and_goes_at_reset() {
    let cluster = Cluster::new();
    let mut guest = Guest::new(&cluster, "sealed", true);
    assert_ne!(guest.machine.sh("touch /usr/file").unwrap().code, 0, "/usr is read-only");
    let before = guest.settings();
    guest.start();
    guest.wait_ready();
    cluster.control_plane.apply(&pods::web("sealed-web", "sealed")).unwrap();
    cluster.wait_pod("sealed-web", READY).unwrap();
    // Nothing is asked to write anything out: what start reported as done has to be on the disk.
    guest.machine.power_cut().unwrap();
    guest.machine.power_on().unwrap();
    guest.wait_ready();
    assert_ne!(guest.machine.sh("touch /usr/file").unwrap().code, 0, "/usr is read-only");
    // Right after a boot an emulated machine is too slow for the deadlines of `status`, which then says what is not known.
    poll(READY, SOON * 20, "status to say that all is well", || {
        guest.machine.exec(&[AGENT, "status"])?.success().map(Some)
    })
    .unwrap();

    let reset = guest.machine.exec(&[AGENT, "reset", "--yes", "--remove-agent"]).unwrap();
    assert_eq!(reset.code, 0, "{}{}", reset.stdout, reset.stderr);
    assert_eq!(guest.sh("find /sys/fs/cgroup -name 'kubepods*' -o -name 'cri-containerd-*'"), "");
    let left = "findmnt -rno TARGET | grep -E 'kubelet|containerd|netns|unbounded' || true; ls -d /opt/unbounded /var/lib/kubelet \
        /var/lib/containerd /etc/unbounded /etc/systemd/system/unbounded-* 2>/dev/null || true";
    assert_eq!(guest.sh(left), "", "{}", reset.stdout);
    guest.assert_settings_are_back(&before, &reset);
}

//! Kernel settings: applied key by key, read back, and set again at every boot.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Where the settings are kept for the next boot (sysctl.d(5)).
pub const SYSCTL_FILE: &str = "/etc/sysctl.d/99-aks-flex-node.conf";

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key with dots.
    pub key: &'static str,
    /// The value as the kernel prints it.
    pub value: &'static str,
    /// The module that brings the key, when it is not part of every kernel.
    pub module: Option<&'static str>,
}

const fn setting(key: &'static str, value: &'static str) -> Setting {
    Setting { key, value, module: None }
}

/// What a node needs. The first six are what kubelet's `protectKernelDefaults` compares; the others make the host
/// forward packets of pods, and accept those that come back on another link than the route back would take.
pub const SETTINGS: [Setting; 13] = [
    setting("vm.overcommit_memory", "1"),
    setting("vm.panic_on_oom", "0"),
    setting("kernel.panic", "10"),
    setting("kernel.panic_on_oops", "1"),
    setting("kernel.keys.root_maxkeys", "1000000"),
    setting("kernel.keys.root_maxbytes", "25000000"),
    Setting { key: "net.bridge.bridge-nf-call-iptables", value: "1", module: Some("br_netfilter") },
    Setting { key: "net.bridge.bridge-nf-call-ip6tables", value: "1", module: Some("br_netfilter") },
    setting(FORWARD, "1"),
    setting("net.ipv4.conf.all.src_valid_mark", "1"),
    setting("net.ipv4.conf.default.src_valid_mark", "1"),
    setting("net.ipv4.conf.all.rp_filter", "0"),
    setting("net.ipv4.conf.default.rp_filter", "0"),
];

const FORWARD: &str = "net.ipv4.ip_forward";

/// Keys that the kernel changes by itself when `net.ipv4.ip_forward` is written (kernel documentation, ip-sysctl: "its
/// change resets all configuration parameters to their default state"). Their values before are recorded with it.
pub const FOLLOWERS: [&str; 2] = ["net.ipv4.conf.all.accept_redirects", "net.ipv4.conf.default.forwarding"];

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// By key: the value now; a key that the kernel does not have is not in it. Holds [`SETTINGS`] and [`FOLLOWERS`].
    pub values: BTreeMap<String, String>,
    /// The content of [`SYSCTL_FILE`]; `None` when there is no such file.
    pub file: Option<String>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Set a key now.
    Set {
        /// The setting.
        setting: Setting,
        /// Its value before.
        before: String,
    },
    /// Give [`SYSCTL_FILE`] this content.
    Persist(String),
}

/// What to do, what to record before it, and what this kernel does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which it is done.
    pub actions: Vec<Action>,
    /// Values before, of every key that an action changes by itself or through the kernel.
    pub record: BTreeMap<String, String>,
    /// Settings whose key this kernel lacks: neither set nor written.
    pub absent: Vec<Setting>,
}

/// The content of [`SYSCTL_FILE`] for these settings.
pub fn render<'a>(settings: impl IntoIterator<Item = &'a Setting>) -> String {
    let mut text = String::from("# Written by aks-flex-node. Removed by `aks-flex-node reset`.\n");
    for setting in settings {
        let _ = writeln!(text, "{} = {}", setting.key, setting.value);
    }
    text
}

/// The value with every run of blanks as one space, as the kernel prints lists with tabs.
pub fn normal(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What has to be done. An empty plan when all is as wanted.
pub fn decide(observed: &Observed) -> Plan {
    let mut plan = Plan::default();
    let mut there = Vec::new();
    for setting in SETTINGS {
        let Some(now) = observed.values.get(setting.key) else {
            plan.absent.push(setting);
            continue;
        };
        there.push(setting);
        if normal(now) == setting.value {
            continue;
        }
        plan.record.insert(setting.key.into(), now.clone());
        if setting.key == FORWARD {
            for key in FOLLOWERS {
                if let Some(value) = observed.values.get(key) {
                    plan.record.insert(key.into(), value.clone());
                }
            }
        }
        plan.actions.push(Action::Set { setting, before: now.clone() });
    }
    let text = render(&there);
    if observed.file.as_deref() != Some(text.as_str()) {
        plan.actions.push(Action::Persist(text));
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Observed {
        let values = SETTINGS.iter().map(|s| (s.key.to_string(), s.value.to_string())).collect();
        Observed { values, file: Some(render(&SETTINGS)) }
    }

    #[test]
    fn an_empty_plan_when_all_is_as_wanted() {
        assert_eq!(decide(&wanted()), Plan::default());
    }

    #[test]
    fn each_key_alone_is_set_and_recorded() {
        for setting in SETTINGS {
            let mut observed = wanted();
            observed.values.insert(setting.key.into(), "7".into());
            let plan = decide(&observed);
            assert_eq!(plan.actions, [Action::Set { setting, before: "7".into() }], "{}", setting.key);
            assert_eq!(plan.record, BTreeMap::from([(setting.key.to_string(), "7".to_string())]));
        }
    }

    #[test]
    fn forwarding_records_what_the_kernel_changes_with_it() {
        let mut observed = wanted();
        observed.values.insert(FORWARD.into(), "0".into());
        for key in FOLLOWERS {
            observed.values.insert(key.into(), "5".into());
        }
        let plan = decide(&observed);
        let keys: Vec<_> = plan.record.keys().map(String::as_str).collect();
        assert_eq!(keys, [FOLLOWERS[0], FOLLOWERS[1], FORWARD]);
        observed.values.insert(FORWARD.into(), "1".into());
        assert_eq!(decide(&observed), Plan::default(), "followers alone are not ours");
    }

    #[test]
    fn a_key_that_the_kernel_lacks_is_left_out_of_the_file() {
        let mut observed = wanted();
        observed.values.retain(|key, _| !key.starts_with("net.bridge"));
        let plan = decide(&observed);
        assert_eq!(plan.absent.iter().map(|s| s.module).collect::<Vec<_>>(), [Some("br_netfilter"); 2]);
        let [Action::Persist(text)] = plan.actions.as_slice() else { panic!("{:?}", plan.actions) };
        assert!(!text.contains("net.bridge") && text.contains("net.ipv4.ip_forward = 1\n"));
        observed.file = Some(text.clone());
        assert_eq!(decide(&observed).actions, []);
    }

    #[test]
    fn blanks_do_not_make_a_difference() {
        assert_eq!(normal(" 4096\t131072  6291456\n"), "4096 131072 6291456");
        let mut observed = wanted();
        observed.values.insert("kernel.panic".into(), "10\n".into());
        assert_eq!(decide(&observed), Plan::default());
    }
}

//! Kernel modules: loaded now, checked by their effect, and loaded at every boot.

use std::collections::BTreeMap;

/// Where the modules are named for the next boot (modules-load.d(5)).
pub const MODULES_FILE: &str = "/etc/modules-load.d/aks-flex-node.conf";

/// A module that the node stack uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name, as modprobe takes it.
    pub name: &'static str,
    /// Without it no pod can run. The other ones are missed by some network plugins only.
    pub required: bool,
    /// What is lost without it, for a person.
    pub without: &'static str,
}

/// The modules, in the order in which they are loaded.
pub const MODULES: [Module; 2] = [
    Module { name: "overlay", required: true, without: "containerd cannot make the root file system of a container" },
    Module {
        name: "br_netfilter",
        required: false,
        without: "packets between pods on one bridge pass by the packet filter: \
                  Services do not work for them with a bridge network plugin",
    },
];

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Load the module now.
    Load(Module),
    /// Give [`MODULES_FILE`] this content.
    Persist(String),
}

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// By name: whether the module's function is there, loaded or built in.
    pub present: BTreeMap<&'static str, bool>,
    /// The content of [`MODULES_FILE`]; `None` when there is no such file.
    pub file: Option<String>,
}

/// The content of [`MODULES_FILE`]: the same on every host, so that a kernel update that turns a built-in function into
/// a module finds it named.
pub fn render() -> String {
    let mut text = String::from("# Written by aks-flex-node. Removed by `aks-flex-node reset`.\n");
    for module in MODULES {
        text.push_str(module.name);
        text.push('\n');
    }
    text
}

/// What has to be done. Nothing when all is as wanted.
pub fn decide(observed: &Observed) -> Vec<Action> {
    let missing = MODULES.into_iter().filter(|m| !observed.present.get(m.name).copied().unwrap_or(false));
    let mut actions: Vec<Action> = missing.map(Action::Load).collect();
    let text = render();
    if observed.file.as_deref() != Some(text.as_str()) {
        actions.push(Action::Persist(text));
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(overlay: bool, bridge: bool, file: Option<String>) -> Observed {
        Observed { present: BTreeMap::from([("overlay", overlay), ("br_netfilter", bridge)]), file }
    }

    #[test]
    fn nothing_to_do_when_all_is_there() {
        assert_eq!(decide(&observed(true, true, Some(render()))), []);
    }

    #[test]
    fn loads_what_is_missing_and_persists_both() {
        let actions = decide(&observed(false, true, None));
        assert_eq!(
            actions,
            [
                Action::Load(MODULES[0]),
                Action::Persist(
                    "# Written by aks-flex-node. Removed by `aks-flex-node reset`.\noverlay\nbr_netfilter\n".into()
                )
            ]
        );
        assert_eq!(
            decide(&observed(false, false, Some(render()))),
            [Action::Load(MODULES[0]), Action::Load(MODULES[1])]
        );
    }

    #[test]
    fn another_content_of_the_file_is_replaced() {
        assert_eq!(decide(&observed(true, true, Some("overlay\n".into()))), [Action::Persist(render())]);
    }

    #[test]
    fn a_module_that_was_not_looked_at_counts_as_missing() {
        assert_eq!(decide(&Observed { file: Some(render()), ..Observed::default() }).len(), 2);
    }
}

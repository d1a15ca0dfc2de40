//! Swap: off now, off at the next boot, and every source of it named.

use super::fstab;
use flexnode_host::SwapArea;
use flexnode_model::MachineGoal;
use std::path::{Path, PathBuf};

/// The table of file systems and swap areas (fstab(5)).
pub const FSTAB: &str = "/etc/fstab";
/// Where a unit is masked so that it holds over a reboot.
pub const SYSTEM_UNITS: &str = "/etc/systemd/system";
/// Files whose presence means that zram-generator makes swap areas (zram-generator.conf(5)).
pub const ZRAM_CONFIGS: [&str; 4] = [
    "/etc/systemd/zram-generator.conf",
    "/run/systemd/zram-generator.conf",
    "/usr/local/lib/systemd/zram-generator.conf",
    "/usr/lib/systemd/zram-generator.conf",
];

/// Who defines a swap unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitSource {
    /// systemd-fstab-generator, from a line of /etc/fstab.
    Fstab,
    /// zram-generator.
    Zram,
    /// systemd-gpt-auto-generator, from a partition's type.
    Gpt,
    /// A unit file that a person or a package made.
    File,
}

/// A swap unit that a boot would start: it has a unit file, which is not a mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapUnit {
    /// Its name.
    pub name: String,
    /// Its file.
    pub fragment: PathBuf,
    /// Who made it.
    pub source: UnitSource,
    /// The device or file that it turns on (`What=`), when it is told.
    pub what: Option<PathBuf>,
}

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Active areas; empty also on a kernel without swap.
    pub areas: Vec<SwapArea>,
    /// Content of [`FSTAB`]; `None` when there is no such file.
    pub fstab: Option<String>,
    /// Swap units with a file.
    pub units: Vec<SwapUnit>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Give [`FSTAB`] this content.
    CommentFstab(String),
    /// Link the unit's name in [`SYSTEM_UNITS`] to /dev/null.
    Mask(String),
    /// A person's own unit file stands where the mask would go: take its links of `[Install]` away.
    Disable(String),
    /// Turn the area off.
    Off(SwapArea),
}

/// What to do and what to tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which it is done: what would bring swap back comes first, so that a crash between the two leaves
    /// swap on and not coming back, which running again sees.
    pub actions: Vec<Action>,
    /// For a person: where the swap came from.
    pub sources: Vec<String>,
    /// Active areas that neither fstab nor a unit explains: a script or the initramfs turned them on, and will again.
    pub unexplained: Vec<PathBuf>,
}

/// What has to be done. `keep` is set where kubelet is told to live with swap (`failSwapOn: false`): then nothing is.
pub fn decide(observed: &Observed, keep: bool) -> Plan {
    let mut plan = Plan::default();
    if keep {
        return plan;
    }
    let mut explained: Vec<PathBuf> = observed.units.iter().filter_map(|u| u.what.clone()).collect();
    if let Some((text, lines)) = observed.fstab.as_deref().and_then(fstab::comment_swap) {
        for line in lines {
            let what = line.split_whitespace().next().unwrap_or_default().to_string();
            plan.sources.push(format!("{FSTAB} ({what})"));
            explained.push(what.into());
        }
        plan.actions.push(Action::CommentFstab(text));
    }
    for unit in &observed.units {
        // Its line is gone after this plan, and the generator makes no unit from a comment.
        if unit.source == UnitSource::Fstab {
            continue;
        }
        plan.sources.push(format!("{} ({})", unit.name, describe(unit.source)));
        let own_file = unit.fragment.parent() == Some(Path::new(SYSTEM_UNITS));
        plan.actions.push(if own_file { Action::Disable(unit.name.clone()) } else { Action::Mask(unit.name.clone()) });
    }
    for area in &observed.areas {
        if !explained.iter().any(|what| covers(what, &area.path)) {
            plan.unexplained.push(area.path.clone());
        }
        plan.actions.push(Action::Off(area.clone()));
    }
    plan
}

/// Whether kubelet is told to live with swap (`node.kubelet.config.failSwapOn` is false).
pub fn keeps(goal: &MachineGoal) -> bool {
    goal.kubelet.config.get("failSwapOn").and_then(serde_json::Value::as_bool) == Some(false)
}

/// Whether the source may be this area. A source by UUID or label is not resolved here: as long as there is one, an area
/// on a device counts as explained by it.
fn covers(what: &Path, area: &Path) -> bool {
    let text = what.to_string_lossy();
    what == area || ((text.contains('=') || text.starts_with("/dev/disk/")) && area.starts_with("/dev"))
}

fn describe(source: UnitSource) -> &'static str {
    match source {
        UnitSource::Fstab => "from /etc/fstab",
        UnitSource::Zram => "from zram-generator",
        UnitSource::Gpt => "from the type of a partition",
        UnitSource::File => "a swap unit",
    }
}

/// Who made a swap unit, told from its file and the text of it, and the `What=` in it.
pub fn parse_unit(fragment: &Path, text: &str) -> (UnitSource, Option<PathBuf>) {
    let entries =
        || text.lines().filter_map(|line| line.split_once('=')).map(|(key, value)| (key.trim(), value.trim()));
    let what = entries().find(|(key, _)| *key == "What").map(|(_, value)| PathBuf::from(value));
    let generated = fragment.starts_with("/run/systemd");
    let source = if entries().any(|entry| entry == ("SourcePath", FSTAB)) {
        UnitSource::Fstab
    } else if text.contains("zram-generator") {
        UnitSource::Zram
    } else if generated && text.contains("gpt-auto-generator") {
        UnitSource::Gpt
    } else {
        UnitSource::File
    };
    (source, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(path: &str) -> SwapArea {
        SwapArea { path: path.into(), kind: "file".into(), bytes: 1 << 20, priority: -2 }
    }

    fn unit(name: &str, fragment: &str, source: UnitSource, what: &str) -> SwapUnit {
        SwapUnit { name: name.into(), fragment: fragment.into(), source, what: Some(what.into()) }
    }

    #[test]
    fn a_host_without_swap_needs_nothing() {
        assert_eq!(decide(&Observed::default(), false), Plan::default());
        let observed = Observed { fstab: Some("UUID=1 / ext4 defaults 0 1\n".into()), ..Observed::default() };
        assert_eq!(decide(&observed, false), Plan::default());
    }

    #[test]
    fn fstab_comes_before_the_area_and_its_unit_is_not_masked() {
        let observed = Observed {
            areas: vec![area("/swap.img")],
            fstab: Some("/swap.img none swap sw 0 0\n".into()),
            units: vec![unit("swap.img.swap", "/run/systemd/generator/swap.img.swap", UnitSource::Fstab, "/swap.img")],
        };
        let plan = decide(&observed, false);
        assert_eq!(
            plan.actions,
            [
                Action::CommentFstab("#aks-flex-node# /swap.img none swap sw 0 0\n".into()),
                Action::Off(area("/swap.img"))
            ]
        );
        assert_eq!(plan.sources, ["/etc/fstab (/swap.img)"]);
        assert!(plan.unexplained.is_empty());
    }

    #[test]
    fn a_line_for_the_next_boot_counts_also_when_swap_is_off() {
        let observed = Observed { fstab: Some("/swap.img none swap sw 0 0\n".into()), ..Observed::default() };
        assert_eq!(decide(&observed, false).actions.len(), 1);
    }

    #[test]
    fn zram_and_gpt_are_masked_and_a_persons_unit_is_disabled() {
        let observed = Observed {
            areas: vec![area("/dev/zram0")],
            units: vec![
                unit("dev-zram0.swap", "/run/systemd/generator/dev-zram0.swap", UnitSource::Zram, "/dev/zram0"),
                unit("dev-sda3.swap", "/run/systemd/generator.late/dev-sda3.swap", UnitSource::Gpt, "/dev/sda3"),
                unit("extra.swap", "/etc/systemd/system/extra.swap", UnitSource::File, "/extra"),
                unit("pkg.swap", "/usr/lib/systemd/system/pkg.swap", UnitSource::File, "/pkg"),
            ],
            ..Observed::default()
        };
        let plan = decide(&observed, false);
        assert_eq!(
            plan.actions,
            [
                Action::Mask("dev-zram0.swap".into()),
                Action::Mask("dev-sda3.swap".into()),
                Action::Disable("extra.swap".into()),
                Action::Mask("pkg.swap".into()),
                Action::Off(area("/dev/zram0")),
            ]
        );
        assert!(plan.unexplained.is_empty());
        assert_eq!(plan.sources[0], "dev-zram0.swap (from zram-generator)");
    }

    #[test]
    fn swap_from_the_initramfs_is_named() {
        let observed = Observed { areas: vec![area("/dev/sda5")], ..Observed::default() };
        let plan = decide(&observed, false);
        assert_eq!(plan.unexplained, [PathBuf::from("/dev/sda5")]);
        assert_eq!(plan.actions, [Action::Off(area("/dev/sda5"))]);
    }

    #[test]
    fn a_source_by_uuid_explains_a_device_but_not_a_file() {
        let observed = Observed {
            areas: vec![area("/dev/sda5"), area("/swapfile")],
            fstab: Some("UUID=abc none swap sw 0 0\n".into()),
            ..Observed::default()
        };
        assert_eq!(decide(&observed, false).unexplained, [PathBuf::from("/swapfile")]);
    }

    #[test]
    fn kubelet_that_lives_with_swap_leaves_it() {
        let observed = Observed {
            areas: vec![area("/swap.img")],
            fstab: Some("/swap.img none swap sw 0 0\n".into()),
            ..Observed::default()
        };
        assert_eq!(decide(&observed, true), Plan::default());
    }

    #[test]
    fn the_text_of_a_unit_tells_its_source() {
        let generated = Path::new("/run/systemd/generator/dev-zram0.swap");
        for (fragment, text, source, what) in [
            (
                generated,
                "[Unit]\nSourcePath=/etc/fstab\n\n[Swap]\nWhat=/swap.img\n",
                UnitSource::Fstab,
                Some("/swap.img"),
            ),
            (
                generated,
                "# Automatically generated by zram-generator\n[Swap]\nWhat=/dev/zram0\n",
                UnitSource::Zram,
                Some("/dev/zram0"),
            ),
            (
                generated,
                "# Automatically generated by systemd-gpt-auto-generator\n[Swap]\nWhat=/dev/sda3",
                UnitSource::Gpt,
                Some("/dev/sda3"),
            ),
            (Path::new("/etc/systemd/system/x.swap"), "[Swap]\nWhat = x\n", UnitSource::File, Some("x")),
        ] {
            assert_eq!(parse_unit(fragment, text), (source, what.map(PathBuf::from)), "{text}");
        }
    }
}

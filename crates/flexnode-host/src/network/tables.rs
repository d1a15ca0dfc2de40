//! The form of iptables-save(8).

/// A table of iptables.
pub(super) struct Table<'a> {
    /// `nat`, `filter`, ...
    pub(super) name: &'a str,
    /// The program that changes it.
    pub(super) restore: &'static str,
}

impl<'a> Table<'a> {
    /// The table that `ip/nat` or `ip6/nat` names.
    pub(super) fn of(table: &'a str) -> Option<Self> {
        let (family, name) = table.split_once('/')?;
        let restore = match family {
            "ip" => "iptables-restore",
            "ip6" => "ip6tables-restore",
            _ => return None,
        };
        let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        plain.then_some(Self { name, restore })
    }
}

/// The chains (`:NAME POLICY`, without the counters, which change by themselves) and rules (`-A CHAIN ...`), each with
/// its table `family/name`.
pub(super) fn parse(family: &str, text: &str) -> Vec<(String, String)> {
    let mut table = String::new();
    let mut rules = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = format!("{family}/{}", name.trim());
        } else if line.starts_with(':') {
            let declared = line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
            rules.push((table.clone(), declared));
        } else if line.starts_with("-A ") {
            rules.push((table.clone(), line.to_owned()));
        }
    }
    rules
}

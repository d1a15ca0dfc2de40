//! Links, named network namespaces and packet filters of the host's network namespace.
//!
//! Links come from `ip`, else from /sys without their addresses. Rules come from `iptables-save`, `ip6tables-save` and
//! `nft`; a tool that is not there has made no rules.

mod nft;
mod tables;

use crate::{Command, Commands, FilterTable, HostError, Link, Network, mounts};
use async_trait::async_trait;
use serde::Deserialize;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The deadline of each tool.
const TOOL: Duration = Duration::from_secs(20);

/// kube-proxy writes tens of thousands of rules on large clusters.
const RULES_MAX: usize = 64 << 20;

/// Where named namespaces lie (ip-netns(8)).
const NETNS: &str = "/run/netns";

/// The network of this machine.
#[derive(Clone, Debug)]
pub struct RealNetwork {
    commands: Arc<dyn Commands>,
}

fn failed(what: impl Into<String>, reason: impl std::fmt::Display) -> HostError {
    HostError::Failed { what: what.into(), reason: reason.to_string() }
}

/// An entry of `ip -json -details address show`.
#[derive(Deserialize)]
struct IpLink {
    ifindex: u32,
    ifname: String,
    linkinfo: Option<IpLinkInfo>,
    #[serde(default)]
    addr_info: Vec<IpAddress>,
}

#[derive(Deserialize)]
struct IpLinkInfo {
    info_kind: Option<String>,
}

#[derive(Deserialize)]
struct IpAddress {
    local: Option<IpAddr>,
}

fn parse_links(json: &[u8]) -> Result<Vec<Link>, serde_json::Error> {
    let links: Vec<IpLink> = serde_json::from_slice(json)?;
    let link = |link: IpLink| Link {
        index: link.ifindex,
        name: link.ifname,
        kind: link.linkinfo.and_then(|info| info.info_kind).unwrap_or_default(),
        addresses: link.addr_info.into_iter().filter_map(|address| address.local).collect(),
    };
    Ok(links.into_iter().map(link).collect())
}

/// The links in /sys/class/net, without addresses. `DEVTYPE` says `bridge`, `vlan`, ..., not `veth`.
fn links_in_sys(dir: &Path) -> io::Result<Vec<Link>> {
    let mut links = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let uevent = fs::read_to_string(entry.path().join("uevent")).unwrap_or_default();
        let value = |key: &str| uevent.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        // A file beside the links, as `bonding_masters`, has no index.
        let Some(index) = value("IFINDEX").and_then(|index| index.parse().ok()) else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        links.push(Link { index, name, kind: value("DEVTYPE").unwrap_or_default().to_owned(), addresses: Vec::new() });
    }
    links.sort_by_key(|link| link.index);
    Ok(links)
}

/// Whether a tool says that this kernel has no such packet filter or address family: then there are no rules of it.
fn lacks_support(reason: &str) -> bool {
    ["not supported", "Failed to initialize nft", "does not exist", "do you need to insmod"]
        .iter()
        .any(|text| reason.contains(text))
}

/// A name of one component, which cannot be an option either.
fn plain_name(name: &str) -> Result<&str, HostError> {
    let bad = name.is_empty() || name.starts_with(['-', '.']) || name.contains(['/', '\0', '\n', ' ']);
    if bad {
        Err(failed(format!("use the name {name:?}"), "it is not the name of a link, chain or namespace"))
    } else {
        Ok(name)
    }
}

impl RealNetwork {
    /// `commands` runs ip, iptables and nft.
    pub fn new(commands: Arc<dyn Commands>) -> Self {
        Self { commands }
    }

    /// What a tool that lists rules prints; nothing when it is not there or the kernel cannot do what it is for.
    async fn listed(&self, name: &str, args: &[&str]) -> Result<Vec<u8>, HostError> {
        match self.tool(name, args).await {
            Ok(output) => Ok(output.unwrap_or_default()),
            Err(HostError::Failed { reason, .. }) if lacks_support(&reason) => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }

    /// What a tool prints; `None` when it is not there.
    async fn tool(&self, name: &str, args: &[&str]) -> Result<Option<Vec<u8>>, HostError> {
        let Some(program) = self.commands.look_path(name) else { return Ok(None) };
        let mut command = Command::new(program, args.iter().copied()).within(TOOL);
        command.max_output = RULES_MAX;
        Ok(Some(self.commands.run(&command).await?.ok(&command)?.stdout))
    }

    async fn feed(&self, name: &str, args: &[&str], input: String) -> Result<(), HostError> {
        let absent = || HostError::Absent { what: format!("program {name}") };
        let program = self.commands.look_path(name).ok_or_else(absent)?;
        let command = Command::new(program, args.iter().copied()).within(TOOL).input(input);
        self.commands.run(&command).await?.ok(&command)?;
        Ok(())
    }

    /// Runs lines of iptables-restore on one table; other rules stay.
    async fn restore(&self, table: &tables::Table<'_>, lines: &str) -> Result<(), HostError> {
        let input = format!("*{}\n{lines}COMMIT\n", table.name);
        self.feed(table.restore, &["--noflush", "--wait", "5"], input).await
    }
}

#[async_trait]
impl Network for RealNetwork {
    async fn links(&self) -> Result<Vec<Link>, HostError> {
        match self.tool("ip", &["-json", "-details", "address", "show"]).await? {
            Some(json) => parse_links(&json).map_err(|e| failed("read the links from ip", e)),
            None => links_in_sys(Path::new("/sys/class/net")).map_err(|e| failed("list /sys/class/net", e)),
        }
    }

    async fn remove_link(&self, name: &str) -> Result<(), HostError> {
        let name = plain_name(name)?;
        let removed = self.tool("ip", &["link", "delete", "dev", name]).await;
        if matches!(removed, Ok(Some(_))) {
            return Ok(());
        }
        // Removing one end of a veth pair takes the other along, which may be this one. /sys is not asked where ip can
        // be: in a container it may show the links of another network namespace.
        if !self.links().await?.iter().any(|link| link.name == name) {
            return Ok(());
        }
        removed?;
        Err(failed(format!("remove link {name}"), "the program ip is not installed"))
    }

    fn namespaces(&self) -> Result<Vec<String>, HostError> {
        let entries = match fs::read_dir(NETNS) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed(format!("list {NETNS}"), e)),
        };
        let mut names: Vec<String> =
            entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
        names.sort();
        Ok(names)
    }

    async fn remove_namespace(&self, name: &str) -> Result<(), HostError> {
        let path: PathBuf = Path::new(NETNS).join(plain_name(name)?);
        let what = || format!("remove network namespace {name}");
        while mounts::detach(&path).map_err(|e| failed(what(), e))? {}
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(failed(what(), e)),
            _ => Ok(()),
        }
    }

    async fn rules(&self) -> Result<Vec<(String, String)>, HostError> {
        let mut rules = Vec::new();
        for (family, save) in [("ip", "iptables-save"), ("ip6", "ip6tables-save")] {
            let text = self.listed(save, &[]).await?;
            rules.extend(tables::parse(family, &String::from_utf8_lossy(&text)));
        }
        let json = self.listed("nft", &["-j", "list", "ruleset"]).await?;
        let all = nft::parse(&json).map_err(|e| failed("read the rules from nft", e))?;
        // What iptables works on is listed by it already.
        rules.extend(all.into_iter().filter(|(table, _)| !nft::is_of_iptables(table)));
        Ok(rules)
    }

    async fn remove_rule(&self, table: &str, rule: &str) -> Result<(), HostError> {
        let there = |rules: Vec<(String, String)>| rules.iter().any(|(t, r)| t == table && r == rule);
        if !there(self.rules().await?) {
            return Ok(());
        }
        if let Some(args) = nft::delete_rule(table, rule) {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            return self.tool("nft", &args).await.map(drop);
        }
        let target =
            tables::Table::of(table).ok_or_else(|| failed(format!("remove a rule of {table}"), "unknown table"))?;
        let spec = rule.strip_prefix("-A ").filter(|spec| !spec.contains('\n'));
        let spec = spec.ok_or_else(|| failed(format!("remove rule {rule:?}"), "it is not a rule"))?;
        self.restore(&target, &format!("-D {spec}\n")).await
    }

    async fn remove_chain(&self, table: &str, chain: &str) -> Result<(), HostError> {
        plain_name(chain)?;
        let declared = format!(":{chain} ");
        if !self.rules().await?.iter().any(|(t, rule)| t == table && rule.starts_with(&declared)) {
            return Ok(());
        }
        if let Some(input) = nft::delete_chain(table, chain) {
            return self.feed("nft", &["-f", "-"], input).await;
        }
        let target =
            tables::Table::of(table).ok_or_else(|| failed(format!("remove a chain of {table}"), "unknown table"))?;
        self.restore(&target, &format!("-F {chain}\n-X {chain}\n")).await
    }

    async fn tables(&self) -> Result<Vec<FilterTable>, HostError> {
        let json = self.listed("nft", &["-j", "list", "ruleset"]).await?;
        nft::tables(&json).map_err(|e| failed("read the tables from nft", e))
    }

    async fn remove_table(&self, table: &str) -> Result<(), HostError> {
        match self.tables().await?.into_iter().find(|known| known.name == table) {
            None => Ok(()),
            Some(known) if !known.idle => Err(failed(format!("remove the table {table}"), "it has rules")),
            Some(_) => {
                let (family, name) = table.split_once('/').unwrap_or(("ip", table));
                self.tool("nft", &["delete", "table", plain_name(family)?, plain_name(name)?]).await.map(drop)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeClock, FakeCommands};

    const SAVE: &str = "# Generated by iptables-save\n*nat\n:PREROUTING ACCEPT [1:60]\n:CNI-HOSTPORT-DNAT - [0:0]\n\
        -A PREROUTING -m addrtype --dst-type LOCAL -m comment --comment \"a -j b\" -j CNI-HOSTPORT-DNAT\nCOMMIT\n\
        *filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 10.0.0.0/8 -j ACCEPT\nCOMMIT\n";
    const RULE: &str =
        "-A PREROUTING -m addrtype --dst-type LOCAL -m comment --comment \"a -j b\" -j CNI-HOSTPORT-DNAT";

    const NFT: &str = r#"{"nftables":[{"metainfo":{"version":"1.0.6"}},
        {"table":{"family":"ip","name":"nat","handle":1}},
        {"chain":{"family":"ip","table":"nat","name":"PREROUTING","handle":1}},
        {"table":{"family":"inet","name":"cni_hostport","handle":2}},
        {"chain":{"family":"inet","table":"cni_hostport","name":"hostports","handle":1}},
        {"rule":{"family":"inet","table":"cni_hostport","chain":"hostports","handle":7,"comment":"pod1","expr":[]}}]}"#;

    fn network() -> (RealNetwork, Arc<FakeCommands>) {
        let commands = Arc::new(FakeCommands::new(Arc::new(FakeClock::new())));
        (RealNetwork::new(commands.clone()), commands)
    }

    fn with_rules(commands: &FakeCommands) {
        for name in ["iptables-save", "ip6tables-save", "iptables-restore", "nft"] {
            commands.on_path(name, Path::new("/sbin").join(name));
        }
        commands.answer("iptables-save", &[], SAVE).answer("ip6tables-save", &[], "").answer("nft", &[], "");
        commands.answer("nft", &["-j"], NFT).answer("iptables-restore", &[], "");
    }

    #[tokio::test]
    async fn no_tools_no_rules() {
        let (network, _) = network();
        assert_eq!(network.rules().await.unwrap(), []);
        network.remove_chain("ip/nat", "CNI-X").await.unwrap();
    }

    #[tokio::test]
    async fn a_kernel_without_a_family_has_no_rules_of_it_and_other_failures_are_told() {
        let (network, commands) = network();
        with_rules(&commands);
        commands.exit("ip6tables-save", &[], 1, "", "ip6tables-save: Address family not supported by protocol");
        assert_eq!(network.rules().await.unwrap().len(), 7);
        commands.exit("ip6tables-save", &[], 4, "", "Another app is currently holding the xtables lock");
        let error = network.rules().await.unwrap_err().to_string();
        assert!(error.contains("ip6tables-save") && error.contains("xtables lock"), "{error}");
    }

    #[tokio::test]
    async fn rules_of_both_tools_each_once() {
        let (network, commands) = network();
        with_rules(&commands);
        let want = [
            ("ip/nat", ":PREROUTING ACCEPT"),
            ("ip/nat", ":CNI-HOSTPORT-DNAT -"),
            ("ip/nat", RULE),
            ("ip/filter", ":INPUT ACCEPT"),
            ("ip/filter", "-A INPUT -s 10.0.0.0/8 -j ACCEPT"),
            ("nft/inet/cni_hostport", ":hostports -"),
            ("nft/inet/cni_hostport", "-A hostports handle 7 comment pod1"),
        ];
        assert_eq!(network.rules().await.unwrap(), want.map(|(t, r)| (t.to_owned(), r.to_owned())));
    }

    #[tokio::test]
    async fn removal_names_exactly_what_was_listed() {
        let (network, commands) = network();
        with_rules(&commands);
        network.remove_rule("ip/nat", RULE).await.unwrap();
        network.remove_chain("ip/nat", "CNI-HOSTPORT-DNAT").await.unwrap();
        network.remove_rule("nft/inet/cni_hostport", "-A hostports handle 7 comment pod1").await.unwrap();
        network.remove_chain("nft/inet/cni_hostport", "hostports").await.unwrap();
        network.remove_rule("ip/nat", "-A GONE -j ACCEPT").await.unwrap();
        network.remove_chain("ip/filter", "CNI-HOSTPORT-DNAT").await.unwrap();
        let inputs: Vec<String> = commands
            .log()
            .iter()
            .filter(|c| !c.stdin.is_empty())
            .map(|c| String::from_utf8_lossy(&c.stdin).into())
            .collect();
        let want = [
            format!("*nat\n-D {}\nCOMMIT\n", &RULE[3..]),
            "*nat\n-F CNI-HOSTPORT-DNAT\n-X CNI-HOSTPORT-DNAT\nCOMMIT\n".to_owned(),
            "flush chain inet cni_hostport hostports\ndelete chain inet cni_hostport hostports\n".to_owned(),
        ];
        assert_eq!(inputs, want);
        let deleted = "/sbin/nft delete rule inet cni_hostport hostports handle 7".to_owned();
        assert_eq!(
            commands.lines().iter().filter(|line| line.starts_with("/sbin/nft delete")).collect::<Vec<_>>(),
            [&deleted]
        );
    }

    #[tokio::test]
    async fn only_a_table_of_iptables_that_does_nothing_is_removed() {
        let (network, commands) = network();
        commands.on_path("nft", "/sbin/nft").answer("nft", &[], "");
        let ruleset = r#"{"nftables":[
            {"table":{"family":"ip","name":"mangle","handle":1}},
            {"table":{"family":"ip","name":"filter","handle":2}},
            {"chain":{"family":"ip","table":"filter","name":"INPUT","hook":"input","policy":"accept","handle":1}},
            {"table":{"family":"ip6","name":"filter","handle":3}},
            {"chain":{"family":"ip6","table":"filter","name":"INPUT","hook":"input","policy":"drop","handle":1}},
            {"table":{"family":"ip","name":"nat","handle":4}},
            {"chain":{"family":"ip","table":"nat","name":"MINE","handle":1}},
            {"table":{"family":"ip","name":"raw","handle":5}},
            {"chain":{"family":"ip","table":"raw","name":"OUTPUT","hook":"output","policy":"accept","handle":1}},
            {"rule":{"family":"ip","table":"raw","chain":"OUTPUT","handle":7,"expr":[]}},
            {"table":{"family":"inet","name":"filter","handle":6}}]}"#;
        commands.answer("nft", &["-j"], ruleset);
        let tables = network.tables().await.unwrap();
        let idle: Vec<(&str, bool)> = tables.iter().map(|table| (table.name.as_str(), table.idle)).collect();
        let want =
            [("ip/mangle", true), ("ip/filter", true), ("ip6/filter", false), ("ip/nat", false), ("ip/raw", false)];
        assert_eq!(idle, want);
        network.remove_table("ip/filter").await.unwrap();
        network.remove_table("ip/security").await.unwrap();
        assert!(network.remove_table("ip/raw").await.is_err());
        let deleted: Vec<String> = commands.lines().into_iter().filter(|line| line.contains("delete")).collect();
        assert_eq!(deleted, ["/sbin/nft delete table ip filter"]);
    }

    #[test]
    fn links_of_ip() {
        let json = br#"[{"ifindex":1,"ifname":"lo","linkinfo":{},"addr_info":[{"family":"inet","local":"127.0.0.1"}]},
            {"ifindex":5,"ifname":"cni0","linkinfo":{"info_kind":"bridge","info_data":{}},"addr_info":[{"local":"10.1.0.1"},{"local":"fe80::1"}]},
            {"ifindex":6,"ifname":"eth0"}]"#;
        let links = parse_links(json).unwrap();
        let summary: Vec<_> =
            links.iter().map(|l| (l.index, l.name.as_str(), l.kind.as_str(), l.addresses.len())).collect();
        assert_eq!(summary, [(1, "lo", "", 1), (5, "cni0", "bridge", 2), (6, "eth0", "", 0)]);
        assert!(parse_links(b"nonsense").is_err());
    }

    #[test]
    fn links_without_ip() {
        let links = links_in_sys(Path::new("/sys/class/net")).unwrap();
        assert!(links.iter().any(|link| link.name == "lo"));
    }

    #[tokio::test]
    async fn names_that_are_paths_or_options_are_refused() {
        let (network, commands) = network();
        for bad in ["", "..", "a/b", "-f", "a b"] {
            assert!(network.remove_link(bad).await.is_err(), "{bad:?}");
            assert!(network.remove_namespace(bad).await.is_err(), "{bad:?}");
            assert!(network.remove_chain("ip/nat", bad).await.is_err(), "{bad:?}");
        }
        network.remove_link("no-such-link").await.unwrap();
        network.remove_namespace("no-such-namespace-of-flexnode").await.unwrap();
        assert_eq!(commands.lines(), Vec::<String>::new());
    }
}

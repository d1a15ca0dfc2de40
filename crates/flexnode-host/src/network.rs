//! Links, named network namespaces and packet filters of the host's network namespace.
//!
//! Links come from `ip`, else from /sys without their addresses. Rules come from `iptables-save`, `ip6tables-save` and
//! `nft`; a tool that is not there has made no rules.

mod batch;
mod nft;
mod routes;
mod tables;

use crate::{Command, Commands, FilterPart, FilterTable, Filters, HostError, Link, Network, Route, mounts};
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
        self.feed(table.restore, batch::RESTORE_ARGS, input).await
    }

    /// Removes one part by itself.
    async fn remove_part(&self, part: &FilterPart) -> Result<(), HostError> {
        match part {
            FilterPart::Rule { table, rule } => self.remove_rule(table, rule).await,
            FilterPart::Chain { table, chain } => self.remove_chain(table, chain).await,
            FilterPart::Table { table } => match nft::delete_table(table) {
                Some(line) => self.feed("nft", batch::NFT_ARGS, line).await,
                None => self.remove_table(table).await,
            },
        }
    }

    /// What nft has, as it prints it; nothing when it is not there.
    async fn ruleset(&self) -> Result<Vec<u8>, HostError> {
        self.listed("nft", &["-j", "list", "ruleset"]).await
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
        Ok(self.filters().await?.rules)
    }

    async fn filters(&self) -> Result<Filters, HostError> {
        let (four, six, json) =
            tokio::join!(self.listed("iptables-save", &[]), self.listed("ip6tables-save", &[]), self.ruleset());
        let mut rules = Vec::new();
        for (family, text) in [("ip", four?), ("ip6", six?)] {
            rules.extend(tables::parse(family, &String::from_utf8_lossy(&text)));
        }
        let json = json?;
        let all = nft::parse(&json).map_err(|e| failed("read the rules from nft", e))?;
        // What iptables works on is listed by it already.
        rules.extend(all.into_iter().filter(|(table, _)| !nft::is_of_iptables(table)));
        let tables = nft::tables(&json).map_err(|e| failed("read the tables from nft", e))?;
        Ok(Filters { rules, tables })
    }

    async fn remove_filters(&self, parts: &[FilterPart]) -> Vec<Result<(), HostError>> {
        if parts.is_empty() {
            return Vec::new();
        }
        let now = match self.filters().await {
            Ok(now) => now,
            Err(e) => {
                let reason = e.to_string();
                return parts.iter().map(|_| Err(failed("look at the packet filter", &reason))).collect();
            }
        };
        let (fates, inputs) = batch::plan(parts, &now);
        let mut went = Vec::new();
        for input in inputs {
            went.push(self.feed(input.program, input.args, input.text).await.is_ok());
        }
        let mut answers = Vec::with_capacity(parts.len());
        for (part, fate) in parts.iter().zip(fates) {
            answers.push(match fate {
                batch::Fate::Absent => Ok(()),
                batch::Fate::In(at) if went[at] => Ok(()),
                // One refusal stops all that is in the same change: by themselves the others go, and the one tells why.
                batch::Fate::In(_) | batch::Fate::Alone => self.remove_part(part).await,
            });
        }
        answers
    }

    async fn ip_sets(&self) -> Result<Vec<String>, HostError> {
        let names = match self.tool("ipset", &["list", "-name"]).await {
            Ok(names) => names.unwrap_or_default(),
            // A kernel without sets has none, in words that changed over the years.
            Err(HostError::Failed { .. }) => Vec::new(),
            Err(e) => return Err(e),
        };
        Ok(String::from_utf8_lossy(&names).lines().map(|line| line.trim().to_owned()).collect())
    }

    async fn remove_ip_set(&self, name: &str) -> Result<(), HostError> {
        let name = plain_name(name)?;
        match self.tool("ipset", &["destroy", name]).await {
            Err(HostError::Failed { reason, .. }) if reason.contains("does not exist") => Ok(()),
            other => other.map(drop),
        }
    }

    async fn routes(&self) -> Result<Vec<Route>, HostError> {
        let (four, six) = tokio::join!(
            self.listed("ip", &["-4", "-json", "route", "show"]),
            self.listed("ip", &["-6", "-json", "route", "show"])
        );
        let mut all = Vec::new();
        for json in [four?, six?] {
            all.extend(routes::parse(&json).map_err(|e| failed("read the routes from ip", e))?);
        }
        Ok(all)
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
        let json = self.ruleset().await?;
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
mod tests;

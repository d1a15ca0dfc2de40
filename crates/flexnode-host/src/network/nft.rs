//! The tables of nft(8) that iptables does not know, in the form of libnftables-json(5).
//!
//! Their table is named `nft/FAMILY/NAME`, a chain `:NAME -`, a rule `-A CHAIN handle N comment TEXT`: the handle is
//! what a rule is removed by, the comment says whose it is.

use crate::FilterTable;
use serde::Deserialize;

#[derive(Deserialize)]
struct RuleSet {
    nftables: Vec<Entry>,
}

/// Exactly one of them is there; other kinds of entries are ignored.
#[derive(Deserialize)]
struct Entry {
    table: Option<TableEntry>,
    chain: Option<Chain>,
    rule: Option<Rule>,
}

#[derive(Deserialize)]
struct TableEntry {
    family: String,
    name: String,
}

#[derive(Deserialize)]
struct Chain {
    family: String,
    table: String,
    name: String,
    hook: Option<String>,
    policy: Option<String>,
}

#[derive(Deserialize)]
struct Rule {
    family: String,
    table: String,
    chain: String,
    handle: u64,
    comment: Option<String>,
}

pub(super) fn parse(json: &[u8]) -> Result<Vec<(String, String)>, serde_json::Error> {
    // Without any rule nft prints nothing at all in some versions.
    if json.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    let set: RuleSet = serde_json::from_slice(json)?;
    let line = |entry: Entry| match (entry.chain, entry.rule) {
        (Some(chain), _) => Some((format!("nft/{}/{}", chain.family, chain.table), format!(":{} -", chain.name))),
        (_, Some(rule)) => {
            let comment = rule.comment.map(|text| format!(" comment {}", text.replace('\n', " "))).unwrap_or_default();
            let line = format!("-A {} handle {}{comment}", rule.chain, rule.handle);
            Some((format!("nft/{}/{}", rule.family, rule.table), line))
        }
        _ => None,
    };
    Ok(set.nftables.into_iter().filter_map(line).collect())
}

/// The tables that iptables keeps through nft, and whether they do nothing.
pub(super) fn tables(json: &[u8]) -> Result<Vec<FilterTable>, serde_json::Error> {
    if json.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    let set: RuleSet = serde_json::from_slice(json)?;
    let named = |family: &str, name: &str| format!("{family}/{name}");
    let of_iptables = |entry: &Entry| {
        let table = entry.table.as_ref()?;
        let name = named(&table.family, &table.name);
        is_of_iptables(&format!("nft/{name}")).then_some(name)
    };
    let acts = |entry: &Entry, table: &str| match (&entry.chain, &entry.rule) {
        (Some(chain), _) if named(&chain.family, &chain.table) == table => {
            chain.hook.is_none() || chain.policy.as_deref().is_some_and(|policy| policy != "accept")
        }
        (_, Some(rule)) => named(&rule.family, &rule.table) == table,
        _ => false,
    };
    let table = |name: String| FilterTable { idle: !set.nftables.iter().any(|entry| acts(entry, &name)), name };
    Ok(set.nftables.iter().filter_map(of_iptables).map(table).collect())
}

/// The tables that iptables keeps through nft, whether or not its own tools are installed.
pub(super) fn is_of_iptables(table: &str) -> bool {
    let tables = ["filter", "nat", "mangle", "raw", "security"];
    let name = table.strip_prefix("nft/ip/").or_else(|| table.strip_prefix("nft/ip6/"));
    name.is_some_and(|name| tables.contains(&name))
}

/// A word that nft takes as it is.
fn plain(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b)) && !word.starts_with('-')
}

fn family_and_name(table: &str) -> Option<(&str, &str)> {
    let (family, name) = table.strip_prefix("nft/")?.split_once('/')?;
    (plain(family) && plain(name)).then_some((family, name))
}

/// The arguments that remove a rule as [`parse`] named it.
pub(super) fn delete_rule(table: &str, rule: &str) -> Option<Vec<String>> {
    let (family, name) = family_and_name(table)?;
    let mut words = rule.strip_prefix("-A ")?.split_whitespace();
    let (chain, keyword, handle) = (words.next()?, words.next()?, words.next()?);
    let right = plain(chain) && keyword == "handle" && handle.parse::<u64>().is_ok();
    right.then(|| ["delete", "rule", family, name, chain, "handle", handle].map(str::to_owned).to_vec())
}

/// The input that empties and removes a chain, in one transaction.
pub(super) fn delete_chain(table: &str, chain: &str) -> Option<String> {
    let (family, name) = family_and_name(table)?;
    plain(chain).then(|| format!("flush chain {family} {name} {chain}\ndelete chain {family} {name} {chain}\n"))
}

/// The line that removes a table of nft with all that is in it.
pub(super) fn delete_table(table: &str) -> Option<String> {
    family_and_name(table).map(|(family, name)| format!("delete table {family} {name}\n"))
}

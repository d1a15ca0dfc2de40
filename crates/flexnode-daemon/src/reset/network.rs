//! Which network objects go: those of the node's names that were not there before, and those that its pods are known to
//! have had. Everything else of such names is told and stays.

use super::facts::Facts;
use super::places;
use super::plan::{self, Kept, Plan, Removal};
use crate::record;
use flexnode_model::record::{ChainBefore, Existed};
use std::collections::BTreeSet;

/// Chains that the CNI plugins portmap and firewall share among all who use them.
const SHARED_CHAINS: [&str; 3] = ["CNI-HOSTPORT-", "CNI-FORWARD", "CNI-ADMIN"];

const UNKNOWN: &str = "no record says that it was not there before the node";
const BEFORE: &str = "it was there before the node";

/// Adds the network's part to `plan`.
pub(super) fn plan(facts: &Facts, plan: &mut Plan) {
    let before = facts.record.as_ref().and_then(|record| record.existed.as_ref());
    namespaces(facts, before, plan);
    links(facts, before, plan);
    chains(facts, before, plan);
    proxy_tables(facts, before, plan);
    ip_sets(facts, before, plan);
    tables(facts, before, plan);
    routes(facts, before, plan);
}

/// kube-proxy's own tables, where it works with nft: `kube-proxy` of each address family.
fn proxy_tables(facts: &Facts, before: Option<&Existed>, plan: &mut Plan) {
    let of_proxy = |table: &&String| table.starts_with("nft/") && table.ends_with("/kube-proxy");
    for table in facts.rules.iter().map(|(table, _)| table).filter(of_proxy).collect::<BTreeSet<_>>() {
        let what = || format!("the table {table}");
        match before {
            None => plan.kept.push(Kept::new(what(), UNKNOWN)),
            Some(before) if before.chains.iter().any(|chain| chain.table == *table) => {
                plan.kept.push(Kept::new(what(), BEFORE));
            }
            Some(_) => plan.removals.push(Removal::NftTable(table.clone())),
        }
    }
}

/// What kube-proxy and network policies keep in sets: they begin with `KUBE-`. They go after the rules that name them.
fn ip_sets(facts: &Facts, before: Option<&Existed>, plan: &mut Plan) {
    let known = before.and_then(|before| before.ip_sets.as_ref());
    for name in facts.ip_sets.iter().filter(|name| name.starts_with("KUBE-")) {
        match known {
            None => plan.kept.push(Kept::new(format!("the set of addresses {name}"), UNKNOWN)),
            Some(known) if known.contains(name) => {}
            Some(_) => plan.removals.push(Removal::IpSet(name.clone())),
        }
    }
}

/// A route that came after the node and leads over a link that stays may be of a network add-on or of a person: it is told.
fn routes(facts: &Facts, before: Option<&Existed>, plan: &mut Plan) {
    let Some(known) = before.and_then(|before| before.routes.as_ref()) else { return };
    let goes = |link: &str| plan.removals.iter().any(|r| matches!(r, Removal::Link(name) if name == link));
    let new = facts.routes.iter().filter(|route| !known.contains(&route.line) && !goes(&route.link));
    let told: Vec<Kept> = new
        .map(|r| Kept::new(format!("the route {}", r.line), "it came after the node, and nothing says whose it is"))
        .collect();
    plan.kept.extend(told);
}

/// What iptables made when kubelet first asked it: it never removes its tables, and an empty one serves nobody.
fn tables(facts: &Facts, before: Option<&Existed>, plan: &mut Plan) {
    let Some(known) = before.and_then(|before| before.tables.as_ref()) else { return };
    plan.removals.extend(facts.idle_tables.difference(known).cloned().map(Removal::Table));
}

fn namespaces(facts: &Facts, before: Option<&Existed>, plan: &mut Plan) {
    for name in &facts.namespaces {
        let known = facts.evidence.namespaces.contains(name);
        match before {
            Some(before) if before.namespaces.contains(name) => {}
            Some(_) if known || is_runtime_namespace(name) => plan.removals.push(Removal::Namespace(name.clone())),
            None if known => plan.removals.push(Removal::Namespace(name.clone())),
            None if is_runtime_namespace(name) => {
                plan.kept.push(Kept::new(format!("the network namespace {name}"), UNKNOWN));
            }
            _ => {}
        }
    }
}

/// containerd names the namespaces of its sandboxes `cni-` and a UUID.
fn is_runtime_namespace(name: &str) -> bool {
    name.strip_prefix("cni-").is_some_and(|uuid| {
        uuid.len() == 36
            && uuid.bytes().enumerate().all(|(i, b)| match i {
                8 | 13 | 18 | 23 => b == b'-',
                _ => b.is_ascii_hexdigit(),
            })
    })
}

fn links(facts: &Facts, before: Option<&Existed>, plan: &mut Plan) {
    // A configuration that was there before the node belongs to another program, and so do its bridges.
    let own_conf = facts.evidence.conf.as_deref().is_some_and(|conf| plan::came_after(facts, conf));
    for name in &facts.links {
        let known = facts.evidence.links.contains(name);
        let bridge = own_conf && facts.evidence.bridges.contains(name);
        let of_name = places::LINKS.contains(&name.as_str()) || bridge;
        let what = || format!("the network link {name}");
        if before.is_some_and(|before| before.links.contains(name)) {
            if known || of_name {
                plan.kept.push(Kept::new(what(), BEFORE));
            }
        } else if facts.evidence.foreign_links.contains(name) {
            plan.kept.push(Kept::new(what(), "containers of another program use it"));
        } else if known || (of_name && before.is_some()) {
            plan.removals.push(Removal::Link(name.clone()));
        } else if of_name {
            plan.kept.push(Kept::new(what(), UNKNOWN));
        }
    }
}

fn chains(facts: &Facts, before: Option<&Existed>, plan: &mut Plan) {
    let there = record::chains(&facts.rules);
    let existed = |chain: &ChainBefore| before.is_some_and(|before| before.chains.contains(chain));
    let mut doomed = BTreeSet::new();
    for chain in there.iter().filter(|chain| !existed(chain)) {
        let name = chain.chain.as_str();
        let goes = match name {
            _ if name.starts_with("KUBE-") => before.is_some(),
            _ if SHARED_CHAINS.iter().any(|shared| name.starts_with(shared)) => false,
            _ if name.starts_with("CNI-") => is_pods_chain(facts, chain),
            _ => false,
        };
        if goes {
            doomed.insert(chain.clone());
        }
    }
    if before.is_some() {
        let shared = there.iter().filter(|chain| SHARED_CHAINS.iter().any(|name| chain.chain.starts_with(name)));
        let unused: Vec<ChainBefore> =
            shared.filter(|chain| !existed(chain) && is_unused(facts, chain, &doomed)).cloned().collect();
        doomed.extend(unused);
    }
    for (table, rule) in &facts.rules {
        let Some(own) = owner(rule) else { continue };
        let target = target(rule).map(|chain| ChainBefore { table: table.clone(), chain: chain.to_owned() });
        let own = ChainBefore { table: table.clone(), chain: own.to_owned() };
        if !doomed.contains(&own) && target.is_some_and(|target| doomed.contains(&target)) {
            plan.removals.push(Removal::Rule(table.clone(), rule.clone()));
        }
    }
    masquerade(facts, before, plan);
    // Chains that are led to go after those that lead to them; emptying comes with removing, so sources go first.
    for chain in in_order(facts, &doomed) {
        plan.removals.push(Removal::Chain(chain.table, chain.chain));
    }
    let of_name = |chain: &&ChainBefore| chain.chain.starts_with("KUBE-") || chain.chain.starts_with("CNI-");
    for chain in there.iter().filter(of_name).filter(|chain| !doomed.contains(chain) && !existed(chain)) {
        let why = if before.is_some() { "nothing says that it is of this node's pods" } else { UNKNOWN };
        plan.kept.push(Kept::new(format!("the chain {} in {}", chain.chain, chain.table), why));
    }
}

/// What the bridge plugin makes where it works with nft: rules with the container in their comment, and two chains, of
/// which `postrouting` leads to `masq_checks`.
fn masquerade(facts: &Facts, before: Option<&Existed>, plan: &mut Plan) {
    const TABLE: &str = "nft/inet/cni_plugins_masquerade";
    let mut foreign = false;
    for (_, rule) in facts.rules.iter().filter(|(table, rule)| table == TABLE && owner(rule) == Some("masq_checks")) {
        if names_a_pod(facts, rule) {
            plan.removals.push(Removal::Rule(TABLE.into(), rule.clone()));
        } else {
            foreign = true;
        }
    }
    let there = record::chains(&facts.rules);
    let chain = |chain: &str| ChainBefore { table: TABLE.into(), chain: chain.into() };
    for name in ["postrouting", "masq_checks"].map(chain) {
        if there.contains(&name) && before.is_some_and(|before| !before.chains.contains(&name)) && !foreign {
            plan.removals.push(Removal::Chain(name.table, name.chain));
        }
    }
}

/// `-A CHAIN ...`: the chain that a rule is in.
fn owner(rule: &str) -> Option<&str> {
    rule.strip_prefix("-A ")?.split_whitespace().next()
}

/// The words of a rule; what is in double quotes (a comment) is one word, whatever is in it.
fn words(rule: &str) -> Vec<&str> {
    let (mut words, mut start, mut quoted, mut escaped) = (Vec::new(), None, false, false);
    for (at, c) in rule.char_indices() {
        if c.is_whitespace() && !quoted {
            words.extend(start.take().map(|from| &rule[from..at]));
            continue;
        }
        start.get_or_insert(at);
        quoted ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
    }
    words.extend(start.map(|from| &rule[from..]));
    words
}

/// The chain that a rule leads to.
fn target(rule: &str) -> Option<&str> {
    let words = words(rule);
    let at = words.iter().position(|word| matches!(*word, "-j" | "-g" | "--jump" | "--goto"))?;
    words.get(at + 1).copied()
}

/// Whether a rule's comment names a sandbox of this node. Long comments are cut, so the first half of a name will do.
fn names_a_pod(facts: &Facts, rule: &str) -> bool {
    facts.evidence.sandboxes.iter().any(|id| id.len() >= 12 && rule.contains(id.get(..32).unwrap_or(id)))
}

/// CNI plugins name the container in a comment of each rule that they make for it.
fn is_pods_chain(facts: &Facts, chain: &ChainBefore) -> bool {
    facts.rules.iter().any(|(table, rule)| {
        *table == chain.table
            && (owner(rule) == Some(&chain.chain) || target(rule) == Some(&chain.chain))
            && names_a_pod(facts, rule)
    })
}

/// Whether a shared chain serves nobody: no rule in it is about an address or leads to a chain of a container that stays.
fn is_unused(facts: &Facts, chain: &ChainBefore, doomed: &BTreeSet<ChainBefore>) -> bool {
    facts.rules.iter().filter(|(table, rule)| *table == chain.table && owner(rule) == Some(&chain.chain)).all(
        |(_, rule)| {
            let addresses = words(rule).iter().any(|word| matches!(*word, "-s" | "-d"));
            let stays = target(rule).is_some_and(|target| {
                let per_container = ["CNI-DN-", "CNI-SN-"].iter().any(|prefix| target.starts_with(prefix));
                per_container && !doomed.contains(&ChainBefore { table: chain.table.clone(), chain: target.to_owned() })
            });
            !addresses && !stays
        },
    )
}

/// The chains so that none is removed while another one that goes leads to it.
fn in_order(facts: &Facts, doomed: &BTreeSet<ChainBefore>) -> Vec<ChainBefore> {
    let mut left = doomed.clone();
    let mut order = Vec::new();
    while !left.is_empty() {
        let led_to = |chain: &ChainBefore| {
            facts.rules.iter().any(|(table, rule)| {
                *table == chain.table
                    && target(rule) == Some(&chain.chain)
                    && owner(rule).is_some_and(|own| {
                        own != chain.chain
                            && left.contains(&ChainBefore { table: table.clone(), chain: own.to_owned() })
                    })
            })
        };
        // iptables knows no loops; if there were one, any order would do.
        let next = left.iter().find(|chain| !led_to(chain)).or(left.first()).cloned();
        let Some(next) = next else { break };
        left.remove(&next);
        order.push(next);
    }
    order
}

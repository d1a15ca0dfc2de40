//! Links, network namespaces and packet filter rules.

use super::locked;
use crate::{HostError, Link, Network};
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Mutex;

/// Network objects as sets, with the kernel's rules: a chain that something refers to cannot be removed.
#[derive(Debug)]
pub struct FakeNetwork {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    links: Vec<Link>,
    namespaces: BTreeSet<String>,
    rules: Vec<(String, String)>,
    refused: BTreeSet<String>,
    removed: Vec<String>,
}

impl Default for FakeNetwork {
    fn default() -> Self {
        let network = Self { state: Mutex::default() };
        network.add_link("lo", "", &["127.0.0.1", "::1"]).add_link("eth0", "", &["192.0.2.10"]);
        network
    }
}

impl FakeNetwork {
    /// `lo` and `eth0` with 192.0.2.10, nothing else.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a link. An address that is none is a mistake of the test.
    pub fn add_link(&self, name: &str, kind: &str, addresses: &[&str]) -> &Self {
        let address = |text: &&str| text.parse::<IpAddr>().unwrap_or_else(|e| panic!("{text}: {e}"));
        let mut state = locked(&self.state);
        let index = state.links.last().map_or(1, |last| last.index + 1);
        let addresses = addresses.iter().map(address).collect();
        state.links.push(Link { index, name: name.to_owned(), kind: kind.to_owned(), addresses });
        drop(state);
        self
    }

    /// Adds a name below /run/netns.
    pub fn add_namespace(&self, name: &str) -> &Self {
        locked(&self.state).namespaces.insert(name.to_owned());
        self
    }

    /// Adds a line as [`Network::rules`] gives it: `:CHAIN -`, or `-A CHAIN ...`.
    pub fn add_rule(&self, table: &str, rule: &str) -> &Self {
        locked(&self.state).rules.push((table.to_owned(), rule.to_owned()));
        self
    }

    /// Removing the link, namespace or chain of this name fails.
    pub fn refuse(&self, name: &str) -> &Self {
        locked(&self.state).refused.insert(name.to_owned());
        self
    }

    /// What was removed, in order: `link NAME`, `namespace NAME`, `rule TABLE RULE`, `chain TABLE CHAIN`.
    pub fn removed(&self) -> Vec<String> {
        locked(&self.state).removed.clone()
    }
}

impl State {
    fn may_remove(&self, what: &str, name: &str) -> Result<(), HostError> {
        if !self.refused.contains(name) {
            return Ok(());
        }
        Err(HostError::Failed { what: format!("remove {what} {name}"), reason: "operation not permitted".to_owned() })
    }
}

#[async_trait]
impl Network for FakeNetwork {
    async fn links(&self) -> Result<Vec<Link>, HostError> {
        Ok(locked(&self.state).links.clone())
    }

    async fn remove_link(&self, name: &str) -> Result<(), HostError> {
        let mut state = locked(&self.state);
        state.may_remove("link", name)?;
        if let Some(at) = state.links.iter().position(|link| link.name == name) {
            state.links.remove(at);
            state.removed.push(format!("link {name}"));
        }
        Ok(())
    }

    fn namespaces(&self) -> Result<Vec<String>, HostError> {
        Ok(locked(&self.state).namespaces.iter().cloned().collect())
    }

    async fn remove_namespace(&self, name: &str) -> Result<(), HostError> {
        let mut state = locked(&self.state);
        state.may_remove("namespace", name)?;
        if state.namespaces.remove(name) {
            state.removed.push(format!("namespace {name}"));
        }
        Ok(())
    }

    async fn rules(&self) -> Result<Vec<(String, String)>, HostError> {
        Ok(locked(&self.state).rules.clone())
    }

    async fn remove_rule(&self, table: &str, rule: &str) -> Result<(), HostError> {
        let mut state = locked(&self.state);
        if let Some(at) = state.rules.iter().position(|(t, r)| t == table && r == rule) {
            state.rules.remove(at);
            state.removed.push(format!("rule {table} {rule}"));
        }
        Ok(())
    }

    async fn remove_chain(&self, table: &str, chain: &str) -> Result<(), HostError> {
        let mut state = locked(&self.state);
        state.may_remove("chain", chain)?;
        let (declared, own) = (format!(":{chain} "), format!("-A {chain} "));
        let refers = |rule: &str| {
            let words: Vec<&str> = rule.split_whitespace().collect();
            words.windows(2).any(|pair| ["-j", "-g"].contains(&pair[0]) && pair[1] == chain)
        };
        if state.rules.iter().any(|(t, rule)| t == table && !rule.starts_with(&own) && refers(rule)) {
            let what = format!("remove chain {chain} of {table}");
            return Err(HostError::Failed { what, reason: "something refers to it".to_owned() });
        }
        let before = state.rules.len();
        state.rules.retain(|(t, rule)| t != table || !(rule.starts_with(&declared) || rule.starts_with(&own)));
        if state.rules.len() != before {
            state.removed.push(format!("chain {table} {chain}"));
        }
        Ok(())
    }
}

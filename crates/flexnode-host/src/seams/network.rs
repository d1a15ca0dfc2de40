//! The host's network: links, namespaces, packet filters.

use crate::HostError;
use async_trait::async_trait;
use std::fmt::Debug;
use std::net::IpAddr;

/// A network link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// `veth`, `bridge`, `dummy`, ... or empty for a device.
    pub kind: String,
    /// Addresses of it.
    pub addresses: Vec<IpAddr>,
}

/// A route that some program or person added.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The link that it leads over; empty when it leads over none.
    pub link: String,
    /// As ip(8) would be told it: `10.244.3.0/24 via 10.0.0.7 dev eth0`.
    pub line: String,
}

/// A table of nft that has one of iptables's names: iptables makes it when it is first asked, and never removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterTable {
    /// `ip/nat`, `ip6/filter`, ...
    pub name: String,
    /// It does nothing: no rule, and no chain but base chains that accept.
    pub idle: bool,
}

/// A part of the packet filter that goes, as [`Network::rules`] and [`Network::tables`] name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterPart {
    /// One rule.
    Rule {
        /// Its table.
        table: String,
        /// Its line.
        rule: String,
    },
    /// A chain with all that is in it.
    Chain {
        /// Its table.
        table: String,
        /// Its name.
        chain: String,
    },
    /// A table: one of iptables that is idle, or one of nft (`nft/ip/NAME`) with all that is in it.
    Table {
        /// Its name.
        table: String,
    },
}

/// The packet filter at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// As [`Network::rules`] gives them.
    pub rules: Vec<(String, String)>,
    /// As [`Network::tables`] gives them.
    pub tables: Vec<FilterTable>,
}

/// Links, named network namespaces and packet filter chains of the host's own network namespace.
#[async_trait]
pub trait Network: Send + Sync + Debug {
    /// All links.
    async fn links(&self) -> Result<Vec<Link>, HostError>;
    /// Removes a link; absent counts as removed.
    async fn remove_link(&self, name: &str) -> Result<(), HostError>;
    /// Names below /run/netns.
    fn namespaces(&self) -> Result<Vec<String>, HostError>;
    /// Unmounts and removes a name below /run/netns; absent counts as removed.
    async fn remove_namespace(&self, name: &str) -> Result<(), HostError>;
    /// Chains and rules as `(family/table, rule line)` in the form of iptables-save; empty when no tool is there.
    async fn rules(&self) -> Result<Vec<(String, String)>, HostError>;
    /// Removes one rule (in the form that `rules` gave it); absent counts as removed.
    async fn remove_rule(&self, table: &str, rule: &str) -> Result<(), HostError>;
    /// Flushes and removes a chain that nothing refers to; absent counts as removed.
    async fn remove_chain(&self, table: &str, chain: &str) -> Result<(), HostError>;
    /// The tables that iptables keeps through nft; none where it works without nft.
    async fn tables(&self) -> Result<Vec<FilterTable>, HostError> {
        Ok(Vec::new())
    }
    /// Removes such a table if it is idle; absent counts as removed.
    async fn remove_table(&self, table: &str) -> Result<(), HostError> {
        let _ = table;
        Ok(())
    }
    /// Rules and tables in one look.
    async fn filters(&self) -> Result<Filters, HostError> {
        Ok(Filters { rules: self.rules().await?, tables: self.tables().await? })
    }
    /// Removes these parts in their order, in as few changes as it takes; absent counts as removed. An answer for each: what
    /// cannot be removed keeps no other from going.
    async fn remove_filters(&self, parts: &[FilterPart]) -> Vec<Result<(), HostError>> {
        let mut answers = Vec::with_capacity(parts.len());
        for part in parts {
            answers.push(match part {
                FilterPart::Rule { table, rule } => self.remove_rule(table, rule).await,
                FilterPart::Chain { table, chain } => self.remove_chain(table, chain).await,
                FilterPart::Table { table } => self.remove_table(table).await,
            });
        }
        answers
    }
    /// Names of sets of addresses (ipset(8)); none where the tool is not there.
    async fn ip_sets(&self) -> Result<Vec<String>, HostError> {
        Ok(Vec::new())
    }
    /// Removes such a set with all that is in it; absent counts as removed.
    async fn remove_ip_set(&self, name: &str) -> Result<(), HostError> {
        let _ = name;
        Ok(())
    }
    /// Routes of the main tables that neither the kernel nor an automatic configuration made, each as a line; none where the
    /// tool is not there.
    async fn routes(&self) -> Result<Vec<Route>, HostError> {
        Ok(Vec::new())
    }
}

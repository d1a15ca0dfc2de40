//! Host names to addresses, from /etc/hosts and DNS, without the C library.
//!
//! A statically linked glibc loads NSS plugins of the host at run time, which breaks on hosts with another libc. So names
//! are read here as glibc's usual `hosts: files dns` does: the hosts file first and alone when it knows the name, then the
//! servers of resolv.conf with their search list. Both files are read again at each look-up: a changed file counts at
//! once, in a daemon too.

use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Hosts, TokioResolver};
use hyper_util::client::legacy::connect::dns;
use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// Bytes of hosts and resolv.conf that are read. Ad-block lists in /etc/hosts have megabytes.
const MAX_FILE: u64 = 16 * 1024 * 1024;

/// Why a name has no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text cannot be a host name.
    #[error("{name:?} is not a host name: {reason}")]
    Invalid {
        /// As given.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// DNS answered that there is no such name, or no address for it.
    #[error("the name {name} does not exist (asked {servers}; not in {hosts} either)", hosts = hosts.display())]
    NotFound {
        /// As given.
        name: String,
        /// The DNS servers.
        servers: String,
        /// The hosts file.
        hosts: PathBuf,
    },
    /// No DNS server gave an answer.
    #[error("the name {name} could not be looked up: {reason} (asked {servers})")]
    NoAnswer {
        /// As given.
        name: String,
        /// The DNS servers.
        servers: String,
        /// What happened.
        reason: String,
    },
    /// A file could not be read.
    #[error("cannot read {}: {reason}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Looks names up. Cheap to clone; clones share the DNS client.
#[derive(Clone, Debug)]
pub struct Names {
    files: Arc<Files>,
    dns: Arc<Mutex<Option<Dns>>>,
}

#[derive(Debug)]
struct Files {
    hosts: PathBuf,
    resolv_conf: PathBuf,
    dns_port: u16,
}

/// The client for one content of resolv.conf.
#[derive(Clone)]
struct Dns {
    conf: Vec<u8>,
    servers: String,
    resolver: TokioResolver,
}

impl std::fmt::Debug for Dns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dns").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::system()
    }
}

impl Names {
    /// By this host's /etc/hosts and /etc/resolv.conf.
    pub fn system() -> Self {
        Self::from_files("/etc/hosts", "/etc/resolv.conf", 53)
    }

    /// By other files of the same forms, asking DNS servers on `dns_port`.
    pub fn from_files(hosts: impl Into<PathBuf>, resolv_conf: impl Into<PathBuf>, dns_port: u16) -> Self {
        let files = Files { hosts: hosts.into(), resolv_conf: resolv_conf.into(), dns_port };
        Self { files: Arc::new(files), dns: Arc::default() }
    }

    /// The addresses of `host`: a literal address itself, what the hosts file says, else what DNS says. IPv4 first; never
    /// empty. The time is bounded by resolv.conf (5 s and 2 attempts for each server by default): callers set a deadline.
    pub async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, NameError> {
        let literal = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = literal.parse() {
            return Ok(vec![address]);
        }
        let name =
            Name::from_str(host).map_err(|e| NameError::Invalid { name: host.to_owned(), reason: e.to_string() })?;
        let found = self.look_in_hosts(&name)?;
        if !found.is_empty() {
            return Ok(found);
        }
        self.ask_dns(host, name).await
    }

    fn look_in_hosts(&self, name: &Name) -> Result<Vec<IpAddr>, NameError> {
        let mut hosts = Hosts::default();
        let bytes = read(&self.files.hosts)?;
        hosts.read_hosts_conf(bytes.as_slice()).map_err(|e| file_error(&self.files.hosts, &e))?;
        let mut addresses = Vec::new();
        for kind in [RecordType::A, RecordType::AAAA] {
            let found = hosts.lookup_static_host(&Query::query(name.to_lowercase(), kind));
            addresses.extend(
                found
                    .iter()
                    .flat_map(hickory_resolver::lookup::Lookup::answers)
                    .filter_map(|record| record.data.ip_addr()),
            );
        }
        Ok(addresses)
    }

    async fn ask_dns(&self, host: &str, name: Name) -> Result<Vec<IpAddr>, NameError> {
        let Dns { resolver, servers, .. } = self.dns()?;
        match resolver.lookup_ip(name).await {
            Ok(answer) => {
                let addresses: Vec<IpAddr> = answer.iter().collect();
                if addresses.is_empty() { Err(self.not_found(host, servers)) } else { Ok(addresses) }
            }
            Err(e) if e.is_no_records_found() => Err(self.not_found(host, servers)),
            Err(e) => Err(NameError::NoAnswer { name: host.to_owned(), servers, reason: e.to_string() }),
        }
    }

    fn not_found(&self, host: &str, servers: String) -> NameError {
        NameError::NotFound { name: host.to_owned(), servers, hosts: self.files.hosts.clone() }
    }

    /// The DNS client for resolv.conf as it is now.
    fn dns(&self) -> Result<Dns, NameError> {
        let conf = read(&self.files.resolv_conf)?;
        let mut slot = self.dns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dns) = slot.as_ref().filter(|dns| dns.conf == conf) {
            return Ok(dns.clone());
        }
        let dns = dns_client(conf, self.files.dns_port)
            .map_err(|reason| NameError::File { path: self.files.resolv_conf.clone(), reason })?;
        *slot = Some(dns.clone());
        Ok(dns)
    }
}

/// A file that is not there is an empty one, as for glibc.
fn read(path: &Path) -> Result<Vec<u8>, NameError> {
    let mut bytes = Vec::new();
    match std::fs::File::open(path) {
        Ok(file) => file.take(MAX_FILE).read_to_end(&mut bytes).map_err(|e| file_error(path, &e))?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
        Err(e) => return Err(file_error(path, &e)),
    };
    Ok(bytes)
}

fn file_error(path: &Path, e: &io::Error) -> NameError {
    NameError::File { path: path.to_path_buf(), reason: e.to_string() }
}

fn dns_client(conf: Vec<u8>, port: u16) -> Result<Dns, String> {
    // Without a nameserver line the server is on this machine (resolv.conf(5)).
    let local = b"\nnameserver 127.0.0.1\n";
    let has_server = conf.split(|b| *b == b'\n').any(|line| line.trim_ascii_start().starts_with(b"nameserver"));
    let text = if has_server { conf.clone() } else { [conf.as_slice(), local].concat() };
    let (config, mut options) = hickory_resolver::system_conf::parse_resolv_conf(&text).map_err(|e| e.to_string())?;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    // The hosts file was asked before.
    options.use_hosts_file = ResolveHosts::Never;
    let (domain, search, servers) = config.into_parts();
    let servers: Vec<NameServerConfig> = servers.into_iter().map(|server| on_port(server, port)).collect();
    let shown: BTreeSet<String> = servers.iter().map(|s| SocketAddr::new(s.ip, port).to_string()).collect();
    let config = ResolverConfig::from_parts(domain, search, servers);
    let resolver = build(config, options).map_err(|e| e.to_string())?;
    Ok(Dns { conf, servers: shown.into_iter().collect::<Vec<_>>().join(", "), resolver })
}

fn on_port(mut server: NameServerConfig, port: u16) -> NameServerConfig {
    for connection in &mut server.connections {
        connection.port = port;
    }
    server
}

fn build(config: ResolverConfig, options: ResolverOpts) -> Result<TokioResolver, hickory_resolver::net::NetError> {
    TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()).with_options(options).build()
}

/// Lets an HTTP connector ask us.
impl tower::Service<dns::Name> for Names {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = NameError;
    type Future = futures_util::future::BoxFuture<'static, Result<Self::Response, NameError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NameError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: dns::Name) -> Self::Future {
        let names = self.clone();
        Box::pin(async move {
            let addresses = names.resolve(name.as_str()).await?;
            // The connector puts the port of the URL in.
            Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect::<Vec<_>>().into_iter())
        })
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;

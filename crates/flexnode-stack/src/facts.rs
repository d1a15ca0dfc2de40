//! What rendering has to know of the host beyond the goal.

use crate::places::{RESOLV_CONF, RESOLVED_RESOLV_CONF};
use flexnode_host::{Fs, FsError};
use std::net::IpAddr;
use std::path::Path;

const MAX_RESOLV_CONF: u64 = 1 << 20;

/// Facts of the host, read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// The file with the name servers that pods of the policy `Default` get.
    pub resolv_conf: String,
}

impl HostFacts {
    /// Reads them.
    pub fn read(fs: &dyn Fs) -> Result<Self, FsError> {
        let text = fs.read(Path::new(RESOLV_CONF), MAX_RESOLV_CONF)?.unwrap_or_default();
        let behind = fs.stat(Path::new(RESOLVED_RESOLV_CONF))?.is_some();
        Ok(Self { resolv_conf: resolv_conf(&String::from_utf8_lossy(&text), behind).to_owned() })
    }
}

/// Which file kubelet should give to pods: where the host's own names only a stub on the loopback interface, which pods
/// cannot reach (and which makes CoreDNS ask itself), the one with the real servers behind it, if that is there.
fn resolv_conf(text: &str, has_servers_behind: bool) -> &'static str {
    let mut servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.next().filter(|word| *word == "nameserver")?;
        words.next()
    });
    let only_stub = servers.clone().next().is_some()
        && servers.all(|server| server.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()));
    if only_stub && has_servers_behind { RESOLVED_RESOLV_CONF } else { RESOLV_CONF }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_is_looked_behind() {
        let stub = "# comment\nnameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n";
        assert_eq!(resolv_conf(stub, true), RESOLVED_RESOLV_CONF);
        assert_eq!(resolv_conf(stub, false), RESOLV_CONF);
        assert_eq!(resolv_conf("nameserver ::1\nnameserver 127.0.0.54\n", true), RESOLVED_RESOLV_CONF);
    }

    #[test]
    fn real_servers_are_used_as_they_are() {
        for text in
            ["nameserver 10.0.0.2\n", "nameserver 127.0.0.1\nnameserver 10.0.0.2", "", "nameserver\n", "domain a"]
        {
            assert_eq!(resolv_conf(text, true), RESOLV_CONF, "{text:?}");
        }
    }
}

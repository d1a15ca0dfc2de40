//! IP addresses: of the node, of the cluster's DNS.

use super::Fault;
use std::net::IpAddr;

/// One address, or one of each family separated by a comma. The order is kept: the first family is the primary one.
pub fn one_or_pair(text: &str) -> Result<Vec<IpAddr>, Fault> {
    let fix = "write one IP address, or one of each family separated by a comma";
    let mut addresses: Vec<IpAddr> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let address = part.parse().map_err(|_| Fault::new(format!("{part:?} is no IP address"), fix))?;
        addresses.push(address);
    }
    match addresses.as_slice() {
        [_] => Ok(addresses),
        [a, b] if a.is_ipv4() != b.is_ipv4() => Ok(addresses),
        [_, _] => Err(Fault::new("both addresses are of one family", fix)),
        _ => Err(Fault::new("there are more than two addresses", fix)),
    }
}

/// Addresses for kubelet's `--node-ip`. A single unspecified address (`::`) selects the family, as kubelet has it.
pub fn node_ips(text: &str) -> Result<Vec<IpAddr>, Fault> {
    let addresses = one_or_pair(text)?;
    for address in &addresses {
        let link_local = match address {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        let unspecified = address.is_unspecified() && addresses.len() > 1;
        if address.is_loopback() || address.is_multicast() || link_local || unspecified {
            let fix = "write an address of this host that other nodes reach";
            return Err(Fault::new(format!("{address} cannot be the address of a node"), fix));
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_the_families_is_kept() {
        let text = |ips: Vec<IpAddr>| ips.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(node_ips("fd00::1, 10.0.0.1").unwrap()), ["fd00::1", "10.0.0.1"]);
        assert_eq!(text(node_ips("10.0.0.1,fd00::1").unwrap()), ["10.0.0.1", "fd00::1"]);
        assert_eq!(text(node_ips("::").unwrap()), ["::"]);
    }

    #[test]
    fn addresses_that_no_node_can_have_are_refused() {
        for wrong in [
            "",
            "a",
            "10.0.0.1,10.0.0.2",
            "10.0.0.1,fd00::1,fd00::2",
            "10.0.0.1,",
            "127.0.0.1",
            "::1",
            "169.254.1.1",
            "fe80::1",
            "224.0.0.1",
            "10.0.0.1,::",
            "10.0.0.1/24",
            "[fd00::1]",
        ] {
            assert!(node_ips(wrong).is_err(), "{wrong}");
        }
    }
}

//! Who listens on a TCP port, read from /proc/net (proc_net(5)).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// State `TCP_LISTEN` in the `st` column.
const LISTEN: &str = "0A";

/// The listening sockets in the text of /proc/net/tcp or /proc/net/tcp6: address and port. Lines that are not understood
/// are left out.
pub fn parse(text: &str) -> Vec<(IpAddr, u16)> {
    text.lines().skip(1).filter_map(line).collect()
}

fn line(line: &str) -> Option<(IpAddr, u16)> {
    let mut fields = line.split_whitespace();
    let local = fields.nth(1)?;
    let state = fields.nth(1)?;
    if state != LISTEN {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    Some((parse_address(address)?, u16::from_str_radix(port, 16).ok()?))
}

/// The kernel prints an address as words of 32 bits in the byte order of the host.
fn parse_address(hex: &str) -> Option<IpAddr> {
    let mut bytes = Vec::with_capacity(16);
    for at in (0..hex.len()).step_by(8) {
        let word = u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    match bytes.len() {
        4 => Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?))),
        16 => Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)).to_canonical()),
        _ => None,
    }
}

/// Whether a server that binds `wanted` on `port` would collide with this listener.
pub fn collides(listener: (IpAddr, u16), wanted: IpAddr, port: u16) -> bool {
    listener.1 == port && (listener.0 == wanted || listener.0.is_unspecified() || wanted.is_unspecified())
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    #[test]
    fn reads_listeners_of_both_families() {
        let text = format!(
            "{HEAD}   0: 0100007F:2808 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1\n   \
             1: 0100007F:B0C4 0100007F:2808 01 00000000:00000000 00:00000000 00000000     0        0 2 1\n"
        );
        assert_eq!(parse(&text), [(IpAddr::from([127, 0, 0, 1]), 10248)]);
        let text = format!(
            "{HEAD}   0: 00000000000000000000000000000000:280A 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 3\n"
        );
        assert_eq!(parse(&text), [(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 10250)]);
        assert_eq!(parse(&format!("{HEAD}garbage\n 0: zz:1 0:0 0A\n\n")), []);
        assert_eq!(parse(""), []);
    }

    #[test]
    fn collisions() {
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let other = IpAddr::from([10, 0, 0, 1]);
        assert!(collides((any, 10250), local, 10250));
        assert!(collides((local, 10250), any, 10250));
        assert!(collides((local, 10250), local, 10250));
        assert!(!collides((other, 10250), local, 10250));
        assert!(!collides((any, 10251), any, 10250));
    }
}

//! Routes, in the form of `ip -json route show`.

use crate::Route;
use serde::Deserialize;

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: Option<String>,
    dst: String,
    gateway: Option<String>,
    via: Option<Via>,
    dev: Option<String>,
    protocol: Option<String>,
}

/// A gateway of another address family.
#[derive(Deserialize)]
struct Via {
    host: String,
}

/// Protocols of routes that come by themselves: from addresses, router advertisements, redirects, address configuration.
const AUTOMATIC: [&str; 4] = ["kernel", "ra", "redirect", "dhcp"];

pub(super) fn parse(json: &[u8]) -> Result<Vec<Route>, serde_json::Error> {
    // Without any route ip prints nothing at all in some versions.
    if json.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    let entries: Vec<Entry> = serde_json::from_slice(json)?;
    let added = |entry: &Entry| entry.protocol.as_deref().is_none_or(|protocol| !AUTOMATIC.contains(&protocol));
    Ok(entries.into_iter().filter(added).map(route).collect())
}

fn route(entry: Entry) -> Route {
    let kind = entry.kind.filter(|kind| kind != "unicast").map(|kind| format!("{kind} ")).unwrap_or_default();
    let gateway = entry.gateway.or(entry.via.map(|via| via.host));
    let gateway = gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
    let link = entry.dev.unwrap_or_default();
    let over = if link.is_empty() { String::new() } else { format!(" dev {link}") };
    Route { line: format!("{kind}{}{gateway}{over}", entry.dst), link }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_that_somebody_added() {
        let json = br#"[
            {"dst":"default","gateway":"10.0.0.1","dev":"eth0","protocol":"dhcp","flags":[]},
            {"dst":"10.0.0.0/24","dev":"eth0","protocol":"kernel","scope":"link","prefsrc":"10.0.0.5","flags":[]},
            {"dst":"10.244.3.0/24","gateway":"10.0.0.7","dev":"eth0","flags":["onlink"]},
            {"dst":"10.244.4.0/24","via":{"family":"inet6","host":"fe80::1"},"dev":"eth0","protocol":"bird"},
            {"type":"blackhole","dst":"10.244.1.0/26","protocol":"80","flags":[]}]"#;
        let lines: Vec<String> = parse(json).unwrap().into_iter().map(|route| route.line).collect();
        assert_eq!(
            lines,
            ["10.244.3.0/24 via 10.0.0.7 dev eth0", "10.244.4.0/24 via fe80::1 dev eth0", "blackhole 10.244.1.0/26"]
        );
        assert_eq!(parse(b"\n").unwrap(), []);
        assert!(parse(b"nonsense").is_err());
    }
}

//! The URL of the API server, in one form: `https://host:port`.

use super::{Fault, is_dns_label};
use std::net::{Ipv4Addr, Ipv6Addr};

const DEFAULT_PORT: u16 = 443;
const FIX: &str = "write a host, host:port or https://host:port, an IPv6 address in brackets";

/// Makes the one form out of what people write: with and without scheme, port, brackets and trailing slash.
pub fn normalise(text: &str) -> Result<String, Fault> {
    let text = text.trim();
    if text.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(Fault::new("it contains a space or control character", FIX));
    }
    let rest = match text.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => rest,
        Some((scheme, _)) => return Err(Fault::new(format!("the scheme is {scheme:?}"), "write https://")),
        None => text,
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains('@') {
        // Not shown: there may be a password in it.
        return Err(Fault::new("it has a user name", "remove what is before the @"));
    }
    if let Some(part) = authority.find(['/', '?', '#']) {
        return Err(Fault::new(format!("{:?} follows the host", &authority[part..]), FIX));
    }
    let (host, port) = split(authority)?;
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => parse_port(port)?,
    };
    Ok(format!("https://{host}:{port}"))
}

/// The host, brackets included where it needs them, and the text of the port.
fn split(authority: &str) -> Result<(String, Option<&str>), Fault> {
    if let Some(inner) = authority.strip_prefix('[') {
        let Some((address, after)) = inner.split_once(']') else {
            return Err(Fault::new("the bracket is not closed", FIX));
        };
        let port = match after.strip_prefix(':') {
            Some(port) => Some(port),
            None if after.is_empty() => None,
            None => return Err(Fault::new(format!("{after:?} follows the bracket"), FIX)),
        };
        return Ok((ipv6(address)?, port));
    }
    if authority.matches(':').count() > 1 {
        return Ok((bare_ipv6(authority)?, None));
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    Ok((name_or_ipv4(host)?, port))
}

fn ipv6(text: &str) -> Result<String, Fault> {
    if text.contains('%') {
        return Err(Fault::new(format!("{text:?} has a zone"), "write an address that is valid on every link"));
    }
    match text.parse::<Ipv6Addr>() {
        Ok(address) => Ok(format!("[{address}]")),
        Err(_) => Err(Fault::new(format!("{text:?} is no IPv6 address"), FIX)),
    }
}

/// Without brackets all of it is the address. Where the end looks like a port, nobody can tell.
fn bare_ipv6(text: &str) -> Result<String, Fault> {
    let host = ipv6(text)?;
    match text.rsplit_once(':') {
        Some((address, port @ ("443" | "6443" | "8443"))) if !address.ends_with(':') => {
            let fix = format!("write [{address}]:{port} or [{text}]:{DEFAULT_PORT}");
            Err(Fault::new(format!("{port} at the end can be a port or a part of the address"), fix))
        }
        _ => Ok(host),
    }
}

fn name_or_ipv4(host: &str) -> Result<String, Fault> {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    if host.is_empty() {
        return Err(Fault::new("it has no host", FIX));
    }
    let last = host.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x") {
        // RFC 3986 and the URL standard agree that such a host is an address, or nothing.
        return match host.parse::<Ipv4Addr>() {
            Ok(address) => Ok(address.to_string()),
            Err(_) => Err(Fault::new(format!("{host:?} is no IPv4 address"), FIX)),
        };
    }
    if host.len() <= 253 && host.split('.').all(is_dns_label) {
        Ok(host)
    } else {
        Err(Fault::new(format!("{host:?} is no host name"), FIX))
    }
}

fn parse_port(text: &str) -> Result<u16, Fault> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u16>() {
        Ok(port) if digits && port > 0 => Ok(port),
        _ => Err(Fault::new(format!("{text:?} is no port"), "write a port from 1 to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_people_write_becomes_one_form() {
        for (text, url) in [
            ("api.example.com", "https://api.example.com:443"),
            ("API.Example.com:6443", "https://api.example.com:6443"),
            ("https://api.example.com/", "https://api.example.com:443"),
            ("HTTPS://api.example.com:443", "https://api.example.com:443"),
            ("api.example.com.", "https://api.example.com:443"),
            (" 10.0.0.1:6443\n", "https://10.0.0.1:6443"),
            ("fd00::1", "https://[fd00::1]:443"),
            ("[fd00::1]", "https://[fd00::1]:443"),
            ("[FD00:0:0::1]:6443", "https://[fd00::1]:6443"),
            ("https://fd00::1/", "https://[fd00::1]:443"),
            ("https://[fd00::1]:6443/", "https://[fd00::1]:6443"),
            ("::6443", "https://[::6443]:443"),
            ("localhost:06443", "https://localhost:6443"),
        ] {
            assert_eq!(normalise(text).as_deref(), Ok(url), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for text in [
            "",
            "/",
            ":6443",
            "http://a",
            "https://",
            "https://a/path",
            "a?b",
            "a#b",
            "https://u:p@a",
            "a:0",
            "a:65536",
            "a:",
            "a:+1",
            "[fd00::1",
            "[fd00::1]6443",
            "[10.0.0.1]",
            "fe80::1%eth0",
            "[fe80::1%25eth0]",
            "10.0.0.300",
            "10.0.1",
            "a_b",
            "-a",
            "a..b",
            "ä.example",
            "a b",
            "fd00::1:2:3:4:5:6:7:8:9",
            "https://https://a",
        ] {
            assert!(normalise(text).is_err(), "{text:?} became {:?}", normalise(text));
        }
    }

    #[test]
    fn an_address_that_may_end_in_a_port_is_not_guessed() {
        let fault = normalise("fd00::1:6443").unwrap_err();
        assert!(fault.fix.contains("[fd00::1]:6443") && fault.fix.contains("[fd00::1:6443]:443"), "{fault}");
    }

    #[test]
    fn a_password_is_not_shown() {
        assert!(!normalise("https://user:hunter2@a").unwrap_err().to_string().contains("hunter2"));
    }

    proptest! {
        #[test]
        fn the_form_is_stable(text in ".{0,40}") {
            if let Ok(url) = normalise(&text) {
                prop_assert_eq!(normalise(&url), Ok(url));
            }
        }
        #[test]
        fn every_spelling_of_an_ipv6_address_is_the_same(bits in any::<u128>(), port in 1..=u16::MAX) {
            let address = Ipv6Addr::from(bits);
            let url = format!("https://[{address}]:{port}");
            for text in [format!("[{address}]:{port}"), format!("https://[{address}]:{port}/"), url.to_uppercase()] {
                prop_assert_eq!(normalise(&text), Ok(url.clone()));
            }
        }
        #[test]
        fn every_spelling_of_a_host_is_the_same(host in "[a-z]([a-z0-9-]{0,10}[a-z0-9])?(\\.[a-z]{1,5}){0,3}", port in 1..=u16::MAX) {
            let url = format!("https://{host}:{port}");
            for text in [format!("{host}:{port}"), format!("{url}/"), format!("{}:{port}", host.to_uppercase())] {
                prop_assert_eq!(normalise(&text), Ok(url.clone()));
            }
            prop_assert_eq!(normalise(&host), Ok(format!("https://{host}:443")));
        }
    }
}

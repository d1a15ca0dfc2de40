//! Names of Nodes.
//!
//! A name is a DNS-1123 subdomain of at most 63 characters: kubelet puts it into the label `kubernetes.io/hostname`, and a
//! label's value is no longer than that.

use super::{Fault, is_dns_subdomain};

/// Longest name that registers.
const MAX_LEN: usize = 63;

/// Checks a name that a person wrote.
pub fn explicit(text: &str) -> Result<String, Fault> {
    let name = text.trim();
    match fault(name) {
        None => Ok(name.to_owned()),
        Some(what) => Err(Fault::new(format!("{name:?} {what}"), format!("write {:?}", suggest(name)))),
    }
}

/// The name that a host name gives: in lower case. What is not valid then is refused with a suggestion rather than
/// changed further: two hosts could become one Node.
pub fn from_host(host_name: &str) -> Result<String, Fault> {
    let name = host_name.trim().to_lowercase();
    let set = |name: &str| format!("set agent.nodeName, for example to {:?}", suggest(name));
    if name == "localhost" || name.starts_with("localhost.") {
        let fix = "set agent.nodeName to a name that no other node has, or give the host a name";
        return Err(Fault::new(format!("the host name is {host_name:?}, which every host has"), fix));
    }
    match fault(&name) {
        None => Ok(name),
        Some(what) => Err(Fault::new(format!("the host name {host_name:?} {what}"), set(&name))),
    }
}

fn fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("is empty")
    } else if name.len() > MAX_LEN {
        Some("is longer than 63 characters and would not register")
    } else if !is_dns_subdomain(name) {
        Some("is no name for a Node: only a-z, 0-9, '-' and '.', each part beginning and ending with a letter or digit")
    } else {
        None
    }
}

/// The nearest valid name.
pub fn suggest(name: &str) -> String {
    let mapped: String = name
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' { c } else { '-' })
        .take(MAX_LEN)
        .collect();
    let parts: Vec<&str> =
        mapped.split('.').map(|part| part.trim_matches('-')).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { "node-1".into() } else { parts.join(".") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_host_name_with_capitals_is_written_in_lower_case() {
        assert_eq!(from_host("PHost01").unwrap(), "phost01");
        assert_eq!(from_host("Node-1.Example.COM\n").unwrap(), "node-1.example.com");
    }

    #[test]
    fn a_host_name_that_cannot_register_is_refused_with_a_valid_one() {
        for (host, suggestion) in [("worker_1", "worker-1"), ("-a-", "a"), ("a..b", "a.b"), ("_", "node-1")] {
            let fault = from_host(host).unwrap_err();
            assert!(fault.fix.contains(&format!("{suggestion:?}")), "{host}: {fault}");
            assert!(fault.fix.contains("agent.nodeName"));
        }
        assert!(from_host("localhost.localdomain").is_err());
        assert!(from_host("").is_err());
    }

    #[test]
    fn an_explicit_name_is_not_changed() {
        assert_eq!(explicit(" node-1 ").unwrap(), "node-1");
        assert!(explicit("Node-1").unwrap_err().fix.contains("\"node-1\""));
        assert!(explicit("").is_err());
        let long = "a".repeat(64);
        assert!(explicit(&long).unwrap_err().what.contains("63"));
        assert_eq!(explicit(&long[1..]).unwrap().len(), 63);
    }

    proptest! {
        #[test]
        fn every_suggestion_is_valid(name in any::<String>()) {
            prop_assert_eq!(explicit(&suggest(&name)), Ok(suggest(&name)));
        }
        #[test]
        fn what_a_host_name_gives_is_what_may_be_written(name in "[A-Za-z0-9._-]{0,70}") {
            if let Ok(from_host) = from_host(&name) {
                prop_assert_eq!(explicit(&from_host), Ok(from_host));
            }
        }
    }
}

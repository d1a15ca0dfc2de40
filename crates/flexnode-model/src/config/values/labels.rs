//! Labels and taints that a kubelet may register its Node with.
//!
//! Rules: Kubernetes documentation "Labels and Selectors" (syntax), and kubelet's check of `--node-labels`, which is the
//! list of the admission plugin NodeRestriction. kubelet exits at start when a label breaks it.

use super::{Fault, is_dns_subdomain};

/// Label keys below kubernetes.io and k8s.io that kubelet may set on its own Node.
const ALLOWED: &[&str] = &[
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
];

/// Prefixes, with their subdomains, that are free for kubelet.
const FREE: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Checks a label's key.
pub fn key(key: &str) -> Result<(), Fault> {
    let fix = "write [PREFIX/]NAME, NAME of at most 63 letters, digits and - _ . between them";
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if prefix.is_some_and(|prefix| !is_dns_subdomain(prefix)) || name.is_empty() || !is_name(name) {
        return Err(Fault::new("this is no key of a label", fix));
    }
    match prefix {
        Some(prefix) if reserved(prefix) && !free(prefix) && !ALLOWED.contains(&key) => {
            let what = "kubelet may not set this label on its own Node and would exit";
            let fix = format!("remove it here and set it from the cluster: kubectl label node NAME {key}=VALUE");
            Err(Fault::new(what, fix))
        }
        _ => Ok(()),
    }
}

fn reserved(prefix: &str) -> bool {
    ["kubernetes.io", "k8s.io"].iter().any(|domain| within(prefix, domain))
}

fn free(prefix: &str) -> bool {
    FREE.iter().any(|domain| within(prefix, domain))
}

fn within(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Checks a label's value.
pub fn value(value: &str) -> Result<(), Fault> {
    if is_name(value) {
        return Ok(());
    }
    let fix = "write at most 63 letters, digits and - _ . between them";
    Err(Fault::new(format!("{value:?} is no value of a label"), fix))
}

/// Empty, or letters, digits and `- _ .`, with a letter or digit at both ends.
fn is_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let edge = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63 && bytes.iter().all(|b| inner(*b)) && edge(bytes.first()) && edge(bytes.last())
}

/// Checks a taint, `key=value:Effect` or `key:Effect`, and gives its key and effect.
pub fn taint(text: &str) -> Result<(String, String), Fault> {
    let fix = "write key=value:Effect or key:Effect, Effect being NoSchedule, PreferNoSchedule or NoExecute";
    let Some((pair, effect)) = text.rsplit_once(':') else {
        return Err(Fault::new(format!("{text:?} has no effect"), fix));
    };
    if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        return Err(Fault::new(format!("{effect:?} is no effect of a taint"), fix));
    }
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let (prefix, bare) = name.rsplit_once('/').map_or((None, name), |(prefix, bare)| (Some(prefix), bare));
    let good = prefix.is_none_or(is_dns_subdomain) && !bare.is_empty() && is_name(bare) && is_name(value);
    if good { Ok((name.into(), effect.into())) } else { Err(Fault::new(format!("{text:?} is no taint"), fix)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubelet_may_set_is_accepted() {
        for label in [
            "disk",
            "example.com/disk",
            "kubernetes.azure.com/managed",
            "topology.kubernetes.io/zone",
            "kubernetes.io/arch",
            "node.kubernetes.io/anything",
            "a.node.kubernetes.io/x",
            "kubelet.kubernetes.io/x",
            "mykubernetes.io/x",
            "a_b.c-d",
        ] {
            assert_eq!(key(label), Ok(()), "{label}");
        }
    }

    #[test]
    fn what_kubelet_may_not_set_is_refused() {
        for label in [
            "node-role.kubernetes.io/worker",
            "kubernetes.io/role",
            "k8s.io/x",
            "a.k8s.io/x",
            "node-restriction.kubernetes.io/x",
            "topology.kubernetes.io/rack",
            "xnode.kubernetes.io/x",
        ] {
            assert!(key(label).unwrap_err().fix.contains("kubectl label node"), "{label}");
        }
        for label in ["", "/a", "a/", "a/b/c", "-a", "a-", "ä", "A.B/c", &"a".repeat(64)] {
            assert!(key(label).unwrap_err().what.contains("no key"), "{label}");
        }
        assert!(
            value("a b").is_err() && value(&"a".repeat(64)).is_err() && value("").is_ok() && value("A.b_c-1").is_ok()
        );
    }

    #[test]
    fn taints_have_a_key_and_an_effect() {
        assert_eq!(taint("a.b/c=d:NoSchedule"), Ok(("a.b/c".into(), "NoSchedule".into())));
        assert_eq!(taint("c:NoExecute"), Ok(("c".into(), "NoExecute".into())));
        for text in ["", "a", "a=b", "a:Never", ":NoExecute", "=b:NoExecute", "a=b c:NoExecute", "a=b:c:NoExecute"] {
            assert!(taint(text).is_err(), "{text}");
        }
    }
}

//! The values of single keys: each function takes the text as written and gives the value in one normal form, or what is
//! wrong with it. They know nothing of each other.

pub mod address;
pub mod ca;
pub mod labels;
pub mod node_name;
pub mod overlay;
pub mod quantity;
pub mod source;
pub mod url;
pub mod version;

/// What is wrong with a value, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {fix}")]
pub struct Fault {
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub fix: String,
}

impl Fault {
    pub(crate) fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), fix: fix.into() }
    }
}

/// A DNS-1123 label: letters in lower case, digits and `-`, not at its ends, at most 63.
pub(crate) fn is_dns_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A DNS-1123 subdomain as Kubernetes means it: letters in lower case, digits, `-` and `.`, at most 253 together. Its
/// parts have no limit of length of their own.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(part)
}

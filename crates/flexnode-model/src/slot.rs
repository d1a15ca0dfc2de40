//! Names of slots: one directory below the base, so one safe path component and nothing else.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// How names of unfinished files and directories of the agent begin; no slot may.
pub const TEMP_PREFIX: &str = ".flexnode-tmp-";

/// The name of the link that selects the active slot; no slot may have it.
pub const CURRENT: &str = "current";

/// Longest name: what every file system takes, with room for a temporary prefix and suffix.
const MAX_LEN: usize = 200;

/// A name that is not a slot's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no name of a version directory: {reason}")]
pub struct SlotNameError {
    /// The name, bounded.
    pub name: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// The name of a slot (a version directory), for example `1.36.3-1a2b3c4d`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SlotName(String);

impl SlotName {
    /// Checks a name: one path component of visible ASCII letters, digits and `. _ + -`, not beginning with a dot, not
    /// [`CURRENT`].
    pub fn new(name: impl Into<String>) -> Result<Self, SlotNameError> {
        let name = name.into();
        match fault(&name) {
            None => Ok(Self(name)),
            Some(reason) => Err(SlotNameError { name: name.chars().take(MAX_LEN).collect(), reason }),
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("it is empty")
    } else if name.len() > MAX_LEN {
        Some("it is longer than 200 bytes")
    } else if name.starts_with(TEMP_PREFIX) {
        Some("names of unfinished directories begin so")
    } else if name.starts_with('.') {
        Some("it begins with a dot")
    } else if name.starts_with('-') {
        Some("it begins with a dash, programs would take it for an option")
    } else if name == CURRENT {
        Some("this is the name of the link to the active version")
    } else if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._+-".contains(&b)) {
        Some("only letters, digits and the characters . _ + - are allowed")
    } else {
        None
    }
}

impl fmt::Display for SlotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<Path> for SlotName {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl TryFrom<String> for SlotName {
    type Error = SlotNameError;
    fn try_from(name: String) -> Result<Self, SlotNameError> {
        Self::new(name)
    }
}

impl std::str::FromStr for SlotName {
    type Err = SlotNameError;
    fn from_str(name: &str) -> Result<Self, SlotNameError> {
        Self::new(name)
    }
}

impl From<SlotName> for String {
    fn from(name: SlotName) -> String {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Component;

    #[test]
    fn names_of_versions_are_accepted() {
        for name in ["1.36.3-1a2b3c4d", "v1.35.0-rc.1-00ff00ff", "1.36.3+build.7-1a2b3c4d", "a", "currently"] {
            assert_eq!(SlotName::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let long = "a".repeat(201);
        for name in [
            "",
            ".",
            "..",
            "/",
            "a/b",
            "../x",
            "current",
            ".flexnode-tmp-1",
            ".hidden",
            "a\0b",
            "a\nb",
            "a b",
            "ä",
            "-rf",
            "a\\b",
            long.as_str(),
        ] {
            assert!(SlotName::new(name).is_err(), "{name:?} was accepted");
        }
        assert!(serde_json::from_str::<SlotName>("\"../x\"").is_err());
    }

    proptest! {
        #[test]
        fn an_accepted_name_is_one_component_below_its_base(name in any::<String>()) {
            if let Ok(slot) = SlotName::new(name.clone()) {
                let components: Vec<_> = Path::new(slot.as_str()).components().collect();
                prop_assert_eq!(components, vec![Component::Normal(name.as_ref())]);
                let path = Path::new("/base").join(&slot);
                prop_assert_eq!(path.parent(), Some(Path::new("/base")));
                prop_assert!(!name.chars().any(char::is_control));
            }
        }
    }
}

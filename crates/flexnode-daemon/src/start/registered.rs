//! What kubelet registered with the last time, read from the registration file before it is written anew.

use super::labels::Registered;
use flexnode_host::Fs;
use flexnode_isolation::none::REGISTRATION_ENV_PATH;
use std::path::Path;

const LIMIT: u64 = 1 << 20;

/// Reads the registration file; nothing when there is none or it cannot be read: then no label counts as ours.
pub fn read_registered(fs: &dyn Fs) -> Registered {
    let bytes = fs.read(Path::new(REGISTRATION_ENV_PATH), LIMIT).ok().flatten().unwrap_or_default();
    parse(&String::from_utf8_lossy(&bytes))
}

/// Finds the two arguments. Labels and taints hold no blanks, quotes or backslashes, so words that are quoted in the file
/// are only read as far as their quotes go.
fn parse(text: &str) -> Registered {
    let mut found = Registered::default();
    for word in text.lines().filter(|line| !line.starts_with('#')).flat_map(|line| line.split(['"', ' ', '\\'])) {
        if let Some(pairs) = word.strip_prefix("--node-labels=") {
            found.labels =
                pairs.split(',').filter_map(|p| p.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect();
        } else if let Some(taints) = word.strip_prefix("--register-with-taints=") {
            found.taints = taints.split(',').filter(|t| !t.is_empty()).map(String::from).collect();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_model::Join;

    #[test]
    fn what_the_renderer_writes_is_read_back() {
        let join = Join {
            token: None,
            labels: [("a.example/zone", "z1"), ("b", "")].map(|(k, v)| (k.into(), v.into())).into(),
            taints: vec!["a:NoExecute".into(), "dedicated=gpu:NoSchedule".into()],
            source: "/b".into(),
            allow_unverified: Vec::new(),
        };
        let bytes = flexnode_stack::environment::registration(&join).unwrap();
        let found = parse(std::str::from_utf8(&bytes).unwrap());
        assert_eq!(found, Registered { labels: join.labels.clone(), taints: join.taints.clone() });
        let empty = Join { labels: [].into(), taints: Vec::new(), ..join };
        let bytes = flexnode_stack::environment::registration(&empty).unwrap();
        assert_eq!(parse(std::str::from_utf8(&bytes).unwrap()), Registered::default());
        assert_eq!(parse(""), Registered::default());
    }
}

//! Unit files: where they lie, and what they say (systemd.unit(5), systemd.syntax(7)).

use crate::{FileKind, Fs};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The directories of unit files; an earlier one goes before a later one.
pub(super) const UNIT_DIRS: [&str; 6] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// The bytes that a unit consists of, as they were when they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) fragment: Option<(PathBuf, String)>,
    pub(super) masked: bool,
    pub(super) drop_ins: Vec<(PathBuf, String)>,
}

impl Source {
    /// Reads what is on disk for `unit`.
    pub(super) fn read(fs: &dyn Fs, unit: &str) -> Self {
        let mut source = Self::default();
        let names: Vec<String> = [Some(unit.to_owned()), template(unit)].into_iter().flatten().collect();
        for name in &names {
            let found = UNIT_DIRS
                .iter()
                .map(|dir| Path::new(dir).join(name))
                .find(|path| fs.lstat(path).ok().flatten().is_some_and(|stat| stat.kind != FileKind::Dir));
            if let Some(path) = found {
                let to_null = fs.read_link(&path).is_ok_and(|target| target == Path::new("/dev/null"));
                let text = text(fs, &path);
                source.masked = to_null || text.as_deref() == Some("");
                source.fragment = text.or(to_null.then(String::new)).map(|text| (path, text));
                break;
            }
        }
        let mut drop_ins = BTreeMap::new();
        for dir in UNIT_DIRS.iter().rev() {
            for name in names.iter().rev() {
                let dir = Path::new(dir).join(format!("{name}.d"));
                for entry in fs.read_dir(&dir).unwrap_or_default() {
                    if entry.name.to_string_lossy().ends_with(".conf") {
                        drop_ins.insert(entry.name.clone(), dir.join(&entry.name));
                    }
                }
            }
        }
        let with_text = |path: PathBuf| text(fs, &path).map(|text| (path, text));
        source.drop_ins = drop_ins.into_values().filter_map(with_text).collect();
        source
    }

    pub(super) fn parse(&self, unit: &str) -> Settings {
        let mut settings = Settings::default();
        let fragment = self.fragment.iter().map(|(_, text)| text);
        for text in fragment.chain(self.drop_ins.iter().map(|(_, text)| text)) {
            settings.add(&text.replace("%i", instance(unit)).replace("%n", unit));
        }
        settings
    }
}

fn text(fs: &dyn Fs, path: &Path) -> Option<String> {
    let bytes = fs.read(path, 1 << 20).ok().flatten()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// `name@.service` for `name@instance.service`.
fn template(unit: &str) -> Option<String> {
    let (name, rest) = unit.split_once('@')?;
    let (instance, kind) = rest.rsplit_once('.')?;
    (!instance.is_empty()).then(|| format!("{name}@.{kind}"))
}

fn instance(unit: &str) -> &str {
    unit.split_once('@').and_then(|(_, rest)| rest.rsplit_once('.')).map_or("", |(instance, _)| instance)
}

/// The settings of a unit: section and key to the values in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings(BTreeMap<(String, String), Vec<String>>);

impl Settings {
    fn add(&mut self, text: &str) {
        let mut section = String::new();
        for line in text.replace("\\\n", " ").lines() {
            let line = line.trim();
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                name.clone_into(&mut section);
            } else if let Some((key, value)) = line.split_once('=')
                && !line.starts_with(['#', ';'])
            {
                let values = self.0.entry((section.clone(), key.trim().to_owned())).or_default();
                // An empty assignment clears what was said before.
                if value.trim().is_empty() {
                    values.clear();
                } else {
                    values.push(value.trim().to_owned());
                }
            }
        }
    }

    /// All values of a key.
    pub(super) fn all(&self, section: &str, key: &str) -> &[String] {
        self.0.get(&(section.to_owned(), key.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// The last value of a key, which is the one that counts.
    pub(super) fn last(&self, section: &str, key: &str) -> Option<&str> {
        self.all(section, key).last().map(String::as_str)
    }

    /// The words of all values of a key.
    pub(super) fn words(&self, section: &str, key: &str) -> Vec<String> {
        self.all(section, key).iter().flat_map(|value| words(value)).collect()
    }

    pub(super) fn has_section(&self, section: &str) -> bool {
        self.0.keys().any(|(name, _)| name == section)
    }

    /// argv of the first ExecStart, without systemd's prefixes.
    pub(super) fn exec_start(&self) -> Vec<String> {
        let line = self.all("Service", "ExecStart").first().map_or("", String::as_str);
        words(line.trim_start_matches(['-', '@', ':', '+', '!', '|']))
    }
}

/// Splits as systemd.syntax(7) says, as far as agents' units use it: white space, quotes, a backslash.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut inside) = (Vec::new(), String::new(), None, false);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', _) => word.extend(chars.next()),
            (c, Some(q)) if c == q => quote = None,
            ('"' | '\'', None) => (quote, inside) = (Some(c), true),
            (' ' | '\t', None) => {
                if inside || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                inside = false;
            }
            (c, _) => word.push(c),
        }
    }
    if inside || !word.is_empty() {
        words.push(word);
    }
    words
}

/// Whether `name` matches the shell pattern, with `*` and `?` (glob(7)).
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    match (pattern.chars().next(), name.chars().next()) {
        (None, None) => true,
        (Some('*'), _) => {
            let rest = &pattern[1..];
            (0..=name.len()).filter(|at| name.is_char_boundary(*at)).any(|at| matches(rest, &name[at..]))
        }
        (Some(p), Some(n)) if p == '?' || p == n => matches(&pattern[p.len_utf8()..], &name[n.len_utf8()..]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_systemd_does() {
        assert_eq!(words(r#"/bin/sh -c "a b" '' x\ y"#), ["/bin/sh", "-c", "a b", "", "x y"]);
        assert_eq!(words("  "), Vec::<String>::new());
    }

    #[test]
    fn an_empty_assignment_clears() {
        let mut settings = Settings::default();
        settings.add("[Service]\nExecStart=/a\n# ExecStart=/no\nEnvironment=A=1 \\\n  B=2\n");
        settings.add("[Service]\nExecStart=\nExecStart=-/b c\n");
        assert_eq!(settings.exec_start(), ["/b", "c"]);
        assert_eq!(settings.words("Service", "Environment"), ["A=1", "B=2"]);
        assert!(!settings.has_section("Install"));
    }

    #[test]
    fn patterns() {
        assert!(matches("unbounded-*.service", "unbounded-kubelet.service"));
        assert!(matches("a?c", "abc") && matches("*", "") && matches("*b*", "abc"));
        assert!(!matches("a?c", "ac") && !matches("kubelet", "kubelet.service"));
    }
}

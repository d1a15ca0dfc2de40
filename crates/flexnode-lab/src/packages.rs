//! Programs from Debian packages, without installing any: an apt state of the lab's own, download and unpack.
//!
//! The mirror is the one that this machine uses itself.

use crate::cache;
use crate::run::must;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const RECIPE: &str = "1";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The mirror to use instead of this machine's.
const OVERRIDE: &str = "FLEXNODE_DEBIAN_MIRROR";

/// A release of Debian, for its versions of the node's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Suite {
    /// Debian 13: containerd 1.7.24 and runc 1.1.15 at the time of writing.
    Trixie,
    /// The release after it: containerd 2.1.9, runc 1.3.6, CNI plugins 1.9.1 and etcd at the time of writing.
    Forky,
}

impl Suite {
    /// Its name in the archive.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trixie => "trixie",
            Self::Forky => "forky",
        }
    }

    fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Trixie => &["containerd", "runc"],
            Self::Forky => &["containerd", "runc", "containernetworking-plugins", "etcd-server"],
        }
    }
}

/// The unpacked packages of one suite, as one tree.
#[derive(Clone, Debug)]
pub struct Packages {
    folder: PathBuf,
}

impl Packages {
    /// Fetches them, or takes them from the cache.
    pub fn of(suite: Suite) -> Result<Self> {
        let names = suite.packages();
        let inputs = [RECIPE, suite.name(), &names.join(" "), std::env::consts::ARCH];
        let what = format!("fetching {} of Debian {}", names.join(", "), suite.name());
        let folder = cache::entry(&format!("debian-{}", suite.name()), &inputs, &what, |into| fetch(suite, into))?;
        Ok(Self { folder })
    }

    /// A program of these packages.
    pub fn program(&self, name: &str) -> Result<PathBuf> {
        ["usr/bin", "usr/sbin"]
            .iter()
            .map(|bin| self.folder.join("tree").join(bin).join(name))
            .find(|path| path.is_file())
            .with_context(|| format!("the packages in {} have no program {name}", self.folder.display()))
    }

    /// The directory of the CNI plugins.
    pub fn cni(&self) -> PathBuf {
        self.folder.join("tree/usr/lib/cni")
    }

    /// The upstream version of a package: `2.1.9` for `2.1.9~ds1-1+b2`.
    pub fn version(&self, package: &str) -> Result<String> {
        let path = self.folder.join(format!("{package}.version"));
        let full = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(upstream(full.trim()).to_owned())
    }
}

/// The Debian mirror that this machine uses.
pub fn mirror() -> Result<String> {
    if let Ok(given) = std::env::var(OVERRIDE) {
        return Ok(given);
    }
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(parts) = fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(parts.flatten().map(|part| part.path()));
    }
    files.sort();
    let found = files.iter().find_map(|file| {
        let text = fs::read_to_string(file).ok()?;
        let addresses =
            if file.extension().is_some_and(|end| end == "sources") { deb822(&text) } else { one_line(&text) };
        addresses.into_iter().find(|address| address.trim_end_matches('/').ends_with("/debian"))
    });
    found.with_context(|| {
        format!("this machine's apt sources name no Debian mirror: set {OVERRIDE} to the address of one")
    })
}

fn fetch(suite: Suite, into: &Path) -> Result<()> {
    let apt = Apt::new(suite, &into.join(".apt"))?;
    let tree = into.join("tree");
    fs::create_dir(&tree)?;
    for archive in apt.download(suite.packages())? {
        unpack(&archive, &tree, into)?;
    }
    fs::remove_dir_all(&apt.state)?;
    Ok(())
}

/// apt with the package lists of one suite and a state of its own.
#[derive(Debug)]
pub(crate) struct Apt {
    suite: Suite,
    state: PathBuf,
}

impl Apt {
    /// Fetches the lists into a directory, which this makes.
    pub fn new(suite: Suite, state: &Path) -> Result<Self> {
        if !Path::new(KEYRING).is_file() {
            bail!("{KEYRING} is missing: install the package debian-archive-keyring");
        }
        for folder in ["lists/partial", "cache/archives/partial", "debs"] {
            fs::create_dir_all(state.join(folder))?;
        }
        let sources = format!("deb [signed-by={KEYRING}] {} {} main\n", mirror()?, suite.name());
        fs::write(state.join("sources.list"), sources)?;
        fs::write(state.join("status"), "")?;
        let apt = Self { suite, state: state.to_owned() };
        must(apt.command("apt-get").arg("update"), Duration::from_secs(600))?;
        Ok(apt)
    }

    /// The archives of these packages.
    pub fn download(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let debs = self.state.join("debs");
        let wanted = names.iter().map(|name| format!("{name}/{}", self.suite.name()));
        let mut command = self.command("apt-get");
        must(command.arg("download").args(wanted).current_dir(&debs), Duration::from_secs(900))?;
        fs::read_dir(&debs)?.map(|archive| Ok(archive?.path())).collect()
    }

    /// The stanza of a package in the lists.
    pub fn show(&self, name: &str) -> Result<String> {
        let mut command = self.command("apt-cache");
        must(command.arg("show").arg(format!("{name}/{}", self.suite.name())), Duration::from_secs(60))
    }

    /// What this machine configures for proxies and the like still counts.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.arg("-q");
        for (name, place) in [
            ("Dir::Etc::SourceList", "sources.list"),
            ("Dir::Etc::SourceParts", "no-such-parts"),
            ("Dir::State::Lists", "lists"),
            ("Dir::State::Status", "status"),
            ("Dir::Cache", "cache"),
        ] {
            command.arg("-o").arg(format!("{name}={}", self.state.join(place).display()));
        }
        // The directories are root's: apt's own user could not write there.
        command.args(["-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"]);
        command
    }
}

fn unpack(archive: &Path, tree: &Path, into: &Path) -> Result<()> {
    let limit = Duration::from_secs(120);
    must(Command::new("dpkg").arg("-x").arg(archive).arg(tree), limit)?;
    let field = |name: &str| must(Command::new("dpkg-deb").arg("-f").arg(archive).arg(name), limit);
    fs::write(into.join(format!("{}.version", field("Package")?.trim())), field("Version")?)?;
    Ok(())
}

/// The addresses in a file of deb822 stanzas (sources.list(5)).
fn deb822(text: &str) -> Vec<String> {
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.filter(|(name, _)| name.eq_ignore_ascii_case("uris")).flat_map(|(_, value)| words(value)).collect()
}

/// The addresses in a file of one-line entries.
fn one_line(text: &str) -> Vec<String> {
    let entries = text.lines().filter(|line| line.starts_with("deb "));
    entries.filter_map(|line| words(line).into_iter().find(|word| word.contains("://"))).collect()
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// A Debian version without epoch, repackaging suffix and revision.
fn upstream(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    version.split(['-', '~', '+']).next().unwrap_or(version)
}

#[cfg(test)]
mod tests {
    use super::{deb822, one_line, upstream};

    #[test]
    fn addresses_of_both_formats() {
        let text = "Types: deb\n# URIs: http://old.invalid\nURIs: http://a.invalid/debian https://b.invalid/debian\nSuites: x\n";
        assert_eq!(deb822(text), ["http://a.invalid/debian", "https://b.invalid/debian"]);
        let text = "# deb http://old.invalid x main\ndeb [arch=amd64 signed-by=/k] http://a.invalid/debian x main\ndeb-src http://b.invalid x main\n";
        assert_eq!(one_line(text), ["http://a.invalid/debian"]);
    }

    #[test]
    fn upstream_versions() {
        for (full, expected) in [("2.1.9~ds1-1+b2", "2.1.9"), ("1:1.7.24+dfsg-3", "1.7.24"), ("1.9.1", "1.9.1")] {
            assert_eq!(upstream(full), expected);
        }
    }
}

//! Roles of artifacts, their places in a bundle, and what the file names of the official releases tell.
//!
//! The places are those of the offline bundle that the agents of this family read: a bundle that was made for one of
//! them is a bundle for this one.

use crate::digest::Digest;
use std::fmt;

/// What an artifact is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The kubelet program. Required.
    Kubelet,
    /// kubectl; installed when the source has it.
    Kubectl,
    /// kube-proxy; kept in bundles, never installed: a cluster runs it as a pod.
    KubeProxy,
    /// The release archive of containerd with its shim and `ctr`. Required.
    Containerd,
    /// The runc program. Required.
    Runc,
    /// The release archive of the CNI plugins. Required.
    Cni,
    /// The release archive of crictl; installed when the source has it.
    Crictl,
    /// An archive of container images.
    Image,
}

/// Processor architectures in Kubernetes's spelling.
pub const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// Longest file name that common file systems take.
const MAX_NAME: usize = 255;

impl Role {
    /// The roles that have a version and one file, in the order in which people name them.
    pub const PROGRAMS: [Role; 7] =
        [Role::Kubelet, Role::Kubectl, Role::KubeProxy, Role::Containerd, Role::Runc, Role::Cni, Role::Crictl];

    /// The name that people use: the option of `aks-flex-node bundle`, a word of `bootstrap.allowUnverified`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Kubelet => "kubelet",
            Role::Kubectl => "kubectl",
            Role::KubeProxy => "kube-proxy",
            Role::Containerd => "containerd",
            Role::Runc => "runc",
            Role::Cni => "cni",
            Role::Crictl => "crictl",
            Role::Image => "image",
        }
    }

    /// Whether a node cannot run without it.
    pub fn is_required(self) -> bool {
        matches!(self, Role::Kubelet | Role::Containerd | Role::Runc | Role::Cni)
    }

    /// Whether the bundle has a `.sha256` file beside it.
    pub fn has_sidecar(self) -> bool {
        matches!(self, Role::Kubelet | Role::Kubectl | Role::KubeProxy | Role::Image)
    }

    /// Whether it is an archive of programs.
    pub fn is_archive(self) -> bool {
        matches!(self, Role::Containerd | Role::Cni | Role::Crictl)
    }

    /// The file name of the official release.
    pub fn release_file(self, version: &str, arch: &str) -> String {
        match self {
            Role::Containerd => format!("containerd-{version}-linux-{arch}.tar.gz"),
            Role::Runc => format!("runc.{arch}"),
            Role::Cni => format!("cni-plugins-linux-{arch}-v{version}.tgz"),
            Role::Crictl => format!("crictl-v{version}-linux-{arch}.tar.gz"),
            Role::Kubelet | Role::Kubectl | Role::KubeProxy | Role::Image => self.name().to_owned(),
        }
    }

    /// The place in a bundle, relative to it. `version` is without `v`. [`Role::Image`] has no version: use
    /// [`image_path`].
    pub fn path(self, version: &str, arch: &str) -> String {
        let file = self.release_file(version, arch);
        match self {
            Role::Kubelet | Role::Kubectl | Role::KubeProxy => {
                format!("kubernetes/v{version}/bin/linux/{arch}/{file}")
            }
            _ => format!("{}/v{version}/{file}", self.name()),
        }
    }

    /// The version that the file name of an official release tells; `None` where it tells none.
    ///
    /// `Err` holds the architecture that the name tells when it is another than `arch`.
    pub fn version_in_name(self, file: &str, arch: &str) -> Result<Option<String>, String> {
        let Some((version, named)) = self.split_release_name(file) else { return Ok(None) };
        if !named.is_empty() && named != arch {
            return Err(named.to_owned());
        }
        Ok(version.and_then(clean_version))
    }

    /// Version and architecture in a release's file name.
    fn split_release_name(self, file: &str) -> Option<(Option<&str>, &str)> {
        let bare = [".tar.gz", ".tgz", ".tar"].iter().find_map(|end| file.strip_suffix(end)).unwrap_or(file);
        match self {
            Role::Containerd => {
                let rest = bare.strip_prefix("containerd-")?;
                let (version, arch) = rest.split_once("-linux-")?;
                Some((Some(version.trim_start_matches("static-")), arch))
            }
            Role::Cni => {
                let (arch, version) = bare.strip_prefix("cni-plugins-linux-")?.split_once("-v")?;
                Some((Some(version), arch))
            }
            Role::Crictl => {
                let (version, arch) = bare.strip_prefix("crictl-v")?.split_once("-linux-")?;
                Some((Some(version), arch))
            }
            Role::Runc => Some((None, bare.strip_prefix("runc.").filter(|a| ARCHITECTURES.contains(a))?)),
            Role::Kubelet | Role::Kubectl | Role::KubeProxy | Role::Image => None,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The place of an image archive in a bundle: the reference with `/`, `:` and `@` as `_`, and the first 6 bytes of the
/// SHA-256 of the reference, so that two references never share a file. `None` when the reference makes no file name.
pub fn image_path(reference: &str, arch: &str) -> Option<String> {
    if reference.is_empty() || !reference.bytes().all(|b| b.is_ascii_graphic()) {
        return None;
    }
    let name: String = reference.chars().map(|c| if matches!(c, '/' | ':' | '@') { '_' } else { c }).collect();
    let digest = Digest::of(reference.as_bytes()).to_string();
    let file = format!("{name}-{}.tar", &digest[..12]);
    let longest = file.len() + ".sha256".len();
    (longest <= MAX_NAME && !file.starts_with('.')).then(|| format!("container-images/{arch}/{file}"))
}

/// A version without its `v`, when it is one that may stand in a path: letters, digits and `. + - _`, beginning with a
/// digit.
pub fn clean_version(text: &str) -> Option<String> {
    let bare = text.trim();
    let bare = bare.strip_prefix('v').unwrap_or(bare);
    let fits = bare.len() <= 64
        && bare.as_bytes().first().is_some_and(u8::is_ascii_digit)
        && bare.bytes().all(|b| b.is_ascii_alphanumeric() || b".+-_".contains(&b));
    fits.then(|| bare.to_owned())
}

/// The first word of a program's `--version` answer that is a version, without `v` and without what a distribution
/// appends (`1.7.24~ds1`, `1.3.6+ds1`).
pub fn version_in_answer(answer: &str) -> Option<String> {
    answer.split(|c: char| c.is_whitespace() || c == ',').find_map(|word| {
        let word = word.strip_prefix('v').unwrap_or(word);
        let word = word.split(['~', '+']).next()?;
        let (core, pre) = word.split_once('-').map_or((word, None), |(core, pre)| (core, Some(pre)));
        let numbers: Vec<_> = core.split('.').collect();
        let is_core =
            numbers.len() == 3 && numbers.iter().all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        // A package's revision is a bare number (`1.3.6-2`); a pre-release begins with a letter (`2.2.0-rc.1`).
        let pre = pre.filter(|pre| pre.starts_with(|c: char| c.is_ascii_alphabetic()));
        is_core.then(|| pre.map_or(core.to_owned(), |pre| format!("{core}-{pre}"))).as_deref().and_then(clean_version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_offline_bundle() {
        let all: Vec<_> = Role::PROGRAMS.iter().map(|role| role.path("1.2.3", "arm64")).collect();
        assert_eq!(
            all,
            [
                "kubernetes/v1.2.3/bin/linux/arm64/kubelet",
                "kubernetes/v1.2.3/bin/linux/arm64/kubectl",
                "kubernetes/v1.2.3/bin/linux/arm64/kube-proxy",
                "containerd/v1.2.3/containerd-1.2.3-linux-arm64.tar.gz",
                "runc/v1.2.3/runc.arm64",
                "cni/v1.2.3/cni-plugins-linux-arm64-v1.2.3.tgz",
                "crictl/v1.2.3/crictl-v1.2.3-linux-arm64.tar.gz",
            ]
        );
    }

    #[test]
    fn an_image_has_a_file_name_of_its_own() {
        // The digits were computed with sha256sum(1).
        assert_eq!(
            image_path("registry.k8s.io/pause:3.10", "amd64").unwrap(),
            "container-images/amd64/registry.k8s.io_pause_3.10-6f731803067f.tar"
        );
        assert_ne!(image_path("a/b:c", "amd64"), image_path("a_b:c", "amd64"));
        for bad in ["", "a b", "a\n", "..", &"a".repeat(250)] {
            assert_eq!(image_path(bad, "amd64"), None, "{bad:?}");
        }
    }

    #[test]
    fn official_file_names_tell_their_version() {
        let cases = [
            (Role::Containerd, "containerd-2.1.9-linux-amd64.tar.gz", Ok(Some("2.1.9"))),
            (Role::Containerd, "containerd-static-2.2.0-rc.1-linux-amd64.tar.gz", Ok(Some("2.2.0-rc.1"))),
            (Role::Containerd, "containerd-2.1.9-linux-arm64.tar.gz", Err("arm64")),
            (Role::Containerd, "containerd.tar.gz", Ok(None)),
            (Role::Containerd, "containerd-../../x-linux-amd64.tar.gz", Ok(None)),
            (Role::Cni, "cni-plugins-linux-amd64-v1.9.1.tgz", Ok(Some("1.9.1"))),
            (Role::Cni, "cni-plugins-linux-s390x-v1.9.1.tgz", Err("s390x")),
            (Role::Crictl, "crictl-v1.36.0-linux-amd64.tar.gz", Ok(Some("1.36.0"))),
            (Role::Runc, "runc.amd64", Ok(None)),
            (Role::Runc, "runc.arm64", Err("arm64")),
            (Role::Runc, "runc.new", Ok(None)),
            (Role::Kubelet, "kubelet", Ok(None)),
        ];
        for (role, file, wanted) in cases {
            let wanted = wanted.map(|v| v.map(str::to_owned)).map_err(str::to_owned);
            assert_eq!(role.version_in_name(file, "amd64"), wanted, "{file}");
        }
    }

    #[test]
    fn answers_of_programs_tell_their_version() {
        let cases = [
            ("Kubernetes v1.36.3", Some("1.36.3")),
            ("Kubernetes v1.37.0-alpha.1+abc", Some("1.37.0-alpha.1")),
            ("containerd github.com/containerd/containerd/v2 v2.1.9 5e5c0a", Some("2.1.9")),
            ("containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6+b4", Some("1.7.24")),
            ("runc version 1.3.6+ds1\nspec: 1.2.1\n", Some("1.3.6")),
            ("runc version 1.3.6-2\n", Some("1.3.6")),
            ("CNI bridge plugin v1.9.1\nCNI protocol versions supported: 0.1.0, 1.1.0", Some("1.9.1")),
            ("crictl version v1.36.0", Some("1.36.0")),
            ("usage: nothing", None),
        ];
        for (answer, wanted) in cases {
            assert_eq!(version_in_answer(answer).as_deref(), wanted, "{answer}");
        }
    }

    #[test]
    fn versions_that_would_leave_their_directory_are_refused() {
        for bad in ["", "v", "../1", "1/2", "1.2.3\n4", "latest", &"1".repeat(65)] {
            assert_eq!(clean_version(bad), None, "{bad:?}");
        }
        assert_eq!(clean_version(" v1.36.3-rc.1+x_y\n").as_deref(), Some("1.36.3-rc.1+x_y"));
    }
}

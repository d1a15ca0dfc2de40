//! Where artifacts come from: a template of a path or URL, and paths of artifacts in it.

use super::Fault;
use std::path::{Component, Path, PathBuf};

const FIX: &str = "write an absolute path or file:///path";

/// The directory that `template` names for a Kubernetes version (without `v`).
pub fn resolve(template: &str, kubernetes_version: &str) -> Result<PathBuf, Fault> {
    let text = expand(template.trim(), kubernetes_version)?;
    let path = match text.split_once("://") {
        None if text.starts_with('/') => text,
        None => return Err(Fault::new(format!("{text:?} is no absolute path"), FIX)),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("file") => {
            if !rest.starts_with('/') {
                let what = "a file:// URL with a host, or without an absolute path";
                return Err(Fault::new(what, "write three slashes: file:///path"));
            }
            percent_decode(rest)?
        }
        Some((scheme, _)) => {
            return Err(Fault::new(format!("sources of the kind {scheme:?} are not supported yet"), FIX));
        }
    };
    if path.contains('\0') || Path::new(&path).components().any(|c| c == Component::ParentDir) {
        return Err(Fault::new("the path has '..' or a NUL in it", "write the directory itself"));
    }
    // Without double and trailing slashes and `.`.
    Ok(Path::new(&path).components().collect())
}

fn expand(template: &str, version: &str) -> Result<String, Fault> {
    let fix = "only {{.KubernetesVersion}} (with v) and {{.KubernetesVersionNoV}} are replaced";
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, after)) = after.split_once("}}") else {
            return Err(Fault::new("{{ is not closed", fix));
        };
        out.push_str(before);
        match name.trim() {
            ".KubernetesVersion" => {
                out.push('v');
                out.push_str(version);
            }
            ".KubernetesVersionNoV" => out.push_str(version),
            other => return Err(Fault::new(format!("{{{{{other}}}}} is not known"), fix)),
        }
        rest = after;
    }
    if rest.contains("}}") {
        return Err(Fault::new("}} without {{", fix));
    }
    out.push_str(rest);
    Ok(out)
}

/// RFC 3986, section 2.1. Query and fragment have no meaning for files.
fn percent_decode(text: &str) -> Result<String, Fault> {
    let wrong = || Fault::new("the URL has a wrong %-escape, a query or a fragment", FIX);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'?' | b'#' => return Err(wrong()),
            b'%' => {
                let digit = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16));
                let (high, low) = (digit(rest.next()).ok_or_else(wrong)?, digit(rest.next()).ok_or_else(wrong)?);
                bytes.push(u8::try_from(high * 16 + low).map_err(|_| wrong())?);
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// Checks the path of an artifact in a source: relative, and without `.` and `..`.
pub fn artifact(text: &str) -> Result<String, Fault> {
    let fix = "write the path as the bundle's manifest has it, for example runc/v1.3.6/runc.amd64";
    let plain = !text.is_empty() && text.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if plain && !text.chars().any(char::is_control) {
        Ok(text.to_owned())
    } else {
        Err(Fault::new(format!("{text:?} is no path inside of a source"), fix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_become_directories() {
        for (text, path) in [
            ("/srv/bundle", "/srv/bundle"),
            (" /srv//bundle/./x/ ", "/srv/bundle/x"),
            ("file:///srv/a%20b", "/srv/a b"),
            ("FILE:///srv", "/srv"),
            ("/srv/{{.KubernetesVersion}}/{{ .KubernetesVersionNoV }}", "/srv/v1.36.3/1.36.3"),
        ] {
            assert_eq!(resolve(text, "1.36.3").as_deref(), Ok(Path::new(path)), "{text}");
        }
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        for (text, word) in [
            ("srv", "no absolute path"),
            ("", "no absolute path"),
            ("file://host/srv", "host"),
            ("file://srv", "host"),
            ("oci://r/a:b", "not supported yet"),
            ("https://example.com/a.tar.gz", "not supported yet"),
            ("/srv/../etc", "'..'"),
            ("file:///srv/%2e%2e/etc", "'..'"),
            ("file:///a%2", "escape"),
            ("file:///a?b", "query"),
            ("/srv/{{.Other}}", "not known"),
            ("/srv/{{.KubernetesVersion", "not closed"),
            ("/srv/}}", "without"),
        ] {
            assert!(resolve(text, "1.36.3").unwrap_err().what.contains(word), "{text}: {:?}", resolve(text, "1.36.3"));
        }
    }

    #[test]
    fn artifacts_stay_inside_of_their_source() {
        assert!(artifact("runc/v1.3.6/runc.amd64").is_ok());
        for text in ["", "/a", "a/../b", "..", "./a", "a//b", "a/", "a\nb"] {
            assert!(artifact(text).is_err(), "{text}");
        }
    }
}

//! Versions of components and references of images.

use super::Fault;

/// A version without its `v`: `MAJOR.MINOR.PATCH`, with a pre-release or build part where there is one.
pub fn version(text: &str) -> Result<String, Fault> {
    let plain = text.trim().strip_prefix(['v', 'V']).unwrap_or(text.trim());
    let end = plain.find(['-', '+']).unwrap_or(plain.len());
    let (numbers, suffix) = plain.split_at(end);
    let number = |part: &str| !part.is_empty() && part.len() <= 9 && part.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<&str> = numbers.split('.').collect();
    let tail = suffix.bytes().all(|b| b.is_ascii_alphanumeric() || b".-+".contains(&b)) && suffix.len() <= 64;
    let ends = suffix.is_empty() || suffix.ends_with(|c: char| c.is_ascii_alphanumeric()) && suffix.len() > 1;
    if parts.iter().all(|part| number(part)) && tail && ends {
        match parts.len() {
            3 => return Ok(plain.to_owned()),
            2 => {
                return Err(Fault::new(format!("{text:?} has no patch number"), format!("write all of it, {plain}.0")));
            }
            _ => {}
        }
    }
    Err(Fault::new(format!("{text:?} is no version"), "write it as 1.36.3 or v1.36.3"))
}

/// A reference of an image, as containerd takes it: with a registry or at least a name, and with a tag or digest.
pub fn image(text: &str) -> Result<String, Fault> {
    let reference = text.trim();
    let fix = "write REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST";
    let (name, digest) = reference.split_once('@').map_or((reference, None), |(name, digest)| (name, Some(digest)));
    let (name, tag) = match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (name, None),
    };
    let (host, path) = name.split_once('/').unwrap_or(("", name));
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
    };
    let host_ok = host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]_".contains(&b));
    let tag_ok = |tag: &str| {
        (1..=128).contains(&tag.len()) && tag.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    let digest_ok = |digest: &str| {
        digest.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    if !host_ok || !path.split('/').all(part) || !tag.is_none_or(tag_ok) || !digest.is_none_or(digest_ok) {
        return Err(Fault::new(format!("{reference:?} is no reference of an image"), fix));
    }
    if tag.is_none() && digest.is_none() {
        return Err(Fault::new(format!("{reference:?} has neither tag nor digest"), fix));
    }
    Ok(reference.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_lose_their_v() {
        for (text, plain) in
            [("1.36.3", "1.36.3"), ("v1.36.3", "1.36.3"), (" v1.36.0-rc.1 ", "1.36.0-rc.1"), ("2.1.9+x", "2.1.9+x")]
        {
            assert_eq!(version(text).as_deref(), Ok(plain));
        }
        for text in [
            "",
            "v",
            "1",
            "1.36",
            "1.36.x",
            "latest",
            "1.2.3.4",
            "1.2.3-",
            "1.2.3/..",
            "1.2.3 4",
            "1.36.3\u{a0}x",
            "vv1.2.3",
        ] {
            assert!(version(text).is_err(), "{text}");
        }
        assert!(version("1.36").unwrap_err().fix.contains("1.36.0"));
        assert!(version("1.36.3\u{200b}").unwrap_err().what.contains("u{200b}"));
    }

    #[test]
    fn images_need_a_tag_or_digest() {
        let digest = format!("registry.example:5000/a/b@sha256:{}", "0".repeat(64));
        for text in ["pause:3.9", "registry.example/oss/pause:3.10", "registry.example:5000/a:x", digest.as_str()] {
            assert!(image(text).is_ok(), "{text}");
        }
        for text in [
            "",
            "pause",
            "registry.example:5000/a",
            "a b:1",
            "A/B:1",
            "a@sha256:0",
            "a:",
            "a/:1",
            "a//b:1",
            "https://a/b:1",
        ] {
            assert!(image(text).is_err(), "{text}");
        }
    }
}

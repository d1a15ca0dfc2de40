//! SHA-256 digests, computed while bytes pass.

use sha2::{Digest as _, Sha256};
use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

/// A SHA-256 digest. Shown and read as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// A text that is no SHA-256 digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 digest has 64 hexadecimal digits")]
pub struct DigestError;

impl Digest {
    /// The digest of bytes in memory.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
    /// The raw 32 bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{self}")
    }
}

impl FromStr for Digest {
    type Err = DigestError;
    /// Reads 64 hexadecimal digits of any case, with or without `sha256:` before them.
    fn from_str(text: &str) -> Result<Self, DigestError> {
        let text = text.strip_prefix("sha256:").unwrap_or(text).as_bytes();
        let mut digest = [0; 32];
        if text.len() != 64 {
            return Err(DigestError);
        }
        for (byte, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
            let digit =
                |at: usize| (pair[at] as char).to_digit(16).and_then(|d| u8::try_from(d).ok()).ok_or(DigestError);
            *byte = digit(0)? << 4 | digit(1)?;
        }
        Ok(Self(digest))
    }
}

/// Reads the content of a `.sha256` file: the first word is the digest, as sha256sum(1) writes it and as dl.k8s.io
/// publishes it (the digest alone).
pub fn parse_sidecar(bytes: &[u8]) -> Result<Digest, DigestError> {
    let text = std::str::from_utf8(bytes).map_err(|_| DigestError)?;
    text.split_ascii_whitespace().next().ok_or(DigestError)?.parse()
}

/// Computes a digest bit by bit.
#[derive(Clone, Default)]
pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    pub(crate) fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// Hashes and counts what is read through it.
pub(crate) struct HashingReader<R> {
    inner: R,
    hash: Hasher,
    count: u64,
}

impl<R: Read> HashingReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, hash: Hasher::default(), count: 0 }
    }
    pub(crate) fn finish(self) -> (Digest, u64) {
        (self.hash.finish(), self.count)
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.hash.update(&buffer[..n]);
        self.count += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_is_shown_as_it_is_read() {
        assert_eq!(Digest::of(b"").to_string(), EMPTY);
        assert_eq!(EMPTY.to_uppercase().parse(), Ok(Digest::of(b"")));
        assert_eq!(format!("sha256:{EMPTY}").parse(), Ok(Digest::of(b"")));
    }

    #[test]
    fn what_is_no_digest_is_refused() {
        for text in ["", "e3b0", &EMPTY[1..], &format!("{EMPTY}0"), &EMPTY.replace('e', "g"), &"é".repeat(32)] {
            assert_eq!(text.parse::<Digest>(), Err(DigestError), "{text}");
        }
    }

    #[test]
    fn a_sidecar_is_read_with_and_without_a_file_name() {
        for text in [EMPTY.to_owned(), format!("{EMPTY}\n"), format!("{EMPTY}  kubelet\n"), format!("\n{EMPTY} *a b\n")]
        {
            assert_eq!(parse_sidecar(text.as_bytes()), Ok(Digest::of(b"")), "{text}");
        }
        assert_eq!(parse_sidecar(b""), Err(DigestError));
        assert_eq!(parse_sidecar(b"<html>Not found</html>"), Err(DigestError));
        assert_eq!(parse_sidecar(&[0xff; 64]), Err(DigestError));
    }

    #[test]
    fn bytes_are_hashed_while_they_pass() {
        let mut reader = HashingReader::new(&b"0123456789"[..]);
        let mut some = [0; 3];
        reader.read_exact(&mut some).unwrap();
        io::copy(&mut reader, &mut io::sink()).unwrap();
        assert_eq!(reader.finish(), (Digest::of(b"0123456789"), 10));
    }
}

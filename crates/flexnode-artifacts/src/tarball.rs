//! A policy around tar archives: what comes out are names of regular files that lead nowhere, with bounded sizes.
//!
//! The tar reader runs in raw mode, so that extension headers are read here, with limits, and not whole into memory by
//! the library.

use crate::error::ArtifactError;
use flate2::bufread::MultiGzDecoder;
use std::collections::HashSet;
use std::io::{self, BufReader, Read};
use std::path::Path;
use tar::{Entry, EntryType, PaxExtensions};

/// Bytes that are read from the source at a time.
const BUFFER: usize = 1 << 20;
/// Largest extension header (a long name, a set of PAX records).
const MAX_EXTENSION: u64 = 64 << 10;
/// How many bytes of a stream tell what it is: the `ustar` mark ends at 265.
const PEEK: u64 = 512;

/// What an archive may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Entries of all kinds.
    pub entries: usize,
    /// Bytes of one member.
    pub member: u64,
    /// Bytes of the whole unpacked archive.
    pub total: u64,
    /// Whether links and devices are passed over rather than refused. They are never made.
    pub pass_over_links: bool,
}

impl Limits {
    /// For release archives of programs.
    pub(crate) const PROGRAMS: Limits =
        Limits { entries: 1_000, member: 1 << 30, total: 4 << 30, pass_over_links: false };
    /// For archives of container images; older programs write links for layers that occur twice.
    pub(crate) const IMAGES: Limits =
        Limits { entries: 100_000, member: 1 << 40, total: 1 << 40, pass_over_links: true };
}

/// A regular file in an archive.
#[derive(Debug)]
pub(crate) struct Member {
    /// Relative, without `./`; no component is empty, `.` or `..`.
    pub name: String,
    /// Whether somebody may execute it.
    pub executable: bool,
}

impl Member {
    /// The last component.
    pub(crate) fn file_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }
    /// The components before the last, `""` when there are none.
    pub(crate) fn directory(&self) -> &str {
        self.name.rsplit_once('/').map_or("", |(dir, _)| dir)
    }
}

/// How a stream is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// gzip (RFC 1952) around something.
    Gzip,
    /// A tar archive.
    Tar,
    /// An ELF program for the machine with this number (ELF header, `e_machine`).
    Elf(u16),
    /// Something else.
    Other,
}

impl Packing {
    /// Judges by the first bytes.
    pub(crate) fn of(head: &[u8]) -> Self {
        if head.starts_with(&[0x1f, 0x8b]) {
            Packing::Gzip
        } else if head.get(257..262) == Some(b"ustar") {
            Packing::Tar
        } else if head.starts_with(b"\x7fELF") && head.len() >= 20 {
            // Both architectures that are supported are little-endian.
            Packing::Elf(u16::from_le_bytes([head[18], head[19]]))
        } else {
            Packing::Other
        }
    }
}

/// Reads the first bytes without losing them.
pub(crate) fn peek<R: Read>(mut reader: R) -> io::Result<(Packing, impl Read)> {
    let mut head = Vec::new();
    reader.by_ref().take(PEEK).read_to_end(&mut head)?;
    Ok((Packing::of(&head), io::Cursor::new(head).chain(reader)))
}

/// Calls `each` for every regular file of the archive in `reader`, gzipped or not, and reads `reader` to its end.
///
/// Refused: absolute names, `..`, control characters, names that occur twice, links and devices (see
/// [`Limits::pass_over_links`]), more than the limits, bytes that are no archive.
pub(crate) fn walk(
    reader: &mut dyn Read,
    archive: &Path,
    limits: Limits,
    each: &mut dyn FnMut(&Member, &mut dyn Read) -> Result<(), ArtifactError>,
) -> Result<(), ArtifactError> {
    let unreadable = |source| unreadable(archive, source);
    let (packing, rest) = peek(reader).map_err(unreadable)?;
    let mut buffered = BufReader::with_capacity(BUFFER, rest);
    match packing {
        Packing::Gzip => {
            let mut plain = BufReader::with_capacity(BUFFER, MultiGzDecoder::new(&mut buffered));
            members(&mut plain, archive, limits, each)?;
        }
        Packing::Tar => members(&mut buffered, archive, limits, each)?,
        Packing::Elf(_) | Packing::Other => {
            return Err(ArtifactError::archive(archive, "it is no tar archive, neither plain nor gzipped"));
        }
    }
    io::copy(&mut buffered, &mut io::sink()).map_err(unreadable)?;
    Ok(())
}

fn unreadable(archive: &Path, source: io::Error) -> ArtifactError {
    let reason = "it is damaged or cut off, or cannot be read".to_owned();
    ArtifactError::Archive { path: archive.to_path_buf(), reason, source: Some(source) }
}

fn members(
    plain: &mut dyn Read,
    archive: &Path,
    limits: Limits,
    each: &mut dyn FnMut(&Member, &mut dyn Read) -> Result<(), ArtifactError>,
) -> Result<(), ArtifactError> {
    let refuse = |reason: String| Err(ArtifactError::archive(archive, reason));
    let mut bounded = Bounded { inner: plain, left: limits.total };
    let mut tar = tar::Archive::new(&mut bounded);
    let mut seen = HashSet::new();
    let mut long_name: Option<Vec<u8>> = None;
    let entries = tar.entries().map_err(|e| unreadable(archive, e))?.raw(true);
    for (count, entry) in entries.enumerate() {
        let mut entry = entry.map_err(|e| unreadable(archive, e))?;
        if count >= limits.entries {
            return refuse(format!("it has more than {} entries", limits.entries));
        }
        let kind = entry.header().entry_type();
        match extension(&mut entry, kind, archive)? {
            Extension::None => {}
            Extension::Name(name) => {
                long_name = Some(name);
                continue;
            }
            Extension::Other => continue,
        }
        let raw = long_name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
        let Some(name) = safe_name(&raw) else {
            return refuse(format!("the member name {:?} leads out of it", shorten(&raw)));
        };
        match kind {
            EntryType::Directory => continue,
            EntryType::Regular | EntryType::Continuous => {}
            _ if limits.pass_over_links => continue,
            _ => return refuse(format!("the member {name:?} is neither a file nor a directory")),
        }
        if entry.size() > limits.member {
            return refuse(format!("the member {name:?} is larger than {} MiB", limits.member >> 20));
        }
        if !seen.insert(name.clone()) {
            return refuse(format!("it has the member {name:?} twice"));
        }
        let executable = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
        each(&Member { name, executable }, &mut entry)?;
    }
    io::copy(&mut bounded, &mut io::sink()).map_err(|e| unreadable(archive, e))?;
    Ok(())
}

/// What an entry says of the next one.
enum Extension {
    /// Nothing: it is a member.
    None,
    /// Its name.
    Name(Vec<u8>),
    /// Something that does not matter here.
    Other,
}

/// Reads an extension header, if the entry is one.
fn extension<R: Read>(entry: &mut Entry<'_, R>, kind: EntryType, archive: &Path) -> Result<Extension, ArtifactError> {
    let pax = matches!(kind, EntryType::XHeader | EntryType::XGlobalHeader);
    if !pax && !matches!(kind, EntryType::GNULongName | EntryType::GNULongLink) {
        return Ok(Extension::None);
    }
    let mut bytes = Vec::new();
    entry.take(MAX_EXTENSION + 1).read_to_end(&mut bytes).map_err(|e| unreadable(archive, e))?;
    if bytes.len() as u64 > MAX_EXTENSION {
        return Err(ArtifactError::archive(archive, "it has an extension header larger than 64 KiB"));
    }
    if kind == EntryType::GNULongName {
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        return Ok(Extension::Name(bytes));
    }
    let mut name = None;
    for record in PaxExtensions::new(&bytes).filter(|_| pax) {
        let record = record.map_err(|e| unreadable(archive, e))?;
        match record.key_bytes() {
            b"path" => name = Some(record.value_bytes().to_vec()),
            // With these the bytes that follow are not those that the plain header announces.
            key if key == b"size" || key.starts_with(b"GNU.sparse.") => {
                return Err(ArtifactError::archive(archive, "it has members in a form that no release archive has"));
            }
            _ => {}
        }
    }
    Ok(name.map_or(Extension::Other, Extension::Name))
}

/// A member's name when it leads nowhere else than below the archive's own root.
fn safe_name(raw: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(raw).ok()?;
    if text.is_empty() || text.len() > 1024 || text.chars().any(|c| c.is_control() || c == '\\') {
        return None;
    }
    let text = text.strip_suffix('/').unwrap_or(text);
    let mut parts = Vec::new();
    for (at, part) in text.split('/').enumerate() {
        match part {
            "." if at == 0 => {}
            "" | "." | ".." => return None,
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn shorten(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw).chars().take(120).collect()
}

/// Fails after a number of bytes, where [`Read::take`] would only end.
struct Bounded<'a> {
    inner: &'a mut dyn Read,
    left: u64,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.left = self
            .left
            .checked_sub(n as u64)
            .ok_or_else(|| io::Error::new(io::ErrorKind::FileTooLarge, "it unpacks to more than any release does"))?;
        Ok(n)
    }
}

//! The log of a disk's writes and flushes, as QEMU's `blklogwrites` and the kernel's dm-log-writes write it
//! (Documentation/admin-guide/device-mapper/log-writes.rst): a head, then an entry for each request in the order in which
//! they were completed, each with the data that was written.
//!
//! This module only reads: it gives the places of the data, and no data.

use anyhow::{Context as _, Result, bail};
use std::io::{Read, Seek, SeekFrom};

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
/// Bytes of the head and of an entry that mean something; each fills a sector.
const HEAD: usize = 28;
const ENTRY: usize = 32;

/// What a request was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data that a power cut may take until the next flush.
    Write,
    /// Data that was on the disk when the request was completed.
    WriteThrough,
    /// All that was completed before it is on the disk.
    Flush,
    /// The data is not needed any more. Disks may leave it as it was.
    Discard,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it was.
    pub kind: Kind,
    /// Its place on the disk, in bytes.
    pub at: u64,
    /// How much, in bytes. A flush has nothing.
    pub len: u64,
    /// Where its data is in the log, in bytes.
    pub data: u64,
}

impl Entry {
    /// Whether it changes what a reader of the disk sees.
    pub fn writes(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::WriteThrough) && self.len > 0
    }

    /// Where the log went on after it, in bytes.
    pub fn end(&self) -> u64 {
        self.data + if self.kind == Kind::Discard { 0 } else { self.len }
    }
}

/// The entries of a log. The last one may be missing in part: the power went while it was written. Anything else that is no
/// log is an error.
pub fn read(log: &mut (impl Read + Seek)) -> Result<Vec<Entry>> {
    let size = log.seek(SeekFrom::End(0))?;
    log.seek(SeekFrom::Start(0))?;
    let mut head = [0; HEAD];
    log.read_exact(&mut head).context("the log of writes has no head")?;
    let sector = u64::from(u32::from_le_bytes([head[24], head[25], head[26], head[27]]));
    if number(&head, 0) != MAGIC || number(&head, 1) != VERSION {
        bail!("this is no log of writes of version {VERSION}");
    }
    if !sector.is_power_of_two() || !(512..=4096).contains(&sector) {
        bail!("the log of writes has sectors of {sector} bytes");
    }
    let promised = number(&head, 2);
    let mut entries = Vec::new();
    let mut at = sector;
    while at + sector <= size {
        let mut bytes = [0; ENTRY];
        log.seek(SeekFrom::Start(at))?;
        log.read_exact(&mut bytes)?;
        if bytes == [0; ENTRY] {
            break;
        }
        let entry = entry(&bytes, sector, at).with_context(|| format!("entry {} of the log", entries.len()))?;
        if entry.end() > size {
            break;
        }
        at = entry.end();
        entries.push(entry);
    }
    // The head is written now and then only, so that it may promise less than there is.
    if (entries.len() as u64) < promised {
        bail!("the log of writes has a hole: {} entries before it, {promised} are promised", entries.len());
    }
    Ok(entries)
}

fn entry(bytes: &[u8; ENTRY], sector: u64, at: u64) -> Result<Entry> {
    let flags = number(bytes, 2);
    let kind = match flags {
        0 => Kind::Write,
        FUA => Kind::WriteThrough,
        DISCARD => Kind::Discard,
        _ if flags & !(FLUSH | FUA) == 0 && number(bytes, 1) == 0 => Kind::Flush,
        _ if flags & MARK != 0 => bail!("it is a mark, which only the kernel writes"),
        _ => bail!("its flags are {flags:#x}"),
    };
    let scaled = |n: u64| n.checked_mul(sector).filter(|bytes| *bytes < 1 << 62);
    let (Some(place), Some(len)) = (scaled(number(bytes, 0)), scaled(number(bytes, 1))) else {
        bail!("it is out of any disk: sector {}, {} sectors", number(bytes, 0), number(bytes, 1));
    };
    Ok(Entry { kind, at: place, len, data: at + sector })
}

/// The number `index` of a head or an entry, which are numbers of 64 bits.
fn number(bytes: &[u8], index: usize) -> u64 {
    let word = bytes.get(index * 8..index * 8 + 8).and_then(|word| word.try_into().ok());
    u64::from_le_bytes(word.unwrap_or_default())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::io::Cursor;

    /// A log with sectors of 512 bytes: kind's flags, first sector, data.
    pub fn log(entries: &[(u64, u64, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let pad = |bytes: &mut Vec<u8>| bytes.resize(bytes.len().next_multiple_of(512), 0);
        for number in [MAGIC, VERSION, entries.len() as u64] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(512u32.to_le_bytes());
        pad(&mut bytes);
        for (flags, sector, data) in entries {
            for number in [*sector, data.len() as u64 / 512, *flags, 0] {
                bytes.extend(number.to_le_bytes());
            }
            pad(&mut bytes);
            if *flags != DISCARD {
                bytes.extend(*data);
            }
        }
        bytes
    }

    fn kinds(bytes: Vec<u8>) -> Vec<(Kind, u64, u64)> {
        read(&mut Cursor::new(bytes)).unwrap().into_iter().map(|e| (e.kind, e.at, e.len)).collect()
    }

    fn refusal(bytes: Vec<u8>) -> String {
        format!("{:#}", read(&mut Cursor::new(bytes)).unwrap_err())
    }

    const DATA: [u8; 1024] = [7; 1024];

    #[test]
    fn requests_are_read_in_their_order() {
        let bytes = log(&[(0, 8, &DATA), (FLUSH, 0, &[]), (FUA, 2, &DATA[..512]), (DISCARD, 9, &DATA), (0, 1, &DATA)]);
        let wanted = [
            (Kind::Write, 4096, 1024),
            (Kind::Flush, 0, 0),
            (Kind::WriteThrough, 1024, 512),
            (Kind::Discard, 4608, 1024),
            (Kind::Write, 512, 1024),
        ];
        assert_eq!(kinds(bytes.clone()), wanted);
        let entries = read(&mut Cursor::new(&bytes)).unwrap();
        for entry in entries.iter().filter(|entry| entry.writes()) {
            let data = usize::try_from(entry.data).unwrap();
            assert_eq!(bytes[data..data + 512], DATA[..512]);
        }
        assert_eq!(entries[4].end(), bytes.len() as u64);
    }

    #[test]
    fn an_entry_that_the_power_cut_off_is_left_out() {
        let mut bytes = log(&[(0, 8, &DATA)]);
        let whole = bytes.len();
        bytes.extend(&log(&[(0, 8, &DATA)])[512..]);
        for end in [whole + 100, whole + 512, whole + 1000] {
            assert_eq!(kinds(bytes[..end].to_vec()).len(), 1, "{end}");
        }
        bytes.truncate(whole);
        // The file may have grown and its content not come.
        bytes.resize(whole + 5000, 0);
        assert_eq!(kinds(bytes).len(), 1);
        assert_eq!(kinds(log(&[])), []);
    }

    #[test]
    fn what_is_no_log_is_refused() {
        assert_eq!(refusal(Vec::new()), "the log of writes has no head: failed to fill whole buffer");
        assert_eq!(refusal(vec![1; 600]), "this is no log of writes of version 1");
        let mut sectors = log(&[]);
        sectors[24..28].copy_from_slice(&0u32.to_le_bytes());
        assert_eq!(refusal(sectors), "the log of writes has sectors of 0 bytes");
        let mut promised = log(&[(0, 8, &DATA)]);
        promised[16] = 3;
        assert_eq!(refusal(promised), "the log of writes has a hole: 1 entries before it, 3 are promised");
        assert_eq!(refusal(log(&[(16, 8, &DATA)])), "entry 0 of the log: its flags are 0x10");
        assert_eq!(refusal(log(&[(8, 8, &DATA)])), "entry 0 of the log: it is a mark, which only the kernel writes");
    }

    #[test]
    fn no_number_in_an_entry_breaks_the_reader() {
        for index in 0..3 {
            for number in [1, 1 << 31, 1 << 54, 1 << 62, u64::MAX, u64::MAX / 512] {
                let mut bytes = log(&[(0, 8, &DATA), (FLUSH, 0, &[])]);
                bytes[512 + index * 8..520 + index * 8].copy_from_slice(&u64::to_le_bytes(number));
                // Any answer but a panic; nothing is given that lies outside of the log.
                let size = bytes.len() as u64;
                for entry in read(&mut Cursor::new(bytes)).unwrap_or_default() {
                    assert!(entry.end() <= size, "{entry:?}");
                }
            }
        }
    }
}

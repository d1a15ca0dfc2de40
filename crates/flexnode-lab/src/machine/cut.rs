//! The disk that a power cut leaves, at any moment of a log of its writes.
//!
//! What a flush confirmed is there. Of what was written after the last flush before the moment, each block of 4 KiB is there
//! or not: a disk with a cache writes in any order and loses what it did not write. A seed decides.
//!
//! It is made in place: what one state changes is kept and put back before the next one, and moments only go forward, so
//! that a state costs what was not flushed and no copy of the disk.

use super::log::{self, Entry, Kind};
use anyhow::{Context as _, Result, bail};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// What is there or not as a whole.
const BLOCK: u64 = 4096;
/// The longest request that is taken as one piece from the log.
const PIECE: usize = 1 << 20;

/// A disk and the log of what was written to it.
#[derive(Debug)]
pub struct Disk {
    image: File,
    log: File,
    entries: Vec<Entry>,
    /// So many entries are on the disk for good.
    settled: usize,
    /// What the present state replaced, oldest first.
    undo: Vec<(u64, Vec<u8>)>,
}

/// What a state consists of beside all that was flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Blocks that were written after the last flush and are there.
    pub kept: u64,
    /// Blocks that were written after the last flush and are lost.
    pub lost: u64,
}

impl Disk {
    /// `image` is the disk as it was when the log began. It is changed.
    pub fn open(image: &Path, log: &Path) -> Result<Self> {
        let open = |path: &Path, write: bool| {
            let file = File::options().read(true).write(write).open(path);
            file.with_context(|| format!("cannot open {}", path.display()))
        };
        let (image, mut log) = (open(image, true)?, open(log, false)?);
        let entries = log::read(&mut log)?;
        let size = image.metadata()?.len();
        if let Some(entry) = entries.iter().find(|entry| entry.writes() && entry.at + entry.len > size) {
            bail!("the log writes at {}, and the disk has {size} bytes", entry.at);
        }
        Ok(Self { image, log, entries, settled: 0, undo: Vec::new() })
    }

    /// The first moment at which the log was at least so long, in bytes: a moment is a number of entries.
    pub fn moment_of(&self, mark: u64) -> usize {
        self.entries.partition_point(|entry| entry.end() <= mark)
    }

    /// The last moment.
    pub fn end(&self) -> usize {
        self.entries.len()
    }

    /// The requests.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Makes the disk's state when the power went after so many entries. The state before has to be undone, and no moment
    /// may be before one that was made already.
    pub fn cut(&mut self, moment: usize, seed: u64) -> Result<Made> {
        if !self.undo.is_empty() {
            bail!("the state before was not undone");
        }
        let before = self.entries.get(..moment).context("the log is not so long")?;
        let flushed = before.iter().rposition(|entry| entry.kind == Kind::Flush).map_or(0, |last| last + 1);
        if flushed < self.settled {
            bail!("moment {moment} is before one that was made already");
        }
        for index in self.settled..flushed {
            self.play(self.entries[index])?;
        }
        self.settled = flushed;
        let mut chance = Chance::new(seed, moment as u64);
        let mut made = Made::default();
        for index in flushed..moment {
            let entry = self.entries[index];
            if entry.kind != Kind::Write {
                self.save(entry.at, if entry.writes() { entry.len } else { 0 })?;
                self.play(entry)?;
                continue;
            }
            for (at, len) in blocks(entry) {
                if chance.keeps() {
                    self.save(at, len)?;
                    self.copy(entry.data + (at - entry.at), at, len)?;
                    made.kept += 1;
                } else {
                    made.lost += 1;
                }
            }
        }
        Ok(made)
    }

    /// Puts back what the present state changed. Whatever else wrote to the disk has put that back before.
    pub fn undo(&mut self) -> Result<()> {
        while let Some((at, bytes)) = self.undo.pop() {
            self.image.write_all_at(&bytes, at)?;
        }
        Ok(())
    }

    fn save(&mut self, at: u64, len: u64) -> Result<()> {
        if len > 0 {
            let mut bytes = vec![0; usize::try_from(len)?];
            self.image.read_exact_at(&mut bytes, at)?;
            self.undo.push((at, bytes));
        }
        Ok(())
    }

    fn play(&self, entry: Entry) -> Result<()> {
        if entry.writes() { self.copy(entry.data, entry.at, entry.len) } else { Ok(()) }
    }

    fn copy(&self, from: u64, to: u64, len: u64) -> Result<()> {
        let mut done = 0;
        let mut buffer = vec![0; usize::try_from(len)?.min(PIECE)];
        while done < len {
            let piece = usize::try_from(len - done)?.min(PIECE);
            self.log.read_exact_at(&mut buffer[..piece], from + done)?;
            self.image.write_all_at(&buffer[..piece], to + done)?;
            done += piece as u64;
        }
        Ok(())
    }
}

/// The parts of a request that lie in different blocks of the disk: place and length in bytes.
fn blocks(entry: Entry) -> impl Iterator<Item = (u64, u64)> {
    let end = entry.at + entry.len;
    let mut at = entry.at;
    std::iter::from_fn(move || {
        let next = ((at / BLOCK + 1) * BLOCK).min(end);
        let part = (at, next - at);
        at = next;
        (part.1 > 0).then_some(part)
    })
}

/// Decides block by block; the same seed and moment decide the same.
#[derive(Debug)]
struct Chance {
    state: u64,
    /// Of 16 blocks so many are kept.
    share: u64,
}

impl Chance {
    fn new(seed: u64, moment: u64) -> Self {
        let mut chance = Self { state: seed ^ moment.wrapping_mul(0xd6e8_feb8_6659_fd93), share: 0 };
        // Nothing at all, nearly nothing, half, nearly all, all: each finds other faults.
        chance.share = [0, 1, 8, 8, 15, 16][usize::try_from(chance.next() % 6).unwrap_or(0)];
        chance
    }

    fn keeps(&mut self) -> bool {
        self.next() % 16 < self.share
    }

    /// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::log::tests::log;
    use std::collections::BTreeSet;
    use tempfile::TempDir;

    const FLUSH: u64 = 1;
    const FUA: u64 = 2;
    const DISCARD: u64 = 4;

    fn disk(entries: &[(u64, u64, &[u8])]) -> (TempDir, Disk) {
        let folder = tempfile::tempdir().unwrap();
        let (image, log_file) = (folder.path().join("image"), folder.path().join("log"));
        std::fs::write(&image, vec![b'.'; 8 * 4096]).unwrap();
        std::fs::write(&log_file, log(entries)).unwrap();
        let disk = Disk::open(&image, &log_file).unwrap();
        (folder, disk)
    }

    /// The first letter of each block.
    fn seen(folder: &TempDir) -> String {
        let bytes = std::fs::read(folder.path().join("image")).unwrap();
        bytes.chunks(4096).map(|block| char::from(block[0])).collect()
    }

    fn block(letter: u8) -> Vec<u8> {
        vec![letter; 4096]
    }

    #[test]
    fn what_was_flushed_is_there_and_what_was_not_may_be_lost() {
        let (a, b, c) = (block(b'a'), block(b'b'), block(b'c'));
        let entries: [(u64, u64, &[u8]); 5] = [(0, 0, &a), (0, 8, &b), (FLUSH, 0, &[]), (0, 0, &c), (0, 16, &c)];
        let mut ends = BTreeSet::new();
        let (folder, mut disk) = disk(&entries);
        for seed in 0..64 {
            let made = disk.cut(5, seed).unwrap();
            assert_eq!(made.kept + made.lost, 2);
            ends.insert(seen(&folder));
            disk.undo().unwrap();
            assert_eq!(seen(&folder), "ab......", "the flushed state is back");
        }
        let all = ["ab......", "abc.....", "cb......", "cbc....."].map(str::to_owned);
        assert_eq!(ends, BTreeSet::from(all), "later ones are there without earlier ones");
    }

    #[test]
    fn before_the_flush_nothing_is_sure_and_moments_go_forward() {
        let (a, b) = (block(b'a'), block(b'b'));
        let entries: [(u64, u64, &[u8]); 4] = [(0, 0, &a), (FLUSH, 0, &[]), (0, 0, &b), (FLUSH, 0, &[])];
        let (folder, mut disk) = disk(&entries);
        let mut ends = BTreeSet::new();
        for seed in 0..32 {
            disk.cut(1, seed).unwrap();
            ends.insert(seen(&folder));
            disk.undo().unwrap();
        }
        assert_eq!(ends, BTreeSet::from(["........", "a......."].map(str::to_owned)));
        disk.cut(4, 1).unwrap();
        assert_eq!(seen(&folder), "b.......");
        disk.undo().unwrap();
        let back = disk.cut(3, 1).unwrap_err().to_string();
        assert_eq!(back, "moment 3 is before one that was made already");
        assert_eq!(disk.cut(5, 1).unwrap_err().to_string(), "the log is not so long");
    }

    #[test]
    fn a_block_is_torn_only_at_its_borders_and_what_was_written_through_stays() {
        let long: Vec<u8> = [block(b'a'), block(b'b'), block(b'c')].concat();
        let w = block(b'w');
        // The first request begins in the middle of a block.
        let entries: [(u64, u64, &[u8]); 3] = [(0, 4, &long), (FUA, 56, &w), (DISCARD, 56, &w)];
        let (folder, mut disk) = disk(&entries);
        let mut ends = BTreeSet::new();
        for seed in 0..200 {
            let made = disk.cut(3, seed).unwrap();
            assert_eq!(made.kept + made.lost, 4, "half a block at each end");
            let bytes = std::fs::read(folder.path().join("image")).unwrap();
            assert_eq!(bytes[7 * 4096..], w);
            ends.insert([1000, 3000, 5000, 7000, 9000, 13000].map(|at| char::from(bytes[at])));
            for pair in [[4096, 6000], [6200, 8100], [2100, 4000]] {
                let there = pair.map(|at| bytes[at] != b'.');
                assert_eq!(there[0], there[1], "half of a block's data at {pair:?}");
            }
            disk.undo().unwrap();
        }
        assert!(ends.len() > 8, "{ends:?}");
    }

    #[test]
    fn the_same_seed_makes_the_same_state() {
        let blocks: Vec<Vec<u8>> = (b'a'..=b'h').map(block).collect();
        let entries: Vec<(u64, u64, &[u8])> = (0..8).zip(&blocks).map(|(i, block)| (0, i * 8, &block[..])).collect();
        let states = || {
            let (folder, mut disk) = disk(&entries);
            let mut make = |(moment, seed)| {
                disk.cut(moment, seed).unwrap();
                let state = seen(&folder);
                disk.undo().unwrap();
                state
            };
            [(3, 7), (8, 7), (8, 8), (8, 9), (8, 10)].map(&mut make)
        };
        assert_eq!(states(), states());
        assert!(BTreeSet::from(states()).len() > 2, "{:?}", states());
    }

    #[test]
    fn a_log_of_another_disk_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (image, log_file) = (folder.path().join("image"), folder.path().join("log"));
        std::fs::write(&image, [0; 4096]).unwrap();
        std::fs::write(&log_file, log(&[(0, 8, &block(b'a'))])).unwrap();
        let refused = Disk::open(&image, &log_file).unwrap_err().to_string();
        assert_eq!(refused, "the log writes at 4096, and the disk has 4096 bytes");
    }
}

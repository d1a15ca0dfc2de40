//! What a power cut may leave: a model of the disk below [`MemFs`].
//!
//! It knows what was synced, and of everything else only what POSIX promises, not what one kernel happens to do. Each thing
//! that was not synced is a [`Doubt`], resolved on its own: by a seed, or one by one.
//!
//! The rules, with their sources (POSIX is IEEE Std 1003.1-2024; the man pages are those of Linux man-pages):
//!
//! 1. **A sync of a file** brings its content, mode, owner, attributes and size to the device, and nothing else: not its
//!    name (fsync(2): "Calling fsync() does not necessarily ensure that the entry in the directory containing the file has
//!    also reached disk"; POSIX fsync: data and file attributes of the open file description).
//! 2. **A sync of a directory** brings its own mode and all its names to the device (fsync(2), the same sentence: an explicit
//!    fsync of the directory is needed, and is enough). It does not bring the content of what the names lead to.
//! 3. **A change of a name** that was not synced (creation, link, removal, rename) is on the device or is not, each on its
//!    own, in any order (POSIX says nothing of the order in which directories reach the device). A later change of the same
//!    name may be there without an earlier one.
//! 4. **A rename in one directory** is whole: both names have changed or none has (POSIX rename: the new name refers to the
//!    old file or the new one throughout; rename(2)). It may be lost, and it may be there before the content of the file. A
//!    rename between two directories is there, is not there, or left both names; when the directory that was left is synced
//!    alone, the thing may have no name.
//! 5. **Content** that was not synced: the file ends at any of the lengths that it had, or between; each block of 4096 bytes
//!    that was written has the new bytes, is zero, or has what the device held there before (POSIX write makes no promise
//!    without fsync or `O_SYNC`). What was synced is not damaged by a later append.
//! 6. **Mode, owner and attributes** that were not synced are the old ones or the new ones; those of an inode that was never
//!    synced are 0 or the new ones (open(2) gives the mode at creation, but the agent's exact mode is a second call).
//! 7. **A symbolic link** has its text as soon as it has its name: there is no call that syncs a link (fsync(2) takes no
//!    descriptor that was opened with `O_PATH`), so nothing could be promised otherwise.
//! 8. Content in place is never written over: [`crate::Fs`] has no call for it, so "old" data of rule 5 is what the device
//!    held before the file.
//!
//! A recording ([`MemFs::record`]) keeps the disk after every change of one run; [`History::cut`] makes what a power cut at
//! any of these moments leaves, without running anything again.

mod device;
mod seed;

pub(super) use device::{Device, Part};
pub use seed::Seed;

use super::{MemFs, Op};
use std::path::PathBuf;

/// What a power cut leaves of that which was not synced. POSIX allows any mixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing: names and content are those of the last syncs.
    Lazy,
    /// All names, but content, modes and owners only as synced: new files that were not are empty.
    Eager,
    /// A mixture, the same one for the same seed.
    Seed(u64),
}

/// What is not known of the device at a power cut, because it was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A change of a name: 0 is there, 1 is not.
    Name,
    /// A rename between two directories: 0 is there, 1 both names, 2 is not there.
    Names,
    /// Mode, owner and attributes: 0 new, 1 old.
    Inode,
    /// The length of a file: 0 whole, the last as it was before, others between.
    Length(u32),
    /// A block of a file: 0 written, 1 zero, 2 what the device held before.
    Block,
}

impl Doubt {
    /// How many answers there are; 0 is always what the running system saw, the last is what was synced.
    pub fn answers(self) -> u32 {
        match self {
            Doubt::Name | Doubt::Inode => 2,
            Doubt::Names | Doubt::Block => 3,
            Doubt::Length(answers) => answers,
        }
    }

    fn told(self, answer: u32) -> &'static str {
        match (self, answer) {
            (Doubt::Name | Doubt::Names | Doubt::Inode, 0) => "is on the device",
            (Doubt::Names, 1) => "left both names",
            (Doubt::Name | Doubt::Names, _) => "is lost",
            (Doubt::Inode, _) => "is lost: mode, owner and attributes are the old ones",
            (Doubt::Length(_), 0) => "the file has its whole length",
            (Doubt::Length(answers), answer) if answer + 1 < answers => "the file is cut off",
            (Doubt::Length(_), _) => "nothing of it is on the device",
            (Doubt::Block, 0) => "a block of it is on the device",
            (Doubt::Block, 1) => "a block of it is zero",
            (Doubt::Block, _) => "a block of it holds what the device held before",
        }
    }
}

/// Where answers come from.
#[derive(Clone, Debug)]
enum Source {
    Lazy,
    Eager,
    Seeded { seed: Seed, style: Style },
    Given(Vec<u32>),
}

/// How a seed answers: the ends are where faults lie, a plain coin hardly ever gets there.
#[derive(Clone, Copy, Debug)]
enum Style {
    AllLost,
    NamesOnly,
    /// One in this many is lost.
    Lost(u64),
    /// One in this many is there.
    Kept(u64),
    /// Each answer as likely as another.
    Even,
}

/// Answers the doubts of one power cut and keeps the answers.
#[derive(Clone, Debug)]
pub struct Doubts {
    source: Source,
    answers: Vec<u32>,
    told: Option<Vec<String>>,
}

impl Doubts {
    fn from(source: Source) -> Self {
        Self { source, answers: Vec::new(), told: None }
    }

    /// Those of a cut.
    pub fn of_cut(cut: Cut) -> Self {
        Self::from(match cut {
            Cut::Lazy => Source::Lazy,
            Cut::Eager => Source::Eager,
            Cut::Seed(seed) => {
                let mut seed = Seed::new(seed);
                let style = match seed.below(8) {
                    0 => Style::AllLost,
                    1 => Style::NamesOnly,
                    2 => Style::Lost(8),
                    3 => Style::Kept(8),
                    4 => Style::Lost(3),
                    _ => Style::Even,
                };
                Source::Seeded { seed, style }
            }
        })
    }

    /// These answers in order; where they end, everything is on the device.
    pub fn given(answers: &[u32]) -> Self {
        Self::from(Source::Given(answers.to_vec()))
    }

    fn telling(mut self) -> Self {
        self.told = Some(Vec::new());
        self
    }

    /// What was answered so far.
    pub fn answers(&self) -> &[u32] {
        &self.answers
    }

    /// Resolves a doubt about what `at` did.
    fn resolve(&mut self, doubt: Doubt, at: &(Op, PathBuf)) -> u32 {
        let last = doubt.answers() - 1;
        let answer = match &mut self.source {
            Source::Lazy => last,
            Source::Eager => match doubt {
                Doubt::Name | Doubt::Names => 0,
                _ => last,
            },
            Source::Seeded { seed, style } => match (*style, doubt) {
                (Style::NamesOnly, Doubt::Name | Doubt::Names) => 0,
                (Style::AllLost | Style::NamesOnly, _) => last,
                (Style::Lost(often), _) if seed.below(often) != 0 => 0,
                (Style::Kept(often), _) if seed.below(often) == 0 => 0,
                _ => u32::try_from(seed.below(u64::from(doubt.answers()))).unwrap_or(0),
            },
            Source::Given(given) => given.get(self.answers.len()).copied().unwrap_or(0).min(last),
        };
        self.answers.push(answer);
        if let Some(told) = &mut self.told {
            told.push(format!("{} {}: {}", at.0.verb(), at.1.display(), doubt.told(answer)));
        }
        answer
    }
}

/// The disk after one change or sync of a recorded run.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    after: (Op, PathBuf),
    device: Device,
}

impl Moment {
    pub(super) fn new(after: (Op, PathBuf), device: Device) -> Self {
        Self { after, device }
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }
}

/// A recorded run: the disk as it was after each change and sync.
#[derive(Clone, Debug)]
pub struct History {
    at_end: MemFs,
    moments: Vec<Moment>,
}

impl History {
    pub(super) fn new(at_end: MemFs, moments: Vec<Moment>) -> Self {
        Self { at_end, moments }
    }

    /// How many moments there are: before the first change, and after each. At least 1 when something was recorded.
    pub fn moments(&self) -> usize {
        self.moments.len()
    }

    /// What is there when the power went at this moment and the doubts were resolved so.
    ///
    /// # Panics
    /// When there is no such moment.
    pub fn cut(&self, moment: usize, doubts: &mut Doubts) -> MemFs {
        self.at_end.after_moment(&self.moments[moment], doubts)
    }

    /// How many things are in doubt at this moment.
    pub fn doubts(&self, moment: usize) -> usize {
        self.moments[moment].device.pending()
    }

    /// The changes and syncs up to a moment, since the last one at which nothing was in doubt, and what became of those
    /// that were not synced: for a person who looks for the fault.
    pub fn tell(&self, moment: usize, answers: &[u32]) -> Vec<String> {
        let settled = (0..=moment).rev().find(|at| self.doubts(*at) == 0).unwrap_or(0);
        let mut lines: Vec<String> = self.moments[settled + usize::from(settled < moment)..=moment]
            .iter()
            .map(|moment| format!("{:?} {}", moment.after.0, moment.after.1.display()))
            .collect();
        lines.push(format!("the power goes (moment {moment} of {})", self.moments.len()));
        let mut doubts = Doubts::given(answers).telling();
        self.moments[moment].device.left(&mut doubts);
        lines.extend(doubts.told.unwrap_or_default());
        lines
    }
}

#[cfg(test)]
mod tests;

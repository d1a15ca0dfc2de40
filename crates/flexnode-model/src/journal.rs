//! The record that an operation keeps in the journal, so that a crash at any instant can be finished.
//!
//! One record per operation. It is written durably before the first change and at each boundary between steps. The
//! engine knows what the steps mean; this is only the document.

use crate::document::{self, DocumentError};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Its steps run, or were interrupted.
    Running,
    /// Its way back runs, or was interrupted.
    RollingBack,
    /// It ended; [`JournalRecord::outcome`] says how.
    Closed,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ending {
    /// All steps are done.
    Done,
    /// A step failed and nothing was taken back; running the operation again goes on.
    Failed,
    /// A step failed and what was there before runs again.
    RolledBack,
    /// A step failed and the way back had errors too.
    RollbackFailed,
    /// A person ended it before the node was touched.
    Cancelled,
    /// It did not end, and another operation took its place (a reset after a failed start).
    Superseded,
}

/// What a failure or a crash of an operation leads to. A record says it, because who finishes the operation may be another
/// process than the one that was told how a person wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// It is run again.
    Resume,
    /// Once the node was touched it is run again; before that it just ends.
    Forward,
    /// Once the node was touched it goes back; before that it just ends.
    RollBack,
}

/// One operation in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalRecord {
    /// Format of this document: [`JournalRecord::VERSION`].
    pub version: u32,
    /// Identity of the operation; stays the same over its attempts.
    pub id: String,
    /// `start`, `upgrade`, `reset`, ...
    pub operation: String,
    /// 1 for the first, one more each time it is taken up again.
    pub attempt: u32,
    /// Fingerprint of the goal; empty when the operation has none.
    #[serde(default)]
    pub goal: String,
    /// Slot that is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Slot that is gone to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The step that is about to run, or ran last. Of the way back while rolling back. Empty before the first.
    #[serde(default)]
    pub step: String,
    /// Where it stands.
    pub phase: Phase,
    /// How it ended; only when closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Ending>,
    /// What went wrong: the reason of the way back or of the end. No secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The step that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_step: Option<String>,
    /// What a failure or a crash leads to. Records of version 1 do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// Its way back began because its process was killed or the machine went down, not because a step failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// Identity of the boot in which it was last written.
    pub boot_id: String,
    /// Process that runs it.
    pub pid: u32,
    /// What that process is, for a person: `command`, `daemon`.
    pub owner: String,
    /// When the operation began (first attempt).
    pub started: Timestamp,
    /// When the record was last written.
    pub updated: Timestamp,
}

/// Who writes a record, and when: what [`JournalRecord`] takes from the outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Identity of this boot.
    pub boot_id: String,
    /// This process.
    pub pid: u32,
    /// `command` or `daemon`.
    pub owner: String,
}

/// What an operation is about, when its record is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// `start`, `upgrade`, `reset`, ...
    pub operation: String,
    /// Fingerprint of the goal; empty when it has none.
    pub goal: String,
    /// Slot that is left.
    pub from: Option<String>,
    /// Slot that is gone to.
    pub to: Option<String>,
    /// What a failure or a crash leads to.
    pub answer: Option<Answer>,
}

impl JournalRecord {
    /// The format that is written. Version 1 has neither `answer` nor `interrupted` and is read too.
    pub const VERSION: u32 = 2;
    const OLDEST: u32 = 1;
    const KIND: &'static str = "journal record";

    /// A record of an operation that is about to run its first step.
    pub fn open(id: impl Into<String>, subject: Subject, by: &Writer, now: Timestamp) -> Self {
        Self {
            version: Self::VERSION,
            id: id.into(),
            operation: subject.operation,
            attempt: 1,
            goal: subject.goal,
            from: subject.from,
            to: subject.to,
            step: String::new(),
            phase: Phase::Running,
            outcome: None,
            error: None,
            failed_step: None,
            answer: subject.answer,
            interrupted: false,
            boot_id: by.boot_id.clone(),
            pid: by.pid,
            owner: by.owner.clone(),
            started: now,
            updated: now,
        }
    }

    /// Takes an unfinished record up again: another attempt, by another process.
    pub fn take_up(&mut self, by: &Writer, now: Timestamp) {
        self.version = Self::VERSION;
        self.attempt = self.attempt.saturating_add(1);
        self.boot_id.clone_from(&by.boot_id);
        self.pid = by.pid;
        self.owner.clone_from(&by.owner);
        if self.phase == Phase::Running {
            self.error = None;
            self.failed_step = None;
        }
        self.updated = now;
    }

    /// The present step failed and nothing is taken back: the record stays open, running the operation again goes on.
    pub fn fail(&mut self, error: impl Into<String>, now: Timestamp) {
        self.failed_step = Some(self.step.clone());
        self.error = Some(error.into());
        self.updated = now;
    }

    /// `step` is about to run.
    pub fn enter(&mut self, step: &str, now: Timestamp) {
        step.clone_into(&mut self.step);
        self.updated = now;
    }

    /// The present step failed and the way back begins.
    pub fn roll_back(&mut self, error: impl Into<String>, now: Timestamp) {
        self.failed_step = Some(std::mem::take(&mut self.step));
        self.error = Some(error.into());
        self.phase = Phase::RollingBack;
        self.updated = now;
    }

    /// As [`JournalRecord::roll_back`], for an operation that no step failed: it was interrupted at the present one.
    pub fn roll_back_interrupted(&mut self, error: impl Into<String>, now: Timestamp) {
        self.roll_back(error, now);
        self.interrupted = true;
    }

    /// The operation ended. An error that is given is added to one that is already there.
    pub fn close(&mut self, outcome: Ending, error: Option<String>, now: Timestamp) {
        self.phase = Phase::Closed;
        self.outcome = Some(outcome);
        self.error = match (self.error.take(), error) {
            (Some(first), Some(second)) => Some(format!("{first}; {second}")),
            (first, second) => first.or(second),
        };
        if outcome != Ending::Done && self.failed_step.is_none() {
            self.failed_step = Some(self.step.clone());
        }
        self.updated = now;
    }

    /// It has not ended: a process runs it, or was interrupted.
    pub fn is_open(&self) -> bool {
        self.phase != Phase::Closed
    }

    /// It is open and its process did not end it: killed, or the power failed. An operation that ended as failed and keeps
    /// its record is open but not interrupted; a person goes on with it.
    pub fn is_interrupted(&self) -> bool {
        match self.phase {
            Phase::Running => self.failed_step.is_none(),
            Phase::RollingBack => true,
            Phase::Closed => false,
        }
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<Self, DocumentError> {
        document::decode_since(bytes, Self::KIND, Self::OLDEST, Self::VERSION)
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        document::encode(self)
    }
}

//! Exit codes, in one place. Scripts and units depend on them.

use std::process::ExitCode;

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, also when there was nothing to do.
    Done = 0,
    /// It failed or was cancelled; what was said on standard error tells how to go on.
    Failed = 1,
    /// The command line or the configuration is wrong, or this is not root. Nothing was changed.
    Usage = 2,
    /// `status`: the node runs, but not as it should.
    Degraded = 3,
    /// `status`: this host is not a node.
    NotANode = 4,
    /// It has to be confirmed, and there is no terminal and no `--yes`. Nothing was changed.
    Unconfirmed = 5,
    /// Another operation runs on this host. Nothing was changed.
    Busy = 6,
    /// It failed and was rolled back: the old version runs.
    RolledBack = 7,
    /// The host has joined, but its Node was not Ready in time. Nothing was undone.
    NotReady = 8,
}

impl Exit {
    /// The number.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_the_documents() {
        let all = [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::Degraded,
            Exit::NotANode,
            Exit::Unconfirmed,
            Exit::Busy,
            Exit::RolledBack,
            Exit::NotReady,
        ];
        let codes: Vec<u8> = all.map(Exit::code).to_vec();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
}

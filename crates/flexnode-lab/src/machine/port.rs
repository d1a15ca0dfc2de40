//! Commands through a virtio-serial port of the machine: it needs no network, no package and no key in the guest.
//!
//! The host's side is a pair of FIFOs and no socket: QEMU opens both ends itself, so the port is always connected, and what
//! is sent while the guest boots waits for it.

use crate::interrupt;
use crate::process::Process;
use crate::run::Output;
use anyhow::{Context as _, Result, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a wait looks whether the machine still runs.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// The host's side of a port.
#[derive(Debug)]
pub(super) struct Port {
    requests: File,
    answers: File,
    /// Read, and not a whole line yet.
    begun: Vec<u8>,
    count: u64,
}

impl Port {
    /// Makes `NAME.in` and `NAME.out` anew, for QEMU to open.
    pub fn create(name: &Path) -> Result<Self> {
        Ok(Self {
            requests: fifo(&name.with_extension("in"))?,
            answers: fifo(&name.with_extension("out"))?,
            begun: Vec::new(),
            count: 0,
        })
    }

    /// Runs a shell script in the guest with something to read. `machine` is QEMU: when it ends there is no answer.
    pub fn ask(&mut self, script: &str, input: &[u8], machine: &Process, limit: Duration) -> Result<Output> {
        let wait = Wait { machine, end: Instant::now() + limit, limit };
        self.count += 1;
        let id = format!("r{}", self.count);
        let request = format!("\n{id} {} {}\n", BASE64.encode(script), BASE64.encode(input));
        self.send(request.as_bytes(), &wait)?;
        loop {
            let line = self.line(&wait)?;
            if let Some(output) = parse(&line, &id) {
                return output
                    .with_context(|| format!("the machine's answer is {} bytes of something else", line.len()));
            }
        }
    }

    fn send(&mut self, mut bytes: &[u8], wait: &Wait<'_>) -> Result<()> {
        while !bytes.is_empty() {
            match self.requests.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(cause) if again(&cause) => wait.until(&self.requests, PollFlags::OUT)?,
                Err(cause) => return Err(cause).context("cannot write to the machine's port"),
            }
        }
        Ok(())
    }

    fn line(&mut self, wait: &Wait<'_>) -> Result<String> {
        let mut buffer = vec![0; 65536];
        let mut looked = 0;
        loop {
            if let Some(end) = self.begun[looked..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.begun.drain(..=looked + end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            looked = self.begun.len();
            match self.answers.read(&mut buffer) {
                Ok(read) => self.begun.extend_from_slice(&buffer[..read]),
                Err(cause) if again(&cause) => wait.until(&self.answers, PollFlags::IN)?,
                Err(cause) => return Err(cause).context("cannot read the machine's port"),
            }
        }
    }
}

/// A wait for one answer.
struct Wait<'a> {
    machine: &'a Process,
    end: Instant,
    limit: Duration,
}

impl Wait<'_> {
    fn until(&self, file: &File, ready: PollFlags) -> Result<()> {
        loop {
            match poll(&mut [PollFd::new(file, ready)], Some(&LOOK)) {
                Ok(1..) => return Ok(()),
                Ok(0) | Err(rustix::io::Errno::INTR) => (),
                Err(cause) => return Err(cause).context("cannot wait for the machine's port"),
            }
            interrupt::check().context("while waiting for the machine's answer")?;
            if !self.machine.alive() {
                bail!("the machine is off");
            }
            if Instant::now() >= self.end {
                bail!("the machine did not answer within {} s", self.limit.as_secs());
            }
        }
    }
}

/// The answer to a request, when the line is that. Other lines are answers that nobody waits for any more.
fn parse(line: &str, id: &str) -> Option<Result<Output>> {
    let rest = line.strip_prefix(id)?.strip_prefix(' ')?;
    Some(parse_answer(rest))
}

fn parse_answer(rest: &str) -> Result<Output> {
    let fields: Vec<&str> = rest.split(' ').collect();
    let &[code, stdout, stderr] = fields.as_slice() else { bail!("it has {} fields", fields.len()) };
    let text = |field: &str| -> Result<String> {
        let packed = field.strip_prefix(':').ok_or_else(|| anyhow!("a text does not begin with a colon"))?;
        Ok(String::from_utf8_lossy(&BASE64.decode(packed)?).into_owned())
    };
    Ok(Output { code: code.parse()?, stdout: text(stdout)?, stderr: text(stderr)? })
}

/// Opened for both directions, neither end waits for the other program.
fn fifo(path: &Path) -> Result<File> {
    if path.symlink_metadata().is_ok() {
        std::fs::remove_file(path)?;
    }
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .with_context(|| format!("cannot make {}", path.display()))?;
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).write(true).custom_flags(flags).open(path);
    file.with_context(|| format!("cannot open {}", path.display()))
}

fn again(cause: &std::io::Error) -> bool {
    matches!(cause.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::{Port, parse};
    use crate::process::Process;
    use crate::run::Output;
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::time::Duration;

    fn own() -> Process {
        Process::find(std::process::id().cast_signed()).unwrap()
    }

    #[test]
    fn an_answer_has_a_status_and_two_texts() {
        let output = parse("r7 3 :b3V0 :", "r7").unwrap().unwrap();
        assert_eq!(output, Output { code: 3, stdout: "out".into(), stderr: String::new() });
        for other in ["", "r71 0 : :", "r6 0 : :", "rubbish"] {
            assert!(parse(other, "r7").is_none(), "{other:?} is the answer to something else");
        }
        for broken in ["r7 0 :", "r7 x : :", "r7 0 b3V0 :", "r7 0 :!! :"] {
            assert!(parse(broken, "r7").unwrap().is_err(), "{broken:?}");
        }
    }

    #[test]
    fn what_a_reboot_cut_off_does_not_spoil_the_next_answer() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("port");
        let mut port = Port::create(&name).unwrap();
        let mut guest = File::options().write(true).open(name.with_extension("out")).unwrap();
        guest.write_all(b"\nr0 0 :b3V\nr1 0 :b25l :\n").unwrap();
        assert_eq!(port.ask("x", b"in", &own(), Duration::from_secs(20)).unwrap().stdout, "one");
        let mut sent = [0; 14];
        File::open(name.with_extension("in")).unwrap().read_exact(&mut sent).unwrap();
        assert_eq!(&sent, b"\nr1 eA== aW4=\n");
    }

    #[test]
    fn a_silent_machine_and_one_that_is_off_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let mut port = Port::create(&folder.path().join("port")).unwrap();
        let late = port.ask("x", b"", &own(), Duration::from_millis(1)).unwrap_err();
        assert_eq!(late.to_string(), "the machine did not answer within 0 s");
        let gone = Process { start: own().start + 1, ..own() };
        let off = port.ask("x", b"", &gone, Duration::from_secs(20)).unwrap_err();
        assert_eq!(off.to_string(), "the machine is off");
    }
}

//! Programs with a deadline: output kept apart, an error that names program, arguments and what it said.

use crate::process::Process;
use crate::{interrupt, poll};
use anyhow::{Context as _, Result, bail};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long the last words of a program that has ended may take on a busy machine, where something keeps its output open.
const LINGER: Duration = Duration::from_secs(2);

/// How a program ended and what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Exit code; 128 and the signal's number when a signal ended it, as a shell tells it.
    pub code: i32,
    /// Standard output; bytes that are no UTF-8 are replaced.
    pub stdout: String,
    /// Standard error, the same way.
    pub stderr: String,
}

impl Output {
    /// Itself when the program succeeded, else an error with the end of what it said.
    pub fn success(self) -> Result<Self> {
        if self.code == 0 {
            return Ok(self);
        }
        let said = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        bail!("exit code {}: {}", self.code, tail(said, 2000));
    }
}

/// What a program reads.
#[derive(Debug)]
pub enum Input<'a> {
    /// Nothing.
    Empty,
    /// These bytes.
    Bytes(&'a [u8]),
    /// A file, from where it stands.
    File(File),
}

/// Which output a piece came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Runs a program to its end, however that is. An error when it cannot be started or does not end in time.
pub fn run(command: &mut Command, input: Input<'_>, limit: Duration) -> Result<Output> {
    run_with(command, input, limit, |_, _| ())
}

/// Runs a program that has to succeed, and gives its standard output.
pub fn must(command: &mut Command, limit: Duration) -> Result<String> {
    let output = run(command, Input::Empty, limit)?;
    Ok(output.success().with_context(|| describe(command))?.stdout)
}

/// As [`run`]; `each` sees each piece of output when it comes.
pub fn run_with(
    command: &mut Command,
    input: Input<'_>,
    limit: Duration,
    each: impl FnMut(Stream, &[u8]),
) -> Result<Output> {
    Running::start(command, input)?.wait_with(limit, each)
}

/// A program that runs beside the caller. It is killed when this is dropped before its end.
#[derive(Debug)]
pub struct Running {
    child: Child,
    told: String,
    pieces: Receiver<(Stream, Vec<u8>)>,
    ended: bool,
}

impl Running {
    /// Starts it.
    pub fn start(command: &mut Command, input: Input<'_>) -> Result<Self> {
        let mut child = start(command, &input)?;
        let pieces = readers(&mut child);
        feed(&mut child, input);
        Ok(Self { child, told: describe(command), pieces, ended: false })
    }

    /// The process that was started.
    pub fn process(&self) -> Option<Process> {
        Process::find(self.child.id().cast_signed())
    }

    /// Waits for its end.
    pub fn wait(self, limit: Duration) -> Result<Output> {
        self.wait_with(limit, |_, _| ())
    }

    /// Waits for its end; `each` sees each piece of output when it comes.
    pub fn wait_with(mut self, limit: Duration, mut each: impl FnMut(Stream, &[u8])) -> Result<Output> {
        let end = Instant::now() + limit;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let (mut status, mut quiet) = (None, None);
        loop {
            match self.pieces.recv_timeout(Duration::from_millis(50)) {
                Ok((stream, piece)) => {
                    each(stream, &piece);
                    match stream {
                        Stream::Stdout => stdout.extend_from_slice(&piece),
                        Stream::Stderr => stderr.extend_from_slice(&piece),
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
                // It ended, but something that it started keeps the pipe open.
                Err(RecvTimeoutError::Timeout) if quiet.is_some_and(|since: Instant| since.elapsed() >= LINGER) => {
                    break;
                }
                Err(RecvTimeoutError::Timeout) if quiet.is_some() => {}
                Err(RecvTimeoutError::Timeout) => {
                    status = self.child.try_wait()?;
                    quiet = status.map(|_| Instant::now());
                }
            }
            self.stop_if_late(end, limit)?;
        }
        let status = match status {
            Some(status) => status,
            None => self.status(end, limit)?,
        };
        self.ended = true;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Output { code: code(status), stdout: text(stdout), stderr: text(stderr) })
    }

    fn status(&mut self, end: Instant, limit: Duration) -> Result<ExitStatus> {
        loop {
            let left = end.saturating_duration_since(Instant::now()).min(Duration::from_millis(200));
            let looked = poll(left, Duration::from_millis(1), "its end", || Ok(self.child.try_wait()?));
            if let Ok(status) = looked {
                return Ok(status);
            }
            self.stop_if_late(end, limit)?;
        }
    }

    fn stop_if_late(&mut self, end: Instant, limit: Duration) -> Result<()> {
        let late = Instant::now() >= end;
        if late || interrupt::pending() {
            self.kill();
        }
        interrupt::check().with_context(|| self.told.clone())?;
        if late {
            bail!("{} did not end within {} s", self.told, limit.as_secs());
        }
        Ok(())
    }

    /// The children go first: one that nsenter forked into another process namespace would outlive it.
    fn kill(&mut self) {
        for process in self.process().iter().flat_map(Process::children) {
            let _ = process.signal(rustix::process::Signal::KILL);
        }
        // Both fail only when it ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.ended = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.kill();
        }
    }
}

/// Exit code, or 128 and the signal's number.
pub fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Program and arguments for a message, cut to a readable length.
pub fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let line = line.join(" ");
    match line.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The last `most` bytes of a text, from the start of a line where one is there.
pub fn tail(text: &str, most: usize) -> &str {
    let text = text.trim_end();
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let cut = &text[from..];
    if from == 0 { cut } else { cut.find('\n').map_or(cut, |line| &cut[line + 1..]) }
}

fn start(command: &mut Command, input: &Input<'_>) -> Result<Child> {
    interrupt::check()?;
    let stdin = match input {
        Input::Empty => Stdio::null(),
        Input::Bytes(_) => Stdio::piped(),
        Input::File(file) => Stdio::from(file.try_clone()?),
    };
    // A group of its own: Ctrl-C at the terminal goes to the lab only, which then ends things in their order.
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command.spawn().with_context(|| format!("cannot run {}", describe(command)))
}

fn feed(child: &mut Child, input: Input<'_>) {
    let (Input::Bytes(bytes), Some(mut stdin)) = (input, child.stdin.take()) else { return };
    let bytes = bytes.to_vec();
    // A program that does not read all of it says so by its exit code.
    std::thread::spawn(move || drop(stdin.write_all(&bytes)));
}

fn readers(child: &mut Child) -> Receiver<(Stream, Vec<u8>)> {
    let (sender, pieces) = channel();
    if let Some(stdout) = child.stdout.take() {
        reader(stdout, Stream::Stdout, sender.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        reader(stderr, Stream::Stderr, sender);
    }
    pieces
}

fn reader(mut from: impl Read + Send + 'static, stream: Stream, to: Sender<(Stream, Vec<u8>)>) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65536];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if to.send((stream, buffer[..read].to_vec())).is_err() {
                break;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::{Input, Stream, must, run, run_with, tail};
    use std::process::Command;
    use std::time::{Duration, Instant};

    const LIMIT: Duration = Duration::from_secs(20);

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn keeps_code_and_both_outputs() {
        let output = run(&mut sh("cat; echo bad >&2; exit 3"), Input::Bytes(b"in"), LIMIT).unwrap();
        assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (3, "in", "bad\n"));
        assert_eq!(run(&mut sh("kill -9 $$"), Input::Empty, LIMIT).unwrap().code, 137);
    }

    #[test]
    fn an_error_names_the_program_and_what_it_said() {
        let error = must(&mut sh("echo no such cow >&2; exit 1"), LIMIT).unwrap_err();
        let told = format!("{error:#}");
        assert!(told.contains("sh -c echo") && told.contains("exit code 1: no such cow"), "{told}");
    }

    #[test]
    fn a_deadline_ends_it() {
        let started = Instant::now();
        let error = run(&mut sh("exec sleep 60"), Input::Empty, Duration::from_millis(200)).unwrap_err();
        assert!(started.elapsed() < LIMIT, "{error:#}");
    }

    #[test]
    fn a_pipe_that_is_kept_open_does_not_hold_it_up() {
        let started = Instant::now();
        let output = run(&mut sh("sleep 30 & echo $!"), Input::Empty, LIMIT).unwrap();
        assert!(started.elapsed() < Duration::from_secs(10));
        must(Command::new("kill").arg(output.stdout.trim()), LIMIT).unwrap();
    }

    #[test]
    fn pieces_come_as_they_are_written() {
        let mut seen = Vec::new();
        run_with(&mut sh("echo one; echo two >&2"), Input::Empty, LIMIT, |stream, piece| {
            seen.push((stream, piece.to_vec()));
        })
        .unwrap();
        assert!(seen.contains(&(Stream::Stdout, b"one\n".to_vec())));
        assert!(seen.contains(&(Stream::Stderr, b"two\n".to_vec())));
    }

    #[test]
    fn a_tail_starts_at_a_line() {
        assert_eq!(tail("one\ntwo\nthree\n", 8), "three");
        assert_eq!(tail("short\n", 100), "short");
    }
}

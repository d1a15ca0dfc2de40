//! Standard input, output and error as a command sees them: a reader that goes away is noticed, never a panic.

use flexnode_ops::report;
use std::error::Error;
use std::fmt;
use std::io::{BufRead, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One of the standard streams, or a buffer in tests. Cheap to clone.
#[derive(Clone)]
pub struct Stream {
    to: Arc<Mutex<Box<dyn Write + Send>>>,
    closed: Arc<AtomicBool>,
    /// Whether a person looks at it.
    pub is_terminal: bool,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("is_terminal", &self.is_terminal).finish_non_exhaustive()
    }
}

impl Stream {
    /// A stream that writes to `to`.
    pub fn new(to: impl Write + Send + 'static, is_terminal: bool) -> Self {
        Self { to: Arc::new(Mutex::new(Box::new(to))), closed: Arc::default(), is_terminal }
    }

    /// Writes and flushes. What cannot be written is dropped; [`Stream::is_closed`] tells.
    pub fn write(&self, text: &str) {
        if self.is_closed() {
            return;
        }
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        if to.write_all(text.as_bytes()).and_then(|()| to.flush()).is_err() {
            self.closed.store(true, Ordering::SeqCst);
        }
    }

    /// Writes a line.
    pub fn line(&self, text: &str) {
        self.write(&format!("{text}\n"));
    }

    /// Nobody reads any more: the pipe is closed, the terminal is gone, the disk is full.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

/// Where a command reads answers and writes what it has to say.
pub struct Terminal {
    /// Results.
    pub out: Stream,
    /// For people: progress, errors, questions.
    pub err: Stream,
    /// Answers.
    pub input: Box<dyn BufRead + Send>,
    /// Whether a person can answer.
    pub input_is_terminal: bool,
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminal").field("out", &self.out).field("err", &self.err).finish_non_exhaustive()
    }
}

impl Terminal {
    /// The streams of this process.
    pub fn of_process() -> Self {
        Self {
            out: Stream::new(std::io::stdout(), std::io::stdout().is_terminal()),
            err: Stream::new(std::io::stderr(), std::io::stderr().is_terminal()),
            input: Box::new(std::io::BufReader::new(std::io::stdin())),
            input_is_terminal: std::io::stdin().is_terminal(),
        }
    }

    /// Whether somebody is there to be asked, and can see the question.
    pub fn can_ask(&self) -> bool {
        self.input_is_terminal && self.err.is_terminal
    }

    /// Asks a yes-no question; anything but a yes is a no.
    pub fn ask(&mut self, question: &str) -> bool {
        self.err.write(&format!("{question} [y/N] "));
        let mut answer = String::new();
        match self.input.read_line(&mut answer) {
            Ok(n) if n > 0 => matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"),
            _ => false,
        }
    }

    /// Prints an error: what this layer says, then its causes, then what to do.
    pub fn error(&self, error: &dyn Error, hints: &[String]) {
        self.err.write(&error_text(&report::layers(error), hints));
    }
}

/// The lines of an error. The first layer is what failed, the rest is why.
pub fn error_text(layers: &[String], hints: &[String]) -> String {
    let mut text = String::new();
    for (i, layer) in layers.iter().enumerate() {
        text.push_str(if i == 0 { "error: " } else { "  because: " });
        text.push_str(&indented(layer));
        text.push('\n');
    }
    for hint in hints {
        text.push_str("  to do: ");
        text.push_str(&indented(hint));
        text.push('\n');
    }
    text
}

/// Further lines of a text stand under its first.
pub(crate) fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_reader_is_noticed() {
        let stream = Stream::new(Broken, false);
        assert!(!stream.is_closed());
        stream.line("text");
        assert!(stream.is_closed());
        stream.line("more");
    }

    #[test]
    fn only_yes_is_yes() {
        for (answer, expected) in
            [("y\n", true), ("YES\n", true), ("n\n", false), ("\n", false), ("", false), ("yep\n", false)]
        {
            let mut terminal = Terminal {
                out: Stream::new(io::sink(), false),
                err: Stream::new(io::sink(), true),
                input: Box::new(io::Cursor::new(answer)),
                input_is_terminal: true,
            };
            assert_eq!(terminal.ask("Really?"), expected, "{answer:?}");
        }
    }

    #[test]
    fn an_error_says_each_layer_once_and_what_to_do() {
        let layers = ["step check-host failed".to_owned(), "two findings:\na\nb".to_owned()];
        assert_eq!(
            error_text(&layers, &["chmod 0600 /x".to_owned()]),
            "error: step check-host failed\n  because: two findings:\n    a\n    b\n  to do: chmod 0600 /x\n"
        );
    }
}

//! PID 1's own socket, for when no bus runs.
//!
//! It speaks D-Bus without a bus, and puts the name `org.freedesktop.systemd1` into its messages as their sender, where
//! the D-Bus specification wants a unique name such as `:1.7`; zbus refuses such messages. The halves here put a unique
//! name of the same length in its place while they read.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use zbus::Connection;
use zbus::conn::Builder;
use zbus::conn::socket::{ReadHalf, Socket, Split, WriteHalf};
use zbus::export::async_trait::async_trait;

/// For root only.
pub(super) const PATH: &str = "/run/systemd/private";

/// Bytes of a message that are read on their own before the rest is: the fixed part of its header.
const FIXED: usize = 16;

/// The header field "sender" with systemd's name: code 7, signature `s`, length, text.
const SENDER: &[u8; 33] = b"\x07\x01s\0\x18\0\0\0org.freedesktop.systemd1\0";

/// What is read instead of the name.
const UNIQUE: &[u8; 24] = b":1.org-freedesktop-init1";

#[derive(Debug)]
struct Private(UnixStream);

#[derive(Debug)]
struct Reader(OwnedReadHalf);

#[derive(Debug)]
struct Writer(OwnedWriteHalf);

/// A connection to PID 1, authenticated as this user.
pub(super) async fn connect(answer: std::time::Duration) -> zbus::Result<Connection> {
    let mut stream = UnixStream::connect(PATH).await?;
    let guid = authenticate(&mut stream).await?;
    Builder::authenticated_socket(Private(stream), guid.as_str()).p2p().method_timeout(answer).build().await
}

/// The EXTERNAL mechanism of the D-Bus specification: the kernel tells the server who we are. Gives the server's GUID.
///
/// BEGIN is sent along in the same write, as systemd's own clients do. When it comes later, it may arrive together with
/// the first message; then PID 1 reads both at once, and looks at the message only when another one comes.
async fn authenticate(stream: &mut UnixStream) -> io::Result<String> {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let hex = crate::durable::hex(uid.as_bytes());
    stream.write_all(format!("\0AUTH EXTERNAL {hex}\r\nBEGIN\r\n").as_bytes()).await?;
    // Byte by byte: what comes after the line is a message.
    let mut line = Vec::new();
    while !line.ends_with(b"\n") && line.len() < 256 {
        line.push(stream.read_u8().await?);
    }
    let line = String::from_utf8_lossy(&line).trim().to_owned();
    let refused = || io::Error::new(io::ErrorKind::PermissionDenied, format!("{PATH} answers {line:?}"));
    Ok(line.strip_prefix("OK ").ok_or_else(refused)?.to_owned())
}

/// Replaces systemd's name as sender. Header fields begin at multiples of 8, and so does `rest`; the header comes first,
/// so that the first place is the one.
fn replace_sender(rest: &mut [u8]) {
    let at = (0..rest.len()).step_by(8).find(|at| rest[*at..].starts_with(SENDER));
    if let Some(at) = at {
        rest[at + 8..at + 8 + UNIQUE.len()].copy_from_slice(UNIQUE);
    }
}

impl Socket for Private {
    type ReadHalf = Reader;
    type WriteHalf = Writer;

    fn split(self) -> Split<Reader, Writer> {
        let (read, write) = self.0.into_split();
        Split::new(Reader(read), Writer(write))
    }
}

#[async_trait]
impl ReadHalf for Reader {
    /// Called for the fixed part of the header, then for all the rest of the message.
    async fn recvmsg(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        if buffer.len() <= FIXED {
            return Ok((self.0.read(buffer).await?, Vec::new()));
        }
        self.0.read_exact(buffer).await?;
        replace_sender(buffer);
        Ok((buffer.len(), Vec::new()))
    }
}

#[async_trait]
impl WriteHalf for Writer {
    async fn sendmsg(&mut self, buffer: &[u8], _fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        self.0.write(buffer).await
    }
    async fn close(&mut self) -> io::Result<()> {
        self.0.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sender_in_the_header_is_replaced() {
        let mut rest = b"\x06\x01s\0\0\0\0\0".to_vec();
        rest.extend(SENDER);
        rest.extend([0; 7]);
        let body = rest.len();
        rest.extend(SENDER);
        replace_sender(&mut rest);
        assert_eq!(&rest[16..41], b":1.org-freedesktop-init1\0");
        assert_eq!(&rest[8..16], &SENDER[..8]);
        assert_eq!(&rest[body..], SENDER);
        let mut other = b"\x07\x01s\0\x04\0\0\0:1.7\0".to_vec();
        let before = other.clone();
        replace_sender(&mut other);
        assert_eq!(other, before);
    }
}

//! One open connection: encrypting, decrypting and the socket. Any thread may write to it, one at a time.

use std::io::{self, BufRead as _, IoSlice, Write};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use tokio::net::TcpStream;
use tokio_rustls::rustls::Connection;

use crate::session::Session;

/// Plain bytes that are encrypted and written together: four records of TLS.
const WRITE_BYTES: usize = 64 << 10;

/// Bytes that one read takes from the socket.
pub(crate) const READ_BYTES: usize = 128 << 10;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Everything that waited is with the kernel.
    All,
    /// The socket takes no more now.
    Blocked,
    /// Another thread writes.
    Busy,
}

/// What became of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// There may be more.
    Some,
    /// Nothing for now.
    Nothing,
    /// The peer has closed.
    End,
}

struct Crypt {
    connection: Connection,
    /// Frames that are encrypted next; kept for its memory.
    plain: Vec<u8>,
}

pub(crate) struct Wire {
    pub tcp: TcpStream,
    crypt: Mutex<Crypt>,
}

impl Wire {
    /// A connection whose handshake is over.
    pub(crate) fn new(tcp: TcpStream, mut connection: Connection) -> Self {
        // `write` bounds what is encrypted ahead itself.
        connection.set_buffer_limit(None);
        Self { tcp, crypt: Mutex::new(Crypt { connection, plain: Vec::new() }) }
    }

    /// Writes what waits in the session, until nothing waits or the socket is full.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn write(&self, session: impl FnMut(&mut Vec<u8>, usize)) -> io::Result<Written> {
        write_with(self.crypt.lock().unwrap_or_else(PoisonError::into_inner), &self.tcp, session)
    }

    /// The same, unless another thread is at it.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn try_write(&self, session: impl FnMut(&mut Vec<u8>, usize)) -> io::Result<Written> {
        match self.crypt.try_lock() {
            Ok(crypt) => write_with(crypt, &self.tcp, session),
            Err(TryLockError::WouldBlock) => Ok(Written::Busy),
            Err(TryLockError::Poisoned(poisoned)) => write_with(poisoned.into_inner(), &self.tcp, session),
        }
    }

    /// Reads once from the socket and appends what it decrypts.
    ///
    /// # Errors
    /// The connection is broken, or the bytes are not the peer's.
    pub(crate) fn read(&self, raw: &mut [u8], plain: &mut Vec<u8>) -> io::Result<Arrived> {
        let bytes = match self.tcp.try_read(raw) {
            Ok(0) => return Ok(Arrived::End),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Arrived::Nothing),
            Err(error) => return Err(error),
        };
        let mut rest = &raw[..bytes];
        let mut crypt = self.crypt.lock().unwrap_or_else(PoisonError::into_inner);
        while !rest.is_empty() {
            let taken = crypt.connection.read_tls(&mut rest)?;
            let state = crypt.connection.process_new_packets().map_err(io::Error::other)?;
            drain(&mut crypt.connection, plain)?;
            if state.peer_has_closed() || taken == 0 {
                return Ok(Arrived::End);
            }
        }
        // A full buffer means that there is probably more.
        Ok(if bytes == raw.len() { Arrived::Some } else { Arrived::Nothing })
    }

    /// Appends what was decrypted during the handshake.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn drain(&self, plain: &mut Vec<u8>) -> io::Result<()> {
        drain(&mut self.crypt.lock().unwrap_or_else(PoisonError::into_inner).connection, plain)
    }
}

fn drain(connection: &mut Connection, plain: &mut Vec<u8>) -> io::Result<()> {
    let mut reader = connection.reader();
    loop {
        let chunk = match reader.fill_buf() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        if chunk.is_empty() {
            return Ok(());
        }
        plain.extend_from_slice(chunk);
        let bytes = chunk.len();
        reader.consume(bytes);
    }
}

fn write_with(
    mut crypt: MutexGuard<'_, Crypt>,
    tcp: &TcpStream,
    mut session: impl FnMut(&mut Vec<u8>, usize),
) -> io::Result<Written> {
    let Crypt { connection, plain } = &mut *crypt;
    loop {
        while connection.wants_write() {
            match connection.write_tls(&mut Socket(tcp)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Written::Blocked),
                Err(error) => return Err(error),
            }
        }
        plain.clear();
        session(plain, WRITE_BYTES);
        if plain.is_empty() {
            return Ok(Written::All);
        }
        connection.writer().write_all(plain)?;
        // One large message is no reason to keep its memory.
        plain.shrink_to(2 * WRITE_BYTES);
    }
}

/// The socket for one attempt at a time.
struct Socket<'a>(&'a TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a session hands to [`Wire::write`].
pub(crate) fn frames_of(session: &mut Session, out: &mut Vec<u8>, bytes: usize) {
    session.write(out, bytes);
}

//! One client's connection: HTTP/1.1 with keep-alive and without Nagle's delay. It sends a request, hands the reply's
//! body on in pieces, and tells when the first and the last byte came. What a server sends is bounded and never panics.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::body::Body;
use crate::measure::Failure;

/// What is read or written at once.
const PIECE: usize = 256 * 1024;
/// A head and a body up to this size leave in one write.
const ONE_WRITE: usize = 64 * 1024;
/// The longest head of a reply, and the longest line of a chunk's size.
const HEAD: usize = 64 * 1024;
const CHUNK_LINE: usize = 4096;

/// The head of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub status: u16,
    pub length: Option<u64>,
    pub is_chunked: bool,
    pub closes: bool,
    pub etag: Option<String>,
}

/// A whole reply, whose body has been handed on.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub head: Head,
    /// From the start of the request.
    pub first_byte: Duration,
    pub total: Duration,
    /// Of the reply's body.
    pub body_bytes: u64,
}

pub(super) struct Connection {
    address: SocketAddr,
    timeout: Duration,
    stream: Option<TcpStream>,
    input: Vec<u8>,
    /// The part of `input` that is not used yet.
    unread: std::ops::Range<usize>,
    output: Vec<u8>,
    /// Connections made again after the server closed them between requests.
    pub reconnects: u64,
}

/// Takes the pieces of a body with their position.
pub(super) type Sink<'a> = &'a mut dyn FnMut(&Head, u64, &[u8]);

impl Connection {
    pub(super) fn new(address: SocketAddr, timeout: Duration) -> Self {
        let input = vec![0; PIECE];
        Self { address, timeout, stream: None, input, unread: 0..0, output: Vec::new(), reconnects: 0 }
    }

    /// Sends a request, whose head lacks `content-length` and the last line end, and reads its reply. A kept connection
    /// that turns out to be closed is made again, once.
    pub(super) fn exchange(
        &mut self,
        head: &str,
        body: Body<'_>,
        has_reply_body: bool,
        sink: Sink<'_>,
    ) -> Result<Reply, (Failure, String)> {
        let was_open = self.stream.is_some();
        let mut has_answered = false;
        match self.attempt(head, body, has_reply_body, sink, &mut has_answered) {
            Err((Failure::Closed | Failure::Reset, _)) if was_open && !has_answered => {
                self.reconnects += 1;
                self.stream = None;
                self.attempt(head, body, has_reply_body, sink, &mut has_answered)
            }
            other => other,
        }
        .inspect_err(|_| self.stream = None)
    }

    fn attempt(
        &mut self,
        head: &str,
        body: Body<'_>,
        has_reply_body: bool,
        sink: Sink<'_>,
        has_answered: &mut bool,
    ) -> Result<Reply, (Failure, String)> {
        self.connect()?;
        self.unread = 0..0;
        let start = Instant::now();
        // A server may refuse a body before it has all of it, so a failed write is no failure while there is a reply.
        let sent = self.send(head, body);
        let mut first_byte = None;
        let reply = loop {
            let head = match self.read_head(&mut first_byte) {
                Ok(head) => head,
                Err(error) => return Err(sent.err().unwrap_or(error)),
            };
            *has_answered = true;
            if head.status >= 200 {
                break head;
            }
        };
        let body_bytes = if has_reply_body { self.read_body(&reply, sink)? } else { 0 };
        let total = start.elapsed();
        if reply.closes || sent.is_err() {
            self.stream = None;
        }
        let first_byte = first_byte.map_or(total, |at: Instant| at - start);
        Ok(Reply { head: reply, first_byte, total, body_bytes })
    }

    fn connect(&mut self) -> Result<(), (Failure, String)> {
        if self.stream.is_some() {
            return Ok(());
        }
        let connected = TcpStream::connect_timeout(&self.address, self.timeout).and_then(|stream| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(self.timeout))?;
            stream.set_write_timeout(Some(self.timeout))?;
            Ok(stream)
        });
        self.stream = Some(connected.map_err(|error| (Failure::Connect, format!("cannot connect: {error}")))?);
        Ok(())
    }

    fn send(&mut self, head: &str, body: Body<'_>) -> Result<(), (Failure, String)> {
        self.output.clear();
        self.output.extend(head.as_bytes());
        self.output.extend(format!("content-length: {}\r\n\r\n", body.length).as_bytes());
        let mut position = 0;
        while self.output.len() < ONE_WRITE && position < body.length {
            let piece = body.piece(position, ONE_WRITE);
            self.output.extend(piece);
            position += piece.len() as u64;
        }
        let Some(stream) = &mut self.stream else { return Err(closed()) };
        stream.write_all(&self.output).map_err(failure)?;
        while position < body.length {
            let piece = body.piece(position, PIECE);
            stream.write_all(piece).map_err(failure)?;
            position += piece.len() as u64;
        }
        Ok(())
    }

    /// Reads more behind what is unread; fails at the end of the stream.
    fn fill(&mut self) -> Result<(), (Failure, String)> {
        if self.unread.is_empty() {
            self.unread = 0..0;
        } else if self.unread.end == self.input.len() {
            self.input.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        let Some(stream) = &mut self.stream else { return Err(closed()) };
        let room = &mut self.input[self.unread.end..];
        match stream.read(room).map_err(failure)? {
            0 => Err(closed()),
            read => {
                self.unread.end += read;
                Ok(())
            }
        }
    }

    fn read_head(&mut self, first_byte: &mut Option<Instant>) -> Result<Head, (Failure, String)> {
        loop {
            if self.unread.is_empty() {
                self.fill()?;
                first_byte.get_or_insert_with(Instant::now);
            }
            let text = &self.input[self.unread.clone()];
            if let Some(end) = text.windows(4).take(HEAD).position(|four| four == b"\r\n\r\n") {
                let head = parse_head(&text[..end]).ok_or_else(|| malformed("its head"));
                self.unread.start += end + 4;
                return head;
            }
            if text.len() >= HEAD {
                return Err(malformed("a head that does not end"));
            }
            self.fill()?;
        }
    }

    fn read_body(&mut self, head: &Head, sink: Sink<'_>) -> Result<u64, (Failure, String)> {
        if matches!(head.status, 204 | 304) {
            return Ok(0);
        }
        if !head.is_chunked {
            let length = head.length.ok_or_else(|| malformed("a body without a length"))?;
            self.read_exactly(head, 0, length, sink)?;
            return Ok(length);
        }
        let mut position = 0;
        loop {
            let line = self.read_line()?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let length = u64::from_str_radix(digits, 16).ok().filter(|length| *length <= 1 << 50);
            let length = length.ok_or_else(|| malformed("the size of a chunk"))?;
            if length == 0 {
                // Trailers end with an empty line.
                while !self.read_line()?.is_empty() {}
                return Ok(position);
            }
            self.read_exactly(head, position, length, sink)?;
            position += length;
            if !self.read_line()?.is_empty() {
                return Err(malformed("the end of a chunk"));
            }
        }
    }

    fn read_exactly(
        &mut self,
        head: &Head,
        position: u64,
        length: u64,
        sink: Sink<'_>,
    ) -> Result<(), (Failure, String)> {
        let mut done = 0;
        while done < length {
            if self.unread.is_empty() {
                self.fill()?;
            }
            let most = usize::try_from(length - done).unwrap_or(usize::MAX);
            let end = self.unread.end.min(self.unread.start.saturating_add(most));
            sink(head, position + done, &self.input[self.unread.start..end]);
            done += (end - self.unread.start) as u64;
            self.unread.start = end;
        }
        Ok(())
    }

    fn read_line(&mut self) -> Result<String, (Failure, String)> {
        loop {
            let text = &self.input[self.unread.clone()];
            if let Some(end) = text.windows(2).take(CHUNK_LINE).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&text[..end]).into_owned();
                self.unread.start += end + 2;
                return Ok(line);
            }
            if text.len() >= CHUNK_LINE {
                return Err(malformed("a line that does not end"));
            }
            self.fill()?;
        }
    }
}

fn parse_head(text: &[u8]) -> Option<Head> {
    let text = std::str::from_utf8(text).ok()?;
    let mut lines = text.split("\r\n");
    let mut first = lines.next()?.splitn(3, ' ');
    let version = first.next().filter(|version| matches!(*version, "HTTP/1.1" | "HTTP/1.0"))?;
    let status = first.next()?.parse().ok().filter(|status| (100..1000).contains(status))?;
    let mut head = Head { status, closes: version == "HTTP/1.0", ..Head::default() };
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            head.length = Some(value.parse().ok()?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            head.is_chunked = value.eq_ignore_ascii_case("chunked");
        } else if name.eq_ignore_ascii_case("connection") {
            head.closes = value.eq_ignore_ascii_case("close");
        } else if name.eq_ignore_ascii_case("etag") {
            head.etag = Some(value.to_owned());
        }
    }
    Some(head)
}

fn closed() -> (Failure, String) {
    (Failure::Closed, "the server closed the connection".to_owned())
}

fn malformed(part: &str) -> (Failure, String) {
    (Failure::Malformed, format!("the reply is malformed: {part}"))
}

fn failure(error: std::io::Error) -> (Failure, String) {
    let kind = match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::Timeout,
        _ => Failure::Reset,
    };
    (kind, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread::spawn;

    use super::*;

    /// Answers one connection after another: of each, the replies to send and whether to close after them.
    fn serve(connections: Vec<Vec<&'static [u8]>>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        spawn(move || {
            for replies in connections {
                let (mut stream, _) = listener.accept().expect("a connection");
                for reply in replies {
                    let mut request = Vec::new();
                    let mut byte = [0];
                    while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                        request.push(byte[0]);
                    }
                    // Cut, so that the reader meets every boundary.
                    for part in reply.chunks(7) {
                        stream.write_all(part).expect("sent");
                    }
                }
            }
        });
        address
    }

    fn ask(connection: &mut Connection) -> Result<(Reply, Vec<u8>), (Failure, String)> {
        let mut body = Vec::new();
        let reply = connection.exchange("GET / HTTP/1.1\r\n", Body::of(b""), true, &mut |_, _, piece| {
            body.extend(piece);
        })?;
        Ok((reply, body))
    }

    #[test]
    fn replies_with_a_length_in_chunks_and_after_100_are_read() {
        let address = serve(vec![vec![
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"e\"\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nt: v\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\ncontent-length: 1\r\n\r\nx",
            b"HTTP/1.1 204 No Content\r\n\r\n",
        ]]);
        let mut connection = Connection::new(address, Duration::from_secs(10));
        let wanted: [(u16, &[u8]); 4] = [(200, b"hello"), (200, b"abcde"), (404, b"x"), (204, b"")];
        for (status, wanted) in wanted {
            let (reply, body) = ask(&mut connection).expect("a reply");
            assert_eq!((reply.head.status, body.as_slice(), reply.body_bytes), (status, wanted, wanted.len() as u64));
            assert!(reply.first_byte <= reply.total);
        }
        assert_eq!(connection.reconnects, 0);
    }

    #[test]
    fn a_connection_closed_between_requests_is_made_again() {
        let reply: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        let address = serve(vec![vec![reply], vec![reply]]);
        let mut connection = Connection::new(address, Duration::from_secs(10));
        assert!(ask(&mut connection).is_ok() && ask(&mut connection).is_ok());
        assert_eq!(connection.reconnects, 1);
    }

    #[test]
    fn what_the_protocol_forbids_is_an_error() {
        let replies: [&[u8]; 5] = [
            b"HTTP/2 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\nno length",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n",
        ];
        for reply in replies {
            let mut connection = Connection::new(serve(vec![vec![reply]]), Duration::from_secs(10));
            let error = ask(&mut connection).expect_err("an error");
            assert_eq!(error.0, Failure::Malformed, "{}", String::from_utf8_lossy(reply));
        }
        let cut: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort";
        let mut connection = Connection::new(serve(vec![vec![cut]]), Duration::from_secs(10));
        assert_eq!(ask(&mut connection).expect_err("an error").0, Failure::Closed);
    }
}

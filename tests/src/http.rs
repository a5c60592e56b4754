//! A small blocking HTTP/1.1 client: one connection, one request at a time. It checks every byte.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine as _;

use crate::wait_until;

/// A whole reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// Lower-case names and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON, or null if it is not JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or(serde_json::Value::Null)
    }

    /// The `code` of a problem document.
    #[must_use]
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// A header's first value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Checks that a reply is the problem document of `code`: status, media type and every member.
///
/// # Panics
/// When the reply is anything else.
pub fn assert_problem(reply: &Reply, status: u16, code: &str) {
    let text = reply.text();
    let document = reply.json();
    assert_eq!((reply.status, document["code"].as_str()), (status, Some(code)), "{text}");
    assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{text}");
    assert_eq!(document["type"], format!("/errors/{code}"), "{text}");
    assert_eq!(document["status"], status, "{text}");
    for member in ["title", "detail"] {
        assert!(document[member].as_str().is_some_and(|text| !text.is_empty()), "no {member}: {text}");
    }
    if status == 503 {
        let seconds = reply.header("retry-after").and_then(|seconds| seconds.parse::<u32>().ok());
        assert!(seconds.is_some_and(|seconds| seconds >= 1), "503 without Retry-After: {text}");
    }
}

/// Asks again while the server of a busy machine is `overloaded`, as a client does. The limit only bounds the time of a
/// failing test.
pub fn until_taken(mut once: impl FnMut() -> Reply) -> Reply {
    let mut reply = once();
    wait_until("the server takes it", || {
        let is_taken = reply.status != 503 || reply.code() != "overloaded";
        if !is_taken {
            reply = once();
        }
        is_taken
    });
    reply
}

/// An `Authorization` header for HTTP Basic.
#[must_use]
pub fn basic(user: &str, password: &str) -> String {
    let token = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    format!("Authorization: Basic {token}")
}

/// One keep-alive connection.
pub struct Connection {
    stream: BufReader<TcpStream>,
    host: String,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_write_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self { stream: BufReader::new(stream), host: address.to_string() })
    }

    /// The socket, for tests that break the protocol.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// Sends a request and reads its reply. `headers` are whole lines without their line ends.
    ///
    /// # Errors
    /// When the connection fails or the reply is not HTTP.
    pub fn request(&mut self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> io::Result<Reply> {
        // A server that refuses a body stops reading it, but its reply may be there.
        let sent = self.send(method, path, headers, body);
        let received = self.receive(method == "HEAD");
        if received.is_ok() { received } else { sent.and(received) }
    }

    /// Sends a request without waiting for its reply.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn send(&mut self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> io::Result<()> {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.host);
        for header in headers {
            request.push_str(header);
            request.push_str("\r\n");
        }
        request.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        self.stream.get_mut().write_all(&bytes)
    }

    /// Reads one reply.
    ///
    /// # Errors
    /// When the connection fails or the reply is not HTTP.
    pub fn receive(&mut self, is_head: bool) -> io::Result<Reply> {
        let mut reply = self.head()?;
        if !is_head && reply.status != 204 && reply.status != 304 {
            reply.body = self.body(&reply)?;
        }
        Ok(reply)
    }

    /// The head of a reply, whose body is still to be read.
    pub(crate) fn head(&mut self) -> io::Result<Reply> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("not a status line: {status_line:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) =
                line.split_once(':').ok_or_else(|| io::Error::other(format!("not a header: {line:?}")))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Reply { status, headers, body: Vec::new() })
    }

    /// One chunk of a chunked body. The last chunk is empty.
    pub(crate) fn chunk(&mut self) -> io::Result<Vec<u8>> {
        let size = usize::from_str_radix(self.line()?.trim(), 16).map_err(io::Error::other)?;
        let mut chunk = vec![0; size];
        self.stream.read_exact(&mut chunk)?;
        self.line()?;
        Ok(chunk)
    }

    fn body(&mut self, reply: &Reply) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if reply.header("transfer-encoding") == Some("chunked") {
            loop {
                let chunk = self.chunk()?;
                if chunk.is_empty() {
                    return Ok(body);
                }
                body.extend_from_slice(&chunk);
            }
        }
        match reply.header("content-length").and_then(|length| length.parse::<usize>().ok()) {
            Some(length) => {
                body.resize(length, 0);
                self.stream.read_exact(&mut body)?;
            }
            None => {
                self.stream.read_to_end(&mut body)?;
            }
        }
        Ok(body)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }
}

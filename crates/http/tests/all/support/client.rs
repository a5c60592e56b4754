//! A client that says exactly what it is told to, and its replies.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use millrace_api::ErrorCode;
use millrace_http::status_of;
use serde_json::Value;

use super::PATIENCE;

/// A reply, taken apart.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// Checks that this is a whole problem document with this code.
    pub fn assert_problem(&self, code: &str) -> Value {
        let expected = ErrorCode::parse(code).expect("a code");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let document = self.json();
        assert_eq!(document["code"], code, "{document}");
        assert_eq!(self.status, status_of(expected).as_u16(), "{document}");
        assert_eq!(document["status"], self.status);
        assert_eq!(document["type"], format!("/errors/{code}"));
        assert_eq!(document["title"], expected.title());
        assert!(document["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
        assert_eq!(self.header("retry-after").is_some(), self.status == 503);
        assert_eq!(self.header("www-authenticate"), (self.status == 401).then_some("Bearer"));
        assert_eq!(self.header("allow").is_some(), self.status == 405);
        document
    }
}

/// A connection that sends what it is told and reads one reply at a time.
pub struct Client {
    pub stream: BufReader<TcpStream>,
}

impl Client {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("settable");
        stream.set_write_timeout(Some(PATIENCE)).expect("settable");
        Self { stream: BufReader::new(stream) }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).expect("sent");
    }

    /// `request` is the request line without the version, then header lines, each ended by `\n`.
    pub fn request(request: &str, body: &[u8]) -> Vec<u8> {
        let (line, headers) = request.split_once('\n').unwrap_or((request, ""));
        let mut text = format!("{line} HTTP/1.1\r\nhost: test\r\n");
        for header in headers.lines() {
            text.push_str(header);
            text.push_str("\r\n");
        }
        if !body.is_empty() {
            text.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(body);
        bytes
    }

    pub fn ask(&mut self, request: &str, body: &[u8]) -> Reply {
        self.send(Self::request(request, body));
        self.read_reply(!request.starts_with("HEAD"))
    }

    pub fn read_reply(&mut self, has_body: bool) -> Reply {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a status line");
        let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("no status line: {line:?}"));
        let status = status.parse().expect("a status");
        let mut headers = Vec::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).expect("a header");
            let Some((name, value)) = line.trim_end().split_once(':') else {
                break;
            };
            headers.push((name.to_owned(), value.trim_start().to_owned()));
        }
        let mut reply = Reply { status, headers, body: Vec::new() };
        let length: usize = reply.header("content-length").map_or(0, |length| length.parse().expect("a length"));
        if has_body {
            reply.body.resize(length, 0);
            self.stream.read_exact(&mut reply.body).expect("the body");
        }
        reply
    }

    /// Waits until the server has closed; what it sent before that.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => rest,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => rest,
            Err(error) => panic!("the server did not close: {error}"),
        }
    }
}

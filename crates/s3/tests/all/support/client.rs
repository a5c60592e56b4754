//! A client on a raw socket that signs as S3 clients do.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millrace_s3::signature::{Request, SigningKey, canonical, date, hex};
use sha2::{Digest as _, Sha256};

/// A reply.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The text of the first element of this name.
    pub fn element(&self, name: &str) -> String {
        let text = self.text();
        let Some((_, rest)) = text.split_once(&format!("<{name}>")) else { return String::new() };
        rest.split_once("</").map_or(String::new(), |(inner, _)| inner.to_owned())
    }

    /// The status, and the code of an error document.
    pub fn code(&self) -> (u16, String) {
        (self.status, self.element("Code"))
    }
}

/// A connection.
pub struct Client {
    stream: TcpStream,
    host: String,
    user: Option<&'static str>,
    /// Bytes that were read behind a reply.
    ahead: Vec<u8>,
}

impl Client {
    /// Signs as this user of [`super::People`], or not at all.
    pub fn new(address: SocketAddr, user: Option<&'static str>) -> Self {
        let stream = TcpStream::connect(address).expect("listening");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        Self { stream, host: address.to_string(), user, ahead: Vec::new() }
    }

    /// Sends a request with this body.
    pub fn send(&mut self, method: &str, uri: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let head = self.head(method, uri, headers, body, body.len());
        self.write(&head);
        self.write(body);
        self.read(method)
    }

    pub fn get(&mut self, uri: &str) -> Reply {
        self.send("GET", uri, &[], b"")
    }

    pub fn put(&mut self, uri: &str, body: &[u8]) -> Reply {
        self.send("PUT", uri, &[], body)
    }

    /// A request's head, signed, for a body of which this is signed and which has so many bytes.
    pub fn head(&self, method: &str, uri: &str, headers: &[(&str, &str)], body: &[u8], length: usize) -> Vec<u8> {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let mut own: Vec<(String, String)> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        if let Some(user) = self.user {
            let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
            let timestamp = date::format(now_s);
            own.push(("x-amz-date".to_owned(), timestamp.clone()));
            if !headers.iter().any(|(name, _)| *name == "x-amz-content-sha256") {
                own.push(("x-amz-content-sha256".to_owned(), hex::encode(&Sha256::digest(body))));
            }
            let authorization = self.authorization(method, path, query, &own, user, &timestamp);
            own.push(("authorization".to_owned(), authorization));
        }
        let mut text = format!("{method} {uri} HTTP/1.1\r\nhost: {}\r\n", self.host);
        for (name, value) in &own {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if length > 0 || matches!(method, "PUT" | "POST") {
            text.push_str(&format!("content-length: {length}\r\n"));
        }
        text.push_str("\r\n");
        text.into_bytes()
    }

    fn authorization(
        &self,
        method: &str,
        path: &str,
        query: &str,
        own: &[(String, String)],
        user: &str,
        timestamp: &str,
    ) -> String {
        let headers: Vec<(&str, &[u8])> = own.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let request = Request { method, path, query, host: &self.host, bucket_in_host: None, headers: &headers };
        let mut names: Vec<&str> =
            own.iter().map(|(name, _)| name.as_str()).filter(|name| name.starts_with("x-amz-")).collect();
        names.push("host");
        names.sort_unstable();
        names.dedup();
        let payload = own.iter().find(|(name, _)| name == "x-amz-content-sha256").expect("set before");
        let day = &timestamp[..8];
        let scope = format!("{day}/us-east-1/s3/aws4_request");
        let text = canonical::string_to_sign(timestamp, &scope, &canonical::request(&request, &names, &payload.1));
        let signature = SigningKey::derive(&format!("{user}-secret"), day, "us-east-1").sign(text.as_bytes());
        let names = names.join(";");
        format!("AWS4-HMAC-SHA256 Credential={user}/{scope},SignedHeaders={names},Signature={signature}")
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// Reads a reply to this method.
    pub fn read(&mut self, method: &str) -> Reply {
        let mut bytes = std::mem::take(&mut self.ahead);
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
                break at + 4;
            }
            self.more(&mut bytes);
        };
        let head = String::from_utf8(bytes[..end].to_vec()).expect("text");
        let mut lines = head.lines();
        let status =
            lines.next().and_then(|line| line.get(9..12)).and_then(|text| text.parse().ok()).expect("a status");
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut reply = Reply { status, headers, body: Vec::new() };
        let length = reply.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        let length = if method == "HEAD" || matches!(status, 100 | 204 | 304) { 0 } else { length };
        while bytes.len() < end + length {
            self.more(&mut bytes);
        }
        self.ahead = bytes.split_off(end + length);
        reply.body = bytes.split_off(end);
        reply
    }

    fn more(&mut self, bytes: &mut Vec<u8>) {
        let mut buffer = [0; 64 << 10];
        let count = self.stream.read(&mut buffer).expect("a reply in time");
        assert!(count > 0, "the server closed the connection after {:?}", String::from_utf8_lossy(bytes));
        bytes.extend_from_slice(&buffer[..count]);
    }
}

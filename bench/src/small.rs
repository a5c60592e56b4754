//! Single blocking requests over plain sockets, to set servers up.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use millrace_loadgen::mongo::{MESSAGE_BYTES, decode, message};
use serde_json::Value;

use crate::Outcome;

const TIMEOUT: Duration = Duration::from_secs(120);

fn connect(address: SocketAddr, timeout: Duration) -> Outcome<TcpStream> {
    let failed = |error: std::io::Error| format!("cannot reach {address}: {error}");
    let stream = TcpStream::connect_timeout(&address, timeout).map_err(failed)?;
    stream.set_read_timeout(Some(timeout)).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}

/// Status and body of one HTTP request on its own connection.
///
/// # Errors
/// If there is no whole reply.
pub fn http(address: SocketAddr, method: &str, path: &str, body: &str) -> Outcome<(u16, String)> {
    exchange(&mut connect(address, TIMEOUT)?, address, (method, path, body), "close")
}

/// A connection for one HTTP request after the other.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    address: SocketAddr,
}

impl Connection {
    /// Opens it. A request on it fails after `timeout`, and the connection is of no use then.
    ///
    /// # Errors
    /// If nothing listens there.
    pub fn open(address: SocketAddr, timeout: Duration) -> Outcome<Self> {
        Ok(Self { stream: connect(address, timeout)?, address })
    }

    /// Status and body of one request.
    ///
    /// # Errors
    /// If there is no whole reply.
    pub fn request(&mut self, method: &str, path: &str, body: &str) -> Outcome<(u16, String)> {
        exchange(&mut self.stream, self.address, (method, path, body), "keep-alive")
    }
}

fn exchange(
    stream: &mut TcpStream,
    address: SocketAddr,
    (method, path, body): (&str, &str, &str),
    connection: &str,
) -> Outcome<(u16, String)> {
    let failed = |error: std::io::Error| format!("{method} {path} at {address}: {error}");
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: {connection}\r\n");
    // Restate refuses a type without a body.
    let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    let rest = format!("{kind}Content-Length: {length}\r\n\r\n{body}");
    stream.write_all((head + &rest).as_bytes()).map_err(failed)?;
    let mut reply = Vec::new();
    let mut chunk = [0; 4096];
    while !is_whole(&reply) {
        match stream.read(&mut chunk).map_err(failed)? {
            0 => break,
            length => reply.extend_from_slice(&chunk[..length]),
        }
    }
    let reply = String::from_utf8_lossy(&reply);
    let (head, body) = reply.split_once("\r\n\r\n").ok_or_else(|| format!("{method} {path}: no whole reply"))?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(|| format!("{method} {path}: no status in {head:?}"))?, body.to_owned()))
}

/// Whether the body has the length of its head. A server may keep the connection open although the request asks it to
/// close. Without a length, the reply ends with the connection.
fn is_whole(reply: &[u8]) -> bool {
    let Some(end) = reply.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&reply[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| reply.len() >= end + 4 + length)
}

/// The first line of the reply to a RESP command; error replies are errors.
///
/// # Errors
/// If there is no reply, or an error.
pub fn resp(address: SocketAddr, words: &[&str]) -> Outcome<String> {
    let failed = |error: std::io::Error| format!("{words:?} at {address}: {error}");
    let mut stream = connect(address, TIMEOUT)?;
    let mut command = format!("*{}\r\n", words.len());
    for word in words {
        command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(command.as_bytes()).map_err(failed)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(failed)?;
    match line.as_bytes().first() {
        Some(b'-') | None => Err(format!("{words:?} at {address}: {:?}", line.trim())),
        Some(_) => Ok(line.trim().to_owned()),
    }
}

/// The reply to a command of MongoDB's protocol, as Extended JSON. A reply that is not `ok` is an error.
///
/// # Errors
/// If there is no reply, or an error.
pub fn mongo(address: SocketAddr, command: &str) -> Outcome<Value> {
    let what: String = command.chars().take(80).collect();
    let failed = |error: std::io::Error| format!("{what} at {address}: {error}");
    let mut stream = connect(address, TIMEOUT)?;
    stream.write_all(&message(command).map_err(|error| error.to_string())?).map_err(failed)?;
    let mut reply = vec![0; 4];
    stream.read_exact(&mut reply).map_err(failed)?;
    let length = u32::from_le_bytes([reply[0], reply[1], reply[2], reply[3]]) as usize;
    if !(4..=MESSAGE_BYTES).contains(&length) {
        return Err(format!("{what} at {address}: a reply of {length} bytes"));
    }
    reply.resize(length, 0);
    stream.read_exact(&mut reply[4..]).map_err(failed)?;
    let reply = decode(&reply).map_err(|error| format!("{what} at {address}: {error}"))?;
    if reply["ok"] == 1.0 { Ok(reply) } else { Err(format!("{what} at {address}: {reply}")) }
}

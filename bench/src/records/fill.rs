//! Puts many records, each once, over many connections with several requests in flight on each. Every reply is checked.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

use crate::Outcome;

/// Connections of a thread. Each connection waits for the disk by itself.
const CONNECTIONS: usize = 256;
/// Requests in flight on a connection.
const PIPELINE: usize = 8;
const THREADS: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(120);

/// PUTs the records with these numbers. `record` returns the JSON of a record. The threads run on `cpus`.
///
/// # Errors
/// If any reply is not 200, 201 or 204.
pub fn fill(address: SocketAddr, ids: Range<u64>, cpus: &[usize], record: fn(u64) -> String) -> Outcome<()> {
    let threads = cpus.len().clamp(1, THREADS);
    let share = (ids.end - ids.start).div_ceil(threads as u64).max(1);
    std::thread::scope(|scope| {
        let run = |thread: usize| {
            let first = (ids.start + share * thread as u64).min(ids.end);
            let part = first..(first + share).min(ids.end);
            scope.spawn(move || -> Outcome<()> {
                bind_to(cpus, thread);
                fill_part(address, part, record)
            })
        };
        let threads: Vec<_> = (0..threads).map(run).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Outcome<()>>| {
            thread.join().unwrap_or_else(|_| Err("a thread that fills panicked".to_owned()))
        };
        threads.into_iter().try_for_each(join)
    })
}

fn bind_to(cpus: &[usize], thread: usize) {
    let Some(cpu) = cpus.get(thread).filter(|cpu| **cpu < rustix::thread::CpuSet::MAX_CPU) else { return };
    let mut set = rustix::thread::CpuSet::new();
    set.set(*cpu);
    // If the kernel refuses, it places the thread itself.
    rustix::thread::sched_setaffinity(None, &set).ok();
}

fn fill_part(address: SocketAddr, ids: Range<u64>, record: fn(u64) -> String) -> Outcome<()> {
    let wanted = ((ids.end - ids.start) as usize).div_ceil(PIPELINE).min(CONNECTIONS);
    let mut connections = (0..wanted).map(|_| Connection::open(address)).collect::<Outcome<Vec<_>>>()?;
    let mut next = ids.start;
    while next < ids.end {
        let mut sent = Vec::with_capacity(wanted);
        for connection in &mut connections {
            let end = (next + PIPELINE as u64).min(ids.end);
            connection.put(next..end, record)?;
            sent.push((end - next) as usize);
            next = end;
        }
        for (connection, count) in connections.iter_mut().zip(sent) {
            connection.take(count)?;
        }
    }
    Ok(())
}

struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl Connection {
    fn open(address: SocketAddr) -> Outcome<Self> {
        let failed = |error: std::io::Error| format!("cannot reach {address}: {error}");
        let stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(failed)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(Self { stream, out: Vec::new(), input: Vec::new() })
    }

    fn put(&mut self, ids: Range<u64>, record: fn(u64) -> String) -> Outcome<()> {
        self.out.clear();
        for id in ids {
            let body = record(id);
            let head = format!(
                "PUT /records/personinfo/{id} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n",
                body.len()
            );
            self.out.extend_from_slice(head.as_bytes());
            self.out.extend_from_slice(body.as_bytes());
        }
        self.stream.write_all(&self.out).map_err(|error| format!("cannot send records: {error}"))
    }

    fn take(&mut self, count: usize) -> Outcome<()> {
        let mut taken = 0;
        let mut chunk = [0; 16 << 10];
        while taken < count {
            while let Some(length) = whole_reply(&self.input)? {
                self.input.drain(..length);
                taken += 1;
            }
            if taken >= count {
                break;
            }
            match self.stream.read(&mut chunk).map_err(|error| format!("no reply to a record: {error}"))? {
                0 => return Err("the server closed a connection that brought records".to_owned()),
                length => self.input.extend_from_slice(&chunk[..length]),
            }
        }
        Ok(())
    }
}

/// The length of the first reply in the bytes, if it is complete.
fn whole_reply(bytes: &[u8]) -> Outcome<Option<usize>> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(&bytes[..end]);
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") { value.trim().parse::<usize>().ok() } else { None }
    });
    let whole = end + 4 + length.unwrap_or(0);
    let status = head.split(' ').nth(1).unwrap_or_default();
    if !matches!(status, "200" | "201" | "204") {
        let body = String::from_utf8_lossy(bytes.get(end + 4..).unwrap_or_default()).into_owned();
        return Err(format!("putting a record gave {status}: {body}"));
    }
    Ok((bytes.len() >= whole).then_some(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_told_apart_and_wrong_ones_are_errors() {
        let one = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok";
        let two = [&one[..], b"HTTP/1.1 204 No Content\r\n\r\n"].concat();
        assert_eq!(whole_reply(&two), Ok(Some(one.len())));
        assert_eq!(whole_reply(&two[one.len()..]), Ok(Some(27)));
        for cut in 0..one.len() {
            assert_eq!(whole_reply(&one[..cut]), Ok(None), "{cut}");
        }
        assert!(whole_reply(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").is_err());
    }
}

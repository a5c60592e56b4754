//! Reads server-sent events one by one as they come.

use std::io;

use crate::Connection;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The id that a reader sends as `Last-Event-ID` to go on behind this event.
    pub id: String,
    /// The event's name, if it has one.
    pub name: String,
    /// The event's data.
    pub data: String,
}

/// The events of one reply, until it ends, breaks, or is silent for as long as the socket waits.
pub struct EventStream {
    connection: Connection,
    bytes: Vec<u8>,
}

impl EventStream {
    /// Asks for the events behind the event with the id `last`, if there is such an id.
    ///
    /// # Errors
    /// When the connection fails, or the reply is not a stream of events. A reply that says to try again is
    /// `ResourceBusy`. Any other reply is `PermissionDenied`.
    pub fn open(mut connection: Connection, path: &str, last: Option<&str>) -> io::Result<Self> {
        let last = last.map(|last| format!("Last-Event-ID: {last}"));
        let headers: Vec<&str> = std::iter::once("Accept: text/event-stream").chain(last.as_deref()).collect();
        connection.send("GET", path, &headers, b"")?;
        let head = connection.head()?;
        if (head.status, head.header("content-type")) == (200, Some("text/event-stream")) {
            return Ok(Self { connection, bytes: Vec::new() });
        }
        let kind = if head.status == 503 { io::ErrorKind::ResourceBusy } else { io::ErrorKind::PermissionDenied };
        Err(io::Error::new(kind, format!("{path}: {} and no events", head.status)))
    }

    /// The lines of the next block, which an empty line ends. A block that is cut off does not count.
    fn block(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.bytes.drain(..end + 2).collect();
                return String::from_utf8(block).ok();
            }
            let more = self.connection.chunk().ok().filter(|chunk| !chunk.is_empty())?;
            self.bytes.extend(more);
        }
    }
}

impl Iterator for EventStream {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            let (block, mut event) = (self.block()?, Event::default());
            for line in block.lines() {
                match line.split_once(':') {
                    Some(("id", value)) => value.trim_start().clone_into(&mut event.id),
                    Some(("event", value)) => value.trim_start().clone_into(&mut event.name),
                    Some(("data", value)) => event.data.push_str(value.trim_start()),
                    // This line is a comment.
                    _ => {}
                }
            }
            if event != Event::default() {
                return Some(event);
            }
        }
    }
}

//! HTTP/2, frame by frame: what no client of it does.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::{PATIENCE, Server, patient};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 0x1;
const PADDED: u8 = 0x8;
const END_HEADERS: u8 = 0x4;

const PROTOCOL_ERROR: u32 = 1;
const ENHANCE_YOUR_CALM: u32 = 11;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&[a, b, c, kind, flags][..], &stream.to_be_bytes(), payload].concat()
}

/// A field as HPACK writes it where no table is touched.
fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).expect("under 127 bytes");
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

fn head(method: &str, path: &str) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "http"), (":authority", "test"), (":path", path)];
    fields.map(|(name, value)| field(name, value)).concat()
}

struct Frames {
    stream: TcpStream,
}

/// What a stream got: its reply's first byte of HPACK, or the code it was reset with.
#[derive(Debug, PartialEq)]
enum Got {
    /// The status, where it is one of the static table.
    Headers(u8),
    Reset(u32),
    GoAway(u32),
    /// The connection ended before.
    End,
}

impl Frames {
    fn open(server: &Server) -> Self {
        let mut stream = TcpStream::connect(server.address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("settable");
        stream.set_nodelay(true).expect("settable");
        let hello = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat();
        stream.write_all(&hello).expect("sent");
        Self { stream }
    }

    /// Says whether the server still takes it.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    fn ask(&mut self, stream: u32, block: &[u8]) {
        assert!(self.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, block)));
    }

    fn read(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let [a, b, c, kind, _, d, e, f, g] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload).ok()?;
        Some((kind, u32::from_be_bytes([d, e, f, g]), payload))
    }

    /// The next that ends something.
    fn got(&mut self) -> Got {
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
        loop {
            match self.read() {
                None => return Got::End,
                Some((HEADERS, _, block)) => return Got::Headers(block[0]),
                Some((RST_STREAM, _, payload)) => return Got::Reset(number(&payload)),
                Some((GOAWAY, _, payload)) if number(&payload[4..8]) > 0 => {
                    return Got::GoAway(number(&payload[4..8]));
                }
                Some(_) => {}
            }
        }
    }
}

/// `:status: 200` and `:status: 400` of HPACK's static table.
const OK: Got = Got::Headers(0x88);
const BAD_REQUEST: Got = Got::Headers(0x8c);

#[test]
fn floods_of_frames_end_the_connection() {
    let server = Server::start(patient());
    for (name, one) in [
        ("priority", frame(PRIORITY, 0, 3, &[0, 0, 0, 0, 1])),
        ("window", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("ping", frame(PING, 0, 0, &[7; 8])),
        ("settings", frame(SETTINGS, 0, 0, &[])),
        ("nothing known", frame(0x77, 0, 0, &[1, 2, 3])),
    ] {
        let mut frames = Frames::open(&server);
        frames.ask(1, &head("GET", "/healthz"));
        assert_eq!(frames.got(), OK, "{name}");
        // Replies to pings and settings have to be read, or the server stops reading.
        let mut reader = Frames { stream: frames.stream.try_clone().expect("cloned") };
        let got = std::thread::spawn(move || reader.got());
        let flood = one.repeat(1000);
        let sent = (0..100).take_while(|_| frames.send(&flood)).count();
        assert_eq!(got.join().expect("no panic"), Got::GoAway(ENHANCE_YOUR_CALM), "{name}, {sent} thousand");
    }
    // The others do not notice.
    let mut frames = Frames::open(&server);
    frames.ask(1, &head("GET", "/healthz"));
    assert_eq!(frames.got(), OK);
}

#[test]
fn a_flood_of_padding_ends_the_connection() {
    let server = Server::start(patient());
    for payload in [&[0][..], &[1, 0]] {
        let mut frames = Frames::open(&server);
        assert!(frames.send(&frame(HEADERS, END_HEADERS, 1, &head("POST", "/call/c/k/echo"))));
        let flood = frame(DATA, PADDED, 1, payload).repeat(1000);
        let sent = (0..5).take_while(|_| frames.send(&flood)).count();
        assert_eq!(frames.got(), Got::GoAway(ENHANCE_YOUR_CALM), "{payload:?}, {sent} thousand");
    }
    // A body may come with padding, in many parts.
    let mut frames = Frames::open(&server);
    assert!(frames.send(&frame(HEADERS, END_HEADERS, 1, &head("POST", "/call/c/k/echo"))));
    assert!(frames.send(&frame(DATA, PADDED, 1, b"\x02 --").repeat(2_000)));
    assert!(frames.send(&frame(DATA, PADDED | END_STREAM, 1, b"\x011-")));
    assert_eq!(frames.got(), OK);
}

#[test]
fn clients_that_ask_may_send_frames_with_each_request() {
    let server = Server::start(patient());
    let mut frames = Frames::open(&server);
    for request in 0..2_000 {
        let stream = 2 * request + 1;
        let priority = frame(PRIORITY, 0, stream, &[0, 0, 0, 0, 1]);
        let window = frame(WINDOW_UPDATE, 0, stream, &[0, 0, 1, 0]);
        assert!(frames.send(&priority));
        frames.ask(stream, &head("GET", "/healthz"));
        assert!(frames.send(&window));
        assert!(matches!(frames.got(), Got::Headers(_)), "{request}");
    }
}

#[test]
fn pseudo_headers_in_trailers_reset_the_stream() {
    let server = Server::start(patient());
    let mut frames = Frames::open(&server);
    // An entry of the static table, a name of it, the name spelt out, Huffman-coded, and an entry of the dynamic table.
    let indexed = b"\x84".to_vec();
    let named = b"\x04\x01/".to_vec();
    let spelt = field(":path", "/");
    let coded = b"\x00\x84\xb9\x58\xd3\x3f\x01/".to_vec();
    let dynamic = b"\xbe".to_vec();
    let mut stream = 1;
    for trailers in [indexed, named, spelt, coded, dynamic, field(":authority", "x")] {
        // Its path is left in the dynamic table.
        let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "test")];
        let block = [&fields.map(|(name, value)| field(name, value)).concat()[..], b"\x44\x0e/call/c/k/echo"].concat();
        assert!(frames.send(&frame(HEADERS, END_HEADERS, stream, &block)));
        assert!(frames.send(&frame(DATA, 0, stream, b"1")));
        assert!(frames.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &trailers)));
        assert_eq!(frames.got(), Got::Reset(PROTOCOL_ERROR), "{trailers:x?}");
        stream += 2;
    }
    assert_eq!(server.backend.shared.calls.load(std::sync::atomic::Ordering::SeqCst), 0, "none of them ran");
    // Other trailers are passed over, and the connection goes on.
    assert!(frames.send(&frame(HEADERS, END_HEADERS, stream, &head("POST", "/call/c/k/echo"))));
    assert!(frames.send(&frame(DATA, 0, stream, b"1")));
    assert!(frames.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &field("x-sum", "1"))));
    assert_eq!(frames.got(), OK);
}

#[test]
fn a_host_other_than_the_authority_is_refused() {
    let server = Server::start(patient());
    let mut frames = Frames::open(&server);
    for (stream, path, host, expected) in [
        (1, "/healthz", "test", OK),
        (3, "/healthz", "TEST", OK),
        (5, "/healthz", "other.test", BAD_REQUEST),
        (7, "/healthz", "test:80", BAD_REQUEST),
        (9, "/nothing/here", "x", BAD_REQUEST),
        (11, "/user/x", "x", BAD_REQUEST),
    ] {
        frames.ask(stream, &[head("GET", path), field("host", host)].concat());
        assert_eq!(frames.got(), expected, "{path} {host}");
    }
}

#[test]
fn too_long_a_length_is_refused_over_http2_too() {
    let server = Server::start(patient());
    let mut frames = Frames::open(&server);
    let ask = |length: &str| [head("POST", "/call/c/k/echo"), field("content-length", length)].concat();
    assert!(frames.send(&frame(HEADERS, END_HEADERS, 1, &ask("999999999999"))));
    // 413 is not in the static table: its name is, and the digits follow.
    assert_eq!(frames.got(), Got::Headers(0x48));
    assert!(frames.send(&frame(HEADERS, END_HEADERS, 3, &ask("99999999999999999999999"))));
    loop {
        match frames.got() {
            // That the rest of the first request is not wanted.
            Got::Reset(0) => {}
            got => break assert_eq!(got, Got::Reset(PROTOCOL_ERROR)),
        }
    }
}

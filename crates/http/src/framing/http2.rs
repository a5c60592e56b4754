//! HTTP/2: which frames come, and how many.
//!
//! Reads the heads of frames (RFC 9113, 4.1) and passes them on as they are, with two exceptions. Frames that carry no
//! request have a budget: beyond it, h2 gets a sequence that makes it end the connection. And h2 ignores pseudo-headers
//! in trailers, which are errors (RFC 9113, 8.1): trailers get a field at their beginning, behind which h2 does not
//! take pseudo-headers.

use millrace_base::Http2FrameBudget;

const HEAD_BYTES: usize = 9;

/// The longest frame that this server takes: `SETTINGS_MAX_FRAME_SIZE` as it is unless it is set.
const FRAME_BYTES: usize = 16 << 10;

/// What every connection begins with.
const PREFACE_BYTES: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();

// Kinds of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

// Flags.
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// A field named `-` without a value, as HPACK writes it where no table is touched (RFC 7541, 6.2.2).
const FIELD: [u8; 4] = [0, 1, b'-', 0];

#[derive(Clone, Copy, Debug)]
struct Head([u8; HEAD_BYTES]);

impl Head {
    fn new(length: usize, kind: u8, flags: u8, stream: u32) -> Self {
        let [_, a, b, c] = (length as u32).to_be_bytes();
        let [d, e, f, g] = stream.to_be_bytes();
        Self([a, b, c, kind, flags, d, e, f, g])
    }

    fn length(&self) -> usize {
        let [a, b, c, ..] = self.0.map(usize::from);
        a << 16 | b << 8 | c
    }

    fn kind(&self) -> u8 {
        self.0[3]
    }

    fn flags(&self) -> u8 {
        self.0[4]
    }

    fn stream(&self) -> u32 {
        let [.., a, b, c, d] = self.0;
        u32::from_be_bytes([a & 0x7f, b, c, d])
    }

    /// Whether the first byte of its payload says how long its padding is.
    fn is_padded_data(&self) -> bool {
        self.kind() == DATA && self.flags() & PADDED != 0 && self.length() > 0
    }

    /// Whether it is for something else than a request's headers and content. `padding` is that of DATA, with the byte that
    /// says so.
    fn is_overhead(&self, padding: usize) -> bool {
        match self.kind() {
            HEADERS | CONTINUATION => false,
            DATA => self.length() <= padding && self.flags() & END_STREAM == 0,
            _ => true,
        }
    }
}

/// Where the bytes that come next belong.
#[derive(Debug)]
enum Part {
    Preface(usize),
    /// The head of a frame, of which so many bytes are there.
    Head([u8; HEAD_BYTES], usize),
    /// A DATA frame whose padding has a length that is still to come.
    Padded(Head),
    /// So many bytes of a frame that is passed on.
    Payload(usize),
    /// A frame of trailers, of which so many bytes are still to come.
    Trailers(Head, Vec<u8>, usize),
    /// The connection is to end.
    Refused,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Http2 {
    part: Part,
    budget: Http2FrameBudget,
    /// The highest stream that a request has begun on: no second one begins there.
    highest_stream: u32,
    /// More frames than h2 takes as one list of headers.
    most_continuations: usize,
}

const NO_HEAD: Part = Part::Head([0; HEAD_BYTES], 0);

impl Http2 {
    /// For a connection from its first byte on. `header_list_bytes` is what h2 is told.
    pub(crate) fn new(header_list_bytes: usize, now_ms: u64) -> Self {
        // h2 takes a quarter more than are needed, and five in any case.
        let most_continuations = header_list_bytes / FRAME_BYTES * 5 / 4 + 8;
        Self {
            part: Part::Preface(PREFACE_BYTES),
            budget: Http2FrameBudget::new(now_ms),
            highest_stream: 0,
            most_continuations,
        }
    }

    /// So many bytes have left.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.budget.sent(bytes);
    }

    /// Whether the connection is to end.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.part, Part::Refused)
    }

    /// Looks at what came next. The first bytes of it, as many as this gives, go on as they are; behind them goes what
    /// it appends to `instead`.
    pub(crate) fn look(&mut self, bytes: &[u8], now_ms: u64, instead: &mut Vec<u8>) -> usize {
        self.budget.time_is(now_ms);
        let (mut at, mut passed) = (0, 0);
        while at < bytes.len() {
            let rest = &bytes[at..];
            match &mut self.part {
                Part::Preface(left) | Part::Payload(left) => {
                    let here = (*left).min(rest.len());
                    *left -= here;
                    if *left == 0 {
                        self.part = NO_HEAD;
                    }
                    at += here;
                    pass(&rest[..here], at - here, &mut passed, instead);
                }
                Part::Head(head, length) => {
                    let here = (HEAD_BYTES - *length).min(rest.len());
                    head[*length..*length + here].copy_from_slice(&rest[..here]);
                    *length += here;
                    at += here;
                    if *length == HEAD_BYTES {
                        let head = Head(*head);
                        if head.is_padded_data() {
                            self.part = Part::Padded(head);
                        } else if self.begins(head, 0, instead) {
                            // Of a head that came in parts, the first was kept: see `pass`.
                            pass(&head.0, at.wrapping_sub(HEAD_BYTES), &mut passed, instead);
                        }
                    }
                }
                Part::Padded(head) => {
                    let (head, padding) = (*head, rest[0]);
                    at += 1;
                    if self.begins(head, 1 + usize::from(padding), instead) {
                        self.part = if head.length() > 1 { Part::Payload(head.length() - 1) } else { NO_HEAD };
                        let begun = [&head.0[..], &[padding]].concat();
                        pass(&begun, at.wrapping_sub(begun.len()), &mut passed, instead);
                    }
                }
                Part::Trailers(head, payload, left) => {
                    let here = (*left).min(rest.len());
                    payload.extend_from_slice(&rest[..here]);
                    *left -= here;
                    at += here;
                    if *left == 0 {
                        let (head, payload) = (*head, std::mem::take(payload));
                        self.part = NO_HEAD;
                        self.trailers_end(head, &payload, instead);
                    }
                }
                Part::Refused => break,
            }
        }
        passed
    }

    /// A frame begins. Says whether its head is passed on.
    fn begins(&mut self, head: Head, padding: usize, instead: &mut Vec<u8>) -> bool {
        if head.is_overhead(padding) && !self.budget.spend() {
            self.refuse_flood(instead);
            return false;
        }
        let length = head.length();
        self.part = if length > 0 { Part::Payload(length) } else { NO_HEAD };
        if head.kind() != HEADERS {
            return true;
        }
        if head.stream() > self.highest_stream {
            self.highest_stream = head.stream();
            self.budget.request_begins();
            return true;
        }
        if length > FRAME_BYTES {
            // h2 refuses it.
            return true;
        }
        if length == 0 {
            self.trailers_end(head, &[], instead);
        } else {
            self.part = Part::Trailers(head, Vec::with_capacity(length), length);
        }
        false
    }

    /// Makes h2 end the connection with ENHANCE_YOUR_CALM: it does so itself for headers in too many frames.
    fn refuse_flood(&mut self, instead: &mut Vec<u8>) {
        let stream = self.highest_stream + 2 - (self.highest_stream + 1) % 2;
        instead.extend_from_slice(&Head::new(0, HEADERS, 0, stream).0);
        for _ in 0..self.most_continuations {
            instead.extend_from_slice(&Head::new(0, CONTINUATION, 0, stream).0);
        }
        self.part = Part::Refused;
    }

    /// Makes h2 end the connection with PROTOCOL_ERROR: nothing is there that could go on.
    fn refuse_malformed(&mut self, instead: &mut Vec<u8>) {
        instead.extend_from_slice(&Head::new(0, CONTINUATION, 0, 1).0);
        self.part = Part::Refused;
    }

    /// Trailers go on with [`FIELD`] at their beginning.
    fn trailers_end(&mut self, head: Head, payload: &[u8], instead: &mut Vec<u8>) {
        let Some(fragment) = fragment(head.flags(), payload) else {
            return self.refuse_malformed(instead);
        };
        let length = fragment.len() + FIELD.len();
        let Some(begin) = size_updates(fragment).filter(|_| length <= FRAME_BYTES) else {
            return self.refuse_malformed(instead);
        };
        let flags = head.flags() & (END_STREAM | END_HEADERS);
        instead.extend_from_slice(&Head::new(length, HEADERS, flags, head.stream()).0);
        instead.extend_from_slice(&fragment[..begin]);
        instead.extend_from_slice(&FIELD);
        instead.extend_from_slice(&fragment[begin..]);
    }
}

/// Passes bytes on that begin at `at` of what came: in place, while all before them were.
fn pass(bytes: &[u8], at: usize, passed: &mut usize, instead: &mut Vec<u8>) {
    if instead.is_empty() && at == *passed {
        *passed += bytes.len();
    } else {
        instead.extend_from_slice(bytes);
    }
}

/// The part of a HEADERS frame that HPACK reads: without padding and priority.
fn fragment(flags: u8, payload: &[u8]) -> Option<&[u8]> {
    let mut rest = payload;
    let mut padding = 0;
    if flags & PADDED != 0 {
        let (first, behind) = rest.split_first()?;
        (padding, rest) = (usize::from(*first), behind);
    }
    if flags & PRIORITY != 0 {
        rest = rest.get(5..)?;
    }
    rest.get(..rest.len().checked_sub(padding)?)
}

/// Bytes of the changes of the table's size that a list of headers may begin with (RFC 7541, 6.3); `None` where the
/// last of them is not all there.
fn size_updates(fragment: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(first) = fragment.get(at).filter(|first| *first & 0xe0 == 0x20) {
        at += 1;
        if first & 0x1f == 0x1f {
            while fragment.get(at)? & 0x80 != 0 {
                at += 1;
            }
            at += 1;
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use millrace_base::limits::HTTP2_FRAMES;
    use proptest::prelude::*;

    use super::*;

    const PING: u8 = 6;
    const PREFACE: [u8; PREFACE_BYTES] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        [&Head::new(payload.len(), kind, flags, stream).0, payload].concat()
    }

    /// What goes on of bytes that come in such parts.
    fn passed<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut check = Http2::new(16 << 10, 0);
        let mut all = Vec::new();
        for part in parts {
            let mut instead = Vec::new();
            let passed = check.look(part, 0, &mut instead);
            all.extend_from_slice(&part[..passed]);
            all.extend_from_slice(&instead);
        }
        all
    }

    fn whole_and_single(bytes: &[u8]) -> Vec<u8> {
        let whole = passed([bytes]);
        let single = passed(bytes.chunks(1));
        // A head that has come in part is kept back.
        assert!(whole == single, "{whole:?} and {single:?}");
        whole
    }

    #[test]
    fn requests_go_on_as_they_are() {
        let frames = [
            frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]),
            frame(HEADERS, END_HEADERS, 1, b"\x82\x86\x84"),
            frame(DATA, END_STREAM, 1, &[7; 300]),
            frame(HEADERS, END_HEADERS | END_STREAM, 3, b"\x82\x86\x84"),
            frame(DATA, PADDED, 1, b"\x02xyz--"),
            frame(DATA, PADDED, 1, b"\x00"),
            frame(DATA, PADDED, 1, b""),
            frame(DATA, PADDED, 1, b"\x09too short"),
            frame(DATA, END_STREAM, 1, b""),
        ];
        let bytes = [&PREFACE[..], &frames.concat()].concat();
        assert_eq!(whole_and_single(&bytes), bytes);
    }

    #[test]
    fn trailers_begin_with_a_field() {
        let request = [&PREFACE[..], &frame(HEADERS, END_HEADERS, 1, b"\x82\x86\x84")].concat();
        let end = frame(DATA, END_STREAM, 3, b"");
        let flags = END_HEADERS | END_STREAM;
        for (given, payload, expected) in [
            (0, &b"\x84"[..], &b"\0\x01-\0\x84"[..]),
            (0, b"", b"\0\x01-\0"),
            (0, b"\x20\x3f\xe1\x1f\x84", b"\x20\x3f\xe1\x1f\0\x01-\0\x84"),
            (PADDED, b"\x02\x84--", b"\0\x01-\0\x84"),
            (PADDED | PRIORITY, b"\x01-----\x84-", b"\0\x01-\0\x84"),
        ] {
            let sent = [&request[..], &frame(HEADERS, flags | given, 1, payload), &end].concat();
            let expected = [&request[..], &frame(HEADERS, flags, 1, expected), &end].concat();
            assert_eq!(whole_and_single(&sent), expected, "{payload:?}");
        }
    }

    #[test]
    fn trailers_that_nobody_can_read_end_the_connection() {
        let request = [&PREFACE[..], &frame(HEADERS, END_HEADERS, 1, b"\x82\x86\x84")].concat();
        let end = Head::new(0, CONTINUATION, 0, 1).0;
        for (flags, payload) in [
            (0, vec![0x3f, 0xff]),
            (PADDED, vec![]),
            (PADDED, vec![2, 0]),
            (PRIORITY, vec![0; 4]),
            (0, vec![0x84; FRAME_BYTES]),
        ] {
            let sent = [&request[..], &frame(HEADERS, flags, 1, &payload), b"more"].concat();
            assert_eq!(whole_and_single(&sent), [&request[..], &end].concat());
        }
    }

    #[test]
    fn frames_without_a_request_have_a_budget() {
        let most = usize::try_from(HTTP2_FRAMES).expect("few");
        let of_data = [frame(DATA, 0, 1, b""), frame(DATA, PADDED, 1, b"\x00"), frame(DATA, PADDED, 1, b"\x02--")];
        let others = [frame(2, 0, 3, &[0; 5]), frame(8, 0, 0, &[0; 4]), frame(PING, 0, 0, &[0; 8])];
        for one in of_data.into_iter().chain(others) {
            let within = [&PREFACE[..], &one.repeat(most)].concat();
            assert_eq!(whole_and_single(&within), within);
            let beyond = [&within[..], &one.repeat(2)].concat();
            let passed = whole_and_single(&beyond);
            let end = passed.strip_prefix(&within[..]).expect("as it was until then");
            assert_eq!(end.len() % HEAD_BYTES, 0);
            assert!(end.chunks(HEAD_BYTES).skip(1).all(|head| head[3] == CONTINUATION) && end.len() > 6 * HEAD_BYTES);
        }
        for full in [frame(DATA, 0, 1, b"x"), frame(DATA, PADDED, 1, b"\x02x--")] {
            let bytes = [&PREFACE[..], &full.repeat(2 * most)].concat();
            assert_eq!(whole_and_single(&bytes), bytes, "content has other bounds");
        }
    }

    proptest! {
        #[test]
        fn bytes_may_come_in_any_parts(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut all = PREFACE.to_vec();
            // Short frames of all kinds.
            for chunk in bytes.chunks(7) {
                all.extend_from_slice(&[0, 0, chunk.len() as u8, chunk[0] % 11, chunk[0], 0, 0, 0, chunk[0] % 4]);
                all.extend_from_slice(chunk);
            }
            whole_and_single(&all);
        }
    }
}

//! A worker for tests: it speaks the protocol of `docs/internals/worker-protocol.md` over HTTP/1.1, one request for each turn,
//! and breaks it where a test wants that. It shares no code with the server.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::spawn;
use std::time::Duration;

use serde_json::{Value, json};

use crate::outside::{Message, read_message};

/// One frame as bytes.
#[must_use]
pub fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes().to_vec();
    out.extend_from_slice(&[kind, flags, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(payload);
    out
}

/// A length and so many bytes.
#[must_use]
pub fn sized(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn json_value(value: &Value) -> Vec<u8> {
    [&[0][..], &sized(value.to_string().as_bytes())].concat()
}

/// Takes pieces off the front of bytes.
struct Pieces<'a>(&'a [u8]);

impl<'a> Pieces<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    fn number(&mut self) -> usize {
        self.take(4).iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = self.number();
        self.take(length)
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.bytes().to_vec()).expect("the server sends text where text is due")
    }

    fn value(&mut self) -> Value {
        match self.take(1)[0] {
            0 => serde_json::from_slice(self.bytes()).expect("the server sends JSON where JSON is due"),
            _ => json!({ "raw": self.bytes() }),
        }
    }

    fn result(&mut self) -> Result<Value, String> {
        if self.take(1)[0] == 0 {
            return Ok(self.value());
        }
        let code = self.text();
        let _message = self.text();
        let _detail = self.bytes();
        Err(code)
    }

    fn frame(&mut self) -> Option<(u8, u8, &'a [u8])> {
        if self.0.is_empty() {
            return None;
        }
        let length = self.number();
        let header = self.take(8);
        Some((header[0], header[1], self.take(length)))
    }
}

/// One request to the worker: START and the results so far.
#[derive(Clone, Debug)]
pub struct WorkerRequest {
    /// The headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The attempt token.
    pub attempt: Vec<u8>,
    /// 0 transaction, 1 query, 2 workflow, 3 route.
    pub kind: u8,
    /// Milliseconds that the server waits.
    pub deadline_ms: usize,
    /// Frames that the server has.
    pub seen: usize,
    /// The service.
    pub service: String,
    /// The handler.
    pub handler: String,
    /// The entity's key.
    pub key: String,
    /// The input.
    pub input: Value,
    /// Whether `fields` are all of the entity.
    pub is_whole: bool,
    /// The fields.
    pub fields: BTreeMap<String, Value>,
    /// Results by operation, in order.
    pub results: Vec<(u32, Result<Value, String>)>,
}

fn read_request(headers: BTreeMap<String, String>, body: &[u8]) -> WorkerRequest {
    let mut frames = Pieces(body);
    let (kind, flags, payload) = frames.frame().expect("a request begins with START");
    assert_eq!(kind, 0x01, "a request begins with START");
    let mut start = Pieces(payload);
    let attempt = start.take(16).to_vec();
    let kind = start.take(1)[0];
    let (deadline_ms, seen) = (start.number(), start.number());
    let (service, handler, key) = (start.text(), start.text(), start.text());
    let _invocation = start.text();
    let _now_and_seed = start.take(8 + 16);
    let input = start.bytes();
    let input = if input.is_empty() { Value::Null } else { serde_json::from_slice(input).expect("JSON") };
    let fields = (0..start.number()).map(|_| (start.text(), start.value())).collect();
    assert!(start.0.is_empty(), "START has nothing behind its fields");
    let mut results = Vec::new();
    while let Some((kind, _, payload)) = frames.frame() {
        if kind == 0x02 {
            let mut result = Pieces(payload);
            results.push((result.number() as u32, result.result()));
        }
    }
    let is_whole = flags & 1 != 0;
    WorkerRequest { headers, attempt, kind, deadline_ms, seen, service, handler, key, input, is_whole, fields, results }
}

/// What the worker answers.
pub enum Said {
    /// These frames.
    Frames(Vec<u8>),
    /// Nothing: it closes the connection.
    Close,
    /// Nothing for so long, then it closes the connection.
    Hang(Duration),
    /// Only a part of what it had to say, then it closes the connection.
    Half(Vec<u8>),
    /// Another status than 200.
    Status(u16, String),
}

/// Why a handler does not go on.
pub enum Stop {
    /// It waits for a result.
    Waits,
    /// It fails, with this code and message.
    Fails(&'static str, String),
}

/// One run of a handler.
pub struct Run<'a> {
    /// What it was asked.
    pub request: &'a WorkerRequest,
    frames: Vec<Vec<u8>>,
    operations: u32,
}

impl Run<'_> {
    /// Sets a field.
    pub fn set(&mut self, field: &str, value: &Value) {
        self.frames.push(frame(0x22, 0, &[sized(field.as_bytes()), json_value(value)].concat()));
    }

    /// A field as it was at the start.
    #[must_use]
    pub fn get(&self, field: &str) -> Value {
        self.request.fields.get(field).cloned().unwrap_or_default()
    }

    /// Asks for an operation, without waiting for it.
    pub fn ask(&mut self, kind: u8, payload: &[u8]) -> u32 {
        self.operations += 1;
        self.frames.push(frame(kind, 0, &[&self.operations.to_be_bytes()[..], payload].concat()));
        self.operations
    }

    /// Waits for the `nth` result of an operation.
    ///
    /// # Errors
    /// Until it is there; the code of the operation's error.
    pub fn result(&mut self, operation: u32, nth: usize) -> Result<Value, Stop> {
        let mut of_operation = self.request.results.iter().filter(|(known, _)| *known == operation);
        match of_operation.nth(nth) {
            Some((_, Ok(value))) => Ok(value.clone()),
            Some((_, Err(code))) => Err(Stop::Fails("function-failed", code.clone())),
            None => {
                self.frames.push(frame(0x32, 0, &[1u32.to_be_bytes(), operation.to_be_bytes()].concat()));
                Err(Stop::Waits)
            }
        }
    }

    /// Calls a handler, in the same transaction.
    ///
    /// # Errors
    /// As for [`Run::result`].
    pub fn call(&mut self, [service, key, handler]: [&str; 3], input: &Value) -> Result<Value, Stop> {
        let operation = self.ask(0x24, &target([service, key, handler], input));
        self.result(operation, 0)
    }

    /// Sends a message.
    pub fn send(&mut self, to: [&str; 3], input: &Value, delay_ms: u64) {
        self.ask(0x25, &[&target(to, input)[..], &delay_ms.to_be_bytes()].concat());
    }

    /// Sleeps, in a workflow.
    ///
    /// # Errors
    /// As for [`Run::result`].
    pub fn sleep(&mut self, delay_ms: u64) -> Result<Value, Stop> {
        let operation = self.ask(0x28, &delay_ms.to_be_bytes());
        self.result(operation, 0)
    }

    /// Runs a step, in a workflow.
    ///
    /// # Errors
    /// As for [`Run::result`].
    pub fn step(&mut self, name: &str, code: impl FnOnce() -> Value) -> Result<Value, Stop> {
        let operation = self.ask(0x2A, &[sized(name.as_bytes()), sized(b"")].concat());
        let first = self.result(operation, 0)?;
        if first != json!({ "raw": [] }) {
            return Ok(first);
        }
        let ended = [&operation.to_be_bytes()[..], &[0], &json_value(&code())].concat();
        self.frames.push(frame(0x2B, 0, &ended));
        self.result(operation, 1)
    }
}

fn target([service, key, handler]: [&str; 3], input: &Value) -> Vec<u8> {
    [service, key, handler, &input.to_string()].map(|part| sized(part.as_bytes())).concat()
}

/// CRC-32 as in zlib, slowly.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| sum >> 1 ^ if sum & 1 == 1 { 0xEDB8_8320 } else { 0 })
    })
}

/// Runs a handler from its beginning, and gives all of its frames.
fn frames_of(request: &WorkerRequest, handler: impl FnOnce(&mut Run<'_>) -> Result<Value, Stop>) -> Vec<Vec<u8>> {
    let mut run = Run { request, frames: Vec::new(), operations: 0 };
    match handler(&mut run) {
        Ok(output) => run.frames.push(frame(0x30, 0, &json_value(&output))),
        Err(Stop::Fails(code, message)) => {
            let error = [code, &message, "", ""].map(|part| sized(part.as_bytes())).concat();
            run.frames.push(frame(0x31, 1, &error));
        }
        Err(Stop::Waits) => {}
    }
    run.frames
}

/// Runs a handler from its beginning, and gives its turn.
pub fn run(request: &WorkerRequest, handler: impl FnOnce(&mut Run<'_>) -> Result<Value, Stop>) -> Said {
    let frames = frames_of(request, handler);
    let (again, new) = frames.split_at(request.seen.min(frames.len()));
    if request.seen == 0 {
        return Said::Frames(new.concat());
    }
    let sum = checksum(&again.concat());
    let resumed = frame(0x34, 0, &[(request.seen as u32).to_be_bytes(), sum.to_be_bytes()].concat());
    Said::Frames([resumed, new.concat()].concat())
}

/// A worker that runs until it is dropped.
pub struct TestWorker {
    address: SocketAddr,
    shared: Arc<Shared>,
}

type Answers = dyn Fn(&WorkerRequest, usize) -> Said + Send + Sync;

struct Shared {
    discovery: Value,
    answers: Box<Answers>,
    requests: Mutex<Vec<WorkerRequest>>,
    bodies: Mutex<Vec<Message>>,
    asked: AtomicUsize,
    is_gone: AtomicBool,
}

impl TestWorker {
    /// Starts a worker that serves what `services` says, as in its discovery document. `answers` is given each request, and
    /// how many came before.
    #[must_use]
    pub fn start(services: Value, answers: impl Fn(&WorkerRequest, usize) -> Said + Send + Sync + 'static) -> Self {
        Self::start_at(crate::free_address(), services, answers)
    }

    /// The same, at an address.
    #[must_use]
    pub fn start_at(
        address: SocketAddr,
        services: Value,
        answers: impl Fn(&WorkerRequest, usize) -> Said + Send + Sync + 'static,
    ) -> Self {
        let protocol = json!({ "min": 1, "max": 1 });
        let shared = Arc::new(Shared {
            discovery: json!({ "protocol": protocol, "mode": "request-reply", "services": services }),
            answers: Box::new(answers),
            requests: Mutex::default(),
            bodies: Mutex::default(),
            asked: AtomicUsize::new(0),
            is_gone: AtomicBool::new(false),
        });
        let listener = crate::listen(address);
        let of_thread = Arc::clone(&shared);
        spawn(move || {
            for stream in listener.incoming().flatten() {
                if of_thread.is_gone.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&of_thread);
                spawn(move || {
                    let _closed = serve(stream, &shared);
                });
            }
        });
        Self { address, shared }
    }

    /// `http://address`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<WorkerRequest> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Headers and bodies of the requests so far.
    #[must_use]
    pub fn bodies(&self) -> Vec<(BTreeMap<String, String>, Vec<u8>)> {
        self.shared.bodies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for TestWorker {
    fn drop(&mut self) {
        self.shared.is_gone.store(true, Ordering::SeqCst);
        // Wakes the thread that listens, which ends and closes its socket.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 || shared.is_gone.load(Ordering::SeqCst) {
            return Ok(());
        }
        let is_discovery = line.starts_with("GET ");
        let (headers, body) = read_message(&mut stream)?;
        shared.bodies.lock().unwrap_or_else(PoisonError::into_inner).push((headers.clone(), body.clone()));
        let said = if is_discovery {
            Said::Frames(shared.discovery.to_string().into_bytes())
        } else {
            let request = read_request(headers, &body);
            shared.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
            (shared.answers)(&request, shared.asked.fetch_add(1, Ordering::SeqCst))
        };
        if shared.is_gone.load(Ordering::SeqCst) {
            return Ok(());
        }
        match said {
            Said::Frames(body) => answer(stream.get_mut(), 200, &body, body.len())?,
            Said::Status(status, body) => answer(stream.get_mut(), status, body.as_bytes(), body.len())?,
            Said::Half(body) => return answer(stream.get_mut(), 200, &body[..body.len() / 2], body.len()),
            Said::Close => return Ok(()),
            Said::Hang(time) => {
                std::thread::sleep(time);
                return Ok(());
            }
        }
    }
}

fn answer(stream: &mut TcpStream, status: u16, body: &[u8], length: usize) -> io::Result<()> {
    let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat())
}

/// A worker that dials in. Its connection ends when it is dropped.
pub struct DialledWorker {
    stream: TcpStream,
}

impl DialledWorker {
    /// Dials in as a worker of `app`, and gives what the server says: the deployment, or an error's code.
    ///
    /// # Panics
    /// When the server does not change the protocol.
    pub fn connect(
        server: SocketAddr,
        app: &str,
        services: Value,
        handler: impl Fn(&mut Run<'_>) -> Result<Value, Stop> + Send + 'static,
    ) -> (Self, Result<String, String>) {
        Self::connect_as(server, (app, None), services, handler)
    }

    /// As [`DialledWorker::connect`], with an API key beside the app's name.
    pub fn connect_as(
        server: SocketAddr,
        (app, key): (&str, Option<&str>),
        services: Value,
        handler: impl Fn(&mut Run<'_>) -> Result<Value, Stop> + Send + 'static,
    ) -> (Self, Result<String, String>) {
        let mut stream = TcpStream::connect(server).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        let head = format!(
            "GET /workers/connect HTTP/1.1\r\nhost: {server}\r\nconnection: upgrade\r\nupgrade: millrace-worker\r\n\
             millrace-worker-protocol: 1\r\nmillrace-app: {app}\r\n{}\r\n",
            key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default()
        );
        stream.write_all(head.as_bytes()).expect("sent");
        let mut input = BufReader::new(stream.try_clone().expect("a socket"));
        let mut line = String::new();
        input.read_line(&mut line).expect("a reply");
        assert!(line.starts_with("HTTP/1.1 101 "), "{line}");
        while line.trim_end() != "" {
            line.clear();
            input.read_line(&mut line).expect("headers");
        }
        let protocol = json!({ "min": 1, "max": 1 });
        let document = json!({ "protocol": protocol, "services": services }).to_string();
        stream.write_all(&frame(0x35, 0, &sized(document.as_bytes()))).expect("sent");
        let (kind, _, payload) = next_frame(&mut input).expect("an answer to HELLO");
        let answer = Pieces(&payload).text();
        let answer = if kind == 0x05 { Ok(answer) } else { Err(answer) };
        let mut output = stream.try_clone().expect("a socket");
        spawn(move || {
            let _closed = serve_frames(&mut input, &mut output, &handler);
        });
        (Self { stream }, answer)
    }
}

impl Drop for DialledWorker {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Type, stream and payload.
fn next_frame(input: &mut impl Read) -> io::Result<(u8, u32, Vec<u8>)> {
    let mut header = [0; 12];
    input.read_exact(&mut header)?;
    let number = |at: usize| header[at..at + 4].iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
    let mut payload = vec![0; number(0) as usize];
    input.read_exact(&mut payload)?;
    Ok((header[4], number(8), payload))
}

fn serve_frames(
    input: &mut impl Read,
    output: &mut impl Write,
    handler: &impl Fn(&mut Run<'_>) -> Result<Value, Stop>,
) -> io::Result<()> {
    // Each attempt's request as it would be over HTTP, and how many frames were sent.
    let mut attempts: BTreeMap<u32, (WorkerRequest, usize)> = BTreeMap::new();
    loop {
        let (kind, stream, payload) = next_frame(input)?;
        match kind {
            0x01 => {
                let request = read_request(BTreeMap::new(), &frame(kind, 0, &payload));
                attempts.insert(stream, (request, 0));
            }
            0x02 => {
                let mut result = Pieces(&payload);
                let result = (result.number() as u32, result.result());
                attempts.entry(stream).and_modify(|(request, _)| request.results.push(result));
            }
            0x03 => drop(attempts.remove(&stream)),
            0x04 => output.write_all(&frame(0x33, 0, b""))?,
            _ => {}
        }
        if let (0x01 | 0x02, Some((request, sent))) = (kind, attempts.get_mut(&stream)) {
            let frames = frames_of(request, handler);
            let mut new = frames[*sent..].to_vec();
            *sent = frames.iter().filter(|frame| frame[4] != 0x32).count();
            for frame in &mut new {
                frame[8..12].copy_from_slice(&stream.to_be_bytes());
            }
            output.write_all(&new.concat())?;
        }
    }
}

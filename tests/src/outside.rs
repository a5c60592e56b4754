//! A server outside, from which functions fetch. It does what the path says, or what a test says. It notes every
//! request.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// One request as it came.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: String,
}

/// A running server. Its threads end with the process, or at the first request after it is dropped.
pub struct Outside {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
}

fn lock(asked: &Mutex<Vec<ReceivedRequest>>) -> MutexGuard<'_, Vec<ReceivedRequest>> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outside {
    /// Starts a server on a free port.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn start() -> Self {
        Self::start_at(crate::free_address())
    }

    /// Starts a server at an address.
    ///
    /// # Panics
    /// When the address is taken.
    #[must_use]
    pub fn start_at(address: SocketAddr) -> Self {
        Self::answering(address, as_the_path_says)
    }

    /// Starts a server at an address, with its own function that answers.
    ///
    /// # Panics
    /// When the address is taken.
    #[must_use]
    pub fn answering(
        address: SocketAddr,
        answers: impl Fn(&ReceivedRequest, usize) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        let listener = crate::listen(address);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let shared = (Arc::clone(&asked), Arc::new(answers));
        spawn(move || {
            for stream in listener.incoming().flatten() {
                let (asked, answers) = shared.clone();
                spawn(move || {
                    let _ = serve(stream, &asked, &*answers);
                });
            }
        });
        Self { address, asked }
    }

    /// `http://address`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far, in order.
    #[must_use]
    pub fn asked(&self) -> Vec<ReceivedRequest> {
        lock(&self.asked).clone()
    }

    /// The requests for one path.
    #[must_use]
    pub fn asked_for(&self, path: &str) -> Vec<ReceivedRequest> {
        self.asked().into_iter().filter(|asked| asked.path == path).collect()
    }
}

/// Headers, with names in lower case, and a body.
pub(crate) type Message = (BTreeMap<String, String>, Vec<u8>);

/// What follows the first line of a request whose body has a length.
pub(crate) fn read_message(stream: &mut BufReader<TcpStream>) -> io::Result<Message> {
    let mut line = String::new();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((headers, body))
}

fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Option<ReceivedRequest>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (headers, body) = read_message(stream)?;
    Ok(Some(ReceivedRequest { method, path, headers, body: String::from_utf8_lossy(&body).into_owned() }))
}

/// The answer to a request: a status, more headers, each with its line end, and a body.
pub struct Answer {
    /// The status code.
    pub status: usize,
    /// Header lines that each end with CR LF.
    pub headers: String,
    /// The body.
    pub body: String,
}

impl Answer {
    /// JSON with this status.
    #[must_use]
    pub fn json(status: usize, body: String) -> Self {
        Self { status, headers: "content-type: application/json\r\n".into(), body }
    }
}

/// The function that answers a request. It gets the number of earlier requests with the same path. `None` closes the
/// connection.
type Answers = dyn Fn(&ReceivedRequest, usize) -> Option<Answer> + Send + Sync;

fn serve(stream: TcpStream, asked: &Mutex<Vec<ReceivedRequest>>, answers: &Answers) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream)? {
        let before = {
            let mut all = lock(asked);
            let before = all.iter().filter(|one| one.path == request.path).count();
            all.push(request.clone());
            before
        };
        let Some(Answer { status, headers, body }) = answers(&request, before) else { break };
        let head = format!("HTTP/1.1 {status} Said\r\n{headers}content-length: {}\r\n\r\n", body.len());
        stream.get_mut().write_all(head.as_bytes())?;
        stream.get_mut().write_all(body.as_bytes())?;
    }
    Ok(())
}

/// `/hang…` is never answered. `/fail/N/…` is answered after N connections were closed, and `/slow/MS/…` after a
/// while. `/status/N` is answered with that status, `/large/N` with N bytes, `/redirect` with a 302. Any other path
/// is answered with the request as JSON.
fn as_the_path_says(request: &ReceivedRequest, before: usize) -> Option<Answer> {
    let mut parts = request.path.trim_start_matches('/').split('/');
    let (kind, number) = (parts.next().unwrap_or_default(), parts.next().and_then(|part| part.parse().ok()));
    let number: usize = number.unwrap_or(0);
    let body = serde_json::json!({
        "method": request.method, "path": request.path, "headers": request.headers, "body": request.body,
        "before": before,
    });
    let mut answer = Answer::json(200, body.to_string());
    answer.headers.push_str("x-outside: Yes\r\n");
    match kind {
        "hang" => {
            sleep(Duration::from_secs(600));
            return None;
        }
        "fail" if before < number => return None,
        "slow" => sleep(Duration::from_millis(number as u64)),
        "status" => answer.status = number,
        "large" => answer.body = "x".repeat(number),
        "redirect" => {
            answer.status = 302;
            answer.headers.push_str("location: /elsewhere\r\n");
        }
        _ => {}
    }
    Some(answer)
}

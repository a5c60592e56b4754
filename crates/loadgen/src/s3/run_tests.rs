//! Whole runs against a small store in memory that answers right, or wrong in one way.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::spawn;
use std::time::Duration;

use super::plan::{Cell, Operation, Settings, Target};
use super::report::Report;
use super::run::run;
use millrace_signing::Credentials;

/// How the store answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    Right,
    /// The last byte of each object differs.
    WrongByte,
    /// A page of keys lacks its last one.
    ShortPage,
    /// Writes are refused once the objects to read are there.
    Refuses,
}

type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

fn start(answers: Answers) -> (Target, Objects) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let objects = Objects::default();
    let shared = Arc::clone(&objects);
    spawn(move || {
        for stream in listener.incoming().flatten() {
            let objects = Arc::clone(&shared);
            spawn(move || serve(&stream, &objects, answers));
        }
    });
    let credentials = Credentials { access_key: "k".into(), secret_key: "s".into(), region: "r".into() };
    (Target { name: "store".into(), address, host: address.to_string(), credentials }, objects)
}

fn serve(stream: &TcpStream, objects: &Objects, answers: Answers) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let mut words = line.split(' ').map(str::to_owned);
        let (method, target) = (words.next()?, words.next()?);
        let (mut length, mut is_signed) = (0, false);
        loop {
            line.clear();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name {
                "content-length" => length = value.parse().ok()?,
                "authorization" => is_signed = value.starts_with("AWS4-HMAC-SHA256 Credential=k/"),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (status, reply) =
            if is_signed { answer(&method, &target, body, objects, answers) } else { (403, Vec::new()) };
        let head = format!("HTTP/1.1 {status} X\r\netag: \"e\"\r\ncontent-length: {}\r\n\r\n", reply.len());
        let mut stream = stream;
        stream.write_all(&[head.as_bytes(), &reply].concat()).ok()?;
    }
}

fn answer(method: &str, target: &str, body: Vec<u8>, objects: &Objects, answers: Answers) -> (u16, Vec<u8>) {
    let mut objects = objects.lock().expect("not poisoned");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parameter = |name: &str| {
        let found = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        found.map(|value| value.replace("%2F", "/"))
    };
    let Some(key) = path.strip_prefix("/millrace-bench/") else {
        return match method {
            "GET" => (200, list(&objects, &parameter, answers)),
            "DELETE" => (204, Vec::new()),
            _ => (200, Vec::new()),
        };
    };
    match method {
        "POST" if query == "uploads=" => (200, b"<UploadId>id</UploadId>".to_vec()),
        "POST" => {
            let numbers = String::from_utf8_lossy(&body).matches("<PartNumber>").count();
            let parts: Vec<Vec<u8>> =
                (1..=numbers).filter_map(|number| objects.remove(&format!("part/{key}/{number}"))).collect();
            objects.insert(key.to_owned(), parts.concat());
            (200, b"<ETag>e</ETag>".to_vec())
        }
        "PUT" if answers == Answers::Refuses && key.starts_with("put/") => (503, b"<Code>SlowDown</Code>".to_vec()),
        "PUT" => {
            let part = parameter("partNumber").map(|number| format!("part/{key}/{number}"));
            objects.insert(part.unwrap_or_else(|| key.to_owned()), body);
            (200, Vec::new())
        }
        "DELETE" => {
            objects.remove(key);
            (204, Vec::new())
        }
        _ => {
            let mut found = objects.get(key).cloned().unwrap_or_default();
            if let Some(last) = found.last_mut().filter(|_| answers == Answers::WrongByte) {
                *last ^= 1;
            }
            (200, found)
        }
    }
}

fn list(objects: &BTreeMap<String, Vec<u8>>, parameter: &dyn Fn(&str) -> Option<String>, answers: Answers) -> Vec<u8> {
    let (prefix, after) = (parameter("prefix").unwrap_or_default(), parameter("start-after").unwrap_or_default());
    let keys = objects.keys().filter(|key| key.starts_with(&prefix) && **key > after);
    if parameter("delimiter").is_some() {
        let group = |key: &String| format!("{prefix}{}/", key[prefix.len()..].split('/').next().unwrap_or_default());
        let groups: std::collections::BTreeSet<String> = keys.map(group).collect();
        let groups =
            groups.into_iter().map(|group| format!("<CommonPrefixes><Prefix>{group}</Prefix></CommonPrefixes>"));
        return format!("<Prefix>{prefix}</Prefix>{}", groups.collect::<String>()).into_bytes();
    }
    let mut page: Vec<String> = keys.take(1000).map(|key| format!("<Key>{key}</Key>")).collect();
    if answers == Answers::ShortPage && !after.is_empty() {
        page.pop();
    }
    page.concat().into_bytes()
}

fn settings() -> Settings {
    let times = Duration::from_millis(100);
    Settings { duration: times, warm_up: Duration::ZERO, objects: 1500, seed: 7, ..Settings::default() }
}

fn run_cells(answers: Answers, cells: &[Cell], settings: &Settings) -> (Report, Objects) {
    let (target, objects) = start(answers);
    let report = run(&[target], cells, settings, &mut |_| {}).expect("a report");
    (report, objects)
}

const ALL: [Operation; 6] =
    [Operation::Get, Operation::Put, Operation::List, Operation::ListDelimiter, Operation::Delete, Operation::Mixed];

#[test]
fn right_replies_are_counted_and_nothing_stays() {
    let cells = ALL.map(|operation| Cell::new(operation, 100, 3));
    let (report, objects) = run_cells(Answers::Right, &cells, &settings());
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.rows.len(), ALL.len());
    for row in &report.rows {
        let moves = matches!(row.cell.operation, Operation::Get | Operation::Put | Operation::Mixed);
        assert_eq!(row.megabytes_per_s > 0.0, moves, "{row:?}");
        assert!(row.requests_per_s > 0.0 && row.first_byte.p50_us <= row.total.p50_us, "{row:?}");
        assert!(row.total.p50_us > 0.0 && row.total.p99_us <= row.total.p99_9_us, "{row:?}");
    }
    let deleted = report.rows.iter().find(|row| row.cell.operation == Operation::Delete).expect("a row");
    assert!(deleted.requests <= 1500, "an object was deleted twice");
    assert!(objects.lock().expect("not poisoned").is_empty(), "objects stay");
    let lines = report.csv();
    assert_eq!(lines.lines().count(), 1 + ALL.len());
    let columns: Vec<usize> = lines.lines().map(|line| line.split(',').count()).collect();
    assert!(columns.iter().all(|count| *count == columns[0]), "{lines}");
    assert_eq!(report.plots().len(), ALL.len());
    let again: Report = serde_json::from_str(&serde_json::to_string(&report).expect("JSON")).expect("the same");
    assert_eq!(again, report);
}

#[test]
fn each_kind_of_wrong_reply_is_seen() {
    for (answers, operation) in [
        (Answers::WrongByte, Operation::Get),
        // What was written is read again.
        (Answers::WrongByte, Operation::Put),
        (Answers::ShortPage, Operation::List),
        (Answers::Refuses, Operation::Put),
    ] {
        let (report, _) = run_cells(answers, &[Cell::new(operation, 100, 2)], &settings());
        let errors = &report.rows[0].errors;
        let wrong = if answers == Answers::Refuses { errors.status } else { errors.body };
        assert!(wrong > 0 && wrong == errors.total() && !report.is_clean(), "{report:?}");
        assert!(report.rows[0].first_error.is_some());
        assert!(answers != Answers::Refuses || report.rows[0].line().contains("SlowDown"));
    }
}

#[test]
fn long_objects_go_in_parts_and_come_back_whole() {
    let settings = Settings { part_bytes: 1000, objects: 4, ..settings() };
    let cells = [Operation::Get, Operation::Put].map(|operation| Cell::new(operation, 2500, 1));
    let (report, _) = run_cells(Answers::Right, &cells, &settings);
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn writers_run_beside_the_clients_and_rounds_are_told_apart() {
    let settings = Settings { rounds: 2, objects: 4, ..settings() };
    let cell = Cell { writers: Some((2, 5000)), ..Cell::new(Operation::Get, 10, 1) };
    let (report, objects) = run_cells(Answers::Right, &[cell], &settings);
    assert!(report.is_clean() && report.rows.iter().map(|row| row.round).eq([0, 1]), "{report:?}");
    assert!(objects.lock().expect("not poisoned").is_empty(), "objects stay");
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    let (mut target, _) = start(Answers::Right);
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    target.address = nobody;
    assert!(run(&[target], &[Cell::new(Operation::Put, 1, 1)], &settings(), &mut |_| {}).is_err());
}

//! The client against a scripted server: what it sends, how it tells errors, when it repeats.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use millrace_client::{Call, Client, ClientError, ClientOptions, EntityKey, InvocationFilter, ScheduleFilter};

/// Requests as they came: first line, headers, body.
type Observed = Arc<Mutex<Vec<String>>>;

/// Answers one reply after the other; an empty one closes the connection instead.
fn serve(replies: Vec<String>) -> (String, Observed) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen: Observed = Observed::default();
    let log = seen.clone();
    std::thread::spawn(move || {
        let mut replies = replies.into_iter();
        'connections: for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            while let Some(request) = read_request(&mut stream) {
                log.lock().unwrap().push(request);
                match replies.next() {
                    Some(reply) if !reply.is_empty() => stream.get_mut().write_all(reply.as_bytes()).unwrap(),
                    Some(_) => continue 'connections,
                    None => return,
                }
            }
        }
    });
    (url, seen)
}

fn read_request(stream: &mut BufReader<std::net::TcpStream>) -> Option<String> {
    let (mut request, mut length) = (String::new(), 0);
    loop {
        let start = request.len();
        if stream.read_line(&mut request).ok()? == 0 {
            return None;
        }
        let line = request[start..].trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(request + &String::from_utf8_lossy(&body))
}

fn reply(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len())
}

fn client(url: &str) -> Client {
    let options = ClientOptions {
        api_key: Some("secret".into()),
        timeout: Duration::from_secs(5),
        retries: 3,
        ..ClientOptions::default()
    };
    Client::new(url, options).unwrap()
}

const PROBLEM: &str = "Content-Type: application/problem+json\r\n";

#[tokio::test]
async fn the_contract_is_spoken_over_one_connection() {
    let (url, seen) = serve(vec![
        reply(200, "", "7"),
        reply(202, "", r#"{"id":"i-1"}"#),
        reply(200, "", r#"{"id":"i-1","status":"succeeded","output":[1]}"#),
        reply(200, "", r#"{"n":1}"#),
        reply(200, "", "[]"),
        reply(204, "", ""),
        reply(200, "", "ok"),
    ]);
    let client = client(&url);
    let call = Call::new("counter", "a b/{ä}", "add").app("shop").input(&3).unwrap().idempotency_key("k1");
    assert_eq!(client.call_value::<u64>(&call).await.unwrap(), 7);
    let later = Call::new("counter", "..", "add").delay(Duration::from_millis(1500));
    assert_eq!(client.send(&later).await.unwrap(), "i-1");
    let invocation = client.invocation("i-1").await.unwrap();
    assert_eq!((invocation.status.as_str(), invocation.output), ("succeeded", Some(serde_json::json!([1]))));
    assert_eq!(client.state(None, "counter", "a", Some("n")).await.unwrap(), r#"{"n":1}"#);
    assert_eq!(client.apps().await.unwrap(), serde_json::json!([]));
    client.remove_app("shop").await.unwrap();
    assert!(client.health().await.unwrap().is_serving);

    let seen = seen.lock().unwrap();
    let lines: Vec<&str> = seen.iter().map(|request| request.lines().next().unwrap()).collect();
    assert_eq!(
        lines,
        [
            "POST /apps/shop/call/counter/a%20b%2F%7B%C3%A4%7D/add HTTP/1.1",
            "POST /send/counter/%2E%2E/add?delay_ms=1500 HTTP/1.1",
            "GET /invocations/i-1 HTTP/1.1",
            "GET /state/counter/a/n HTTP/1.1",
            "GET /apps HTTP/1.1",
            "DELETE /apps/shop HTTP/1.1",
            "GET /healthz HTTP/1.1",
        ]
    );
    assert!(seen[0].contains("authorization: Bearer secret\r\n") && seen[0].contains("idempotency-key: k1\r\n"));
    assert!(seen[0].ends_with("\r\n\r\n3") && !seen[1].contains("idempotency-key"));
}

const RUNNING: &str = r#"{"id":"w/1","status":"running","app":"trips","service":"trip","key":"ann","handler":"book",
        "began_ms":7,"input":null,"waits_for":["paid"],"new_member":1,"journal":[
        {"operation":1,"kind":"call","name":"room/7/hold","ended_ms":8,"output":null},
        {"operation":2,"kind":"fetch","name":"https://a/","ended_ms":9,"error":{"status":502,"code":"fetch-failed"}}]}"#;
const PAUSED: &str = r#"{"id":"w/1","status":"paused","failures":[
        {"operation":3,"kind":"step","name":"s","attempts":16,"failed_ms":9,"error":{"status":500,"code":"function-failed"}}]}"#;
const DEAD_LETTER: &str =
    r#"{"id":"d","app":"a","service":"s","key":{"base64":"/w=="},"handler":"h","input_bytes":9,"attempts":16}"#;

#[tokio::test]
async fn workflows_and_dead_letters_are_followed_and_steered() {
    let (url, seen) = serve(vec![
        reply(200, "", RUNNING),
        reply(200, "", PAUSED),
        reply(200, "", r#"{"id":"w/1","status":"cancelled"}"#),
        reply(200, "", r#"{"invocations":[{"id":"w","status":"pending"}],"next":"3:1"}"#),
        reply(200, "", r#"{"invocations":[],"next":null}"#),
        reply(202, "", ""),
        reply(202, "", ""),
        reply(202, "", ""),
        reply(503, &format!("{PROBLEM}Retry-After: 0\r\n"), r#"{"status":503,"code":"overloaded"}"#),
        reply(202, "", ""),
        reply(200, "", &format!(r#"{{"dead_letters":[{DEAD_LETTER}],"next":null}}"#)),
        reply(202, "", ""),
        reply(204, "", ""),
    ]);
    let client = client(&url);
    let workflow = client.invocation("w/1").await.unwrap();
    assert_eq!((workflow.input, workflow.output), (Some(serde_json::Value::Null), None));
    let journal = workflow.journal.unwrap();
    assert_eq!((journal[0].output.clone(), journal[1].output.clone()), (Some(serde_json::Value::Null), None));
    assert_eq!(journal[1].error.as_ref().unwrap().code, "fetch-failed");
    assert_eq!(client.ended_invocation("w/1").await.unwrap().status, "cancelled");
    let page = client.invocations(&InvocationFilter::default()).await.unwrap();
    assert_eq!((page.invocations[0].id.as_str(), page.next.as_deref()), ("w", Some("3:1")));
    let filter = InvocationFilter {
        app: Some("a"),
        service: Some("s"),
        key: Some("k&"),
        handler: Some("h"),
        status: Some("running"),
        after: Some("3:1"),
        limit: Some(2),
    };
    assert_eq!(client.invocations(&filter).await.unwrap().next, None);
    client.cancel("w/1").await.unwrap();
    client.kill("w/1").await.unwrap();
    client.resume("w/1").await.unwrap();
    client.signal("w", "paid", &[1], Some("k")).await.unwrap();
    let dead_letters = client.dead_letters(Some("d-0"), Some(9)).await.unwrap();
    assert_eq!(dead_letters.dead_letters[0].key, EntityKey::Binary { base64: "/w==".into() });
    assert_eq!((dead_letters.dead_letters[0].input_bytes, dead_letters.dead_letters[0].attempts), (Some(9), 16));
    client.retry_dead_letter("d").await.unwrap();
    client.drop_dead_letter("d").await.unwrap();

    let seen = seen.lock().unwrap();
    let lines: Vec<&str> = seen.iter().map(|request| request.lines().next().unwrap()).collect();
    assert_eq!(
        lines,
        [
            "GET /invocations/w%2F1 HTTP/1.1",
            "GET /invocations/w%2F1?wait_ms=2500 HTTP/1.1",
            "GET /invocations/w%2F1?wait_ms=2500 HTTP/1.1",
            "GET /invocations HTTP/1.1",
            "GET /invocations?app=a&service=s&key=k%26&handler=h&status=running&after=3%3A1&limit=2 HTTP/1.1",
            "POST /invocations/w%2F1/cancel HTTP/1.1",
            "POST /invocations/w%2F1/kill HTTP/1.1",
            "POST /invocations/w%2F1/resume HTTP/1.1",
            "POST /invocations/w/signal HTTP/1.1",
            "POST /invocations/w/signal HTTP/1.1",
            "GET /dead-letters?after=d-0&limit=9 HTTP/1.1",
            "POST /dead-letters/d/retry HTTP/1.1",
            "DELETE /dead-letters/d HTTP/1.1",
        ]
    );
    assert!(seen[9].contains("idempotency-key: k\r\n") && seen[9].ends_with(r#"{"name":"paid","payload":[1]}"#));
}

#[tokio::test]
async fn schedules_are_listed() {
    let schedule = r#"{"app":"a","service":"s","name":"n","key":"k","handler":"h","cron":"@daily","due_ms":7}"#;
    let (url, seen) = serve(vec![
        reply(200, "", &format!(r#"{{"schedules":[{schedule}],"next":"a.s.n"}}"#)),
        reply(200, "", r#"{"schedules":[],"next":null}"#),
    ]);
    let client = client(&url);
    let page = client.schedules(&ScheduleFilter::default()).await.unwrap();
    assert_eq!((page.schedules[0].due_ms, page.next.as_deref()), (Some(7), Some("a.s.n")));
    let filter = ScheduleFilter { app: Some("a"), service: Some("s"), after: Some("a.s.n"), limit: Some(2) };
    assert_eq!(client.schedules(&filter).await.unwrap().next, None);
    let seen = seen.lock().unwrap();
    let lines: Vec<&str> = seen.iter().map(|request| request.lines().next().unwrap()).collect();
    let filtered = "GET /schedules?app=a&service=s&after=a.s.n&limit=2 HTTP/1.1";
    assert_eq!(lines, ["GET /schedules HTTP/1.1", filtered]);
}

#[tokio::test]
async fn a_problem_document_becomes_an_error_with_its_code() {
    let document = r#"{"type":"x","status":409,"code":"aborted","title":"T","detail":"no funds","payload":{"need":5}}"#;
    let (url, _) = serve(vec![reply(409, PROBLEM, document), reply(502, "", "<html>bad gateway")]);
    let client = client(&url);
    let error = client.call(&Call::new("account", "a", "pay")).await.unwrap_err();
    assert_eq!((error.code(), error.status(), error.is_retryable()), (Some("aborted"), Some(409), false));
    assert_eq!(error.problem().unwrap().members["payload"]["need"], 5);
    assert_eq!(error.to_string(), "aborted (409): no funds");
    let error = client.call(&Call::new("account", "a", "pay")).await.unwrap_err();
    assert_eq!((error.code(), error.status()), (None, Some(502)));
    assert!(error.to_string().contains("bad gateway"));
}

#[tokio::test]
async fn only_a_call_with_an_idempotency_key_is_repeated() {
    let busy = || reply(503, &format!("{PROBLEM}Retry-After: 0\r\n"), r#"{"status":503,"code":"overloaded"}"#);
    let (url, seen) = serve(vec![busy(), String::new(), busy(), reply(200, "", "1")]);
    let call = Call::new("counter", "a", "add").idempotency_key("k");
    assert_eq!(client(&url).call(&call).await.unwrap(), "1");
    assert_eq!(seen.lock().unwrap().len(), 4);

    let (url, seen) = serve(vec![busy(), reply(200, "", "1")]);
    let error = client(&url).call(&Call::new("counter", "a", "add")).await.unwrap_err();
    assert_eq!((error.code(), seen.lock().unwrap().len()), (Some("overloaded"), 1));

    let (url, seen) = serve(vec![String::new(), reply(200, "", "1")]);
    let error = client(&url).call(&Call::new("counter", "a", "add")).await.unwrap_err();
    assert!(matches!(error, ClientError::Interrupted(_)), "{error}");
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn waiting_ends_with_the_timeout() {
    let (url, _) = serve(vec![reply(503, "Retry-After: 20\r\n", "")]);
    let start = Instant::now();
    let call = Call::new("counter", "a", "add").idempotency_key("k");
    assert_eq!(client(&url).call(&call).await.unwrap_err().status(), Some(503));
    assert!(start.elapsed() < Duration::from_secs(2), "a pause beyond the timeout is not waited for");

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let options = ClientOptions { timeout: Duration::from_millis(100), ..ClientOptions::default() };
    let error = Client::new(&url, options).unwrap().health().await.unwrap_err();
    assert_eq!(error, ClientError::Timeout(Duration::from_millis(100)));
    drop(silent);
    let refused = Client::new(&url, ClientOptions::default()).unwrap().health().await.unwrap_err();
    assert!(matches!(refused, ClientError::Connect(_)), "{refused}");
}

#[test]
fn bad_addresses_and_keys_are_refused() {
    for (url, words) in [
        ("ftp://h", "must look like"),
        ("https://h/x", "path"),
        ("https://a_b!c", "no certificate"),
        ("h:1", "must look like"),
        ("http://h/x", "path"),
        ("http://u@h", "user name"),
        ("", "cannot use"),
    ] {
        let error = Client::new(url, ClientOptions::default()).err().unwrap().to_string();
        assert!(error.contains(words), "{url}: {error}");
    }
    let options = ClientOptions { api_key: Some("a\nb".into()), ..ClientOptions::default() };
    assert!(Client::new("http://h", options).is_err());
}

#[test]
fn a_key_in_the_clear_is_told_of() {
    for (url, has_key, is_exposed) in [
        ("http://127.0.0.1:8080", true, false),
        ("http://10.0.0.1:8080", true, true),
        ("http://10.0.0.1:8080", false, false),
    ] {
        let options = ClientOptions { api_key: has_key.then(|| "k".to_owned()), ..ClientOptions::default() };
        assert_eq!(Client::new(url, options).unwrap().exposes_key(), is_exposed, "{url}");
    }
}

#[test]
fn files_without_authorities_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (empty, broken) = (folder.path().join("empty.pem"), folder.path().join("broken.pem"));
    std::fs::write(&empty, "no certificate\n").unwrap();
    std::fs::write(&broken, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    for (path, words) in [(empty, "no certificate"), (broken, ""), (folder.path().join("none.pem"), "No such file")] {
        let options = ClientOptions { authorities: Some(path.clone()), ..ClientOptions::default() };
        // Of no concern without TLS: the environment may name one for other servers.
        assert!(Client::new("http://h", options.clone()).is_ok());
        let error = Client::new("https://h", options).err().unwrap().to_string();
        assert!(error.contains(path.to_str().unwrap()) && error.contains(words), "{error}");
    }
}

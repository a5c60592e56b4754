//! Replies leave together at the end of a round, and what a client does not take of them stays unsent until it does.

use std::io::Write;
use std::time::Duration;

use crate::support::{Client, Server, patient, wait_until};

/// Replies of a kilobyte each, some of them too large to leave with the others.
const REQUESTS: usize = 40_000;
const LARGE_EVERY: usize = 97;
const LARGE_BYTES: usize = 9_000;

fn request(index: usize) -> Vec<u8> {
    match index % LARGE_EVERY {
        0 => Client::request("POST /call/c/k/large", LARGE_BYTES.to_string().as_bytes()),
        _ => Client::request("POST /call/c/k/echo", body(index).as_bytes()),
    }
}

fn body(index: usize) -> String {
    format!("{index:01000}")
}

/// What [`body`] was made of.
fn number(client: &mut Client) -> usize {
    let body = client.read_reply(true).body;
    assert_eq!(body.len(), 1000, "{}", String::from_utf8_lossy(&body));
    String::from_utf8_lossy(&body).parse().expect("a number")
}

/// Waits until the server has sent all that the kernel takes from it.
fn wait_until_blocked(server: &Server) {
    let sent_bytes = || server.metric("millrace_http_sent_bytes_total");
    let is_blocked = || {
        let before = sent_bytes();
        std::thread::sleep(Duration::from_millis(50));
        before > 1_000_000.0 && before == sent_bytes()
    };
    wait_until(is_blocked, || "the server goes on sending".to_owned());
}

#[test]
fn a_client_that_reads_late_gets_all_its_replies_in_their_order() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let mut stream = client.stream.get_ref().try_clone().expect("a descriptor");
    let writer = std::thread::spawn(move || {
        for first in (0..REQUESTS).step_by(100) {
            let burst: Vec<u8> = (first..first + 100).flat_map(request).collect();
            stream.write_all(&burst).expect("sent");
        }
    });
    wait_until_blocked(&server);
    for index in 0..REQUESTS {
        match index % LARGE_EVERY {
            0 => assert_eq!(client.read_reply(true).body.len(), LARGE_BYTES, "request {index}"),
            _ => assert_eq!(number(&mut client), index),
        }
    }
    writer.join().expect("all sent");
}

/// What comes behind the replies may be for hyper, or the end.
#[test]
fn what_is_unsent_replies_has_left_before_the_connection_changes_hands() {
    let server = Server::start(patient());
    for last in ["POST /call/c/k/echo\nupgrade: nothing", "POST /call/c/k/echo\nconnection: close"] {
        let mut client = server.connect();
        let mut stream = client.stream.get_ref().try_clone().expect("a descriptor");
        let writer = std::thread::spawn(move || {
            for index in 0..REQUESTS / 4 {
                stream.write_all(&Client::request("POST /call/c/k/echo", body(index).as_bytes())).expect("sent");
            }
            stream.write_all(&Client::request(last, b"\"last\"")).expect("sent");
        });
        wait_until_blocked(&server);
        for index in 0..REQUESTS / 4 {
            assert_eq!(number(&mut client), index);
        }
        assert_eq!(client.read_reply(true).body, b"\"last\"");
        writer.join().expect("all sent");
    }
}

/// What comes behind a reply in one packet may wait for what the client does once it has the reply.
#[test]
fn a_reply_does_not_wait_for_the_request_behind_it() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let mut both = Client::request("POST /call/c/k/echo", b"1");
    both.extend(Client::request("POST /call/c/k/wait", b"2"));
    client.send(both);
    assert_eq!(client.read_reply(true).body, b"1");
    server.backend.shared.gate.notify_one();
    assert_eq!(client.read_reply(true).body, b"\"waited\"");
}

#[test]
fn a_client_that_takes_nothing_is_given_up() {
    let mut options = patient();
    options.timeouts.write = Duration::from_millis(100);
    let server = Server::start(options);
    let client = server.connect();
    let mut stream = client.stream.get_ref().try_clone().expect("a descriptor");
    let writer = std::thread::spawn(move || while stream.write_all(&request(1)).is_ok() {});
    server.wait_for_metric("millrace_http_timeouts_total{phase=\"write\"}", 1.0);
    server.wait_for_metric("millrace_http_connections_open", 0.0);
    writer.join().expect("no panic");
}

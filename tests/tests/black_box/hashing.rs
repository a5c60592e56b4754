//! Passwords are hashed off the core. The core serves other calls meanwhile.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::scope;

use millrace_tests::{Server, ServerOptions, basic, machine, wait_until};

const USERS: usize = 24;

/// A hash takes some tens of milliseconds of CPU time, a small call far less than one. If the core itself hashed, at
/// most one call would come between two hashes.
const CALLS_EACH: usize = 4;

/// The order counts, not the time. It is the number of small calls that begin and end on the only core while users
/// register.
#[test]
fn others_are_served_while_passwords_are_hashed() {
    // Two hashes at a time take both cores.
    machine::alone();
    let mut options = ServerOptions::examples(&["login", "counter"]);
    options.set("--cores", "1");
    // No client is turned away for having waited. If a node is too slow for this test, the count below shows it.
    options.set("--queue-ms", "30000");
    let server = Server::start(options);
    let registered = AtomicUsize::new(0);
    let mut small = server.connect();
    let mut call = || {
        let reply = small.request("POST", "/call/counter/k/value", &[], b"").expect("a reply");
        assert_eq!((reply.status, reply.text().as_str()), (200, "0"), "{}", reply.text());
    };
    call();
    // The number of calls that began and ended when this number of users had registered.
    let mut calls = [0; USERS];
    let mut connections: Vec<_> = (0..USERS).map(|_| server.connect()).collect();
    for connection in &mut connections {
        // The core has accepted the connection, not only the kernel.
        assert_eq!(connection.request("GET", "/healthz", &[], b"").expect("a reply").status, 200);
    }
    for (number, connection) in connections.iter_mut().enumerate() {
        let body = format!(r#"{{"username":"user{number}","password":"correct horse"}}"#);
        connection.send("POST", "/user/register", &[], body.as_bytes()).expect("sent");
    }
    scope(|threads| {
        for mut connection in connections {
            let registered = &registered;
            threads.spawn(move || {
                let reply = connection.receive(false).expect("a reply");
                registered.fetch_add(1, Ordering::SeqCst);
                assert_eq!(reply.status, 201, "{}", reply.text());
            });
        }
        wait_until("all have registered", || {
            let before = registered.load(Ordering::SeqCst);
            for _ in 0..2 * CALLS_EACH {
                call();
                if before < USERS && before == registered.load(Ordering::SeqCst) {
                    calls[before] += 1;
                }
            }
            before == USERS
        });
    });
    println!("calls between one user and the next: {calls:?}");
    // Not between every two hashes: two run at a time, and other work on the machine may hold up this test.
    let between = calls.iter().filter(|calls| **calls >= CALLS_EACH).count();
    assert!(between >= USERS / 4, "calls between one user and the next: {calls:?}");
}

const CONNECTIONS: usize = 100;

/// How many users register to measure what one hash costs.
const MEASURED: u32 = 8;

/// One hash serves all who log in at the same moment; small calls and connections cost a little, too.
const HASHES_AT_MOST: u32 = 10;

#[test]
fn a_user_who_logs_in_a_hundred_times_at_once_costs_one_hash() {
    let mut options = ServerOptions::examples(&["login"]);
    options.set("--cores", "1");
    options.set("--queue-ms", "30000");
    let server = Server::start(options);
    let before = server.cpu_time();
    for number in 0..MEASURED {
        let body = format!(r#"{{"username":"user{number}","password":"correct horse"}}"#);
        assert_eq!(server.request("POST", "/user/register", &[], body.as_bytes()).status, 201);
    }
    let hash = (server.cpu_time() - before) / MEASURED;
    let login = basic("user0", "correct horse");
    let mut connections: Vec<_> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    for connection in &mut connections {
        assert_eq!(connection.request("GET", "/healthz", &[], b"").expect("a reply").status, 200);
    }
    let before = server.cpu_time();
    for connection in &mut connections {
        connection.send("GET", "/user/login", &[&login], b"").expect("sent");
    }
    for connection in &mut connections {
        let reply = connection.receive(false).expect("a reply");
        assert_eq!((reply.status, reply.text().as_str()), (200, "ok"));
    }
    let took = server.cpu_time() - before;
    println!("{CONNECTIONS} logins took {took:?} of CPU time, a hash takes {hash:?}");
    assert!(took < hash * HASHES_AT_MOST, "{CONNECTIONS} logins took {took:?} of CPU time, a hash takes {hash:?}");
}

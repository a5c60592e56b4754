//! Many connections, most of them idle, cost nobody an error.

use millrace_tests::{Server, ServerOptions, machine};

const CONNECTIONS: usize = 1000;
const ROUNDS: usize = 3;

#[test]
fn a_thousand_keep_alive_connections_are_served_in_turn() {
    // It measures the memory of a process whose connections all wait.
    machine::alone();
    let server = Server::start(ServerOptions::examples(&["counter"]).with(&["--durability", "os"]));
    let before_kib = server.status_kib("VmRSS");
    let mut connections: Vec<_> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    for round in 0..ROUNDS {
        for (number, connection) in connections.iter_mut().enumerate() {
            let path = format!("/call/counter/k{number}/add");
            let reply = connection.request("POST", &path, &[], b"1").expect("the connection is kept");
            assert_eq!((reply.status, reply.text()), (200, (round + 1).to_string()), "connection {number}");
        }
        assert_eq!(server.metric("millrace_http_connections_open") as usize, CONNECTIONS + 1);
    }
    let after_kib = server.status_kib("VmRSS");
    println!("{CONNECTIONS} connections: {before_kib} KiB before, {after_kib} KiB with them");
    assert!(after_kib < before_kib + 64 * 1024, "a connection costs too much memory");
    drop(connections);
    assert_eq!(server.value("counter/k7/value", ""), ROUNDS);
}

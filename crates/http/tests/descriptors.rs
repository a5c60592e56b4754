//! Running out of file descriptors. A program of its own with one test: it uses up all descriptors of its process.

#[path = "all/support/mod.rs"]
mod support;

use std::fs::File;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Client, Server, patient};

#[test]
fn without_descriptors_clients_are_turned_away_and_service_resumes() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum: limit.maximum }).expect("lowered");
    let mut server = Server::start(patient());
    let mut open = server.connect();
    assert_eq!(open.ask("GET /healthz", b"").status, 200);
    // The clients' own descriptors are made first; then every other one is used up.
    let sockets: Vec<socket2::Socket> = (0..20)
        .map(|_| socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket"))
        .collect();
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }
    let mut clients: Vec<Client> = sockets
        .into_iter()
        .map(|socket| {
            socket.connect(&server.address.into()).expect("the kernel accepts");
            Client::new(socket.into())
        })
        .collect();
    for client in &mut clients {
        let told = client.read_to_end();
        assert!(told.is_empty() || told.starts_with(b"HTTP/1.1 503"), "{}", told.escape_ascii());
    }
    assert!(server.metric("millrace_http_accept_failures_total") >= 1.0);
    assert_eq!(server.metric("millrace_http_connections_shed_total"), 20.0);
    assert_eq!(open.ask("GET /healthz", b"").status, 200, "who is connected is served on");
    drop(hoard);
    drop(clients);
    support::wait_until(
        || {
            let mut client = server.connect();
            client.send("GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            client.read_to_end().starts_with(b"HTTP/1.1 200")
        },
        || "service did not resume".to_owned(),
    );
    server.join();
}

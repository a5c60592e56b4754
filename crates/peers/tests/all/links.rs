//! What links promise to those who use them.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;

use bytes::Bytes;
use millrace_base::limits;
use millrace_peers::{Lane, LinkEvent, QueueError, SendError, Timing};
use millrace_replica::NodeId;

use crate::world::{Authority, Heard, Node, introduce, pair, start};

fn numbers(heard: &Heard, lane: Lane) -> Vec<u64> {
    let of_lane = heard.messages.iter().filter(|(_, of, _)| *of == lane);
    of_lane.map(|(.., bytes)| u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))).collect()
}

fn send(node: &Node, to: u16, lane: Lane, number: u64) -> Result<(), SendError> {
    node.links.send(NodeId(to), lane, Bytes::copy_from_slice(&number.to_le_bytes()))
}

/// Waits until so many core messages have come, and returns them.
fn wait_for_numbers(node: &Node, count: u64) -> Vec<u64> {
    node.heard.wait_for(&format!("{count} messages"), |heard| {
        let numbers = numbers(heard, Lane::Core);
        (numbers.len() as u64 >= count).then_some(numbers)
    })
}

#[test]
fn messages_of_all_lanes_arrive_in_the_order_of_their_lane() {
    let [one, two] = pair(&Authority::new());
    for number in 0..2_000 {
        for lane in Lane::ALL {
            send(&one, 2, lane, number).expect("sent");
            send(&two, 1, lane, number).expect("sent");
        }
    }
    for node in [&one, &two] {
        node.heard.wait_for("all of them", |heard| (heard.messages.len() == 6_000).then_some(()));
        node.heard.wait_for("their order", |heard| {
            assert!(Lane::ALL.iter().all(|lane| numbers(heard, *lane) == (0..2_000).collect::<Vec<u64>>()));
            assert!(heard.settled < 6_000, "no two messages came together");
            Some(())
        });
    }
    assert_eq!((one.links.up(NodeId(2)), one.links.up(NodeId(3))), (Some(1), None));
}

#[test]
fn what_is_queued_goes_with_the_flush_and_large_messages_arrive_whole() {
    let [one, two] = pair(&Authority::new());
    let large = |byte: u8| Bytes::from(vec![byte; limits::PEER_MESSAGE_BYTES]);
    for byte in 0..3 {
        one.links.queue(NodeId(2), Lane::Mail, large(byte)).expect("queued");
    }
    one.links.flush(NodeId(2));
    two.heard.wait_for("three large messages", |heard| (heard.messages.len() == 3).then_some(()));
    two.heard.wait_for("their bytes", |heard| {
        let are_whole = heard
            .messages
            .iter()
            .zip(0..3)
            .all(|((_, lane, bytes), byte)| *lane == Lane::Mail && *bytes == large(byte));
        are_whole.then_some(())
    });
    let too_large = Bytes::from(vec![0; limits::PEER_MESSAGE_BYTES + 1]);
    let refused = one.links.send(NodeId(2), Lane::Core, too_large);
    assert_eq!(refused, Err(SendError::Queue(QueueError::TooLarge)));
    assert_eq!(one.links.send(NodeId(9), Lane::Core, Bytes::new()), Err(SendError::UnknownNode(NodeId(9))));
    assert_eq!(one.links.send(NodeId(1), Lane::Core, Bytes::new()), Err(SendError::UnknownNode(NodeId(1))));
}

/// Stands between two nodes, and breaks each connection after some bytes from one side.
fn breaking_proxy(target: SocketAddr, bytes_each: Vec<usize>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for (index, client) in listener.incoming().enumerate() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(target)) else { return };
            let most = bytes_each.get(index).copied().unwrap_or(usize::MAX);
            let (back_from, back_to) = (server.try_clone().expect("cloned"), client.try_clone().expect("cloned"));
            std::thread::spawn(move || forward(back_from, back_to, usize::MAX));
            std::thread::spawn(move || forward(client, server, most));
        }
    });
    address
}

fn forward(mut from: TcpStream, mut to: TcpStream, most: usize) {
    let mut left = most;
    let mut buffer = [0; 4096];
    while left > 0 {
        let length = buffer.len().min(left);
        match from.read(&mut buffer[..length]) {
            Ok(bytes) if bytes > 0 && to.write_all(&buffer[..bytes]).is_ok() => left -= bytes,
            _ => break,
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

#[test]
fn core_messages_outlive_connections_that_break_anywhere() {
    const MESSAGES: u64 = 5_000;
    let authority = Authority::new();
    let [one, two] = [start(&authority, 1, 1, 0), start(&authority, 2, 1, 0)];
    // Some break in the handshake, some in the hello, most among frames.
    let breaks = vec![100, 700, 1_900, 2_100, 2_500, 3_000, 10_000, 20_011, 30_023, 50_000, 80_000];
    let proxy = breaking_proxy(two.links.address(), breaks);
    introduce(&[(1, one.links.address()), (2, proxy)], &[&one, &two]);
    for number in 0..MESSAGES {
        send(&one, 2, Lane::Core, number).expect("there is room");
        send(&two, 1, Lane::Core, number).expect("there is room");
    }
    for node in [&one, &two] {
        assert_eq!(wait_for_numbers(node, MESSAGES), (0..MESSAGES).collect::<Vec<u64>>());
    }
    let downs = one.heard.events().iter().filter(|(_, event)| *event == LinkEvent::Down).count();
    assert!(downs >= 3, "few connections have broken: {downs}");
    let restarts = |(_, event): &(NodeId, LinkEvent)| matches!(event, LinkEvent::Restarted { .. });
    assert!(!one.heard.events().iter().any(restarts));
}

#[test]
fn a_peer_that_restarts_is_told_apart_and_begins_anew() {
    let authority = Authority::new();
    // Each side once, because one dials and the other is dialled.
    for restarted in [0, 1] {
        let mut nodes = pair(&authority).map(Some);
        let old = nodes[restarted].take().expect("there");
        let address = old.links.address();
        drop(old);
        let other = nodes[1 - restarted].take().expect("there");
        let number = restarted as u16 + 1;
        other.heard.wait_for_event(number, LinkEvent::Down);
        send(&other, number, Lane::Core, 1).expect("it waits for the process that was there");
        assert_eq!(send(&other, number, Lane::Replica, 1), Err(SendError::Queue(QueueError::Down)));
        let new = start(&authority, number, 2, address.port());
        introduce(&[(number, address), (3 - number, other.links.address())], &[&new]);
        other.heard.wait_for_event(number, LinkEvent::Up { incarnation: 2 });
        new.heard.wait_for_event(3 - number, LinkEvent::Up { incarnation: 1 });
        send(&other, number, Lane::Core, 2).expect("sent");
        send(&new, 3 - number, Lane::Core, 3).expect("sent");
        assert_eq!(wait_for_numbers(&new, 1), [2], "what was for the old process is not for the new one");
        assert_eq!(wait_for_numbers(&other, 1), [3]);
        let events: Vec<LinkEvent> = other.heard.events().into_iter().map(|(_, event)| event).collect();
        let expected = [
            LinkEvent::Up { incarnation: 1 },
            LinkEvent::Down,
            LinkEvent::Restarted { incarnation: 2 },
            LinkEvent::Up { incarnation: 2 },
        ];
        assert_eq!(events, expected);
    }
}

#[test]
fn a_silent_link_goes_down_and_a_removed_peer_is_left_alone() {
    let authority = Authority::new();
    let [one, two] = [start(&authority, 1, 1, 0), start(&authority, 2, 1, 0)];
    let (proxy, hold) = holding_proxy(two.links.address());
    introduce(&[(1, one.links.address()), (2, proxy)], &[&one, &two]);
    one.heard.wait_for_event(2, LinkEvent::Up { incarnation: 1 });
    hold.send(()).expect("the proxy listens");
    for (node, other) in [(&one, 2), (&two, 1)] {
        node.heard.wait_for_event(other, LinkEvent::Down);
    }
    introduce(&[], &[&one]);
    assert_eq!(send(&one, 2, Lane::Core, 1), Err(SendError::UnknownNode(NodeId(2))));
}

/// Forwards until it is told to hold everything back, with all connections open.
fn holding_proxy(target: SocketAddr) -> (SocketAddr, mpsc::Sender<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("bound");
    let (hold, held) = mpsc::channel();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().expect("a connection");
        let server = TcpStream::connect(target).expect("it listens");
        let streams = [client, server];
        let mut buffer = [0; 4096];
        for stream in &streams {
            stream.set_nonblocking(true).expect("a socket");
        }
        while held.try_recv().is_err() {
            for (from, to) in [(0, 1), (1, 0)] {
                match (&streams[from]).read(&mut buffer) {
                    Ok(bytes) => (&streams[to]).write_all(&buffer[..bytes]).expect("it takes a little"),
                    Err(_) => std::thread::yield_now(),
                }
            }
        }
        // The listener lives, and answers nobody.
        let _ = held.recv();
        drop((listener, streams));
    });
    (address, hold)
}

#[test]
fn a_node_that_was_removed_is_told_so_whoever_of_the_two_dials() {
    let [one, two] = pair(&Authority::new());
    let has_been_told = |node: &Node| node.heard.events().iter().any(|(_, event)| *event == LinkEvent::Removed);
    // Node 2 is gone, and asks by itself. Node 1 has no reason to dial it.
    one.links.set_last_removed(NodeId(1));
    one.links.set_peers(&[]);
    std::thread::sleep(Timing::default().knock + Timing::default().silence);
    assert!(!has_been_told(&two), "a number above all that were removed may be of a node that comes");
    one.links.set_last_removed(NodeId(2));
    two.heard.wait_for_event(1, LinkEvent::Removed);
    assert!(!has_been_told(&one));
    let [one, two] = pair(&Authority::new());
    two.links.set_last_removed(NodeId(1));
    two.links.set_peers(&[]);
    one.heard.wait_for_event(2, LinkEvent::Removed);
}

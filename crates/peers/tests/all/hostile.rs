//! Strangers and peers that break the rules: they are refused, and the links of others do not notice.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_base::limits;
use millrace_peers::{
    ClusterId, Config, Frame, HELLO_BYTES, Hello, Identity, Lane, LinkEvent, Refusal, Timing, VERSIONS,
    certificate_name,
};
use millrace_replica::NodeId;
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring};

use crate::world::{Authority, CLUSTER, Node, config, introduce, start, start_with};

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Node 5, and a link to node 6 that must not notice anything.
struct Victim {
    node: Node,
    friend: Node,
}

impl Victim {
    fn new(authority: &Authority) -> Self {
        Self::with_timing(authority, Timing::default())
    }

    fn with_timing(authority: &Authority, timing: Timing) -> Self {
        let node = start_with(Config { timing, ..config(authority.identity(CLUSTER, 5), 5, 1, 0) });
        let friend = start(authority, 6, 1, 0);
        // Nodes 1 and 2 are peers that nobody runs.
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
        let all = [(5, node.links.address()), (6, friend.links.address()), (1, nowhere), (2, nowhere)];
        introduce(&all, &[&node, &friend]);
        node.heard.wait_for_event(6, LinkEvent::Up { incarnation: 1 });
        friend.heard.wait_for_event(5, LinkEvent::Up { incarnation: 1 });
        Self { node, friend }
    }

    fn address(&self) -> SocketAddr {
        self.node.links.address()
    }

    /// The friend's link still carries messages, and was never down.
    fn is_unharmed(&self) {
        self.friend.links.send(NodeId(5), Lane::Core, Bytes::from_static(b"still there")).expect("sent");
        self.node.heard.wait_for("the friend's message", |heard| {
            heard.messages.iter().any(|(from, _, bytes)| *from == NodeId(6) && bytes == "still there").then_some(())
        });
        assert!(!self.node.heard.events().contains(&(NodeId(6), LinkEvent::Down)));
    }
}

fn connect(victim: &Victim) -> TcpStream {
    let tcp = TcpStream::connect(victim.address()).expect("it listens");
    tcp.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    tcp
}

/// Shakes hands as a client that believes `trusted`, with these credentials or none.
fn tls(victim: &Victim, trusted: &Identity, shows: Option<&Identity>, cluster: ClusterId) -> io::Result<Stream> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.authority.clone()).expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = match shows {
        Some(identity) => builder
            .with_client_auth_cert(vec![identity.certificate.clone()], clone_key(&identity.key))
            .expect("credentials"),
        None => builder.with_no_client_auth(),
    };
    let name = ServerName::try_from(certificate_name(cluster, NodeId(5))).expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut stream = StreamOwned::new(connection, connect(victim));
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

fn clone_key(key: &PrivateKeyDer<'static>) -> PrivateKeyDer<'static> {
    key.clone_key()
}

fn hello(from: u16) -> Hello {
    let (from, to) = (NodeId(from), NodeId(5));
    Hello { versions: VERSIONS, cluster: CLUSTER, from, to, incarnation: 9, connection: 1, known: 0, received: 0 }
}

/// Says a hello, and returns the byte that answers.
fn say(stream: &mut Stream, hello: &Hello) -> io::Result<u8> {
    stream.write_all(&hello.encode())?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    Ok(answer[0])
}

/// Reads until the victim closes; fails after the socket's time.
fn is_closed(stream: &mut impl io::Read) {
    let mut rest = Vec::new();
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert!(!matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "it is left open");
    }
}

/// A peer that shows its certificate and is welcome.
fn welcome(victim: &Victim, identity: &Identity, hello: &Hello) -> Stream {
    let mut stream = tls(victim, identity, Some(identity), CLUSTER).expect("its certificate is good");
    assert_eq!(say(&mut stream, hello).expect("an answer"), 0);
    let mut answer = [0; HELLO_BYTES];
    stream.read_exact(&mut answer).expect("a hello");
    let answer = Hello::decode(&answer).expect("a hello");
    assert_eq!((answer.from, answer.to, answer.connection), (NodeId(5), hello.from, hello.connection));
    stream
}

#[test]
fn without_a_certificate_of_the_cluster_nobody_is_heard() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let victim = Victim::new(&authority);
    let good = authority.identity(CLUSTER, 1);
    let forged = foreign.identity(CLUSTER, 1);
    for shows in [None, Some(&forged)] {
        let answered = tls(&victim, &good, shows, CLUSTER).and_then(|mut stream| say(&mut stream, &hello(1)));
        assert!(answered.is_err(), "{answered:?}");
    }
    // Plain bytes, and another protocol.
    for bytes in [&b"\0\0\0\0"[..], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", &hello(1).encode()] {
        let mut tcp = connect(&victim);
        tcp.write_all(bytes).expect("written");
        tcp.shutdown(std::net::Shutdown::Write).expect("open");
        is_closed(&mut tcp);
    }
    // Who believes another authority, or looks for another cluster, does not talk to the victim.
    assert!(tls(&victim, &forged, Some(&good), CLUSTER).is_err());
    assert!(tls(&victim, &good, Some(&good), ClusterId([8; 16])).is_err());
    victim.is_unharmed();
}

#[test]
fn a_hello_that_does_not_fit_is_refused_with_its_reason() {
    let authority = Authority::new();
    let victim = Victim::new(&authority);
    let one = authority.identity(CLUSTER, 1);
    let of_other_cluster = authority.identity(ClusterId([8; 16]), 1);
    let nine = authority.identity(CLUSTER, 9);
    let six = authority.identity(CLUSTER, 6);
    let cases = [
        (&one, Hello { cluster: ClusterId([8; 16]), ..hello(1) }, Refusal::OtherCluster),
        (&one, Hello { to: NodeId(6), ..hello(1) }, Refusal::OtherNode),
        (&one, hello(2), Refusal::Certificate),
        (&of_other_cluster, hello(1), Refusal::Certificate),
        (&one, Hello { versions: (2, 9), ..hello(1) }, Refusal::Version),
        (&nine, hello(9), Refusal::UnknownNode),
        // It is dialled, and does not dial.
        (&six, hello(6), Refusal::UnknownNode),
        (&one, Hello { received: 5, known: 1, ..hello(1) }, Refusal::Numbers),
    ];
    for (identity, hello, refusal) in cases {
        let mut stream = tls(&victim, &one, Some(identity), CLUSTER).expect("the certificate is good");
        let answer = say(&mut stream, &hello).expect("an answer");
        assert_eq!(Refusal::of_byte(answer), Some(refusal), "{hello:?}");
        is_closed(&mut stream);
    }
    let mut stream = tls(&victim, &one, Some(&one), CLUSTER).expect("the certificate is good");
    stream.write_all(&[0; HELLO_BYTES]).expect("written");
    is_closed(&mut stream);
    assert!(!victim.node.heard.events().iter().any(|(node, _)| *node == NodeId(1)));
    victim.is_unharmed();
}

#[test]
fn an_old_process_and_a_replayed_hello_do_not_end_the_link_of_the_new_one() {
    let authority = Authority::new();
    let victim = Victim::new(&authority);
    let one = authority.identity(CLUSTER, 1);
    let mut stream = welcome(&victim, &one, &Hello { connection: 2, ..hello(1) });
    victim.node.heard.wait_for_event(1, LinkEvent::Up { incarnation: 9 });
    let refused = [
        (Hello { incarnation: 8, connection: 7, ..hello(1) }, Refusal::OldIncarnation),
        (Hello { connection: 2, ..hello(1) }, Refusal::OldConnection),
        (Hello { connection: 1, ..hello(1) }, Refusal::OldConnection),
    ];
    for (hello, refusal) in refused {
        let mut second = tls(&victim, &one, Some(&one), CLUSTER).expect("the certificate is good");
        assert_eq!(Refusal::of_byte(say(&mut second, &hello).expect("an answer")), Some(refusal));
    }
    let mut bytes = Vec::new();
    Frame::Core { number: 1, body: b"mine" }.encode(&mut bytes);
    // Twice: the second is the same message again.
    Frame::Core { number: 1, body: b"mine" }.encode(&mut bytes);
    Frame::Core { number: 2, body: b"next" }.encode(&mut bytes);
    stream.write_all(&bytes).expect("the link is open");
    victim.node.heard.wait_for("both, each once", |heard| {
        let of_one: Vec<&[u8]> =
            heard.messages.iter().filter(|(from, ..)| *from == NodeId(1)).map(|(.., bytes)| &bytes[..]).collect();
        assert!(of_one.len() <= 2, "{of_one:?}");
        (of_one == [b"mine", b"next"]).then_some(())
    });
    assert!(!victim.node.heard.events().contains(&(NodeId(1), LinkEvent::Down)));
    // A later connection takes the place of this one.
    let _third = welcome(&victim, &one, &Hello { connection: 3, known: 1, ..hello(1) });
    is_closed(&mut stream);
    victim.is_unharmed();
}

#[test]
fn corrupt_huge_and_impossible_frames_end_only_their_own_connection() {
    let authority = Authority::new();
    let victim = Victim::new(&authority);
    let one = authority.identity(CLUSTER, 1);
    let mut corrupt = Vec::new();
    Frame::Mail(b"abc").encode(&mut corrupt);
    *corrupt.last_mut().expect("a byte") ^= 1;
    let mut huge = corrupt.clone();
    huge[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let (mut gap, mut ahead) = (Vec::new(), Vec::new());
    Frame::Core { number: 7, body: b"abc" }.encode(&mut gap);
    Frame::Beat { received: 1 }.encode(&mut ahead);
    for (connection, bytes) in (1..).zip([corrupt, huge, gap, ahead, vec![0xff; 1_000]]) {
        let mut stream = welcome(&victim, &one, &Hello { connection, ..hello(1) });
        stream.write_all(&bytes).expect("the link is open");
        is_closed(&mut stream);
    }
    victim.node.heard.wait_for("nothing was handed over", |heard| {
        assert!(heard.messages.iter().all(|(from, ..)| *from != NodeId(1)));
        Some(())
    });
    victim.is_unharmed();
}

#[test]
fn those_that_say_nothing_do_not_keep_a_peer_out() {
    let authority = Authority::new();
    let handshake = Duration::from_secs(600);
    let victim = Victim::with_timing(&authority, Timing { handshake, ..Timing::default() });
    let one = authority.identity(CLUSTER, 1);
    // Twice as many as may wait: the first ones are ended for the others, long before their time is over.
    let mut silent: Vec<TcpStream> = (0..2 * limits::PEER_HANDSHAKES).map(|_| connect(&victim)).collect();
    let _stream = welcome(&victim, &one, &hello(1));
    is_closed(&mut silent[0]);
    victim.is_unharmed();
}

#[test]
fn who_says_hello_slowly_is_ended_by_its_time() {
    let authority = Authority::new();
    let handshake = Duration::from_millis(200);
    let victim = Victim::with_timing(&authority, Timing { handshake, ..Timing::default() });
    let one = authority.identity(CLUSTER, 1);
    let mut before_tls = connect(&victim);
    before_tls.write_all(&[0x16]).expect("written");
    is_closed(&mut before_tls);
    // With a good certificate, too.
    if let Ok(mut stream) = tls(&victim, &one, Some(&one), CLUSTER) {
        let _ = stream.write_all(&hello(1).encode()[..10]);
        is_closed(&mut stream);
    }
    victim.is_unharmed();
}

#[test]
fn a_flood_of_strangers_is_dropped_and_links_go_on() {
    let authority = Authority::new();
    let victim = Victim::new(&authority);
    let mut messages = 0;
    for connection in 0..3 * limits::PEER_HANDSHAKES_PER_SECOND {
        let mut tcp = connect(&victim);
        let _ = tcp.write_all(&[0x16, 3, 1, 2, 0]);
        if connection % 10 == 0 {
            victim.friend.links.send(NodeId(5), Lane::Core, Bytes::from_static(b"among them")).expect("sent");
            messages += 1;
        }
    }
    victim.node.heard.wait_for("all messages", |heard| (heard.messages.len() >= messages).then_some(()));
    victim.is_unharmed();
}

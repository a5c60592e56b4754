//! One peer: what waits for it, and the task that keeps a connection to it.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use millrace_replica::NodeId;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_rustls::server::TlsStream;

use crate::dial;
use crate::frame::{Frame, Hello, Lane, Refusal, VERSIONS};
use crate::links::{Config, LinkEvent, Shared, lock};
use crate::session::{Opened, QueueError, Session};
use crate::wire::{Arrived, READ_BYTES, Wire, Written, frames_of};

/// Reads from one peer before others have their turn.
const READS_TOGETHER: usize = 16;

/// A peer's connection that has shown who it is and waits for its answer.
pub(crate) struct Incoming {
    pub stream: TlsStream<TcpStream>,
    pub hello: Hello,
}

struct State {
    session: Session,
    /// The open connection.
    wire: Option<Arc<Wire>>,
    /// The task has been woken and has not looked yet.
    is_woken: bool,
}

pub(crate) struct Peer {
    pub node: NodeId,
    /// `None` while it is no peer.
    address: Mutex<Option<String>>,
    state: Mutex<State>,
    /// The task has something to write, or the address has changed.
    wake: Notify,
    incoming: mpsc::Sender<Incoming>,
}

impl Peer {
    pub(crate) fn new(node: NodeId, address: String, own: u64) -> (Self, mpsc::Receiver<Incoming>) {
        let (incoming, received) = mpsc::channel(1);
        let state = State { session: Session::new(own), wire: None, is_woken: false };
        let peer =
            Self { node, address: Mutex::new(Some(address)), state: Mutex::new(state), wake: Notify::new(), incoming };
        (peer, received)
    }

    pub(crate) fn is_member(&self) -> bool {
        lock(&self.address).is_some()
    }

    pub(crate) fn address(&self) -> Option<String> {
        lock(&self.address).clone()
    }

    pub(crate) fn set_address(&self, address: Option<String>) {
        *lock(&self.address) = address;
        self.wake.notify_one();
    }

    /// The process at the other end of the open connection.
    pub(crate) fn up(&self) -> Option<u64> {
        let state = lock(&self.state);
        state.wire.is_some().then(|| state.session.known().0)
    }

    pub(crate) fn queue(&self, lane: Lane, message: Bytes) -> Result<(), QueueError> {
        lock(&self.state).session.queue(lane, message)
    }

    /// The task writes what waits.
    pub(crate) fn wake(&self) {
        let mut state = lock(&self.state);
        if state.wire.is_some() && !std::mem::replace(&mut state.is_woken, true) {
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Writes what waits on this thread. Where that does not end it, the task goes on, and it also finds what is broken.
    pub(crate) fn flush(&self) {
        let state = lock(&self.state);
        let Some(wire) = state.wire.clone().filter(|_| state.session.wants_write()) else { return };
        drop(state);
        if !matches!(wire.try_write(|out, bytes| self.frames(out, bytes)), Ok(Written::All)) {
            self.wake();
        }
    }

    fn frames(&self, out: &mut Vec<u8>, bytes: usize) {
        frames_of(&mut lock(&self.state).session, out, bytes);
    }

    /// A stranger has proved to be this peer. A second one at the same moment is dropped, and comes again.
    pub(crate) fn hand_over(&self, incoming: Incoming) {
        let _ = self.incoming.try_send(incoming);
    }

    /// No connection any more.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        state.session.close();
        state.wire = None;
    }

    /// The own hello. `connection` is counted by who dials.
    pub(crate) fn hello(&self, config: &Config, connection: u64) -> Hello {
        let (known, received) = lock(&self.state).session.known();
        Hello {
            versions: VERSIONS,
            cluster: config.cluster,
            from: config.node,
            to: self.node,
            incarnation: config.incarnation,
            connection,
            known,
            received,
        }
    }

    pub(crate) fn check(&self, hello: &Hello) -> Result<Opened, Refusal> {
        lock(&self.state).session.check(hello)
    }

    pub(crate) fn open(&self, hello: &Hello) -> Result<Opened, Refusal> {
        lock(&self.state).session.open(hello)
    }
}

/// Keeps a connection to the peer for as long as the links live.
pub(crate) async fn run(shared: Arc<Shared>, peer: Arc<Peer>, mut incoming: mpsc::Receiver<Incoming>) {
    let mut dialler = dial::Dialler::default();
    let mut next = None;
    loop {
        let connected = if shared.config.node < peer.node {
            Some(dialler.connect(&shared, &peer).await)
        } else {
            let came = match next.take() {
                Some(came) => came,
                None => match await_dial(&shared, &peer, &mut incoming).await {
                    Some(came) => came,
                    None => return,
                },
            };
            welcome(&shared, &peer, came).await
        };
        let Some((wire, opened)) = connected else { continue };
        let began = Instant::now();
        let (why, replaced_by) = Connection { shared: &shared, peer: &peer, wire }.run(opened, &mut incoming).await;
        shared.log.down(peer.node, &why);
        dialler.ended(began.elapsed() >= shared.config.timing.silence);
        next = replaced_by;
    }
}

/// Waits until the peer dials. One that does not is asked now and then whether this node is still a peer.
async fn await_dial(shared: &Shared, peer: &Peer, incoming: &mut mpsc::Receiver<Incoming>) -> Option<Incoming> {
    loop {
        match tokio::time::timeout(shared.config.timing.knock, incoming.recv()).await {
            Ok(came) => return came,
            Err(_) => dial::knock(shared, peer).await,
        }
    }
}

/// Answers a peer that has dialled.
async fn welcome(shared: &Shared, peer: &Peer, mut came: Incoming) -> Option<(Wire, Opened)> {
    let opened = match peer.open(&came.hello) {
        Ok(opened) => opened,
        Err(refusal) => {
            refuse(shared, peer, came, refusal).await;
            return None;
        }
    };
    let answer = [&[0], &peer.hello(&shared.config, came.hello.connection).encode()[..]].concat();
    let sent = tokio::time::timeout(shared.config.timing.handshake, async {
        came.stream.write_all(&answer).await?;
        came.stream.flush().await
    });
    if let Ok(Ok(())) = sent.await {
        let (tcp, connection) = came.stream.into_inner();
        return Some((Wire::new(tcp, connection.into()), opened));
    }
    peer.end();
    // The process has changed, even if it is gone already.
    if opened == Opened::Restarted {
        shared.handler.changed(peer.node, LinkEvent::Restarted { incarnation: came.hello.incarnation });
    }
    None
}

async fn refuse(shared: &Shared, peer: &Peer, mut came: Incoming, refusal: Refusal) {
    shared.log.refused(&format_args!("node {}", peer.node), &refusal);
    let _ = tokio::time::timeout(shared.config.timing.heartbeat, async {
        came.stream.write_all(&[refusal.byte()]).await?;
        came.stream.shutdown().await
    })
    .await;
}

/// An open connection while it lasts.
struct Connection<'a> {
    shared: &'a Shared,
    peer: &'a Peer,
    wire: Wire,
}

/// Why a connection ends, and the one that takes its place.
type Ended = (String, Option<Incoming>);

impl Connection<'_> {
    async fn run(self, opened: Opened, incoming: &mut mpsc::Receiver<Incoming>) -> Ended {
        let Self { shared, peer, wire } = self;
        let wire = Arc::new(wire);
        let (node, handler) = (peer.node, &shared.handler);
        let incarnation = {
            let mut state = lock(&peer.state);
            state.wire = Some(Arc::clone(&wire));
            state.session.known().0
        };
        if opened == Opened::Restarted {
            handler.changed(node, LinkEvent::Restarted { incarnation });
        }
        handler.changed(node, LinkEvent::Up { incarnation });
        tracing::info!(%node, incarnation, "linked to a node");
        let ended = exchange(shared, peer, &wire, incoming).await;
        peer.end();
        handler.changed(node, LinkEvent::Down);
        ended
    }
}

async fn exchange(shared: &Shared, peer: &Peer, wire: &Wire, incoming: &mut mpsc::Receiver<Incoming>) -> Ended {
    let timing = shared.config.timing;
    let mut beat = tokio::time::interval(timing.heartbeat);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut reader = Reader { raw: vec![0; READ_BYTES], plain: Vec::new(), delivered: Vec::new() };
    if let Err(why) = wire.drain(&mut reader.plain).map_err(|error| error.to_string()).and_then(|()| {
        // What came with the handshake's last bytes.
        reader.take(shared, peer)
    }) {
        return (why, None);
    }
    let (mut heard, mut is_blocked) = (Instant::now(), false);
    loop {
        if !peer.is_member() {
            return ("it is no peer any more".to_owned(), None);
        }
        tokio::select! {
            biased;
            ready = wire.tcp.readable() => {
                match ready.map_err(|error| error.to_string()).and_then(|()| reader.read(wire, shared, peer)) {
                    Ok(true) => heard = Instant::now(),
                    Ok(false) => {}
                    Err(why) => return (why, None),
                }
            }
            _ = wire.tcp.writable(), if is_blocked => {}
            () = peer.wake.notified() => {}
            came = incoming.recv() => match came {
                Some(came) => match peer.check(&came.hello) {
                    Ok(_) => return ("it has made another connection".to_owned(), Some(came)),
                    Err(refusal) => refuse(shared, peer, came, refusal).await,
                },
                None => return ("the links end".to_owned(), None),
            },
            _ = beat.tick() => {
                if heard.elapsed() > timing.silence {
                    return (format!("it has said nothing for {} ms", timing.silence.as_millis()), None);
                }
                lock(&peer.state).session.beat();
            }
        }
        lock(&peer.state).is_woken = false;
        match wire.write(|out, bytes| peer.frames(out, bytes)) {
            Ok(written) => is_blocked = written == Written::Blocked,
            Err(error) => return (error.to_string(), None),
        }
    }
}

/// Takes frames out of what comes.
struct Reader {
    raw: Vec<u8>,
    plain: Vec<u8>,
    /// Messages that came together; kept for its memory.
    delivered: Vec<(Lane, Bytes)>,
}

impl Reader {
    /// Says whether anything came.
    fn read(&mut self, wire: &Wire, shared: &Shared, peer: &Peer) -> Result<bool, String> {
        let broken = |error: io::Error| error.to_string();
        let mut has_come = false;
        for _ in 0..READS_TOGETHER {
            let before = self.plain.len();
            let arrived = wire.read(&mut self.raw, &mut self.plain).map_err(broken)?;
            has_come |= self.plain.len() > before;
            self.take(shared, peer)?;
            match arrived {
                Arrived::Some => {}
                Arrived::Nothing => break,
                Arrived::End => return Err("it has closed the connection".to_owned()),
            }
        }
        Ok(has_come)
    }

    /// Hands over the messages of all whole frames.
    fn take(&mut self, shared: &Shared, peer: &Peer) -> Result<(), String> {
        let mut at = 0;
        let mut result = Ok(());
        {
            let mut state = lock(&peer.state);
            while result.is_ok() {
                match Frame::decode(&self.plain[at..]) {
                    Ok(None) => break,
                    Ok(Some((frame, bytes))) => {
                        at += bytes;
                        match state.session.read(&frame) {
                            Ok(true) => self.delivered.extend(message_of(&frame)),
                            Ok(false) => {}
                            Err(violation) => result = Err(violation.to_string()),
                        }
                    }
                    Err(error) => result = Err(error.to_string()),
                }
            }
        }
        self.plain.drain(..at);
        if self.plain.is_empty() {
            self.plain.shrink_to(2 * READ_BYTES);
        }
        if !self.delivered.is_empty() {
            for (lane, message) in self.delivered.drain(..) {
                shared.handler.received(peer.node, lane, message);
            }
            shared.handler.settled(peer.node);
        }
        result
    }
}

/// The message has memory of its own: whoever keeps it keeps no other message.
fn message_of(frame: &Frame<'_>) -> Option<(Lane, Bytes)> {
    match *frame {
        Frame::Beat { .. } => None,
        Frame::Replica(body) => Some((Lane::Replica, Bytes::copy_from_slice(body))),
        Frame::Core { body, .. } => Some((Lane::Core, Bytes::copy_from_slice(body))),
        Frame::Mail(body) => Some((Lane::Mail, Bytes::copy_from_slice(body))),
    }
}

/// The longest wait between two looks at whether a removed node is a peer again.
pub(crate) const REMOVED_WAIT: Duration = Duration::from_secs(1);

impl Peer {
    /// Waits until something may have changed, at most for so long.
    pub(crate) async fn changed_within(&self, wait: Duration) {
        let _ = tokio::time::timeout(wait, self.wake.notified()).await;
    }
}

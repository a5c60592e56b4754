//! The side that is dialled. Until a stranger has shown a certificate and said hello, it gets little memory, little time,
//! and no answer.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace_base::limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

use crate::frame::{HELLO_BYTES, Hello, Refusal, VERSIONS};
use crate::links::{Shared, lock};
use crate::peer::{Incoming, Peer};
use crate::tls::is_for;

/// After the system had no descriptor for a connection.
const SHORT_OF_DESCRIPTORS_WAIT: Duration = Duration::from_millis(50);

/// Addresses from which peers have come.
type Known = Arc<Mutex<BTreeSet<IpAddr>>>;

/// Takes connections for as long as the links live.
pub(crate) async fn run(shared: Arc<Shared>, listener: TcpListener) {
    let mut handshakes: VecDeque<AbortHandle> = VecDeque::new();
    let (mut of_peers, mut of_strangers) = (Budget::new(Instant::now()), Budget::new(Instant::now()));
    let known = Known::default();
    loop {
        let (tcp, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                shared.log.refused(&"somebody", &error);
                tokio::time::sleep(SHORT_OF_DESCRIPTORS_WAIT).await;
                continue;
            }
        };
        let budget = if lock(&known).contains(&from.ip()) { &mut of_peers } else { &mut of_strangers };
        if !budget.take(Instant::now()) {
            shared.log.refused(&from, &"too many connections come at once");
            continue;
        }
        handshakes.retain(|handshake| !handshake.is_finished());
        if handshakes.len() >= limits::PEER_HANDSHAKES
            && let Some(oldest) = handshakes.pop_front()
        {
            oldest.abort();
            shared.log.refused(&"the oldest connection without a hello", &"too many have said nothing yet");
        }
        let handshake = hear(Arc::clone(&shared), tcp, from, Arc::clone(&known));
        handshakes.push_back(tokio::spawn(handshake).abort_handle());
    }
}

async fn hear(shared: Arc<Shared>, tcp: TcpStream, from: SocketAddr, known: Known) {
    match tokio::time::timeout(shared.config.timing.handshake, handshake(&shared, tcp)).await {
        Ok(Ok((peer, incoming))) => {
            let mut known = lock(&known);
            if known.len() < 2 * limits::CLUSTER_NODES {
                known.insert(from.ip());
            }
            peer.hand_over(incoming);
        }
        Ok(Err(Some(why))) => shared.log.refused(&from, &why),
        Ok(Err(None)) => tracing::debug!(%from, "a node asks whether it still is a peer"),
        Err(_) => shared.log.refused(&from, &"it has not said hello in time"),
    }
}

/// The peer and its connection, or why there is none. No reason: it is a peer that merely asks whether it is one.
async fn handshake(shared: &Shared, tcp: TcpStream) -> Result<(Arc<Peer>, Incoming), Option<String>> {
    let text = |error: std::io::Error| Some(error.to_string());
    tcp.set_nodelay(true).map_err(text)?;
    let mut stream = shared.tls.acceptor.accept(tcp).await.map_err(text)?;
    let mut bytes = [0; HELLO_BYTES];
    stream.read_exact(&mut bytes).await.map_err(text)?;
    let hello = Hello::decode(&bytes).ok_or_else(|| Some("its first words are no hello".to_owned()))?;
    match admit(shared, &stream, &hello) {
        Ok(peer) => Ok((peer, Incoming { stream, hello })),
        Err(refusal) => {
            stream.write_all(&[refusal.byte()]).await.map_err(text)?;
            let _ = stream.shutdown().await;
            // It only asks whether it still is one.
            let is_knock = refusal == Refusal::UnknownNode && shared.peer(hello.from).is_some();
            Err((!is_knock).then(|| format!("node {}: {refusal}", hello.from)))
        }
    }
}

/// The peer that says this hello.
fn admit(shared: &Shared, stream: &TlsStream<TcpStream>, hello: &Hello) -> Result<Arc<Peer>, Refusal> {
    let config = &shared.config;
    if hello.cluster != config.cluster {
        return Err(Refusal::OtherCluster);
    }
    if hello.to != config.node {
        return Err(Refusal::OtherNode);
    }
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    if !certificate.is_some_and(|certificate| is_for(certificate, config.cluster, hello.from)) {
        return Err(Refusal::Certificate);
    }
    let (lowest, highest) = hello.versions;
    if highest < VERSIONS.0 || lowest > VERSIONS.1 {
        return Err(Refusal::Version);
    }
    // A node of a higher number is dialled, and does not dial.
    let dialler = shared.peer(hello.from).filter(|peer| peer.node < config.node);
    let peer = dialler.ok_or_else(|| shared.refusal_of_stranger(hello.from))?;
    peer.check(hello)?;
    Ok(peer)
}

/// Handshakes that may begin, refilled evenly.
struct Budget {
    left: u32,
    filled: Instant,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self { left: limits::PEER_HANDSHAKES_PER_SECOND, filled: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        let per_second = limits::PEER_HANDSHAKES_PER_SECOND;
        let refill = (now - self.filled).as_secs_f64() * f64::from(per_second);
        if refill >= 1.0 {
            let whole = if refill >= f64::from(per_second) { per_second } else { refill as u32 };
            (self.left, self.filled) = ((self.left + whole).min(per_second), now);
        }
        let may = self.left > 0;
        self.left -= u32::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_lets_a_seconds_worth_through_and_refills() {
        let now = Instant::now();
        let mut budget = Budget::new(now);
        let taken = (0..1_000).filter(|_| budget.take(now)).count();
        assert_eq!(taken, limits::PEER_HANDSHAKES_PER_SECOND as usize);
        let later = now + Duration::from_millis(100);
        let taken = (0..1_000).filter(|_| budget.take(later)).count();
        assert_eq!(taken, limits::PEER_HANDSHAKES_PER_SECOND as usize / 10);
    }
}

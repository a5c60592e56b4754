//! The side that dials: connect, prove who one is, hello, and wait longer after each failure.

use std::fmt;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::frame::{HELLO_BYTES, Hello, Refusal};
use crate::links::{LinkEvent, Shared, Timing};
use crate::peer::{Peer, REMOVED_WAIT};
use crate::session::Opened;
use crate::tls::server_name;
use crate::wire::Wire;

/// How a node dials one peer.
#[derive(Default)]
pub(crate) struct Dialler {
    /// Connections that this process has tried.
    connections: u64,
    /// The last wait.
    backoff: Duration,
    /// What the log has last said. The same failure again is no news.
    told: String,
}

impl Dialler {
    /// Dials until the peer has answered.
    pub(crate) async fn connect(&mut self, shared: &Shared, peer: &Peer) -> (Wire, Opened) {
        loop {
            let Some(address) = peer.address() else {
                peer.changed_within(REMOVED_WAIT).await;
                continue;
            };
            if !self.backoff.is_zero() {
                peer.changed_within(jittered(self.backoff, shared.random.next_u64())).await;
            }
            self.connections += 1;
            let dialled = dial(shared, peer, &address, self.connections);
            let why = match tokio::time::timeout(shared.config.timing.handshake, dialled).await {
                Ok(Ok(connected)) => {
                    self.told.clear();
                    return connected;
                }
                Ok(Err(why)) => why,
                Err(_) => Failed::Broken("it does not answer in time".to_owned()),
            };
            if why == Failed::Refused(Refusal::Removed) {
                shared.handler.changed(peer.node, LinkEvent::Removed);
            }
            let why = why.to_string();
            self.wait_longer(&shared.config.timing);
            if why != self.told {
                shared.log.down(peer.node, &format_args!("{address}: {why}"));
                self.told = why;
            }
        }
    }

    /// A connection has ended. One that lasted is tried again at once.
    pub(crate) fn ended(&mut self, has_lasted: bool) {
        self.backoff = if has_lasted { Duration::ZERO } else { self.backoff.max(Timing::default().first_backoff) };
    }

    fn wait_longer(&mut self, timing: &Timing) {
        self.backoff = (self.backoff * 2).clamp(timing.first_backoff, timing.longest_backoff);
    }
}

/// Between half of the wait and all of it, so that nodes that fail together do not dial together.
fn jittered(wait: Duration, random: u64) -> Duration {
    let half = wait / 2;
    let most_ns = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
    half + Duration::from_nanos(random % most_ns.saturating_add(1).max(1))
}

/// Why there is no connection.
#[derive(PartialEq, Eq)]
enum Failed {
    /// The peer says so.
    Refused(Refusal),
    Broken(String),
}

impl fmt::Display for Failed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Refused(refusal) => write!(formatter, "it refuses this node: {refusal}"),
            Failed::Broken(why) => formatter.write_str(why),
        }
    }
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Failed::Broken(why)
    }
}

/// A connection to a peer that has answered the hello with a welcome.
async fn say_hello(
    shared: &Shared,
    peer: &Peer,
    address: &str,
    connection: u64,
) -> Result<TlsStream<TcpStream>, Failed> {
    let text = |error: std::io::Error| error.to_string();
    let tcp = TcpStream::connect(address).await.map_err(text)?;
    tcp.set_nodelay(true).map_err(text)?;
    let name = server_name(shared.config.cluster, peer.node);
    let mut stream = shared.tls.connector.connect(name, tcp).await.map_err(text)?;
    stream.write_all(&peer.hello(&shared.config, connection).encode()).await.map_err(text)?;
    stream.flush().await.map_err(text)?;
    match stream.read_u8().await.map_err(text)? {
        0 => Ok(stream),
        verdict => Err(match Refusal::of_byte(verdict) {
            Some(refusal) => Failed::Refused(refusal),
            None => Failed::Broken("it refuses this node, and the reason is not known here".to_owned()),
        }),
    }
}

async fn dial(shared: &Shared, peer: &Peer, address: &str, connection: u64) -> Result<(Wire, Opened), Failed> {
    let mut stream = say_hello(shared, peer, address, connection).await?;
    let mut bytes = [0; HELLO_BYTES];
    stream.read_exact(&mut bytes).await.map_err(|error| error.to_string())?;
    let hello = Hello::decode(&bytes).ok_or_else(|| "its answer is no hello".to_owned())?;
    let is_meant = hello.cluster == shared.config.cluster
        && (hello.from, hello.to) == (peer.node, shared.config.node)
        && hello.connection == connection;
    if !is_meant {
        return Err(Failed::Broken("its answer is for somebody else".to_owned()));
    }
    let opened = peer.open(&hello).map_err(|refusal| refusal.to_string())?;
    let (tcp, connection) = stream.into_inner();
    Ok((Wire::new(tcp, connection.into()), opened))
}

/// Asks a peer that should dial, and does not, whether this node was removed. A peer answers that it has to wait.
pub(crate) async fn knock(shared: &Shared, peer: &Peer) {
    let Some(address) = peer.address() else { return };
    let asked = tokio::time::timeout(shared.config.timing.handshake, say_hello(shared, peer, &address, 0)).await;
    if matches!(asked, Ok(Err(Failed::Refused(Refusal::Removed)))) {
        shared.handler.changed(peer.node, LinkEvent::Removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_spread_over_their_second_half() {
        let timing = Timing::default();
        let mut dialler = Dialler::default();
        let mut waits = Vec::new();
        for _ in 0..7 {
            dialler.wait_longer(&timing);
            waits.push(u64::try_from(dialler.backoff.as_millis()).expect("short"));
        }
        assert_eq!(waits, [20, 40, 80, 160, 320, 500, 500]);
        let wait = Duration::from_millis(100);
        for random in [0, 1, 49_999_999, 50_000_000, u64::MAX] {
            let jittered = jittered(wait, random);
            assert!((wait / 2..=wait).contains(&jittered), "{jittered:?}");
        }
        assert_ne!(jittered(wait, 1), jittered(wait, 2));
        dialler.ended(true);
        assert_eq!(dialler.backoff, Duration::ZERO);
        dialler.ended(false);
        assert_eq!(dialler.backoff, timing.first_backoff);
    }
}

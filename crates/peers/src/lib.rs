//! Links between the nodes of a cluster: TCP with TLS on both sides, one session for each pair of processes, three lanes.
//! `docs/internals/peers.md` has the bytes and the rules.
//!
//! Promises: only nodes with a certificate of the cluster's authority are heard, each under its own number; core messages
//! arrive in order and once while both processes live; memory for each peer and each stranger is bounded. Must not know
//! what messages say.

mod accept;
mod address;
mod dial;
mod frame;
mod ids;
mod links;
mod log;
mod peer;
mod session;
mod tls;
mod wire;

pub use address::{check_address, listens_at};
pub use frame::{FRAME_HEADER_BYTES, Frame, FrameError, HELLO_BYTES, Hello, Lane, Refusal, VERSIONS};
pub use ids::{ClusterId, certificate_name};
pub use links::{Config, Handler, LinkEvent, Links, PeerAddress, SendError, StartError, Timing};
pub use session::{Opened, QueueError, Session, Violation};
pub use tls::{Identity, fingerprint, fingerprint_of_file};

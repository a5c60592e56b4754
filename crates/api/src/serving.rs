//! What every front asks of a node, whichever operations it translates.

use std::task::{Context, Poll};

use bytes::Bytes;
use millrace_access::Principal;
use millrace_base::{Error, ErrorCode};
use serde::Serialize;

/// The place in line of a request that has come and is not read; see [`Serving::poll_admission`].
#[derive(Debug, PartialEq, Eq)]
pub struct Admission {
    /// Counts up.
    pub number: u64,
    /// The monotonic nanosecond since which it waits.
    pub since_ns: u64,
}

/// Whether the node serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Requests would be served: recovery is over and the node is not stopping.
    pub is_serving: bool,
    /// Why writes would not be served, though the node serves.
    pub hindrance: Option<Hindrance>,
    /// Its clock is one that tests move.
    pub has_test_clock: bool,
}

/// What a test clock shows after it was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MovedTime {
    /// By how much it is ahead of the machine's.
    pub ahead_ms: u64,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// What is said of a node whose clock is the machine's.
#[must_use]
pub fn no_test_clock() -> Error {
    Error::new(
        ErrorCode::UnknownRoute,
        "this node's clock is the machine's: only `millrace serve --test-clock` can move it",
    )
}

/// What keeps a node that serves from serving writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// The disk has no space.
    DiskFull,
    /// A shard has stopped.
    ShardStopped,
    /// In a cluster: the node has yet to learn who owns what.
    Unguided,
    /// In a cluster: the node is in a minority.
    NoMajority,
    /// In a cluster: a majority of the nodes has lost its data.
    MajorityLost,
    /// In a cluster: the others use what this node's program does not know.
    TooOld,
    /// In a cluster: the node was removed.
    Removed,
}

/// What is said of a node that its cluster has removed, and what to do with it.
pub const REMOVED: &str = "this node was removed from its cluster and takes no part in it any more: stop it; `millrace \
                           cluster join` makes a new directory if its machine is to come back";

/// What is said where a majority of the nodes has lost its data, and what to do.
pub const MAJORITY_LOST: &str = "a majority of the nodes has lost its data, so nobody can say what was acknowledged: bring back a \
                                 node that has its data, or run `millrace cluster rescue` on one that does";

impl Hindrance {
    /// What whoever asks whether the node is ready is told.
    #[must_use]
    pub fn error(self) -> Error {
        let (code, message) = match self {
            Self::DiskFull => (ErrorCode::ReadOnly, "the node serves reads only: the disk is full"),
            Self::ShardStopped => (ErrorCode::ShardStopped, "a shard of the node has stopped; the log says why"),
            Self::Unguided => {
                (ErrorCode::Overloaded, "the node has yet to hear from a majority of the nodes who owns which shards")
            }
            Self::NoMajority => (
                ErrorCode::Overloaded,
                "the node hears no majority of the nodes: they are down or cut off; ask another node",
            ),
            Self::MajorityLost => (ErrorCode::MajorityLost, MAJORITY_LOST),
            Self::TooOld => (
                ErrorCode::NotYetSupported,
                "the node's version is too old for its cluster; install the version of the others",
            ),
            Self::Removed => (ErrorCode::NodeRemoved, REMOVED),
        };
        Error::new(code, message)
    }
}

/// A change of which nodes a cluster has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// One more, which serves clients and hears other nodes at these addresses. It has yet to be started.
    Add {
        /// Host and port.
        http: String,
        /// Host and port.
        peer: String,
        /// What fails together with it; empty if nothing else does.
        rack: String,
    },
    /// What the node holds moves to others.
    Drain(u16),
    /// The node stays: it may hold something again.
    Keep(u16),
    /// The node is none of the cluster any more. It must hold nothing.
    Remove(u16),
}

/// A node, seen from a front on the same core. Admission and health stand beside the operations for two reasons. A front
/// asks for admission before it has read which operation a request is for. And a front of records or objects alone needs both.
///
/// Clones are handles to the same node. The methods of this trait's siblings answer [`Error`](crate::Error) with a code that
/// tells the caller what to do. Their futures are not `Send`: a connection stays on the core that accepted it.
pub trait Serving: Clone + 'static {
    /// Waits until the node has time for a request that has come and is not read. A request that is read too early lies in
    /// memory, and pushes what runs meanwhile out of the core's cache.
    ///
    /// If it has to wait, the front holds an `admission`. It asks again with that when it is woken, or gives it back by
    /// [`Serving::withdraw`]. Once this is ready, `admission` is `None`. The front then reads the request and hands it over in
    /// the same poll.
    fn poll_admission(&self, _admission: &mut Option<Admission>, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Gives an admission back: its request does not come, or does not wait any more.
    fn withdraw(&self, _admission: Admission) {}

    /// Whether the node serves.
    fn health(&self) -> Health;

    /// The guidance of the cluster, as JSON: its nodes, and for each shard its owner and replicas. `None` on a node by itself.
    /// An error while the node does not follow the cluster yet.
    fn guidance(&self) -> Option<Result<Bytes, Error>> {
        None
    }

    /// Changes which nodes the cluster has. Gives what is to be known about it, as JSON.
    fn change_nodes(&self, _principal: &Principal, _change: NodeChange) -> impl Future<Output = Result<Bytes, Error>> {
        async { Err(Error::new(ErrorCode::UnknownRoute, "this node is by itself: it is in no cluster")) }
    }

    /// Moves the clock of a node that was started with one for tests.
    ///
    /// # Errors
    /// `unknown-route`: its clock is the machine's. `bad-request`: it would be too far ahead.
    fn advance_clock(&self, _principal: &Principal, _by_ms: u64) -> Result<MovedTime, Error> {
        Err(no_test_clock())
    }
}

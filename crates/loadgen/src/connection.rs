//! One connection of the engine: its socket, its requests in flight, and its unsent bytes.

use std::collections::VecDeque;
use std::net::SocketAddr;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use super::codec::Codec;
use super::mongo::MongoParser;
use super::plan::Plan;
use super::request::Protocol;
use super::resp::RespParser;
use super::response::ResponseParser;

/// A request in flight. Times are in nanoseconds since the run's start.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    /// The start of its latency: the time of sending, or in an open loop the time at which it was due.
    pub from: u64,
    pub sent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Closed,
    Connecting { since: u64 },
    Open,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub socket: Option<OwnedFd>,
    pub stage: Stage,
    /// The number of sockets this connection has had. It tells late events of earlier sockets apart.
    pub generation: u32,
    pub in_flight: VecDeque<InFlight>,
    /// Bytes of requests that the socket did not take yet.
    pub unsent: Vec<u8>,
    pub codec: Codec,
}

impl Connection {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            socket: None,
            stage: Stage::Closed,
            generation: 0,
            in_flight: VecDeque::new(),
            unsent: Vec::new(),
            codec: new_codec(plan),
        }
    }

    /// Starts to connect. From then on the socket reports every event to `epoll`.
    pub(super) fn open(&mut self, index: u32, epoll: &OwnedFd, target: &SocketAddr, now: u64) -> Result<(), Errno> {
        let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match connect(&socket, target) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        self.generation = self.generation.wrapping_add(1);
        let token = u64::from(self.generation) << 32 | u64::from(index);
        // Edge-triggered for reads and writes, so that a waiting write needs no further call.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(epoll, &socket, EventData::new_u64(token), flags)?;
        self.socket = Some(socket);
        self.stage = Stage::Connecting { since: now };
        Ok(())
    }

    /// Closes the socket and drops the requests in flight. Returns their number.
    pub(super) fn close(&mut self, plan: &Plan) -> u64 {
        let lost = self.in_flight.len() as u64;
        self.socket = None;
        self.stage = Stage::Closed;
        self.in_flight.clear();
        self.unsent.clear();
        self.codec = new_codec(plan);
        lost
    }
}

fn new_codec(plan: &Plan) -> Codec {
    match plan.request.protocol() {
        Protocol::Http => Codec::Http(ResponseParser::new(plan.request.is_bodyless(), plan.expectation.needs_body())),
        Protocol::Resp => Codec::Resp(RespParser::default()),
        Protocol::Mongo => Codec::Mongo(MongoParser::default()),
    }
}

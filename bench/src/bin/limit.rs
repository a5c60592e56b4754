//! The yardstick of every HTTP front: a bare epoll responder that ignores its input. It has one thread. For each readable
//! connection it reads once and writes a fixed reply. No server that parses requests can cost less on the same kernel.

use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::process::ExitCode;

use clap::Parser;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, read};
use rustix::net::{SendFlags, SocketFlags, accept_with, send, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As long as a real server's reply to the same request.
const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\
Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\nok";

const LISTENER: u64 = u64::MAX;
const EVENTS: usize = 512;

#[derive(Parser)]
#[command(about = "A bare epoll responder that ignores its input: the yardstick of the HTTP front")]
struct Arguments {
    /// The port to listen on, on 127.0.0.1.
    #[arg(long, default_value_t = 8099)]
    port: u16,
}

fn main() -> ExitCode {
    match serve(Arguments::parse().port) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn serve(port: u16) -> std::io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let listener = TcpListener::bind(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)))?;
    rustix::net::listen(&listener, 4096)?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut connections: Vec<Option<OwnedFd>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut space = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
    loop {
        let events = match epoll::wait(&epoll, space.as_mut_slice(), None) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for event in events {
            let token = event.data.u64();
            if token == LISTENER {
                accept_all(&listener, &epoll, &mut connections, &mut free)?;
            } else if let Some(slot) = connections.get_mut(token as usize)
                && let Some(socket) = slot
                && !answer(socket)
            {
                // A socket has one event in a batch, so no later event of this batch has this index.
                *slot = None;
                free.push(token as usize);
            }
        }
    }
}

fn accept_all(
    listener: &TcpListener,
    epoll: &OwnedFd,
    connections: &mut Vec<Option<OwnedFd>>,
    free: &mut Vec<usize>,
) -> std::io::Result<()> {
    loop {
        let socket = match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(socket) => socket,
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR | Errno::CONNABORTED) => continue,
            Err(error) => return Err(error.into()),
        };
        sockopt::set_tcp_nodelay(&socket, true)?;
        let index = free.pop().unwrap_or(connections.len());
        epoll::add(epoll, &socket, EventData::new_u64(index as u64), EventFlags::IN)?;
        if index == connections.len() {
            connections.push(None);
        }
        connections[index] = Some(socket);
    }
}

/// Whether the connection stays.
fn answer(socket: &OwnedFd) -> bool {
    let mut input = [0; 4096];
    match read(socket, &mut input) {
        Ok(0) => false,
        Ok(_) => send(socket, REPLY, SendFlags::NOSIGNAL).is_ok_and(|sent| sent == REPLY.len()),
        Err(Errno::AGAIN | Errno::INTR) => true,
        Err(_) => false,
    }
}

//! Listening sockets: one per core on the same address, and a clear error when it is taken.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::StartError;

/// Connections the kernel may finish before the core accepts them. A burst of connections is
/// refused by the kernel beyond this; it is capped by `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// A process that was killed has its ports until the kernel has taken it apart, which takes the
/// longer the more memory it had. Whoever starts right after it need not fail.
const PREDECESSOR_MS: u64 = 2_000;
const LOOK_AGAIN_MS: u64 = 10;

/// Listens on `address` for one core. Same as the first of [`bind_all`].
///
/// # Errors
/// [`StartError::AddressInUse`] and [`StartError::Bind`].
pub fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    // With SO_REUSEPORT two processes of one user could share the port without noticing, each
    // getting some of the connections. A bind without it fails when anybody listens there.
    probe(address)?;
    open(address).map_err(|error| bind_error(address, error))
}

/// Listens on `address` once per core; the kernel spreads connections over the listeners. Port 0
/// picks one free port for all of them. Whoever has the port and is just going away is waited for.
///
/// # Errors
/// [`StartError::AddressInUse`] and [`StartError::Bind`].
pub fn bind_all(address: SocketAddr, count: usize) -> Result<Vec<TcpListener>, StartError> {
    let mut first = bind(address);
    for _ in 0..PREDECESSOR_MS / LOOK_AGAIN_MS {
        if !matches!(first, Err(StartError::AddressInUse(_))) {
            break;
        }
        std::thread::sleep(Duration::from_millis(LOOK_AGAIN_MS));
        first = bind(address);
    }
    let first = first?;
    let bound = first.local_addr().map_err(|error| StartError::Bind(address, error))?;
    let mut listeners = vec![first];
    for _ in 1..count {
        listeners.push(open(bound).map_err(|error| bind_error(bound, error))?);
    }
    Ok(listeners)
}

fn probe(address: SocketAddr) -> Result<(), StartError> {
    let socket = || -> io::Result<()> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // Lets a restart bind beside connections in TIME_WAIT, but not beside a listener.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())
    };
    socket().map_err(|error| bind_error(address, error))
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn bind_error(address: SocketAddr, error: io::Error) -> StartError {
    if error.kind() == io::ErrorKind::AddrInUse {
        StartError::AddressInUse(address)
    } else {
        StartError::Bind(address, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn every_core_listens_on_the_one_port() {
        let listeners = bind_all(loopback(), 3).expect("free port");
        let ports: Vec<u16> = listeners.iter().map(|one| one.local_addr().expect("bound").port()).collect();
        assert_eq!(ports.len(), 3);
        assert!(ports.iter().all(|port| *port == ports[0] && *port != 0));
    }

    #[test]
    fn a_port_that_is_given_up_a_moment_later_can_be_had() {
        let first = bind_all(loopback(), 2).expect("free port");
        let address = first[0].local_addr().expect("bound");
        let goes = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(first);
        });
        assert_eq!(bind_all(address, 2).expect("waited for").len(), 2);
        goes.join().expect("gone");
        let _first = bind_all(address, 1).expect("free again");
        assert!(matches!(bind_all(address, 1), Err(StartError::AddressInUse(_))), "but not for ever");
    }

    #[test]
    fn a_taken_port_is_an_error_that_names_the_address_even_with_reuse_port() {
        let first = bind(loopback()).expect("free port");
        let address = first.local_addr().expect("bound");
        let error = bind(address).expect_err("taken");
        assert!(matches!(error, StartError::AddressInUse(taken) if taken == address));
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

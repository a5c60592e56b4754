//! Listening sockets: one per core on the same address, and a clear error when it is taken.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use crate::StartError;

/// Connections the kernel may finish before the core accepts them. A burst of connections is
/// refused by the kernel beyond this; it is capped by `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

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
/// picks one free port for all of them.
///
/// # Errors
/// [`StartError::AddressInUse`] and [`StartError::Bind`].
pub fn bind_all(address: SocketAddr, count: usize) -> Result<Vec<TcpListener>, StartError> {
    let first = bind(address)?;
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
    fn a_taken_port_is_an_error_that_names_the_address_even_with_reuse_port() {
        let first = bind(loopback()).expect("free port");
        let address = first.local_addr().expect("bound");
        let error = bind(address).expect_err("taken");
        assert!(matches!(error, StartError::AddressInUse(taken) if taken == address));
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

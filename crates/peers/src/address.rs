//! Addresses of nodes: an IP address or a host name, and a port.
//!
//! A name is looked up each time that a node is dialled, so a node may move. Where a node itself listens follows from its
//! address, once, at its start.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

/// Bytes of a host name (RFC 1123).
const NAME_BYTES: usize = 253;

/// Bytes of one part of it.
const LABEL_BYTES: usize = 63;

/// Refuses what is no address.
///
/// # Errors
/// A sentence that says what an address is.
pub fn check_address(address: &str) -> Result<(), String> {
    let wrong =
        || format!("{address:?} is no address: give an IP address or a host name, and a port, such as 10.0.0.1:7000");
    if address.parse::<SocketAddr>().is_ok() {
        return Ok(());
    }
    let (name, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let has_port = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_label = |label: &str| {
        (1..=LABEL_BYTES).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let labels = name.strip_suffix('.').unwrap_or(name);
    // Four numbers that are no IP address are a typing mistake, and no name.
    let is_name = name.len() <= NAME_BYTES
        && labels.split('.').all(is_label)
        && !labels.rsplit('.').next().unwrap_or_default().bytes().all(|byte| byte.is_ascii_digit());
    if has_port && is_name { Ok(()) } else { Err(wrong()) }
}

/// Where a node of this address listens: at an IP address itself. A name may stand for an address that this machine does not
/// know of, so its node listens everywhere; only a name of the machine's own loopback stays there.
///
/// # Errors
/// As for [`check_address`].
pub fn listens_at(address: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = address.parse() {
        return Ok(address);
    }
    check_address(address)?;
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or_default();
    // A name that nobody knows yet may be that of a node which is about to be announced.
    let found: Vec<IpAddr> =
        address.to_socket_addrs().map(|found| found.map(|at| at.ip()).collect()).unwrap_or_default();
    match found.iter().find(|at| at.is_ipv4()).or(found.first()) {
        Some(own) if found.iter().all(IpAddr::is_loopback) => Ok((*own, port).into()),
        _ => Ok((everywhere(), port).into()),
    }
}

/// All addresses of this machine: also those of IPv4, where it has IPv6.
fn everywhere() -> IpAddr {
    let has_version_6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    if has_version_6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_ip_address_or_a_name_and_a_port() {
        let long = format!("{}:1", "a".repeat(64));
        for address in ["10.0.0.1:7000", "[::1]:7000", "n1:7000", "millrace-0.millrace-peers:8080", "n1.example.org.:1"]
        {
            assert_eq!(check_address(address), Ok(()), "{address}");
        }
        for address in [
            "",
            "n1",
            "n1:",
            "n1:0",
            "n1:+1",
            "n1:65536",
            ":1",
            "10.0.0:1",
            "10.0.0.256:1",
            "a..b:1",
            "-a:1",
            "a_b:1",
            "a b:1",
            &long,
        ] {
            assert!(check_address(address).is_err(), "{address}");
        }
    }

    #[test]
    fn a_node_with_a_name_listens_everywhere_but_for_the_loopback() {
        let at = |address: &str| listens_at(address).expect("an address");
        assert_eq!(at("10.0.0.1:7000"), "10.0.0.1:7000".parse().expect("an address"));
        assert!(at("localhost:7000").ip().is_loopback());
        let unknown = at("nobody-has-this-name.invalid:7000");
        assert!(unknown.ip().is_unspecified() && unknown.port() == 7000);
    }
}

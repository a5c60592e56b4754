//! Which web pages may use a listener that asks for no keys.
//!
//! Without keys, whoever reaches the listener may do everything, and only this machine reaches it.
//! But browsers on this machine run strangers' pages. Such a page may post to the listener (it does
//! not get the reply, but the call takes effect), or let a name of its own resolve to 127.0.0.1 and
//! then read replies as well. A browser gives both away: `Origin` says whose page asks, `Host`
//! under which name.
//!
//! Promises: a request is let through only under an IP address, localhost or an allowed name, and
//! from a page only of such a loopback address or name, or of the listener's own. Programs other
//! than browsers send no `Origin` and are not affected. Must not be the only lock where others
//! reach the listener: [`crate::check_listener`] asks for keys there.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{HeaderValue, Uri};
use millrace_base::{Error, ErrorCode};

/// Bytes of a host name, as of DNS.
const HOST_NAME_BYTES: usize = 253;

/// Characters of a refused header that the message repeats.
const SHOWN_CHARACTERS: usize = 100;

/// One core's guard.
pub(crate) struct Guard {
    allowed_hosts: Vec<String>,
    /// The last `Host` that was let through. Nearly every request has the same, and comparing costs less
    /// than parsing.
    known_host: RefCell<Vec<u8>>,
}

impl Guard {
    pub(crate) fn new(allowed_hosts: &[String]) -> Self {
        Self { allowed_hosts: allowed_hosts.to_vec(), known_host: RefCell::new(b"localhost".to_vec()) }
    }

    /// Lets a request through or says why not.
    pub(crate) fn check(
        &self,
        uri: &Uri,
        host: Option<&HeaderValue>,
        origin: Option<&HeaderValue>,
    ) -> Result<(), Error> {
        // HTTP/2 names the host in the URI, and an absolute URI of HTTP/1 outranks the header.
        let host = match uri.authority() {
            Some(authority) => Some(authority.as_str().as_bytes()),
            None => host.map(HeaderValue::as_bytes),
        };
        // No browser leaves it out.
        if let Some(host) = host {
            self.check_host(host)?;
        }
        match origin {
            None => Ok(()),
            Some(origin) => self.check_origin(origin.as_bytes(), host),
        }
    }

    fn check_host(&self, host: &[u8]) -> Result<(), Error> {
        if *self.known_host.borrow() == host {
            return Ok(());
        }
        match host_of(host) {
            Some(Host::Address(_)) => {}
            Some(Host::Name(name)) if self.is_allowed(name) => {}
            _ => {
                let message = format!(
                    "this node has no API keys, so it answers only to its IP address, localhost and allowed hosts, not to \
                     {}: start it with --allowed-hosts NAME, or make a key with `millrace keys`",
                    shown(host)
                );
                return Err(Error::new(ErrorCode::Forbidden, message));
            }
        }
        let mut known = self.known_host.borrow_mut();
        known.clear();
        known.extend_from_slice(host);
        Ok(())
    }

    fn check_origin(&self, origin: &[u8], host: Option<&[u8]>) -> Result<(), Error> {
        let authority = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        let is_ours = authority.is_some_and(|authority| {
            Some(authority) == host
                || match host_of(authority) {
                    Some(Host::Address(address)) => address.is_loopback(),
                    Some(Host::Name(name)) => self.is_allowed(name),
                    None => false,
                }
        });
        if is_ours {
            return Ok(());
        }
        let message = format!(
            "this node has no API keys, so web pages of other hosts may not use it, and this request comes from a page of \
             {}: start it with --allowed-hosts NAME, or make a key with `millrace keys`",
            shown(origin)
        );
        Err(Error::new(ErrorCode::Forbidden, message))
    }

    /// Browsers resolve names below localhost to this machine (RFC 6761), whatever DNS says.
    fn is_allowed(&self, name: &str) -> bool {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let ends_local = || {
            let start = name.len().saturating_sub(".localhost".len());
            name.get(start..).is_some_and(|end| end.eq_ignore_ascii_case(".localhost"))
        };
        is("localhost") || self.allowed_hosts.iter().any(|allowed| is(allowed)) || ends_local()
    }
}

fn shown(text: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(text).chars().take(SHOWN_CHARACTERS).collect();
    format!("{text:?}")
}

#[derive(Debug, PartialEq, Eq)]
enum Host<'a> {
    Address(IpAddr),
    Name(&'a str),
}

/// The host of `host`, `host:port`, `[v6]` and `[v6]:port`.
fn host_of(authority: &[u8]) -> Option<Host<'_>> {
    let text = std::str::from_utf8(authority).ok()?;
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        is_port(port).then_some(())?;
        return address.parse::<Ipv6Addr>().ok().map(|address| Host::Address(address.into()));
    }
    let end = text.find(':').unwrap_or(text.len());
    let (host, port) = text.split_at(end);
    is_port(port).then_some(())?;
    match host.parse::<Ipv4Addr>() {
        Ok(address) => Some(Host::Address(address.into())),
        Err(_) => is_host_name(host).then_some(Host::Name(host)),
    }
}

/// Whether `text` is empty or `:` and digits.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether `text` is made as host names are.
pub(crate) fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    text.len() <= HOST_NAME_BYTES && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ask(guard: &Guard, uri: &str, host: Option<&[u8]>, origin: Option<&[u8]>) -> Result<(), Error> {
        let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).expect("a value");
        let (host, origin) = (host.map(value), origin.map(value));
        guard.check(&uri.parse().expect("a URI"), host.as_ref(), origin.as_ref())
    }

    #[test]
    fn only_own_names_are_answered() {
        assert!(ask(&Guard::new(&[]), "/", Some(b""), None).is_err());
        let guard = Guard::new(&["Shop.test".to_owned()]);
        for host in [
            "127.0.0.1:8080",
            "127.0.0.1",
            "10.1.2.3:80",
            "[::1]:8080",
            "[::1]",
            "localhost",
            "LOCALHOST:8080",
            "a.localhost:1",
            "shop.test",
            "SHOP.test:8080",
            "127.0.0.1:",
        ] {
            assert_eq!(ask(&guard, "/", Some(host.as_bytes()), None), Ok(()), "{host}");
        }
        for host in [
            "evil.test",
            "127.0.0.1.evil.test",
            "localhost.evil.test",
            "evillocalhost",
            ".localhost",
            "localhost.",
            "",
            ":80",
            "x.shop.test",
            "user@127.0.0.1",
            "127.0.0.1:8080:1",
            "127.0.0.1:x",
            "[::1",
            "[evil]",
            "::1",
            "0x7f.1/",
            "127.1 ",
            "\u{ff}",
        ] {
            let error = ask(&guard, "/", Some(host.as_bytes()), None).expect_err(host);
            assert_eq!(error.code, ErrorCode::Forbidden);
            assert!(error.message.contains("--allowed-hosts"));
        }
        assert_eq!(ask(&guard, "/", None, None), Ok(()), "programs may leave it out");
        assert!(ask(&guard, "http://evil.test/x", Some(b"localhost"), None).is_err(), "the URI's host counts");
        assert_eq!(ask(&guard, "http://localhost/x", Some(b"evil.test"), None), Ok(()));
        assert!(ask(&guard, "/", Some(&[b'a'; 10_000]), None).expect_err("long").message.len() < 500);
    }

    #[test]
    fn only_pages_of_this_machine_and_of_allowed_names_may_ask() {
        let guard = Guard::new(&["shop.test".to_owned()]);
        let origin = |host: &str, origin: &str| ask(&guard, "/", Some(host.as_bytes()), Some(origin.as_bytes()));
        for own in [
            "http://127.0.0.1:8080",
            "http://localhost:5173",
            "https://localhost",
            "http://[::1]:80",
            "http://shop.test",
        ] {
            assert_eq!(origin("127.0.0.1:8080", own), Ok(()), "{own}");
        }
        for foreign in [
            "http://evil.test",
            "null",
            "",
            "http://6.6.6.6",
            "file://",
            "chrome-extension://abc",
            "http://",
            "https://",
            "http://localhost.evil.test",
            "http://evil.test:8080",
            "http://localhost@evil.test",
            "http://localhost/",
            "HTTP://localhost",
            "ftp://localhost",
        ] {
            let error = origin("127.0.0.1:8080", foreign).expect_err(foreign);
            assert_eq!(error.code, ErrorCode::Forbidden);
            assert!(error.message.contains("--allowed-hosts"));
        }
        assert_eq!(origin("10.1.2.3:8080", "http://10.1.2.3:8080"), Ok(()), "a page of the listener itself");
        assert!(origin("10.1.2.3:8080", "http://10.1.2.3:81").is_err());
        assert!(ask(&guard, "/", None, Some(b"http://")).is_err());
    }

    #[test]
    fn allowed_hosts_are_names() {
        for good in ["a", "shop.test", "my_host", "a-b.c", "10.0.0.1"] {
            assert!(is_host_name(good), "{good}");
        }
        for bad in ["", "http://a", "a:80", "a/", "*.test", ".a", "a.", "a..b", "ä", &"a".repeat(254)] {
            assert!(!is_host_name(bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_header_makes_the_guard_panic_or_wrong(
            name in "[a-z0-9.:@/\\[\\]-]{0,20}(evil|localhost|127\\.0\\.0\\.1)[a-z0-9.:@/\\[\\]-]{0,10}"
        ) {
            let guard = Guard::new(&[]);
            if ask(&guard, "/", Some(name.as_bytes()), None).is_ok() {
                let host = name.split(':').next().unwrap_or_default();
                let is_own = host == "localhost" || host.ends_with(".localhost") || host.parse::<IpAddr>().is_ok()
                    || name.starts_with('[');
                prop_assert!(is_own, "{}", name);
            }
        }
    }
}

//! Which web pages may use a listener that asks for no keys.
//!
//! Without keys, whoever reaches the listener may do everything, and only this machine reaches it.
//! But browsers on this machine run strangers' pages. Such a page may post to the listener: it does not get the reply,
//! but the call takes effect. Or it may let a name of its own resolve to 127.0.0.1, and then read replies as well. A
//! browser gives both away: `Origin` says whose page asks, `Host` under which name. What a page loads as an image or a
//! script, or leads its reader to, is a GET without `Origin`; `Sec-Fetch-Site` tells that it comes from elsewhere.
//!
//! Promises: a request is let through only under an IP address, localhost or an allowed name. A page's request is let
//! through only if the page is of a loopback address, of such a name, or of the listener's own. A page of elsewhere may
//! lead its reader here, but neither load anything nor lead to what changes something. Programs other than browsers
//! send none of these headers and are not affected. Must not be the only lock where others reach the listener:
//! [`crate::check_listener`] asks for keys there.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{HeaderValue, Uri};
use millrace_base::{Error, ErrorCode};

/// Bytes of a host name, as of DNS.
const HOST_NAME_BYTES: usize = 253;

/// Characters of a refused header that the message repeats.
const SHOWN_CHARACTERS: usize = 100;

/// What a browser says of where a request comes from.
#[derive(Clone, Copy, Default)]
pub(crate) struct Source<'a> {
    /// `Host`.
    pub(crate) host: Option<&'a HeaderValue>,
    /// `Origin`.
    pub(crate) origin: Option<&'a HeaderValue>,
    /// `Sec-Fetch-Site` (Fetch Metadata Request Headers, 2.4).
    pub(crate) site: Option<&'a HeaderValue>,
    /// `Sec-Fetch-Mode` says that its reader goes to what is asked for, rather than that a page loads it.
    pub(crate) is_navigation: bool,
}

/// One core's guard.
pub(crate) struct Guard {
    allowed_hosts: Vec<String>,
    /// Origins whose pages may use the listener whatever their host.
    allowed_origins: Vec<String>,
    /// The last `Host` that was let through. Nearly every request has the same, and comparing costs less
    /// than parsing.
    known_host: RefCell<Vec<u8>>,
}

impl Guard {
    pub(crate) fn new(allowed_hosts: &[String], allowed_origins: &[String]) -> Self {
        Self {
            allowed_hosts: allowed_hosts.to_vec(),
            allowed_origins: allowed_origins.to_vec(),
            known_host: RefCell::new(b"localhost".to_vec()),
        }
    }

    /// Lets a request through or says why not. `changes`: the operation is a GET that changes something.
    pub(crate) fn check(&self, uri: &Uri, source: Source<'_>, changes: bool) -> Result<(), Error> {
        let Source { host, origin, site, is_navigation } = source;
        let host = host_asked(uri, host);
        // No browser leaves it out.
        if let Some(host) = host {
            self.check_host(host)?;
        }
        match origin {
            Some(origin) => self.check_origin(origin.as_bytes(), host),
            None if site.is_some_and(|site| site == "cross-site") && (changes || !is_navigation) => {
                let message = "this node has no API keys, so web pages of other hosts may not use it, and Sec-Fetch-Site says \
                               that such a page asks: start it with --allowed-hosts NAME and ask from a page of that name, \
                               or make a key with `millrace keys`";
                Err(Error::new(ErrorCode::Forbidden, message))
            }
            None => Ok(()),
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

    /// Whether a page of `origin` may use the listener.
    pub(crate) fn is_own_page(&self, uri: &Uri, host: Option<&HeaderValue>, origin: &HeaderValue) -> bool {
        self.is_own(origin.as_bytes(), host_asked(uri, host))
    }

    fn is_own(&self, origin: &[u8], host: Option<&[u8]>) -> bool {
        let authority = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        let is_of_own_host = authority.is_some_and(|authority| {
            Some(authority) == host
                || match host_of(authority) {
                    Some(Host::Address(address)) => address.is_loopback(),
                    Some(Host::Name(name)) => self.is_allowed(name),
                    None => false,
                }
        });
        is_of_own_host || self.allowed_origins.iter().any(|allowed| allowed.as_bytes() == origin)
    }

    fn check_origin(&self, origin: &[u8], host: Option<&[u8]>) -> Result<(), Error> {
        if self.is_own(origin, host) {
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

/// HTTP/2 names the host in the URI, and an absolute URI of HTTP/1 outranks the header.
fn host_asked<'a>(uri: &'a Uri, host: Option<&'a HeaderValue>) -> Option<&'a [u8]> {
    match uri.authority() {
        Some(authority) => Some(authority.as_str().as_bytes()),
        None => host.map(HeaderValue::as_bytes),
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
        let source = Source { host: host.as_ref(), origin: origin.as_ref(), ..Source::default() };
        guard.check(&uri.parse().expect("a URI"), source, false)
    }

    #[test]
    fn pages_of_elsewhere_may_lead_here_and_load_nothing() {
        let guard = Guard::new(&[], &[]);
        let ask = |site: Option<&'static str>, is_navigation: bool, changes: bool| {
            let site = site.map(HeaderValue::from_static);
            let source = Source { site: site.as_ref(), is_navigation, ..Source::default() };
            guard.check(&Uri::from_static("/"), source, changes)
        };
        for own in [None, Some("none"), Some("same-origin"), Some("same-site")] {
            for (is_navigation, changes) in [(false, false), (false, true), (true, false), (true, true)] {
                assert_eq!(ask(own, is_navigation, changes), Ok(()), "{own:?}");
            }
        }
        assert_eq!(ask(Some("cross-site"), true, false), Ok(()), "a link that somebody follows");
        for (is_navigation, changes) in [(false, false), (false, true), (true, true)] {
            let error = ask(Some("cross-site"), is_navigation, changes).expect_err("from elsewhere");
            assert_eq!(error.code, ErrorCode::Forbidden);
            assert!(error.message.contains("--allowed-hosts"));
        }
    }

    #[test]
    fn only_own_names_are_answered() {
        assert!(ask(&Guard::new(&[], &[]), "/", Some(b""), None).is_err());
        let guard = Guard::new(&["Shop.test".to_owned()], &[]);
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
        let guard = Guard::new(&["shop.test".to_owned()], &[]);
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
            let guard = Guard::new(&[], &[]);
            if ask(&guard, "/", Some(name.as_bytes()), None).is_ok() {
                let host = name.split(':').next().unwrap_or_default();
                let is_own = host == "localhost" || host.ends_with(".localhost") || host.parse::<IpAddr>().is_ok()
                    || name.starts_with('[');
                prop_assert!(is_own, "{}", name);
            }
        }
    }
}

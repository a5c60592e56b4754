//! A URL, read once: which server it leads to, and what that server is asked for.

use std::cell::Cell;
use std::fmt;
use std::net::IpAddr;

use millrace_api::{Error, ErrorCode};
use millrace_base::limits;
use url::{Host, SyntaxViolation, Url};

/// Longest name and longest label of the domain name system.
const NAME_BYTES: usize = 253;
const LABEL_BYTES: usize = 63;

/// A host as it is connected to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FetchHost {
    /// A name: lower-case ASCII letters, digits, `-` and `_` in labels, without a final dot.
    Name(String),
    /// An address, however it was written.
    Address(IpAddr),
}

impl fmt::Display for FetchHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(formatter, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

/// A server: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FetchOrigin {
    /// `https` or else `http`.
    pub is_tls: bool,
    /// Its host.
    pub host: FetchHost,
    /// Its port, the scheme's default filled in; never 0.
    pub port: u16,
}

impl FetchOrigin {
    /// Host and port as in a `Host` header: the scheme's default port is left out.
    #[must_use]
    pub fn authority(&self) -> String {
        let default_port = if self.is_tls { 443 } else { 80 };
        if self.port == default_port { self.host.to_string() } else { format!("{}:{}", self.host, self.port) }
    }
}

impl fmt::Display for FetchOrigin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://{}", if self.is_tls { "https" } else { "http" }, self.authority())
    }
}

/// What a URL means, in canonical form. Only [`FetchTarget::parse`] makes one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FetchTarget {
    origin: FetchOrigin,
    path_and_query: String,
    path_bytes: usize,
}

impl FetchTarget {
    /// Reads an absolute `http` or `https` URL as the WHATWG standard has it: case, default ports,
    /// dot segments, international names and the many spellings of addresses come out in one form;
    /// a fragment is dropped. What that standard would repair by guessing (backslashes, missing
    /// slashes, tabs and newlines, spaces around) is refused, for another reader may guess otherwise.
    ///
    /// # Errors
    /// `fetch-refused`, saying what is wrong. The message does not repeat the URL, which may hold
    /// a secret.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.len() > limits::FETCH_URL_BYTES {
            return Err(refused(format!("the URL has {} bytes; {} are allowed", text.len(), limits::FETCH_URL_BYTES)));
        }
        let url = parse_strictly(text)?;
        let is_tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(refused("only http and https URLs can be fetched")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused(CREDENTIALS));
        }
        let host = match url.host() {
            Some(Host::Domain(name)) => FetchHost::Name(checked_name(name)?),
            Some(Host::Ipv4(address)) => FetchHost::Address(address.into()),
            Some(Host::Ipv6(address)) => FetchHost::Address(address.into()),
            None => return Err(refused("the URL names no host")),
        };
        let Some(port @ 1..) = url.port_or_known_default() else {
            return Err(refused("the URL's port is 0"));
        };
        let mut path_and_query = url.path().to_owned();
        let path_bytes = path_and_query.len();
        if let Some(query) = url.query() {
            path_and_query.push('?');
            path_and_query.push_str(query);
        }
        Ok(Self { origin: FetchOrigin { is_tls, host, port }, path_and_query, path_bytes })
    }

    /// The server.
    #[must_use]
    pub fn origin(&self) -> &FetchOrigin {
        &self.origin
    }

    /// The path, percent-encoded; begins with `/`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path_and_query[..self.path_bytes]
    }

    /// What the server is asked for: the path, and the query where there is one.
    #[must_use]
    pub fn path_and_query(&self) -> &str {
        &self.path_and_query
    }
}

impl fmt::Display for FetchTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.origin, self.path_and_query)
    }
}

const CREDENTIALS: &str = "a URL must not hold a user name or password; send an authorization header";

pub(super) fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::FetchRefused, message)
}

fn parse_strictly(text: &str) -> Result<Url, Error> {
    let violation = Cell::new(None);
    let note = |found: SyntaxViolation| match found {
        // An encoding is completed, nothing is guessed.
        SyntaxViolation::NonUrlCodePoint | SyntaxViolation::PercentDecode | SyntaxViolation::NullInFragment => {}
        SyntaxViolation::EmbeddedCredentials | SyntaxViolation::UnencodedAtSign => violation.set(Some(CREDENTIALS)),
        SyntaxViolation::Backslash => violation.set(Some("a URL must not hold a backslash")),
        SyntaxViolation::ExpectedDoubleSlash => violation.set(Some("`//` must follow the URL's scheme, once")),
        _ => violation.set(Some("a URL must not hold control characters, nor spaces at its ends")),
    };
    let parsed = Url::options().syntax_violation_callback(Some(&note)).parse(text);
    match (violation.get(), parsed) {
        (Some(reason), _) => Err(refused(reason)),
        (None, Ok(url)) => Ok(url),
        (None, Err(error)) => Err(refused(format!("not an absolute URL: {error}"))),
    }
}

/// Names that every resolver, certificate and server reads alike.
fn checked_name(name: &str) -> Result<String, Error> {
    if name.ends_with('.') {
        return Err(refused("the URL's host must not end in a dot"));
    }
    let is_label = |label: &str| {
        (1..=LABEL_BYTES).contains(&label.len())
            && label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
    };
    if name.len() > NAME_BYTES || !name.split('.').all(is_label) {
        return Err(refused("the URL's host is not a name that can be resolved"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
#[path = "target_tests.rs"]
pub(super) mod tests;

//! Which servers an app may reach: the `[fetch]` of its `millrace.toml`.
//!
//! Names are judged, not addresses: a name that is allowed is trusted to whoever runs its DNS.

use std::fmt;

use millrace_api::Error;
use millrace_base::limits;
use percent_encoding::percent_decode;
use serde::Deserialize;

use super::target::{FetchHost, FetchOrigin, FetchTarget, refused};

/// How often a path may be percent-encoded over itself and still be looked into.
const ENCODINGS: usize = 4;

/// What an app may fetch; nothing, unless its `millrace.toml` says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Section")]
pub struct FetchPolicy {
    rules: Vec<FetchRule>,
}

/// `[fetch]` as written.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Section {
    allow: Lines,
}

/// `allow` by itself, so that what is wrong with it has its place in the file.
#[derive(Deserialize, Default)]
#[serde(try_from = "Vec<FetchRule>")]
struct Lines(FetchPolicy);

impl TryFrom<Vec<FetchRule>> for Lines {
    type Error = String;

    fn try_from(lines: Vec<FetchRule>) -> Result<Self, String> {
        FetchPolicy::new(lines).map(Self)
    }
}

impl From<Section> for FetchPolicy {
    fn from(section: Section) -> Self {
        section.allow.0
    }
}

impl FetchPolicy {
    /// Allows what one of the rules covers.
    ///
    /// # Errors
    /// More rules than one app may have.
    pub fn new(rules: Vec<FetchRule>) -> Result<Self, String> {
        if rules.len() > limits::FETCH_RULES {
            return Err(format!("fetch.allow has {} lines; {} are allowed", rules.len(), limits::FETCH_RULES));
        }
        Ok(Self { rules })
    }

    /// Whether the app may fetch a URL.
    ///
    /// # Errors
    /// `fetch-refused`: what is wrong with the URL, or which line would allow it.
    pub fn allows(&self, url: &str) -> Result<(), Error> {
        let target = FetchTarget::parse(url)?;
        if self.rules.iter().any(|rule| rule.covers(&target)) {
            return Ok(());
        }
        // Paths may hold secrets, and callers see the message: it names the server only.
        let origin = target.origin();
        let why = if !self.rules.iter().any(|rule| rule.covers_origin(origin)) {
            format!("the app may not fetch from {origin}; to allow it, add \"{origin}\"")
        } else if is_plain(target.path()) {
            format!("the app may not fetch this path of {origin}; to allow it, add \"{origin}\" followed by the path")
        } else {
            format!(
                "the app may fetch only some paths of {origin}, and servers may differ in how they read this one; \
                 to allow it, add \"{origin}\""
            )
        };
        Err(refused(format!("{why} to `allow` under `[fetch]` in the app's millrace.toml")))
    }
}

/// One line of `allow`: scheme, host, perhaps a port, perhaps a path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct FetchRule {
    /// Of a wildcard, the domain below which hosts are covered.
    origin: FetchOrigin,
    is_wildcard: bool,
    /// `/` covers every path.
    path: String,
}

impl FetchRule {
    /// Reads a line such as `https://api.example.com`, `https://*.example.com` (every name below
    /// `example.com`, at any depth, not itself) or `http://127.0.0.1:3000/users` (this path and
    /// those below it; with a final `/`, only those below).
    ///
    /// # Errors
    /// A sentence saying what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wildcard = text.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.strip_prefix("*.")?)));
        let (plain, is_wildcard) = match wildcard {
            Some((scheme, domain)) => (format!("{scheme}://{domain}"), true),
            None => (text.to_owned(), false),
        };
        if plain.contains(['*', '?', '#']) {
            return Err(format!(
                "{text:?}: `*` can only be the first label of the host, and queries and fragments are not looked at"
            ));
        }
        let target = FetchTarget::parse(&plain).map_err(|error| format!("{text:?}: {}", error.message))?;
        if is_wildcard && matches!(target.origin().host, FetchHost::Address(_)) {
            return Err(format!("{text:?}: an address has no names below it"));
        }
        if !is_plain(target.path()) {
            return Err(format!("{text:?}: servers may differ in how they read this path"));
        }
        Ok(Self { origin: target.origin().clone(), is_wildcard, path: target.path().to_owned() })
    }

    /// Whether the rule allows a target.
    #[must_use]
    pub fn covers(&self, target: &FetchTarget) -> bool {
        self.covers_origin(target.origin()) && self.covers_path(target.path())
    }

    fn covers_origin(&self, origin: &FetchOrigin) -> bool {
        if self.origin.is_tls != origin.is_tls || self.origin.port != origin.port {
            return false;
        }
        match (&self.origin.host, &origin.host) {
            (FetchHost::Name(domain), FetchHost::Name(name)) if self.is_wildcard => {
                name.strip_suffix(domain.as_str()).is_some_and(|below| below.ends_with('.'))
            }
            (own, other) => own == other,
        }
    }

    /// A path that is not plain is covered by no rule that has a path: it might lead elsewhere.
    fn covers_path(&self, path: &str) -> bool {
        if self.path == "/" {
            return true;
        }
        let is_below = path
            .strip_prefix(self.path.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || self.path.ends_with('/'));
        is_below && is_plain(path)
    }
}

impl fmt::Display for FetchRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.origin.is_tls { "https" } else { "http" };
        let wildcard = if self.is_wildcard { "*." } else { "" };
        let path = if self.path == "/" { "" } else { &self.path };
        write!(formatter, "{scheme}://{wildcard}{}{path}", self.origin.authority())
    }
}

impl TryFrom<String> for FetchRule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

/// Whether every server reads the path as leading where it seems to. For that it is decoded as often as it can be,
/// backslashes count as slashes, and what follows a `;` is cut off. Then no part may be `.` or `..`, and the path must
/// be text without control characters.
fn is_plain(path: &str) -> bool {
    let mut bytes = path.as_bytes().to_vec();
    for _ in 0..=ENCODINGS {
        let mut parts = bytes.split(|byte| matches!(byte, b'/' | b'\\'));
        let climbs = parts.any(|part| matches!(part.split(|byte| *byte == b';').next(), Some(b"." | b"..")));
        if climbs || bytes.iter().any(u8::is_ascii_control) || std::str::from_utf8(&bytes).is_err() {
            return false;
        }
        let decoded: Vec<u8> = percent_decode(&bytes).collect();
        if decoded == bytes {
            return true;
        }
        bytes = decoded;
    }
    false
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;

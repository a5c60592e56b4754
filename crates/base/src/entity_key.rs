//! The identity of an entity in one byte string whose order is (app, service, key).

use std::fmt;

use crate::{Name, ShardId, shard_of_key};

/// Ends the escaped key. A NUL inside the key is written `00 FF`, so the key cannot contain `00 01`. `00 01` sorts
/// before every continuation: `a` comes before `ab`.
const TERMINATOR: [u8; 2] = [0x00, 0x01];
const ESCAPED_NUL: [u8; 2] = [0x00, 0xFF];

/// An entity's identity: `app 00 service 00 escaped-key 00 01`.
///
/// Byte order equals the order of (app, service, key). No entity key is a prefix of another, so `entity key ‖ field` is
/// an unambiguous, ordered row key. The empty app holds the shard's own bookkeeping. Users cannot name it, because a
/// [`Name`] is never empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityKey(Box<[u8]>);

/// An [`EntityKey`] taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityKeyParts {
    /// The app's name; empty for the shard's own bookkeeping.
    pub app: String,
    /// The service's name.
    pub service: String,
    /// The key's bytes, unescaped.
    pub key: Vec<u8>,
}

impl EntityKey {
    /// The identity of `key` in `service` of `app`.
    #[must_use]
    pub fn new(app: &Name, service: &Name, key: &[u8]) -> Self {
        Self::encode(app.as_str(), service.as_str(), key)
    }

    /// The identity of a bookkeeping entity: the empty app, out of users' reach.
    #[must_use]
    pub fn internal(service: &'static str, key: &[u8]) -> Self {
        Self::encode("", service, key)
    }

    fn encode(app: &str, service: &str, key: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(app.len() + service.len() + key.len() + 4);
        bytes.extend_from_slice(app.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(service.as_bytes());
        bytes.push(0);
        escape_into(key, &mut bytes);
        bytes.extend_from_slice(&TERMINATOR);
        Self(bytes.into_boxed_slice())
    }

    /// The first bytes that every entity of `service` in `app` shares, followed by `key_prefix`.
    #[must_use]
    pub fn scan_prefix(app: &str, service: &str, key_prefix: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(app.len() + service.len() + key_prefix.len() + 2);
        bytes.extend_from_slice(app.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(service.as_bytes());
        bytes.push(0);
        escape_into(key_prefix, &mut bytes);
        bytes
    }

    /// Reads an encoded key back, as found in a log entry or at the start of a checkpoint row. Returns the key and the
    /// bytes that follow it, or `None` if `bytes` does not start with a key.
    #[must_use]
    pub fn split_from(bytes: &[u8]) -> Option<(EntityKey, &[u8])> {
        let app_end = bytes.iter().position(|byte| *byte == 0)?;
        let service = &bytes[app_end + 1..];
        let service_end = app_end + 1 + service.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&bytes[..service_end]).ok()?;
        let mut at = service_end + 1;
        loop {
            let nul = at + bytes[at..].iter().position(|byte| *byte == 0)?;
            match *bytes.get(nul + 1)? {
                0x01 => {
                    let (key, rest) = bytes.split_at(nul + 2);
                    return Some((EntityKey(key.into()), rest));
                }
                0xFF => at = nul + 2,
                _ => return None,
            }
        }
    }

    /// The encoded bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// App, service and key.
    ///
    /// # Panics
    /// Does not panic for a key made by this module: every constructor checks the shape.
    #[must_use]
    pub fn parts(&self) -> EntityKeyParts {
        let mut pieces = self.0.splitn(3, |byte| *byte == 0);
        let app = pieces.next().unwrap_or_default();
        let service = pieces.next().unwrap_or_default();
        let escaped = pieces.next().unwrap_or_default();
        EntityKeyParts {
            app: String::from_utf8_lossy(app).into_owned(),
            service: String::from_utf8_lossy(service).into_owned(),
            key: unescape(&escaped[..escaped.len().saturating_sub(TERMINATOR.len())]),
        }
    }

    /// Whether this is the shard's own bookkeeping.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        self.0.first() == Some(&0)
    }

    /// The shard that owns this entity.
    #[must_use]
    pub fn shard(&self, shard_count: u16) -> ShardId {
        shard_of_key(&self.parts().key, shard_count)
    }
}

fn escape_into(key: &[u8], out: &mut Vec<u8>) {
    for (index, part) in key.split(|byte| *byte == 0).enumerate() {
        if index > 0 {
            out.extend_from_slice(&ESCAPED_NUL);
        }
        out.extend_from_slice(part);
    }
}

fn unescape(escaped: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(byte) = bytes.next() {
        key.push(*byte);
        if *byte == 0 {
            bytes.next();
        }
    }
    key
}

impl std::borrow::Borrow<[u8]> for EntityKey {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for EntityKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts();
        write!(formatter, "{}/{}/{}", parts.app, parts.service, String::from_utf8_lossy(&parts.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = Name> {
        "[a-c]{1,3}".prop_map(|text| Name::new(&text).expect("a valid name"))
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()], 0..6)
    }

    proptest! {
        #[test]
        fn encoding_keeps_order_and_comes_back(
            a in (name(), name(), key()), b in (name(), name(), key()), tail in key(),
        ) {
            let left = EntityKey::new(&a.0, &a.1, &a.2);
            let right = EntityKey::new(&b.0, &b.1, &b.2);
            let plain = |x: &(Name, Name, Vec<u8>)| (x.0.to_string(), x.1.to_string(), x.2.clone());
            prop_assert_eq!(left.cmp(&right), plain(&a).cmp(&plain(&b)));
            let parts = left.parts();
            prop_assert_eq!((parts.app, parts.service, parts.key), plain(&a));
            let row = [left.as_bytes(), &tail].concat();
            let (back, rest) = EntityKey::split_from(&row).expect("an encoded key");
            prop_assert_eq!(back, left);
            prop_assert_eq!(rest, &tail[..]);
        }

        #[test]
        fn strangers_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some((key, rest)) = EntityKey::split_from(&bytes) {
                prop_assert_eq!(key.as_bytes().len() + rest.len(), bytes.len());
                let _ = key.parts();
            }
        }
    }
}

//! Signing keys, and a cache of them: deriving one takes four HMACs, more than checking a signature.

use std::collections::HashMap;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::hex;

/// Signing keys in the cache. Each takes about 200 bytes; past them the cache begins anew.
const CACHED_KEYS: usize = 4_096;

/// The key of one secret, date and region, for the service `s3`.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey([u8; 32]);

impl SigningKey {
    /// Derives it. The date is `YYYYMMDD`.
    #[must_use]
    pub fn derive(secret: &str, date: &str, region: &str) -> Self {
        let mut key = mac(format!("AWS4{secret}").as_bytes(), date.as_bytes());
        for part in [region, "s3", "aws4_request"] {
            key = mac(&key, part.as_bytes());
        }
        Self(key)
    }

    /// The signature of a text, in lower-case hexadecimal.
    #[must_use]
    pub fn sign(&self, text: &[u8]) -> String {
        hex::encode(&mac(&self.0, text))
    }

    /// Whether this is the signature of a text. Takes as long for a wrong one as for the right one.
    #[must_use]
    pub fn is_signed(&self, text: &[u8], signature: &str) -> bool {
        let Some(signature) = hex::decode_32(signature) else { return false };
        started(&self.0).chain_update(text).verify_slice(&signature).is_ok()
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Secrets do not go into logs.
        formatter.write_str("SigningKey")
    }
}

fn started(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

fn mac(key: &[u8], text: &[u8]) -> [u8; 32] {
    started(key).chain_update(text).finalize().into_bytes().into()
}

/// The signing keys that were used lately.
#[derive(Default)]
pub struct SigningKeys(HashMap<(String, String, String), (String, SigningKey)>);

impl SigningKeys {
    /// The key of a known access key. A changed secret gets a new one.
    pub fn get(&mut self, access_key: &str, secret: &str, date: &str, region: &str) -> SigningKey {
        let name = (access_key.to_owned(), date.to_owned(), region.to_owned());
        if let Some((of, key)) = self.0.get(&name)
            && of == secret
        {
            return key.clone();
        }
        if self.0.len() >= CACHED_KEYS {
            self.0.clear();
        }
        let key = SigningKey::derive(secret, date, region);
        self.0.insert(name, (secret.to_owned(), key.clone()));
        key
    }
}

impl std::fmt::Debug for SigningKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "SigningKeys({})", self.0.len())
    }
}

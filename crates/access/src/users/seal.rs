//! Secrets at rest.
//!
//! ChaCha20-Poly1305 (RFC 8439) under the data key, with a random nonce for each secret. The user's id and the access
//! key are authenticated too, so a secret that was moved to another record does not decrypt. A key encrypts at most some
//! ten thousands of secrets, so 96 random bits do not meet again.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Key, Nonce};
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Bytes of a nonce.
pub(super) const NONCE_BYTES: usize = 12;

/// What separates this key from others that are derived from the same secret.
const PURPOSE: &[u8] = b"millrace s3 secret keys 1";

/// The key that encrypts secrets at rest.
#[derive(Clone)]
pub struct DataKey([u8; 32]);

impl fmt::Debug for DataKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DataKey")
    }
}

impl DataKey {
    /// Derives the key from a secret of the data directory (HMAC-SHA256, as the expansion of HKDF with one block).
    #[must_use]
    pub fn derive(secret: &[u8; 32]) -> Self {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of every length");
        mac.update(PURPOSE);
        mac.update(&[1]);
        Self(mac.finalize().into_bytes().into())
    }

    fn cipher(&self) -> ChaCha20Poly1305 {
        ChaCha20Poly1305::new(&Key::from(self.0))
    }

    /// Encrypts a secret; base64 of the nonce and the ciphertext.
    pub(super) fn seal(&self, user: &str, access_key: &str, secret: &str, nonce: [u8; NONCE_BYTES]) -> String {
        let context = context(user, access_key);
        let payload = Payload { msg: secret.as_bytes(), aad: &context };
        let sealed = self.cipher().encrypt(&Nonce::from(nonce), payload).expect("a secret is far below 256 GiB");
        let mut bytes = nonce.to_vec();
        bytes.extend_from_slice(&sealed);
        STANDARD.encode(bytes)
    }

    /// The secret, if it was encrypted with this key for this record.
    pub(super) fn open(&self, user: &str, access_key: &str, sealed: &str) -> Option<String> {
        let bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_BYTES>()?;
        let context = context(user, access_key);
        let payload = Payload { msg: sealed, aad: &context };
        String::from_utf8(self.cipher().decrypt(&Nonce::from(*nonce), payload).ok()?).ok()
    }
}

/// Ids have 64 digits, so no two pairs give the same bytes.
fn context(user: &str, access_key: &str) -> Vec<u8> {
    [user.as_bytes(), access_key.as_bytes()].concat()
}

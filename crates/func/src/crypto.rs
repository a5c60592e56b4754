//! Hash functions and encodings offered to functions, engine-independent.
//!
//! Promises: pure computation over its arguments; nothing here draws randomness or keeps a secret.

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{self, PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine as _;
use bytes::Bytes;
use millrace_base::{Error, ErrorCode};

/// The parameters of a new hash: the OWASP minimum for argon2id.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;

/// What a hash to verify may ask for. It may come from a stranger's import, and it says itself
/// how much work checking it takes: twice RFC 9106's second recommendation, no more.
const VERIFY_MEMORY_KIB: u32 = 128 * 1024;
const VERIFY_PASSES: u32 = 8;
const VERIFY_LANES: u32 = 8;

/// Bytes of a password. Longer ones cannot be typed; hashing them would only cost time.
const PASSWORD_BYTES: usize = 4096;

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
    /// Read bodies of objects that lie in the activation's shard, whole, one behind the other. Not for a function itself: the
    /// engine of objects asks. The result is their bytes.
    ReadBodies {
        /// Their numbers.
        numbers: Vec<u64>,
    },
}

impl Offload {
    /// Does the work, for some tens of milliseconds, and gives JSON text.
    ///
    /// # Errors
    /// Those of [`argon2id_hash`] and [`argon2id_verify`].
    pub fn run(self) -> Result<Bytes, Error> {
        match self {
            Offload::Argon2idHash { password, salt } => {
                // A PHC string holds no character that JSON escapes.
                argon2id_hash(&password, &salt).map(|hash| Bytes::from(format!("\"{hash}\"")))
            }
            Offload::Argon2idVerify { password, hash } => {
                let text: &[u8] = if argon2id_verify(&password, &hash)? { b"true" } else { b"false" };
                Ok(Bytes::from_static(text))
            }
            Offload::ReadBodies { .. } => Err(Error::new(ErrorCode::Internal, "there are no bodies here to read")),
        }
    }
}

fn refused(message: &str) -> Error {
    Error::new(ErrorCode::InvalidInput, message)
}

fn check_password(password: &[u8]) -> Result<(), Error> {
    if password.len() > PASSWORD_BYTES {
        return Err(refused(&format!("a password has at most {PASSWORD_BYTES} bytes")));
    }
    Ok(())
}

/// Hashes a password with argon2id (19 MiB, 2 passes, 1 lane: the OWASP minimum) to a PHC string.
///
/// # Errors
/// `invalid-input` when the password is longer than 4 KiB.
pub fn argon2id_hash(password: &[u8], salt: &[u8; 16]) -> Result<String, Error> {
    check_password(password)?;
    let failed = |error: &dyn std::fmt::Display| Error::new(ErrorCode::Internal, format!("argon2id: {error}"));
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None).map_err(|error| failed(&error))?;
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let hash: PasswordHash = argon2.hash_password_with_salt(password, salt).map_err(|error| failed(&error))?;
    Ok(hash.to_string())
}

/// Whether `password` is the one that `hash` was made of.
///
/// # Errors
/// `invalid-input` when `hash` is not a PHC string of argon2id, or asks for more than 128 MiB, 8
/// passes or 8 lanes.
pub fn argon2id_verify(password: &[u8], hash: &str) -> Result<bool, Error> {
    check_password(password)?;
    let parsed = PasswordHash::new(hash).map_err(|_| refused("the hash is not a PHC string"))?;
    if parsed.algorithm.as_str() != "argon2id" {
        return Err(refused("the hash is not one of argon2id"));
    }
    if parsed.salt.is_none() || parsed.hash.is_none() {
        return Err(refused("the hash is not a complete PHC string of argon2id"));
    }
    let params = Params::try_from(&parsed).map_err(|_| refused("the hash has malformed parameters"))?;
    if params.m_cost() > VERIFY_MEMORY_KIB || params.t_cost() > VERIFY_PASSES || params.p_cost() > VERIFY_LANES {
        return Err(refused("checking this hash would take too much memory or time"));
    }
    match Argon2::default().verify_password(password, &parsed) {
        Ok(()) => Ok(true),
        Err(password_hash::Error::PasswordInvalid) => Ok(false),
        Err(_) => Err(refused("the hash is not a complete PHC string of argon2id")),
    }
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
    use hmac::{Hmac, KeyInit, Mac};
    // RFC 2104 takes keys of any length.
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(bytes);
    mac.finalize().into_bytes().into()
}

/// Whether two byte strings are equal, in a time that depends on their lengths only.
#[must_use]
pub fn equal_in_constant_time(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    // black_box keeps the compiler from leaving the loop at the first difference.
    let mut difference = 0;
    for (a, b) in left.iter().zip(right) {
        difference = std::hint::black_box(difference | (a ^ b));
    }
    difference == 0
}

/// Which of the two base64 alphabets of RFC 4648.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base64Alphabet {
    /// `+` and `/`, padded with `=`.
    Standard,
    /// `-` and `_`, without padding.
    Url,
}

/// Base64 text of `bytes`.
#[must_use]
pub fn base64_encode(bytes: &[u8], alphabet: Base64Alphabet) -> String {
    match alphabet {
        Base64Alphabet::Standard => base64::engine::general_purpose::STANDARD.encode(bytes),
        Base64Alphabet::Url => base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes),
    }
}

/// The bytes of a base64 text in either alphabet, with or without padding; `None` for any other
/// text.
#[must_use]
pub fn base64_decode(text: &[u8]) -> Option<Vec<u8>> {
    use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const STANDARD: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::STANDARD, LENIENT);
    const URL: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::URL_SAFE, LENIENT);
    let is_url = text.iter().any(|byte| matches!(byte, b'-' | b'_'));
    if is_url { URL.decode(text).ok() } else { STANDARD.decode(text).ok() }
}

#[cfg(test)]
mod tests {
    use millrace_base::hex;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_answers() {
        assert_eq!(hex(&sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex(&sha256(b"abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        // RFC 4231, test case 2.
        assert_eq!(
            hex(&hmac_sha256(b"Jefe", b"what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn a_password_is_its_own_and_no_other() {
        let hash = argon2id_hash(b"correct horse", &[7; 16]).expect("hashed");
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert_eq!(argon2id_verify(b"correct horse", &hash), Ok(true));
        assert_eq!(argon2id_verify(b"battery staple", &hash), Ok(false));
        assert_ne!(hash, argon2id_hash(b"correct horse", &[8; 16]).expect("hashed"));
    }

    #[test]
    fn strange_hashes_are_refused_before_any_work() {
        for hash in [
            "",
            "plain",
            "$argon2i$v=19$m=19456,t=2,p=1$BwcHBwcHBwcHBwcHBwcHBw$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            "$argon2id$v=19$m=4194304,t=2,p=1$BwcHBwcHBwcHBwcHBwcHBw$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            "$argon2id$v=19$m=19456,t=4000000,p=1$BwcHBwcHBwcHBwcHBwcHBw$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            "$argon2id$v=19$m=19456,t=2,p=1",
        ] {
            let error = argon2id_verify(b"x", hash).expect_err(hash);
            assert_eq!(error.code, ErrorCode::InvalidInput, "{hash}");
        }
        let long = vec![b'x'; PASSWORD_BYTES + 1];
        assert_eq!(argon2id_hash(&long, &[0; 16]).map_err(|error| error.code), Err(ErrorCode::InvalidInput));
    }

    #[test]
    fn offloaded_work_gives_json() {
        let hash = Offload::Argon2idHash { password: b"p".to_vec(), salt: [1; 16] }.run().expect("hashed");
        let text = std::str::from_utf8(&hash).expect("UTF-8").trim_matches('"').to_owned();
        let verify = |password: &[u8]| Offload::Argon2idVerify { password: password.to_vec(), hash: text.clone() };
        assert_eq!(verify(b"p").run(), Ok(Bytes::from_static(b"true")));
        assert_eq!(verify(b"q").run(), Ok(Bytes::from_static(b"false")));
    }

    proptest! {
        #[test]
        fn base64_comes_back_in_both_alphabets(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            for alphabet in [Base64Alphabet::Standard, Base64Alphabet::Url] {
                let text = base64_encode(&bytes, alphabet);
                prop_assert_eq!(base64_decode(text.as_bytes()), Some(bytes.clone()));
                prop_assert_eq!(base64_decode(text.trim_end_matches('=').as_bytes()), Some(bytes.clone()));
            }
        }

        #[test]
        fn constant_time_equality_is_equality(a in proptest::collection::vec(0u8..2, 0..4), b in proptest::collection::vec(0u8..2, 0..4)) {
            prop_assert_eq!(equal_in_constant_time(&a, &b), a == b);
        }
    }
}

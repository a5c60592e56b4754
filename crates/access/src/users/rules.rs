//! What names, addresses and keys may be, and how keys are drawn.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_base::{hex, limits};

use super::error::UserError;

/// Digits of a canonical id.
const ID_DIGITS: usize = 64;

/// Whether a text has the form of a canonical id.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// A name is what people see, so it may hold spaces and letters of any language.
pub(super) fn check_name(name: &str) -> Result<(), UserError> {
    let limit = limits::S3_USER_NAME_BYTES;
    let is_plain = name.trim() == name && !name.contains(|c: char| c.is_control() || c == '"' || c == '\\');
    if name.is_empty() || name.len() > limit || !is_plain || is_id(name) {
        let message = format!(
            "{:?} is not a user's name: use 1 to {limit} bytes without control characters, quotes, backslashes and spaces \
             around, and not an id",
            shown(name)
        );
        return Err(UserError::Refused(message));
    }
    Ok(())
}

/// Not a proof that mail arrives: one `@` with something on both sides.
pub(super) fn check_email(email: &str) -> Result<(), UserError> {
    let is_fine = |byte: u8| byte.is_ascii_graphic() && !b"\"\\<>,;".contains(&byte);
    let has_sides = email.split_once('@').is_some_and(|(left, right)| !left.is_empty() && !right.is_empty());
    let is_one = email.bytes().filter(|byte| *byte == b'@').count() == 1;
    if email.len() > limits::EMAIL_BYTES || !has_sides || !is_one || !email.bytes().all(is_fine) {
        return Err(UserError::Refused(format!("{:?} is not an e-mail address", shown(email))));
    }
    Ok(())
}

/// An access key stands in headers between `/` and `,`, so it must hold neither.
pub(super) fn check_access_key(key: &str) -> Result<(), UserError> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let lengths = limits::S3_ACCESS_KEY_BYTES;
    if !lengths.contains(&key.len()) || !key.bytes().all(is_fine) {
        let message = format!(
            "{:?} is not an access key: use {} to {} of A-Z a-z 0-9 _ - .",
            shown(key),
            lengths.start(),
            lengths.end()
        );
        return Err(UserError::Refused(message));
    }
    Ok(())
}

/// The message does not repeat the secret: errors are logged.
pub(super) fn check_secret_key(secret: &str) -> Result<(), UserError> {
    let lengths = limits::S3_SECRET_KEY_BYTES;
    if !lengths.contains(&secret.len()) || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
        let message = format!(
            "the secret key has {} bytes: use {} to {} visible ASCII characters",
            secret.len(),
            lengths.start(),
            lengths.end()
        );
        return Err(UserError::Refused(message));
    }
    Ok(())
}

/// What of a stranger's text a message may repeat.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(limits::S3_USER_NAME_BYTES).collect()
}

/// A canonical id from 32 random bytes.
pub(super) fn id_of(random: [u8; 32]) -> String {
    hex(&random)
}

/// An access key from 10 random bytes: 20 characters as those of AWS.
pub(super) fn access_key_of(random: [u8; 10]) -> String {
    const DIGITS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut bits = random.iter().fold(0u128, |bits, byte| bits << 8 | u128::from(*byte));
    let mut key = String::from("AKIA");
    for _ in 0..16 {
        key.push(DIGITS[(bits & 31) as usize] as char);
        bits >>= 5;
    }
    key
}

/// A secret key from 30 random bytes: 40 characters, none of which needs quotes in a shell or an escape in a URL.
pub(super) fn secret_key_of(random: [u8; 30]) -> String {
    URL_SAFE_NO_PAD.encode(random)
}

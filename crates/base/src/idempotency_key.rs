//! The key under which a request takes effect once.

use crate::{Error, ErrorCode, limits};

/// 1 to [`limits::IDEMPOTENCY_KEY_BYTES`] visible ASCII characters. They are checked where the key is made, and nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyKey<T = Box<str>>(T);

impl<'a> IdempotencyKey<&'a str> {
    /// The key that a client sent.
    ///
    /// # Errors
    /// `bad-request` when it is empty, too long or holds anything but visible ASCII.
    pub fn new(text: &'a [u8]) -> Result<Self, Error> {
        let limit = limits::IDEMPOTENCY_KEY_BYTES;
        let is_short = (1..=limit).contains(&text.len());
        let text = std::str::from_utf8(text).ok().filter(|text| is_short && text.bytes().all(|c| c.is_ascii_graphic()));
        text.map(Self).ok_or_else(|| {
            let message = format!("Idempotency-Key must be 1 to {limit} visible ASCII characters without spaces");
            Error::new(ErrorCode::BadRequest, message)
        })
    }

    /// A copy that outlives the request.
    #[must_use]
    pub fn kept(self) -> IdempotencyKey {
        IdempotencyKey(self.0.into())
    }
}

impl<T: AsRef<str>> IdempotencyKey<T> {
    /// The key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_ref()
    }
}

//! JSON bodies, read with errors that say where.

use millrace_base::{Error, ErrorCode};
use serde::Deserialize;

/// Characters of a parser's message that are shown: it may quote what it met.
const SHOWN_CHARACTERS: usize = 200;

/// Reads a JSON body.
///
/// # Errors
/// `invalid-input` for what is not JSON, `bad-request` for JSON that is not what `expected` says.
pub(crate) fn read<'a, T: Deserialize<'a>>(body: &'a [u8], expected: &str) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| {
        let shown: String = error.to_string().chars().take(SHOWN_CHARACTERS).collect();
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok();
        let code = if is_json { ErrorCode::BadRequest } else { ErrorCode::InvalidInput };
        Error::new(code, format!("the body is not {expected}: {shown}"))
    })
}

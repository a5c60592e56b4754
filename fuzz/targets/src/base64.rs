//! Base64 from functions and clients. Decoded bytes come back from their own encoding.

use millrace_func::{Base64Alphabet, base64_decode, base64_encode};

pub(crate) fn run(bytes: &[u8]) {
    let text = bytes;
    let Some(bytes) = base64_decode(text) else { return };
    for alphabet in [Base64Alphabet::Standard, Base64Alphabet::Url] {
        assert_eq!(base64_decode(base64_encode(&bytes, alphabet).as_bytes()).as_deref(), Some(&bytes[..]));
    }
}

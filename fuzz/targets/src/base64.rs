//! Base64 from functions and clients: what decodes comes back from its own encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_func::{Base64Alphabet, base64_decode, base64_encode};

fuzz_target!(|text: &[u8]| {
    let Some(bytes) = base64_decode(text) else { return };
    for alphabet in [Base64Alphabet::Standard, Base64Alphabet::Url] {
        assert_eq!(base64_decode(base64_encode(&bytes, alphabet).as_bytes()).as_deref(), Some(&bytes[..]));
    }
});

//! HTTP replies read by the load generator: the first byte says in what pieces they arrive, which
//! must change nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_client::bench::fuzz_replies;

fuzz_target!(|bytes: &[u8]| {
    let Some((piece, replies)) = bytes.split_first() else { return };
    let found = fuzz_replies(replies, replies.len());
    assert_eq!(fuzz_replies(replies, usize::from(*piece)), found);
    assert!(found <= replies.len());
});

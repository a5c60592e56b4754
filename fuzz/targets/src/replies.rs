//! HTTP replies that the load generator reads. The first byte says in what pieces they arrive, which must change
//! nothing.

use millrace_loadgen::fuzz_replies;

pub(crate) fn run(bytes: &[u8]) {
    let Some((piece, replies)) = bytes.split_first() else { return };
    let found = fuzz_replies(replies, replies.len());
    assert_eq!(fuzz_replies(replies, usize::from(*piece)), found);
    assert!(found <= replies.len());
}

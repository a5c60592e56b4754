//! Bodies of objects: every size from one block of random bytes, so that neither sending nor checking needs memory.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::random::Random;
use millrace_signing::hex;

/// Prime, so that a server that loses or swaps pages of 4 KiB does not return the same bytes.
const BLOCK: usize = 1_048_573;
/// Variants start so far from each other. Prime, too.
const STRIDE: usize = 7919;

/// How many different bodies a size has. Objects take them in turn, so a reply with another object's body is seen.
pub(super) const VARIANTS: u64 = 16;

/// A seed's bytes.
#[derive(Clone)]
pub(super) struct Bytes(Arc<[u8]>);

/// One body: the block from `start` on, again and again.
#[derive(Clone, Copy)]
pub(super) struct Body<'a> {
    block: &'a [u8],
    start: usize,
    pub length: u64,
}

impl Bytes {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let words = (0..BLOCK.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes());
        Self(words.take(BLOCK).collect())
    }

    /// The body of variant `variant` with `length` bytes, from its byte `from` on.
    pub(super) fn body(&self, variant: u64, from: u64, length: u64) -> Body<'_> {
        let start = (variant % VARIANTS) * STRIDE as u64 + from % BLOCK as u64;
        Body { block: &self.0, start: (start % BLOCK as u64) as usize, length }
    }
}

impl<'a> Body<'a> {
    /// A body that is sent as it is.
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self { block: bytes, start: 0, length: bytes.len() as u64 }
    }

    /// At most `most` bytes from `position` on; nothing from the end on.
    pub(super) fn piece(&self, position: u64, most: usize) -> &'a [u8] {
        let Some(left) = self.length.checked_sub(position).filter(|left| *left > 0) else { return &[] };
        let offset = ((self.start as u64 + position) % self.block.len() as u64) as usize;
        let most = most.min(usize::try_from(left).unwrap_or(usize::MAX));
        &self.block[offset..self.block.len().min(offset + most)]
    }

    /// Whether the body has `found` at `position`.
    pub(super) fn has_at(&self, position: u64, found: &[u8]) -> bool {
        let mut done = 0;
        while done < found.len() {
            let piece = self.piece(position + done as u64, found.len() - done);
            if piece.is_empty() || piece != &found[done..done + piece.len()] {
                return false;
            }
            done += piece.len();
        }
        true
    }

    pub(super) fn sha256(&self) -> String {
        let mut hasher = Sha256::new();
        let mut position = 0;
        while position < self.length {
            let piece = self.piece(position, BLOCK);
            hasher.update(piece);
            position += piece.len() as u64;
        }
        hex(&hasher.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(body: &Body<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < body.length {
            bytes.extend(body.piece(bytes.len() as u64, 4096));
        }
        bytes
    }

    #[test]
    fn a_body_is_the_same_however_it_is_cut() {
        let bytes = Bytes::new(7);
        let length = 2 * BLOCK as u64 + 5;
        let body = bytes.body(3, 0, length);
        let all = whole(&body);
        assert_eq!(all.len() as u64, length);
        assert!(body.has_at(0, &all) && body.has_at(BLOCK as u64 - 1, &all[BLOCK - 1..]));
        assert_eq!(body.sha256(), hex(&Sha256::digest(&all)));
        let part = bytes.body(3, BLOCK as u64 + 9, 100);
        assert_eq!(whole(&part), all[BLOCK + 9..BLOCK + 109]);
        assert!(body.piece(length, 1).is_empty() && !body.has_at(length - 1, &[all[length as usize - 1], 0]));
    }

    #[test]
    fn another_variant_or_another_byte_is_seen() {
        let bytes = Bytes::new(7);
        let body = bytes.body(1, 0, 1000);
        let mut found = whole(&body);
        assert!(!bytes.body(2, 0, 1000).has_at(0, &found) && bytes.body(1 + VARIANTS, 0, 1000).has_at(0, &found));
        found[999] ^= 1;
        assert!(!body.has_at(0, &found));
        assert_eq!(bytes.body(0, 0, 0).sha256(), hex(&Sha256::digest(b"")));
    }
}

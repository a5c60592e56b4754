//! A bound on the bytes that many buffers hold together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};

/// Bytes that may be held together. Clones share them.
///
/// Each holder has some bytes that do not count, so that those who hold little never meet the bound. A holder whose bytes do not
/// fit gets none: it fails and does not wait, as those it would wait for might wait for it.
#[derive(Clone, Debug)]
pub struct ByteBudget {
    left: Arc<AtomicUsize>,
    uncounted_bytes: usize,
}

impl ByteBudget {
    /// Holders together have `bytes`, beside the `uncounted_bytes` of each.
    #[must_use]
    pub fn new(bytes: usize, uncounted_bytes: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(bytes)), uncounted_bytes }
    }

    /// Never says no.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(0, usize::MAX)
    }

    /// A holder that holds nothing yet.
    #[must_use]
    pub fn hold(&self) -> HeldBytes {
        HeldBytes { budget: self.clone(), counted_bytes: 0 }
    }

    /// An empty buffer.
    #[must_use]
    pub fn buffer(&self) -> BudgetBuffer {
        BudgetBuffer { bytes: BytesMut::new(), held: self.hold() }
    }
}

/// What one holder has of a budget. Dropped, it gives it back.
#[derive(Debug)]
pub struct HeldBytes {
    budget: ByteBudget,
    counted_bytes: usize,
}

impl HeldBytes {
    /// Holds as many bytes from now on, if it holds fewer. Says whether the budget has them; if not, nothing changes.
    #[must_use]
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let counted_bytes = bytes.saturating_sub(self.budget.uncounted_bytes);
        let Some(more) = counted_bytes.checked_sub(self.counted_bytes).filter(|more| *more > 0) else { return true };
        let left = |left: usize| left.checked_sub(more);
        let has = self.budget.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok();
        if has {
            self.counted_bytes = counted_bytes;
        }
        has
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.budget.left.fetch_add(self.counted_bytes, Ordering::Relaxed);
    }
}

/// A buffer whose bytes count.
#[derive(Debug)]
pub struct BudgetBuffer {
    bytes: BytesMut,
    held: HeldBytes,
}

/// What frozen bytes keep.
struct Frozen {
    bytes: BytesMut,
    #[expect(dead_code, reason = "it is held")]
    held: HeldBytes,
}

impl AsRef<[u8]> for Frozen {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl BudgetBuffer {
    /// How many bytes it has.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Appends `more`. Says whether the budget has room for it; if not, nothing changes.
    #[must_use]
    pub fn extend(&mut self, more: &[u8]) -> bool {
        let has_room = self.held.grow_to(self.bytes.len() + more.len());
        if has_room {
            self.bytes.extend_from_slice(more);
        }
        has_room
    }

    /// The bytes. They count until the last part of them is dropped.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        let Self { bytes, held } = self;
        if held.counted_bytes == 0 { bytes.freeze() } else { Bytes::from_owner(Frozen { bytes, held }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(budget: &ByteBudget) -> usize {
        budget.left.load(Ordering::Relaxed)
    }

    #[test]
    fn buffers_together_hold_no_more_than_the_budget() {
        let budget = ByteBudget::new(100, 10);
        let (mut first, mut second) = (budget.buffer(), budget.clone().buffer());
        assert!(first.extend(&[1; 10]) && second.extend(&[2; 10]));
        assert_eq!(left(&budget), 100, "as many bytes of each do not count");
        assert!(first.extend(&[1; 70]));
        assert!(!second.extend(&[2; 31]));
        assert_eq!((left(&budget), second.size_bytes()), (30, 10), "what does not fit changes nothing");
        assert!(second.extend(&[2; 30]));
        assert!(budget.buffer().extend(&[3; 10]), "small ones go on");
        drop(second);
        assert_eq!(left(&budget), 30);
    }

    #[test]
    fn bytes_count_until_their_last_part_is_gone() {
        let budget = ByteBudget::new(100, 0);
        let mut buffer = budget.buffer();
        assert!(buffer.extend(b"abc") && buffer.extend(b"def"));
        let part = buffer.freeze().slice(2..4);
        assert_eq!((&part[..], left(&budget)), (&b"cd"[..], 94));
        drop(part);
        assert_eq!(left(&budget), 100);
    }

    #[test]
    fn without_a_limit_nothing_counts() {
        let budget = ByteBudget::unlimited();
        assert!(budget.hold().grow_to(usize::MAX));
        assert_eq!(left(&budget), 0);
    }
}

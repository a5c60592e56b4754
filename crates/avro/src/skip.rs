//! Moves behind a value without looking at it.
//!
//! Nothing here says what is wrong, only that something is. A place fits a register and a described error does not.
//! That is half of the time this takes.

use crate::Malformed;
use crate::binary::{CONTINUED, Reader};
use crate::schema::{NodeId, Schema};
use crate::shape::Skip;
use millrace_base::limits;

/// How many bytes the value of `node` at the start of `bytes` takes. Texts and booleans in it are not checked. If
/// blocks say how long they are, they are trusted.
///
/// # Errors
/// If the bytes end before the value, or it nests too deep.
pub fn skip(schema: &Schema, node: NodeId, bytes: &[u8]) -> Result<usize, Malformed> {
    let mut reader = Reader::new(bytes);
    reader.skip(schema, node)?;
    Ok(reader.position())
}

/// The place behind the value that begins at `start`.
#[inline]
pub(crate) fn behind(schema: &Schema, step: &Skip, bytes: &[u8], start: usize) -> Option<usize> {
    let walk = Walk { schema, bytes };
    walk.step(step, start, 0)
}

#[derive(Clone, Copy)]
struct Walk<'s, 'b> {
    schema: &'s Schema,
    bytes: &'b [u8],
}

impl Walk<'_, '_> {
    #[inline]
    fn fixed(self, at: usize, size: usize) -> Option<usize> {
        let end = at.checked_add(size)?;
        (end <= self.bytes.len()).then_some(end)
    }

    #[inline]
    fn varint(self, at: usize) -> Option<usize> {
        // Most numbers have one byte or two.
        if *self.bytes.get(at)? < 0x80 {
            return Some(at + 1);
        }
        if let Some(chunk) = self.bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            let stops = !u64::from_le_bytes(*chunk) & CONTINUED;
            if stops != 0 {
                return Some(at + stops.trailing_zeros() as usize / 8 + 1);
            }
        }
        let mut reader = Reader::at(self.bytes, at);
        reader.long().ok()?;
        Some(reader.position())
    }

    #[inline]
    fn long(self, at: usize) -> Option<(i64, usize)> {
        let mut reader = Reader::at(self.bytes, at);
        let number = reader.long().ok()?;
        Some((number, reader.position()))
    }

    #[inline]
    fn sized(self, at: usize) -> Option<usize> {
        let (size, at) = self.long(at)?;
        self.fixed(at, usize::try_from(size).ok()?)
    }

    #[inline]
    fn step(self, step: &Skip, at: usize, depth: usize) -> Option<usize> {
        match step {
            Skip::Fixed(size) => self.fixed(at, *size),
            Skip::Varint => self.varint(at),
            Skip::Sized => self.sized(at),
            _ => self.nested(step, at, depth),
        }
    }

    fn nested(self, step: &Skip, at: usize, depth: usize) -> Option<usize> {
        if depth > limits::VALUE_DEPTH {
            return None;
        }
        match step {
            Skip::Union(branches) => {
                let (branch, at) = self.long(at)?;
                match branches.get(usize::try_from(branch).ok()?)? {
                    Skip::Fixed(size) => self.fixed(at, *size),
                    step => self.step(step, at, depth),
                }
            }
            Skip::Node(node) => self.step(self.schema.skip_of(*node), at, depth),
            Skip::Record(steps) => self.record(steps, at, depth + 1),
            Skip::Array(item) => self.array(self.schema.skip_of(*item), at, depth + 1),
            Skip::Map(value) => self.map(self.schema.skip_of(*value), at, depth + 1),
            Skip::Fixed(_) | Skip::Varint | Skip::Sized => self.step(step, at, depth),
        }
    }

    #[inline]
    fn record(self, steps: &[Skip], mut at: usize, depth: usize) -> Option<usize> {
        for step in steps {
            at = self.step(step, at, depth)?;
        }
        Some(at)
    }

    /// The head of a block: how many items follow. Or the place behind them, if the block says how long they are.
    #[inline]
    fn block(self, at: usize) -> Option<(Result<u64, usize>, usize)> {
        let (count, at) = self.long(at)?;
        if count >= 0 {
            return Some((Ok(count.unsigned_abs()), at));
        }
        let (size, at) = self.long(at)?;
        Some((Err(self.fixed(at, usize::try_from(size).ok()?)?), at))
    }

    fn array(self, step: &Skip, mut at: usize, depth: usize) -> Option<usize> {
        loop {
            let (block, items) = self.block(at)?;
            at = match (block, step) {
                (Ok(0), _) => return Some(items),
                (Err(end), _) => end,
                // Not one by one: a few bytes can say that there are 2⁶³ items without bytes.
                (Ok(count), Skip::Fixed(size)) => {
                    self.fixed(items, usize::try_from(count).ok()?.checked_mul(*size)?)?
                }
                (Ok(count), Skip::Record(steps)) if depth <= limits::VALUE_DEPTH => {
                    (0..count).try_fold(items, |at, _| self.record(steps, at, depth + 1))?
                }
                (Ok(count), step) => (0..count).try_fold(items, |at, _| self.step(step, at, depth))?,
            }
        }
    }

    fn map(self, step: &Skip, mut at: usize, depth: usize) -> Option<usize> {
        loop {
            let (block, items) = self.block(at)?;
            at = match block {
                Ok(0) => return Some(items),
                Err(end) => end,
                Ok(count) => (0..count).try_fold(items, |at, _| self.step(step, self.sized(at)?, depth))?,
            }
        }
    }
}

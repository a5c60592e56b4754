//! Avro's binary encoding: a cursor over it, skipping, and writing its numbers.

use crate::Malformed;
use crate::schema::{NodeId, Schema};

/// A cursor over encoded bytes. A read that fails leaves the cursor where it was, or behind what it read.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    /// A cursor at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, position: 0 }
    }

    /// A cursor at the byte `position`, or at the end if there are fewer.
    #[must_use]
    pub fn at(bytes: &'a [u8], position: usize) -> Reader<'a> {
        Reader { bytes, position: position.min(bytes.len()) }
    }

    /// Another cursor over the same bytes.
    #[must_use]
    pub fn moved_to(&self, position: usize) -> Reader<'a> {
        Reader::at(self.bytes, position)
    }

    /// How many bytes lie before the cursor.
    #[must_use]
    #[inline]
    pub fn position(&self) -> usize {
        self.position
    }

    /// The bytes behind the cursor.
    #[must_use]
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.position..]
    }

    /// Whether nothing lies behind the cursor.
    #[must_use]
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.position == self.bytes.len()
    }

    /// The bytes from `start` to the cursor.
    #[must_use]
    pub fn since(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..self.position).unwrap_or_default()
    }

    #[cold]
    pub(crate) fn malformed<T>(&self, message: &'static str) -> Result<T, Malformed> {
        Err(Malformed { position: self.position, message })
    }

    /// So many bytes.
    ///
    /// # Errors
    /// If there are fewer.
    #[inline]
    pub fn fixed(&mut self, size: usize) -> Result<&'a [u8], Malformed> {
        match self.rest().get(..size) {
            Some(bytes) => {
                self.position += size;
                Ok(bytes)
            }
            None => self.malformed("the bytes end within a value"),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        match self.rest().first_chunk::<N>() {
            Some(bytes) => {
                self.position += N;
                Ok(*bytes)
            }
            None => self.malformed("the bytes end within a value"),
        }
    }

    /// A `boolean`.
    ///
    /// # Errors
    /// If there is none.
    #[inline]
    pub fn boolean(&mut self) -> Result<bool, Malformed> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => self.malformed("a boolean is neither 0 nor 1"),
        }
    }

    /// A `long`.
    ///
    /// # Errors
    /// If there is none.
    #[inline]
    pub fn long(&mut self) -> Result<i64, Malformed> {
        match self.bytes.get(self.position) {
            Some(&byte) if byte < 0x80 => {
                self.position += 1;
                Ok(zigzag(u64::from(byte)))
            }
            _ => self.longer(),
        }
    }

    /// A number of at most eight bytes that lies at least eight bytes before the end needs no loop.
    #[inline]
    fn longer(&mut self) -> Result<i64, Malformed> {
        if let Some(chunk) = self.rest().first_chunk::<8>() {
            let word = u64::from_le_bytes(*chunk);
            let stops = !word & CONTINUED;
            if stops != 0 {
                self.position += stops.trailing_zeros() as usize / 8 + 1;
                // Up to the last byte's lowest seven bits. Each step then closes every second gap.
                let bits = word & (stops ^ stops.wrapping_sub(1)) & !CONTINUED;
                let bits = bits & 0x007f_007f_007f_007f | (bits & 0x7f00_7f00_7f00_7f00) >> 1;
                let bits = bits & 0x0000_3fff_0000_3fff | (bits & 0x3fff_0000_3fff_0000) >> 2;
                let bits = bits & 0x0fff_ffff | (bits & 0x0fff_ffff_0000_0000) >> 4;
                return Ok(zigzag(bits));
            }
        }
        self.longest()
    }

    fn longest(&mut self) -> Result<i64, Malformed> {
        let mut bits = 0_u64;
        for (index, &byte) in self.rest().iter().take(10).enumerate() {
            if index == 9 && byte > 1 {
                return self.malformed("a number has more than 64 bits");
            }
            bits |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.position += index + 1;
                return Ok(zigzag(bits));
            }
        }
        self.malformed("the bytes end within a number")
    }

    /// An `int`.
    ///
    /// # Errors
    /// If there is none, or it has more than 32 bits.
    #[inline]
    pub fn int(&mut self) -> Result<i32, Malformed> {
        let number = self.long()?;
        i32::try_from(number).or_else(|_| self.malformed("an int has more than 32 bits"))
    }

    /// A `float`.
    ///
    /// # Errors
    /// If there is none.
    #[inline]
    pub fn float(&mut self) -> Result<f32, Malformed> {
        self.array().map(f32::from_le_bytes)
    }

    /// A `double`.
    ///
    /// # Errors
    /// If there is none.
    #[inline]
    pub fn double(&mut self) -> Result<f64, Malformed> {
        self.array().map(f64::from_le_bytes)
    }

    /// `bytes`.
    ///
    /// # Errors
    /// If there are none.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        match usize::try_from(self.long()?) {
            Ok(size) => self.fixed(size),
            Err(_) => self.malformed("a length is negative"),
        }
    }

    /// A `string`.
    ///
    /// # Errors
    /// If there is none, or it is not UTF-8.
    #[inline]
    pub fn string(&mut self) -> Result<&'a str, Malformed> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).or_else(|_| self.malformed("a string is not UTF-8"))
    }

    /// The index of one of `count` symbols or branches.
    ///
    /// # Errors
    /// If there is none, or it is not below `count`.
    #[inline]
    pub fn index(&mut self, count: usize) -> Result<usize, Malformed> {
        match usize::try_from(self.long()?) {
            Ok(index) if index < count => Ok(index),
            _ => self.malformed("there is no symbol or branch of this number"),
        }
    }

    /// The head of an array's or map's next block: how many items follow, or 0 at the end.
    ///
    /// # Errors
    /// If there is none.
    #[inline]
    pub fn block(&mut self) -> Result<u64, Malformed> {
        Ok(self.sized_block()?.0)
    }

    /// The same, and how many bytes the items take if the block says so.
    #[inline]
    pub(crate) fn sized_block(&mut self) -> Result<(u64, Option<usize>), Malformed> {
        let count = self.long()?;
        if count >= 0 {
            return Ok((count.unsigned_abs(), None));
        }
        match usize::try_from(self.long()?) {
            Ok(size) => Ok((count.unsigned_abs(), Some(size))),
            Err(_) => self.malformed("a length is negative"),
        }
    }

    /// Moves behind the value of a node.
    ///
    /// # Errors
    /// If the bytes end before the value, or it nests too deep.
    #[inline]
    pub fn skip(&mut self, schema: &Schema, node: NodeId) -> Result<(), Malformed> {
        match crate::skip::behind(schema, schema.skip_of(node), self.bytes, self.position) {
            Some(position) => {
                self.position = position;
                Ok(())
            }
            None => self.malformed("no value begins here, or it ends too late or nests too deep"),
        }
    }
}

/// These bits are set in bytes after which a number goes on.
pub(crate) const CONTINUED: u64 = 0x8080_8080_8080_8080;

pub(crate) const TOO_DEEP: &str = "the value nests too deep";

#[inline]
pub(crate) fn zigzag(bits: u64) -> i64 {
    (bits >> 1).cast_signed() ^ -((bits & 1).cast_signed())
}

/// Writes a `long` or `int`.
#[inline]
pub fn write_long(out: &mut Vec<u8>, number: i64) {
    let mut bits = (number << 1 ^ number >> 63).cast_unsigned();
    while bits >= 0x80 {
        out.push(bits as u8 | 0x80);
        bits >>= 7;
    }
    out.push(bits as u8);
}

/// Writes a length, a count of items or an index.
#[inline]
pub fn write_length(out: &mut Vec<u8>, length: usize) {
    write_long(out, i64::try_from(length).expect("no length is above 2⁶³"));
}

/// Writes `bytes` or a `string`.
#[inline]
pub fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

//! Checks a stranger's bytes completely and makes them canonical.

use crate::binary::{Reader, write_bytes, write_length, write_long};
use crate::decimal;
use crate::error::{ValueError, ValueErrorKind};
use crate::json_read::read_uuid;
use crate::schema::{Kind, Logical, Node, NodeId, Schema};
use millrace_base::limits;
use std::collections::BTreeSet;

/// The canonical encoding of the value of `node` in `bytes`; nothing may follow the value. Arrays and maps are in one
/// block, numbers in their shortest form. There is one NaN, and decimals have no superfluous bytes. Entries of maps
/// keep their order. A key that occurs twice is refused, and so is what a logical type does not allow.
///
/// # Errors
/// If they are not a value of the node, or the value is too large or nests too deep. The error has the place.
pub fn canonicalise(schema: &Schema, node: NodeId, bytes: &[u8]) -> Result<Vec<u8>, ValueError> {
    Ok(check(schema, node, bytes, true)?.0)
}

/// The same for a value whose parts may be stored already, or come from a schema's defaults. Stored parts may be older
/// than the checks of logical types, so UUIDs and times of day are taken as they are. Also returns of how many values
/// it consists, which is the cost of the check.
///
/// # Errors
/// As [`canonicalise`].
pub fn canonicalise_stored(schema: &Schema, node: NodeId, bytes: &[u8]) -> Result<(Vec<u8>, usize), ValueError> {
    check(schema, node, bytes, false)
}

fn check(schema: &Schema, node: NodeId, bytes: &[u8], is_new: bool) -> Result<(Vec<u8>, usize), ValueError> {
    let (reader, out) = (Reader::new(bytes), Vec::with_capacity(bytes.len()));
    let mut walk = Walk { schema, reader, out, budget: Budget::default(), is_new, values: 0 };
    walk.value(node, 0)?;
    if !walk.reader.is_at_end() {
        walk.reader.malformed::<()>("the bytes go on behind the value")?;
    }
    walk.budget.check_size(walk.out.len())?;
    Ok((walk.out, walk.values))
}

/// What one value may take.
#[derive(Default)]
pub(crate) struct Budget {
    /// Values without bytes so far.
    empty_values: usize,
}

impl Budget {
    /// Counts a value that has no bytes.
    #[inline]
    pub(crate) fn count_empty(&mut self) -> Result<(), ValueError> {
        self.empty_values += 1;
        if self.empty_values > limits::RECORD_VALUES {
            let message = format!("more than {} values without bytes", limits::RECORD_VALUES);
            return Err(ValueError::new(ValueErrorKind::TooLarge, message));
        }
        Ok(())
    }

    #[inline]
    #[allow(clippy::unused_self, reason = "one place for what a value may take")]
    pub(crate) fn check_size(&self, size: usize) -> Result<(), ValueError> {
        if size > limits::RECORD_BYTES {
            let message = format!("the value takes more than {} bytes", limits::RECORD_BYTES);
            return Err(ValueError::new(ValueErrorKind::TooLarge, message));
        }
        Ok(())
    }
}

pub(crate) fn check_depth(depth: usize) -> Result<(), ValueError> {
    if depth >= limits::VALUE_DEPTH {
        let message = format!("arrays, maps and records nest deeper than {}", limits::VALUE_DEPTH);
        return Err(ValueError::new(ValueErrorKind::TooDeep, message));
    }
    Ok(())
}

struct Walk<'s, 'b> {
    schema: &'s Schema,
    reader: Reader<'b>,
    out: Vec<u8>,
    budget: Budget,
    /// Whether all rules of logical types have to hold.
    is_new: bool,
    /// Values so far.
    values: usize,
}

impl Walk<'_, '_> {
    fn value(&mut self, id: NodeId, depth: usize) -> Result<(), ValueError> {
        self.values += 1;
        let schema = self.schema;
        let node = schema.node(id);
        match &node.kind {
            Kind::Null => self.budget.count_empty()?,
            Kind::Boolean => self.out.push(u8::from(self.reader.boolean()?)),
            Kind::Int | Kind::Long => self.integer(node)?,
            Kind::Float => {
                let number = self.reader.float()?;
                self.out.extend_from_slice(&(if number.is_nan() { f32::NAN } else { number }).to_le_bytes());
            }
            Kind::Double => {
                let number = self.reader.double()?;
                self.out.extend_from_slice(&(if number.is_nan() { f64::NAN } else { number }).to_le_bytes());
            }
            Kind::Bytes => {
                let bytes = self.reader.bytes()?;
                let is_decimal = self.check_decimal(node.logical, bytes)?;
                write_bytes(&mut self.out, if is_decimal { decimal::shortest(bytes) } else { bytes });
            }
            Kind::Fixed { size, .. } => {
                let bytes = self.reader.fixed(*size)?;
                self.check_decimal(node.logical, bytes)?;
                if bytes.is_empty() {
                    self.budget.count_empty()?;
                }
                self.out.extend_from_slice(bytes);
            }
            Kind::String => self.string(node.logical)?,
            Kind::Enum { symbols, .. } => write_length(&mut self.out, self.reader.index(symbols.len())?),
            Kind::Union(branches) => {
                let index = self.reader.index(branches.len())?;
                write_length(&mut self.out, index);
                self.value(branches[index], depth)?;
            }
            Kind::Record { fields, .. } => {
                check_depth(depth)?;
                if fields.is_empty() {
                    self.budget.count_empty()?;
                }
                for field in fields {
                    self.value(field.node, depth + 1).map_err(|error| error.in_field(&field.name))?;
                }
            }
            Kind::Array(item) => {
                self.blocks(depth, |walk, index| walk.value(*item, depth + 1).map_err(|error| error.in_item(index)))?
            }
            Kind::Map(value) => {
                let mut keys = BTreeSet::new();
                self.blocks(depth, |walk, _| {
                    let key = walk.reader.string()?;
                    if !keys.insert(key) {
                        let message = "the map has this key twice";
                        return Err(ValueError::new(ValueErrorKind::Malformed, message).in_entry(key));
                    }
                    write_bytes(&mut walk.out, key.as_bytes());
                    walk.value(*value, depth + 1).map_err(|error| error.in_entry(key))
                })?;
            }
        }
        Ok(())
    }

    fn integer(&mut self, node: &Node) -> Result<(), ValueError> {
        let number = if node.kind == Kind::Int { self.reader.int()?.into() } else { self.reader.long()? };
        let is_allowed = !self.is_new || node.logical.is_none_or(|logical| logical.allows(number));
        if !is_allowed {
            return Err(ValueError::new(ValueErrorKind::Malformed, format!("{number} is no time of day")));
        }
        write_long(&mut self.out, number);
        Ok(())
    }

    fn string(&mut self, logical: Option<Logical>) -> Result<(), ValueError> {
        let text = self.reader.string()?;
        if self.is_new && logical == Some(Logical::Uuid) && read_uuid(text).is_none() {
            return Err(ValueError::new(ValueErrorKind::Malformed, "the text is no UUID".to_owned()));
        }
        write_bytes(&mut self.out, text.as_bytes());
        Ok(())
    }

    fn check_decimal(&self, logical: Option<Logical>, bytes: &[u8]) -> Result<bool, ValueError> {
        let Some(Logical::Decimal { precision, .. }) = logical else { return Ok(false) };
        if decimal::fits(bytes, precision) {
            return Ok(true);
        }
        Err(ValueError::new(ValueErrorKind::Malformed, format!("the decimal has more than {precision} digits")))
    }

    fn blocks(
        &mut self,
        depth: usize,
        mut item: impl FnMut(&mut Self, usize) -> Result<(), ValueError>,
    ) -> Result<(), ValueError> {
        check_depth(depth)?;
        let start = self.out.len();
        let mut items = 0;
        loop {
            let (count, size) = self.reader.sized_block()?;
            if count == 0 {
                break;
            }
            let block = self.reader.position();
            for _ in 0..count {
                item(self, items)?;
                items += 1;
                self.budget.check_size(self.out.len())?;
            }
            // A reader that skips the block trusts its size, so the size must be true.
            if size.is_some_and(|size| self.reader.position() - block != size) {
                self.reader.malformed::<()>("a block has another length than it says")?;
            }
        }
        finish_items(&mut self.out, start, items);
        Ok(())
    }
}

/// Makes an array or map of the items that are in `out` from `start` on. It puts their number before them and the end
/// mark behind. It moves the items once for each level of nesting.
pub(crate) fn finish_items(out: &mut Vec<u8>, start: usize, items: usize) {
    if items > 0 {
        let end = out.len();
        write_length(out, items);
        let head = out.len() - end;
        out[start..].rotate_right(head);
    }
    out.push(0);
}

//! Which bodies a segment without an index holds: it was open at a crash. Headers lead from one body to the next.
//!
//! A header is written before anybody gets the place behind it, and a sync makes all that was written before durable. So
//! behind a header that is none there is nothing durable, unless the disk has changed it. Then one damaged header must not
//! take with it all that comes behind: the walk looks for the next body that is whole.

use std::io;

use millrace_io::{DiskFile, read_exactly_at};

use crate::format::segment_index::Row;
use crate::format::{
    BLOCK_BYTES, CRC_BYTES, FOOTER_BYTES, Footer, HEADER_BYTES, HEADER_MAGIC, Header, crc, owner_of, record_bytes,
    table_bytes,
};

/// How often the bytes of a segment are read at most when bodies are looked for. Who writes bodies decides what looks
/// like a header, and must not make a start as slow as it likes.
const LOOKS: u64 = 4;

/// What a walk found.
#[derive(Default)]
pub(crate) struct Walked {
    /// Bodies that are whole.
    pub rows: Vec<Row>,
    /// Bodies that are whole behind a damaged header. What a stranger wrote into a body may look like one of them, so
    /// nothing else takes second place to them.
    pub found: Vec<Row>,
    /// Bodies that are not whole.
    pub unfinished: u64,
}

/// Walks over a segment of so many bytes.
pub(crate) fn walk(file: &dyn DiskFile, bytes: u64) -> io::Result<Walked> {
    let mut walked = Walked::default();
    let mut at = 0;
    while at < bytes {
        let Some((row, front_bytes, end)) = row_at(file, at, bytes)? else {
            walked.unfinished += 1;
            look_for_more(file, at, bytes, &mut walked)?;
            break;
        };
        if end <= bytes && is_whole(file, &row, front_bytes)? {
            walked.rows.push(row);
        } else {
            walked.unfinished += 1;
        }
        at = end;
    }
    Ok(walked)
}

/// Looks for bodies behind a damaged header.
fn look_for_more(file: &dyn DiskFile, from: u64, bytes: u64, walked: &mut Walked) -> io::Result<()> {
    let mut budget = bytes.saturating_mul(LOOKS);
    let mut next = next_magic(file, from + 1, bytes)?;
    while let Some(at) = next {
        let mut behind = at + 1;
        budget = budget.saturating_sub(HEADER_BYTES as u64);
        if let Some((row, front_bytes, end)) = row_at(file, at, bytes)?.filter(|(_, _, end)| *end <= bytes) {
            budget = budget.saturating_sub(end - at);
            if is_whole(file, &row, front_bytes)? {
                walked.found.push(row);
                behind = end;
            }
        }
        if budget == 0 {
            break;
        }
        next = next_magic(file, behind, bytes)?;
    }
    Ok(())
}

/// The next place where a header may begin.
fn next_magic(file: &dyn DiskFile, mut at: u64, bytes: u64) -> io::Result<Option<u64>> {
    let mut block = vec![0; BLOCK_BYTES];
    while at + HEADER_BYTES as u64 <= bytes {
        let count = file.read_at(&mut block, at)?;
        let found = block[..count].windows(HEADER_MAGIC.len()).position(|window| window == HEADER_MAGIC);
        if let Some(found) = found {
            return Ok(Some(at + found as u64));
        }
        if count <= HEADER_MAGIC.len() {
            break;
        }
        at += (count - (HEADER_MAGIC.len() - 1)) as u64;
    }
    Ok(None)
}

/// The body whose header is here, the bytes before its data, and where it ends.
fn row_at(file: &dyn DiskFile, at: u64, bytes: u64) -> io::Result<Option<(Row, usize, u64)>> {
    if at + HEADER_BYTES as u64 > bytes {
        return Ok(None);
    }
    let mut header = [0; HEADER_BYTES];
    read_exactly_at(file, &mut header, at)?;
    let Some(header) = Header::decode(&header) else { return Ok(None) };
    let front_bytes = header.front_bytes();
    let end = record_bytes(front_bytes, header.length).and_then(|record| at.checked_add(record));
    let row = Row { name: header.name, offset: at, length: header.length, owner_bytes: header.owner_bytes };
    Ok(end.map(|end| (row, front_bytes, end)))
}

/// Whether a body has its owner, its footer and the table that belongs to it, and every block is what was written.
fn is_whole(file: &dyn DiskFile, row: &Row, front_bytes: usize) -> io::Result<bool> {
    let data_at = row.offset + front_bytes as u64;
    let Ok(table_length) = usize::try_from(table_bytes(row.length)) else { return Ok(false) };
    let mut end = vec![0; table_length + FOOTER_BYTES];
    read_exactly_at(file, &mut end, data_at + row.length)?;
    let Some(footer) = Footer::decode(&end[table_length..]) else { return Ok(false) };
    let is_its = footer.number == row.name.number
        && footer.length == row.length
        && footer.table_crc == crc(&end[..table_length]);
    if !is_its {
        return Ok(false);
    }
    let mut front = vec![0; front_bytes];
    read_exactly_at(file, &mut front, row.offset)?;
    if Header::decode(&front).and_then(|header| owner_of(&header, &front)).is_none() {
        return Ok(false);
    }
    // The footer may have reached the disk before the data did.
    let mut block = Vec::new();
    for (index, check) in end[..table_length].chunks(CRC_BYTES).enumerate() {
        let from = index as u64 * BLOCK_BYTES as u64;
        block.resize((row.length - from).min(BLOCK_BYTES as u64) as usize, 0);
        read_exactly_at(file, &mut block, data_at + from)?;
        if check != crc(&block).to_le_bytes() {
            return Ok(false);
        }
    }
    Ok(true)
}

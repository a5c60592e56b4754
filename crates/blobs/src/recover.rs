//! Opening a directory: what is whole is there, what is not goes.
//!
//! | found | means | done |
//! |---|---|---|
//! | a segment with its index | it was closed | the index is believed, bodies are not read |
//! | a segment without, or with one that is damaged | it was open at a crash | headers are walked; what has no right footer is not there |
//! | a file with header and footer | a body | it is there |
//! | any other file | it was being written | removed |
//! | an index without its segment, a half-written file | a crash came between | removed |

use std::io;
use std::sync::Arc;

use millrace_io::{Disk, DiskFile, read_exactly_at};

use crate::BodyName;
use crate::bodies::{BodyOptions, FILES, SEGMENTS, Shared};
use crate::format::segment_index::{self, Row};
use crate::format::{
    FOOTER_BYTES, Footer, HEADER_BYTES, Header, OWNER_BYTES, UNKNOWN_LENGTH, crc, record_bytes, table_bytes,
};
use crate::index::{Location, Segment, State};

/// Counts the starts of a directory, so that no number is given twice.
const START: &str = "start";
const NEW_START: &str = "start.new";

/// What a start found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Bodies that are there.
    pub bodies: u64,
    /// Segments that were open when the store was left, and were walked.
    pub walked_segments: u64,
    /// Bodies that were being written, and are not there.
    pub unfinished: u64,
}

/// Reads the directory. Also gives which start this is.
pub(crate) fn open(disk: &dyn Disk, options: &BodyOptions) -> io::Result<(State, u32, Recovered)> {
    disk.create_directory(SEGMENTS)?;
    disk.create_directory(FILES)?;
    let start = next_start(disk, options.is_synced)?;
    let (mut state, mut recovered) = (State::default(), Recovered::default());
    open_segments(disk, &mut state, &mut recovered)?;
    open_files(disk, &mut state, &mut recovered)?;
    recovered.bodies = state.bodies.len() as u64;
    Ok((state, start, recovered))
}

/// The number of this start, durably noted before any body has it.
fn next_start(disk: &dyn Disk, is_synced: bool) -> io::Result<u32> {
    let before = match disk.open(START) {
        Ok(file) => {
            let mut bytes = [0; 8];
            read_exactly_at(&*file, &mut bytes, 0)?;
            let (number, check) = bytes.split_at(4);
            if check != crc(number).to_le_bytes() {
                return Err(io::Error::other("the file that counts the starts is damaged"));
            }
            u32::from_le_bytes([number[0], number[1], number[2], number[3]])
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let start = before.checked_add(1).ok_or_else(|| io::Error::other("the directory was opened too often"))?;
    let file = disk.create(NEW_START)?;
    let number = start.to_le_bytes();
    file.write_at(&[&number[..], &crc(&number).to_le_bytes()].concat(), 0)?;
    if is_synced {
        file.sync_data()?;
    }
    disk.rename(NEW_START, START)?;
    if is_synced {
        disk.sync_directory("")?;
    }
    Ok(start)
}

fn open_segments(disk: &dyn Disk, state: &mut State, recovered: &mut Recovered) -> io::Result<()> {
    let names: Vec<String> = disk.list(SEGMENTS)?.into_iter().map(|entry| entry.name).collect();
    let id_of = |name: &str, ending: &str| u32::from_str_radix(name.strip_suffix(ending)?, 16).ok();
    for name in &names {
        let Some(id) = id_of(name, ".seg") else {
            let has_segment = id_of(name, ".idx").is_some_and(|id| names.contains(&format!("{id:08x}.seg")));
            if !has_segment {
                disk.remove(&format!("{SEGMENTS}/{name}"))?;
            }
            continue;
        };
        state.next_segment = state.next_segment.max(id);
        let file = disk.open(&Shared::segment_path(id))?;
        let bytes = file.length()?;
        let known = read_index(disk, id, bytes)?;
        let has_index = known.is_some();
        let (rows, end) = match known {
            Some(known) => known,
            None => {
                recovered.walked_segments += 1;
                walk(&*file, bytes, &mut recovered.unfinished)?
            }
        };
        if rows.is_empty() {
            disk.remove(&Shared::segment_path(id))?;
            continue;
        }
        let segment = Segment { file, bytes: end, live_bytes: 0, live: 0, writers: 0, is_closed: true, has_index };
        state.segments.insert(id, segment);
        for row in rows {
            // The same body is in two segments where a crash came while they were copied together: either is it.
            if !state.bodies.contains_key(&row.name) {
                let Row { name, offset, length, owner_bytes } = row;
                state.add(name, Location { segment: Some(id), owner_bytes, offset, length });
            }
        }
    }
    Ok(())
}

/// The index of a closed segment, if it is there and belongs to it.
fn read_index(disk: &dyn Disk, id: u32, bytes: u64) -> io::Result<Option<(Vec<Row>, u64)>> {
    let file = match disk.open(&Shared::index_path(id)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = usize::try_from(file.length()?).map_err(io::Error::other)?;
    let mut content = vec![0; length];
    read_exactly_at(&*file, &mut content, 0)?;
    let read = segment_index::decode(&content).filter(|(end, _)| *end <= bytes);
    Ok(read.map(|(end, rows)| (rows, end)))
}

/// Walks over a segment's headers. Gives the bodies that are whole, and where the last header leads.
fn walk(file: &dyn DiskFile, bytes: u64, unfinished: &mut u64) -> io::Result<(Vec<Row>, u64)> {
    let (mut rows, mut at) = (Vec::new(), 0);
    let mut front = vec![0; HEADER_BYTES];
    while at + HEADER_BYTES as u64 <= bytes {
        read_exactly_at(file, &mut front, at)?;
        let Some(header) = Header::decode(&front) else { break };
        let Some(end) = record_bytes(header.front_bytes(), header.length).and_then(|record| at.checked_add(record))
        else {
            break;
        };
        let row = Row { name: header.name, offset: at, length: header.length, owner_bytes: header.owner_bytes };
        if end <= bytes && is_whole(file, &row, header.front_bytes())? {
            rows.push(row);
        } else {
            *unfinished += 1;
        }
        at = end;
    }
    Ok((rows, at.min(bytes)))
}

/// Whether a body has its footer and the table that belongs to it, and every block is what was written.
fn is_whole(file: &dyn DiskFile, row: &Row, front_bytes: usize) -> io::Result<bool> {
    let table_at = row.offset + front_bytes as u64 + row.length;
    let Ok(table_length) = usize::try_from(table_bytes(row.length)) else { return Ok(false) };
    let mut end = vec![0; table_length + FOOTER_BYTES];
    read_exactly_at(file, &mut end, table_at)?;
    let Some(footer) = Footer::decode(&end[table_length..]) else { return Ok(false) };
    let is_its = footer.number == row.name.number
        && footer.length == row.length
        && footer.table_crc == crc(&end[..table_length]);
    if !is_its {
        return Ok(false);
    }
    // The footer may have reached the disk before the data did.
    let mut block = Vec::new();
    for (index, check) in end[..table_length].chunks(4).enumerate() {
        let from = index as u64 * crate::format::BLOCK_BYTES as u64;
        block.resize((row.length - from).min(crate::format::BLOCK_BYTES as u64) as usize, 0);
        read_exactly_at(file, &mut block, row.offset + front_bytes as u64 + from)?;
        if check != crc(&block).to_le_bytes() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn open_files(disk: &dyn Disk, state: &mut State, recovered: &mut Recovered) -> io::Result<()> {
    for entry in disk.list(FILES)? {
        let path = format!("{FILES}/{}", entry.name);
        match own_file(&disk.open(&path)?)? {
            Some((name, location)) if Shared::own_path(name) == path => state.add(name, location),
            _ => {
                recovered.unfinished += 1;
                disk.remove(&path)?;
            }
        }
    }
    Ok(())
}

/// The body in a file of its own. Its data is not read here: a file has its name only after its data was synced, or it
/// was being written at the crash and nothing refers to it.
fn own_file(file: &Arc<dyn DiskFile>) -> io::Result<Option<(BodyName, Location)>> {
    let bytes = file.length()?;
    let mut front = vec![0; (HEADER_BYTES + OWNER_BYTES).min(usize::try_from(bytes).unwrap_or(usize::MAX))];
    read_exactly_at(&**file, &mut front, 0)?;
    let Some(header) = Header::decode(&front) else { return Ok(None) };
    let Some(footer_at) = bytes.checked_sub(FOOTER_BYTES as u64) else { return Ok(None) };
    let mut footer = [0; FOOTER_BYTES];
    read_exactly_at(&**file, &mut footer, footer_at)?;
    let Some(footer) = Footer::decode(&footer).filter(|footer| footer.number == header.name.number) else {
        return Ok(None);
    };
    let is_its_length = header.length == UNKNOWN_LENGTH || header.length == footer.length;
    if !is_its_length || record_bytes(header.front_bytes(), footer.length) != Some(bytes) {
        return Ok(None);
    }
    let location = Location { segment: None, owner_bytes: header.owner_bytes, offset: 0, length: footer.length };
    Ok(Some((header.name, location)))
}

//! Opening a directory: what is whole is there, what is not goes.
//!
//! | found | means | done |
//! |---|---|---|
//! | a segment with its index | it was closed | the index is believed, bodies are not read |
//! | a segment without, or with one that is damaged | it was open at a crash | headers are walked ([`crate::walk`]) |
//! | a body's file under its own name, with header and footer | a body | it is there |
//! | the same without them | the disk has changed it | it is there, and damaged: reading it is refused |
//! | a file that ends in `.new` | it was being written | removed |
//! | an index without its segment, or longer than it | the disk has lost bodies | the start is refused, with the names |
//! | a segment without bodies | a crash came between | removed |
//! | anything else | somebody else put it there | left alone |

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use millrace_base::ShardId;
use millrace_io::{Disk, DiskFile, read_exactly_at};

use crate::BodyName;
use crate::bodies::{BodyOptions, FILES, SEGMENTS, Shared};
use crate::format::segment_index::{self, Row};
use crate::format::{FOOTER_BYTES, Footer, HEADER_BYTES, Header, OWNER_BYTES, UNKNOWN_LENGTH, record_bytes};
use crate::index::{Location, Segment, State};
use crate::numbers;
use crate::walk::walk;

/// What a start found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Bodies that are there.
    pub bodies: u64,
    /// Segments that were open when the store was left, and were walked.
    pub walked_segments: u64,
    /// Bodies that were being written, and are not there.
    pub unfinished: u64,
    /// Bodies with files of their own that are damaged, so that nothing of them is served.
    pub damaged: u64,
}

/// Bodies behind damaged headers, and the segments they lie in.
type Found = Vec<(u32, Row)>;

/// Reads the directory.
pub(crate) fn open(disk: &dyn Disk, options: &BodyOptions) -> io::Result<(State, Recovered)> {
    disk.create_directory(SEGMENTS)?;
    disk.create_directory(FILES)?;
    // What is synced in a folder is lost with the folder's own name.
    disk.sync_directory("")?;
    let (mut state, mut recovered) = (State::default(), Recovered::default());
    let found = open_segments(disk, &mut state, &mut recovered)?;
    open_files(disk, options, &mut state, &mut recovered)?;
    add_found(disk, options, &mut state, found);
    // The same body is in two segments where a crash came while they were copied together: one may be empty now.
    let is_empty = |(id, segment): (&u32, &Segment)| (segment.live == 0).then_some(*id);
    let empty: Vec<u32> = state.segments.iter().filter_map(is_empty).collect();
    for id in empty {
        state.segments.remove(&id);
        remove_segment(disk, id);
    }
    recovered.bodies = state.bodies.len() as u64;
    recovered.damaged = state.damaged.len() as u64;
    Ok((state, recovered))
}

/// Files that stay are found by the next start. An index goes durably before its segment: one that is there without its
/// segment means that the segment was lost.
pub(crate) fn remove_segment(disk: &dyn Disk, id: u32) {
    if disk.remove(&Shared::index_path(id)).is_ok() && disk.sync_directory(SEGMENTS).is_err() {
        return;
    }
    let _ = disk.remove(&Shared::segment_path(id));
}

/// A segment that is not what its index says. Nobody has been told of bodies in it that were not durable.
fn lost(id: u32, rows: &[Row], what: &str) -> io::Error {
    let (segment, index) = (Shared::segment_path(id), Shared::index_path(id));
    let message = format!(
        "{segment} {what}, and {index} lists {} bodies of objects in it: put the segment back from a backup, or move the \
         index away to go on without what is lost",
        rows.len()
    );
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Where the last of these bodies ends.
fn end_of(rows: &[Row]) -> u64 {
    let end = |row: &Row| {
        let front_bytes = HEADER_BYTES + usize::from(row.owner_bytes) + 4;
        record_bytes(front_bytes, row.length).and_then(|bytes| row.offset.checked_add(bytes)).unwrap_or(u64::MAX)
    };
    rows.iter().map(end).max().unwrap_or(0)
}

fn add_row(state: &mut State, id: u32, row: Row) {
    // Of two copies of a body either is it.
    if !state.bodies.contains_key(&row.name) {
        let Row { name, offset, length, owner_bytes } = row;
        state.add(name, Location { segment: Some(id), owner_bytes, offset, length });
    }
}

/// Adds what was found behind damaged headers, if it may be a body of this store that is nowhere else.
fn add_found(disk: &dyn Disk, options: &BodyOptions, state: &mut State, found: Found) {
    let Ok(ranges) = numbers::ranges_taken(disk) else { return };
    for (id, row) in found {
        if numbers::may_be_given(row.name.number, ranges, options.ranges_behind) {
            add_row(state, id, row);
        }
    }
}

/// The number in a file's name, if the name is what we write.
fn id_of(name: &str, ending: &str) -> Option<u32> {
    let id = u32::from_str_radix(name.strip_suffix(ending)?, 16).ok()?;
    (name == format!("{id:08x}{ending}")).then_some(id)
}

fn open_segments(disk: &dyn Disk, state: &mut State, recovered: &mut Recovered) -> io::Result<Found> {
    let names: BTreeSet<String> = disk.list(SEGMENTS)?.into_iter().map(|entry| entry.name).collect();
    let mut found = Vec::new();
    for name in &names {
        if let Some(id) = id_of(name, ".seg") {
            state.next_segment = state.next_segment.max(id);
            open_segment(disk, id, state, recovered, &mut found)?;
        } else if let Some(id) = id_of(name, ".idx") {
            // Where it cannot be removed, no segment gets its number.
            state.next_segment = state.next_segment.max(id);
            if names.contains(&format!("{id:08x}.seg")) {
                continue;
            }
            match read_index(disk, id)? {
                Some((_, rows)) if !rows.is_empty() => return Err(lost(id, &rows, "is missing")),
                _ => drop(disk.remove(&Shared::index_path(id))),
            }
        } else if id_of(name, ".new").is_some() {
            let _ = disk.remove(&format!("{SEGMENTS}/{name}"));
        }
    }
    Ok(found)
}

fn open_segment(
    disk: &dyn Disk,
    id: u32,
    state: &mut State,
    recovered: &mut Recovered,
    found: &mut Found,
) -> io::Result<()> {
    let file = disk.open(&Shared::segment_path(id))?;
    let mut bytes = file.length()?;
    let known = read_index(disk, id)?;
    let has_index = known.is_some();
    let rows = if let Some((end, rows)) = known {
        if bytes < end_of(&rows) {
            return Err(lost(id, &rows, &format!("has only {bytes} bytes")));
        }
        bytes = end;
        rows
    } else {
        recovered.walked_segments += 1;
        let walked = walk(&*file, bytes)?;
        recovered.unfinished += walked.unfinished;
        found.extend(walked.found.into_iter().map(|row| (id, row)));
        walked.rows
    };
    let indexed = if has_index { rows.len() as u64 } else { 0 };
    let segment = Segment { file, bytes, live_bytes: 0, live: 0, writers: 0, is_closed: true, has_index, indexed };
    state.segments.insert(id, segment);
    for row in rows {
        add_row(state, id, row);
    }
    Ok(())
}

/// The index of a closed segment, if it is there and whole.
fn read_index(disk: &dyn Disk, id: u32) -> io::Result<Option<(u64, Vec<Row>)>> {
    let file = match disk.open(&Shared::index_path(id)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = usize::try_from(file.length()?).map_err(io::Error::other)?;
    let mut content = vec![0; length];
    read_exactly_at(&*file, &mut content, 0)?;
    Ok(segment_index::decode(&content).filter(|(end, rows)| end_of(rows) <= *end))
}

fn open_files(disk: &dyn Disk, options: &BodyOptions, state: &mut State, recovered: &mut Recovered) -> io::Result<()> {
    for entry in disk.list(FILES)? {
        let path = format!("{FILES}/{}", entry.name);
        let Some(name) = own_name(entry.name.strip_suffix(".new").unwrap_or(&entry.name)) else { continue };
        if entry.name.ends_with(".new") {
            recovered.unfinished += 1;
            let _ = disk.remove(&path);
            continue;
        }
        let file = disk.open(&path)?;
        let header = own_header(&file)?.filter(|header| header.name == name);
        match own_length(&file, header.as_ref())? {
            Some(length) => {
                let owner_bytes = header.map_or(0, |header| header.owner_bytes);
                state.add(name, Location { segment: None, owner_bytes, offset: 0, length });
            }
            // It was given its name without a sync: as likely as damage is that a power cut came.
            None if !options.is_synced => {
                recovered.unfinished += 1;
                let _ = disk.remove(&path);
            }
            None => {
                let owner_bytes = header.map_or(0, |header| header.owner_bytes);
                state.add(name, Location { segment: None, owner_bytes, offset: 0, length: 0 });
                state.damaged.insert(name);
            }
        }
    }
    Ok(())
}

/// The body that has a file of this name.
fn own_name(file_name: &str) -> Option<BodyName> {
    let (shard, number) = file_name.split_once('-')?;
    let shard = ShardId(u16::from_str_radix(shard, 16).ok()?);
    let name = BodyName { shard, number: u64::from_str_radix(number, 16).ok()? };
    (Shared::own_path(name) == format!("{FILES}/{file_name}")).then_some(name)
}

fn own_header(file: &Arc<dyn DiskFile>) -> io::Result<Option<Header>> {
    let bytes = usize::try_from(file.length()?).unwrap_or(usize::MAX);
    let mut front = vec![0; (HEADER_BYTES + OWNER_BYTES).min(bytes)];
    read_exactly_at(&**file, &mut front, 0)?;
    Ok(Header::decode(&front))
}

/// The length of the body in a file of its own, if header and footer are those of one body. Its data is not read: the
/// file got its name when its data was durable.
fn own_length(file: &Arc<dyn DiskFile>, header: Option<&Header>) -> io::Result<Option<u64>> {
    let bytes = file.length()?;
    let (Some(header), Some(footer_at)) = (header, bytes.checked_sub(FOOTER_BYTES as u64)) else { return Ok(None) };
    let mut footer = [0; FOOTER_BYTES];
    read_exactly_at(&**file, &mut footer, footer_at)?;
    let Some(footer) = Footer::decode(&footer).filter(|footer| footer.number == header.name.number) else {
        return Ok(None);
    };
    let is_its_length = header.length == UNKNOWN_LENGTH || header.length == footer.length;
    let is_its_size = record_bytes(header.front_bytes(), footer.length) == Some(bytes);
    Ok((is_its_length && is_its_size).then_some(footer.length))
}

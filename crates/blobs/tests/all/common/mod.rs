//! A store on a disk in memory, and short ways to use it.

mod disk;

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_base::ShardId;
use millrace_blobs::{BlobError, Bodies, BodyName, BodyOptions, Cursor, Owned, Recovered, Rot, Unsettled, Written};

pub use disk::{Dice, MemoryDisk};

/// Two lanes, a file of its own above 3,000 bytes, three or four bodies a segment.
pub fn small() -> BodyOptions {
    let (segment_body_bytes, segment_bytes) = (3_000, 8_000);
    BodyOptions { lanes: 2, segment_body_bytes, segment_bytes, ..BodyOptions::default() }
}

pub fn open(disk: &MemoryDisk) -> (Bodies, Recovered) {
    Bodies::open(Arc::new(disk.clone()), small()).expect("the store opens")
}

/// Bytes that tell bodies apart.
pub fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut dice = Dice(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&dice.roll().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Writes a body that is not durable yet.
pub fn write(bodies: &Bodies, lane: usize, owner: &[u8], bytes: &[u8]) -> Result<Written, BlobError> {
    let mut writer = bodies.begin(lane, ShardId(lane as u16), owner, Some(bytes.len() as u64))?;
    for piece in bytes.chunks(50_000) {
        writer.append(piece)?;
    }
    writer.finish()
}

pub fn sync(bodies: &Bodies, lane: usize, written: Written) -> Result<Unsettled, BlobError> {
    bodies.sync(lane, vec![written]).pop().expect("an answer for each body")
}

/// A body that something refers to.
pub fn put(bodies: &Bodies, lane: usize, owner: &[u8], bytes: &[u8]) -> Result<BodyName, BlobError> {
    let unsettled = sync(bodies, lane, write(bodies, lane, owner, bytes)?)?;
    let name = unsettled.name();
    unsettled.settle();
    Ok(name)
}

pub fn read(bodies: &Bodies, name: BodyName) -> Result<Vec<u8>, BlobError> {
    let reader = bodies.read(name)?;
    let mut bytes = vec![0; usize::try_from(reader.length()).expect("a small body")];
    reader.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Everything that a look at all bodies gives, a few at a time.
pub fn owners(bodies: &Bodies) -> BTreeMap<BodyName, Owned> {
    let (mut all, mut cursor) = (BTreeMap::new(), Some(Cursor::default()));
    while let Some(from) = cursor {
        let (some, next) = bodies.owners(from, 3);
        for owned in some {
            assert!(all.insert(owned.name, owned).is_none(), "no body comes twice");
        }
        cursor = next;
    }
    all
}

/// Everything that scrubbing finds, a few bytes at a time.
pub fn scrub(bodies: &Bodies) -> Vec<Rot> {
    let (mut all, mut cursor) = (Vec::new(), Some(Cursor::default()));
    while let Some(from) = cursor {
        let (some, next) = bodies.scrub(from, 5_000);
        all.extend(some);
        cursor = next;
    }
    all
}

pub fn tidy(bodies: &Bodies) {
    while bodies.tidy(0).expect("nothing fails") {}
}

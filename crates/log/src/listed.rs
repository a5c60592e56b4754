//! The log against the manifest: what is listed must be there, and what is there must be listed.
//!
//! Everything here only reads. A segment is listed before its first batch and taken off the list
//! before it is removed, so each difference but one means loss. The one: a segment without batches
//! that a crash left before it was listed, or after it was taken off.

use std::collections::{BTreeMap, BTreeSet};

use millrace_base::{Lsn, ShardId};
use millrace_format::BLOCK_BYTES;
use millrace_manifest::StreamRecord;

use crate::error::{Damage, DamageKind};
use crate::layout::{LogFiles, StreamFiles, segment_path, stream_directory};
use crate::scan::StreamScan;

pub(crate) type Listed<'a> = Option<&'a BTreeMap<u64, StreamRecord>>;

/// The listed segments that are missing.
pub(crate) fn missing(files: &LogFiles, listed: Listed<'_>) -> Vec<Damage> {
    let mut missing = Vec::new();
    for (number, record) in listed.into_iter().flatten() {
        let stream = files.streams.iter().find(|stream| stream.stream == *number);
        let found: BTreeSet<u64> =
            stream.into_iter().flat_map(|stream| &stream.segments).map(|segment| segment.number).collect();
        let lost = (record.first..=record.last).filter(|segment| !found.contains(segment));
        let directory = stream_directory(*number);
        missing.extend(lost.map(|segment| Damage {
            file: segment_path(&directory, segment),
            offset: 0,
            kind: DamageKind::Missing,
        }));
    }
    missing
}

/// How a stream differs from its record: it ends earlier than the manifest or the checkpoint knows, or it
/// holds segments that are not listed. Without a list nothing differs.
pub(crate) fn difference(
    stream: &StreamFiles,
    scan: &StreamScan,
    listed: Listed<'_>,
    checkpoint_lsn: &dyn Fn(ShardId) -> Lsn,
) -> Option<Damage> {
    let record = listed?.get(&stream.stream);
    let unlisted = check_segments(stream, scan, record);
    let ends = |record: &StreamRecord| match record.closed {
        Some(closing) => check_closed(stream, scan, closing),
        None if record.is_synced && !scan.is_closed => check_tail(stream, scan, checkpoint_lsn),
        None => None,
    };
    unlisted.or_else(|| record.and_then(ends))
}

fn check_segments(stream: &StreamFiles, scan: &StreamScan, record: Option<&StreamRecord>) -> Option<Damage> {
    let last = record.map_or(0, |record| record.last);
    let mut segments = stream.segments.iter().zip(&scan.segments);
    // A closing batch without entries may be recovery's own, written before a crash kept it from listing the stream.
    let (file, _) = segments.find(|(file, scan)| file.number > last && scan.entries > 0)?;
    Some(Damage { file: file.path.clone(), offset: BLOCK_BYTES as u64, kind: DamageKind::NotListed })
}

fn check_closed(stream: &StreamFiles, scan: &StreamScan, closing: u64) -> Option<Damage> {
    // Where only the closing batch itself has decayed, nothing is lost.
    let expected = if scan.is_closed { closing } else { closing.saturating_sub(1) };
    if scan.last_batch == expected {
        return None;
    }
    let (segment, offset) = scan.end?;
    Some(Damage { file: stream.segments[segment].path.clone(), offset, kind: DamageKind::ClosedLater })
}

/// A stream that is not closed is of the last run, so a shard's later entries can only have followed in it.
/// A checkpoint holds nothing that was not synced to the log before.
fn check_tail(stream: &StreamFiles, scan: &StreamScan, checkpoint_lsn: &dyn Fn(ShardId) -> Lsn) -> Option<Damage> {
    let (segment, offset) = scan.end?;
    let mut last: BTreeMap<ShardId, Lsn> = BTreeMap::new();
    for range in scan.segments.iter().flat_map(|segment| segment.positions.ranges()) {
        let known = last.entry(range.shard).or_default();
        *known = (*known).max(range.last);
    }
    let lost = last.into_iter().find(|(shard, last)| *last < checkpoint_lsn(*shard));
    let (shard, last) = lost?;
    let kind = DamageKind::TailLost { shard, last, checkpoint: checkpoint_lsn(shard) };
    Some(Damage { file: stream.segments[segment].path.clone(), offset, kind })
}

/// The list after recovery has closed every stream.
pub(crate) fn streams_of(files: &LogFiles, scans: &[StreamScan], listed: Listed<'_>) -> BTreeMap<u64, StreamRecord> {
    let mut streams = BTreeMap::new();
    for (stream, scan) in files.streams.iter().zip(scans) {
        let (Some(first), Some((last, _))) = (stream.segments.first(), scan.end) else { continue };
        let is_synced = listed.and_then(|listed| listed.get(&stream.stream)).is_some_and(|record| record.is_synced);
        let closed = Some(if scan.is_closed { scan.last_batch } else { scan.last_batch + 1 });
        let record = StreamRecord { first: first.number, last: stream.segments[last].number, is_synced, closed };
        streams.insert(stream.stream, record);
    }
    streams
}

//! Looks at a log, damaged or not, without changing it.

use millrace_base::Lsn;
use millrace_format::{BodyKind, EntryRef, ReplicaEntryKind, ReplicaRecord};
use millrace_io::Disk;

use crate::error::{Damage, DamageKind, RecoverError};
use crate::layout::{StreamFiles, list_log};
use crate::positions::ShardRange;
use crate::recover::{Tail, tail};
use crate::scan::{EntryPlace, Sink, StreamScan, scan_stream};

/// What a log holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogReport {
    /// In order of their numbers.
    pub streams: Vec<StreamReport>,
    /// Everything for which [`crate::recover`] would refuse to start, except checkpoints. LSN gaps and disorder are
    /// judged between the entries that can be read.
    pub damage: Vec<Damage>,
}

/// What a stream holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamReport {
    /// Its number.
    pub stream: u64,
    /// The start of the node that made it. Unknown if no segment's header can be read.
    pub run: Option<u64>,
    /// Whether it ends with a closing batch.
    pub is_closed: bool,
    /// Where it ends, if it was not closed. Recovery would go on from here.
    pub tail: Option<Tail>,
    /// In order of their numbers.
    pub segments: Vec<SegmentReport>,
}

/// What a segment holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// The file, relative to the data directory.
    pub file: String,
    /// Its number in the stream.
    pub number: u64,
    /// The file's size.
    pub file_bytes: u64,
    /// Where its last batch ends.
    pub used_bytes: u64,
    /// Batches read.
    pub batches: u64,
    /// Entries read.
    pub entries: u64,
    /// The shards that occur.
    pub shards: Vec<ShardRange>,
}

/// Walks the log, gives every intact entry with writes to `visit`, and reports what is there. Only reads.
///
/// # Errors
/// If files cannot be read, or have a format that this build does not know.
pub fn inspect(
    disk: &dyn Disk,
    visit: &mut dyn FnMut(&EntryPlace<'_>, &EntryRef<'_>),
) -> Result<LogReport, RecoverError> {
    let files = list_log(disk).map_err(|(file, error)| RecoverError::Io { file, error })?;
    let newest_run = files.streams.iter().filter_map(StreamFiles::run).max();
    let mut sink = Visit { visit, last: Vec::new(), damage: Vec::new() };
    let mut window = Vec::new();
    let mut report = LogReport::default();
    for stream in &files.streams {
        let is_older_run = stream.run().is_some() && stream.run() != newest_run;
        let scan = scan_stream(disk, stream, is_older_run, true, &mut window, &mut sink)?;
        report.damage.extend_from_slice(&scan.damage);
        report.streams.push(report_stream(stream, &scan));
    }
    report.damage.append(&mut sink.damage);
    Ok(report)
}

fn report_stream(stream: &StreamFiles, scan: &StreamScan) -> StreamReport {
    let segments = stream.segments.iter().zip(&scan.segments).map(|(file, scan)| SegmentReport {
        file: file.path.clone(),
        number: file.number,
        file_bytes: file.length,
        used_bytes: scan.used_bytes,
        batches: scan.batches,
        entries: scan.entries,
        shards: scan.positions.ranges().to_vec(),
    });
    StreamReport {
        stream: stream.stream,
        run: stream.run(),
        is_closed: scan.is_closed,
        tail: tail(stream, scan),
        segments: segments.collect(),
    }
}

struct Visit<'a> {
    visit: &'a mut dyn FnMut(&EntryPlace<'_>, &EntryRef<'_>),
    /// By shard: the highest LSN so far.
    last: Vec<Lsn>,
    damage: Vec<Damage>,
}

impl Visit<'_> {
    fn check_order(&mut self, place: &EntryPlace<'_>) {
        let EntryPlace { shard, lsn: found, .. } = *place;
        let index = usize::from(shard.0);
        if index >= self.last.len() {
            self.last.resize(index + 1, Lsn::ZERO);
        }
        let last = self.last[index];
        let kind = match found {
            _ if last == Lsn::ZERO || found == last.next() => None,
            _ if found > last => Some(DamageKind::Gap { shard, expected: last.next(), found }),
            _ => Some(DamageKind::Order { shard, after: last, found }),
        };
        self.last[index] = last.max(found);
        if let Some(kind) = kind {
            self.damage.push(Damage { file: place.file.to_owned(), offset: place.offset, kind });
        }
    }
}

impl Sink for Visit<'_> {
    fn entry(&mut self, place: &EntryPlace<'_>, body: &[u8]) -> Result<(), RecoverError> {
        let undecodable = |error| RecoverError::undecodable(place.file, place.offset, &error);
        if place.kind == BodyKind::WriteSet {
            self.check_order(place);
            (self.visit)(place, &EntryRef::decode(body).map_err(undecodable)?);
            return Ok(());
        }
        // Entries of a replicated shard may be cut off and follow anew.
        let (_, record) = ReplicaRecord::decode(body).map_err(undecodable)?;
        if let ReplicaRecord::Entry { kind: ReplicaEntryKind::Data, bytes, .. } = record {
            (self.visit)(place, &EntryRef::decode(bytes).map_err(undecodable)?);
        }
        Ok(())
    }
}

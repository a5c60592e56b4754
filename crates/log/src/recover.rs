//! Recovers a log after a stop of any kind.
//!
//! Recovery first reads and judges everything. It refuses a damaged log and changes nothing on disk. Then it *seals*
//! each stream that was not closed. It makes the accepted end durable, which may have been in the page cache only, and
//! writes a closing batch over whatever follows. So a torn batch can never come back, and later damage can never pass
//! for a torn tail. From then on the node only reads and deletes old streams, and writes new ones.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use millrace_base::{Lsn, ShardId};
use millrace_format::{BLOCK_BYTES, BatchHeader, BodyKind, EntryRef};
use millrace_io::{Disk, DiskFile, is_out_of_space};
use millrace_manifest::{MANIFEST_FILE, Manifest};

use crate::error::{Damage, DamageKind, RecoverError};
use crate::layout::{LOG_DIRECTORY, LogFiles, REPAIR_SUFFIX, StreamFiles, list_log, stream_directory};
use crate::listed;
use crate::scan::{EntryPlace, Sink, StreamScan, scan_stream};
use crate::segments::{ClosedSegment, Segments};

/// A recovered log.
pub struct Recovered {
    /// The number for [`crate::WriterOptions::run`] of this start.
    pub next_run: u64,
    /// The old streams' segments, for deletion once checkpoints cover them. New writers add theirs.
    pub segments: Segments,
    /// The last LSN of each shard that has entries in the log. A shard's next entry is one after this or after its
    /// checkpoint, whichever is higher.
    pub last: BTreeMap<ShardId, Lsn>,
    /// Entries given to `apply`.
    pub applied: u64,
    /// Entries that checkpoints already covered.
    pub skipped: u64,
    /// Bytes of the batches read.
    pub bytes: u64,
    /// Streams that were not closed cleanly, and where they end.
    pub unclosed: Vec<Tail>,
}

/// The end of a stream that was not closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The segment file, relative to the data directory.
    pub file: String,
    /// Where the accepted part ends.
    pub offset: u64,
    /// Whether a part of a batch was there that was never acknowledged. It was discarded.
    pub is_torn: bool,
}

/// Reads the whole log and gives every entry above its shard's checkpoint to `apply`: each shard's in order, without
/// gaps, once. Shards come interleaved. After an error, throw away what `apply` got.
///
/// Call it once, before any [`crate::Writer`] is opened. Nothing else may use the log meanwhile.
///
/// # Errors
/// [`RecoverError::Damaged`] if acknowledged entries are damaged or missing.
pub fn recover(
    disk: &Arc<dyn Disk>,
    manifest: &Manifest,
    checkpoint_lsn: &dyn Fn(ShardId) -> Lsn,
    apply: &mut dyn FnMut(EntryRef<'_>),
) -> Result<Recovered, RecoverError> {
    let files = list_log(&**disk).map_err(|(file, error)| RecoverError::Io { file, error })?;
    check_for_unfinished_repair(&files)?;
    let listed = manifest.streams();
    if let Some(damage) = listed::missing(&files, listed.as_ref()).into_iter().next() {
        return Err(RecoverError::Damaged(damage));
    }
    let newest_run = files.streams.iter().filter_map(StreamFiles::run).max();
    let mut sink = Apply { chains: Chains::new(checkpoint_lsn), apply, applied: 0, skipped: 0 };
    let mut window = Vec::new();
    let mut scans = Vec::new();
    for stream in &files.streams {
        let is_older_run = stream.run().is_some() && stream.run() != newest_run;
        let scan = scan_stream(&**disk, stream, is_older_run, false, &mut window, &mut sink)?;
        if let Some(damage) = listed::difference(stream, &scan, listed.as_ref(), checkpoint_lsn) {
            return Err(RecoverError::Damaged(damage));
        }
        scans.push(scan);
    }
    let (applied, skipped, last) = (sink.applied, sink.skipped, sink.chains.last());
    let bytes = scans.iter().flat_map(|scan| &scan.segments).map(|segment| segment.used_bytes).sum();
    let (segments, unclosed) = conclude(disk, manifest, &files, scans, listed.as_ref())?;
    Ok(Recovered { next_run: files.next_stream, segments, last, applied, skipped, bytes, unclosed })
}

/// All streams have been read and accepted: closes those that were not closed, and removes what is unused.
pub(crate) fn conclude(
    disk: &Arc<dyn Disk>,
    manifest: &Manifest,
    files: &LogFiles,
    scans: Vec<StreamScan>,
    listed: listed::Listed<'_>,
) -> Result<(Segments, Vec<Tail>), RecoverError> {
    let mut unclosed = Vec::new();
    for (stream, scan) in files.streams.iter().zip(&scans) {
        unclosed.extend(tail(stream, scan));
        seal(&**disk, stream, scan)?;
    }
    // What is removed below is off the list first: a listed file that is missing was lost.
    let is_listed = match manifest.set_streams(listed::streams_of(files, &scans, listed)) {
        Err(error) if !is_out_of_space(&error) => {
            return Err(RecoverError::Io { file: MANIFEST_FILE.to_owned(), error });
        }
        result => result.is_ok(),
    };
    let segments = Segments::new(Arc::clone(disk), manifest.clone());
    for (stream, scan) in files.streams.iter().zip(scans) {
        if is_listed {
            let first_unused = scan.end.map_or(0, |(last, _)| last + 1);
            remove_unused(&**disk, stream, first_unused)?;
        }
        segments.add_ended_stream(stream.stream, &stream.directory, closed_segments(stream, &scan));
    }
    Ok((segments, unclosed))
}

pub(crate) fn check_for_unfinished_repair(files: &LogFiles) -> Result<(), RecoverError> {
    let is_missing = |number: &&u64| files.streams.iter().all(|stream| stream.stream != **number);
    match files.repairs.iter().find(is_missing) {
        Some(number) => Err(RecoverError::RepairUnfinished { directory: stream_directory(*number) + REPAIR_SUFFIX }),
        None => Ok(()),
    }
}

pub(crate) fn tail(stream: &StreamFiles, scan: &StreamScan) -> Option<Tail> {
    let (segment, offset) = scan.end.filter(|_| !scan.is_closed)?;
    Some(Tail { file: stream.segments[segment].path.clone(), offset, is_torn: scan.is_torn })
}

fn closed_segments(stream: &StreamFiles, scan: &StreamScan) -> Vec<ClosedSegment> {
    let count = scan.end.map_or(0, |(last, _)| last + 1);
    let segments = stream.segments.iter().zip(&scan.segments).take(count);
    let closed = segments.map(|(file, scan)| ClosedSegment {
        number: file.number,
        path: file.path.clone(),
        bytes: file.length,
        ranges: scan.positions.ranges().into(),
        bases: scan.bases.iter().collect(),
    });
    closed.collect()
}

/// How far each shard's log has been read, compared with its checkpoint.
pub(crate) struct Chains<'a> {
    checkpoint_lsn: &'a dyn Fn(ShardId) -> Lsn,
    /// By shard.
    chains: Vec<Option<Chain>>,
}

#[derive(Clone, Copy)]
pub(crate) struct Chain {
    checkpoint: Lsn,
    last: Lsn,
}

/// How an entry relates to its shard's chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// The next one above the checkpoint.
    Next,
    /// The checkpoint covers it.
    Covered,
    /// It cannot come here.
    Broken(DamageKind),
}

impl<'a> Chains<'a> {
    pub(crate) fn new(checkpoint_lsn: &'a dyn Fn(ShardId) -> Lsn) -> Self {
        Self { checkpoint_lsn, chains: Vec::new() }
    }

    /// Takes the next entry of a shard. A broken one leaves the chain as it was.
    ///
    /// Below the checkpoint only the order is checked. After a power cut with `Durability::Os` more of the checkpoint
    /// may have survived than of the log, which then goes on behind a gap.
    pub(crate) fn link(&mut self, shard: ShardId, lsn: Lsn) -> Link {
        let index = usize::from(shard.0);
        if index >= self.chains.len() {
            self.chains.resize(index + 1, None);
        }
        let checkpoint_lsn = self.checkpoint_lsn;
        let fresh = || Chain { checkpoint: checkpoint_lsn(shard), last: Lsn::ZERO };
        let chain = self.chains[index].get_or_insert_with(fresh);
        if lsn <= chain.last {
            return Link::Broken(DamageKind::Order { shard, after: chain.last, found: lsn });
        }
        if lsn <= chain.checkpoint {
            chain.last = lsn;
            return Link::Covered;
        }
        let expected = chain.last.max(chain.checkpoint).next();
        if lsn != expected {
            return Link::Broken(DamageKind::Gap { shard, expected, found: lsn });
        }
        chain.last = lsn;
        Link::Next
    }

    /// The last LSN of every shard that had an entry.
    pub(crate) fn last(&self) -> BTreeMap<ShardId, Lsn> {
        let chains = self.chains.iter().zip(0..=u16::MAX);
        let known = chains.filter_map(|(chain, shard)| chain.map(|chain| (ShardId(shard), chain.last)));
        known.filter(|(_, last)| *last > Lsn::ZERO).collect()
    }
}

struct Apply<'a> {
    chains: Chains<'a>,
    apply: &'a mut dyn FnMut(EntryRef<'_>),
    applied: u64,
    skipped: u64,
}

impl Sink for Apply<'_> {
    fn entry(&mut self, place: &EntryPlace<'_>, body: &[u8]) -> Result<(), RecoverError> {
        refuse_replicated(place)?;
        match self.chains.link(place.shard, place.lsn) {
            Link::Next => {
                let entry = EntryRef::decode(body)
                    .map_err(|error| RecoverError::undecodable(place.file, place.offset, &error))?;
                (self.apply)(entry);
                self.applied += 1;
            }
            Link::Covered => self.skipped += 1,
            Link::Broken(kind) => {
                return Err(RecoverError::Damaged(Damage { file: place.file.to_owned(), offset: place.offset, kind }));
            }
        }
        Ok(())
    }
}

/// Refuses what only a node of a cluster writes.
pub(crate) fn refuse_replicated(place: &EntryPlace<'_>) -> Result<(), RecoverError> {
    if place.kind == BodyKind::WriteSet {
        return Ok(());
    }
    Err(RecoverError::OtherMode { file: place.file.to_owned(), offset: place.offset, is_replicated: true })
}

/// Ends a stream for good. Each step may be the last one before a crash: until the closing batch
/// is durable the stream is judged again as before, and from then on nothing behind it is looked at.
fn seal(disk: &dyn Disk, stream: &StreamFiles, scan: &StreamScan) -> Result<(), RecoverError> {
    let Some((index, offset)) = scan.end else { return Ok(()) };
    let segment = &stream.segments[index];
    let at = RecoverError::io(&segment.path);
    let file = segment.open(disk).map_err(RecoverError::io(&segment.path))?;
    let end = if scan.is_closed { offset } else { offset + BLOCK_BYTES as u64 };
    if !scan.is_closed {
        make_durable(disk, stream, scan)?;
        write_closing(&*file, stream, scan, (index, offset)).map_err(RecoverError::io(&segment.path))?;
    }
    if file.length().map_err(RecoverError::io(&segment.path))? > end {
        file.truncate(end).and_then(|()| file.sync_data()).map_err(at)?;
    }
    Ok(())
}

/// Makes accepted batches durable that may be in the page cache only. It writes them again first. If a failed fsync
/// ended the last run, the kernel has marked their pages clean, and a sync alone would do nothing.
fn make_durable(disk: &dyn Disk, stream: &StreamFiles, scan: &StreamScan) -> Result<(), RecoverError> {
    let mut batches = scan.unsynced.iter().peekable();
    while let Some(first) = batches.peek().map(|batch| batch.segment) {
        let segment = &stream.segments[first];
        let mut rewrite = || -> io::Result<()> {
            let file = segment.open(disk)?;
            let mut bytes = Vec::new();
            while let Some(batch) = batches.next_if(|batch| batch.segment == first) {
                let length = usize::try_from(batch.bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
                bytes.clear();
                bytes.resize(length, 0);
                // All of it was read before, except that the file may end in the zeros behind it.
                file.read_at(&mut bytes, batch.offset)?;
                file.write_at(&bytes, batch.offset)?;
            }
            file.sync_data()
        };
        rewrite().map_err(RecoverError::io(&segment.path))?;
    }
    Ok(())
}

fn write_closing(
    file: &dyn DiskFile,
    stream: &StreamFiles,
    scan: &StreamScan,
    (index, offset): (usize, u64),
) -> io::Result<()> {
    let segment = &stream.segments[index];
    // The end lies in a segment whose header was read; a walk ends nowhere else.
    let Ok(segment_header) = &segment.header else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let header = BatchHeader {
        stream: stream.stream,
        segment: segment.number,
        salt: segment_header.salt,
        number: scan.last_batch + 1,
        synced: scan.last_batch,
        payload_bytes: 0,
        entry_count: 0,
        is_closing: true,
        has_zeros: false,
        is_doubtful: scan.is_doubtful,
    };
    let mut block = [0; BLOCK_BYTES];
    let (encoded, _) = header.encode();
    block[..encoded.len()].copy_from_slice(&encoded);
    file.write_at(&block, offset)?;
    file.sync_data()
}

/// Removes the segments from `first_unused` on, last one first, so that no hole is ever left. Then it removes files
/// that were never a segment. Then it removes the directory, if nothing is left of the stream.
fn remove_unused(disk: &dyn Disk, stream: &StreamFiles, first_unused: usize) -> Result<(), RecoverError> {
    let at = || RecoverError::io(&stream.directory);
    for segment in stream.segments[first_unused..].iter().rev() {
        disk.remove(&segment.path).map_err(RecoverError::io(&segment.path))?;
        disk.sync_directory(&stream.directory).map_err(at())?;
    }
    for path in &stream.leftovers {
        disk.remove(path).map_err(RecoverError::io(path))?;
    }
    if !stream.leftovers.is_empty() {
        disk.sync_directory(&stream.directory).map_err(at())?;
    }
    // A stranger's file in the directory keeps it, which harms nothing.
    if first_unused == 0 && disk.remove(&stream.directory).is_ok() {
        disk.sync_directory(LOG_DIRECTORY).map_err(at())?;
    }
    Ok(())
}

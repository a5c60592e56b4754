//! Appends batches to one stream.
//!
//! It is synchronous and has no threads of its own: [`crate::Committer`] puts it on a thread, a simulator calls it
//! directly. One batch is in flight at a time: it is written and made durable before the next one is written. Therefore
//! recovery can tell a torn tail from damage.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use millrace_format::{BLOCK_BYTES, BatchHeader, SegmentHeader};
use millrace_io::{Clock, Disk, DiskFile, Random, is_out_of_space};
use millrace_manifest::MANIFEST_FILE;

use crate::batch::Batch;
use crate::error::LogError;
use crate::hold::{OpenSegment, WriterPosition, lock};
use crate::layout::stream_directory;
use crate::positions::{Bases, Positions};
use crate::segments::{ClosedSegment, Segments};
use crate::spare::{Job, Prepared, Request, Slot, SyncProgress, prepare};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A segment's header, at least one batch, and the block kept free for the closing batch.
const SEGMENT_BYTES_MINIMUM: u64 = 3 * BLOCK;

/// What acknowledged entries survive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// They survive a power cut: every batch is synced before it is acknowledged.
    #[default]
    Fsync,
    /// They survive a crash of the process only: a power cut loses what the kernel still held.
    Os,
}

/// Whether the log can go on growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// A spare segment is ready or being made.
    Enough,
    /// No spare segment could be made: take no new writes. Transactions that have begun still fit.
    Low,
}

/// The outside world of a writer.
#[derive(Clone)]
pub struct Environment {
    /// Where the log lies.
    pub disk: Arc<dyn Disk>,
    /// Measures writes and fsyncs.
    pub clock: Arc<dyn Clock>,
    /// Salts segments.
    pub random: Arc<dyn Random>,
}

/// How a stream is written.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// [`crate::Recovered::next_run`]: the same for all cores of one start.
    pub run: u64,
    /// The core's number: 0, 1, …. Its stream is `run + core`.
    pub core: u64,
    /// What acknowledged entries survive.
    pub durability: Durability,
    /// The first segment's size: small, so that a node is ready at once. Each next one is twice as big, up to
    /// `segment_bytes`.
    pub first_segment_bytes: u64,
    /// A segment's size in the long run.
    pub segment_bytes: u64,
    /// Bytes of the disk that the log leaves free, above all for the checkpoint. Without room for it no segment could
    /// ever be deleted again.
    pub reserve_bytes: u64,
    /// Whether it is the log of replicated shards. Their segments are always zeros before they are written, so that
    /// recovery can tell what was never acknowledged.
    pub is_replicated: bool,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            run: 1,
            core: 0,
            durability: Durability::Fsync,
            first_segment_bytes: 4 << 20,
            segment_bytes: 64 << 20,
            reserve_bytes: 32 << 20,
            is_replicated: false,
        }
    }
}

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendReport {
    /// Bytes written, rounded up to whole blocks.
    pub bytes: u64,
    /// Entries written.
    pub entries: u32,
    /// Time the write took.
    pub write_us: u64,
    /// Time the fsync took; 0 with [`Durability::Os`].
    pub sync_us: u64,
    /// Whether the log can go on growing.
    pub space: Space,
    /// Whether the batch is the first of its segment.
    pub began_segment: bool,
}

struct Current {
    file: Arc<dyn DiskFile>,
    path: String,
    header: SegmentHeader,
    /// Where the next batch goes.
    offset: u64,
    positions: Positions,
    bases: Bases,
}

impl Current {
    /// Bytes for batches. The last block stays free, so that a stream can always be closed.
    fn room(&self) -> u64 {
        self.header.segment_bytes.saturating_sub(BLOCK).saturating_sub(self.offset)
    }

    /// The segment, which takes no more batches; its file has `bytes`.
    fn closed(self, bytes: u64) -> ClosedSegment {
        ClosedSegment { bytes, ..self.durable() }
    }

    /// The part with batches.
    fn durable(&self) -> ClosedSegment {
        ClosedSegment {
            number: self.header.number,
            path: self.path.clone(),
            bytes: self.offset,
            ranges: self.positions.ranges().into(),
            bases: self.bases.iter().collect(),
        }
    }
}

/// A closed segment that may not be durable yet (`Durability::Os`).
struct Unsynced {
    file: Arc<dyn DiskFile>,
    last_batch: u64,
    is_handed_out: bool,
}

/// The writer of one stream.
pub struct Writer {
    environment: Environment,
    options: WriterOptions,
    segments: Segments,
    stream: u64,
    directory: String,
    current: Option<Current>,
    spare: Option<Prepared>,
    slot: Arc<Slot>,
    /// Number of the last segment made or asked for.
    last_segment: u64,
    /// Number of the last batch written.
    last_batch: u64,
    /// Every batch up to this one is durable.
    synced: u64,
    unsynced: Vec<Unsynced>,
    progress: Arc<SyncProgress>,
    space: Space,
    failure: Option<String>,
    place: Arc<WriterPosition>,
}

impl Writer {
    /// Starts a new stream: makes its first segment. A full disk is not an error. The writer then starts with
    /// [`Space::Low`], and every append answers [`LogError::OutOfSpace`] until there is space.
    ///
    /// # Errors
    /// [`LogError::Failed`] if the disk returns any other error.
    pub fn open(environment: Environment, segments: Segments, options: WriterOptions) -> Result<Self, LogError> {
        let stream = options.run.saturating_add(options.core);
        Self::open_in(environment, segments, options, stream, stream_directory(stream))
    }

    /// As [`Writer::open`], in another directory, for a repaired stream.
    pub(crate) fn open_in(
        environment: Environment,
        segments: Segments,
        options: WriterOptions,
        stream: u64,
        directory: String,
    ) -> Result<Self, LogError> {
        // A segment that is used again is not zeros.
        let recycled_bytes = if options.is_replicated { 0 } else { options.segment_bytes.next_multiple_of(BLOCK) };
        let place = segments.add_live_stream(stream, &directory, recycled_bytes);
        let mut writer = Self {
            environment,
            options,
            segments,
            stream,
            directory,
            current: None,
            spare: None,
            slot: Arc::default(),
            last_segment: 0,
            last_batch: 0,
            synced: 0,
            unsynced: Vec::new(),
            progress: Arc::new(SyncProgress { synced: 0.into(), failure: Mutex::default() }),
            space: Space::Enough,
            failure: None,
            place,
        };
        match writer.roll(0) {
            Ok(()) | Err(LogError::OutOfSpace) => {}
            Err(error) => return Err(error),
        }
        *lock(&writer.place) = writer.open_segment();
        Ok(writer)
    }

    fn open_segment(&self) -> Option<OpenSegment> {
        self.current.as_ref().map(|current| OpenSegment {
            stream: self.stream,
            number: current.header.number,
            offset: current.offset,
            last_batch: self.last_batch,
            salt: current.header.salt,
        })
    }

    /// The stream's number.
    #[must_use]
    pub fn stream(&self) -> u64 {
        self.stream
    }

    /// The clock that it measures with.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.environment.clock)
    }

    /// Whether the log can go on growing, as far as finished jobs tell.
    pub fn space(&mut self) -> Space {
        self.collect_spare();
        self.space
    }

    /// Writes a batch, makes it as durable as the options say, then empties it. An empty batch costs nothing.
    ///
    /// # Errors
    /// [`LogError::OutOfSpace`]: the batch is as it was and may be appended again. [`LogError::Failed`]: the stream is
    /// dead.
    pub fn append(&mut self, batch: &mut Batch) -> Result<AppendReport, LogError> {
        let place = Arc::clone(&self.place);
        let mut place = lock(&place);
        let appended = self.append_at_place(batch);
        *place = self.open_segment();
        appended
    }

    fn append_at_place(&mut self, batch: &mut Batch) -> Result<AppendReport, LogError> {
        self.check_failure()?;
        self.collect_spare();
        if batch.is_empty() {
            let space = self.space;
            return Ok(AppendReport { bytes: 0, entries: 0, write_us: 0, sync_us: 0, space, began_segment: false });
        }
        let needed = batch.total_bytes();
        while self.current.as_ref().is_none_or(|current| current.room() < needed) {
            self.roll(needed)?;
        }
        let report = self.write(batch, false)?;
        batch.set_committed();
        Ok(report)
    }

    /// Disk work to be done beside appending: preparing the spare segment, syncing closed ones. Ask for jobs after
    /// every append, until there is none. The call after the one that noticed a failed job offers it again. If nobody
    /// runs its jobs, the writer does them when it must.
    pub fn job(&mut self) -> Option<Job> {
        if self.failure.is_some() {
            return None;
        }
        let synced = self.progress.synced.load(Ordering::Acquire);
        self.unsynced.retain(|unsynced| unsynced.last_batch > synced);
        if let Some(unsynced) = self.unsynced.iter_mut().find(|unsynced| !unsynced.is_handed_out) {
            unsynced.is_handed_out = true;
            return Some(Job::sync(Arc::clone(&unsynced.file), unsynced.last_batch, Arc::clone(&self.progress)));
        }
        let has_just_failed = self.collect_spare();
        if has_just_failed || self.spare.is_some() || !self.slot.claim() {
            return None;
        }
        let request = self.request(self.last_segment + 1, 0);
        Some(Job::prepare(Arc::clone(&self.environment.disk), request, Arc::clone(&self.slot)))
    }

    /// Ends the stream: makes everything durable, writes the closing batch, cuts off what is unused and removes the
    /// spare segment.
    ///
    /// # Errors
    /// [`LogError::Failed`]: the stream was not closed. A restart recovers it as after a crash.
    pub fn close(mut self) -> Result<(), LogError> {
        let place = Arc::clone(&self.place);
        // What a backup has seen of this stream stays as it saw it.
        let mut place = lock(&place);
        *place = None;
        self.check_failure()?;
        if self.current.is_some() {
            self.sync_everything()?;
            self.write(&mut Batch::new(), true)?;
            self.cut_off_unused()?;
        }
        self.segments.end_stream(self.stream);
        Ok(())
    }

    fn sync_everything(&mut self) -> Result<(), LogError> {
        if self.synced == self.last_batch {
            return Ok(());
        }
        let closed = std::mem::take(&mut self.unsynced).into_iter().map(|unsynced| unsynced.file);
        let files: Vec<_> = closed.chain(self.current.iter().map(|current| Arc::clone(&current.file))).collect();
        for file in files {
            file.sync_data().map_err(|error| self.fail("sync", &error))?;
        }
        self.synced = self.last_batch;
        Ok(())
    }

    fn cut_off_unused(&mut self) -> Result<(), LogError> {
        if let Some(current) = self.current.take() {
            let cut = current.file.truncate(current.offset).and_then(|()| current.file.sync_data());
            cut.map_err(|error| self.fail(&current.path, &error))?;
            self.last_segment = current.header.number;
            let bytes = current.offset;
            self.segments.push(self.stream, current.closed(bytes));
        }
        let outstanding = self.slot.wait().and_then(Result::ok);
        let spares = self.spare.take().into_iter().chain(outstanding);
        if !self.is_recorded_closed()? {
            // The manifest lists the spare, so it stays. The next start removes it.
            return Ok(());
        }
        for spare in spares {
            let disk = &self.environment.disk;
            let removed = disk.remove(&spare.path).and_then(|()| disk.sync_directory(&self.directory));
            removed.map_err(|error| self.fail(&spare.path, &error))?;
        }
        Ok(())
    }

    /// Records in the manifest that the stream is closed; false where a full disk has no room for that.
    fn is_recorded_closed(&mut self) -> Result<bool, LogError> {
        match self.segments.manifest().close_stream(self.stream, self.last_segment, self.last_batch) {
            Ok(()) => Ok(true),
            Err(error) if is_out_of_space(&error) => Ok(false),
            Err(error) => Err(self.fail(MANIFEST_FILE, &error)),
        }
    }

    fn write(&mut self, batch: &mut Batch, is_closing: bool) -> Result<AppendReport, LogError> {
        let synced = self.synced.max(self.progress.synced.load(Ordering::Acquire));
        let Some(current) = self.current.as_mut() else {
            return Err(LogError::OutOfSpace);
        };
        let header = BatchHeader {
            stream: self.stream,
            segment: current.header.number,
            salt: current.header.salt,
            number: self.last_batch + 1,
            synced,
            payload_bytes: batch.payload_bytes() as u64,
            entry_count: batch.entry_count(),
            is_closing,
            has_zeros: false,
            is_doubtful: false,
        };
        let clock = &self.environment.clock;
        let begin_ns = clock.monotonic_ns();
        let is_synced = is_closing || self.options.durability == Durability::Fsync;
        let written = batch.with_image(&header, |image| match is_synced {
            true => current.file.write_blocks_at(image, current.offset),
            false => current.file.write_at(image, current.offset),
        });
        let written_ns = clock.monotonic_ns();
        if let Err(error) = written {
            // Allocated space cannot run out, but some file systems copy on write. Nothing was acknowledged, and the
            // next attempt overwrites the same place.
            if is_out_of_space(&error) {
                self.space = Space::Low;
                return Err(LogError::OutOfSpace);
            }
            let path = current.path.clone();
            return Err(self.fail(&path, &error));
        }
        if is_synced && let Err(error) = current.file.sync_data() {
            let path = current.path.clone();
            return Err(self.fail(&path, &error));
        }
        let synced_ns = clock.monotonic_ns();
        let began_segment = current.offset == BLOCK;
        current.offset += batch.total_bytes();
        current.positions.merge(batch.noted());
        current.bases.merge(batch.bases());
        self.last_batch += 1;
        if is_synced {
            self.synced = self.last_batch;
        }
        if self.options.is_replicated {
            self.segments.advance(self.stream, current.durable());
        }
        // A write that found no room has gone through, and the next segment is there already. No job will report this.
        if self.spare.is_some() {
            self.space = Space::Enough;
        }
        Ok(AppendReport {
            bytes: batch.total_bytes(),
            entries: batch.entry_count(),
            write_us: written_ns.saturating_sub(begin_ns) / 1000,
            sync_us: if is_synced { synced_ns.saturating_sub(written_ns) / 1000 } else { 0 },
            space: self.space,
            began_segment,
        })
    }

    /// Goes on in the next segment. It has room for `needed` bytes, unless it was prepared before an append needed so
    /// many.
    fn roll(&mut self, needed: u64) -> Result<(), LogError> {
        // Every segment but the last holds a batch. So a first batch that cannot be read is never taken for an empty
        // segment.
        if self.current.as_ref().is_some_and(|current| current.offset == BLOCK) {
            self.write(&mut Batch::new(), false)?;
        }
        let next = self.take_spare(needed)?;
        let next = Current {
            file: next.file,
            path: next.path,
            header: next.header,
            offset: BLOCK,
            positions: Positions::default(),
            bases: Bases::default(),
        };
        if let Some(last) = self.current.replace(next) {
            if self.synced < self.last_batch {
                let last_batch = self.last_batch;
                let file = Arc::clone(&last.file);
                self.unsynced.push(Unsynced { file, last_batch, is_handed_out: false });
            }
            let bytes = last.header.segment_bytes;
            self.segments.push(self.stream, last.closed(bytes));
        }
        Ok(())
    }

    fn take_spare(&mut self, needed: u64) -> Result<Prepared, LogError> {
        self.collect_spare();
        if self.spare.is_none()
            && let Some(result) = self.slot.wait()
        {
            self.accept_spare(result);
        }
        if let Some(spare) = self.spare.take() {
            return Ok(spare);
        }
        let mut request = self.request(self.last_segment + 1, needed);
        // The segment is needed now. Allocating it is quick, and the reserve is for work that can wait.
        request.is_filled = false;
        request.reserve_bytes = 0;
        let path = request.directory.clone();
        match prepare(&*self.environment.disk, request, &true.into()) {
            Ok(prepared) => {
                self.last_segment = prepared.header.number;
                Ok(prepared)
            }
            Err(error) if is_out_of_space(&error) => {
                self.space = Space::Low;
                Err(LogError::OutOfSpace)
            }
            Err(error) => Err(self.fail(&path, &error)),
        }
    }

    fn request(&self, number: u64, needed: u64) -> Request {
        let doublings = u32::try_from(number - 1).unwrap_or(u32::MAX);
        let grown = self.options.first_segment_bytes.saturating_mul(2u64.saturating_pow(doublings));
        let usual = grown.min(self.options.segment_bytes).max(SEGMENT_BYTES_MINIMUM);
        let segment_bytes = usual.max(needed + 2 * BLOCK).next_multiple_of(BLOCK);
        Request {
            directory: self.directory.clone(),
            header: SegmentHeader {
                stream: self.stream,
                run: self.options.run,
                number,
                segment_bytes,
                salt: self.environment.random.next_u64(),
            },
            is_filled: self.options.durability == Durability::Fsync,
            is_synced: self.options.durability == Durability::Fsync,
            reserve_bytes: self.options.reserve_bytes,
            recycled: self.segments.take_recycled(self.stream, segment_bytes),
            manifest: self.segments.manifest().clone(),
        }
    }

    /// Takes the result of a finished job. True if the job made no spare segment.
    fn collect_spare(&mut self) -> bool {
        if self.spare.is_none()
            && let Some(result) = self.slot.take()
        {
            self.accept_spare(result);
            return self.spare.is_none();
        }
        false
    }

    fn accept_spare(&mut self, result: io::Result<Prepared>) {
        match result {
            Ok(prepared) => {
                self.last_segment = prepared.header.number;
                self.spare = Some(prepared);
                self.space = Space::Enough;
            }
            Err(error) => {
                // This covers more than a full disk. Whatever keeps the spare from being made, writing on would end in
                // a log that cannot grow. The next attempt may go better.
                if !is_out_of_space(&error) {
                    tracing::warn!(stream = self.stream, %error, "the log's next segment could not be prepared");
                }
                self.space = Space::Low;
            }
        }
    }

    fn check_failure(&mut self) -> Result<(), LogError> {
        let in_background = self.progress.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(error) = in_background {
            return Err(self.fail("sync of a closed segment", &error));
        }
        match &self.failure {
            Some(failure) => Err(LogError::Failed(failure.clone())),
            None => Ok(()),
        }
    }

    /// Ends the stream for good. After a failed write or fsync nobody knows what is on disk. A repeated fsync may
    /// report success for pages that the kernel has given up.
    fn fail(&mut self, place: &str, error: &dyn std::fmt::Display) -> LogError {
        let failure = format!("{place}: {error}");
        self.failure = Some(failure.clone());
        LogError::Failed(failure)
    }
}

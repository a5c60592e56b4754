//! Prepares the next segment before it is needed.
//!
//! If a batch is appended to a fresh file, every fsync waits for the file system's own bookkeeping. If it overwrites
//! blocks that are allocated and written, the fsync does not. So while a segment is in use, its successor is filled
//! with zeros, or an old segment of the stream is reused.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use millrace_format::{BLOCK_BYTES, SegmentHeader};
use millrace_io::{Disk, DiskFile};
use millrace_manifest::Manifest;

use crate::layout::{LOG_DIRECTORY, segment_path};

/// Zeros are written in pieces of this size.
const FILL_BYTES: usize = 1 << 20;

/// Zeros are synced after so many bytes, so that a commit's fsync never queues behind a whole segment of them.
const FILL_SYNC_BYTES: u64 = 4 << 20;

/// A segment with a durable header, a durable name and space for all its bytes.
pub(crate) struct Prepared {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) path: String,
    pub(crate) header: SegmentHeader,
}

/// What to prepare.
pub(crate) struct Request {
    pub(crate) directory: String,
    pub(crate) header: SegmentHeader,
    /// Write zeros over all of it, instead of only allocating it.
    pub(crate) is_filled: bool,
    /// Refuse if the disk would have less than this left.
    pub(crate) reserve_bytes: u64,
    /// A file of the right size to overwrite.
    pub(crate) recycled: Option<String>,
    /// Whether its batches are synced before they are acknowledged.
    pub(crate) is_synced: bool,
    /// Lists the segment before it gets a batch.
    pub(crate) manifest: Manifest,
}

/// Where a job gives a spare segment to the writer.
#[derive(Default)]
pub(crate) struct Slot {
    state: Mutex<SlotState>,
    changed: Condvar,
    /// The writer waits: allocate, but fill no further.
    is_urgent: AtomicBool,
}

#[derive(Default)]
enum SlotState {
    #[default]
    Empty,
    Outstanding,
    Done(io::Result<Prepared>),
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims the slot for a new job. False while a job is outstanding or its result is not taken.
    pub(crate) fn claim(&self) -> bool {
        let mut state = self.state();
        let is_free = matches!(*state, SlotState::Empty);
        if is_free {
            *state = SlotState::Outstanding;
            self.is_urgent.store(false, Ordering::Relaxed);
        }
        is_free
    }

    fn put(&self, state: SlotState) {
        *self.state() = state;
        self.changed.notify_all();
    }

    /// The result of a finished job, if any.
    pub(crate) fn take(&self) -> Option<io::Result<Prepared>> {
        let mut state = self.state();
        if !matches!(*state, SlotState::Done(_)) {
            return None;
        }
        match std::mem::take(&mut *state) {
            SlotState::Done(result) => Some(result),
            SlotState::Empty | SlotState::Outstanding => None,
        }
    }

    /// Waits for an outstanding job and tells it to hurry; `None` if there is none.
    pub(crate) fn wait(&self) -> Option<io::Result<Prepared>> {
        self.is_urgent.store(true, Ordering::Relaxed);
        let mut state = self.state();
        while matches!(*state, SlotState::Outstanding) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.take()
    }
}

/// Disk work that a writer wants done while it goes on appending. Run it on any thread, in the order in which the
/// writer gave jobs out. Dropping it undone is safe.
pub struct Job {
    kind: Option<JobKind>,
}

enum JobKind {
    Prepare { disk: Arc<dyn Disk>, request: Request, slot: Arc<Slot> },
    Sync { file: Arc<dyn DiskFile>, last_batch: u64, progress: Arc<SyncProgress> },
}

/// How far closed segments were synced if appends are not (`Durability::Os`).
#[derive(Default)]
pub(crate) struct SyncProgress {
    pub(crate) synced: AtomicU64,
    pub(crate) failure: Mutex<Option<String>>,
}

impl Job {
    pub(crate) fn prepare(disk: Arc<dyn Disk>, request: Request, slot: Arc<Slot>) -> Self {
        Self { kind: Some(JobKind::Prepare { disk, request, slot }) }
    }

    pub(crate) fn sync(file: Arc<dyn DiskFile>, last_batch: u64, progress: Arc<SyncProgress>) -> Self {
        Self { kind: Some(JobKind::Sync { file, last_batch, progress }) }
    }

    /// Does the work and gives the result to the writer.
    pub fn run(mut self) {
        match self.kind.take() {
            Some(JobKind::Prepare { disk, request, slot }) => {
                let result = prepare(&*disk, request, &slot.is_urgent);
                slot.put(SlotState::Done(result));
            }
            Some(JobKind::Sync { file, last_batch, progress }) => match file.sync_data() {
                Ok(()) => {
                    progress.synced.fetch_max(last_batch, Ordering::Release);
                }
                Err(error) => {
                    let mut failure = progress.failure.lock().unwrap_or_else(PoisonError::into_inner);
                    *failure = Some(error.to_string());
                }
            },
            None => {}
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(JobKind::Prepare { slot, .. }) = self.kind.take() {
            slot.put(SlotState::Empty);
        }
    }
}

/// Prepares a segment: its header and its name are durable when this returns.
pub(crate) fn prepare(disk: &dyn Disk, request: Request, is_urgent: &AtomicBool) -> io::Result<Prepared> {
    let Request { directory, header, is_filled, reserve_bytes, recycled, is_synced, manifest } = request;
    let path = segment_path(&directory, header.number);
    if header.number == 1 {
        disk.create_directory(&directory)?;
        disk.sync_directory(LOG_DIRECTORY)?;
        disk.sync_directory("")?;
    }
    let unnamed = match recycled {
        Some(path) => path,
        None => {
            if disk.available_bytes()? < header.segment_bytes.saturating_add(reserve_bytes) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            path.replace(".log", ".new")
        }
    };
    let made = make(disk, &unnamed, &header, is_filled, is_urgent).and_then(|file| {
        disk.rename(&unnamed, &path)?;
        disk.sync_directory(&directory)?;
        Ok(file)
    });
    match made {
        // Where this fails, nobody knows whether the segment is listed: it stays, and the next attempt overwrites it.
        Ok(file) => {
            manifest.add_segment(header.stream, header.number, is_synced).map(|()| Prepared { file, path, header })
        }
        Err(error) => {
            // Removes it under whichever name it has by now. The next attempt overwrites a file that cannot be removed.
            let _ = disk.remove(&unnamed);
            let _ = disk.remove(&path);
            Err(error)
        }
    }
}

fn make(
    disk: &dyn Disk,
    path: &str,
    header: &SegmentHeader,
    is_filled: bool,
    is_urgent: &AtomicBool,
) -> io::Result<Arc<dyn DiskFile>> {
    let file = if path.ends_with(".old") { disk.open(path)? } else { disk.create(path)? };
    if file.length()? != header.segment_bytes {
        file.allocate(0, header.segment_bytes)?;
        if is_filled {
            fill(&*file, header.segment_bytes, is_urgent)?;
        }
    }
    let mut block = [0; BLOCK_BYTES];
    let encoded = header.encode();
    block[..encoded.len()].copy_from_slice(&encoded);
    file.write_at(&block, 0)?;
    file.sync_data()?;
    Ok(file)
}

fn fill(file: &dyn DiskFile, length: u64, is_urgent: &AtomicBool) -> io::Result<()> {
    let zeros = vec![0; FILL_BYTES];
    let mut at = 0;
    while at < length && !is_urgent.load(Ordering::Relaxed) {
        let count = (length - at).min(FILL_BYTES as u64);
        // At most FILL_BYTES, so it fits.
        file.write_blocks_at(&zeros[..count as usize], at)?;
        at += count;
        if at % FILL_SYNC_BYTES == 0 {
            file.sync_data()?;
        }
    }
    Ok(())
}

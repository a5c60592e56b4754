//! Makes a damaged log startable again, and names what is lost.
//!
//! For each shard, repair keeps everything before its first missing entry and gives up everything after it. A later
//! entry without the earlier ones would be a state that never was. Repair writes a new stream beside each stream that
//! is damaged, or that holds entries to be given up. It then renames the old stream to `<stream>.damaged` and keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;

use millrace_base::{Lsn, ShardId};
use millrace_io::Disk;
use millrace_manifest::Manifest;

use crate::batch::Batch;
use crate::error::{Damage, DamageKind, LogError, RecoverError};
use crate::layout::{DAMAGED_SUFFIX, LOG_DIRECTORY, LogFiles, REPAIR_SUFFIX, StreamFiles, list_log, stream_directory};
use crate::listed;
use crate::positions::ShardRange;
use crate::recover::{Chains, Link, refuse_replicated};
use crate::scan::{EntryPlace, Sink, StreamScan, scan_stream};
use crate::segments::Segments;
use crate::writer::{Durability, Environment, Writer, WriterOptions};

/// Kept entries are written in batches of about this size.
const BATCH_BYTES: usize = 1 << 20;

/// What a repair found, and what it did or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Everything that is damaged.
    pub damage: Vec<Damage>,
    /// Per shard, the lost entries: those that are missing and those after them. If the last entries of a shard are
    /// missing, they leave no trace. So a shard that `damage` may concern, and that is not listed here, may have lost
    /// its last ones.
    pub lost: Vec<ShardRange>,
    /// Of the lost entries, those that could be read. They were given up because earlier ones are missing.
    pub given_up: u64,
    /// Entries that stay, in the streams that were written anew.
    pub kept: u64,
    /// The directories to which the old streams were renamed. Empty if nothing was changed.
    pub set_aside: Vec<String>,
}

impl RepairReport {
    /// Whether there is nothing to repair.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty() && self.lost.is_empty()
    }
}

/// Why a repair did not happen. The log is as it was, or as after the renames already done. Running the repair again
/// goes on from there.
#[derive(Debug)]
pub enum RepairError {
    /// The log cannot be read.
    Recover(RecoverError),
    /// The repaired stream could not be written.
    Log(LogError),
    /// A directory could not be renamed or removed.
    Io(io::Error),
}

impl fmt::Display for RepairError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RepairError::Recover(error) => error.fmt(formatter),
            RepairError::Log(error) => error.fmt(formatter),
            RepairError::Io(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for RepairError {}

impl From<RecoverError> for RepairError {
    fn from(error: RecoverError) -> Self {
        RepairError::Recover(error)
    }
}

impl From<LogError> for RepairError {
    fn from(error: LogError) -> Self {
        RepairError::Log(error)
    }
}

impl From<io::Error> for RepairError {
    fn from(error: io::Error) -> Self {
        RepairError::Io(error)
    }
}

/// Finds what is damaged and what a repair would lose. With `accept_loss` it repairs. It needs free space for a copy of
/// the damaged streams. A torn tail is not damage: recovery deals with it.
///
/// # Errors
/// [`RepairError`]. Trying again loses nothing.
pub fn repair(
    environment: &Environment,
    manifest: &Manifest,
    checkpoint_lsn: &dyn Fn(ShardId) -> Lsn,
    accept_loss: bool,
) -> Result<RepairReport, RepairError> {
    let disk = &*environment.disk;
    let mut files = list(disk)?;
    if accept_loss && !files.repairs.is_empty() {
        finish_interrupted(disk, &files)?;
        files = list(disk)?;
    }
    let mut report = RepairReport::default();
    let listed = manifest.streams();
    report.damage = listed::missing(&files, listed.as_ref());
    let mut survey = Survey { keeper: Keeper::new(checkpoint_lsn), affected: BTreeSet::new() };
    let judge =
        |stream: &StreamFiles, scan: &StreamScan| listed::difference(stream, scan, listed.as_ref(), checkpoint_lsn);
    let damaged = walk(disk, &files, &mut survey, &judge, &mut report.damage)?;
    survey.affected.extend(damaged);
    report.damage.append(&mut survey.keeper.damage);
    report.lost = survey.keeper.lost();
    report.given_up = survey.keeper.given_up;
    if !accept_loss {
        return Ok(report);
    }
    // The next start lists what it finds.
    manifest.forget_streams()?;
    let mut rewrite = Rewrite {
        keeper: Keeper::new(checkpoint_lsn),
        environment,
        manifest,
        affected: &survey.affected,
        runs: files.streams.iter().map(|stream| (stream.stream, stream.run().unwrap_or(stream.stream))).collect(),
        current: None,
        batch: Batch::new(),
        kept: 0,
        written: BTreeSet::new(),
        failure: None,
    };
    let walked = walk(disk, &files, &mut rewrite, &|_, _| None, &mut Vec::new());
    if let Some(error) = rewrite.failure.take() {
        return Err(error);
    }
    walked?;
    for stream in &survey.affected {
        rewrite.open(*stream)?;
    }
    rewrite.finish_current()?;
    report.kept = rewrite.kept;
    for stream in &survey.affected {
        report.set_aside.push(put_in_place(disk, *stream)?);
    }
    Ok(report)
}

fn list(disk: &dyn Disk) -> Result<LogFiles, RecoverError> {
    list_log(disk).map_err(|(file, error)| RecoverError::Io { file, error })
}

/// Walks all streams; returns those that are damaged. What `judge` finds besides needs no stream written anew.
fn walk(
    disk: &dyn Disk,
    files: &LogFiles,
    sink: &mut dyn Sink,
    judge: &dyn Fn(&StreamFiles, &StreamScan) -> Option<Damage>,
    damage: &mut Vec<Damage>,
) -> Result<BTreeSet<u64>, RecoverError> {
    let newest_run = files.streams.iter().filter_map(StreamFiles::run).max();
    let mut window = Vec::new();
    let mut damaged = BTreeSet::new();
    for stream in &files.streams {
        let is_older_run = stream.run().is_some() && stream.run() != newest_run;
        let scan = scan_stream(disk, stream, is_older_run, true, &mut window, sink)?;
        if !scan.damage.is_empty() {
            damaged.insert(stream.stream);
        }
        damage.extend(judge(stream, &scan));
        damage.extend(scan.damage);
    }
    Ok(damaged)
}

/// Decides which entries stay.
struct Keeper<'a> {
    chains: Chains<'a>,
    broken: BTreeMap<ShardId, ShardRange>,
    damage: Vec<Damage>,
    given_up: u64,
}

impl<'a> Keeper<'a> {
    fn new(checkpoint_lsn: &'a dyn Fn(ShardId) -> Lsn) -> Self {
        Self { chains: Chains::new(checkpoint_lsn), broken: BTreeMap::new(), damage: Vec::new(), given_up: 0 }
    }

    fn keeps(&mut self, place: &EntryPlace<'_>) -> bool {
        let EntryPlace { shard, lsn, .. } = *place;
        if let Some(range) = self.broken.get_mut(&shard) {
            range.last = range.last.max(lsn);
            self.given_up += 1;
            return false;
        }
        match self.chains.link(shard, lsn) {
            Link::Next | Link::Covered => true,
            Link::Broken(kind) => {
                let first = match kind {
                    DamageKind::Gap { expected, .. } => expected,
                    DamageKind::Order { after, .. } => after.next(),
                    _ => lsn,
                };
                self.damage.push(Damage { file: place.file.to_owned(), offset: place.offset, kind });
                // An entry that repeats an earlier one is dropped; the shard goes on behind it.
                if first <= lsn {
                    self.broken.insert(shard, ShardRange { shard, first, last: lsn });
                }
                self.given_up += 1;
                false
            }
        }
    }

    fn lost(&self) -> Vec<ShardRange> {
        self.broken.values().copied().collect()
    }
}

/// The first walk finds what would be lost, and which streams have to be written anew.
struct Survey<'a> {
    keeper: Keeper<'a>,
    affected: BTreeSet<u64>,
}

impl Sink for Survey<'_> {
    fn entry(&mut self, place: &EntryPlace<'_>, _body: &[u8]) -> Result<(), RecoverError> {
        // Dropping entries that others count on would undo what is committed.
        refuse_replicated(place)?;
        if !self.keeper.keeps(place) {
            self.affected.insert(place.stream);
        }
        Ok(())
    }
}

/// The second walk writes the entries of the affected streams that stay.
struct Rewrite<'a> {
    keeper: Keeper<'a>,
    environment: &'a Environment,
    manifest: &'a Manifest,
    affected: &'a BTreeSet<u64>,
    runs: BTreeMap<u64, u64>,
    current: Option<Writer>,
    batch: Batch,
    kept: u64,
    written: BTreeSet<u64>,
    failure: Option<RepairError>,
}

impl Sink for Rewrite<'_> {
    fn entry(&mut self, place: &EntryPlace<'_>, body: &[u8]) -> Result<(), RecoverError> {
        if !self.keeper.keeps(place) || !self.affected.contains(&place.stream) {
            return Ok(());
        }
        let result = self.write(place, body);
        result.map_err(|error| {
            // The walk knows only its own errors, so the cause is reported instead of this one.
            self.failure = Some(error);
            RecoverError::Io { file: place.file.to_owned(), error: io::ErrorKind::Other.into() }
        })
    }
}

impl Rewrite<'_> {
    fn write(&mut self, place: &EntryPlace<'_>, body: &[u8]) -> Result<(), RepairError> {
        if self.current.as_ref().is_none_or(|writer| writer.stream() != place.stream) {
            self.open(place.stream)?;
        }
        self.batch.push_body(place.shard, place.lsn, body);
        self.kept += 1;
        if self.batch.payload_bytes() >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Starts the repaired stream, unless it is there already. A stream that keeps nothing is empty but closed.
    fn open(&mut self, stream: u64) -> Result<(), RepairError> {
        if !self.written.insert(stream) {
            return Ok(());
        }
        self.finish_current()?;
        let options = WriterOptions {
            run: self.runs.get(&stream).copied().unwrap_or(stream),
            durability: Durability::Os,
            reserve_bytes: 0,
            ..WriterOptions::default()
        };
        let segments = Segments::new(Arc::clone(&self.environment.disk), self.manifest.clone());
        let directory = stream_directory(stream) + REPAIR_SUFFIX;
        let environment = self.environment.clone();
        self.current = Some(Writer::open_in(environment, segments, options, stream, directory)?);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), RepairError> {
        if let Some(writer) = self.current.as_mut() {
            writer.append(&mut self.batch)?;
        }
        Ok(())
    }

    fn finish_current(&mut self) -> Result<(), RepairError> {
        self.flush()?;
        if let Some(writer) = self.current.take() {
            writer.close()?;
        }
        Ok(())
    }
}

/// Sets the old stream aside and gives its name to the repaired one. [`finish_interrupted`] handles a crash in between.
fn put_in_place(disk: &dyn Disk, stream: u64) -> io::Result<String> {
    let directory = stream_directory(stream);
    let mut aside = format!("{directory}{DAMAGED_SUFFIX}");
    let mut attempt = 1;
    while disk.exists(&aside)? {
        attempt += 1;
        aside = format!("{directory}{DAMAGED_SUFFIX}.{attempt}");
    }
    disk.rename(&directory, &aside)?;
    disk.sync_directory(LOG_DIRECTORY)?;
    disk.rename(&format!("{directory}{REPAIR_SUFFIX}"), &directory)?;
    disk.sync_directory(LOG_DIRECTORY)?;
    Ok(aside)
}

/// Handles an earlier repair that stopped. If the old stream is already set aside, the new one is complete and takes
/// its place. Otherwise the new one is thrown away and made again.
fn finish_interrupted(disk: &dyn Disk, files: &LogFiles) -> io::Result<()> {
    for number in &files.repairs {
        let directory = stream_directory(*number);
        let repaired = format!("{directory}{REPAIR_SUFFIX}");
        if files.streams.iter().any(|stream| stream.stream == *number) {
            for entry in disk.list(&repaired)? {
                disk.remove(&format!("{repaired}/{}", entry.name))?;
            }
            disk.remove(&repaired)?;
        } else {
            disk.rename(&repaired, &directory)?;
        }
        disk.sync_directory(LOG_DIRECTORY)?;
    }
    Ok(())
}

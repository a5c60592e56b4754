//! The place where backups are kept: what is in it, and how a backup comes to be there.
//!
//! ```text
//! place/
//!   millrace-backup.json   format; marks the folder, and is locked
//!   chunks/ab/ab…          chunks by their hashes
//!   snapshots/ID           one document for each backup
//! ```
//!
//! The order of a backup makes it safe: chunks, sync, snapshot, sync. A chunk that no snapshot names may be cut by a power
//! failure, so its bytes are compared before a new snapshot relies on it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use crate::archive::{self, Received};
use crate::chunks::{ChunkName, hash};
use crate::limits::{CHUNK_BYTES, DOCUMENT_BYTES};
use crate::snapshot::{FileRecord, Snapshot, id_of};
use crate::{BackupError, Missing, Place, Sent};

/// Marks a place of backups.
const MARK_FILE: &str = "millrace-backup.json";

/// The version of a place that this build makes and uses.
const FORMAT: u32 = 1;

pub(crate) const SNAPSHOTS: &str = "snapshots";
pub(crate) const CHUNKS: &str = "chunks";

#[derive(Serialize, Deserialize)]
struct Mark {
    format: u32,
}

/// A place of backups.
pub struct Repository {
    pub(crate) place: Box<dyn Place>,
}

/// What a backup did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// The new snapshot's id.
    pub id: String,
    /// The moment that it shows, Unix milliseconds.
    pub taken_ms: u64,
    /// Files in it.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Chunks that the place did not have.
    pub new_chunks: u64,
    /// Their bytes.
    pub new_bytes: u64,
    /// What is not in it, since the node could not read it.
    pub missing: Vec<Missing>,
}

/// What was found in a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Snapshots looked at.
    pub snapshots: usize,
    /// Different chunks read.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is damaged or missing, a sentence each.
    pub damage: Vec<String>,
}

impl Repository {
    /// Opens a place.
    ///
    /// # Errors
    /// [`BackupError::Refused`] if it is not a place of backups.
    pub fn open(place: Box<dyn Place>) -> Result<Self, BackupError> {
        let repository = Self { place };
        let bytes = match repository.place.read(MARK_FILE, DOCUMENT_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let what = format!("{} holds no backups: it has no {MARK_FILE}", repository.name());
                return Err(BackupError::Refused(what));
            }
            bytes => bytes.map_err(|error| repository.failed(MARK_FILE, error))?,
        };
        match serde_json::from_slice(&bytes) {
            Ok(Mark { format: FORMAT }) => Ok(repository),
            Ok(Mark { format }) => {
                let what = format!("{} is of format {format}; this program knows {FORMAT}", repository.name());
                Err(BackupError::Refused(what))
            }
            Err(error) => Err(BackupError::Damaged(format!("{}: {error}", repository.path(MARK_FILE)))),
        }
    }

    /// Opens a place, or makes it where there is none: in a folder that is empty or is not there yet.
    ///
    /// # Errors
    /// [`BackupError::Refused`] for a folder with other files in it, and for one inside a data directory.
    pub fn open_or_make(place: Box<dyn Place>) -> Result<Self, BackupError> {
        let name = place.name();
        let failed = |error| BackupError::io(&name, error);
        if place.length(MARK_FILE).map_err(failed)?.is_some() {
            return Self::open(place);
        }
        if let Some(why) = place.refusal().map_err(failed)? {
            return Err(BackupError::Refused(format!("{name} {why}")));
        }
        let mark = serde_json::to_vec(&Mark { format: FORMAT }).map_err(|error| failed(error.into()))?;
        for folder in ["", CHUNKS, SNAPSHOTS] {
            place.create_folder(folder).map_err(failed)?;
        }
        place.write(MARK_FILE, &mark).map_err(failed)?;
        Ok(Self { place })
    }

    fn name(&self) -> String {
        self.place.name()
    }

    /// Where a file is, for people.
    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.name())
    }

    pub(crate) fn failed(&self, name: &str, error: io::Error) -> BackupError {
        BackupError::io(self.path(name), error)
    }

    pub(crate) fn lock(&self, is_alone: bool) -> Result<Box<dyn Send>, BackupError> {
        self.place.lock(MARK_FILE, is_alone).map_err(|error| self.failed(MARK_FILE, error))
    }

    /// All snapshots, oldest first.
    ///
    /// # Errors
    /// [`BackupError::Damaged`] for one that cannot be read.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, BackupError> {
        let ids = self.place.list(SNAPSHOTS, false).map_err(|error| self.failed(SNAPSHOTS, error))?;
        ids.iter().map(|id| self.read_snapshot(id)).collect()
    }

    /// One snapshot: the newest where no id is given.
    ///
    /// # Errors
    /// [`BackupError::Refused`] where there is no such snapshot; [`BackupError::Damaged`] for one that cannot be read.
    pub fn snapshot(&self, id: Option<&str>) -> Result<Snapshot, BackupError> {
        let ids = self.place.list(SNAPSHOTS, false).map_err(|error| self.failed(SNAPSHOTS, error))?;
        let found = match id {
            Some(id) => ids.iter().find(|known| *known == id),
            None => ids.last(),
        };
        match found {
            Some(id) => self.read_snapshot(id),
            None => Err(BackupError::Refused(match id {
                Some(id) => format!("{} has no backup {id:?}", self.name()),
                None => format!("{} has no backup yet", self.name()),
            })),
        }
    }

    fn read_snapshot(&self, id: &str) -> Result<Snapshot, BackupError> {
        let name = format!("{SNAPSHOTS}/{id}");
        let bytes = self.place.read(&name, DOCUMENT_BYTES).map_err(|error| self.failed(&name, error))?;
        let damaged = |what| BackupError::Damaged(format!("{}: {what}", self.path(&name)));
        let snapshot = Snapshot::decode(&bytes).map_err(damaged)?;
        if snapshot.id != id {
            return Err(damaged(format!("it is the snapshot {}, under another name", snapshot.id)));
        }
        Ok(snapshot)
    }

    /// Keeps what a node sends. The snapshot is there and durable when this returns; after an error there is none.
    ///
    /// # Errors
    /// [`BackupError::Archive`] if the archive is not whole; [`BackupError::Io`] if the place cannot be written.
    pub fn backup(&self, archive: impl Read) -> Result<BackupReport, BackupError> {
        let _lock = self.lock(false)?;
        let mut writer = Writer::new(self)?;
        let received = archive::read(archive, &mut |path, bytes, content| writer.file(path, bytes, content))?;
        writer.finish(received)
    }

    /// Reads every chunk of these snapshots, and compares it with its name. A chunk with other bytes goes: a later backup
    /// would rely on it, and now writes it again if the data still has it. That mends these snapshots, too.
    ///
    /// # Errors
    /// What the place answers. Damage is in the report.
    pub fn verify(&self, snapshots: &[Snapshot]) -> Result<VerifyReport, BackupError> {
        let _lock = self.lock(false)?;
        let mut report = VerifyReport { snapshots: snapshots.len(), ..VerifyReport::default() };
        let mut seen = BTreeSet::new();
        // What is wrong with a chunk, and the snapshots that need it.
        let mut damaged: BTreeMap<&ChunkName, (String, Vec<&str>)> = BTreeMap::new();
        for snapshot in snapshots {
            for file in &snapshot.files {
                for (chunk, bytes) in file.parts() {
                    if seen.insert(chunk) {
                        report.chunks += 1;
                        report.bytes += bytes;
                        if let Some(what) = self.damage_of(chunk, bytes, &file.path)? {
                            damaged.insert(chunk, (what, Vec::new()));
                        }
                    }
                    if let Some((_, ids)) = damaged.get_mut(chunk)
                        && ids.last() != Some(&snapshot.id.as_str())
                    {
                        ids.push(&snapshot.id);
                    }
                }
            }
        }
        let told = |(what, ids): (String, Vec<&str>)| format!("{what} (snapshots: {})", ids.join(", "));
        report.damage = damaged.into_values().map(told).collect();
        Ok(report)
    }

    /// What is wrong with a chunk. If it has other bytes twice, it goes.
    fn damage_of(&self, chunk: &ChunkName, bytes: u64, of: &str) -> Result<Option<String>, BackupError> {
        let is_damaged = |read: &Result<Vec<u8>, BackupError>| matches!(read, Err(BackupError::Damaged(_)));
        let mut read = self.read_chunk(chunk, bytes, of);
        if is_damaged(&read) {
            read = self.read_chunk(chunk, bytes, of);
        }
        let what = match read {
            Ok(_) => return Ok(None),
            Err(BackupError::Damaged(what)) => what,
            Err(error) => return Err(error),
        };
        let name = chunk.path();
        match self.place.remove(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Ok(Some(format!("{what}; remove {}, which could not be done now: {error}", self.path(&name))))
            }
            _ => Ok(Some(what)),
        }
    }

    /// The bytes of a chunk of the file `of`, after a look at their hash.
    pub(crate) fn read_chunk(&self, chunk: &ChunkName, bytes: u64, of: &str) -> Result<Vec<u8>, BackupError> {
        let name = chunk.path();
        let damaged = |what| Err(BackupError::Damaged(format!("chunk {chunk} of {of} {what}")));
        match self.place.read(&name, CHUNK_BYTES as u64) {
            Ok(found) if found.len() as u64 == bytes && hash(&found) == *chunk => Ok(found),
            Ok(_) => damaged("has other bytes than were backed up"),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => damaged("has more bytes than were backed up"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => damaged("is missing"),
            Err(error) => Err(self.failed(&name, error)),
        }
    }
}

/// A backup that is being kept.
struct Writer<'a> {
    repository: &'a Repository,
    /// Chunks that snapshots name: they are durable.
    durable: BTreeSet<ChunkName>,
    /// Chunks that this backup has written or compared.
    own: BTreeSet<ChunkName>,
    folders: BTreeSet<String>,
    files: Vec<FileRecord>,
    buffer: Vec<u8>,
    new_chunks: u64,
    new_bytes: u64,
}

impl<'a> Writer<'a> {
    fn new(repository: &'a Repository) -> Result<Self, BackupError> {
        let snapshots = repository.snapshots()?;
        let durable = snapshots.into_iter().flat_map(|snapshot| snapshot.files).flat_map(|file| file.chunks).collect();
        Ok(Self {
            repository,
            durable,
            own: BTreeSet::new(),
            folders: BTreeSet::new(),
            files: Vec::new(),
            buffer: Vec::with_capacity(CHUNK_BYTES),
            new_chunks: 0,
            new_bytes: 0,
        })
    }

    fn file(&mut self, path: &str, bytes: u64, content: &mut dyn Read) -> Result<(), BackupError> {
        let mut chunks = Vec::new();
        loop {
            self.buffer.clear();
            let read = content.take(CHUNK_BYTES as u64).read_to_end(&mut self.buffer);
            read.map_err(|error| BackupError::Archive(format!("{path} did not come to its end: {error}")))?;
            if self.buffer.is_empty() {
                break;
            }
            chunks.push(self.keep()?);
        }
        self.files.push(FileRecord { path: path.to_owned(), bytes, chunks });
        Ok(())
    }

    /// Keeps the bytes of the buffer.
    fn keep(&mut self) -> Result<ChunkName, BackupError> {
        let chunk = hash(&self.buffer);
        if !self.own.contains(&chunk) {
            if !self.is_kept(&chunk)? {
                self.write(&chunk)?;
            }
            self.own.insert(chunk.clone());
        }
        Ok(chunk)
    }

    fn is_kept(&self, chunk: &ChunkName) -> Result<bool, BackupError> {
        let (place, name) = (&self.repository.place, chunk.path());
        if place.length(&name).map_err(|error| self.repository.failed(&name, error))? != Some(self.buffer.len() as u64)
        {
            return Ok(false);
        }
        if place.is_durable_at_once() || self.durable.contains(chunk) {
            return Ok(true);
        }
        // Left by a backup that broke off. The power may have failed since.
        let found = place.read(&name, CHUNK_BYTES as u64).map_err(|error| self.repository.failed(&name, error))?;
        Ok(found == self.buffer)
    }

    fn write(&mut self, chunk: &ChunkName) -> Result<(), BackupError> {
        let (place, name) = (&self.repository.place, chunk.path());
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        if !self.folders.contains(folder) {
            place.create_folder(folder).map_err(|error| self.repository.failed(folder, error))?;
            self.folders.insert(folder.to_owned());
        }
        place.write(&name, &self.buffer).map_err(|error| self.repository.failed(&name, error))?;
        self.new_chunks += 1;
        self.new_bytes += self.buffer.len() as u64;
        Ok(())
    }

    fn finish(mut self, received: Received) -> Result<BackupReport, BackupError> {
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        let Received { sent: Sent { server, identity, taken_ms, missing }, folders } = received;
        let mut snapshot =
            Snapshot { id: id_of(taken_ms), taken_ms, server, identity, folders, files: self.files, missing };
        let (repository, place) = (self.repository, &self.repository.place);
        let failed = |name: &str, error| repository.failed(name, error);
        // Two nodes may be backed up to one place at the same moment.
        let plain = snapshot.id.clone();
        for number in 2u32.. {
            let name = format!("{SNAPSHOTS}/{}", snapshot.id);
            if place.length(&name).map_err(|error| failed(&name, error))?.is_none() {
                break;
            }
            snapshot.id = format!("{plain}-{number}");
        }
        let bytes = snapshot.encode().map_err(|error| failed(SNAPSHOTS, error.into()))?;
        place.sync().map_err(|error| failed(CHUNKS, error))?;
        let name = format!("{SNAPSHOTS}/{}", snapshot.id);
        let kept = place.write(&name, &bytes).and_then(|()| place.sync());
        kept.map_err(|error| {
            // Nobody knows whether it is durable.
            let _ = place.remove(&name);
            failed(&name, error)
        })?;
        Ok(BackupReport {
            taken_ms,
            files: snapshot.files.len(),
            bytes: snapshot.bytes(),
            new_chunks: self.new_chunks,
            new_bytes: self.new_bytes,
            id: snapshot.id,
            missing: snapshot.missing,
        })
    }
}

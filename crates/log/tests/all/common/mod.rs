//! A disk in memory that can lose power, fill up, fail an fsync and be damaged; and short ways
//! to write and read logs. Names are durable at once here; the simulator loses those too.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use millrace_base::{EntityKey, Lsn, ShardId, UnixMillis, Value, ValueKind};
use millrace_format::{Entry, EntryRef, Write};
use millrace_io::{Clock, DirectoryEntry, Disk, DiskFile, Random};
use millrace_log::{Batch, Environment, RecoverError, Recovered, Segments, Writer, WriterOptions, recover};
use millrace_manifest::Manifest;

const SECTOR: usize = 512;

/// Numbers that look random and are the same for the same seed.
#[derive(Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }
}

#[derive(Clone)]
enum Pending {
    Write(u64, Vec<u8>),
    Length(u64),
}

#[derive(Clone, Default)]
struct FileState {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, Arc<Mutex<FileState>>>,
    directories: BTreeSet<String>,
}

#[derive(Default)]
struct Faults {
    /// Changing operations left before the power goes.
    operations_left: Option<u64>,
    /// Operations tried after the power went.
    refused: u64,
    operations: u64,
    capacity: Option<u64>,
    failing_syncs: bool,
    failing_writes: bool,
}

#[derive(Clone, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
    faults: Arc<Mutex<Faults>>,
}

struct MemoryFile {
    file: Arc<Mutex<FileState>>,
    disk: MemoryDisk,
}

fn power_is_off() -> io::Error {
    io::Error::other("the power is off")
}

fn apply(bytes: &mut Vec<u8>, offset: u64, written: &[u8]) {
    let end = offset as usize + written.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset as usize..end].copy_from_slice(written);
}

impl MemoryDisk {
    pub fn cut_power_after(&self, operations: u64) {
        self.faults.lock().unwrap().operations_left = Some(operations);
    }

    pub fn operations(&self) -> u64 {
        self.faults.lock().unwrap().operations
    }

    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.faults.lock().unwrap().capacity = bytes;
    }

    pub fn fail_syncs(&self, failing: bool) {
        self.faults.lock().unwrap().failing_syncs = failing;
    }

    pub fn fail_writes(&self, failing: bool) {
        self.faults.lock().unwrap().failing_writes = failing;
    }

    fn operation(&self) -> io::Result<()> {
        let mut faults = self.faults.lock().unwrap();
        faults.operations += 1;
        match &mut faults.operations_left {
            Some(0) => {
                faults.refused += 1;
                Err(power_is_off())
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn is_the_moment_of_the_cut(&self) -> bool {
        self.faults.lock().unwrap().refused == 1
    }

    pub fn used(&self) -> u64 {
        self.state.lock().unwrap().files.values().map(|file| file.lock().unwrap().bytes.len() as u64).sum()
    }

    fn copy(&self, change: &mut dyn FnMut(&FileState) -> FileState) -> MemoryDisk {
        let state = self.state.lock().unwrap();
        let files = state.files.iter().map(|(name, file)| {
            let copied = change(&file.lock().unwrap());
            (name.clone(), Arc::new(Mutex::new(copied)))
        });
        let copied = State { files: files.collect(), directories: state.directories.clone() };
        MemoryDisk { state: Arc::new(Mutex::new(copied)), faults: Arc::default() }
    }

    /// The disk as another process finds it after kill -9.
    pub fn after_kill(&self) -> MemoryDisk {
        self.copy(&mut FileState::clone)
    }

    /// The disk after a power cut. Each sector that was not synced may be there or not.
    pub fn after_power_cut(&self, dice: &mut Dice) -> MemoryDisk {
        let share = dice.below(4);
        self.copy(&mut |file| {
            let mut bytes = file.durable.clone();
            for pending in &file.pending {
                match pending {
                    Pending::Length(length) if dice.below(3) < share => bytes.resize(*length as usize, 0),
                    Pending::Length(_) => {}
                    Pending::Write(offset, written) => {
                        for (index, sector) in written.chunks(SECTOR).enumerate() {
                            if dice.below(3) < share {
                                apply(&mut bytes, offset + (index * SECTOR) as u64, sector);
                            }
                        }
                    }
                }
            }
            FileState { durable: bytes.clone(), bytes, pending: Vec::new() }
        })
    }

    /// Everything on the disk.
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state.lock().unwrap();
        state.files.iter().map(|(name, file)| (name.clone(), file.lock().unwrap().bytes.clone())).collect()
    }

    pub fn change(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let file = Arc::clone(&self.state.lock().unwrap().files[path]);
        let mut file = file.lock().unwrap();
        change(&mut file.bytes);
        file.durable = file.bytes.clone();
        file.pending.clear();
    }

    pub fn put(&self, path: &str, bytes: &[u8]) {
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        self.create_directory(directory).unwrap();
        self.create(path).unwrap();
        self.change(path, |content| *content = bytes.to_vec());
    }
}

impl Disk for MemoryDisk {
    fn create_directory(&self, path: &str) -> io::Result<()> {
        self.operation()?;
        let mut name = String::new();
        for part in path.split('/') {
            name = if name.is_empty() { part.to_owned() } else { format!("{name}/{part}") };
            self.state.lock().unwrap().directories.insert(name.clone());
        }
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<DirectoryEntry>> {
        let state = self.state.lock().unwrap();
        if !state.directories.contains(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let below = |name: &String| {
            let rest = name.strip_prefix(path)?.strip_prefix('/')?;
            (!rest.contains('/')).then(|| rest.to_owned())
        };
        let directories = state.directories.iter().filter_map(below);
        let mut entries: Vec<_> = directories.map(|name| DirectoryEntry { name, is_directory: true }).collect();
        let files = state.files.keys().filter_map(below);
        entries.extend(files.map(|name| DirectoryEntry { name, is_directory: false }));
        entries.sort();
        Ok(entries)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.state.lock().unwrap();
        let file = state.files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(MemoryFile { file: Arc::clone(file), disk: self.clone() }))
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.operation()?;
        let file = Arc::default();
        self.state.lock().unwrap().files.insert(path.to_owned(), Arc::clone(&file));
        Ok(Arc::new(MemoryFile { file, disk: self.clone() }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.operation()?;
        let mut state = self.state.lock().unwrap();
        if let Some(file) = state.files.remove(from) {
            state.files.insert(to.to_owned(), file);
            return Ok(());
        }
        if !state.directories.remove(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.directories.insert(to.to_owned());
        let prefix = format!("{from}/");
        let inside: Vec<_> = state.files.keys().filter(|name| name.starts_with(&prefix)).cloned().collect();
        for name in inside {
            let file = state.files.remove(&name).unwrap();
            state.files.insert(format!("{to}/{}", &name[prefix.len()..]), file);
        }
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.operation()?;
        let mut state = self.state.lock().unwrap();
        let prefix = format!("{path}/");
        if state.files.remove(path).is_some() {
            return Ok(());
        }
        if state.files.keys().any(|name| name.starts_with(&prefix)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        if state.directories.remove(path) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn sync_directory(&self, _path: &str) -> io::Result<()> {
        self.operation()
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        let state = self.state.lock().unwrap();
        Ok(state.files.contains_key(path) || state.directories.contains(path))
    }

    fn available_bytes(&self) -> io::Result<u64> {
        let capacity = self.faults.lock().unwrap().capacity.unwrap_or(u64::MAX);
        Ok(capacity.saturating_sub(self.used()))
    }
}

impl MemoryFile {
    fn check_space(&self, end: u64) -> io::Result<()> {
        let more = end.saturating_sub(self.file.lock().unwrap().bytes.len() as u64);
        if more > 0 && self.disk.available_bytes()? < more {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let file = self.file.lock().unwrap();
        let rest = file.bytes.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check_space(offset + bytes.len() as u64)?;
        let alive = self.disk.operation();
        if self.disk.faults.lock().unwrap().failing_writes {
            return Err(io::Error::other("the disk cannot write"));
        }
        let mut file = self.file.lock().unwrap();
        // The write during which the power goes may reach the disk in part.
        if alive.is_ok() || self.disk.is_the_moment_of_the_cut() {
            file.pending.push(Pending::Write(offset, bytes.to_vec()));
            apply(&mut file.bytes, offset, bytes);
        }
        alive
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.operation()?;
        let is_failing = self.disk.faults.lock().unwrap().failing_syncs;
        let mut file = self.file.lock().unwrap();
        let pending = std::mem::take(&mut file.pending);
        if is_failing {
            // As on Linux: bytes that could not be written count as clean from now on. They can still be read, and no
            // later sync writes them.
            return Err(io::Error::other("the disk cannot sync"));
        }
        for pending in pending {
            match pending {
                Pending::Write(offset, written) => apply(&mut file.durable, offset, &written),
                Pending::Length(length) => file.durable.resize(length as usize, 0),
            }
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check_space(offset + length)?;
        self.disk.operation()?;
        let mut file = self.file.lock().unwrap();
        let end = (offset + length).max(file.bytes.len() as u64);
        file.pending.push(Pending::Length(end));
        file.bytes.resize(end as usize, 0);
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.disk.operation()?;
        let mut file = self.file.lock().unwrap();
        file.pending.push(Pending::Length(length));
        file.bytes.resize(length as usize, 0);
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.lock().unwrap().bytes.len() as u64)
    }
}

/// A clock that moves a microsecond at each read.
#[derive(Default)]
pub struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn now(&self) -> u64 {
        0
    }

    fn monotonic_ns(&self) -> u64 {
        self.0.fetch_add(1000, Ordering::Relaxed)
    }
}

pub struct TestRandom(Mutex<Dice>);

impl TestRandom {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(Dice(seed)))
    }
}

impl Random for TestRandom {
    fn fill(&self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.0.lock().unwrap().roll() as u8;
        }
    }
}

pub fn environment(disk: &MemoryDisk) -> Environment {
    Environment {
        disk: Arc::new(disk.clone()),
        clock: Arc::new(TestClock::default()),
        random: Arc::new(TestRandom::new(7)),
    }
}

/// Small segments: a header, three batches of one block each, room for the closing one.
pub fn small() -> WriterOptions {
    WriterOptions {
        first_segment_bytes: 5 * 4096,
        segment_bytes: 5 * 4096,
        reserve_bytes: 0,
        ..WriterOptions::default()
    }
}

/// A manifest on a disk of its own that lists nothing: for tests of what the log alone can tell.
pub fn unlisted() -> Manifest {
    let elsewhere: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    Manifest::new(&elsewhere, [0; 16])
}

pub fn open(disk: &MemoryDisk, options: WriterOptions) -> Writer {
    let segments = Segments::new(Arc::new(disk.clone()), unlisted());
    Writer::open(environment(disk), segments, options).expect("a writer")
}

/// An entry as the tests see it: shard, LSN, content.
pub type Delivered = (u16, u64, Vec<u8>);

pub fn push(batch: &mut Batch, shard: u16, lsn: u64, content: &[u8]) {
    let value = Some(Value::new(ValueKind::Bytes, content));
    let writes = [Write { entity: EntityKey::internal("test", b"k"), field: (*b"f").into(), value }];
    batch.push(&Entry { shard: ShardId(shard), lsn: Lsn(lsn), time: UnixMillis(lsn), writes: &writes });
}

/// Fills a batch with entries whose content tells them apart.
pub fn batch_of(entries: &[(u16, u64)]) -> Batch {
    let mut batch = Batch::new();
    for (shard, lsn) in entries {
        push(&mut batch, *shard, *lsn, format!("{shard}/{lsn}").as_bytes());
    }
    batch
}

pub fn seen(shard: u16, lsn: u64) -> Delivered {
    (shard, lsn, format!("{shard}/{lsn}").into_bytes())
}

pub fn see(entry: &EntryRef<'_>) -> Delivered {
    let content = entry.writes[0].value.map(|value| value[1..].to_vec()).unwrap_or_default();
    (entry.shard.0, entry.lsn.0, content)
}

pub fn recover_above(
    disk: &MemoryDisk,
    checkpoint: &dyn Fn(ShardId) -> Lsn,
) -> Result<(Vec<Delivered>, Recovered), RecoverError> {
    let mut entries = Vec::new();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let recovered = recover(&disk, &unlisted(), checkpoint, &mut |entry| entries.push(see(&entry)))?;
    Ok((entries, recovered))
}

pub fn recover_all(disk: &MemoryDisk) -> Result<(Vec<Delivered>, Recovered), RecoverError> {
    recover_above(disk, &|_| Lsn::ZERO)
}

//! A log of one segment file, with its checksums as given, and made right. It is inspected without being changed,
//! then recovered. A refused log is damaged and stays as it was. An accepted log is sealed, and gives the same
//! entries again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use millrace_base::{Lsn, ShardId};
use millrace_format::{
    BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, EntryRef, FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, crc32c,
    read_frame,
};
use millrace_io::{DirectoryEntry, Disk, DiskFile};
use millrace_log::{DamageKind, RecoverError, inspect, recover};
use millrace_manifest::Manifest;

const DIRECTORIES: [&str; 3] = ["", "log", "log/0000000001"];
const SEGMENT: &str = "log/0000000001/0000000001.log";

/// No input is near this size. A write behind it has lost its way.
const FILE_BYTES: u64 = 16 << 20;

pub(crate) fn run(bytes: &[u8]) {
    check(bytes);
    check(&with_right_checksums(bytes));
}

fn check(bytes: &[u8]) {
    let disk = MemoryDisk::with_segment(bytes);
    let mut visited = 0;
    let report = inspect(&disk, &mut |_, _| visited += 1);
    assert_eq!(disk.segment().as_deref(), Some(bytes), "looking changes nothing");
    match recover_all(&disk) {
        Ok((entries, _)) => {
            let report = report.expect("what recovers can be looked at");
            assert_eq!((report.damage, visited), (Vec::new(), entries.len()));
            let (again, unclosed) = recover_all(&disk).expect("what was sealed recovers");
            assert_eq!((again, unclosed), (entries, 0));
        }
        Err(RecoverError::Damaged(damage)) => {
            assert_eq!(disk.segment().as_deref(), Some(bytes), "a damaged log is not touched");
            // An inspection knows no checkpoints, so it does not report a gap before a shard's first entry.
            if !matches!(damage.kind, DamageKind::Gap { .. }) {
                assert!(report.map_or(true, |report| !report.damage.is_empty()), "{damage}");
            }
        }
        Err(error) => {
            assert_eq!(disk.segment().as_deref(), Some(bytes), "a refused log is not touched");
            assert!(!error.to_string().is_empty());
        }
    }
}

/// The entries, which follow one another in each shard, and the number of streams that were not closed.
fn recover_all(disk: &MemoryDisk) -> Result<(Vec<(ShardId, Lsn)>, usize), RecoverError> {
    let mut entries = Vec::new();
    let mut last: BTreeMap<ShardId, Lsn> = BTreeMap::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let known = Manifest::open(&shared).expect("the manifest that recovery wrote");
    let manifest = known.unwrap_or_else(|| Manifest::new(&shared, [0; 16]));
    let recovered = recover(&shared, &manifest, &|_| Lsn::ZERO, &mut |entry: EntryRef<'_>| {
        let before = last.insert(entry.shard, entry.lsn).unwrap_or(Lsn::ZERO);
        assert_eq!(entry.lsn, before.next());
        entries.push((entry.shard, entry.lsn));
    })?;
    assert_eq!((recovered.applied, recovered.skipped), (entries.len() as u64, 0));
    assert_eq!(recovered.last, last);
    Ok((entries, recovered.unclosed.len()))
}

/// Repairs what a change of another byte broke: the checksums of the segment's header, of blocks that begin like a
/// batch, and of the frames behind them.
fn with_right_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    fix_header(&mut bytes, SEGMENT_HEADER_BYTES);
    for start in (BLOCK_BYTES..bytes.len()).step_by(BLOCK_BYTES) {
        let batch = &mut bytes[start..];
        if !batch.starts_with(b"MBAT") {
            continue;
        }
        fix_header(batch, BATCH_HEADER_BYTES);
        let Some((header, binding)) = BatchHeader::decode(batch) else { continue };
        let mut frame = BATCH_HEADER_BYTES;
        for _ in 0..header.entry_count {
            let Some((body, _)) = batch.get(frame..).and_then(|rest| read_frame(rest, binding)) else { break };
            let end = frame + FRAME_HEADER_BYTES + body.len();
            let checksum = crc32c(&batch[frame + 4..end]) ^ binding;
            batch[frame..frame + 4].copy_from_slice(&checksum.to_le_bytes());
            frame = end;
        }
    }
    bytes
}

fn fix_header(bytes: &mut [u8], header_bytes: usize) {
    if let Some((fields, checksum)) = bytes.get_mut(..header_bytes).map(|header| header.split_at_mut(header_bytes - 4))
    {
        checksum.copy_from_slice(&crc32c(fields).to_le_bytes());
    }
}

/// A disk that holds the log's directories and their files, and never fails.
#[derive(Clone, Default)]
struct MemoryDisk {
    files: Arc<Mutex<BTreeMap<String, MemoryFile>>>,
    directories: Arc<Mutex<BTreeSet<String>>>,
}

#[derive(Clone, Default)]
struct MemoryFile(Arc<Mutex<Vec<u8>>>);

impl MemoryDisk {
    fn with_segment(bytes: &[u8]) -> Self {
        let disk = Self::default();
        disk.directories.lock().unwrap().extend(DIRECTORIES.map(str::to_owned));
        let file = MemoryFile(Arc::new(Mutex::new(bytes.to_vec())));
        disk.files.lock().unwrap().insert(SEGMENT.to_owned(), file);
        disk
    }

    fn segment(&self) -> Option<Vec<u8>> {
        self.files.lock().unwrap().get(SEGMENT).map(|file| file.0.lock().unwrap().clone())
    }
}

fn name_in<'a>(directory: &str, path: &'a str) -> Option<&'a str> {
    let name = path.strip_prefix(directory)?.strip_prefix('/')?;
    (!name.contains('/')).then_some(name)
}

impl Disk for MemoryDisk {
    fn create_directory(&self, path: &str) -> io::Result<()> {
        self.directories.lock().unwrap().insert(path.to_owned());
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<DirectoryEntry>> {
        let (directories, files) = (self.directories.lock().unwrap(), self.files.lock().unwrap());
        if !directories.contains(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let entry = |name: &str, is_directory| DirectoryEntry { name: name.to_owned(), is_directory };
        let folders = directories.iter().filter_map(|other| name_in(path, other)).map(|name| entry(name, true));
        let files = files.keys().filter_map(|other| name_in(path, other)).map(|name| entry(name, false));
        let mut entries: Vec<_> = folders.chain(files).collect();
        entries.sort();
        Ok(entries)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.files.lock().unwrap().get(path).cloned();
        file.map(|file| Arc::new(file) as Arc<dyn DiskFile>).ok_or(io::ErrorKind::NotFound.into())
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        assert!(path.starts_with("manifest"), "recovery makes no other files: {path}");
        let file = MemoryFile::default();
        self.files.lock().unwrap().insert(path.to_owned(), file.clone());
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        assert!(to == "manifest", "recovery renames nothing else: {from}");
        let file = self.files.lock().unwrap().remove(from).ok_or(io::ErrorKind::NotFound)?;
        self.files.lock().unwrap().insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        if self.files.lock().unwrap().remove(path).is_some() {
            return Ok(());
        }
        if !self.list(path)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.directories.lock().unwrap().remove(path);
        Ok(())
    }

    fn sync_directory(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        Ok(self.files.lock().unwrap().contains_key(path) || self.directories.lock().unwrap().contains(path))
    }

    fn available_bytes(&self) -> io::Result<u64> {
        Ok(FILE_BYTES)
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let file = self.0.lock().unwrap();
        let rest = usize::try_from(offset).ok().and_then(|start| file.get(start..)).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        if self.length()? < end {
            self.truncate(end)?;
        }
        self.0.lock().unwrap()[offset as usize..end as usize].copy_from_slice(bytes);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        let end = (offset + length).max(self.length()?);
        self.truncate(end)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        assert!(length <= FILE_BYTES, "a file of {length} bytes");
        self.0.lock().unwrap().resize(length as usize, 0);
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().len() as u64)
    }
}

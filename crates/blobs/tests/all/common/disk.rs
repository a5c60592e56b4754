//! A disk in memory for real threads. It can lose power, fill up, fail a sync and be damaged. Names that were not synced
//! with their directory can be lost, too: those of one directory from some change on, as file systems journal them in order.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

use millrace_io::{DirectoryEntry, Disk, DiskFile};

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

#[derive(Clone, Default)]
struct Inode {
    visible: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
}

#[derive(Clone)]
enum Pending {
    Write(u64, Vec<u8>),
    Length(u64),
}

#[derive(Clone)]
enum Node {
    File(Arc<Mutex<Inode>>),
    Directory,
}

type Tree = BTreeMap<String, Node>;

#[derive(Clone)]
enum NameChange {
    Make(String, Node),
    Rename(String, String),
    Remove(String),
}

#[derive(Clone, Default)]
pub struct Faults {
    /// Changing operations left before the power goes.
    pub operations_left: Option<u64>,
    pub capacity: Option<u64>,
    pub is_failing_file_syncs: bool,
    pub is_failing_directory_syncs: bool,
    pub is_failing_creates: bool,
    /// How long a sync takes.
    pub sync_ms: u64,
}

#[derive(Default)]
struct State {
    visible: Tree,
    durable: Tree,
    pending: Vec<NameChange>,
    faults: Faults,
    operations: u64,
    refused: u64,
    file_syncs: u64,
}

/// Clones share the disk.
#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<State>>);

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

fn apply(bytes: &mut Vec<u8>, offset: u64, written: &[u8]) {
    let end = offset as usize + written.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset as usize..end].copy_from_slice(written);
}

impl NameChange {
    fn directory(&self) -> &str {
        match self {
            Self::Make(path, _) | Self::Rename(path, _) | Self::Remove(path) => parent(path),
        }
    }

    fn apply(&self, tree: &mut Tree) {
        match self {
            Self::Make(path, node) => {
                tree.insert(path.clone(), node.clone());
            }
            Self::Rename(from, to) => {
                if let Some(node) = tree.remove(from) {
                    tree.insert(to.clone(), node);
                }
            }
            Self::Remove(path) => {
                tree.remove(path);
            }
        }
    }
}

impl State {
    /// Says whether the power is on; an operation at the moment of the cut may have an effect.
    fn operate(&mut self) -> io::Result<()> {
        self.operations += 1;
        match &mut self.faults.operations_left {
            Some(0) => {
                self.refused += 1;
                Err(io::Error::other("the power is off"))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.visible);
        self.pending.push(change);
    }

    fn used(&self) -> u64 {
        let files = self.visible.values().filter_map(|node| match node {
            Node::File(file) => Some(file.lock().expect("a file").visible.len() as u64),
            Node::Directory => None,
        });
        files.sum()
    }
}

impl MemoryDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics inside the disk")
    }

    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.state().faults);
    }

    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    pub fn file_syncs(&self) -> u64 {
        self.state().file_syncs
    }

    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// All files, with their content.
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state();
        let files = state.visible.iter().filter_map(|(path, node)| match node {
            Node::File(file) => Some((path.clone(), file.lock().expect("a file").visible.clone())),
            Node::Directory => None,
        });
        files.collect()
    }

    /// Changes a file behind everybody's back.
    pub fn damage(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let state = self.state();
        let Some(Node::File(file)) = state.visible.get(path) else { panic!("{path} is no file") };
        let mut file = file.lock().expect("a file");
        change(&mut file.visible);
        file.durable = file.visible.clone();
        file.pending.clear();
    }

    fn copy(state: &State, tree: &Tree, change: &mut dyn FnMut(&Inode) -> Inode) -> MemoryDisk {
        let nodes = tree.iter().map(|(path, node)| {
            let node = match node {
                Node::File(file) => Node::File(Arc::new(Mutex::new(change(&file.lock().expect("a file"))))),
                Node::Directory => Node::Directory,
            };
            (path.clone(), node)
        });
        let visible: Tree = nodes.collect();
        let faults = Faults { capacity: state.faults.capacity, ..Faults::default() };
        let copied = State { durable: visible.clone(), visible, faults, ..State::default() };
        MemoryDisk(Arc::new(Mutex::new(copied)))
    }

    /// The disk as another process finds it after kill -9. All of it is durable then, which no test relies on.
    pub fn after_kill(&self) -> MemoryDisk {
        let state = self.state();
        Self::copy(&state, &state.visible, &mut |file| Inode {
            visible: file.visible.clone(),
            durable: file.visible.clone(),
            pending: Vec::new(),
        })
    }

    /// The disk after a power cut. Each sector that was not synced may be there or not; of each directory some changes
    /// of names that were not synced are there.
    pub fn after_power_cut(&self, dice: &mut Dice) -> MemoryDisk {
        let state = self.state();
        let share = dice.below(4);
        let mut tree = state.durable.clone();
        let mut lost: Vec<String> = Vec::new();
        for change in &state.pending {
            let directory = change.directory().to_owned();
            if lost.contains(&directory) || dice.below(3) >= share {
                lost.push(directory);
            } else {
                change.apply(&mut tree);
            }
        }
        let known = tree.clone();
        tree.retain(|path, _| parent(path).is_empty() || known.contains_key(parent(path)));
        Self::copy(&state, &tree, &mut |file| {
            let mut bytes = file.durable.clone();
            for pending in &file.pending {
                match pending {
                    Pending::Length(length) if dice.below(3) < share => bytes.resize(*length as usize, 0),
                    Pending::Length(_) => {}
                    Pending::Write(offset, written) => keep_sectors(&mut bytes, *offset, written, share, dice),
                }
            }
            Inode { visible: bytes.clone(), durable: bytes, pending: Vec::new() }
        })
    }
}

fn keep_sectors(bytes: &mut Vec<u8>, offset: u64, written: &[u8], share: u64, dice: &mut Dice) {
    let mut at = 0;
    while at < written.len() {
        let place = offset as usize + at;
        let end = (at + SECTOR - place % SECTOR).min(written.len());
        if dice.below(3) < share {
            apply(bytes, place as u64, &written[at..end]);
        }
        at = end;
    }
}

impl Disk for MemoryDisk {
    fn create_directory(&self, path: &str) -> io::Result<()> {
        let mut state = self.state();
        if !state.visible.contains_key(path) {
            state.operate()?;
            state.change(NameChange::Make(path.to_owned(), Node::Directory));
        }
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<DirectoryEntry>> {
        let state = self.state();
        if !path.is_empty() && !matches!(state.visible.get(path), Some(Node::Directory)) {
            return Err(ErrorKind::NotFound.into());
        }
        let inside = state.visible.iter().filter(|(other, _)| parent(other) == path);
        Ok(inside
            .map(|(other, node)| DirectoryEntry {
                name: other.rsplit('/').next().unwrap_or_default().to_owned(),
                is_directory: matches!(node, Node::Directory),
            })
            .collect())
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        match self.state().visible.get(path) {
            Some(Node::File(file)) => Ok(Arc::new(MemoryFile { file: Arc::clone(file), disk: self.clone() })),
            _ => Err(ErrorKind::NotFound.into()),
        }
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        if !parent(path).is_empty() && !matches!(state.visible.get(parent(path)), Some(Node::Directory)) {
            return Err(ErrorKind::NotFound.into());
        }
        state.operate()?;
        if state.faults.is_failing_creates {
            return Err(io::Error::other("too many open files"));
        }
        let file = match state.visible.get(path) {
            Some(Node::File(file)) => {
                let mut inode = file.lock().expect("a file");
                inode.visible.clear();
                inode.pending.push(Pending::Length(0));
                drop(inode);
                Arc::clone(file)
            }
            _ => {
                let file = Arc::default();
                state.change(NameChange::Make(path.to_owned(), Node::File(Arc::clone(&file))));
                file
            }
        };
        Ok(Arc::new(MemoryFile { file, disk: self.clone() }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        if !state.visible.contains_key(from) {
            return Err(ErrorKind::NotFound.into());
        }
        state.operate()?;
        state.change(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut state = self.state();
        if !state.visible.contains_key(path) {
            return Err(ErrorKind::NotFound.into());
        }
        if state.visible.keys().any(|other| parent(other) == path) {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        state.operate()?;
        state.change(NameChange::Remove(path.to_owned()));
        Ok(())
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        let mut state = self.state();
        state.operate()?;
        let pending = std::mem::take(&mut state.pending);
        let (synced, rest): (Vec<_>, Vec<_>) = pending.into_iter().partition(|change| change.directory() == path);
        state.pending = rest;
        if state.faults.is_failing_directory_syncs {
            return Err(io::Error::other("the disk cannot sync"));
        }
        for change in synced {
            change.apply(&mut state.durable);
        }
        Ok(())
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        Ok(self.state().visible.contains_key(path))
    }

    fn available_bytes(&self) -> io::Result<u64> {
        let state = self.state();
        Ok(state.faults.capacity.unwrap_or(u64::MAX).saturating_sub(state.used()))
    }
}

struct MemoryFile {
    file: Arc<Mutex<Inode>>,
    disk: MemoryDisk,
}

impl DiskFile for MemoryFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let file = self.file.lock().expect("a file");
        let rest = file.visible.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let end = offset + bytes.len() as u64;
        let more = end.saturating_sub(self.file.lock().expect("a file").visible.len() as u64);
        let is_full = state.faults.capacity.is_some_and(|capacity| state.used() + more > capacity) && more > 0;
        let alive = state.operate();
        // What is written at the moment of the cut, or when the disk is full, may be there in part.
        let written = match (&alive, is_full) {
            (Ok(()), false) => bytes,
            (Ok(()), true) => &bytes[..bytes.len() / 2],
            (Err(_), _) if state.refused == 1 => bytes,
            (Err(_), _) => &[],
        };
        let mut file = self.file.lock().expect("a file");
        file.pending.push(Pending::Write(offset, written.to_vec()));
        apply(&mut file.visible, offset, written);
        alive?;
        if is_full { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync_data(&self) -> io::Result<()> {
        let sync_ms = self.disk.state().faults.sync_ms;
        let (is_failing, pending) = {
            let mut state = self.disk.state();
            state.operate()?;
            state.file_syncs += 1;
            (
                std::mem::take(&mut state.faults.is_failing_file_syncs),
                std::mem::take(&mut self.file.lock().expect("a file").pending),
            )
        };
        if sync_ms > 0 {
            // A disk takes its time: others come meanwhile.
            std::thread::sleep(std::time::Duration::from_millis(sync_ms));
        }
        if is_failing {
            // As on Linux: what could not be written counts as clean from now on, and no later sync writes it.
            return Err(io::Error::other("the disk cannot sync"));
        }
        let mut file = self.file.lock().expect("a file");
        for pending in pending {
            match pending {
                Pending::Write(offset, written) => apply(&mut file.durable, offset, &written),
                Pending::Length(length) => file.durable.resize(length as usize, 0),
            }
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.truncate((offset + length).max(self.length()?))
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.disk.state().operate()?;
        let mut file = self.file.lock().expect("a file");
        file.pending.push(Pending::Length(length));
        file.visible.resize(length as usize, 0);
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.lock().expect("a file").visible.len() as u64)
    }
}

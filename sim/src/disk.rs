//! A disk in memory that does to files what power cuts and failing disks do.
//!
//! Every file has what programs see and what is durable; between the two lie the writes that were
//! not synced. A power cut keeps any subset of their 512-byte sectors, in any order. Names
//! (created, renamed, removed) not synced with their directory survive up to a random one of each
//! directory. A failed fsync is treated as Linux does: what was to be synced counts as clean from
//! then on, is seen by whoever reads, and is on disk in part only.
//!
//! Any operation that changes something can be made the last one before a crash. An fsync can be made to fail, and the
//! space can be limited.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

use millrace_io::{DirectoryEntry, Disk, DiskFile};

use crate::random::Rng;

/// What a disk writes as a whole.
const SECTOR: usize = 512;

/// A name in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(usize),
    Directory,
}

type Tree = BTreeMap<String, Node>;

/// A change of names that is not durable yet.
#[derive(Clone, Debug)]
enum NameChange {
    Make(String, Node),
    Rename(String, String),
    Remove(String),
}

impl NameChange {
    fn directory(&self) -> &str {
        match self {
            NameChange::Make(path, _) | NameChange::Rename(path, _) | NameChange::Remove(path) => parent(path),
        }
    }

    fn apply(&self, tree: &mut Tree) {
        match self {
            NameChange::Make(path, node) => {
                tree.insert(path.clone(), *node);
            }
            NameChange::Remove(path) => {
                tree.remove(path);
            }
            NameChange::Rename(from, to) => {
                let inside = format!("{from}/");
                let moved: Vec<String> =
                    tree.keys().filter(|path| *path == from || path.starts_with(&inside)).cloned().collect();
                for path in moved {
                    if let Some(node) = tree.remove(&path) {
                        tree.insert(path.replacen(from, to, 1), node);
                    }
                }
            }
        }
    }
}

/// A change of a file that is not durable yet.
#[derive(Clone, Debug)]
enum Unsynced {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

#[derive(Clone, Debug, Default)]
struct Inode {
    // Shared where they are the same, and with copies of the disk: most files change no more.
    visible: Arc<Vec<u8>>,
    durable: Arc<Vec<u8>>,
    unsynced: Vec<Unsynced>,
}

impl Inode {
    fn write(bytes: &mut Arc<Vec<u8>>, offset: usize, content: &[u8]) {
        let bytes = Arc::make_mut(bytes);
        if bytes.len() < offset + content.len() {
            bytes.resize(offset + content.len(), 0);
        }
        bytes[offset..offset + content.len()].copy_from_slice(content);
    }

    fn sync(&mut self) {
        for change in std::mem::take(&mut self.unsynced) {
            match change {
                Unsynced::Write { offset, bytes } => Self::write(&mut self.durable, offset, &bytes),
                Unsynced::Length(length) => Arc::make_mut(&mut self.durable).resize(length, 0),
            }
        }
    }

    /// Keeps some of what was not synced: sector by sector, with `keeps` chances in 4.
    fn sync_in_part(&mut self, keeps: u64, rng: &mut Rng) {
        for change in std::mem::take(&mut self.unsynced) {
            match change {
                Unsynced::Length(length) if rng.chance(keeps, 4) => {
                    Arc::make_mut(&mut self.durable).resize(length, 0);
                }
                Unsynced::Length(_) => {}
                Unsynced::Write { offset, bytes } => {
                    let mut at = 0;
                    while at < bytes.len() {
                        let end = (at + SECTOR - (offset + at) % SECTOR).min(bytes.len());
                        if rng.chance(keeps, 4) {
                            Self::write(&mut self.durable, offset + at, &bytes[at..end]);
                        }
                        at = end;
                    }
                }
            }
        }
    }
}

/// What goes wrong, and when.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The operation (counted from the last [`SimDisk::set_faults`]) that is the last one.
    pub crash_at: Option<u64>,
    /// The fsync (counted likewise) that fails.
    pub fail_sync_at: Option<u64>,
    /// Bytes that all files together may have.
    pub capacity_bytes: Option<u64>,
    /// With the space used up, even writes inside a file's allocated bytes fail, as on a
    /// copy-on-write file system.
    pub is_copy_on_write: bool,
}

struct State {
    inodes: Vec<Inode>,
    visible: Tree,
    durable: Tree,
    unsynced: Vec<NameChange>,
    faults: Faults,
    operations: u64,
    syncs: u64,
    has_crashed: bool,
    /// Handles of an earlier process are dead.
    epoch: u64,
    rng: Rng,
}

/// The disk. Clones share it.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

fn powered_off() -> io::Error {
    io::Error::other("the power is off")
}

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = State {
            inodes: Vec::new(),
            visible: Tree::new(),
            durable: Tree::new(),
            unsynced: Vec::new(),
            faults: Faults::default(),
            operations: 0,
            syncs: 0,
            has_crashed: false,
            epoch: 0,
            rng: Rng::new(seed),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the simulator has one thread")
    }

    /// Decides what goes wrong from now on; counters start anew.
    pub fn set_faults(&self, faults: Faults) {
        let mut state = self.state();
        state.faults = faults;
        state.operations = 0;
        state.syncs = 0;
    }

    /// Changes the faults, going on counting.
    pub fn change_faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.state().faults);
    }

    /// Changing operations since the last [`SimDisk::set_faults`].
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Fsyncs of files since the last [`SimDisk::set_faults`].
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Whether the planned crash has happened; nothing works until the power is back.
    #[must_use]
    pub fn has_crashed(&self) -> bool {
        self.state().has_crashed
    }

    /// Bytes of all files.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes()
    }

    /// The process ends; what it wrote stays in the kernel's memory.
    pub fn kill(&self) {
        let mut state = self.state();
        state.epoch += 1;
        state.has_crashed = false;
        state.faults = Faults::default();
    }

    /// The power goes, and comes back.
    pub fn power_cut(&self) {
        self.kill();
        let mut state = self.state();
        let state = &mut *state;
        // Some crashes lose everything, some nothing, most a part.
        let keeps = state.rng.below(5);
        state.lose_names(keeps);
        for inode in &mut state.inodes {
            inode.sync_in_part(keeps, &mut state.rng);
            inode.visible = Arc::clone(&inode.durable);
        }
    }

    /// An operation of somebody else on the same machine, so that crashes hit it as well. Says
    /// whether it was done.
    ///
    /// # Errors
    /// When the power is off, or the disk is full and `needs_space`.
    pub fn foreign_operation(&self, needs_space: bool) -> io::Result<()> {
        let mut state = self.state();
        state.operate()?;
        if needs_space && state.faults.capacity_bytes.is_some_and(|capacity| state.used_bytes() >= capacity) {
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    /// The files under `directory` that hold bytes, with their length.
    #[must_use]
    pub fn files(&self, directory: &str) -> Vec<(String, usize)> {
        let state = self.state();
        let inside = format!("{directory}/");
        let files = state.visible.iter().filter(|(path, _)| path.starts_with(&inside));
        files
            .filter_map(|(path, node)| match node {
                Node::File(inode) => Some((path.clone(), state.inodes[*inode].visible.len())),
                Node::Directory => None,
            })
            .collect()
    }

    /// Flips one bit of a file, on disk and for readers.
    ///
    /// # Panics
    /// When there is no such file or byte.
    pub fn flip_bit(&self, path: &str, bit: usize) {
        let mut state = self.state();
        let Some(Node::File(inode)) = state.visible.get(path).copied() else {
            panic!("{path} is no file");
        };
        let inode = &mut state.inodes[inode];
        for bytes in [&mut inode.visible, &mut inode.durable] {
            if let Some(byte) = Arc::make_mut(bytes).get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    /// A copy of everything durable, as if the disk were cloned while the machine is off.
    #[must_use]
    pub fn durable_copy(&self, seed: u64) -> SimDisk {
        let copy = SimDisk::new(seed);
        {
            let from = self.state();
            let mut to = copy.state();
            to.inodes.clone_from(&from.inodes);
            for inode in &mut to.inodes {
                inode.unsynced.clear();
                inode.visible = Arc::clone(&inode.durable);
            }
            to.durable.clone_from(&from.durable);
            to.visible.clone_from(&from.durable);
        }
        copy
    }
}

impl State {
    fn used_bytes(&self) -> u64 {
        let files = self.visible.values().filter_map(|node| match node {
            Node::File(inode) => Some(self.inodes[*inode].visible.len() as u64),
            Node::Directory => None,
        });
        files.sum()
    }

    /// Counts an operation. The planned last one has an effect, but its caller never hears of it.
    fn operate(&mut self) -> io::Result<()> {
        if self.has_crashed {
            return Err(powered_off());
        }
        self.operations += 1;
        if self.faults.crash_at.is_some_and(|last| self.operations >= last) {
            self.has_crashed = true;
        }
        Ok(())
    }

    /// What an operation answers: nothing gets out of a machine that has lost its power.
    fn answer<T>(&self, value: T) -> io::Result<T> {
        if self.has_crashed { Err(powered_off()) } else { Ok(value) }
    }

    fn check_space(&self, more_bytes: u64) -> io::Result<()> {
        match self.faults.capacity_bytes {
            Some(capacity) if self.used_bytes() + more_bytes > capacity => Err(ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.visible);
        self.unsynced.push(change);
    }

    fn lose_names(&mut self, keeps: u64) {
        let changes = std::mem::take(&mut self.unsynced);
        let mut lost: Vec<String> = Vec::new();
        for change in changes {
            let directory = change.directory().to_owned();
            // What comes after a lost change in its directory is lost as well: file systems
            // journal names in order.
            if lost.contains(&directory) || !self.rng.chance(keeps, 4) {
                lost.push(directory);
            } else {
                change.apply(&mut self.durable);
            }
        }
        let tree = self.durable.clone();
        self.durable.retain(|path, _| {
            let directory = parent(path);
            directory.is_empty() || tree.get(directory) == Some(&Node::Directory)
        });
        self.visible.clone_from(&self.durable);
    }
}

impl Disk for SimDisk {
    fn create_directory(&self, path: &str) -> io::Result<()> {
        let mut state = self.state();
        let mut made = String::new();
        for name in path.split('/') {
            if !made.is_empty() {
                made.push('/');
            }
            made.push_str(name);
            if !state.visible.contains_key(&made) {
                state.operate()?;
                state.change_names(NameChange::Make(made.clone(), Node::Directory));
            }
        }
        state.answer(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<DirectoryEntry>> {
        let state = self.state();
        state.answer(())?;
        if !path.is_empty() && state.visible.get(path) != Some(&Node::Directory) {
            return Err(ErrorKind::NotFound.into());
        }
        let entries = state.visible.iter().filter(|(other, _)| parent(other) == path);
        Ok(entries
            .map(|(other, node)| DirectoryEntry {
                name: other.rsplit('/').next().unwrap_or_default().to_owned(),
                is_directory: *node == Node::Directory,
            })
            .collect())
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.state();
        state.answer(())?;
        match state.visible.get(path) {
            Some(Node::File(inode)) => Ok(Arc::new(SimFile { disk: self.clone(), inode: *inode, epoch: state.epoch })),
            _ => Err(ErrorKind::NotFound.into()),
        }
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        if !parent(path).is_empty() && state.visible.get(parent(path)) != Some(&Node::Directory) {
            return Err(ErrorKind::NotFound.into());
        }
        state.operate()?;
        let inode = match state.visible.get(path).copied() {
            Some(Node::File(inode)) => {
                state.inodes[inode].visible = Arc::default();
                state.inodes[inode].unsynced.push(Unsynced::Length(0));
                inode
            }
            _ => {
                state.inodes.push(Inode::default());
                let inode = state.inodes.len() - 1;
                state.change_names(NameChange::Make(path.to_owned(), Node::File(inode)));
                inode
            }
        };
        state.answer(Arc::new(SimFile { disk: self.clone(), inode, epoch: state.epoch }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        if !state.visible.contains_key(from) {
            return Err(ErrorKind::NotFound.into());
        }
        state.operate()?;
        state.change_names(NameChange::Rename(from.to_owned(), to.to_owned()));
        state.answer(())
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
        state.change_names(NameChange::Remove(path.to_owned()));
        state.answer(())
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        let mut state = self.state();
        state.operate()?;
        state.answer(())?;
        let changes = std::mem::take(&mut state.unsynced);
        let (synced, unsynced) = changes.into_iter().partition(|change| change.directory() == path);
        state.unsynced = unsynced;
        let synced: Vec<NameChange> = synced;
        for change in synced {
            change.apply(&mut state.durable);
        }
        Ok(())
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        let state = self.state();
        state.answer(state.visible.contains_key(path))
    }

    fn available_bytes(&self) -> io::Result<u64> {
        let state = self.state();
        let capacity = state.faults.capacity_bytes.unwrap_or(u64::MAX);
        state.answer(capacity.saturating_sub(state.used_bytes()))
    }
}

/// An open file.
struct SimFile {
    disk: SimDisk,
    inode: usize,
    epoch: u64,
}

impl SimFile {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.state();
        if state.epoch != self.epoch {
            return Err(io::Error::other("the process that opened this file has ended"));
        }
        state.answer(())?;
        Ok(state)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut state = self.state()?;
        let length = usize::try_from(length).map_err(|_| io::Error::from(ErrorKind::FileTooLarge))?;
        let now = state.inodes[self.inode].visible.len();
        state.check_space(length.saturating_sub(now) as u64)?;
        state.operate()?;
        let inode = &mut state.inodes[self.inode];
        Arc::make_mut(&mut inode.visible).resize(length, 0);
        inode.unsynced.push(Unsynced::Length(length));
        state.answer(())
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state()?;
        let content = &state.inodes[self.inode].visible;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let count = bytes.len().min(content.len() - from);
        bytes[..count].copy_from_slice(&content[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state()?;
        let offset = usize::try_from(offset).map_err(|_| io::Error::from(ErrorKind::FileTooLarge))?;
        let now = state.inodes[self.inode].visible.len();
        let more_bytes = (offset + bytes.len()).saturating_sub(now) as u64;
        let is_charged = more_bytes > 0 || state.faults.is_copy_on_write;
        if is_charged {
            let needed = if state.faults.is_copy_on_write { bytes.len() as u64 } else { more_bytes };
            state.check_space(needed)?;
        }
        state.operate()?;
        let inode = &mut state.inodes[self.inode];
        Inode::write(&mut inode.visible, offset, bytes);
        inode.unsynced.push(Unsynced::Write { offset, bytes: bytes.to_vec() });
        state.answer(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state()?;
        state.operate()?;
        state.answer(())?;
        state.syncs += 1;
        let state = &mut *state;
        let inode = &mut state.inodes[self.inode];
        if state.faults.fail_sync_at.is_some_and(|failing| state.syncs == failing) {
            let keeps = state.rng.below(4);
            inode.sync_in_part(keeps, &mut state.rng);
            return Err(io::Error::other("the disk could not write"));
        }
        inode.sync();
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        let now = self.length()?;
        if offset + length > now { self.set_length(offset + length) } else { Ok(()) }
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.set_length(length)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.state()?.inodes[self.inode].visible.len() as u64)
    }
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;

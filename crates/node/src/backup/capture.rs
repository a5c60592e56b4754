//! What a backup is of: the files, and how much of each, as of one moment.
//!
//! The order matters. First the log and the bodies are held, then comes the checkpoint, then the moment, then the list of
//! bodies. So the log reaches from the checkpoint to the moment without a gap, and all bodies that its entries refer to are
//! there.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use millrace_backup::Missing;
use millrace_base::ShardId;
use millrace_blobs::BodyName;
use millrace_io::DiskHold;
use millrace_log::{LogHold, OpenSegment, copy_at};
use millrace_manifest::Contents;

use super::copies::Copies;
use super::links::{Tree, link, link_tree, remove_tree};
use super::{FOLDER, OF_BACKUP};
use crate::cluster::{Cluster, Standstill, Unreadable, get_bodies_before};
use crate::core::Shared;
use crate::directory::KEY_FILE;
use crate::objects::{BODIES, BODY_FOLDERS, BODY_START, object_of};
use crate::recovery::CHECKPOINT;

/// What is in the directory of a node of a cluster beside the data. The first is always there.
const MEMBERSHIP: [&str; 5] = ["cluster.json", "tls/node.pem", "tls/node.key", "tls/authority.pem", "incarnation"];

/// How often the list of whole files may change while they are linked.
const ATTEMPTS: usize = 100;

/// One file of a backup.
pub(super) struct Source {
    /// In the backup.
    pub path: String,
    /// Where its bytes are now.
    pub from: PathBuf,
    /// How many of them count; `None`: those that are there when it is sent.
    pub bytes: Option<u64>,
    /// What comes behind them.
    pub end: Vec<u8>,
}

impl Source {
    pub(super) fn is_of_bodies(&self) -> bool {
        self.path.strip_prefix(BODIES).is_some_and(|rest| rest.starts_with('/'))
    }
}

/// See the module's documentation. Dropping it ends what the backup holds.
pub(super) struct Capture {
    /// In the order in which they have to be read.
    pub sources: Vec<Source>,
    pub folders: Vec<String>,
    pub manifest: Vec<u8>,
    /// What could not be read.
    pub missing: Vec<Missing>,
    pub identity: [u8; 16],
    pub taken_ms: u64,
    /// How long the logs stood still.
    pub paused_us: u64,
    // Dropped in this order: links first, then what may be deleted.
    _links: Links,
    _bodies: Option<DiskHold>,
    log: Option<LogHold>,
}

impl Capture {
    /// Says that the log is let go, so that the caller may look for what can be deleted.
    pub(super) fn release_log(&mut self) {
        self.log = None;
    }
}

/// The folder of second names.
struct Links(PathBuf);

impl Links {
    fn new(data: &Path) -> io::Result<Self> {
        let path = data.join(FOLDER);
        remove_tree(&path)?;
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.0) {
            tracing::warn!(%error, folder = FOLDER, "what a backup held could not be removed; the next start does it");
        }
    }
}

/// What is seen at the moment of a backup.
pub(super) struct Moment {
    contents: Contents,
    open: Vec<OpenSegment>,
    files: Vec<String>,
    taken_ms: u64,
}

/// What a backup holds before its moment.
pub(super) struct Held {
    tree: Tree,
    links: Links,
    bodies: Option<DiskHold>,
    log: LogHold,
}

impl Held {
    /// Waits until the checkpoint is not being written.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn begin(shared: &Shared) -> io::Result<Self> {
        let data = &shared.options.data;
        let log = shared.segments.hold();
        let bodies = shared.bodies.as_ref().map(|store| store.disk.hold());
        let links = Links::new(data)?;
        let tree = link_checkpoint(shared, data, &links.0)?;
        get_bodies_before(shared);
        Ok(Self { tree, links, bodies, log })
    }

    /// Waits until every log is between two batches.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn take_moment(&self, shared: &Shared) -> io::Result<Moment> {
        shared.segments.at_one_moment(|open| look(shared, &shared.options.data, &self.links.0, open))
    }

    /// What is to be sent. All bodies that entries in front of the moment refer to are here, but for those that no node can read.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn capture(
        self,
        shared: &Shared,
        (moment, unreadable): (Moment, Vec<Unreadable>),
        paused_us: u64,
    ) -> io::Result<Capture> {
        let Self { tree, links, bodies, log } = self;
        let data = &shared.options.data;
        let held = links.0.clone();
        let mut capture = Capture {
            sources: Vec::new(),
            folders: tree.folders,
            manifest: Vec::new(),
            missing: unreadable.iter().map(|body| missing(body.name, body.owner.as_deref())).collect(),
            identity: moment.contents.identity,
            taken_ms: moment.taken_ms,
            paused_us,
            _links: links,
            _bodies: bodies,
            log: Some(log),
        };
        let held_files = tree.files.into_iter().map(|(path, _)| path).chain(moment.files);
        capture.sources.extend(held_files.map(|path| Source {
            from: held.join(&path),
            path,
            bytes: None,
            end: Vec::new(),
        }));
        capture.manifest = capture.add_log(data, moment.contents, moment.open)?.encode();
        if let Some(store) = &shared.bodies {
            capture.add_bodies(data)?;
            let damaged = store.bodies.damaged();
            capture.missing.extend(damaged.iter().map(|body| missing(body.name, body.owner.as_deref())));
        }
        Ok(capture)
    }
}

/// What is said of a body that cannot be read.
pub(super) fn missing(name: BodyName, owner: Option<&[u8]>) -> Missing {
    Missing { shard: name.shard.0, body: name.to_string(), object: owner.and_then(object_of) }
}

impl Capture {
    /// Waits until the checkpoint is not being written, in a cluster until all nodes stand still, and then until every log is
    /// between two batches. Other nodes of the cluster copy what this one does not hold.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn take(shared: &Arc<Shared>) -> io::Result<(Self, Option<Copies>)> {
        let Some(cluster) = &shared.cluster else {
            let held = Held::begin(shared)?;
            let begin_ns = shared.clock.monotonic_ns();
            let moment = held.take_moment(shared)?;
            let paused_us = (shared.clock.monotonic_ns() - begin_ns) / 1000;
            return Ok((held.capture(shared, (moment, Vec::new()), paused_us)?, None));
        };
        Self::take_of_cluster(shared, cluster)
    }

    fn take_of_cluster(shared: &Arc<Shared>, cluster: &Arc<Cluster>) -> io::Result<(Self, Option<Copies>)> {
        let copies = Copies::begin(shared, cluster)?;
        let held = Held::begin(shared)?;
        copies.wait_until_held()?;
        let begin_ns = shared.clock.monotonic_ns();
        // After the checkpoint: so its rows hold nothing that is not in front of the moment, of any shard.
        let standstill = Standstill::begin(shared, cluster)?;
        copies.begin_moment(&standstill);
        standstill.wait_for(copies.own())?;
        let moment = held.take_moment(shared)?;
        copies.wait_for_moment(&standstill)?;
        let stood = standstill.end()?;
        let paused_us = (shared.clock.monotonic_ns() - begin_ns) / 1000;
        copies.get_bodies(&stood);
        let unreadable = stood.get_bodies(shared)?;
        copies.wait_for_bodies(&stood)?;
        stood.have_kept_bodies(shared)?;
        let mut capture = held.capture(shared, (moment, unreadable), paused_us)?;
        capture.missing.retain(|body| copies.own().contains(&ShardId(body.shard)));
        capture.add_membership(&shared.options.data);
        Ok((capture, copies.any()))
    }

    /// Adds all segments up to the places of the moment, each stream closed there, and gives the manifest of that.
    fn add_log(&mut self, data: &Path, mut contents: Contents, open: Vec<OpenSegment>) -> io::Result<Contents> {
        let unlisted = || io::Error::other("the manifest lists no log yet: restart the node first");
        for copy in copy_at(contents.streams.as_mut().ok_or_else(unlisted)?, open) {
            let from = data.join(&copy.path);
            self.sources.push(Source { path: copy.path, from, bytes: copy.bytes, end: copy.end });
        }
        self.folders.push("log".to_owned());
        Ok(contents)
    }

    /// Adds what makes the directory one of a node, and a file that says what it has to become first.
    fn add_membership(&mut self, data: &Path) {
        self.folders.push("tls".to_owned());
        let files = MEMBERSHIP.iter().filter(|file| data.join(file).exists());
        self.sources.extend(files.map(|file| Source {
            path: (*file).to_owned(),
            from: data.join(file),
            bytes: None,
            end: Vec::new(),
        }));
        let (from, end) = (data.join(MEMBERSHIP[0]), self.taken_ms.to_string().into_bytes());
        self.sources.push(Source { path: OF_BACKUP.to_owned(), from, bytes: Some(0), end });
    }

    /// Adds the files of bodies that are there by now. Those being written have another name, and what is written behind
    /// the length of now belongs to nobody.
    fn add_bodies(&mut self, data: &Path) -> io::Result<()> {
        for folder in BODY_FOLDERS {
            self.folders.push(format!("{BODIES}/{folder}"));
            let mut names = Vec::new();
            for entry in fs::read_dir(data.join(BODIES).join(folder))? {
                let entry = entry?;
                if let Some(name) = entry.file_name().to_str().filter(|name| !name.ends_with(".new")) {
                    names.push((name.to_owned(), entry.metadata()?.len()));
                }
            }
            names.sort();
            for (name, length) in names {
                let path = format!("{BODIES}/{folder}/{name}");
                // An index may be replaced by a shorter one of the same segment.
                let bytes = Some(length).filter(|_| !name.ends_with(".idx"));
                self.sources.push(Source { from: data.join(&path), path, bytes, end: Vec::new() });
            }
        }
        // Last, so that it knows all numbers that were given.
        let path = format!("{BODIES}/{BODY_START}");
        let from = data.join(&path);
        if from.exists() {
            self.sources.push(Source { path, from, bytes: None, end: Vec::new() });
        }
        Ok(())
    }
}

/// The checkpoint between two writes.
fn link_checkpoint(shared: &Shared, data: &Path, held: &Path) -> io::Result<Tree> {
    let (done, answer) = mpsc::channel();
    let (from, to) = (data.to_owned(), held.to_owned());
    shared.flusher.pause(move || {
        // Nobody waits any more only if this thread has panicked.
        let _ = done.send(link_tree(&from, &to, CHECKPOINT));
    });
    answer.recv().unwrap_or_else(|_| Err(io::Error::other("the node is stopping")))
}

/// Looks at what must agree with the places of the logs. All logs stand still meanwhile.
fn look(shared: &Shared, data: &Path, held: &Path, open: &[OpenSegment]) -> io::Result<Moment> {
    let taken_ms = shared.clock.now();
    let manifest = shared.segments.manifest();
    for _ in 0..ATTEMPTS {
        let contents = manifest.contents();
        let files = link_files(&contents, data, held)?;
        // Users of S3 are written at any time.
        if manifest.contents().files == contents.files {
            return Ok(Moment { contents, open: open.to_vec(), files, taken_ms });
        }
        for file in files {
            fs::remove_file(held.join(file))?;
        }
    }
    Err(io::Error::other("files kept being replaced; try again"))
}

/// Gives second names to the files that are replaced as a whole.
fn link_files(contents: &Contents, data: &Path, held: &Path) -> io::Result<Vec<String>> {
    let mut paths: Vec<String> = contents.files.keys().chain(&contents.expected).cloned().collect();
    if !paths.iter().any(|path| path == KEY_FILE) {
        paths.push(KEY_FILE.to_owned());
    }
    let mut linked = Vec::new();
    for path in paths {
        if let Some((folder, _)) = path.rsplit_once('/') {
            fs::create_dir_all(held.join(folder))?;
        }
        match link(data, held, &path) {
            Ok(()) => linked.push(path),
            // One that is being removed, or the keys of a node without any.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(linked)
}

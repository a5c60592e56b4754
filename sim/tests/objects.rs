//! A program of its own: it links a whole node. That runs over the simulated disk. The power goes at each operation, or a sync fails, on the log or on the bodies of
//! objects beside it. Meanwhile objects are written, overwritten, put together of parts, copied, deleted and expired.
//!
//! Promises 3 and 5 for objects. What was acknowledged is there, with its content. What was not is whole or not there at all. What
//! the bucket counts is what it lists. No body stays that nothing refers to.
//!
//! The threads of a node are real, so the same operation is not the same one in each run. All of them are met all the same.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::scope;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millrace_api::objects::OBJECTS_APP;
use millrace_api::objects::{
    AccessInput, BodyOwner, BodyRead as _, BodyWrite as _, BodyWritten as _, ChecksumAlgorithm, CompletePart,
    Configuration, CopyInput, DeleteOne, Expiry, LifecycleConfiguration, LifecycleFilter, LifecycleRule, ListRequest,
    ObjectOperation, ObjectReply, ObjectRequest, Objects as _, PartInput, PutInput, ReadConditions, Requester,
    UploadInput, WriteConditions,
};
use millrace_base::{Error, ErrorCode};
use millrace_blobs::{Bodies, BodyOptions, Cursor};
use millrace_func::{
    ActivationId, App, Engine, Engines, FetchRequest, Fetcher, Fetching, Host, OperationId, Program, Service, Start,
    TurnResult,
};
use millrace_func_objects::ObjectsEngine;
use millrace_io::{DirectoryEntry, Disk, DiskFile, RealDisk};
use millrace_node::{CoreHandle, DataDirectory, DiskMaker, Fronts, Node, NodeMetrics, NodeOptions, StartError};
use millrace_sim::disk::{Faults, SimDisk};

/// Runs no app: there is none but the built-in one.
struct NoEngine;

impl Engine for NoEngine {
    fn load(&self, _: Program, _: &App) -> Result<(), Error> {
        Ok(())
    }

    fn services(&self, _: Program) -> Vec<Service> {
        Vec::new()
    }

    fn unload(&self, _: Program) {}

    fn start(&self, _: ActivationId, _: Start<'_>, _: &mut dyn Host) -> TurnResult {
        panic!("it has no services")
    }

    fn resume(&self, _: ActivationId, _: OperationId, _: Result<Bytes, Error>, _: &mut dyn Host) -> TurnResult {
        panic!("nothing waits")
    }

    fn cancel(&self, _: ActivationId) {}
}

struct NoFetcher;

impl Fetcher for NoFetcher {
    fn fetch(&self, _: FetchRequest) -> Fetching {
        panic!("nothing is fetched")
    }
}

/// Of a bucket's lifecycle.
const DAY_MS: u64 = 50;

/// A folder of a data directory whose log, manifest and bodies are on a simulated disk. The rest, the checkpoint among it, is
/// real: it has its own tests, and a power cut takes nothing of it here.
struct Folder {
    simulated: SimDisk,
    real: RealDisk,
    /// From the data directory on; empty: the directory itself.
    path: String,
}

impl Folder {
    /// Where something in this folder is: the disk, and the place on it.
    fn at(&self, path: &str) -> (&dyn Disk, String) {
        let parts: Vec<&str> = [self.path.as_str(), path].into_iter().filter(|part| !part.is_empty()).collect();
        let place = parts.join("/");
        let first = place.split('/').next().unwrap_or_default();
        let is_simulated = ["log", "bodies"].contains(&first) || first.starts_with("manifest");
        (if is_simulated { &self.simulated } else { &self.real }, place)
    }
}

impl Disk for Folder {
    fn create_directory(&self, path: &str) -> io::Result<()> {
        let (disk, place) = self.at(path);
        disk.create_directory(&place)
    }

    fn list(&self, path: &str) -> io::Result<Vec<DirectoryEntry>> {
        let (disk, place) = self.at(path);
        disk.list(&place)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let (disk, place) = self.at(path);
        disk.open(&place)
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let (disk, place) = self.at(path);
        disk.create(&place)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let ((disk, from), (_, to)) = (self.at(from), self.at(to));
        let first = |place: &str| place.split(['/', '.']).next().map(str::to_owned);
        assert_eq!(first(&from), first(&to), "nothing is renamed from one disk to the other");
        disk.rename(&from, &to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let (disk, place) = self.at(path);
        disk.remove(&place)
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        let (disk, place) = self.at(path);
        if place.is_empty() {
            self.simulated.sync_directory("")?;
        }
        disk.sync_directory(&place)
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        let (disk, place) = self.at(path);
        disk.exists(&place)
    }

    fn available_bytes(&self) -> io::Result<u64> {
        self.at("").0.available_bytes()
    }
}

fn disks(data: &Path, simulated: &SimDisk) -> DiskMaker {
    let (data, simulated) = (data.to_owned(), simulated.clone());
    Arc::new(move |folder| {
        let (simulated, real) = (simulated.clone(), RealDisk::new(&data));
        Arc::new(Folder { simulated, real, path: folder.to_owned() })
    })
}

type Work = Box<dyn FnOnce(CoreHandle) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Starts a node of one core over the disk, runs `work` on it, and stops it. Says whether it started and stopped well.
fn with_node<F: Future<Output = ()> + 'static>(
    folder: &Path,
    disk: &SimDisk,
    work: impl FnOnce(CoreHandle) -> F + Send + 'static,
) -> Result<(), StartError> {
    let work: Work = Box::new(move |handle| Box::pin(work(handle)));
    let work = Mutex::new(Some(work));
    let (done, has_ended) = std::sync::mpsc::channel();
    let done = Mutex::new(done);
    let fronts: Fronts = Arc::new(move |handle: CoreHandle, mut drain| {
        let work = work.lock().expect("not poisoned").take();
        let done = done.lock().expect("not poisoned").clone();
        Box::pin(async move {
            if let Some(work) = work {
                work(handle).await;
                done.send(()).expect("somebody waits");
            }
            let _ = drain.wait_for(|is_draining| *is_draining).await;
        })
    });
    let directory = DataDirectory::open_on(folder, Some(2), disks(folder, disk)).map_err(StartError::Directory)?;
    let options = NodeOptions {
        cores: 1,
        shards: Some(2),
        memory_bytes: 64 << 20,
        keeps_objects: true,
        ..NodeOptions::new(folder.into())
    };
    let engine = Arc::new(|_| {
        let others = Rc::new(NoEngine);
        Box::new(Engines::new(others).with(OBJECTS_APP, ObjectsEngine::with_day(DAY_MS))) as Box<dyn Engine>
    });
    let metrics = NodeMetrics::new(1);
    let node = Node::start_in(directory, options, Vec::new(), engine, Arc::new(NoFetcher), fronts, metrics)?;
    has_ended.recv_timeout(Duration::from_secs(60)).expect("the work ends");
    node.stop()
}

/// A content that tells its key and its length.
fn content(key: &str, length: usize) -> Bytes {
    let line = format!("{key} {length};");
    line.bytes().cycle().take(length).collect::<Vec<u8>>().into()
}

/// What the client knows. `None`: not there.
#[derive(Clone, Default)]
struct Ledger {
    acknowledged: BTreeMap<&'static str, Option<Bytes>>,
    /// What was asked for when the power went: it is so or as before.
    asked: Option<(&'static str, Option<Bytes>)>,
    /// Whether everything was done.
    has_ended: bool,
}

struct Client {
    node: CoreHandle,
    ledger: Arc<Mutex<Ledger>>,
}

const SMALL: usize = 100;
const LARGE: usize = 40_000;

impl Client {
    fn request<'a>(key: &'a str, operation: ObjectOperation, body: Bytes) -> ObjectRequest<'a> {
        let requester = Requester { id: Some("alice"), name: "alice", ..Requester::default() };
        ObjectRequest { requester, bucket: "photos", key, operation, body }
    }

    async fn ask(&self, key: &str, operation: ObjectOperation) -> Result<ObjectReply, Error> {
        self.node.object(Self::request(key, operation, Bytes::new()), None).reply().await
    }

    /// Writes a content, and makes it visible.
    async fn write(
        &self,
        key: &str,
        part: Option<(&str, u16)>,
        content: &Bytes,
        operation: impl FnOnce(PutInput) -> ObjectOperation,
    ) -> Result<ObjectReply, Error> {
        let owner = BodyOwner { bucket: "photos", key, part };
        let length = Some(content.len() as u64);
        let mut body = self.node.begin_body(&owner, length, &[ChecksumAlgorithm::Crc64Nvme])?;
        for piece in content.chunks(15_000) {
            body.write(Bytes::copy_from_slice(piece)).await?;
        }
        let written = body.finish().await?;
        let put = PutInput { body: written.body().clone(), ..PutInput::default() };
        let request = Self::request(key, operation(put), written.inline());
        self.node.object(request, Some(written)).reply().await
    }

    async fn read(&self, key: &str) -> Result<Option<Bytes>, Error> {
        let get = ObjectOperation::Get(ReadConditions::default());
        let mut read = match self.node.read_object(Self::request(key, get, Bytes::new())).reply().await {
            Ok(read) => read.body,
            Err(error) if error.code == ErrorCode::ObjectRefused => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        read.seek(0..read.length());
        while let Some(piece) = read.next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(Some(bytes.into()))
    }

    /// Does something to a key, and writes down what is known of it.
    async fn change(
        &self,
        key: &'static str,
        becomes: Option<Bytes>,
        change: impl Future<Output = Result<ObjectReply, Error>>,
    ) -> Result<(), Error> {
        self.ledger.lock().expect("not poisoned").asked = Some((key, becomes.clone()));
        change.await?;
        let mut ledger = self.ledger.lock().expect("not poisoned");
        ledger.asked = None;
        ledger.acknowledged.insert(key, becomes);
        Ok(())
    }

    async fn put(&self, key: &'static str, length: usize) -> Result<(), Error> {
        let content = content(key, length);
        let put = self.write(key, None, &content, |put| ObjectOperation::Put(Box::new(put)));
        self.change(key, Some(content.clone()), put).await
    }

    async fn delete(&self, key: &'static str) -> Result<(), Error> {
        self.change(key, None, self.ask(key, ObjectOperation::Delete(DeleteOne::default()))).await
    }

    async fn copy(&self, from: &'static str, key: &'static str) -> Result<(), Error> {
        let content = self.read(from).await?.expect("the source is there");
        let copy = self.write(key, None, &content, |put| {
            let copy = Some(CopyInput { source: format!("photos/{from}"), ..CopyInput::default() });
            ObjectOperation::Put(Box::new(PutInput { copy, ..put }))
        });
        self.change(key, Some(content.clone()), copy).await
    }

    /// An upload of one part, after another whose part was sent twice was given up.
    async fn upload(&self, key: &'static str, length: usize) -> Result<(), Error> {
        let mut parts = Vec::new();
        let mut upload = String::new();
        for is_kept in [false, true] {
            let begun = self.ask(key, ObjectOperation::CreateUpload(Box::<UploadInput>::default())).await?;
            let ObjectReply::Upload { id, .. } = begun else { panic!("{begun:?}") };
            for times in [1, 2] {
                let part = |put: PutInput| {
                    let part = PartInput { upload: id.clone(), number: 1, body: put.body, copy: None };
                    ObjectOperation::PutPart(Box::new(part))
                };
                let content = content(key, if times == 2 { length } else { LARGE });
                let put = self.write(key, Some((&id, 1)), &content, part).await?;
                let ObjectReply::Written { etag, .. } = put else { panic!("{put:?}") };
                parts = vec![CompletePart { number: 1, etag, checksum: None }];
            }
            if !is_kept {
                self.ask(key, ObjectOperation::AbortUpload { upload: id.clone() }).await?;
            }
            upload = id;
        }
        let (checksum, size_bytes, conditions) = (None, None, WriteConditions::default());
        let complete = ObjectOperation::CompleteUpload { upload, parts, checksum, size_bytes, conditions };
        self.change(key, Some(content(key, length)), self.ask(key, complete)).await
    }

    /// An object that goes when its day has come.
    async fn expire(&self, key: &'static str) -> Result<(), Error> {
        let filter = LifecycleFilter { prefix: Some(key.to_owned()), ..LifecycleFilter::default() };
        let expiration = Some(Expiry::Days(1));
        let id = "day".to_owned();
        let rule = LifecycleRule { id, is_enabled: true, filter, expiration, ..LifecycleRule::default() };
        let configuration = Configuration::Lifecycle(LifecycleConfiguration { rules: vec![rule] });
        self.ask("", ObjectOperation::PutConfiguration { configuration, is_confirmed: false }).await?;
        // From now on it is there or has gone.
        self.put(key, LARGE).await?;
        self.ledger.lock().expect("not poisoned").asked = Some((key, None));
        let began = Instant::now();
        while self.read(key).await?.is_some() {
            assert!(began.elapsed() < Duration::from_secs(30), "it does not expire");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Everything that can happen to an object, until the disk fails.
    async fn run(&self) -> Result<(), Error> {
        self.put("a", SMALL).await?;
        self.put("b", LARGE).await?;
        self.put("a", LARGE + 1).await?;
        self.put("b", SMALL + 1).await?;
        self.upload("c", LARGE + 2).await?;
        self.copy("c", "d").await?;
        self.put("c", LARGE + 3).await?;
        self.delete("a").await?;
        self.delete("d").await?;
        self.expire("e").await
    }

    async fn list(&self) -> BTreeMap<String, u64> {
        let list = ObjectOperation::List(ListRequest { limit: 1000, ..ListRequest::default() });
        match self.ask("", list).await {
            Ok(ObjectReply::Objects(page)) => page.items.into_iter().map(|item| (item.key, item.size_bytes)).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Compares what is there with what was acknowledged, and goes on. Gives how many bodies there should be.
    async fn check(&self, ledger: Ledger) -> usize {
        let mut there = BTreeMap::new();
        for key in ["a", "b", "c", "d", "e"] {
            let found = self.read(key).await.expect("it can be read");
            let before = ledger.acknowledged.get(key).cloned().flatten();
            let is_asked = matches!(&ledger.asked, Some((asked, becomes)) if *asked == key && *becomes == found);
            let length = |content: &Option<Bytes>| content.as_ref().map(Bytes::len);
            assert!(
                found == before || is_asked,
                "{key}: {:?} bytes are there, {:?} were acknowledged, {:?} was asked for",
                length(&found),
                length(&before),
                ledger.asked.as_ref().map(|(key, becomes)| (key, length(becomes)))
            );
            if let Some(found) = found {
                there.insert(key.to_owned(), found.len() as u64);
            }
        }
        let listed = self.list().await;
        // Lifecycle may take it at any moment, also between the two looks.
        if !listed.contains_key("e") {
            there.remove("e");
        }
        assert_eq!(listed, there);
        let uploads = ObjectOperation::ListUploads(ListRequest { limit: 1000, ..ListRequest::default() });
        let Ok(ObjectReply::Uploads(uploads)) = self.ask("", uploads).await else { panic!("they are listed") };
        for upload in uploads.items {
            self.ask(&upload.key, ObjectOperation::AbortUpload { upload: upload.id }).await.expect("given up");
        }
        self.put("z", LARGE).await.expect("it goes on");
        there.insert("z".to_owned(), LARGE as u64);
        if there.remove("e").is_some() {
            self.delete("e").await.expect("deleted");
        }
        // What an upload or a delete lets go is let go by messages.
        let began = Instant::now();
        loop {
            let usage = self.ask("", ObjectOperation::GetUsage).await;
            let Ok(ObjectReply::Usage(usage)) = usage else { panic!("{usage:?}") };
            if (usage.objects, usage.size_bytes) == (there.len() as u64, there.values().sum()) {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(10), "{usage:?} is not what is there: {there:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        there.values().filter(|length| **length > SMALL as u64 + 1).count()
    }
}

/// Bodies that are left on the disk.
fn bodies_on(data: &Path, disk: &SimDisk) -> usize {
    let (bodies, _) = Bodies::open(disks(data, disk)("bodies"), BodyOptions { lanes: 1, ..BodyOptions::default() })
        .expect("it opens");
    let (owned, next) = bodies.owners(Cursor::default(), 1000);
    assert!(next.is_none(), "there are more");
    owned.len()
}

/// What goes wrong in a run.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The power goes at this operation on the disk.
    PowerCut(u64),
    /// This sync fails, and then the power goes.
    FailedSync(u64),
}

/// One run. Says whether the fault was met.
fn run_with(fault: Fault) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let (Fault::PowerCut(number) | Fault::FailedSync(number)) = fault;
    let disk = SimDisk::new(number);
    let started = with_node(folder.path(), &disk, |node| async move {
        let client = Client { node, ledger: Arc::default() };
        let create = ObjectOperation::CreateBucket { access: AccessInput::None, object_lock: false, ownership: None };
        client.ask("", create).await.expect("made");
    });
    started.expect("an empty disk");
    let ledger = Arc::<Mutex<Ledger>>::default();
    let known = Arc::clone(&ledger);
    disk.set_faults(match fault {
        Fault::PowerCut(_) => Faults { crash_at: Some(number), ..Faults::default() },
        Fault::FailedSync(_) => Faults { fail_sync_at: Some(number), ..Faults::default() },
    });
    // It starts, or the power went before; it stops as well as it can.
    let _ = with_node(folder.path(), &disk, |node| async move {
        let client = Client { node, ledger: known };
        let ran = tokio::time::timeout(Duration::from_secs(20), client.run()).await;
        client.ledger.lock().expect("not poisoned").has_ended = matches!(ran, Ok(Ok(())));
    });
    let is_met = match fault {
        Fault::PowerCut(_) => disk.has_crashed(),
        Fault::FailedSync(_) => disk.syncs() >= number,
    };
    disk.power_cut();
    let ledger = ledger.lock().expect("not poisoned").clone();
    assert!(is_met || ledger.has_ended, "{fault:?} was not met, and yet not everything was done");
    let expected = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&expected);
    let checked = with_node(folder.path(), &disk, |node| async move {
        let client = Client { node, ledger: Arc::default() };
        *counted.lock().expect("not poisoned") = client.check(ledger).await;
    });
    checked.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    let expected = *expected.lock().expect("not poisoned");
    // What nothing refers to goes at a start that follows a clean stop.
    for _ in 0..10 {
        if bodies_on(folder.path(), &disk) == expected {
            break;
        }
        let idle = with_node(folder.path(), &disk, |_| tokio::time::sleep(Duration::from_millis(50)));
        idle.expect("it starts and stops");
    }
    assert_eq!(bodies_on(folder.path(), &disk), expected, "{fault:?}: bodies that nothing refers to");
    is_met
}

#[test]
fn a_power_cut_at_any_operation_of_the_disk_leaves_objects_whole() {
    let operations = run_with_each(Fault::PowerCut);
    assert!(operations > 100, "only {operations} operations");
}

#[test]
fn a_sync_that_fails_leaves_objects_whole() {
    let syncs = run_with_each(Fault::FailedSync);
    assert!(syncs > 20, "only {syncs} syncs");
}

/// Runs until the fault is met no more, a few at a time, as they mostly wait. Says how often it was met.
fn run_with_each(fault: fn(u64) -> Fault) -> u64 {
    let (next, met) = (AtomicU64::new(1), AtomicU64::new(0));
    let runs = || {
        while run_with(fault(next.fetch_add(1, Ordering::Relaxed))) {
            met.fetch_add(1, Ordering::Relaxed);
        }
    };
    scope(|threads| (0..4).for_each(|_| drop(threads.spawn(runs))));
    let met = met.into_inner();
    println!("met {met} times");
    met
}

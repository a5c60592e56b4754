//! Promise 5: a full disk makes the server read-only and loses nothing. Writes work again as soon as there is space.
//! The test needs the right to mount a small file system in a mount namespace of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use millrace_tests::{Server, ServerOptions, assert_problem, has_programs, left_out, wait_until};

/// Room for the checkpoint's journal and for the log's segments, which grow with their number.
const DISK: &str = "320m";

/// The process whose namespace it is.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A separate file system. Only processes that enter its namespace see it.
pub(crate) struct SmallDisk {
    holder: Holder,
    pub(crate) mount: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl SmallDisk {
    /// Returns `None` and prints a line that says so where this is not permitted, as in many containers.
    pub(crate) fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = Self::at(&folder.path().join("disk"))?;
        Some(Self { _folder: Some(folder), ..disk })
    }

    /// The same, mounted at this folder.
    pub(crate) fn at(mount: &Path) -> Option<Self> {
        if !has_programs(&["unshare", "nsenter"]) {
            return None;
        }
        std::fs::create_dir_all(mount).expect("made");
        let script = format!("mount -t tmpfs -o size={DISK} tmpfs \"$0\" && touch \"$0/mounted\" && exec sleep 1000");
        let holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script])
            .arg(mount)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("unshare is there");
        let mut disk = Self { holder: Holder(holder), mount: mount.to_owned(), _folder: None };
        let began = Instant::now();
        while !disk.inside("mounted").exists() {
            // A namespace that may not mount ends at once; the time only bounds the wait for one that hangs.
            if began.elapsed() > Duration::from_secs(30) || !matches!(disk.holder.0.try_wait(), Ok(None)) {
                left_out("mounting a tmpfs in a namespace of its own is not permitted here");
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(disk)
    }

    /// A file of the disk, as seen from outside the namespace.
    pub(crate) fn inside(&self, name: &str) -> PathBuf {
        let mount = self.mount.strip_prefix("/").expect("an absolute path");
        PathBuf::from(format!("/proc/{}/root", self.holder.0.id())).join(mount).join(name)
    }

    pub(crate) fn wrapper(&self) -> Vec<String> {
        vec!["nsenter".into(), format!("--mount=/proc/{}/ns/mnt", self.holder.0.id())]
    }
}

/// Takes all space that is left.
pub(crate) fn fill(disk: &SmallDisk) {
    let chunk = vec![7u8; 64 << 10];
    let mut ballast = std::fs::File::create(disk.inside("ballast")).expect("created");
    while std::io::Write::write_all(&mut ballast, &chunk).is_ok() {}
}

#[test]
fn a_full_disk_makes_the_server_read_only_until_space_returns() {
    let Some(disk) = SmallDisk::new() else { return };
    let mut options = ServerOptions::examples(&["kv", "counter"]);
    options.set("--cores", "1");
    options.folder = Some(disk.mount.clone());
    options.wrapper = disk.wrapper();
    let mut server = Server::start(options);
    let mut connection = server.connect();
    let mut acknowledged = 0u64;
    // The log goes on within the space it has until it needs a new segment.
    fill(&disk);
    let payload = format!("\"{}\"", "x".repeat(200_000));
    let began = Instant::now();
    let refused = loop {
        assert!(began.elapsed() < Duration::from_secs(60), "{acknowledged} writes, and the disk is not full");
        let reply = connection.request("POST", "/call/counter/k/add", &[], b"1").expect("a reply");
        if reply.status != 200 {
            break reply;
        }
        acknowledged += 1;
        assert_eq!(reply.json(), acknowledged);
        // This call takes space in the log and fails after that, or it is refused as well.
        let header = format!("Idempotency-Key: large-{acknowledged}");
        let large =
            connection.request("POST", "/send/counter/large/add", &[&header], payload.as_bytes()).expect("a reply");
        assert!([202, 503].contains(&large.status), "{}", large.text());
    };
    println!("{acknowledged} writes until the disk was full, then: {}", refused.text());
    assert_problem(&refused, 503, "read-only");
    assert_problem(&server.request("GET", "/readyz", &[], b""), 503, "read-only");
    assert_eq!(server.request("GET", "/healthz", &[], b"").status, 200);
    for _ in 0..20 {
        assert_eq!(server.value("counter/k/value", ""), acknowledged, "reads go on, and show what was acknowledged");
        assert_problem(&server.call("counter/k/add", "1"), 503, "read-only");
    }
    assert!(server.is_running());

    // After a crash with a full disk the server starts, and nothing acknowledged is gone.
    server.kill();
    server.restart();
    assert_eq!(server.value("counter/k/value", ""), acknowledged);

    std::fs::remove_file(disk.inside("ballast")).expect("removed");
    wait_until("writes are served again", || server.call("counter/again/add", "1").status == 200);
    wait_until("the server says so", || server.request("GET", "/readyz", &[], b"").status == 200);
    assert_eq!(server.value("counter/k/add", "1"), acknowledged + 1);
    server.kill();
    server.restart();
    assert_eq!(server.value("counter/k/value", ""), acknowledged + 1);
}

/// The same without a crash: space returns, and the same process serves on.
#[test]
fn the_same_process_serves_on_when_space_returns() {
    let Some(disk) = SmallDisk::new() else { return };
    let mut options = ServerOptions::examples(&["counter"]);
    options.set("--cores", "1");
    options.folder = Some(disk.mount.clone());
    options.wrapper = disk.wrapper();
    let mut server = Server::start(options);
    let payload = format!("\"{}\"", "x".repeat(200_000));
    let mut acknowledged = 0u64;
    for round in 0..3 {
        fill(&disk);
        wait_until("the disk is full", || {
            let _ = server.request("POST", "/send/counter/large/add", &[], payload.as_bytes());
            let reply = server.call("counter/k/add", "1");
            acknowledged += u64::from(reply.status == 200);
            reply.status == 503
        });
        std::fs::remove_file(disk.inside("ballast")).expect("removed");
        wait_until("writes are served again", || {
            let reply = server.call("counter/k/add", "1");
            acknowledged += u64::from(reply.status == 200);
            reply.status == 200
        });
        assert_eq!(server.value("counter/k/value", ""), acknowledged, "round {round}");
    }
    server.kill();
    server.restart();
    assert_eq!(server.value("counter/k/value", ""), acknowledged);
}

//! `millrace cluster demo`: three processes, one of them killed under load and brought back.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use millrace_tests::{Connection, Foreground, Reply, binary, repository, wait_until};

const COUNTERS: usize = 6;

/// Ports in a row: those of the largest cluster here.
const ROW: u16 = 6;

/// Three rows of ports that are free now, others for each caller. They are below those that the system gives to tests
/// beside this one.
pub(crate) fn bases() -> [u16; 3] {
    static ROWS: AtomicU32 = AtomicU32::new(0);
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let first = std::process::id() % 1_000 * 12;
    let rows = std::iter::repeat_with(|| first + ROWS.fetch_add(1, Ordering::Relaxed) * u32::from(ROW));
    let mut free = rows
        .map(|row| u16::try_from(20_000 + row % 12_000).expect("a port"))
        .filter(|base| (*base..base + ROW).all(is_free));
    [(); 3].map(|()| free.next().expect("some ports are free"))
}

/// The server's program, started by a command that goes before it.
fn wrapped(wrapper: &[String]) -> Command {
    let Some((program, arguments)) = wrapper.split_first() else { return Command::new(binary()) };
    let mut command = Command::new(program);
    command.args(arguments).arg(binary());
    command
}

/// A cluster of a process for each node.
pub(crate) struct Demo {
    pub command: Foreground,
    pub http_base: u16,
    pub peer_base: u16,
    pub s3_base: u16,
    pub folder: PathBuf,
    nodes: u16,
}

impl Demo {
    /// Three nodes, with six shards and the counters.
    pub fn start(data: &Path) -> Self {
        Self::with_app(data, "examples/counter")
    }

    pub fn with_app(data: &Path, app: &str) -> Self {
        Self::of(data, app, (3, 6))
    }

    pub fn of(data: &Path, app: &str, size: (u16, u16)) -> Self {
        let app = repository().join(app);
        Self::with(data, size, &["--app", app.to_str().expect("text")])
    }

    /// A cluster that keeps objects.
    pub fn with_s3(data: &Path) -> Self {
        Self::with(data, (3, 6), &["--s3-base"])
    }

    /// A cluster of so many nodes and shards that keeps objects.
    pub fn with_s3_of(data: &Path, size: (u16, u16)) -> Self {
        Self::with(data, size, &["--s3-base"])
    }

    /// Three nodes under the load that the command itself makes.
    fn with_load(data: &Path, seconds: u32) -> Self {
        Self::with(data, (3, 24), &["--load", &seconds.to_string()])
    }

    /// Three nodes with the counters, started by a command that goes before.
    pub fn wrapped(data: &Path, wrapper: &[String]) -> Self {
        let app = repository().join("examples/counter");
        Self::with_wrapper(data, (3, 6), &["--app", app.to_str().expect("text")], wrapper)
    }

    fn with(data: &Path, size: (u16, u16), arguments: &[&str]) -> Self {
        Self::with_wrapper(data, size, arguments, &[])
    }

    fn with_wrapper(data: &Path, (nodes, shards): (u16, u16), arguments: &[&str], wrapper: &[String]) -> Self {
        let [http_base, peer_base, s3_base] = bases();
        let mut command = wrapped(wrapper);
        command.args(["cluster", "demo", "--shards", &shards.to_string(), "--nodes", &nodes.to_string(), "--data"]);
        command.arg(data);
        command.args(["--http-base", &http_base.to_string(), "--peer-base", &peer_base.to_string()]);
        command.args(arguments);
        if arguments.contains(&"--s3-base") {
            command.arg(s3_base.to_string());
        }
        let mut command = Foreground::start(&mut command);
        wait_until("all nodes serve", || {
            assert!(command.is_running(), "{}", command.err());
            command.out().ends_with('\n')
        });
        Self { command, http_base, peer_base, s3_base, folder: data.to_owned(), nodes }
    }

    /// Kills a node as the system does, at once.
    pub fn kill(&self, node: u16) {
        self.signal(node, "-9");
    }

    /// Sends a signal to a node's process.
    pub fn signal(&self, node: u16, signal: &str) {
        let pid = std::fs::read_to_string(self.folder.join(format!("n{node}/pid"))).expect("it runs");
        assert!(Command::new("kill").args([signal, pid.trim()]).status().expect("kill is there").success());
    }

    /// Tells a node to stop, and waits until it has.
    pub fn stop(&self, node: u16) {
        let path = self.folder.join(format!("n{node}/pid"));
        let pid = std::fs::read_to_string(path).expect("it runs");
        let status = Command::new("kill").args(["-TERM", pid.trim()]).status().expect("kill is there");
        assert!(status.success());
        // Whoever has started it may not have looked yet that it has ended.
        let stat = PathBuf::from(format!("/proc/{}/stat", pid.trim()));
        wait_until("the node stops", || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")));
    }

    /// Starts a node that was killed. It is not the demo's any more.
    pub fn revive(&self, node: u16) -> Foreground {
        self.revive_wrapped(node, &[])
    }

    /// The same, by a command that goes before.
    pub fn revive_wrapped(&self, node: u16, wrapper: &[String]) -> Foreground {
        let mut again = wrapped(wrapper);
        again.args(["serve", "--cores", "1", "--cluster-data"]).arg(self.folder.join(format!("n{node}")));
        Foreground::start(&mut again)
    }

    pub fn request(&self, node: u16, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Option<Reply> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.http_base + node - 1));
        Connection::open(address).and_then(|mut connection| connection.request(method, path, headers, body)).ok()
    }

    /// Counts a counter up, at one node after the other until one has done it.
    pub fn add(&self, counter: usize, number: usize) {
        let header = format!("Idempotency-Key: {counter}-{number}");
        let path = format!("/call/counter/{counter}/add");
        let began = Instant::now();
        for node in (1..=self.nodes).cycle().skip(counter + number) {
            if self.request(node, "POST", &path, &[&header], b"1").is_some_and(|reply| reply.status == 200) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "no node takes the call");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn values(&self, node: u16) -> Option<Vec<String>> {
        let value = |counter| {
            let reply = self.request(node, "GET", &format!("/state/counter/{counter}"), &[], b"")?;
            (reply.status == 200).then(|| reply.text())
        };
        (0..COUNTERS).map(value).collect()
    }

    /// The guidance, as the first node that knows it sees it.
    pub fn guidance(&self) -> Option<serde_json::Value> {
        let replies = (1..=self.nodes).filter_map(|asked| self.request(asked, "GET", "/cluster", &[], b""));
        replies.filter(|reply| reply.status == 200).map(|reply| reply.json()).next()
    }

    /// Whether a node owns shards, as some node sees it.
    pub fn owns(&self, node: u16) -> bool {
        let guidance = self.guidance().unwrap_or_default();
        guidance["shards"].as_array().is_some_and(|shards| shards.iter().any(|place| place["owner"] == node))
    }

    /// How many shards' logs each node holds, as some node sees it; nothing while any moves.
    pub fn holds(&self) -> Option<Vec<usize>> {
        let guidance = self.guidance()?;
        let shards = guidance["shards"].as_array()?;
        if shards.iter().any(|place| place["wanted"].is_array()) {
            return None;
        }
        let holds = |node: &u64| {
            let lists = |place: &&serde_json::Value| {
                place["replicas"].as_array().is_some_and(|all| all.contains(&(*node).into()))
            };
            shards.iter().filter(lists).count()
        };
        let nodes: Vec<u64> = guidance["nodes"].as_object()?.keys().filter_map(|node| node.parse().ok()).collect();
        Some(nodes.iter().map(holds).collect())
    }

    pub fn is_alive(&self, node: u16) -> bool {
        let guidance = self.request(1, "GET", "/cluster", &[], b"").expect("it answers").json();
        guidance["nodes"][node.to_string()]["is_alive"] == true
    }
}

/// Shards that a node says it has got from a lost owner.
fn failovers(demo: &Demo, node: u16) -> u64 {
    let metrics = demo.request(node, "GET", "/metrics", &[], b"").expect("it lives").text();
    let count = metrics.lines().find_map(|line| line.strip_prefix("millrace_failovers_total "));
    count.and_then(|count| count.parse().ok()).expect("the node counts them")
}

#[test]
fn a_node_is_killed_and_comes_back_and_nothing_is_lost() {
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path().join("demo");
    let mut demo = Demo::start(&folder);
    let add_all = |number| (0..COUNTERS).for_each(|counter| demo.add(counter, number));
    (0..5).for_each(add_all);
    demo.kill(2);
    (5..10).for_each(add_all);
    wait_until("the others know", || !demo.is_alive(2));
    wait_until("both of its shards are counted", || failovers(&demo, 1) + failovers(&demo, 3) == 2);
    let mut again = demo.revive(2);
    wait_until("it is back", || demo.is_alive(2));
    (10..15).for_each(add_all);
    let expected = demo.values(1).expect("they are read");
    assert!(expected.iter().all(|value| value.contains("15")), "{expected:?}");
    for node in [2, 3] {
        wait_until("the node answers the same", || demo.values(node).as_ref() == Some(&expected));
    }
    let url = format!("http://127.0.0.1:{}", demo.http_base);
    let printed = Command::new(binary()).args(["cluster", "guidance", "--url", &url]).output().expect("started");
    let printed: serde_json::Value = serde_json::from_slice(&printed.stdout).expect("JSON");
    assert_eq!((printed["nodes"].as_object().map(serde_json::Map::len), &printed["node"]), (Some(3), &1.into()));
    // The leader has heard the node; the one that is asked hears it when they are connected.
    wait_until("the node that is asked hears all", || {
        let status = Command::new(binary()).args(["cluster", "status", "--url", &url]).output().expect("started");
        String::from_utf8_lossy(&status.stdout).matches("alive").count() == 3
    });
    demo.command.interrupt();
    assert!(demo.command.ended().success(), "{}", demo.command.err());
    again.interrupt();
    again.ended();
}

#[test]
fn the_demo_kills_a_node_under_its_load_and_counts_what_is_left() {
    let data = tempfile::tempdir().expect("a folder");
    let mut demo = Demo::with_load(&data.path().join("demo"), 9);
    let status = demo.command.ended();
    let (out, err) = (demo.command.out(), demo.command.err());
    assert!(status.success(), "{out}{err}");
    for said in ["node 2 killed", "node 2 started again", "add up to 0: nothing was lost, nothing done twice"] {
        assert!(out.contains(said), "{out}{err}");
    }
    let plot = std::fs::read_to_string(data.path().join("demo.svg")).expect("the plot is beside the data");
    assert!(plot.contains("node 2 killed") && plot.matches("<circle").count() >= 8, "{plot}");
    assert!(!demo.folder.exists(), "without --keep the data goes");
}

#[test]
fn each_shard_is_on_three_of_five_nodes_and_any_node_answers_for_all() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::of(&data.path().join("demo"), "examples/counter", (5, 20));
    wait_until("all is placed", || demo.holds() == Some(vec![12; 5]));
    let add_all = |number| (0..COUNTERS).for_each(|counter| demo.add(counter, number));
    // Each number begins at another node.
    (0..5).for_each(add_all);
    let expected = demo.values(1).expect("they are read");
    assert!(expected.iter().all(|value| value.contains('5')), "{expected:?}");
    for node in 2..=5 {
        wait_until("the node answers the same", || demo.values(node).as_ref() == Some(&expected));
    }
    demo.kill(4);
    (5..10).for_each(add_all);
    assert_eq!(demo.holds(), Some(vec![12; 5]), "it may come back");
    let _again = demo.revive(4);
    wait_until("it owns shards again", || demo.owns(4));
    let expected = demo.values(1).expect("they are read");
    assert!(expected.iter().all(|value| value.contains("10")), "{expected:?}");
    for node in 2..=5 {
        wait_until("the node answers the same", || demo.values(node).as_ref() == Some(&expected));
    }
}

#[test]
fn what_a_cluster_cannot_do_is_refused_with_a_sentence() {
    let data = tempfile::tempdir().expect("a folder");
    let refused = |arguments: &[&str]| {
        let output = Command::new(binary()).args(arguments).output().expect("started");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let folder = data.path().join("cluster");
    let folder = folder.to_str().expect("text");
    let two =
        ["cluster", "init", "--data", folder, "--http", "127.0.0.1:1,127.0.0.1:2", "--peer", "127.0.0.1:3,127.0.0.1:4"];
    assert!(refused(&two).contains("3 to"), "two nodes have no majority when one is lost");
    let addresses = ["--http", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "--peer", "127.0.0.1:4,127.0.0.1:5,127.0.0.1:6"];
    let init_with =
        |replicas| [&["cluster", "init", "--data", folder, "--replicas", replicas][..], &addresses].concat();
    assert!(refused(&init_with("4")).contains("3 or 5"));
    assert!(refused(&init_with("5")).contains("3 nodes cannot hold"));
    assert!(refused(&["serve", "--cluster-data", folder]).contains("cluster.json"));
    let three = ["127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "127.0.0.1:4,127.0.0.1:5,127.0.0.1:6"];
    let init = ["cluster", "init", "--data", folder, "--http", three[0], "--peer", three[1]];
    let twice = "127.0.0.1:1,127.0.0.1:1,127.0.0.1:3";
    for (http, peer) in [(twice, three[1]), (three[1], three[1])] {
        let init = ["cluster", "init", "--data", folder, "--http", http, "--peer", peer];
        assert!(refused(&init).contains("given twice"), "{http} {peer}");
    }
    let made = Command::new(binary()).args(init).output().expect("started");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(refused(&init).contains("n1") || refused(&init).contains("authority"), "it overwrites nothing");
    let n1 = format!("{folder}/n1");
    let serve = ["serve", "--cluster-data", &n1];
    assert!(refused(&[&serve[..], &["--durability", "none"]].concat()).contains("--durability"));
    assert!(refused(&[&serve[..], &["--s3", "127.0.0.1:0"]].concat()).contains("--s3"));
    assert!(refused(&[&serve[..], &["--data", "x"]].concat()).contains("--cluster-data"));
}

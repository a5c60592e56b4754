//! Starting and stopping. One sentence names a wrong setting, and a stop finishes what has begun.

use std::io;
use std::net::TcpListener;
use std::thread::scope;
use std::time::{Duration, Instant};

use millrace_tests::{
    Connection, Load, Reply, Server, ServerOptions, Shared, TestApp, assert_problem, basic, millrace, wait_until,
};
use serde_json::json;

fn plain() -> ServerOptions {
    ServerOptions::examples(&["counter"])
}

/// The last line of a refusal: one sentence that begins with `millrace:`.
fn sentence(errors: &str) -> &str {
    let last = errors.trim_end().lines().last().unwrap_or_default();
    assert!(last.starts_with("millrace: ") || errors.contains("millrace: "), "no sentence: {errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    last
}

#[test]
fn a_taken_port_names_the_address_and_the_flag() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let errors = Server::refuses(ServerOptions { address: Some(address), ..plain() });
    assert!(sentence(&errors).contains(&address.to_string()) && errors.contains("--http"), "{errors}");
    // This also holds if the other program is a server like ours, which shares its port among its cores.
    let first = Server::start(plain());
    let errors = Server::refuses(ServerOptions { address: Some(first.address()), ..plain() });
    assert!(sentence(&errors).contains("--http"), "{errors}");
    assert_eq!(first.call("counter/k/add", "1").status, 200);
}

#[test]
fn a_data_directory_in_use_is_refused_and_left_alone() {
    let first = Server::start(plain());
    let folder = first.data().parent().expect("a folder").to_owned();
    let errors = Server::refuses(ServerOptions { folder: Some(folder), ..plain() });
    assert!(sentence(&errors).contains("is used by another"), "{errors}");
    assert!(errors.contains("--data"), "{errors}");
    for command in ["inspect", "repair"] {
        let output = millrace(&[command, "--data", first.data().to_str().expect("text")]);
        assert_eq!(output.code, Some(1), "{command}: {}", output.out);
        assert!(output.err.contains("is used by another"), "{command}: {}", output.err);
    }
    let pid = std::fs::read_to_string(first.data().join("pid")).expect("the pid file is still there");
    assert_eq!(pid.trim(), first.pid().to_string());
    assert_eq!(first.call("counter/k/add", "1").status, 200);
}

#[test]
fn the_number_of_shards_is_fixed_when_the_directory_is_created() {
    let mut server = Server::start(plain().with(&["--shards", "8"]));
    assert_eq!(server.value("counter/k/add", "1"), 1);
    assert!(server.stop());
    server.options().set("--shards", "16");
    let errors = server.restart_refuses();
    assert!(sentence(&errors).contains("--shards 16") && errors.contains('8'), "{errors}");
    server.options().set("--shards", "8");
    server.restart();
    assert_eq!(server.value("counter/k/value", ""), 1);
}

#[test]
fn wrong_settings_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("millrace.toml");
    let path = file.to_str().expect("text");
    for (text, named) in [
        ("core = 2\n", "core"),
        ("cores = \"two\"\n", "cores"),
        ("durability = \"maybe\"\n", "durability"),
        ("[cores\n", "line 1"),
    ] {
        std::fs::write(&file, text).expect("written");
        let errors = Server::refuses(ServerOptions::default().with(&["--config", path]));
        sentence(&errors);
        assert!(errors.contains("--config") && errors.contains(named), "{errors}");
    }
    for (arguments, named) in [
        (&["--cores", "0"][..], "--cores"),
        (&["--shards", "0"], "--shards"),
        (&["--shards", "5000"], "--shards"),
        (&["--retention-hours", "0"], "--retention-hours"),
        (&["--queue-ms", "0"], "--queue-ms"),
        (&["--connections", "0"], "--connections"),
        (&["--memory", "5 apples"], "--memory"),
        (&["--memory", "1KiB"], "--memory"),
        (&["--durability", "maybe"], "--durability"),
        (&["--tls-certificate", "x.pem"], "--tls-key"),
        (&["--config", "/no/such/file"], "--config"),
        (&["--app", "/no/such/folder"], "--app"),
        (&["--log", "==="], "--log"),
        (&["--log", "wran"], "\"wran\" is no level"),
        (&["--unknown"], "--unknown"),
    ] {
        let errors = Server::refuses(ServerOptions::default().with(arguments));
        assert!(errors.contains(named), "{arguments:?}: {errors}");
        assert!(!errors.contains("panicked"), "{errors}");
    }
    let errors = Server::refuses(ServerOptions { folder: Some("/proc/none".into()), ..ServerOptions::default() });
    assert!(sentence(&errors).contains("--data") && errors.contains("/proc/none"), "{errors}");
    let unknown = millrace(&["serve", "--unknown"]);
    assert_eq!(unknown.code, Some(2), "a wrong command line has an exit code of its own");
    let help = millrace(&["serve", "--help"]);
    assert_eq!(help.code, Some(0));
    for flag in ["--app", "--data", "--http", "--cores", "--shards", "--memory", "--durability"] {
        assert!(help.out.contains(flag), "{flag}");
    }
}

#[test]
fn settings_come_from_flags_before_the_environment_before_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("millrace.toml");
    std::fs::write(&file, "shards = 4\nqueue_ms = 100\n").expect("written");
    let mut options =
        ServerOptions::default().with(&["--config", file.to_str().expect("text"), "--cores", "1", "--log", "info"]);
    options.environment = vec![("MILLRACE_SHARDS".into(), "5".into()), ("MILLRACE_CORES".into(), "2".into())];
    let server = Server::start(options);
    wait_until("the server has logged its settings", || server.errors().contains("shards"));
    assert!(!server.errors().contains('\x1b'), "a log that nobody watches on a terminal has no colours");
    assert!(server.errors().contains("shards=5") && server.errors().contains("cores=1"), "{}", server.errors());
}

#[test]
fn the_pid_file_names_the_process_and_goes_with_it() {
    let mut server = Server::start(plain());
    let path = server.data().join("pid");
    assert_eq!(std::fs::read_to_string(&path).expect("written").trim(), server.pid().to_string());
    assert!(server.stop(), "{}", server.errors());
    assert!(!path.exists(), "left behind");
    server.restart();
    server.kill();
    server.restart();
    assert_eq!(std::fs::read_to_string(&path).expect("written again").trim(), server.pid().to_string());
}

/// A login hashes its password with argon2id, which takes tens of milliseconds. So requests are under way when
/// SIGTERM comes, and each still gets its answer.
#[test]
fn a_stop_finishes_the_requests_it_has_and_exits_with_0() {
    const LOGINS: usize = 6;
    let mut server = Server::start(ServerOptions::examples(&["login"]));
    let body = br#"{"username":"ada","password":"correct horse"}"#;
    assert_eq!(server.request("POST", "/user/register", &[], body).status, 201);
    let login = basic("ada", "correct horse");
    let mut connections: Vec<_> = (0..LOGINS).map(|_| server.connect()).collect();
    // One connection is idle: it must not hold up the stop.
    let idle = server.connect();
    for connection in &mut connections {
        // A core has accepted the connection, not only the kernel.
        assert_eq!(connection.request("GET", "/healthz", &[], b"").expect("a reply").status, 200);
    }
    for (number, connection) in connections.iter_mut().enumerate() {
        let password = if number == 0 { login.clone() } else { basic("ada", &format!("wrong {number}")) };
        connection.send("GET", "/user/login", &[&password], b"").expect("sent");
    }
    // The server knows the logins: it read each of them before this request, which came later.
    wait_until("the logins are under way", || server.metric("millrace_open_requests") >= 1.0);
    server.terminate();
    for (number, connection) in connections.iter_mut().enumerate() {
        let reply = connection.receive(false).expect("an answer, though the server stops");
        assert_eq!(reply.status, if number == 0 { 200 } else { 401 }, "{}", reply.text());
    }
    assert!(server.ends_well(), "exit code: {}", server.errors());
    drop(idle);
    server.restart();
    let reply = server.request("GET", "/user/login", &[&login], b"");
    assert_eq!((reply.status, reply.text().as_str()), (200, "ok"));
}

/// Under load every call that was answered before, during or after SIGTERM is there afterwards.
#[test]
fn a_stop_under_load_loses_nothing_and_answers_clearly() {
    let mut server = Server::start(plain());
    let address = server.address();
    let acknowledged: u64 = scope(|threads| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                threads.spawn(move || {
                    let mut acknowledged = 0u64;
                    let Ok(mut connection) = millrace_tests::Connection::open(address) else { return 0 };
                    while let Ok(reply) = connection.request("POST", "/call/counter/k/add", &[], b"1") {
                        match reply.status {
                            200 => acknowledged += 1,
                            503 => assert_problem(&reply, 503, "shutting-down"),
                            _ => panic!("{}", reply.text()),
                        }
                        if reply.header("connection") == Some("close") {
                            break;
                        }
                    }
                    acknowledged
                })
            })
            .collect();
        wait_until("the clients get on", || server.metric("millrace_log_entries_total") > 200.0);
        assert!(server.stop(), "{}", server.errors());
        clients.into_iter().map(|client| client.join().expect("saw nothing wrong")).sum()
    });
    server.restart();
    let found = server.value("counter/k/value", "").as_u64().expect("a number");
    println!("{acknowledged} acknowledged, {found} found");
    // One unanswered request of each client may have been taken in the last moment.
    assert!((acknowledged..=acknowledged + 4).contains(&found));
}

/// Entities on many shards, changed one after the other. Each is held until the last is changed.
const RING: &str = r#"
import { service, query } from "millrace";
export default service({
  async around(ctx, [next, ...others]) {
    ctx.set("count", (ctx.get("count") ?? 0) + 1);
    // Others come meanwhile, and wait for what is held here.
    if (next === "hash") await crypto.argon2id.hash("a password");
    else if (next !== undefined) await ctx.call("ring", next, "around", others);
  },
  count: query((ctx) => ctx.get("count") ?? 0),
});
"#;

/// Each waits for the next, and the last for the first; pairs in both directions; and some that hold their entities
/// for as long as a hash takes.
const ROUNDS: [&[&str]; 8] = [
    &["a", "b", "c"],
    &["b", "c", "a"],
    &["c", "a", "b"],
    &["a", "b"],
    &["b", "a"],
    &["c", "b", "a"],
    &["a", "c", "hash"],
    &["c", "b", "hash"],
];

const RING_CLIENTS: u64 = 24;

/// Shorter than any limit on a drain or on waiting. A call that reaches one of those has waited in a circle.
const SHORT: Duration = Duration::from_secs(10);

/// One client's calls.
struct Around {
    acknowledged: u64,
    /// The time of the last of them.
    last: Instant,
    /// Whether one more call was never answered.
    is_unanswered: bool,
}

fn round_of(client: u64) -> &'static [&'static str] {
    ROUNDS[client as usize % ROUNDS.len()]
}

/// One call, under the key of its number.
fn go_around(connection: &mut Connection, client: u64, number: u64) -> io::Result<Reply> {
    let (round, header) = (round_of(client), format!("Idempotency-Key: {client}-{number}"));
    let path = format!("/call/ring/{}/around", round[0]);
    connection.request("POST", &path, &[&header], json!(round[1..]).to_string().as_bytes())
}

fn go_around_until_the_stop(client: u64, shared: &Shared) -> Around {
    let mut connection = Connection::open(shared.address()).expect("the server accepts");
    let mut told = Around { acknowledged: 0, last: Instant::now(), is_unanswered: false };
    loop {
        let Ok(reply) = go_around(&mut connection, client, told.acknowledged) else {
            told.is_unanswered = true;
            return told;
        };
        if reply.status == 503 {
            assert_problem(&reply, 503, "shutting-down");
            return told;
        }
        assert_eq!(reply.status, 200, "{}", reply.text());
        told.acknowledged += 1;
        told.last = Instant::now();
        shared.acknowledge();
        if reply.header("connection") == Some("close") {
            return told;
        }
    }
}

/// Transactions that wait for each other when SIGTERM comes, over the shards of all cores, come to their end all the
/// same.
#[test]
fn a_stop_ends_in_the_middle_of_transactions_that_wait_for_each_other() {
    let mut options = ServerOptions::examples(&[]);
    options.set("--cores", "3");
    let mut server = Server::start(options);
    assert_eq!(TestApp::with("ring.ts", RING).deploy(&server, "ring").status, 201);
    let load = Load::start(&server, RING_CLIENTS, go_around_until_the_stop);
    load.wait_for(RING_CLIENTS * 4);
    wait_until("they are in each other's way", || server.metric("millrace_transaction_restarts_total") > 0.0);
    let began = Instant::now();
    assert!(server.stop(), "{}", server.errors());
    let took = began.elapsed();
    let told = load.finish();
    let late = told.iter().filter(|told| told.last > began).count();
    let unanswered: Vec<u64> =
        (0..).zip(&told).filter(|(_, told)| told.is_unanswered).map(|(client, _)| client).collect();
    println!("stopped in {took:.1?}; {late} clients were answered meanwhile, {} never", unanswered.len());
    assert!(took < SHORT, "{took:?}");
    assert!(late > 0, "nothing was under way");

    server.restart();
    // A client without an answer asks again. The call takes effect now, or has done so.
    for client in unanswered {
        let reply = go_around(&mut server.connect(), client, told[client as usize].acknowledged).expect("a reply");
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    for entity in ["a", "b", "c"] {
        let calls = |(client, told): (u64, &Around)| {
            let count = round_of(client).iter().filter(|name| **name == entity).count() as u64;
            count * (told.acknowledged + u64::from(told.is_unanswered))
        };
        let expected: u64 = (0..).zip(&told).map(calls).sum();
        assert_eq!(server.value(&format!("ring/{entity}/count"), ""), expected, "{entity}");
    }
    for what in ["locked_entities", "unfinished_commits"] {
        wait_until(&format!("there are no {what}"), || server.metric(&format!("millrace_{what}")) == 0.0);
    }
}

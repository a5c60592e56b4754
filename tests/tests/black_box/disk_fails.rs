//! Promise 4. If a sync or write of the log fails, that core's shards stop for good, and the server says so. Nothing
//! unacknowledged is visible, and nothing acknowledged is gone after a restart.

use millrace_tests::{Client, Load, Reply, Server, ServerOptions, Shared, WatchedDisk, assert_problem, wait_until};

const CLIENTS: u64 = 16;
const SHARDS: f64 = 64.0;

/// What one client was told about its counter.
struct Told {
    acknowledged: u64,
    refused: Option<Reply>,
}

/// Adds one, with a key made from the number of the call.
fn add(client: &mut Client<'_>, counter: u64, number: u64) -> Reply {
    let key = format!("Idempotency-Key: {counter}-{number}");
    client.once("POST", &format!("/call/counter/c{counter}/add"), &[&key], "1").expect("an answer")
}

/// Adds one again and again until the client is told to stop or refused.
fn count_up(counter: u64, shared: &Shared) -> Told {
    let mut client = Client::new(shared);
    let mut told = Told { acknowledged: 0, refused: None };
    while !client.stops() {
        let reply = add(&mut client, counter, told.acknowledged + 1);
        if reply.status != 200 {
            told.refused = Some(reply);
            return told;
        }
        told.acknowledged += 1;
        assert_eq!(reply.json(), told.acknowledged, "what was added before is there, and nothing else");
        client.acknowledged();
    }
    told
}

fn assert_stopped(reply: &Reply) {
    assert_problem(reply, 503, "shard-stopped");
    let document = reply.json();
    let detail = document["detail"].as_str().unwrap_or_default();
    for what in [
        "the shard stopped: the log stopped after a failed write and needs a restart: log/",
        "Input/output error",
        "calls not yet answered may or may not have taken effect, repeat them with their Idempotency-Key after a restart",
    ] {
        assert!(detail.contains(what), "no {what:?} in {detail}");
    }
}

/// Every question about a counter of a stopped shard.
fn assert_refuses_everything(server: &Server, counter: u64) {
    for _ in 0..3 {
        assert_stopped(&server.call(&format!("counter/c{counter}/add"), "1"));
        assert_stopped(&server.call(&format!("counter/c{counter}/value"), ""));
        assert_stopped(&server.request("GET", &format!("/state/counter/c{counter}/value"), &[], b""));
        assert_stopped(&server.request("GET", &format!("/state/counter/c{counter}"), &[], b""));
        assert_stopped(&server.request("POST", &format!("/send/counter/c{counter}/add"), &[], b"1"));
    }
}

/// Fails one write or sync under load. Checks what the server says of it and what a restart finds.
fn one_failure(fail: fn(&WatchedDisk), restart: fn(&mut Server)) {
    let Some(disk) = WatchedDisk::new() else { return };
    let mut options = ServerOptions::examples(&["counter"]);
    disk.give(&mut options);
    let mut server = Server::start(options);
    let load = Load::start(&server, CLIENTS, count_up);
    load.wait_for(300);
    assert_eq!(server.metric("millrace_stopped_shards"), 0.0);
    assert_eq!(server.request("GET", "/readyz", &[], b"").status, 200);
    fail(&disk);
    wait_until("one core's shards of two have stopped", || server.metric("millrace_stopped_shards") == SHARDS / 2.0);
    assert_eq!(disk.failures(), 1);
    let mut told = load.finish();

    // The other core's shards go on, and their syncs succeed. The stopped shards do not try the sync again.
    assert_eq!(server.metric("millrace_stopped_shards"), SHARDS / 2.0);
    assert_problem(&server.request("GET", "/readyz", &[], b""), 503, "shard-stopped");
    assert_eq!(server.request("GET", "/healthz", &[], b"").status, 200);
    wait_until("the log says so", || {
        let line = server.errors().lines().find(|line| line.contains("the log failed")).map(str::to_owned);
        line.is_some_and(|line| {
            line.contains("ERROR")
                && line.contains("this core's shards are stopped until a restart")
                && line.contains("Input/output error")
        })
    });
    let (mut stopped, mut were_waiting) = (Vec::new(), 0);
    for (counter, told) in (0..).zip(&mut told) {
        let number = told.acknowledged + 1;
        let key = format!("Idempotency-Key: {counter}-{number}");
        let reply = server.request("POST", &format!("/call/counter/c{counter}/add"), &[&key], b"1");
        if reply.status == 200 {
            assert!(told.refused.is_none(), "a shard that has stopped serves: {}", reply.text());
            assert_eq!(reply.json(), number);
            told.acknowledged = number;
            continue;
        }
        assert_stopped(&reply);
        told.refused.iter().for_each(assert_stopped);
        were_waiting += u64::from(told.refused.is_some());
        assert_refuses_everything(&server, counter);
        stopped.push(counter);
    }
    assert!(were_waiting > 0, "the calls whose sync failed were refused");
    assert!((1..CLIENTS as usize).contains(&stopped.len()), "counters of one core stopped: {stopped:?}");
    assert!(server.is_running());

    restart(&mut server);
    for (counter, told) in (0..).zip(&told) {
        let value = server.value(&format!("counter/c{counter}/value"), "");
        let most = told.acknowledged + u64::from(stopped.contains(&counter));
        assert!(value == told.acknowledged || value == most, "counter {counter}: {value} of {}", told.acknowledged);
        let number = told.acknowledged + 1;
        let key = format!("Idempotency-Key: {counter}-{number}");
        let reply = server.request("POST", &format!("/call/counter/c{counter}/add"), &[&key], b"1");
        assert_eq!((reply.status, reply.json()), (200, number.into()), "repeated, it took effect once");
    }
    assert_eq!(server.metric("millrace_stopped_shards"), 0.0);
    assert_eq!(server.request("GET", "/readyz", &[], b"").status, 200);
}

#[test]
fn a_failed_sync_stops_the_cores_shards_for_good() {
    one_failure(WatchedDisk::fail_next_sync, |server| {
        server.kill();
        server.restart();
    });
}

/// Here the server drains and stops. The stop must end although the log can no longer be closed.
#[test]
fn a_failed_write_stops_the_cores_shards_for_good() {
    one_failure(WatchedDisk::fail_next_write, |server| {
        assert!(!server.stop(), "a log that failed is told once more by the exit code");
        assert!(server.errors().contains("Input/output error"), "{}", server.errors());
        server.restart();
    });
}

//! Data that is kept for a time goes when the time is over. Under a load that never changes, the data directory stops
//! growing. A clock that the test moves makes hours moments.

use std::fs::read_dir;
use std::path::Path;
use std::thread::scope;
use std::time::{Duration, Instant};

use millrace_tests::{MovedClock, Random, Server, ServerOptions, TestApp, until_taken, wait_until};
use serde_json::json;

const CLIENTS: u64 = 4;

/// Calls, messages and workflows: this number of each kind, by each client, in an hour.
const CALLS: u64 = 150;

/// The input of a call, which its result holds too.
const TEXT_BYTES: usize = 32 << 10;

/// Hours of the test. Retention is one hour: from the second hour on, as much goes as comes.
const HOURS: u64 = 6;

const APP: &str = r#"
import { service, workflow } from "millrace";
export default service({
  answer(ctx, text) {
    ctx.set("answered", (ctx.get("answered") ?? 0) + 1);
    return text;
  },
  run: workflow(async (ctx, text) => {
    await ctx.call("work", ctx.key, "answer", "");
    return text;
  }),
});
"#;

fn bytes_in(path: &Path) -> u64 {
    let entries = read_dir(path).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_in(&entry.path()),
            // A file that has gone meanwhile holds nothing.
            metadata => metadata.map_or(0, |metadata| metadata.len()),
        })
        .sum()
}

/// JSON text that compresses to a half at the best.
fn text(random: &mut Random) -> String {
    let text: String = (0..TEXT_BYTES / 16).map(|_| format!("{:016x}", random.below(u64::MAX))).collect();
    json!(text).to_string()
}

/// An hour of one client: calls, messages and workflows, each under a key of its own. All are over at the end.
fn work(server: &Server, hour: u64, client: u64) {
    let mut random = Random::of(hour * CLIENTS + client);
    let mut connection = server.connect();
    let mut ids = Vec::new();
    for number in 0..CALLS {
        let header = format!("Idempotency-Key: {hour}-{number}");
        for (path, handler, status) in
            [("call/work/called", "answer", 200), ("send/work/sent", "answer", 202), ("send/work/flow", "run", 202)]
        {
            let path = format!("/{path}{client}/{handler}");
            let text = text(&mut random);
            let reply =
                until_taken(|| connection.request("POST", &path, &[&header], text.as_bytes()).expect("a reply"));
            assert_eq!(reply.status, status, "{path}: {}", reply.text());
            if status == 202 {
                ids.push(reply.json()["id"].as_str().expect("an id").to_owned());
            }
        }
    }
    for id in ids {
        assert_eq!(server.ended(&id)["status"], "succeeded");
    }
}

/// Bytes of the checkpoint and of the log. The log has a bound of its own and is soon there.
fn sizes(server: &Server) -> [u64; 2] {
    ["checkpoint", "log"].map(|name| bytes_in(&server.data().join(name)))
}

#[test]
fn under_a_steady_load_the_data_directory_stops_growing() {
    let Some(mut clock) = MovedClock::new() else { return };
    let mut options = ServerOptions::examples(&[]);
    // Few shards and little memory bring what is written to the checkpoint soon.
    for (flag, value) in [("--retention-hours", "1"), ("--memory", "64MiB"), ("--shards", "2")] {
        options.set(flag, value);
    }
    clock.give(&mut options);
    let server = Server::start(options);
    assert_eq!(TestApp::with("work.ts", APP).deploy(&server, "work").status, 201);
    let mut after = Vec::new();
    for hour in 1..=HOURS {
        let began = Instant::now();
        let server = &server;
        scope(|threads| (0..CLIENTS).for_each(|client| drop(threads.spawn(move || work(server, hour, client)))));
        let [checkpoint, log] = sizes(server);
        println!(
            "hour {hour}: checkpoint {} MB, log {} MB, {:.1?}",
            checkpoint / 1_000_000,
            log / 1_000_000,
            began.elapsed()
        );
        after.push([checkpoint, log]);
        // All of it is older than the retention now.
        clock.forward(Duration::from_secs(3660));
        let listed = || server.get("/invocations?service=work&limit=1");
        wait_until("the workflows have been forgotten", || listed()["invocations"] == json!([]));
    }
    // The figures go up and down: what a merge is about to replace is still there. A checkpoint that deletes nothing
    // would have more than 1.8 times as much.
    let late = &after[3..];
    let [checkpoint, _] = after[1];
    let mean = late.iter().map(|[checkpoint, _]| checkpoint).sum::<u64>() / late.len() as u64;
    assert!(
        mean < checkpoint / 2 * 3,
        "the checkpoint had {checkpoint} bytes after two hours, and has {mean} on the average"
    );
    let [now, then] = [late, &after[1..2]].map(|some| some.iter().map(|[checkpoint, log]| checkpoint + log).max());
    let [now, then] = [now, then].map(|most| most.expect("an hour"));
    assert!(now < then / 2 * 3, "there were {then} bytes after two hours, and are up to {now}");
}

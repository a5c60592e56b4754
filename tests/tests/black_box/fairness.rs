//! Every client that queues for an entity gets its turn, whatever the others want: a writer among many readers, and a
//! reader among many writers. It also holds when all of them hold entities of two shards.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;

use millrace_tests::{Connection, Server, ServerOptions, StopOnDrop, TestApp, machine, wait_until};

/// Clients whose transactions follow each other without a gap.
const OTHERS: usize = 24;

/// Turns of the one client that comes in between.
const TURNS: usize = 30;

/// How often each of the others may finish while one client waits for its turn. Fair queues let earlier clients pass.
/// A client that has to begin anew comes before clients that have begun since.
const ROUNDS: u64 = 4;

const SIDE: &str = r#"
import { service, query } from "millrace";
export default service({
  add(ctx) { ctx.set("count", (ctx.get("count") ?? 0) + 1); },
  count: query((ctx) => ctx.get("count") ?? 0),
});
"#;

/// Each holds one side until it has the other, and then both. Half of them begin with the left side, half with the
/// right.
const FAIR: &str = r#"
import { type Routes } from "millrace";
const sides = (request) => request.params.first === "left" ? ["left", "right"] : ["right", "left"];
export const routes: Routes = {
  "POST /write/:first": async (ctx, request) => {
    for (const side of sides(request)) await ctx.call(`fair_${side}`, `the ${side}`, "add");
    return "written";
  },
  "POST /read/:first": async (ctx, request) => {
    const counts = [];
    for (const side of [...sides(request), ...sides(request)]) counts.push(await ctx.call(`fair_${side}`, `the ${side}`, "count"));
    return counts;
  },
};
"#;

fn post(connection: &mut Connection, what: &str, number: usize) {
    let path = format!("/fair/{what}/{}", ["left", "right"][number % 2]);
    let reply = connection.request("POST", &path, &[], b"").expect("a reply");
    assert_eq!(reply.status, 200, "{what}: {}", reply.text());
}

/// One client does `one` now and then while many do `many`. Returns for each turn how many of those finished while it
/// waited.
fn turns(one: &str, many: &str) -> Vec<u64> {
    // Its clients keep both cores busy.
    machine::alone();
    let server = Server::start(ServerOptions::examples(&[]));
    let app = TestApp::with("fair_left.ts", SIDE).and("fair_right.ts", SIDE).and("fair.ts", FAIR);
    assert_eq!(app.deploy(&server, "fair").status, 201);
    let (stops, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let waits = scope(|threads| {
        for number in 0..OTHERS {
            let (mut connection, stops, done) = (server.connect(), &stops, &done);
            threads.spawn(move || {
                while !stops.load(Ordering::Relaxed) {
                    post(&mut connection, many, number);
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        // The others are told to stop even if a turn fails.
        let _ends = StopOnDrop(&stops);
        let mut connection = server.connect();
        let turn = |number| {
            let before = done.load(Ordering::SeqCst);
            wait_until("the others go on", || done.load(Ordering::SeqCst) > before + OTHERS as u64);
            let before = done.load(Ordering::SeqCst);
            post(&mut connection, one, number);
            done.load(Ordering::SeqCst) - before
        };
        (0..TURNS).map(turn).collect::<Vec<u64>>()
    });
    let total = done.into_inner();
    println!(
        "{one} among {OTHERS} that {many}: {} of {total} passed in a turn at the most",
        waits.iter().max().expect("turns")
    );
    waits
}

#[test]
fn who_writes_among_many_who_read_has_its_turn() {
    let waits = turns("write", "read");
    assert!(waits.iter().all(|wait| *wait <= ROUNDS * OTHERS as u64), "{waits:?}");
}

#[test]
fn who_reads_among_many_who_write_has_its_turn() {
    let waits = turns("read", "write");
    assert!(waits.iter().all(|wait| *wait <= ROUNDS * OTHERS as u64), "{waits:?}");
}
